"""A command that is killed at any of its steps leaves what a tick finishes, or what can be typed again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import NothingThereError
from slurm_dispatch.records.replay import replay
from slurm_dispatch.state import jobs as records
from slurm_dispatch.store.root import CheckpointRoot
from tests.controller.fake_slurm import OVER
from tests.people.test_adopt import GHOST, REASON, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.people.desk import Desk

STEPS_MAX = 40
KILLED = 9


class Steps:
    """Ends the process that works for the owner after its n-th step that others can see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
        self.home = os.getpid()
        self.kill_at = 0
        self.count = 0
        for where, name in (
            (records, "create_whole"),
            (CheckpointRoot, "publish"),
            (type(desk.slurm), "submit"),
            (type(desk.slurm), "cancel"),
        ):
            monkeypatch.setattr(where, name, self._around(getattr(where, name)))

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            done = call(*arguments, **named)
            self._passes()
            return done

        return step

    def _passes(self) -> None:
        if os.getpid() == self.home:
            return  # a tick of the test's own
        self.count += 1
        if self.count == self.kill_at:
            os._exit(KILLED)


def alive(desk: Desk, *keys: str) -> list[int]:
    """The objects of these jobs that are not over."""
    return [
        number
        for number in desk.slurm.ids()
        if any(f"dispatch:{key}:" in desk.object(number)["comment"] for key in keys)
        and not OVER & set(desk.object(number)["states"])
    ]


def is_job(desk: Desk, key: str) -> bool:
    """Its making came so far that it is one."""
    try:
        return bool(desk.rig.facts(key))
    except NothingThereError:
        return False


def broken_off(
    desk: Desk, steps: Steps, make: Callable[[int], str], *words: str
) -> Iterator[tuple[str, list[str], bool]]:
    """For each step: make a job, give the command, kill it there, and let ticks go on; yields the job's key, what
    jobs were made, and whether the command came to its end."""
    for steps.kill_at in range(1, STEPS_MAX):
        before = desk.keys()
        key = make(steps.kill_at)
        said = desk.dispatch(words[0], key, *words[1:])
        assert said.status in {0, 69}, said
        for _ in range(2):  # an intent without an answer is watched first
            desk.tick()
            desk.rig.later_s += 7200.0
        desk.tick()
        made = [job for job in sorted(desk.keys() - before) if is_job(desk, job)]
        yield key, [job for job in made if job != key], said.status == 0
        for job in made:
            assert all(it.same is not False for it in replay(desk.rig.facts(job))), desk.dispatch("replay", job)
            desk.dispatch("cancel", job, "--wait", "5")
        if said.status == 0:
            assert steps.kill_at > 3
            return
    raise AssertionError("it never came to its end")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> Steps:
    return Steps(monkeypatch, desk)


def test_supersede(desk: Desk, steps: Steps) -> None:
    """Either nothing has happened, or exactly the new job goes on; never both, and never none."""
    for key, made, done in broken_off(desk, steps, lambda n: desk.running(name=f"s{n}"), "supersede"):
        old = desk.state(key)
        if old.closed is None:
            assert not done
            assert old.phase.value == "running"
            assert alive(desk, key, *made) == [desk.rig.object(key)]
            continue
        assert [old.closed.by_job] == made
        assert desk.phase(made[0]) == "queued"
        assert alive(desk, key, *made) == [desk.rig.object(made[0])]


@pytest.mark.parametrize("verb", ["release", "reopen"])
def test_release_and_reopen(desk: Desk, steps: Steps, verb: str) -> None:
    """Killed before the wish is written: it is typed again; after it: a tick does the rest."""

    def make(number: int) -> str:
        return desk.held(name=f"r{number}") if verb == "release" else desk.closed(name=f"r{number}")

    for key, _, done in broken_off(desk, steps, make, verb, "--reason", "go"):
        wished = {"release": "release", "reopen": "reopened"}[verb] in desk.rig.kinds(key)
        assert wished or not done
        assert desk.phase(key) == ("queued" if wished else "held" if verb == "release" else "closed")
        assert alive(desk, key) == ([desk.rig.object(key)] if wished else [])


def test_adopt(desk: Desk, steps: Steps) -> None:
    """A number may be lost, and the job goes on once: with what was published, or with what it had."""
    roots: list[Root] = []

    def make(number: int) -> str:
        roots.append(Root(desk, f"root{number}"))
        return desk.waiting(root=roots[-1].path, name=f"a{number}")

    for key, _, done in broken_off(desk, steps, make, "adopt", f"exec/{GHOST}/checkpoint-900", *REASON):
        given = "adopted" in desk.rig.kinds(key)
        published = roots[-1].latest().step == 900
        assert given or not published
        assert published or not done
        lost = desk.rig.kinds(key).count("burnt")
        assert desk.state(key).submissions[-1].number == (3 if given else 2) + lost
        assert alive(desk, key) == [desk.rig.object(key)]
