"""``--stall``: a command that publishes nothing for too long is ended, and only silence that was looked at counts."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch import session as sessions
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.prepare import Prepared
from slurm_dispatch.watch.session import Session
from slurm_dispatch.watch.stall import GAP_S_MAX, STEP_S, Silence
from tests.watch.rig import DEADLINE_S, JOB
from tests.watch.test_stopping import Clock
from tests.watch.test_troubles import record
from tests.watch.test_turns import BEGIN, beside, said

if TYPE_CHECKING:
    import pytest

    from tests.watch.rig import Scene


def waited(silence: Silence, clock: Clock, seconds: float, *, seen: bool = True, looked: bool = True) -> bool:
    """Let time pass as the supervisor does, which looks each :data:`STEP_S`; whether it is a stall at the end."""
    over = False
    while seconds > 0:
        clock.now += min(STEP_S, seconds)
        seconds -= STEP_S
        over = silence.over(seen=seen, looked_from=clock.now if looked else 0.0)
    return over


def test_silence_counts_from_the_command_s_start_and_from_each_publication() -> None:
    clock = Clock()
    silence = Silence(1800, clock)
    assert not waited(silence, clock, 1790)
    silence.broken()
    assert not waited(silence, clock, 1799)
    assert waited(silence, clock, 10)


def test_a_suspended_job_has_not_stalled() -> None:
    """C082: scontrol suspend stops the helper too; the first look after ten hours must not end the training."""
    clock = Clock()
    silence = Silence(1800, clock)
    assert not waited(silence, clock, 600)
    clock.now += 36000
    assert not silence.over(seen=True, looked_from=clock.now)
    assert not waited(silence, clock, 1200 - GAP_S_MAX - 1)
    assert waited(silence, clock, 10)


def test_time_in_which_nothing_could_be_seen_does_not_count() -> None:
    clock = Clock()
    silence = Silence(60, clock)
    assert not waited(silence, clock, 3600, seen=False)
    assert not waited(silence, clock, 59)
    assert waited(silence, clock, 2)


def test_a_scan_that_began_when_the_time_was_over_decides() -> None:
    """A save that became whole since the last scan must be seen first."""
    clock = Clock()
    silence = Silence(60, clock)
    assert not waited(silence, clock, 600, looked=False)
    assert not silence.over(seen=True, looked_from=None)
    assert silence.over(seen=True, looked_from=clock.now)


def test_it_looks_at_the_clock_often() -> None:
    clock = Clock()
    silence = Silence(120, clock)
    assert silence.due() == STEP_S
    waited(silence, clock, 110)
    assert silence.due() == 120.0
    assert Silence(20, clock).due() == clock.now + 5


def test_a_short_limit_is_not_over_after_one_suspension() -> None:
    clock = Clock()
    silence = Silence(10, clock)
    clock.now += 36000
    assert not silence.over(seen=True, looked_from=clock.now)
    assert not waited(silence, clock, 4)
    assert waited(silence, clock, 2)


SAVE = 'mkdir "$1/checkpoint-$2" && echo w >"$1/checkpoint-$2/weights" && echo 1 >"$1/checkpoint-$2/done"'
"""In sh, which is there at once: whatever the machine does, the save must come before the time is over."""


def shell(script: str, step: int) -> list[str]:
    return ["--", "sh", "-c", script.replace("SAVE", SAVE), "sh", "{dir}", str(step)]


def test_a_command_that_publishes_nothing_more_is_ended(scene: Scene) -> None:
    made = record(scene.folder)
    helper = scene.helper(
        "--done", "done", "--stall", "5", *shell("SAVE; exec sleep 3600", 10),
        environment=scene.environment(SLURM_DISPATCH_RECORD=made.folder),
    )  # fmt: skip
    assert helper.end() == 79
    assert helper.has_said("nothing was published for 5 s (--stall): the command is ended")
    assert scene.published() == [(1, 10)]
    last = made.read()[-1]
    assert (last.kind, last.body["outcome"], last.body["signal"], last.body["step"]) == ("ended", "stalled", 15, 10)


def test_a_command_that_never_publishes_is_ended_too(scene: Scene) -> None:
    """The job's own setting comes in the environment."""
    helper = scene.train("wait never", environment=scene.environment(SLURM_DISPATCH_STALL="1"))
    assert helper.end() == 79


def test_what_is_saved_when_it_is_ended_is_published_and_the_status_stays(scene: Scene) -> None:
    script = "trap 'SAVE; exit 0' TERM; while :; do sleep 0.05; done".replace("SAVE", SAVE)
    helper = scene.helper("--done", "done", "--stall", "5s", *shell(script, 20))
    assert helper.end() == 79
    assert scene.published() == [(1, 20)]


def test_a_stalled_command_that_ignores_sigterm_is_killed(scene: Scene) -> None:
    helper = scene.helper("--stall", "5", "--grace", "0.2", *shell("trap '' TERM; while :; do sleep 0.05; done", 0))
    assert helper.end() == 79
    assert helper.has_said("it is killed")


def test_the_command_line_goes_before_the_job_s_setting(scene: Scene) -> None:
    wrong = scene.environment(SLURM_DISPATCH_STALL="half an hour")
    refused = scene.train("exit 3", environment=wrong)
    assert refused.end() == 78
    assert "SLURM_DISPATCH_STALL 'half an hour' is not a time" in refused.said
    assert scene.train("exit 3", "--stall", "0", environment=wrong).end() == 3


def test_a_limit_that_no_settled_save_can_meet_is_said(scene: Scene) -> None:
    helper = scene.train("exit 0", "--stall", "30")
    assert helper.end() == 0
    assert helper.has_said("no longer than --settle 60 s")
    proved = scene.train("exit 0", "--stall", "30", "--done", "done")
    assert proved.end() == 0
    assert not proved.has_said("--settle")


def test_a_store_that_fails_is_no_stall(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be published while it is away, however the training goes."""
    root = open_root(str(scene.root))
    prepared = Prepared(root.make_execution("att"), None, None, 1)
    options = parse(["--interval", "0.05", "--stall", "0.01", "--beside"])
    made = Session(Place(str(scene.root), JOB, 1000000, "att"), options, prepared, {})
    try:
        made.begins()
        made.error = "the root is away"
        time.sleep(0.05)
        assert not made.stalls()
        assert made._silence is not None
        assert made._silence._counted_s == 0.0

        def serve() -> None:
            made.handle(select.select(made.descriptors(), [], [], 0.05)[0])

        monkeypatch.setattr(sessions, "SLOW_S", -1.0)  # every scan counts as one that takes too long
        ends_at = time.monotonic() + DEADLINE_S
        while made._looked_from is None:
            assert time.monotonic() < ends_at
            serve()
        assert made.error is None
        monkeypatch.undo()
        while not made.stalls():
            assert time.monotonic() < ends_at
            serve()
        assert made.stalled
        assert not made.stalls()
    finally:
        made.end(79)


def test_beside_a_training_the_helper_ends_with_79(scene: Scene) -> None:
    script = BEGIN.replace("--beside &", "--stall 1 --beside & helper=$!;") + "wait $helper; exit $?"
    process = beside(scene, script)
    assert process.wait(120) == 79
    assert "nothing was published for 1 s" in said(scene)
