"""Whether the executions of a checkpoint root run: from this node, the jobs' records, and the helper's own marks.

The law: *whoever calls an execution running is believed; that it is over must be said by its job's record with a
proof of each node, or by its helper, which has ended and publishes nothing more; everything else is unknown.*
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, DispatchError, StoreError
from slurm_dispatch.store.gc import Known, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import Execution, State, Submission
    from slurm_dispatch.slurm.port import Unknown
    from slurm_dispatch.store.roots import Root

    Reasons = Callable[[AskedExecution], Mapping[str, str] | Unknown]

ASK_S = 20.0
"""How long Slurm may take to say why nodes are drained."""


class Executions:
    """What is known of the executions of one root. Reads the records and this node once, when it is first asked.

    :param over: attempts that a person says are over. That outweighs "unknown" and "ended", never "running".
    :param site: the site's settings; ``None`` where dispatch is not set up: then there is no record.
    """

    def __init__(self, root: Root, over: Sequence[str] = (), *, site: Site | None = None) -> None:
        self._root = root
        self._over = frozenset(over)
        self._site = site
        self._reasons: dict[str, Mapping[str, str] | Unknown] = {}
        self._here: frozenset[str] | None = None
        self._records: dict[str, tuple[State, list[Fact]] | DispatchError] | None = None

    def __call__(self, attempt: str) -> Known:
        """What is known of one execution."""
        known = self._known(attempt)
        if known.standing in {Standing.UNKNOWN, Standing.ENDED} and attempt in self._over:
            return Known(Standing.OVER, "a person says so")
        return known

    def records(self) -> dict[str, tuple[State, list[Fact]] | DispatchError]:
        """By key: the records of the jobs that have claimed the root, or why one cannot be read."""
        if self._records is None:
            self._records = read_records(self._root, self._site)
        return self._records

    def _known(self, attempt: str) -> Known:
        if attempt in self._on_this_node():
            return Known(Standing.RUNNING, "it runs on this node")
        broken = ""
        for key, found in self.records().items():
            if isinstance(found, DispatchError):
                broken = broken or f"the record of job {key} cannot be read: {found}"
                continue
            known = of_record(attempt, *found, reasons=self._why_drained)
            if known is not None and (known.standing is not Standing.UNKNOWN):
                return Known(known.standing, f"job {key}: {known.why}")
            if known is not None:
                return self._of_marks(attempt, f"job {key}: {known.why}")
        if broken:
            return Known(Standing.UNKNOWN, broken)
        return self._of_marks(attempt, "no record here has it")

    def _of_marks(self, attempt: str, otherwise: str) -> Known:
        """What the helper left in the execution's own folder: a run that has ended, or whose process is gone."""
        from slurm_dispatch.watch.turn import last_run

        try:
            run = last_run(self._root, attempt)
        except StoreError as error:
            return Known(Standing.UNKNOWN, f"{otherwise}, and its helper's mark cannot be read: {error}")
        if run is None:
            return Known(Standing.UNKNOWN, f"{otherwise}, and no helper ran in it")
        if run.over:
            return Known(Standing.ENDED, "its helper has ended")
        return Known(Standing.UNKNOWN, f"{otherwise}, and its helper has not said that it ended")

    def _on_this_node(self) -> frozenset[str]:
        from slurm_dispatch.slurm import on_node
        from slurm_dispatch.slurm.processes import carried

        if self._here is None:
            self._here = carried() | {it.attempt for it in on_node.executions()}
        return self._here

    def _why_drained(self, execution: AskedExecution) -> Mapping[str, str] | Unknown:
        from slurm_dispatch.cli.cessation import reasons_of
        from slurm_dispatch.slurm.port import Unknown

        if self._site is None or not any(word.clean for word in execution.words):
            return Unknown("not asked")
        if execution.cluster not in self._reasons:
            self._reasons[execution.cluster] = reasons_of(execution, ASK_S, self._site)
        return self._reasons[execution.cluster]


def site_here() -> Site | None:
    """The site's settings, or ``None`` where dispatch was not set up: there is no file and no variable names one.

    :raises ConfigurationError: there are settings, and they are wrong.
    """
    import os

    from slurm_dispatch.config.site import DEFAULT_PATH, VARIABLE, load_site

    if not os.environ.get(VARIABLE) and not os.path.lexists(DEFAULT_PATH):
        return None
    return load_site()


def read_records(root: Root, site: Site | None) -> dict[str, tuple[State, list[Fact]] | DispatchError]:
    """The records of all jobs that have claimed the root, by key. A job without a record here is not among them."""
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.state.folder import StateFolder
    from slurm_dispatch.state.read import read_jobs

    keys = list(dict.fromkeys(root.owners().values()))
    found: dict[str, tuple[State, list[Fact]] | DispatchError] = {}
    if site is None or not keys:
        return found
    try:
        folder = StateFolder(site.state)
        jobs = [job for job in map(folder.job, keys) if job is not None]
        read = read_jobs(folder, jobs, deadline_s=site.owner_timeout_s)
    except DispatchError as error:
        return dict.fromkeys(keys, error)
    for key, facts in read.items():
        try:
            found[key] = facts if isinstance(facts, DispatchError) else (fold(facts), facts)
        except BadDataError as error:
            found[key] = error
    return found


def job_of(records: Mapping[str, tuple[State, list[Fact]] | DispatchError], attempt: str) -> str:
    """The job whose record has this execution; the newest of the root's jobs if none does."""
    for key, found in records.items():
        if not isinstance(found, DispatchError) and any(
            it.attempt == attempt for submission in found[0].submissions for it in submission.executions
        ):
            return key
    return list(records)[-1]


def of_record(attempt: str, state: State, facts: Sequence[Fact], *, reasons: Reasons) -> Known | None:
    """What one job's record says of an execution, ``None`` if it has none of this attempt."""
    for submission in state.submissions:
        for execution in submission.executions:
            if execution.attempt == attempt:
                return _judged(state, submission, execution, facts, reasons)
    adopted = [it.body["name"] for it in facts if it.kind == "adopted"]
    if any(_holds(name, attempt) for name in adopted):
        return Known(Standing.ENDED, "a person made it to adopt a save, and nothing ever ran in it")
    return None


def _judged(
    state: State, submission: Submission, execution: Execution, facts: Sequence[Fact], reasons: Reasons
) -> Known:
    from slurm_dispatch.records.cessation import CEASED, RUNNING, UNKNOWN
    from slurm_dispatch.slurm.cessation import judge

    told = state.cessation.get(execution.attempt)
    answer, detail = (told.answer, told.detail) if told is not None else (UNKNOWN, "nobody was asked")
    question = None if answer == CEASED else _question(state, submission, execution, facts)
    if question is not None:
        judged = judge(question, reasons(question), time.time())
        answer, detail = (judged.answer, judged.detail) if judged.answer != UNKNOWN else (answer, detail)
    if answer == CEASED:
        return Known(Standing.OVER, f"it has ceased ({detail})")
    if answer == RUNNING:
        return Known(Standing.RUNNING, f"it has not ceased ({detail})")
    if not _has_ended(submission, execution):
        return Known(Standing.RUNNING, f"submission {submission.number} has no end on record")
    return Known(Standing.UNKNOWN, f"it has ended, and whether its processes are gone is not known ({detail})")


def _question(
    state: State, submission: Submission, execution: Execution, facts: Sequence[Fact]
) -> AskedExecution | None:
    from slurm_dispatch.model.hostlist import expand
    from slurm_dispatch.records.cessation import AskedExecution, words_of

    if submission.object is None or not execution.started:
        return None
    try:
        return AskedExecution(
            submission.object.cluster,
            submission.object.slurm_job_id,
            execution.attempt,
            expand(execution.nodes),
            execution.start_time,
            None,
            state.spec.uid,
            state.spec.user,
            words_of(facts, execution.attempt),
        )
    except BadDataError:
        return None


def _has_ended(submission: Submission, execution: Execution) -> bool:
    """Whether the record has an end for it: of the object, of this restart or a later one, or a later start."""
    restart = execution.epoch.restart
    if submission.end is not None:
        return True
    if any(end.restart is not None and end.restart >= restart for end in submission.ends):
        return True
    return any(other.started and other.epoch.restart > restart for other in submission.executions)


def _holds(name: str, attempt: str) -> bool:
    from slurm_dispatch.model.publication import parse_name

    try:
        return parse_name(name).attempt == attempt
    except BadDataError:
        return False


__all__ = ["Executions", "job_of", "of_record", "read_records", "site_here"]
