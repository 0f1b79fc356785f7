"""``dispatch supersede``: a new job goes on in the place of an old one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller import elders, wish
from slurm_dispatch.errors import ServiceAwayError
from slurm_dispatch.records import people
from slurm_dispatch.state.jobs import Record
from slurm_dispatch.submit import supersede
from tests.people.desk import Desk, make_desk

if TYPE_CHECKING:
    from collections.abc import Callable


SCRIPT = "#!/bin/sh\n#DISPATCH --checkpoint /ckpt\nexec train --lr 1e-4\n"


def newer(desk: Desk, before: set[str]) -> str:
    """The job that is there now and was not before."""
    (key,) = desk.keys() - before
    return key


def superseded(desk: Desk, elder: str, *words: str) -> tuple[str, str]:
    """The new job, and what the command said."""
    before = desk.keys()
    text = desk.ok("supersede", elder, *words)
    return newer(desk, before), text


@pytest.mark.parametrize("made", ["running", "job", "waiting", "held", "closed", "submitting"])
def test_a_job_goes_on_in_the_place_of_one_that_is(desk: Desk, made: str) -> None:
    """Same root, one generation above, whatever the old one was doing."""
    elder = getattr(desk, made)()
    had = None if desk.state(elder).object is None else desk.rig.object(elder)
    key, text = superseded(desk, elder, "--reason", "a lower rate")
    state, old = desk.state(key), desk.state(elder)
    assert (state.spec.generation, state.spec.root, state.spec.supersedes) == (1, "/ckpt", elder)
    assert old.closed is not None
    assert (old.closed.why, old.closed.by_job, old.closed.reason) == ("superseded", key, "a lower rate")
    assert state.phase.value == "queued"
    number = desk.rig.object(key)
    assert text.startswith(f"job {key} goes on in the place of job {elder}: submission 1 is Slurm job {number}")
    comment, script = desk.object(number)["argv"][-2:]
    assert (comment, script) == (f"--comment=mine dispatch:{key}:1:1", desk.rig.record(key).script_path())
    if had is not None:
        assert f"the old one's Slurm job {had} is cancelled" in text
        assert "CANCELLED" in desk.object(had)["states"]
    desk.tick()
    desk.rig.later_s = 7200.0
    desk.tick()
    assert (desk.phase(elder), desk.phase(key)) == ("closed", "queued")
    assert len([it for it in desk.slurm.ids() if f"dispatch:{key}:" in desk.object(it)["comment"]]) == 1


def test_the_answer_to_an_intent_that_was_open_is_a_stray(desk: Desk) -> None:
    elder = desk.submitting()
    superseded(desk, elder)
    late = desk.slurm.plain(comment=f"mine dispatch:{elder}:0:1", uid=desk.rig.uid)
    desk.rig.later_s = 7200.0
    desk.tick()
    assert desk.object(late)["states"] == ["CANCELLED"]
    assert desk.phase(elder) == "closed"


def test_a_shared_job_that_may_still_run_is_waited_for(desk: Desk) -> None:
    """P8: the new one gets no execution beside an older one before a person says so."""
    elder = desk.running(shared=True)
    key, text = superseded(desk, elder)
    assert f"; the next ticks go on once it is known what runs of job {elder};" in text
    desk.tick()
    desk.tick()
    assert desk.phase(key) == "held"
    assert desk.rig.kinds(key).count("intent") == 0
    assert "submission 1 is Slurm job" in desk.ok("release", key, "--reason", "I looked at the node")


def test_a_chain_and_one_that_has_not_taken_over_yet(desk: Desk) -> None:
    first = desk.running()
    second, _ = superseded(desk, first)
    third, _ = superseded(desk, second)
    assert desk.state(third).spec.generation == 2
    spec = desk.rig.spec(key="aaaaaaaaaaaa", supersedes=third, generation=3)
    desk.rig.folder.create_job(spec, b"#!/bin/sh\n", b"", by="user:ada@login")
    os.chown(desk.rig.record(spec.job).folder, desk.rig.uid, -1)
    for top, _, names in os.walk(desk.rig.record(spec.job).folder):
        for path in (top, *(os.path.join(top, name) for name in names)):
            os.chown(path, desk.rig.uid, -1)
    line = desk.refused(64, "supersede", spec.job)
    assert f"has not taken over from job {third} yet; the next tick does: try again" in line


def test_who_comes_second_is_told_who_was_first(desk: Desk) -> None:
    elder = desk.running()
    key, _ = superseded(desk, elder)
    before = desk.keys()
    line = desk.refused(64, "supersede", elder)
    assert f"job {key} goes on in place of job {elder}; supersede job {key} instead" in line
    assert desk.keys() == before  # nothing was made
    assert f"job {key} goes on in place" in desk.refused(64, "reopen", elder, "--reason", "x")


def after_making(monkeypatch: pytest.MonkeyPatch, then: Callable[[Any], None]) -> None:
    """What happens between the new record and the fact that closes the old one."""
    original = supersede.make_repeated

    def made(*arguments: Any, **named: Any) -> Record:
        record = original(*arguments, **named)
        then(record)
        return record

    monkeypatch.setattr(supersede, "make_repeated", made)


def test_of_two_at_once_one_wins_and_the_other_has_never_been(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    elder = desk.running()
    record, original = desk.rig.record(elder), supersede.make_repeated

    def the_other(_: Record) -> None:
        other = original(desk.rig.folder, desk.state(elder), record, keep=None, by="user:ada@other")
        wish.write(record, "user:ada@other", lambda state: people.supersede(state, other.key, "mine", None))

    after_making(monkeypatch, the_other)
    before = desk.keys()
    line = desk.refused(64, "supersede", elder)
    old = desk.state(elder)
    assert old.closed is not None
    winner = old.closed.by_job
    assert winner is not None
    assert f"job {winner} goes on in place" in line
    (loser,) = desk.keys() - before - {winner}
    assert desk.rig.last(loser, "closed").body["why"] == "never_submitted"
    desk.tick()
    assert (desk.phase(winner), desk.phase(loser)) == ("queued", "closed")


def test_a_tick_that_was_faster_has_done_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new record alone says what is wanted: a tick between the two closes the old one for it."""
    elder = desk.running()

    def a_tick(record: Record) -> None:
        elders.close(record, desk.rig.state(record.key), keep=None, by="tick@ctl")

    after_making(monkeypatch, a_tick)
    key, text = superseded(desk, elder)
    assert "submission 1 is Slurm job" in text
    assert desk.phase(key) == "queued"
    assert desk.rig.kinds(elder).count("closed") == 1


def test_what_broke_off_half_way_is_finished_by_a_tick(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    elder = desk.running()
    original = Record.append

    def append(record: Record, seq: int, kind: str, by: str, body: Any, **more: Any) -> bool:
        if kind == "closed":
            raise ServiceAwayError("the state folder is away")
        return original(record, seq, kind, by, body, **more)

    before = desk.keys()
    with monkeypatch.context() as patched:
        patched.setattr(Record, "append", append)
        line = desk.refused(75, "supersede", elder)
    key = newer(desk, before)
    assert f"look at dispatch show {key} first" in line
    assert (desk.phase(elder), desk.phase(key)) == ("running", "new")
    desk.tick()
    old = desk.state(elder)
    assert old.closed is not None
    assert (old.closed.by_job, desk.phase(key)) == (key, "queued")


def test_what_runs_may_be_left_alone(desk: Desk) -> None:
    elder = desk.running()
    number = desk.rig.object(elder)
    _, text = superseded(desk, elder, "--keep-running")
    assert f"its Slurm job {number} runs on, and its saves count no more" in text
    desk.tick()
    assert desk.object(number)["states"] == ["RUNNING"]
    assert "does not run: it is held" in desk.refused(64, "supersede", desk.held(name="b"), "--keep-running")


def test_the_environment_and_the_changes_of_the_old_one_stay(desk: Desk) -> None:
    elder = desk.running(script_sha256="0" * 64)
    desk.ok("update", elder, "--time=3-0", "--stall", "30m")
    key, _ = superseded(desk, elder)
    made = desk.object(desk.rig.object(key))
    assert "--time=3-0" in made["argv"]
    assert made["handed"]["HOME"] == "/home/ada"
    assert made["handed"]["SLURM_DISPATCH_RECORD"] == desk.rig.record(key).folder
    assert made["handed"]["SLURM_DISPATCH_STALL"] == "1800"


def test_the_limits_that_rules_had_raised_stay(desk: Desk) -> None:
    elder = desk.waiting(argv=("--job-name=train", "-t1:00:00"))
    key, _ = superseded(desk, elder)
    times = [it for it in desk.object(desk.rig.object(key))["argv"] if it.startswith(("-t", "--time"))]
    assert times == ["--time=2:00:00"]


def test_a_new_script_with_its_own_options(desk: Desk) -> None:
    elder = desk.running()
    script = desk.file("lower.sh", SCRIPT)
    before = desk.keys()
    said = desk.dispatch("supersede", elder, "--reason", "lr", "--", "--time=1:00:00", "--on", "failed:stop", script)
    assert said.status == 0, said
    assert "dispatch: plan: " in said.err
    key = newer(desk, before)
    state = desk.state(key)
    assert (state.spec.generation, state.spec.root, state.spec.rules) == (1, "/ckpt", ("failed:stop",))
    assert desk.rig.record(key).script().decode() == SCRIPT
    assert "--time=1:00:00" in desk.object(desk.rig.object(key))["argv"]
    quiet = desk.dispatch("supersede", key, "--", "--no-plan", script)
    assert (quiet.status, quiet.err) == (0, ""), quiet


def test_a_new_description_says_anew_to_which_cluster_it_goes(desk: Desk) -> None:
    """C079: repeated it stays where it was; described anew it goes where the new options say."""
    where = {"cluster": "second", "clusters": ("second",), "argv": ("--job-name=train", "--clusters=second")}
    there = desk.slurm.at("second")
    again, _ = superseded(desk, desk.job(submitted=False, **where))
    assert desk.rig.last(again, "submitted").body["cluster"] == "second"
    assert len(there.ids()) == 1
    elder, before = desk.job(submitted=False, **where), desk.keys()
    desk.ok("supersede", elder, "--", "--no-plan", desk.file("here.sh", SCRIPT))
    assert desk.rig.last(newer(desk, before), "submitted").body["cluster"] in {"", "fake"}
    assert len(there.ids()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--checkpoint", "/elsewhere"), "the checkpoint root /elsewhere is not that of job"),
        (("--begin=tomorrow",), "--begin is not for a job that goes on in the place of another"),
        (("--adopt-root",), "--adopt-root is not for a job"),
        (("--start-from", "/x"), "--start-from is not for a job"),
        (("--test-only",), "this is no job that can go on in the place of another"),
        (("--array=1-3",), "job arrays are not managed"),
        (("--nothing",), "cannot be read"),
    ],
)
def test_what_a_new_job_cannot_be(desk: Desk, words: tuple[str, ...], says: str) -> None:
    elder = desk.running()
    script = "nowhere.sh" if words == ("--nothing",) else desk.file("lower.sh", "#!/bin/sh\nexec train\n")
    options = () if words == ("--nothing",) else words
    before = desk.keys()
    assert says in desk.refused(64, "supersede", elder, "--", *options, script)
    assert (desk.keys(), desk.phase(elder)) == (before, "running")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_repeats_a_job_and_describes_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    elder = desk.running()
    monkeypatch.setenv("ROOTS_SECRET", "1")
    line = desk.refused(77, "supersede", elder, "--", "--time=1", desk.file("x.sh", SCRIPT), by_root=True)
    assert "come from its owner; run it as nobody, or without arguments of sbatch" in line
    before = desk.keys()
    desk.ok("supersede", elder, by_root=True)
    key = newer(desk, before)
    made = desk.object(desk.rig.object(key))
    assert made["caller"] == desk.rig.uid
    assert "ROOTS_SECRET" not in {**made["handed"], **made["own"]}
    assert os.stat(desk.rig.record(key).folder).st_uid == desk.rig.uid


def test_a_job_that_is_opened_again_counts_as_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ("[[limit]]", 'user = ["ada"]', "open_jobs = 1")
    for desk in make_desk(monkeypatch, *limit):
        over = desk.closed()
        desk.running(name="other")
        before = desk.keys()
        assert "you have 1 open jobs" in desk.refused(77, "supersede", over)
        assert desk.keys() == before
        assert "you have 1 open jobs" in desk.refused(77, "reopen", over, "--reason", "x")
        assert desk.phase(over) == "closed"


@pytest.mark.parametrize(("made", "kept"), [("job", True), ("running", False)])
def test_what_the_old_one_still_waited_for(desk: Desk, made: str, *, kept: bool) -> None:
    """C084: a dependency that was never met is the new one's too; one that was met is not repeated."""
    elder = getattr(desk, made)(dependency="afterok:7")
    key, _ = superseded(desk, elder)
    argv = desk.object(desk.rig.object(key))["argv"]
    assert ("--dependency=afterok:7" in argv) == kept
    if kept:
        again, _ = superseded(desk, key)
        assert "--dependency=afterok:7" in desk.object(desk.rig.object(again))["argv"]


def test_what_a_person_says_it_depends_on(desk: Desk) -> None:
    """C084: of new arguments the dependency counts, wherever it stands."""
    elder = desk.running()
    with open(f"{desk.home}/new.sh", "w", encoding="ascii") as stream:
        stream.write("#!/bin/sh\n#SBATCH --dependency=afterok:9\n#DISPATCH --checkpoint /ckpt\nexec train\n")
    key, _ = superseded(desk, elder, "--", "--no-plan", f"{desk.home}/new.sh")
    assert "--dependency=afterok:9" in desk.object(desk.rig.object(key))["argv"]
    again, _ = superseded(desk, key, "--", "--no-plan", "-d", "afterany:8", f"{desk.home}/new.sh")
    argv = desk.object(desk.rig.object(again))["argv"]
    assert [word for word in argv if "depend" in word] == ["--dependency=afterany:8"]
