"""Find the job that a person means."""

from __future__ import annotations


def find_job(text: str) -> str:
    """The key of the job that ``text`` names: its key, a Slurm job id that it ever had, or its unique name.

    Looks at the caller's own records; root looks at all, each in its owner's child.

    :raises NothingThereError: no such job.
    :raises UsageError: more than one; all are named.
    """
    raise NotImplementedError
