"""Durations and sizes as people write them: ``30s``, ``10m``, ``24h``, ``3d``; ``512M``, ``64G``, ``2T``.

One whole number and one unit, so that a text has one meaning: a bare number would be seconds to one reader
and minutes, Slurm's unit, to another.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from slurm_dispatch.errors import BadDataError, show

DURATION_S_MAX = 3650 * 86400.0
"""Ten years: no job, hold or wait is meant to be longer, and every date stays one that can be shown."""
SIZE_MB_MAX = 1024**3
"""A PiB of memory for each node, in MiB."""
_DURATION = re.compile(r"(0|[1-9][0-9]{0,9})([smhd])\Z")
_SIZE = re.compile(r"(0|[1-9][0-9]{0,9})([MGT])\Z")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_MEGABYTES = {"T": 1024**2, "G": 1024, "M": 1}


def parse_duration(text: str) -> float:
    """Seconds of ``text``, 0 to :data:`DURATION_S_MAX`.

    :raises BadDataError: it does not parse or is longer.
    """
    match = _DURATION.match(text)
    if match is None:
        raise BadDataError(f"'{show(text)}' is not a duration", hint="write it like 30s, 10m, 24h or 3d")
    seconds = float(int(match[1]) * _SECONDS[match[2]])
    if seconds > DURATION_S_MAX:
        raise BadDataError(f"{text} is longer than ten years")
    return seconds


def duration(seconds: float) -> str:
    """The text of a number of seconds, in the largest unit that it is a whole number of; days from three on,
    since people say 24h and 48h. A fraction of a second is left out.
    """
    whole = int(seconds)
    for unit, length in _SECONDS.items():
        if whole and whole % length == 0 and not (unit == "d" and whole < 3 * length):
            return f"{whole // length}{unit}"
    return f"{whole}s"


def parse_size(text: str) -> float:
    """MiB of ``text`` (Slurm's ``M``, ``G`` and ``T``), 0 to :data:`SIZE_MB_MAX`.

    :raises BadDataError: it does not parse or is more.
    """
    match = _SIZE.match(text)
    if match is None:
        raise BadDataError(f"'{show(text)}' is not a size", hint="write it like 500M, 64G or 2T")
    megabytes = float(int(match[1]) * _MEGABYTES[match[2]])
    if megabytes > SIZE_MB_MAX:
        raise BadDataError(f"{text} is more than a PiB")
    return megabytes


def size(megabytes: float) -> str:
    """The text of a number of MiB, in the largest unit that it is a whole number of; a fraction is left out."""
    whole = int(megabytes)
    for unit, length in _MEGABYTES.items():
        if whole and whole % length == 0:
            return f"{whole // length}{unit}"
    return f"{whole}M"


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of a date (``2027-01-31``: its beginning), a date with a time (``2027-01-31T18:00``, in local
    time unless it names its offset), or a duration from ``now`` on.

    :raises BadDataError: it is none of them.
    """
    if _DURATION.match(text):
        return now + parse_duration(text)
    try:
        # Python 3.10 does not take the Z that other tools write.
        found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
        return found.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise BadDataError(
            f"'{show(text)}' is not a date", hint="write it like 2027-01-31, 2027-01-31T18:00 or 30d"
        ) from error


def moment(seconds: float, *, utc: bool = False) -> str:
    """The local date and time of Unix seconds, to the minute, with the zone.

    :param utc: not the local one, for a text that must be the same on every host.
    """
    try:
        found = datetime.fromtimestamp(seconds, timezone.utc)
        return (found if utc else found.astimezone()).strftime("%Y-%m-%d %H:%M %Z")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f}"
