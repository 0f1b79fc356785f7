"""What Slurm told this call of a hook, from its environment; nothing in it is trusted to be well formed."""

import os

from dispatch_hooks import identity

JOB_ID_MAX = 2**32 - 1
TIME_MAX = 2**40
TEXT_MAX = 256
"""Bytes of a user's, partition's or account's name that go into a note."""
NODES_MAX = 40000
"""Bytes of a node list that go into a note: a note stays below 64 KiB."""


class Call:
    """One call of a hook.

    ``job_id``, ``leader`` (``None`` but in heterogeneous jobs), ``restart`` and ``start_time`` are numbers
    or ``None``; ``word`` is the :class:`~dispatch_hooks.identity.Word` of the comment or ``None``.
    """

    def __init__(self, environment=None):
        self.environment = os.environb if environment is None else environment
        self.word = identity.find_word(self.raw(b"SLURM_JOB_COMMENT"))
        self.job_id = self.number(b"SLURM_JOB_ID", JOB_ID_MAX) or None
        self.leader = self.number(b"SLURM_HET_JOB_ID", JOB_ID_MAX) or None
        self.restart = self.number(b"SLURM_JOB_RESTART_COUNT", identity.RESTART_MAX)
        self.start_time = self.number(b"SLURM_JOB_START_TIME", TIME_MAX) or None
        self.cluster = self.raw(b"SLURM_CLUSTER_NAME")

    def raw(self, name):
        """A variable's bytes, empty if it is not set."""
        return self.environment.get(name, b"")

    def number(self, name, greatest):
        """A variable that is a number of 0 to ``greatest``; ``None`` if it is not set or is anything else."""
        return identity.number(self.raw(name), greatest)

    def text(self, name, limit=TEXT_MAX):
        """A variable as text for a note, or ``None`` if it is not set or longer than ``limit`` bytes."""
        value = self.environment.get(name)
        return None if value is None or len(value) > limit else value.decode("utf-8", "replace")

    def nodes(self):
        """The node list (Prolog of 22.05 has only the older name)."""
        return self.text(b"SLURM_JOB_NODELIST", NODES_MAX) or self.text(b"SLURM_NODELIST", NODES_MAX) or ""

    def node_name(self):
        """The node's name in Slurm, with nothing in it that a file's name cannot carry."""
        name = self.text(b"SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
        return "".join(c if (c.isalnum() and c < "\x7f") or c in "-_." else "_" for c in name)[:64] or "_"

    def uid(self):
        """The job's user id as Slurm says it; 0 in the Epilog of a job that the controller has forgotten."""
        return self.number(b"SLURM_JOB_UID", 2**32 - 2)

    def count(self):
        """The restart count of the execution that a starting hook (Prolog, PrologSlurmctld) is called for.

        :raises ValueError: what Slurm gave is no count; nothing given is 0.
        """
        if self.restart is None and self.raw(b"SLURM_JOB_RESTART_COUNT"):
            raise ValueError("the restart count is not a number of 0 to %d" % identity.RESTART_MAX)
        return self.restart or 0

    def attempt(self):
        """The attempt of the execution that a starting hook is called for."""
        start = None if self.leader else self.start_time
        return identity.attempt_of(self.cluster, self.leader or self.job_id, self.word, self.count(), start)

    def file_name(self):
        """The execution file's name: ``<job id, the leader's>.<start time or 0>``."""
        return "%d.%d" % (self.leader or self.job_id, self.start_time or 0)

    def own_name(self):
        """The name of the file by which Epilog knows this call's execution: a component has one of its own,
        ``<file name>.<job id>``, because it can share node and start time, and so the file, with another."""
        return self.file_name() if self.leader is None else "%s.%d" % (self.file_name(), self.job_id)
