"""What is said where a checkpoint root is not the job's: the same of roots in folders and in S3. No I/O."""

from __future__ import annotations

from slurm_dispatch.errors import CannotCreateError, show

_NOBODY = "another root, or `dispatch sbatch --adopt-root` to start above everything that is in it"


def anothers(root: str, generation: int, owner: str | None) -> CannotCreateError:
    """The generation was claimed by another job."""
    return CannotCreateError(
        f"checkpoint root {show(root)} is job {show(owner or '?')}'s in generation {generation}",
        hint=f"use `dispatch supersede {show(owner or '?')}`, {_NOBODY}",
    )


def outranked(root: str, generation: int, highest: int, owner: str | None) -> CannotCreateError:
    """A job has claimed a higher generation."""
    return CannotCreateError(
        f"checkpoint root {show(root)} is in generation {highest} of job {show(owner or '?')}, "
        f"above generation {generation}",
        hint=f"use `dispatch supersede {show(owner or '?')}`, {_NOBODY}",
    )


def foreign(root: str, generation: int) -> CannotCreateError:
    """Somebody has published in a generation that nobody has claimed: a root that was copied."""
    return CannotCreateError(
        f"checkpoint root {show(root)} has publications of generation {generation} of another job",
        hint=f"use {_NOBODY}",
    )


__all__ = ["anothers", "foreign", "outranked"]
