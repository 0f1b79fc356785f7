"""The node's spool: root's own folder on the node's disk, for notes that could not be written where they belong."""

import os

from dispatch_hooks import child, files, notes

WAITING_MAX = 32
"""Notes that one Epilog hands on at most: the rest waits for the next one, and no Epilog takes long."""


def put(spool, name, content):
    """Write a note into the spool, which is made if it is missing."""
    os.close(files.open_own_folder(spool, 0o700))
    files.create_whole(spool, name, content)


def waiting(spool):
    """(name, content) of the oldest notes that wait there, at most :data:`WAITING_MAX`."""
    try:
        folder = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []  # nothing was ever put there
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return []  # somebody else's: what is in it is no note of ours
        # The time is the last part of a note's name.
        ours = [name for name in os.listdir(folder) if name.startswith(("node.", "handed."))]
        names = sorted(ours, key=lambda name: name.rpartition(".")[2])
        return [(name, files.read_regular(name, notes.NOTE_MAX, folder)) for name in names[:WAITING_MAX]]
    except (OSError, ValueError) as error:
        child.say("epilog", "%s: the notes in it stay: %s" % (spool, files.reason(error)))
        return []
    finally:
        os.close(folder)


def forget(spool, names):
    """Remove notes that are now where they belong."""
    for name in names:
        files.remove(os.path.join(spool, name), None)
