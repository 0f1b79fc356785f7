"""Run one command of Slurm with a deadline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    :param status: exit status; negative: the signal that ended it; ``None``: it could not be started
        (``failure`` says why).
    :param timed_out: this process killed it at the deadline.
    :param truncated: it printed more than the limit and was killed for it.
    """

    status: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    failure: str = ""


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    environment: Mapping[str, str],
    stdin: bytes | None = b"",
    limit: int = 64 << 20,
    workdir: str | None = None,
    umask: int | None = None,
    relay: bool = False,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run ``argv``, never in a shell; killed, and its descendants' pipes given up, at the deadline.

    :param stdin: ``None``: it reads ours.
    :param limit: bytes of stdout that are kept; a command that prints more is killed (``truncated``).
    :param relay: what it prints is written on to our stdout and stderr as it comes.
    """
    raise NotImplementedError
