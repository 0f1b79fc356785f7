"""The choice of the save to resume from: made once an execution, by an exclusive file that everyone reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot


@dataclass(frozen=True, slots=True)
class Choice:
    """What this execution resumes from.

    :ivar turn: 1 for the first choice of the execution, 2 for ``choice-2``, and so on.
    :ivar epoch: of the execution.
    :ivar resume: absolute path of the save, or ``None`` on a first start.
    :ivar step: the save's step; ``None`` on a first start and for ``start_from``.
    :ivar source: name of the publication; ``None`` likewise.
    :ivar outranked: a publication of a greater epoch was there: nothing of this execution will be latest.
    """

    turn: int
    epoch: int
    resume: str | None
    step: int | None
    source: str | None
    outranked: bool = False


def choose(
    root: CheckpointRoot,
    attempt: str,
    *,
    epoch: int,
    start_from: str | None = None,
    again: bool = False,
    copy: bool = False,
    fallback: bool = False,
) -> Choice:
    """The execution's choice; makes it if there is none yet, or if what was chosen is gone.

    Takes the latest save into ``resume/`` (:func:`slurm_dispatch.store.keep.take`). Of many processes that
    choose at once all get the same.

    :param start_from: an absolute path made before dispatch, used only while ``pub/`` is empty.
    :param again: a new turn of the command in the same execution: choose anew (``choice-<n>``).
    """
    raise NotImplementedError


def read_choice(root: CheckpointRoot, attempt: str) -> Choice | None:
    """The newest choice of the execution, or ``None`` if there is none yet."""
    raise NotImplementedError
