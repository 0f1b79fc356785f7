"""The notes that hooks leave for the tick."""

import time

from dispatch_hooks import child, files, flat_json

NOTE_MAX = 65536


def opening(word, cluster, job_id, at):
    """The fields that each note begins with."""
    return [
        ("v", 1),
        ("job", word.job),
        ("generation", word.generation),
        ("submission", word.submission),
        ("shared", word.shared),
        ("cluster", cluster if isinstance(cluster, str) else cluster.decode("utf-8", "replace")),
        ("slurm_job_id", job_id),
        ("at", at),
    ]


def now():
    """(Unix seconds, the same in nanoseconds for a name)."""
    moment = time.time()
    return moment, int(moment * 1e9)


def of_node(ended, cluster, job_id, node, *, boot, clean, left=(), verified=True, how="scan"):
    """(name, content) of a node note about an :class:`~dispatch_hooks.execution.Execution`.

    :param how: ``scan``: the node was searched; ``boot``: it has booted since.
    """
    at, at_ns = now()
    name = "node.%s.%d.%s.%s.%d" % (ended.word.name, job_id, ended.attempt, node, at_ns)
    fields = opening(ended.word, cluster, job_id, at) + [
        ("attempt", ended.attempt),
        ("epoch", ended.epoch),
        ("node", node),
        ("boot", boot),
        ("clean", clean),
        ("left", list(left)),
        ("start_time", ended.start_time or None),
        ("verified", verified),
        ("how", how),
    ]
    return name, flat_json.render(fields)


def leave(site, name, fields):
    """Write a note as SlurmUser, in this process, which gives up root for it.

    :returns: true if this call made it, false if there was one of the name.
    :raises OSError: it could not be written.
    """
    child.become(site.slurm_user)
    return files.create_whole(site.notes, name, flat_json.render(fields))
