"""The text of a job's dependencies, as sbatch takes it and as squeue prints it. No I/O.

``afterok:101:102+5,afterany:103?singleton``: conditions separated by ``,`` (all) or ``?`` (one of them), each with
its ids; squeue prints one id a condition, with what became of it behind it: ``afterok:101(unfulfilled)``. What is
fulfilled squeue leaves out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_STATE = re.compile(r"\((?:unfulfilled|failed|fulfilled)\)")
_ENTRY = re.compile(r"(after[a-z]*):([0-9]{1,10})(?![0-9_])((?:\+[0-9]+)?)(\([a-z]+\))?")
_CONDITION = re.compile(r"(after[a-z]*):([0-9:+_*\[\]-]+)")
_ID = re.compile(r"([0-9]{1,10})((?:\+[0-9]+)?)\Z")


def conditions(text: str) -> Iterator[tuple[str, frozenset[int]]]:
    """Each condition that ``text`` has, and the ids of whole jobs that it names; tasks of an array are none."""
    for found in _CONDITION.finditer(text):
        yield found[1], frozenset(int(match[1]) for part in found[2].split(":") if (match := _ID.match(part)))


def mentioned(text: str) -> frozenset[int]:
    """The ids of whole jobs that ``text`` names."""
    return frozenset().union(*(ids for _, ids in conditions(text)))


def moved(text: str, old: Collection[int], new: int) -> str | None:
    """What squeue printed, as ``scontrol update`` takes it, with ``new`` in the place of every id of ``old``.

    ``new`` itself is asked for anew where it counts as failed: Slurm does not do that by itself, not even where the
    job was requeued since.

    :returns: ``None`` where nothing is to be changed.
    """
    changed = False

    def entry(match: re.Match[str]) -> str:
        nonlocal changed
        number = int(match[2])
        if number in old or (number == new and match[4] == "(failed)"):
            changed = True
            return f"{match[1]}:{new}{match[3]}"
        return match[0]

    found = _ENTRY.sub(entry, text)
    return _STATE.sub("", found) if changed else None


def is_met(condition: str, why: str) -> bool:
    """Whether ``afterok`` and its like are met by a job that was closed for the reason ``why``; else they never will
    be."""
    if condition in {"after", "afterany"}:
        return True
    return why != "completed" if condition == "afternotok" else why == "completed"


def repeated(text: str, objects: Mapping[int, int], closed: Mapping[int, str]) -> str:
    """A dependency that was not met yet, for a later submission: jobs that go on under another id by that, and what
    is met left out, since Slurm refuses a job that it no longer knows.

    :param objects: Slurm job id of an open job of the owner's to the one that it has now.
    :param closed: Slurm job id of a closed job to the ``why`` of its end.
    :returns: empty where nothing is left.
    """
    if "?" in text:  # one of them is enough: what is left out would make it another condition
        return _CONDITION.sub(lambda match: f"{match[1]}:{_renamed(match[2], objects)}", text)
    left = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            left.append(part)
            continue
        ids = [it for it in match[2].split(":") if not _is_done(match[1], it, closed)]
        if ids:
            left.append(f"{match[1]}:{_renamed(':'.join(ids), objects)}")
    return ",".join(left)


def _is_done(condition: str, text: str, closed: Mapping[int, str]) -> bool:
    match = _ID.match(text)
    return match is not None and int(match[1]) in closed and is_met(condition, closed[int(match[1])])


def _renamed(ids: str, objects: Mapping[int, int]) -> str:
    found = []
    for text in ids.split(":"):
        match = _ID.match(text)
        found.append(f"{objects.get(int(match[1]), int(match[1]))}{match[2]}" if match else text)
    return ":".join(found)


__all__ = ["conditions", "is_met", "mentioned", "moved", "repeated"]
