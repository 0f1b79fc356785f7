"""The loop: kicked by a note, alive through what is away, ended by SIGTERM."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import kick
from slurm_dispatch.controller.loop import Loop
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOP = Path(__file__).resolve().parents[2]
LONG_S = 60.0


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


class Running:
    """The loop in a process of its own."""

    def __init__(self, site: Site, interval_s: float) -> None:
        argv = [sys.executable, "-m", "tests.controller.one_loop", str(site.folder), str(interval_s)]
        self.log = site.folder / f"log-{secrets.token_hex(4)}"
        with open(self.log, "wb") as stream:
            self.process = subprocess.Popen(argv, cwd=TOP, stdout=stream, stderr=subprocess.STDOUT)

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONG_S
        while not true():
            assert time.monotonic() < deadline, f"not {what}: {self.log.read_text()}"
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def end(self) -> str:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert status == 0, self.log.read_text()
        return self.log.read_text()


@pytest.fixture
def run() -> Iterator[Callable[[Site, float], Running]]:
    started: list[Running] = []

    def start(site: Site, interval_s: float) -> Running:
        started.append(Running(site, interval_s))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def test_a_note_kicks_it_and_sigterm_ends_it(site: Site, run: Callable[[Site, float], Running]) -> None:
    """The interval is an hour: only the note can have woken it."""
    running = run(site, 3600.0)
    running.until(lambda: "full\n" in running.log.read_text(), "ticked")
    key = site.preempted()
    running.until(lambda: site.rig.kinds(key)[-1] == "submitted", "replaced")
    said = running.end()
    assert said.count("full\n") == 1
    assert said.endswith("ended\n")


def test_it_lives_through_a_state_folder_that_goes_away(site: Site, run: Callable[[Site, float], Running]) -> None:
    running = run(site, 0.2)
    running.until(lambda: "full\n" in running.log.read_text(), "ticked")
    os.rename(site.rig.path, site.rig.path + ".away")
    running.until(lambda: "state" in running.log.read_text(), "missed it")
    os.rename(site.rig.path + ".away", site.rig.path)
    key = site.preempted()
    running.until(lambda: site.rig.kinds(key)[-1] == "submitted", "replaced")
    running.end()


def test_a_full_tick_comes_without_any_note(site: Site, run: Callable[[Site, float], Running]) -> None:
    running = run(site, 0.2)
    key = site.rig.job()
    site.rig.slurm.end(site.rig.object(key), "COMPLETED")
    running.until(lambda: site.rig.kinds(key)[-1] == "closed", "closed")
    running.end()


def test_an_end_that_is_told_late_is_asked_for_again(site: Site, run: Callable[[Site, float], Running]) -> None:
    """Slurm's flags come a moment after the note: no need to wait for the next full tick."""
    running = run(site, 3600.0)
    running.until(lambda: "full\n" in running.log.read_text(), "ticked")
    site.rig.slurm.knob(detail="away")
    key = site.preempted()
    running.until(lambda: "quick\n" in running.log.read_text(), "kicked")
    site.rig.slurm.knob(detail="ok")
    running.until(lambda: site.rig.kinds(key)[-1] == "submitted", "replaced")
    running.end()


def test_two_loops_and_a_tick_of_cron_submit_once(site: Site, run: Callable[[Site, float], Running]) -> None:
    running = [run(site, 0.3), run(site, 0.3)]
    keys = [site.preempted() for _ in range(4)]
    site.controller().tick(full=True)
    for one in running:
        one.until(lambda one=one: "full\n" in one.log.read_text(), "ticked")  # type: ignore[misc]
        one.until(lambda: all(site.rig.state(key).phase.value == "queued" for key in keys), "replaced")
    for one in running:
        one.end()
    site.controller().tick(full=True)
    assert len(site.rig.slurm.ids()) == 8
    assert all(site.rig.kinds(key).count("decision") == 1 for key in keys)


def test_a_watcher_that_is_killed_is_started_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kick, "RESTART_S", 0.0)
    watcher = kick.Kick(os.path.join(site.rig.path, "notes"), site.controller().as_slurm_user)
    try:
        for _ in range(2):
            watcher.ensure()
            pid = watcher._pid
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + LONG_S
            while watcher.descriptor is not None:
                assert time.monotonic() < deadline
                watcher.drain()
                time.sleep(0.01)
        watcher.ensure()
        assert watcher.descriptor is not None
        site.preempted()
        while not watcher.drain():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        watcher.stop()


def test_what_was_there_before_is_a_kick_and_a_node_note_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "end.a").touch()
    (tmp_path / "start.a").touch()
    (tmp_path / "node.a").touch()
    assert sorted(json.loads(kick.wait_for_note(str(tmp_path), None))) == ["end.a", "start.a"]
    (tmp_path / "refused.a").touch()
    assert "refused.a" in json.loads(kick.wait_for_note(str(tmp_path), ["end.a", "start.a"]))
    monkeypatch.setattr(kick, "LIFE_S", 0.0)
    assert json.loads(kick.wait_for_note(str(tmp_path), [])) == []


def test_a_start_is_recorded_without_waiting_for_a_full_tick(
    site: Site, run: Callable[[Site, float], Running]
) -> None:
    running = run(site, 3600.0)
    running.until(lambda: "full\n" in running.log.read_text(), "ticked")
    key = site.rig.job()
    site.rig.start(key)
    running.until(lambda: site.rig.kinds(key)[-1] == "started", "recorded")
    running.end()


def test_a_signal_before_the_first_pass_ends_it(site: Site) -> None:
    calls: list[bool] = []

    def tick(full: bool) -> float | None:
        calls.append(full)
        os.kill(os.getpid(), signal.SIGTERM)
        return 0.0

    Loop(tick, kick.Kick(os.path.join(site.rig.path, "notes"), site.controller().as_slurm_user), 3600.0).run()
    assert calls == [True]
