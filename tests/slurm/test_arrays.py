"""What Slurm says of a real array, and that no verb of ours can hit one whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm import commands
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.parse import (
    parse_accounting,
    parse_dependents,
    parse_detail_json,
    parse_detail_text,
)
from slurm_dispatch.slurm.port import (
    Absent,
    Accepted,
    ChangeAnswer,
    Dependent,
    JobDetail,
    Present,
    Rejected,
    Unknown,
)
from slurm_dispatch.slurm.reply import read_reply
from slurm_dispatch.slurm.run import Finished
from tests.slurm.recorded import NONCE, answer, array_of, dependents_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence


BOTH = ("22.05", "24.11")


class Said:
    """What the commands were called with, and what they answer."""

    def __init__(self, status: int = 0, stdout: str = "", stderr: str = "", release: str = "24.11") -> None:
        self.version = f"slurm {release}.5\n".encode()
        self.argvs: list[list[str]] = []
        self.finished = Finished(status, stdout.encode(), stderr.encode(), timed_out=False)

    def __call__(self, argv: Sequence[str], *_: Any, **__: Any) -> Finished:
        self.argvs.append(list(argv))
        if "--version" in argv:
            return replace(self.finished, status=0, stdout=self.version, stderr=b"")
        return self.finished


# Reading.


def test_each_task_is_found_by_its_own_raw_id() -> None:
    """C065: the answer about the array lists all tasks, in an order of Slurm's own; what counts is the raw id."""
    array, tasks = array_of()
    text = answer("array-json").stdout
    assert len(json.loads(text)["jobs"]) == len(tasks)
    for name, raw in tasks.items():
        found = parse_detail_json(text, raw)
        assert isinstance(found, JobDetail), name
        assert (found.slurm_job_id, found.array, found.word) == (raw, True, Word("abc", 0, 3))
    assert isinstance(parse_detail_json(text, array + 1000), Unknown)
    states = {raw: parse_detail_json(text, raw) for raw in tasks.values()}
    assert {min(it.states) for it in states.values() if isinstance(it, JobDetail)} == {
        "FAILED", "RUNNING", "PENDING",
    }  # fmt: skip


@pytest.mark.parametrize("release", BOTH)
def test_a_task_in_text(release: str) -> None:
    """C065: of a task alone the text is read; of the whole array it is no answer about one of them."""
    array, tasks = array_of(release)
    raw = tasks[f"{array}_1"]
    found = parse_detail_text(answer("array-task-text", release).stdout, raw)
    assert isinstance(found, JobDetail)
    assert (found.slurm_job_id, found.array, found.states) == (raw, True, {"RUNNING"})
    for each in tasks.values():
        assert isinstance(parse_detail_text(answer("array-text", release).stdout, each), Unknown)


@pytest.mark.parametrize("release", BOTH)
def test_rows_of_accounting_belong_to_their_raw_id(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """C065: asked for the array, accounting gives the rows of all tasks; none is another's, whatever its place."""
    array, tasks = array_of(release)
    recorded = answer("array-accounting", release)
    rows = parse_accounting(recorded.stdout, NONCE, restarts=release != "22.05")
    assert not isinstance(rows, Unknown)
    assert {row.slurm_job_id for row in rows} == set(tasks.values())
    monkeypatch.setattr(commands, "run", Said(stdout=recorded.stdout, release=release))
    monkeypatch.setattr(commands, "_nonce", lambda: NONCE)
    found = SlurmCommands({}).accounting([*sorted(tasks.values(), reverse=True), array + 1000])
    assert found.pop(array + 1000) == Absent()
    for raw, told in found.items():
        assert isinstance(told, Present)
        assert {row.slurm_job_id for row in told.value} == {raw}
    failed = found[tasks[f"{array}_0"]]
    assert isinstance(failed, Present)
    assert failed.value[-1].states == {"FAILED"}


# Acting.


@pytest.mark.parametrize("bad", ["990_0", "990_[0-4]", "990_*", "990+1", "", "0", 0, -1, True, None, 990.0, "990"])
@pytest.mark.parametrize("verb", ["cancel", "requeue", "update", "detail", "accounting"])
def test_no_verb_takes_anything_but_one_raw_id(monkeypatch: pytest.MonkeyPatch, verb: str, bad: Any) -> None:
    """C037: no form that means more than one object can reach a command line."""
    said = Said()
    monkeypatch.setattr(commands, "run", said)
    port = SlurmCommands({})
    calls: dict[str, Any] = {
        "cancel": lambda: port.cancel(bad, None),
        "requeue": lambda: port.requeue(bad, None),
        "update": lambda: port.update(bad, None, {"StartTime": "now"}),
        "detail": lambda: port.detail([bad]),
        "accounting": lambda: port.accounting([bad]),
    }
    with pytest.raises(ValueError, match="is not a Slurm job id"):
        calls[verb]()
    assert said.argvs == []


MIXED = (
    "80520_1: Job has already finished\n80520_2: No error\n",
    "Job has already finished for job 80520\nNo error for job 80521\n",
)


@pytest.mark.parametrize("said", MIXED)
@pytest.mark.parametrize("status", [0, 1])
def test_a_result_that_is_mixed_is_no_success(monkeypatch: pytest.MonkeyPatch, said: str, status: int) -> None:
    """C057: what scontrol says of some of several is not taken for the whole; the state is asked for again."""
    monkeypatch.setattr(commands, "run", Said(status, stderr=said))
    port = SlurmCommands({})
    for found in (port.requeue(80520, None), port.update(80520, None, {"StartTime": "now"})):
        assert isinstance(found, ChangeAnswer)
        assert not found.done
        assert "already finished" in found.why


# Dependents.


@pytest.mark.parametrize("release", BOTH)
def test_the_recorded_dependents(release: str) -> None:
    """C083: what waits for what, of one owner."""
    found = parse_dependents(answer("dependents", release).stdout, NONCE)
    assert not isinstance(found, Unknown)
    ids = dependents_jobs(release)
    first = f"afterok:{ids['first']}(failed)"
    never = "DependencyNeverSatisfied"
    assert {it.slurm_job_id: it for it in found} == {
        ids["failed"]: Dependent(ids["failed"], 2001, "PENDING", never, False, first),
        ids["killed"]: Dependent(ids["killed"], 2001, "CANCELLED", never, False, first),
        ids["array"]: Dependent(ids["array"], 2001, "PENDING", never, True, first),
        ids["waits"]: Dependent(
            ids["waits"], 2001, "PENDING", "Dependency", False, f"afterok:{ids['other']}(unfulfilled)"
        ),
        ids["singleton"]: Dependent(
            ids["singleton"], 2001, "PENDING", "Dependency", False, "singleton(unfulfilled)"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("text", ["garbage\n", f"{NONCE}7{NONCE}x\n", f"{NONCE}0{NONCE * 5}\n"])
def test_what_does_not_parse_is_no_answer(text: str) -> None:
    assert isinstance(parse_dependents(text, NONCE), Unknown)


def test_how_dependents_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """C083: one call about one owner, whatever the number of jobs."""
    said = Said(stdout=answer("dependents").stdout)
    monkeypatch.setattr(commands, "run", said)
    monkeypatch.setattr(commands, "_nonce", lambda: NONCE)
    assert not isinstance(SlurmCommands({}).dependents(2001), Unknown)
    assert said.argvs == [answer("dependents").argv]


@pytest.mark.parametrize(("release", "came"), [("24.11", Rejected), ("22.05", Accepted)])
def test_a_dependency_on_a_job_that_slurm_forgot(release: str, came: type) -> None:
    """C084: 24.11 refuses it, for certain; 22.05 passes over it and starts the job at once. So what our records know
    of such a job is said beforehand."""
    recorded = answer("dependency-forgotten", release)
    finished = Finished(recorded.status, recorded.stdout.encode(), recorded.stderr.encode(), timed_out=False)
    assert isinstance(read_reply(finished, parsable=False), came)


# Answers that have more in them than was asked for.


def test_one_job_among_thousands_that_were_not_asked_for() -> None:
    """C069: JSON passes over the filter: the job is picked by its id, and one that is not there is not alive."""
    content = json.loads(answer("running-json").stdout)
    asked = content["jobs"][0]
    ended = {**asked, "job_state": ["COMPLETED"]}
    others = [{**ended, "job_id": number} for number in range(1_000_000, 1_005_000)]
    text = json.dumps({**content, "jobs": [*others, asked]})
    found = parse_detail_json(text, asked["job_id"])
    assert isinstance(found, JobDetail)
    assert (found.slurm_job_id, found.states) == (asked["job_id"], {"RUNNING"})
    assert isinstance(parse_detail_json(json.dumps({**content, "jobs": others}), asked["job_id"]), Unknown)
