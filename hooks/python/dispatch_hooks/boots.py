"""A node that has booted since an execution began there has nothing of it left, and says so itself.

After a reboot no Epilog ever comes for what ran before. So Prolog writes the execution of a job with a shared
checkpoint, whose end somebody waits for, into the node's spool too, with the boot it begins under; Epilog takes it
away once the node is clean. Where one is found under another boot (when slurmd starts, before and after each job of
ours) a node note says so. A spool that a reboot empties proves nothing.
"""

import os
import time

from dispatch_hooks import child, execution, files, notes, processes, spool

PREFIX = "begun."
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.")
TOLD_MAX = 32
"""Executions that one hook tells of at most: the rest waits for the next one."""


def run(call, site):
    """The hook ``boot``, for the start of slurmd: tell what was begun under another boot; false always."""
    tell(site, time.monotonic() + site.work_s)
    return False


def begin_execution(call, site, content):
    """Keep an execution (the bytes of its file) over a reboot, with what its node note will need."""
    boot = processes.boot()
    if boot is None:
        return
    more = "BOOT=%s\nHOST=%s\nCLUSTER=%s\nNODE=%s\nOWN_JOB_ID=%d\n" % (
        boot,
        os.uname().nodename,
        "".join(c if " " <= c <= "~" else "?" for c in call.cluster.decode("utf-8", "replace"))[:256],
        call.node_name(),
        call.job_id,
    )
    folder = files.open_own_folder(site.spool, 0o700)
    try:
        # The latest boot counts, if Slurm begins the same execution on this node again.
        temporary = files.write_temporary(content + more.encode("ascii"), 0o600, folder, sync=True)
        os.rename(temporary, _name(call.attempt(), call.job_id), src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)


def end_execution(site, attempt, job_id):
    """Forget an execution: its Epilog has found the node clean."""
    files.remove(os.path.join(site.spool, _name(attempt, job_id)), None)


def _name(attempt, job_id):
    return "%s%s.%d" % (PREFIX, attempt, job_id)


def has_kept(path):
    """Whether the spool keeps any execution."""
    try:
        return any(name.startswith(PREFIX) for name in os.listdir(path))
    except OSError:
        return False  # nothing was ever put there


def tell(site, deadline):
    """Leave a node note for each execution that was begun under another boot. This process touches no disk."""
    begin = time.monotonic()
    if site.notes is None:
        child.watch(lambda say: _put(site), deadline)
        return
    answer, _ = child.watch(lambda say: _hand_over(site, say), begin + 0.7 * (deadline - begin))
    there = answer.decode("ascii").split()
    if there:  # what did not get there stays for the next hook
        child.watch(lambda say: spool.forget(site.spool, there), deadline)


def _hand_over(site, say):
    before = _before(site.spool)
    if before:
        child.become(site.slurm_user)
    for name, (note_name, content) in before:
        files.create_whole(site.notes, note_name, content)
        say(b"%s " % name.encode("ascii"))


def _put(site):
    for name, (note_name, content) in _before(site.spool):
        spool.put(site.spool, note_name, content)
        spool.forget(site.spool, [name])


def _before(path):
    """[(name in the spool, (name of the note, its content))] of what began under another boot than this."""
    found = []
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return found  # nothing was ever put there
    try:
        names = [n for n in os.listdir(folder) if n.startswith(PREFIX) and _NAME.issuperset(n)]
        if not names or os.fstat(folder).st_uid != os.geteuid():
            return found
        boot = processes.boot()
        for name in sorted(names):
            try:
                content = files.read_regular(name, execution.LIMIT, folder)
                fields = dict(line.partition("=")[::2] for line in content.decode("ascii").split("\n"))
                if boot is None or fields["BOOT"] == boot:
                    continue
                if fields["HOST"] != os.uname().nodename:
                    raise ValueError("it came from host %s with a copy of its disk" % fields["HOST"])
                began = execution.Execution(name, content)
                about = (began, fields["CLUSTER"], int(fields["OWN_JOB_ID"]), fields["NODE"])
                note = notes.of_node(*about, boot=boot, clean=True, how="boot")
                found.append((name, note))
            except (OSError, ValueError, KeyError) as error:
                child.say("boot", "%s: %s" % (name, files.reason(error)))
                files.remove(name, folder)
            if len(found) == TOLD_MAX:
                break
    except OSError as error:
        child.say("boot", "%s: %s" % (path, files.reason(error)))
    finally:
        os.close(folder)
    return found
