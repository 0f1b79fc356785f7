"""What Slurm's commands print, recorded from a real cluster and bent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm import commands
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.parse import (
    parse_accounting,
    parse_config,
    parse_detail_json,
    parse_detail_text,
    parse_queue,
)
from slurm_dispatch.slurm.port import Absent, JobDetail, Present, Queue, Unknown
from slurm_dispatch.slurm.run import Finished
from tests.slurm.recorded import NONCE, answer, jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def row(comment: str, *, job: int = 7, state: str = "RUNNING") -> str:
    """One line of the bulk call."""
    return NONCE + NONCE.join([str(job), "1000", state, "1700000000", "1700000001", str(job), "None", "c1", comment])


def test_the_recorded_queue() -> None:
    """C073: the comment with a newline and an imitated line makes no phantom job."""
    found = parse_queue(answer("queue").stdout, NONCE)
    assert isinstance(found, Queue)
    assert {job.slurm_job_id: job.state for job in found.jobs} == {
        jobs()["failed"]: "FAILED", jobs()["running"]: "RUNNING", jobs()["cancelled"]: "CANCELLED",
    } | {job.slurm_job_id: job.state for job in found.jobs if job.slurm_job_id not in jobs().values()}  # fmt: skip
    assert 7 not in {job.slurm_job_id for job in found.jobs}
    failed = found.of_id(jobs()["failed"])
    assert failed is not None
    assert (failed.uid, failed.reason, failed.nodes) == (2001, "NonZeroExitCode", "c1")
    assert failed.submit_time is not None
    assert found.of_id(4_000_000) is None


@given(st.text(st.characters(exclude_categories=()), max_size=80).filter(lambda text: NONCE not in text))
def test_a_comment_forges_nothing(comment: str) -> None:
    """C073: whatever is in a comment, the jobs of the answer are those that Slurm listed."""
    found = parse_queue(f"{row(comment)}\n{row('x dispatch:abc:0:1', job=8)}\n", NONCE)
    assert isinstance(found, Queue)
    assert [job.slurm_job_id for job in found.jobs] == [7, 8]
    assert found.jobs[1].word == Word("abc", 0, 1)


def test_the_owner_is_part_of_the_question() -> None:
    """C080: an object with the word that belongs to somebody else is not found."""
    found = parse_queue(row("dispatch:abc:0:1") + "\n", NONCE)
    assert isinstance(found, Queue)
    assert len(found.of_word(Word("abc", 0, 1), 1000)) == 1
    assert found.of_word(Word("abc", 0, 1), 1001) == ()
    assert found.of_word(Word("abc", 0, 2), 1000) == ()


@pytest.mark.parametrize(
    "text",
    [NONCE + "7" + NONCE + "1000", row("x").replace("RUNNING", "COMPLETININVALID7"), row("x").replace("7", "0", 1)],
)
def test_a_line_that_does_not_parse_is_no_answer(text: str) -> None:
    """C071: nothing is taken from an answer of which one line is odd."""
    assert isinstance(parse_queue(row("y", job=9) + "\n" + text + "\n", NONCE), Unknown)


@pytest.mark.parametrize("array", ["93+1", "99_[60-89,91-94,96-98]", "123456_[9201-10000%500]", "99_[1,3,5,...]"])
def test_ids_of_arrays_and_heterogeneous_jobs(array: str) -> None:
    """C028, C030: the raw id is the id; what stands beside it is kept as text."""
    fields = row("c").split(NONCE)
    fields[6] = array
    found = parse_queue(NONCE.join(fields) + "\n", NONCE)
    assert isinstance(found, Queue)
    assert (found.jobs[0].slurm_job_id, found.jobs[0].array) == (7, array)


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_recorded_details(form: str) -> None:
    """The same job in both forms; a name and a comment that imitate fields change nothing."""
    ids = jobs()
    found: dict[str, JobDetail] = {}
    for name in ids:
        read = parse_detail_json if form == "json" else parse_detail_text
        detail = read(answer(f"{name}-{form}").stdout, ids[name])
        assert isinstance(detail, JobDetail), detail
        found[name] = detail
    assert found["failed"].states == {"FAILED"}
    assert (found["failed"].exit_status, found["failed"].exit_signal) == (3, 0)
    assert (found["failed"].reason, found["failed"].nodes, found["failed"].uid) == ("NonZeroExitCode", "c1", 2001)
    assert found["running"].states == {"RUNNING"}
    assert found["running"].start_time is not None
    assert (found["running"].restart, found["running"].requeue) == (0, True)
    assert found["cancelled"].states == {"CANCELLED"}
    assert found["cancelled"].nodes == ""


def test_an_imitated_state_line_makes_the_text_unknown() -> None:
    """A name with a newline can imitate a line of the text form; then nothing is believed."""
    text = answer("running-text").stdout
    forged = text.replace(" JobName=", " JobName=x\n   JobState=COMPLETED Reason=None Dependency=(null)\n", 1)
    assert isinstance(parse_detail_text(forged, jobs()["running"]), Unknown)


def test_states_are_a_word_or_a_list() -> None:
    """C066: both shapes are read; a shape that is not known is unknown."""
    content = json.loads(answer("running-json").stdout)
    job = content["jobs"][0]
    number = jobs()["running"]
    for shape, expected in (("RUNNING", {"RUNNING"}), (["PREEMPTED", "COMPLETING"], {"PREEMPTED", "COMPLETING"})):
        job["job_state"] = shape
        detail = parse_detail_json(json.dumps(content), number)
        assert isinstance(detail, JobDetail)
        assert detail.states == expected
    for shape in ([], {"current": "RUNNING"}, 3, ["running"]):
        job["job_state"] = shape
        assert isinstance(parse_detail_json(json.dumps(content), number), Unknown)


def test_numbers_are_plain_or_structures() -> None:
    """C068: other fields change their type between versions of the data parser."""
    content = json.loads(answer("running-json").stdout)
    job = content["jobs"][0]
    job.update(restart_cnt=2, start_time=5, submit_time={"set": False, "infinite": False, "number": 0})
    job.update(exit_code={"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}})
    detail = parse_detail_json(json.dumps(content), jobs()["running"])
    assert isinstance(detail, JobDetail)
    assert (detail.restart, detail.start_time, detail.submit_time) == (2, 5, None)
    assert (detail.exit_status, detail.exit_signal) == (0, 9)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"jobs": {}}', '{"jobs": [3]}', '{"jobs": [{"job_id": 3}]}']
)
def test_json_that_is_none_of_it(text: str) -> None:
    """Loud and harmless."""
    assert isinstance(parse_detail_json(text, 3), Unknown)


def test_an_empty_json_answer_says_nothing() -> None:
    """C076: an unknown id gives the empty list that a slurmctld that is away gives."""
    assert parse_detail_json(answer("unknown-json").stdout, 999999) is None


def test_the_recorded_accounting() -> None:
    """Comments with newlines, who cancelled, and no end for a job that runs."""
    rows = parse_accounting(answer("accounting").stdout, NONCE, restarts=True)
    assert not isinstance(rows, Unknown)
    by_id = {found.slurm_job_id: found for found in rows}
    ids = jobs()
    assert set(by_id) == set(ids.values())
    assert (by_id[ids["failed"]].states, by_id[ids["failed"]].exit_status) == ({"FAILED"}, 3)
    assert (by_id[ids["cancelled"]].states, by_id[ids["cancelled"]].by_uid) == ({"CANCELLED"}, 2001)
    assert (by_id[ids["running"]].end_time, by_id[ids["running"]].nodes) == (None, "c1")


def test_one_id_with_many_rows() -> None:
    """C035, C064: a requeued job has a row for each run; they come oldest first, whatever sacct's order."""
    fields = ["101", "1000", "COMPLETED", "0:0", "300", "310", "400", "None", "c1", "0:0", "10", "4G", "2", "2", "x"]
    rows = []
    for submit, state in (("300", "COMPLETED"), ("100", "REQUEUED"), ("200", "PREEMPTED")):
        fields[2], fields[4] = state, submit
        rows.append(NONCE.join(fields))
    found = parse_accounting("\n".join(rows) + "\n", NONCE, restarts=True)
    assert not isinstance(found, Unknown)
    assert [next(iter(one.states)) for one in found] == ["REQUEUED", "PREEMPTED", "COMPLETED"]
    assert isinstance(parse_accounting(rows[0].replace(NONCE, "", 1), NONCE, restarts=True), Unknown)


def test_the_recorded_configuration() -> None:
    """Names and values, a value with '=' too."""
    config = parse_config(answer("config").stdout)
    assert config["ClusterName"] == "dispatch"
    assert config["SLURM_VERSION"] == "24.11.5"
    assert config["MessageTimeout"].split()[0].isdigit()


def test_every_call_has_a_nonce_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """C073: who writes a comment cannot know what begins a line: it is made for one call, and never used again."""
    asked: list[str] = []

    def ask(_: SlurmCommands, argv: Sequence[str]) -> Finished:
        asked.extend(word.partition("=")[2] for word in argv if word.startswith(("--format=<", "--delimiter=")))
        return Finished(0, b"", b"")

    monkeypatch.setattr(SlurmCommands, "_ask", ask)
    port = SlurmCommands({})
    for _ in range(2):
        port.queue()
        port.accounting([7], since=0)
    nonces = [word[: word.index(">") + 1] for word in asked]
    assert len(set(nonces)) == len(nonces) == 4
    assert all(len(nonce) >= 16 for nonce in nonces)


def test_an_answer_that_was_cut_off_says_nothing() -> None:
    """P5: a pipe that broke in the middle of a line is no complete answer, whatever the exit status."""
    text = row("mine") + "\n"
    assert isinstance(parse_queue(text, NONCE), Queue)
    for end in range(1, len(text)):
        assert isinstance(parse_queue(text[:end], NONCE), Unknown), end
    assert isinstance(parse_accounting("1" + NONCE, NONCE, restarts=True), Unknown)


def test_rows_from_before_the_submission_are_another_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """C061: an id that was given out again: the first answer of sacct is the old job's, and is not of this one."""
    recorded, number = answer("accounting"), jobs()["failed"]
    monkeypatch.setattr(commands, "_nonce", lambda: NONCE)
    monkeypatch.setattr(commands, "run", answers(accounting=recorded.stdout))
    port = SlurmCommands({})
    found = port.accounting([number])[number]
    assert isinstance(found, Present)
    submitted = found.value[-1].submit_time
    assert submitted is not None
    assert isinstance(port.accounting([number], since=submitted)[number], Present)
    assert port.accounting([number], since=submitted + 1)[number] == Absent()


def test_what_json_does_not_tell_text_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """C068: a data parser that is not known costs nothing: the plain text is asked, and where that is none either,
    nothing is known."""
    number = jobs()["running"]
    text = answer("running-text").stdout
    for odd in ('{"jobs": [{"job_id": 1}]}', '{"jobs": {"a": 1}}', "[]", "not JSON"):
        monkeypatch.setattr(commands, "run", answers(json=odd, text=text))
        found = SlurmCommands({}).detail([number])[number]
        assert isinstance(found, Present), odd
        assert (found.value.source, found.value.states) == ("text", {"RUNNING"})
        monkeypatch.setattr(commands, "run", answers(json=odd, text="something else"))
        assert isinstance(SlurmCommands({}).detail([number])[number], Unknown)


def answers(*, json: str = "", text: str = "", accounting: str = "") -> Callable[..., Finished]:
    """Stands in for the running of commands."""

    def run(argv: Sequence[str], *_: object, **__: object) -> Finished:
        if "--version" in argv:
            return Finished(0, b"slurm 24.11.5\n", b"")
        said = accounting if argv[0] == "sacct" else json if "--json" in argv else text
        return Finished(0, said.encode(), b"")

    return run
