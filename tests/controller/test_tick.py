"""The controller with its children: privileges, deadlines, and what it remembers."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.tick import run_once
from slurm_dispatch.controller import index, owner, tick
from tests.controller.sites import SECOND_OWNER, SLURM_USER, Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


def test_one_tick_replaces_what_was_preempted_and_says_so(site: Site) -> None:
    keys = [site.preempted() for _ in range(3)]
    run_once(site.controller())
    for key in keys:
        assert site.rig.kinds(key, 3) == ["started", "end", "decision", "intent", "submitted"]
        assert os.stat(site.rig.record(key)._path(8)).st_uid == site.rig.uid
    assert len(site.rig.slurm.ids()) == 6
    assert all(name.startswith("start.") for name in site.rig.notes())
    assert site.rig.folder.last_tick() is not None
    assert [line for line in site.log if "preempted: resubmit" in line]
    said = len(site.log)
    run_once(site.controller())
    assert site.log[said:] == []
    assert site.rig.kinds(keys[0], 8) == []


def test_nothing_at_all_is_a_quiet_tick(site: Site) -> None:
    run_once(site.controller())
    assert site.log == []
    assert site.rig.folder.last_tick() is not None


def test_a_quick_tick_looks_only_at_jobs_with_a_new_note(site: Site) -> None:
    controller = site.controller()
    quiet = site.rig.job()
    site.rig.start(quiet, note=False)
    site.hand_over()
    controller.tick(full=False)
    assert site.rig.kinds(quiet, 3) == []
    assert site.rig.slurm.calls("queue") == []
    ended = site.preempted()
    controller.tick(full=False)
    assert site.rig.kinds(ended)[-1] == "submitted"
    assert site.rig.kinds(quiet, 3) == []
    controller.tick(full=True)
    assert site.rig.kinds(quiet, 3) == ["started"]


def test_an_end_that_is_not_clear_yet_is_asked_again_soon_and_then_left_to_full_ticks(site: Site) -> None:
    controller = site.controller()
    key = site.preempted()
    site.rig.slurm.knob(detail="away")
    waits = [controller.tick(full=False) for _ in range(6)]
    assert waits[:5] == [0.2, 0.5, 1.0, 2.0, 5.0]
    assert waits[5] is None
    site.rig.slurm.knob(detail="ok")
    controller.tick(full=True)
    assert site.rig.kinds(key)[-1] == "submitted"


def test_a_closed_job_is_not_read_again_unless_slurm_has_something_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "RACY_S", 0.0)  # its folder of facts has just changed
    controller = site.controller()
    key = site.rig.job()
    site.rig.slurm.end(site.rig.object(key), "COMPLETED")
    site.hand_over()
    controller.tick(full=True)
    assert site.rig.state(key).phase.value == "closed"
    site.rig.slurm.forget(site.rig.object(key))
    controller.tick(full=True)
    given: list[tuple[str, ...]] = []
    start = controller._owners_work

    def watched(uid: int, keys: tuple[str, ...], *rest: object) -> object:
        given.append(keys)
        return start(uid, keys, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(controller, "_owners_work", watched)
    controller.tick(full=True)
    assert given == []
    stray = site.rig.slurm.plain(comment=f"dispatch:{key}:0:1", uid=site.rig.uid)
    controller.tick(full=True)
    assert given == [(key,)]
    assert site.rig.slurm.job(stray)["states"] == ["CANCELLED"]


def test_a_burnt_number_is_refused_from_then_on(site: Site) -> None:
    key = site.preempted()
    site.rig.slurm.knob(submit="lost_before")
    controller = site.controller()
    controller.tick(full=True)
    intent = site.rig.last(key, "watched")
    record = site.rig.record(key)
    # Another host has watched for long enough: its own patience counts, not ours.
    assert intent.body["host"] == "ctl"
    facts = len(site.rig.facts(key))
    record.append(facts + 1, "burnt", "tick@other", {"submission": 2, "evidence": "nothing anywhere"})
    site.hand_over()
    controller.tick(full=True)
    assert f"refuse.{key}.0.2" in site.rig.notes()
    if site.root:
        path = os.path.join(site.rig.path, "notes", f"refuse.{key}.0.2")
        assert os.stat(path).st_uid == pwd.getpwnam(SLURM_USER).pw_uid


def test_an_owner_who_stops_the_child_stops_his_own_jobs_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = owner.work
    hostile = site.rig.uid

    def stopped(folder: str, uid: int, *rest: object, **more: object) -> bytes:
        if uid == hostile:
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(folder, uid, *rest, **more)  # type: ignore[arg-type]

    key = site.preempted()
    other = site.preempted(pwd.getpwnam(SECOND_OWNER).pw_uid) if site.root else None
    monkeypatch.setattr(owner, "work", stopped)
    monkeypatch.setattr(tick, "PUT_OFF_S", (3600.0, 7200.0))
    controller = site.controller(owner_timeout_s=-8.0)  # a deadline of two seconds
    deadline = time.monotonic() + 60
    while hostile not in controller._memory.put_off:
        assert time.monotonic() < deadline
        controller.tick(full=True, patience_s=0.5)
    assert site.rig.kinds(key, 3) == []
    assert "killed" in site.log[-1] or "took longer" in site.log[-1], site.log
    if other is not None:
        while site.rig.kinds(other)[-1] != "submitted":
            assert time.monotonic() < deadline
            controller.tick(full=True, patience_s=0.5)
    monkeypatch.setattr(owner, "work", real)
    controller.tick(full=True, patience_s=5.0)
    assert site.rig.kinds(key, 3) == []  # put off
    controller._memory.put_off.clear()
    controller.tick(full=True)
    assert site.rig.kinds(key)[-1] == "submitted"
    controller.stop()


def test_a_state_folder_that_is_away_is_one_line_and_no_harm(site: Site) -> None:
    key = site.preempted()
    controller = site.controller()
    os.rename(site.rig.path, site.rig.path + ".away")
    try:
        controller.tick(full=True)
        said = list(site.log)
        controller.tick(full=True)
    finally:
        os.rename(site.rig.path + ".away", site.rig.path)
    assert said
    assert all("state folder" in line or "state" in line for line in said)
    assert site.log == said  # not again
    controller.tick(full=True)
    assert site.rig.kinds(key)[-1] == "submitted"


def test_slurm_away_is_one_line_and_changes_nothing(site: Site) -> None:
    """C174, by the controller itself."""
    key = site.preempted()
    controller = site.controller()
    site.rig.slurm.knob(queue="away", detail="away", accounting="away")
    facts = site.rig.kinds(key)
    for _ in range(4):
        controller.tick(full=True)
    assert [line for line in site.log if "queue" in line] == site.log[:1]
    assert [kind for kind in site.rig.kinds(key) if kind != "started"] == facts
    site.rig.slurm.knob(queue="ok", detail="ok", accounting="ok")
    controller.tick(full=True)
    assert site.rig.kinds(key)[-1] == "submitted"


def test_one_owner_neither_floods_the_log_nor_keeps_the_loop_awake(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [site.rig.job() for _ in range(4)]
    site.hand_over()
    reports = [
        {"key": key, "seq": 3, "closed": False, "soon": False, "due": 1.0, "lines": ["x"] * 1000, "trouble": "y",
         "done_notes": [], "refuse": [], "site": {}} for key in keys
    ]  # fmt: skip
    monkeypatch.setattr(owner, "work", lambda *_, **__: json.dumps(reports).encode())
    controller = site.controller()
    again = controller.tick(full=True)
    assert again is not None
    assert again > 0.5
    assert len(site.log) == tick.OWNER_LINES_MAX + 1
    assert site.log[-1].endswith("60 more lines are left out")


def test_an_owner_whose_children_hang_in_the_kernel_is_put_off(site: Site) -> None:
    key = site.preempted()
    controller = site.controller()
    controller.put_off([site.rig.uid])
    controller.tick(full=True)
    assert site.rig.kinds(key, 3) == []
    assert "hang there" in site.log[0]


def test_a_note_that_does_not_parse_is_reported_and_stays(site: Site) -> None:
    key = site.preempted()
    path = os.path.join(site.rig.path, "notes", "end.zzz.0.1.5.0.1")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("{")
    site.hand_over()
    controller = site.controller()
    controller.tick(full=True)
    assert any("end.zzz.0.1.5.0.1" in line for line in site.log)
    assert os.path.exists(path)
    assert site.rig.kinds(key)[-1] == "submitted"


def test_old_notes_of_jobs_that_are_not_there_go(site: Site) -> None:
    key = site.preempted()
    shutil.rmtree(site.rig.record(key).folder)
    site.controller().tick(full=True)
    assert len(site.rig.notes()) == 2
    folder = tick.Folder((), site.rig.folder.notes().read().notes, ())
    assert tick.orphans(folder, time.time() + tick.ORPHAN_AFTER_S - 60) == []
    assert sorted(tick.orphans(folder, time.time() + tick.ORPHAN_AFTER_S + 60)) == site.rig.notes()
