"""Which rows of accounting are of one object: an id is given away again, and few rows have the job's word. No I/O.

Accounting has the word where the site stores comments and the owner left it there. Without it a row is the object's
by its time of submission, which the clocks of two hosts tell apart to some minutes only. What can be of another
object of the same owner is in doubt, and what is in doubt ends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.port import JobDetail, QueueJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.state import State, Submission

SKEW_S = 300.0
"""How far the clocks of the submitting host and of slurmctld may differ."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one object, oldest first.

    :param doubtful: they can be another object's.
    """

    of_object: tuple[JobDetail, ...] = ()
    doubtful: bool = False


def in_time(submit_time: int | None, submission: Submission) -> bool:
    """An object that was submitted at this time can be the submission's."""
    return submit_time is None or submission.at - SKEW_S <= submit_time <= submission.deadline + SKEW_S


def rows_of(
    rows: Sequence[JobDetail], state: State, submission: Submission, seen: QueueJob | JobDetail | None
) -> Rows:
    """Those of ``rows``, all of one id, that are of the submission's object: its owner's, and no later job's.

    :param seen: what slurmctld has under this id, if it can be the submission's object and has no word; or the
        object's own details.
    """
    word = state.spec.word(submission.number)
    owned = [
        row for row in rows
        if row.uid == state.spec.uid and (row.word == word or (row.word is None and _is_later(row, submission)))
    ]  # fmt: skip
    if isinstance(seen, JobDetail) and seen.restart == 0 and seen.submit_time is not None:
        # Never requeued, so that each row of it has its own time of submission.
        owned = [row for row in owned if row.word == word or row.submit_time in {None, seen.submit_time}]
    owned.sort(key=lambda row: (row.submit_time or 0, row.start_time or 0))
    # By the word, or by a start that a hook noted with it: only one object of an id starts in a second.
    starts = {int(it.start_time) for it in submission.executions if it.start_time is not None}
    sure = [row for row in owned if row.word == word or row.start_time in starts]
    firsts = sure or [row for row in owned if in_time(row.submit_time, submission)]
    if not firsts:
        return Rows()
    first = firsts[0]
    mine = [first]
    for row in owned[owned.index(first) + 1 :]:
        # The later ones are its requeues, unless the count began again: then the id did. The clock of slurmctld may
        # have stepped back, and what came before it look later.
        ours = not sure or (_is_over(mine[-1]) and not _is_a_siblings(row, state, submission))
        if row in sure or row.submit_time == first.submit_time or (row.restart != 0 and ours):
            mine.append(row)
    if sure:
        return Rows(tuple(mine))
    begun = {row.submit_time for row in firsts if row is first or row.restart == 0}
    if isinstance(seen, QueueJob):
        begun.add(seen.submit_time)
    return Rows(tuple(mine), doubtful=len(begun - {None}) > 1 or _is_a_siblings(first, state, submission))


def _is_later(row: JobDetail, submission: Submission) -> bool:
    """Submitted no earlier than the submission, as far as a time can say it: a clock may have stepped since."""
    return row.submit_time is None or row.submit_time >= submission.at - SKEW_S


def _is_over(row: JobDetail) -> bool:
    return row.end_time is not None or "REQUEUED" in row.states


def _is_a_siblings(row: JobDetail, state: State, submission: Submission) -> bool:
    """Another submission of this job was given the same id, at a time that can be the row's as well."""
    own = submission.object
    return own is not None and any(
        it.number != submission.number
        and it.object is not None
        and it.object.slurm_job_id == own.slurm_job_id
        and in_time(row.submit_time, it)
        for it in state.submissions
    )


__all__ = ["SKEW_S", "Rows", "in_time", "rows_of"]
