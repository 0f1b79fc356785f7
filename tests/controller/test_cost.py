"""What a tick costs when nothing has changed, and that the index that makes it cheap can be lost, torn or wrong."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.tick import run_once
from slurm_dispatch.controller import index, kick, owner, tick
from slurm_dispatch.controller.children import Children
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_dispatch.controller.tick import Controller

HOUR_S = 3600.0
DEADLINE_S = 60.0


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


def age(site: Site) -> None:
    """Everything there is lies an hour back: no time stamp is young, and the last tick was a minute ago."""
    for top, _, _ in os.walk(os.path.join(site.rig.path, "jobs")):
        if os.path.basename(top) == "facts":
            found = os.stat(top).st_mtime_ns - int(HOUR_S * 1e9)
            os.utime(top, ns=(found, found))
    last_tick(site, 60.0)


def last_tick(site: Site, ago_s: float) -> None:
    """The last tick ended so long ago."""
    path = os.path.join(site.rig.path, "tick", "last")
    if os.path.exists(path):
        os.utime(path, (time.time() - ago_s, time.time() - ago_s))


def rest(site: Site) -> None:
    """Tick until nothing is to be remembered any more."""
    run_once(site.controller())
    age(site)
    for _ in range(3):
        run_once(site.controller())
        last_tick(site, 60.0)


def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job has its turn: what is visited is visited for a reason."""
    monkeypatch.setattr(index, "turns_up", lambda key, last, *_, **__: last is None)


def files(site: Site) -> dict[str, tuple[int, int, int, int]]:
    """Whatever shows that a file or a folder of the site was written."""
    found = {}
    for top, folders, names in os.walk(site.rig.path):
        for name in (*folders, *names):
            status = os.lstat(os.path.join(top, name))
            path = os.path.relpath(os.path.join(top, name), site.rig.path)
            found[path] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    return found


def started(site: Site) -> list[str]:
    """Jobs that wait, run, are held and are closed."""
    rig = site.rig
    keys = [rig.job() for _ in range(8)]
    for key in keys[2:]:
        rig.start(key)
    for key in keys[4:6]:
        rig.slurm.end(rig.object(key), "OUT_OF_MEMORY")
    for key in keys[6:]:
        rig.slurm.end(rig.object(key), "COMPLETED")
    site.hand_over()
    return keys


def visits(monkeypatch: pytest.MonkeyPatch, controller: Controller) -> list[str]:
    """The jobs that the controller has visited, from now on."""
    found: list[str] = []
    real = controller._owners_work

    def watched(uid: int, keys: tuple[str, ...], *rest: object) -> object:
        found.extend(keys)
        return real(uid, keys, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(controller, "_owners_work", watched)
    return found


# The cost.


def test_a_tick_with_nothing_changed_is_two_calls_of_slurm_at_most_and_no_write(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    assert {site.rig.state(key).phase.value for key in keys} == {"queued", "running", "held", "closed"}
    rest(site)
    asked: list[str] = []
    monkeypatch.setattr(type(site.rig.slurm), "config", lambda self: asked.append("config") or {})
    controller = site.controller()
    visited = visits(monkeypatch, controller)
    before, calls, said = files(site), len(site.rig.slurm.calls()), len(site.log)
    controller.tick(full=True)
    controller.stop()
    after = files(site)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == {"tick/last"}  # its time is what `dispatch status` shows
    assert after["tick/last"][3] == 0
    # The nodes are asked for because executions have failed within the hour.
    assert sorted(site.rig.slurm.calls()[calls:]) == ["nodes", "queue"]
    assert asked == []
    assert visited == []
    assert site.log[said:] == []


def test_a_tick_with_nothing_changed_and_nothing_failed_is_one_call(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_turns(monkeypatch)
    site.rig.job()
    site.rig.start(site.rig.job())
    site.hand_over()
    rest(site)
    calls = len(site.rig.slurm.calls())
    run_once(site.controller())
    assert site.rig.slurm.calls()[calls:] == ["queue"]


def test_no_jobs_are_no_call_at_all(site: Site) -> None:
    run_once(site.controller())
    assert site.rig.slurm.calls() == []


def test_one_changed_job_is_one_visit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    controller = site.controller()
    visited = visits(monkeypatch, controller)
    site.rig.start(keys[0])
    site.hand_over()
    controller.tick(full=True)
    assert visited == [keys[0]]
    assert site.rig.kinds(keys[0])[-1] == "started"
    record = site.rig.record(keys[2])
    record.append(len(site.rig.facts(keys[2])) + 1, "request", "user:ada@login", {"what": "cancel", "reason": ""})
    site.hand_over()
    visited.clear()
    controller.tick(full=True)
    controller.stop()
    assert keys[2] in visited
    assert set(visited) <= {keys[0], keys[2]}
    assert "CANCELLED" in site.rig.slurm.job(site.rig.object(keys[2]))["states"]


def test_an_owner_with_very_many_jobs_is_worked_on_in_parts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "OWNER_JOBS_MAX", 2)
    keys = [site.preempted() for _ in range(5)]
    controller = site.controller()
    controller.tick(full=True)
    controller.stop()
    assert [site.rig.kinds(key)[-1] for key in keys] == ["submitted"] * 5


def test_a_closed_job_that_a_person_opens_again_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a loop, which has closed it itself."""
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    controller = site.controller()
    controller.tick(full=True)
    state = site.rig.state(keys[7])
    body = {"reason": "more epochs", "submission": state.next_number}
    assert site.rig.record(keys[7]).append(state.seq + 1, "reopened", "user:ada@login", body)
    site.hand_over()
    controller.tick(full=True)
    controller.stop()
    assert site.rig.kinds(keys[7])[-2:] == ["intent", "submitted"]


# The index is only a hint.


def spoil(site: Site, how: str) -> None:
    """Do something to every index."""
    folder = os.path.join(site.rig.path, "tick")
    names = [name for name in os.listdir(folder) if name.startswith(index.NAME)]
    assert names
    for name in names:
        path = os.path.join(folder, name)
        with open(path, encoding="ascii") as stream:
            text = stream.read()
        if how == "deleted":
            os.unlink(path)
            continue
        new = {
            "empty": "",
            "torn": text[: len(text) // 2],
            "another version": text.replace('"v": 1', '"v": 2', 1),
            "another owner's": text.replace('"uid": ', '"uid": 9', 1),
            "another program's": text.replace('"basis": "', '"basis": "f', 1),
            "nonsense": json.dumps({**json.loads(text), "jobs": {"abc": "1 2 3"}}),
        }[how]
        with open(path, "w", encoding="ascii") as stream:
            stream.write(new)


@pytest.mark.parametrize(
    "how", ["deleted", "empty", "torn", "another version", "another owner's", "another program's", "nonsense"]
)
def test_a_spoilt_index_changes_no_decision_and_is_made_anew(
    site: Site, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    before = files(site).keys()
    spoil(site, how)
    site.rig.slurm.end(site.rig.object(keys[2]), "PREEMPTED")
    facts = {key: site.rig.kinds(key) for key in keys}
    rest(site)
    assert site.rig.kinds(keys[2], len(facts[keys[2]])) == ["end", "decision", "intent", "submitted"]
    assert {key: site.rig.kinds(key) for key in keys if key != keys[2]} == {
        key: kinds for key, kinds in facts.items() if key != keys[2]
    }
    assert {path for path in before if "index" in path} <= files(site).keys()
    controller = site.controller()
    visited = visits(monkeypatch, controller)
    controller.tick(full=True)
    controller.stop()
    assert visited == []


def test_an_index_that_lies_is_found_out_within_the_hour(site: Site) -> None:
    """A folder's time stamp that was set back hides a fact until the job has its turn."""
    keys = started(site)
    rest(site)
    record = site.rig.record(keys[2])
    stamp = os.stat(record.facts_folder).st_mtime_ns
    record.append(len(site.rig.facts(keys[2])) + 1, "request", "user:ada@login", {"what": "cancel", "reason": ""})
    site.hand_over()
    os.utime(record.facts_folder, ns=(stamp, stamp))
    number = site.rig.object(keys[2])
    for minutes_ago in range(60, 0, -1):  # whenever its minute is, it is among these
        last_tick(site, 60.0 * minutes_ago)
        run_once(site.controller())
        if "CANCELLED" in site.rig.slurm.job(number)["states"]:
            break
    assert "CANCELLED" in site.rig.slurm.job(number)["states"]


def test_a_fact_with_the_time_stamp_of_the_one_before_is_seen(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp was young when the record was read, so that it is not relied on (as in git's racy index)."""
    no_turns(monkeypatch)
    key = site.rig.job()
    site.hand_over()
    run_once(site.controller())
    record = site.rig.record(key)
    stamp = os.stat(record.facts_folder).st_mtime_ns
    record.append(4, "request", "user:ada@login", {"what": "cancel", "reason": ""})
    site.hand_over()
    os.utime(record.facts_folder, ns=(stamp, stamp))
    run_once(site.controller())
    assert "CANCELLED" in site.rig.slurm.job(site.rig.object(key))["states"]


def test_an_index_says_nothing_of_other_owners_jobs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    found = index.parse("", 1, "b")
    with open(os.path.join(site.rig.path, "tick", f"index.{site.rig.uid}"), encoding="ascii") as stream:
        content = json.load(stream)
    found = index.parse(json.dumps(content), site.rig.uid, content["basis"])
    assert found.entries.keys() == set(keys)
    entry = index.pack(found.entries[keys[0]])
    report = {"key": keys[0], "seq": 3, "closed": False, "soon": False, "due": None, "lines": [], "trouble": "",
              "done_notes": [], "refuse": [], "site": {}, "rest": entry}  # fmt: skip
    with pytest.raises(tick.DispatchError, match="another's job"):
        owner.unpack(json.dumps([report]).encode(), keys[1:], set())
    # What has no folder any more, or another owner's, is forgotten.
    shutil.rmtree(site.rig.record(keys[0]).folder)
    rest(site)
    with open(os.path.join(site.rig.path, "tick", f"index.{site.rig.uid}"), encoding="ascii") as stream:
        assert json.load(stream)["jobs"].keys() == set(keys[1:])


def test_a_look_that_takes_long_holds_nobody_up_and_is_used_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    gate = os.path.join(site.rig.path, "gate")
    real = owner.moved

    def slow(folder: str, stamps: dict[str, int]) -> bytes:
        until = time.monotonic() + DEADLINE_S
        while not os.path.exists(gate) and time.monotonic() < until:
            time.sleep(0.01)
        return real(folder, stamps)

    monkeypatch.setattr(owner, "moved", slow)
    record = site.rig.record(keys[2])
    record.append(len(site.rig.facts(keys[2])) + 1, "request", "user:ada@login", {"what": "cancel", "reason": ""})
    site.hand_over()
    controller = site.controller()
    controller.tick(full=True, patience_s=0.2)
    assert "CANCELLED" not in site.rig.slurm.job(site.rig.object(keys[2]))["states"]
    with open(gate, "w", encoding="ascii"):
        pass
    until = time.monotonic() + DEADLINE_S
    while "CANCELLED" not in site.rig.slurm.job(site.rig.object(keys[2]))["states"]:
        assert time.monotonic() < until
        controller.tick(full=False, patience_s=5.0)
    controller.stop()


def test_who_is_asked_nonsense_by_his_own_child_has_one_line_and_his_jobs_wait(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_turns(monkeypatch)
    keys = started(site)
    rest(site)
    monkeypatch.setattr(owner, "moved", lambda *_: b'{"a": [')
    said = len(site.log)
    controller = site.controller()
    controller.tick(full=True)
    controller.tick(full=True)
    assert [line for line in site.log[said:] if "nonsense" in line] == site.log[said:]
    assert len(site.log) == said + 1
    monkeypatch.setattr(owner, "moved", lambda *_: json.dumps(["zzz", 5, keys[0]]).encode())
    visited = visits(monkeypatch, controller)
    controller.tick(full=True)
    controller.stop()
    assert visited == [keys[0]]


# The wake.


def test_a_note_is_seen_by_the_next_look_even_if_it_left_no_other_time_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two notes within one tick of the filesystem's clock: the folder is listed once more after a change."""
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:  # the first listing is over
            stamp = os.stat(tmp_path).st_mtime_ns
            (tmp_path / "end.a").touch()
            os.utime(tmp_path, ns=(stamp, stamp))
        assert len(looks) < 5

    monkeypatch.setattr(kick.time, "sleep", sleep)
    assert json.loads(kick.wait_for_note(str(tmp_path), [])) == ["end.a"]
    assert looks == [kick.POLL_S]
    assert kick.POLL_S <= 0.1  # half of the 0.2 s in which the loop is to wake


def test_children_of_one_name_work_one_after_the_other(tmp_path: Path) -> None:
    children = Children()
    for number in range(3):
        children.start("uid 5", lambda number=number: str(number).encode(), 60.0)  # type: ignore[misc]
    answers: list[bytes | None] = []
    until = time.monotonic() + DEADLINE_S
    while len(answers) < 3:
        assert time.monotonic() < until
        answers += [ended.answer for ended in children.wait(1.0)]
    assert answers == [b"0", b"1", b"2"]
