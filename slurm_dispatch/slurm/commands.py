"""The port by Slurm's commands: argv lists, ``LC_ALL=C``, explicit fields, a deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class SlurmCommands:
    """A :class:`slurm_dispatch.slurm.port.SlurmPort` that runs ``sbatch``, ``squeue``, ``scontrol``, ``sacct``, ``scancel``."""

    def __init__(self, *, environment: Mapping[str, str], timeout_s: float = 30.0) -> None:
        """Commands are found on ``environment["PATH"]``; nothing runs yet."""
        raise NotImplementedError
