"""dispatch status and dispatch show: what a person reads, what a program reads, and how a job is found."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_dispatch.cli import status as status_command
from slurm_dispatch.cli.layout import age, both, table
from slurm_dispatch.cli.main import main
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.errors import DispatchError
from slurm_dispatch.model.identity import Word
from slurm_dispatch.records.describe import fact_text
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.port import Queue, QueueJob
from slurm_dispatch.state import read as reading
from slurm_dispatch.state.folder import StateFolder, make_state
from slurm_dispatch.state.read import own_jobs, read_jobs
from tests.records.life import KEY, Life, make_spec

ME = os.getuid()


SQUEUE = """#!/bin/sh
test -e {queue} || {{ echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }}
for word; do case $word in --format=*) format=${{word#--format=}} ;; esac; done
while read -r id state; do
    echo "$format" |
        sed "s,%A,$id,;s,%U,{uid},;s,%T,$state,;s,%V,1,;s,%S,N/A,;s,%i,$id,;s,%r,None,;s,%N,c1,;s,%k,,"
done <{queue}
"""
"""A squeue that lists what is in a file, and is away where there is none."""


def queue(place: Path, *jobs: str) -> None:
    """What Slurm lists: id and state each."""
    (place / "queue").write_text("".join(f"{job}\n" for job in jobs))


@pytest.fixture
def folder(open_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    make_state(str(open_tmp / "state"), slurm_uid=ME, slurm_gid=os.getgid())
    config = open_tmp / "dispatch.toml"
    bin_folder = open_tmp / "bin"
    bin_folder.mkdir(mode=0o755)
    (bin_folder / "squeue").write_text(SQUEUE.format(queue=open_tmp / "queue", uid=ME))
    (bin_folder / "squeue").chmod(0o755)
    config.write_text(f'state = "{open_tmp}/state"\nslurm_bin = "{bin_folder}"\n')
    queue(open_tmp, "101 RUNNING", "102 RUNNING")
    config.chmod(0o644)
    monkeypatch.setenv("DISPATCH_CONFIG", str(config))
    return StateFolder(str(open_tmp / "state"))


def store(folder: StateFolder, life: Life) -> None:
    """Write the facts of ``life`` as they are."""
    first, *rest = life.facts
    record = folder.create_job(life.spec, b"", b"", by=first.by, at=first.at)
    for fact in rest:
        assert record.append(fact.seq, fact.kind, fact.by, fact.body, at=fact.at)


def new_life(key: str = KEY, name: str = "train", **more: Any) -> Life:
    return Life(make_spec(job=key, name=name, uid=ME, **more), at=time.time() - 3600)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_status_lists_open_jobs_with_what_a_person_asks_first(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    life = new_life().round(1, "preempted").run(2).progress(2, 4200, resumed_from=4000)
    store(folder, life)
    folder.tick_done()
    code, out, err = run(capsys, "status")
    assert (code, err) == (0, "")
    head, row, tick = out.splitlines()
    assert head.split()[:3] == ["JOB", "NAME", "STATE"]
    for word in (KEY, "train", "running", "102", "2000000", "preempted", "2 of 100", "4200", " ago ("):
        assert word in row
    assert tick.startswith("last tick: ")
    assert "nothing is replaced" not in tick


def test_what_slurm_says_now_is_said_too(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], open_tmp: Path
) -> None:
    """An object that a crash of slurmctld lost: nobody is left to wonder why a job runs for ever."""
    store(folder, new_life().run(1))
    folder.tick_done()
    assert "in Slurm    RUNNING on c1\n" in run(capsys, "show", KEY)[1]
    queue(open_tmp, "7 RUNNING")
    for words in (("status",), ("show", KEY)):
        out = run(capsys, *words)[1]
        assert "not listed; a tick takes its end from accounting" in out
        assert f"dispatch cancel {KEY} closes the job" in out
    assert json.loads(run(capsys, "status", "--json")[1])["jobs"][0]["in_slurm"].startswith("not listed")
    (open_tmp / "queue").unlink()
    code, out, err = run(capsys, "status")
    assert (code, err) == (0, "")
    assert "Slurm does not answer, the record is all that is shown: squeue: " in out
    assert "not listed" not in out
    assert "not told: squeue: " in run(capsys, "show", KEY)[1]
    assert run(capsys, "why", KEY)[1].splitlines()[-1].startswith("Slurm does not answer, the record is all that")
    for words in (("status",), ("show", KEY), ("why", KEY)):
        told = json.loads(run(capsys, *words, "--json")[1])
        assert "Unable to contact slurm controller" in told["slurm_does_not_answer"]


def test_why_says_what_a_silent_node_waits_for(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], open_tmp: Path
) -> None:
    store(folder, new_life(suspect_s=30.0).run(1))
    now = time.time()
    content = {"at": now, "nodes": {"c1": now - 90.0}, "drained": {}, "why": "6 nodes are silent, more than 5"}
    write_file(str(open_tmp / "state" / "tick"), "silent", content)
    with open(open_tmp / "dispatch.toml", "a", encoding="ascii") as config:
        config.write("suspicion = true\n")
    out = run(capsys, "why", KEY)[1]
    assert "\nits nodes: c1 has been silent for 9" in out
    assert "no suspicion acts now (6 nodes are silent, more than 5)" in out
    assert "6 nodes are silent" in json.loads(run(capsys, "why", KEY, "--json")[1])["nodes"]


def test_a_submission_without_an_answer_says_what_it_waits_for(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    life = new_life().intent(1)
    store(folder, life)
    assert "no tick has looked yet" in run(capsys, "status")[1]
    folder.record(KEY).append(life.facts[-1].seq + 1, "watched", "tick@ctl", {
        "submission": 1, "host": "ctl", "first_seen": time.time()})  # fmt: skip
    for words in (("status",), ("show", KEY)):
        assert "a tick looks for its job in Slurm" in run(capsys, *words)[1]


def test_status_says_that_no_tick_came(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "last tick: never  nothing is replaced meanwhile" in run(capsys, "status")[1]
    folder.tick_done(time.time() - 400)
    assert "nothing is replaced meanwhile" in run(capsys, "status")[1]


def test_status_hides_what_was_closed_long_ago(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    recent, old = new_life("recent"), Life(make_spec(job="old", uid=ME), at=1000)
    for life in (recent, old):
        store(folder, life.run(1).end(1, "failed").add("closed", why="cancelled", reason=""))
    out = run(capsys, "status")[1]
    assert "recent" in out
    assert "closed: cancelled" in out
    assert "old " not in out
    assert "old " in run(capsys, "status", "--all")[1]


def test_one_broken_record_never_hides_the_others(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("good", "broken"):
        store(folder, new_life(key))
    Path(folder.record("broken").facts_folder, "0000000001").write_text("{}")
    code, out, _ = run(capsys, "status")
    assert code == 0
    assert "good" in out
    assert "broken  cannot be read: " in out
    jobs = json.loads(run(capsys, "status", "--json")[1])["jobs"]
    assert [job["job"] for job in jobs] == ["broken", "good"]
    assert jobs[0]["exit_code"] == 65


def test_status_as_json(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    store(folder, new_life().run(1).progress(1, 5))
    folder.tick_done(1_700_000_000)
    content = json.loads(run(capsys, "status", "--json")[1])
    assert content["last_tick"] == 1_700_000_000
    (job,) = content["jobs"]
    assert (job["state"], job["slurm_job_id"], job["epoch"], job["step"]) == ("running", 101, "1000000", 5)


def test_status_without_jobs(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "status")[1].startswith("no open jobs\n")


def test_only_root_sees_the_jobs_of_others(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, "status", "--user", "no such user")[0] == 64
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    for user in ("root", "all"):
        with pytest.raises(DispatchError, match="only root sees"):
            status_command.whose(user)


@pytest.mark.skipif(ME != 0, reason="only root reads the jobs of others; the suite runs as root in CI")
def test_root_reads_the_jobs_of_others_with_their_rights(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = 65534
    store(folder, Life(make_spec(job="theirs", uid=uid)))
    record = folder.record("theirs")
    for path in (
        record.folder,
        record.facts_folder,
        *map(str, Path(record.folder).glob("*")),
        *map(str, Path(record.facts_folder).glob("*")),
    ):
        os.chown(path, uid, uid)
    jobs = own_jobs(folder, None)
    monkeypatch.setattr(reading, "_pack", lambda *_: json.dumps({"theirs": [str(os.geteuid())]}).encode())
    (answer,) = read_jobs(folder, jobs).values()
    assert isinstance(answer, DispatchError)  # "65534" is no fact: what matters is who read
    monkeypatch.undo()
    (answer,) = read_jobs(folder, jobs).values()
    assert not isinstance(answer, DispatchError), answer
    assert answer[0].body["uid"] == uid


def test_show_reads_well(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    life = new_life(rules=("failed:stop",)).run(1).progress(1, 10).end(1, "preempted").resubmit(2)
    life.intent(2, len(life.facts)).submitted(2)
    store(folder, life)
    code, out, err = run(capsys, "show", KEY)
    assert (code, err) == (0, "")
    for text in (
        f"job         {KEY}  train",
        "state       queued",
        "checkpoint  /data/ckpt",
        "rules       failed:stop",
        "progress    step 10, ",
        "decided     preempted: resubmit, because the rule says so (fact 7)",
        f"{len(life.facts)} facts; --facts shows them",
    ):
        assert text in out
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert rows[0][:3] == ["1", "101", "1000000"]
    assert rows[0][-1] == "preempted"
    assert (rows[1][:3], rows[1][-1]) == (["2", "102", "-"], "-")


def test_an_execution_that_runs_has_not_the_end_of_the_one_before(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A requeue: two executions of one object."""
    life = new_life().run(1).end(1, "failed", final=False, restart=0).started(1, restart=1)
    store(folder, life)
    rows = [line.split() for line in run(capsys, "show", KEY)[1].splitlines() if line[:1].isdigit()]
    assert [(row[2], row[-1]) for row in rows if row[0] == "1"] == [("1000000", "failed"), ("1000001", "-")]


def test_an_end_without_a_restart_count_is_of_the_last_execution(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    store(folder, new_life().run(1).end(1, "failed", restart=None))
    rows = [line.split() for line in run(capsys, "show", KEY)[1].splitlines() if line[:1].isdigit()]
    assert rows[0][-1] == "failed"


def test_a_submission_that_gave_way_before_it_ran_is_replaced(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person adopted a save: what waited in Slurm was cancelled, and the number after the adopted one is next."""
    life = new_life().intent(1).submitted(1)
    life.add("adopted", submission=2, publication="a", name="b", reason="")
    life.intent(3, life.state.seq).submitted(3)
    store(folder, life)
    rows = [line.split() for line in run(capsys, "show", KEY)[1].splitlines() if line[:1].isdigit()]
    assert [(row[0], row[-1]) for row in rows if row[0] in "13"] == [("1", "replaced"), ("3", "-")]


NOT_LISTED = (
    f"not listed; a tick takes its end from accounting, and where that has none dispatch cancel {KEY} closes the job"
)
NEVER = "what it depends on can never be met any more; `scontrol update` gives it another dependency"
STRANGE = "a state that this version does not know; nothing is done about it"
NO_NODES = (
    "no nodes can ever fit what it asks for, says Slurm; change it with `scontrol update`, then "
    "`scontrol release 101`"
)
HELD = "held in Slurm; when the cause is gone, `scontrol release 101` lets it start"


@pytest.mark.parametrize(
    ("queued", "text"),
    [
        ({"reason": "launch failed requeued held"}, f"PENDING (launch failed requeued held): {HELD}"),
        ({"state": "REQUEUE_HOLD", "reason": "None"}, f"REQUEUE_HOLD: {HELD}"),
        ({"reason": "JobHeldUser"}, f"PENDING (JobHeldUser): {HELD}"),
        ({"reason": "JobHeldAdmin"}, "PENDING (JobHeldAdmin): held by an operator, who alone can release it"),
        ({"reason": "JobHoldMaxRequeue"}, f"PENDING (JobHoldMaxRequeue): {HELD}"),
        ({"reason": "DependencyNeverSatisfied"}, f"PENDING (DependencyNeverSatisfied): {NEVER}"),
        ({"state": "FROBBED", "reason": "None"}, f"FROBBED: {STRANGE}"),
        ({"reason": "BadConstraints"}, f"PENDING (BadConstraints): {NO_NODES}"),
        ({"reason": "Resources"}, "PENDING (Resources)"),
        ({"state": "RUNNING", "reason": "None"}, "RUNNING"),
        ({"uid": ME + 1}, NOT_LISTED),
        ({"slurm_job_id": 102}, NOT_LISTED),
        ({"word": Word("other", 0, 1)}, NOT_LISTED),
        ({"word": None}, "PENDING (Priority)"),
    ],
)
def test_show_says_what_slurm_does_with_the_object(
    folder: StateFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    queued: dict[str, Any],
    text: str,
) -> None:
    """C043, C057: a job that Slurm holds after a failed launch is told with the reason, and nobody releases it."""
    life = new_life().intent(1).submitted(1)
    store(folder, life)
    job = QueueJob(101, ME, "PENDING", "Priority", 1, None, "", life.spec.word(1))
    monkeypatch.setattr(SlurmCommands, "queue", lambda _: Queue((replace(job, **queued),)))
    assert f"in Slurm    {text}\n" in run(capsys, "show", KEY)[1]
    assert json.loads(run(capsys, "show", KEY, "--json")[1])["in_slurm"] == text
    # The list of jobs says it too where a person is needed.
    said = f"{KEY}  Slurm job 101 is {text}\n" in run(capsys, "status")[1]
    assert said == (": " in text or text == NOT_LISTED)


def test_show_without_an_answer_of_slurm(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Slurm is away, or its commands are not on this host: that is said, and the record is shown all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    store(folder, new_life().intent(1).submitted(1))
    code, out, _ = run(capsys, "show", KEY)
    assert code == 0
    assert "in Slurm    not told: squeue" in out


def test_show_asks_slurm_only_for_a_job_that_is_there(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(folder, new_life().run(1).end(1, "failed").add("closed", why="failed", reason="the rule says so"))
    monkeypatch.setattr(SlurmCommands, "queue", lambda _: pytest.fail("asked"))
    assert "in Slurm" not in run(capsys, "show", KEY)[1]
    assert json.loads(run(capsys, "show", KEY, "--json")[1])["in_slurm"] is None


def test_show_facts_one_a_line(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.records.test_facts import ONE_OF_EACH, WHOLE

    store(folder, new_life().run(1))
    lines = run(capsys, "show", "train", "--facts")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert "submission 1 is Slurm job 101 (known by answer)" in lines[2]
    plain = json.loads(run(capsys, "show", "train", "--facts", "--json")[1])
    assert [fact["kind"] for fact in plain] == ["spec", "intent", "submitted", "started"]
    assert WHOLE
    assert all(fact_text(fact).isprintable() for fact in ONE_OF_EACH.values())


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (0, "the owner was told that it is held"),
        (3, "the owner was told that it is held; the notify command ended with 3"),
        (None, "nobody told the owner that it is held: there is no notify command, or it did not run to its end"),
    ],
)
def test_who_was_told_of_a_hold(status: int | None, says: str) -> None:
    life = Life().run(1).end(1, "failed").holds(2)
    life.add("told", on=life.state.seq, what="start", status=status)
    assert fact_text(life.facts[-1]) == says


@pytest.mark.parametrize(("uid", "by"), [(0, ", by root"), (7, ", by uid 7"), (None, "")])
def test_who_cancelled_it(uid: int | None, by: str) -> None:
    life = Life().run(1).end(1, "cancelled", by_uid=uid)
    assert fact_text(life.facts[-1]) == f"Slurm job 101 ended: cancelled (CANCELLED){by}"


def test_show_as_json(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    store(folder, new_life().round(1))
    content = json.loads(run(capsys, "show", "101", "--json")[1])
    assert content["job"] == KEY
    assert content["submissions"][0]["ends"][0]["outcome"] == "preempted"


def test_a_name_cannot_draw_on_the_terminal(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    store(folder, new_life(name="\x1b[31mred\nline" + "x" * 200))
    for arguments in (("status",), ("show", KEY), ("show", KEY, "--facts")):
        out = run(capsys, *arguments)[1]
        assert "\x1b[31m" not in out
        assert "\nline" not in out


@pytest.mark.parametrize(("text", "code"), [("nobody", 66), ("999", 66), ("twice", 64), ("\x1b[0m", 66)])
def test_show_refuses_in_one_line(
    folder: StateFolder, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    for key in ("one", "two"):
        store(folder, new_life(key, "twice"))
    found, out, err = run(capsys, "show", text)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    assert err.strip().isprintable()


def test_show_finds_a_job_by_key_by_any_id_it_had_and_by_name(
    folder: StateFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    life = new_life("first", "one").round(1).run(2)
    store(folder, life.add("stray", submission=1, slurm_job_id=7, cluster="alpha"))
    store(folder, new_life("other", "two"))
    for text in ("first", "101", "102", "7", "one"):
        assert json.loads(run(capsys, "show", text, "--json")[1])["job"] == "first", text


def test_times_and_tables() -> None:
    assert [age(1000 - n, 1000) for n in (0, 5, 90, 7200, 200_000)] == [
        "0s ago",
        "5s ago",
        "1m ago",
        "2h ago",
        "2d ago",
    ]
    assert age(1090, 1000) == "in 1m"
    assert both(None, 0) == "-"
    wide = table(("A", "B"), [("\u8bad\u7ec3", "1"), ("e\u0301a", "2"), ("abcd", "3")]).splitlines()
    assert wide[1:] == ["\u8bad\u7ec3  1", "e\u0301a    2", "abcd  3"]  # two columns each, and none for the accent
    assert table(("A", "B"), [("\u8bad" * 40, "1")]).splitlines()[1] == "\u8bad" * 28 + "...  1"
    # Nothing stands behind the last cell, so a reason is there in full.
    assert table(("A", "B"), [("1", "y" * 240)]).splitlines()[1] == "1  " + "y" * 240
    assert table(("A", "B"), [("1", "y" * 241)]).splitlines()[1] == "1  " + "y" * 237 + "..."
    assert table(("A", "B"), [("x" * 100, "y\n")]).splitlines()[1] == "x" * 57 + "...  y\\n"
