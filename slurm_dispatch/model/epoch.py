"""The epoch: one number that puts every execution of a job in order.

``G*10^12 + N*10^6 + R``. It only rises along a job's executions and on across supersession, and fits a
signed 64-bit number for every value within the bounds below.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_dispatch.errors import BadDataError

GENERATION_MAX = 9_223_371
"""The greatest G for which every epoch is below 2^63."""
SUBMISSION_MAX = 999_999
RESTART_MAX = 999_999
"""Slurm's own counter is 16 bits wide, so it never gets there."""
EPOCH_MAX = GENERATION_MAX * 10**12 + SUBMISSION_MAX * 10**6 + RESTART_MAX
UNMANAGED = 0
"""The epoch of a run without identity: below all others, since N begins at 1."""


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Generation, submission and restart count of one execution, in the order that counts.

    :raises BadDataError: for a part out of bounds; the message names the part and its bounds.
    """

    generation: int
    submission: int
    restart: int

    def __post_init__(self) -> None:
        check("generation", self.generation, 0, GENERATION_MAX)
        check("submission", self.submission, 1, SUBMISSION_MAX)
        check("restart", self.restart, 0, RESTART_MAX)

    def __int__(self) -> int:
        return self.generation * 10**12 + self.submission * 10**6 + self.restart

    def __str__(self) -> str:
        return str(int(self))

    @classmethod
    def from_int(cls, number: int) -> Epoch:
        """The parts of an epoch other than :data:`UNMANAGED`."""
        check("epoch", number, 1, EPOCH_MAX)
        generation, rest = divmod(number, 10**12)
        submission, restart = divmod(rest, 10**6)
        return cls(generation, submission, restart)


def parse_epoch(text: str) -> int:
    """An epoch as the environment has it: decimal digits without sign, space or leading zero.

    :returns: 0 for an unmanaged run, otherwise a number that :meth:`Epoch.from_int` takes.
    """
    number = parse_count("epoch", text, EPOCH_MAX)
    if number != UNMANAGED:
        Epoch.from_int(number)
    return number


def parse_count(what: str, text: str, greatest: int) -> int:
    """A number from 0 to ``greatest`` in its one canonical form (``int()`` takes ``+1``, ``1_0`` and more)."""
    if not (text.isascii() and text.isdigit()) or (len(text) > 1 and text[0] == "0") or len(text) > 20:
        raise BadDataError(f"{what} {text!r} is not a whole number", hint=f"it is 0 to {greatest}")
    number = int(text)
    check(what, number, 0, greatest)
    return number


def check(what: str, number: int, least: int, greatest: int) -> None:
    """Refuse a number that is out of its bounds."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadDataError(f"{what} {number!r} is not a whole number")
    if not least <= number <= greatest:
        raise BadDataError(f"{what} {number} is out of bounds", hint=f"it is {least} to {greatest}")
