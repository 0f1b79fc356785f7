"""One root through two clients of a server of NFSv4.2, each with a cache of its own; run in the second kernel."""

from __future__ import annotations

import os
import shutil
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from slurm_dispatch.durable import create_whole
from slurm_dispatch.errors import BadDataError, CannotCreateError
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.choice import choose, is_there, read_choice
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.keep import take
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.probe import probe
from slurm_dispatch.store.root import CheckpointRoot, Highest
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import look
from slurm_dispatch.watch.turn import (
    ask_finish,
    claim_run,
    end_run,
    read_again,
    read_end,
    read_finish,
    say_again,
    this_process,
)
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, kept_save, save

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.nfs.conftest import Two

T = TypeVar("T")
ROUNDS = 10
STALE_TRIES = 5


def at_once(*acts: Callable[[], T]) -> list[T | Exception]:
    """What came of each, all begun together."""
    barrier = threading.Barrier(len(acts))
    ended: list[T | Exception] = [AssertionError("it did not end")] * len(acts)

    def run(number: int, act: Callable[[], T]) -> None:
        barrier.wait(60)
        try:
            ended[number] = act()
        except Exception as error:
            ended[number] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return ended


def step_of(root: CheckpointRoot) -> int | None:
    """The step of the latest publication, at one look."""
    latest = root.latest()
    return None if latest is None else latest.publication.step


def publish(root: CheckpointRoot, step: int, attempt: str = OLD, epoch: int = FIRST) -> str:
    """Publish a new save; returns its path."""
    path = save(root, attempt, f"checkpoint-{step}")
    root.publish(epoch, step, path, attempt=attempt)
    return path


# Publications

@pytest.mark.usefixtures("no_waits")
def test_a_publication_is_seen_at_the_first_look(two: Two) -> None:
    """C110, C112: through the other mount, which has listed just before and knows that it is not there."""
    assert two.b.latest() is None
    for step in range(1, 2 * ROUNDS):
        publish(two.a, step)
        assert step_of(two.b) == step
        assert [one.step for one in two.b.listing()] == list(range(step, 0, -1))


@pytest.mark.usefixtures("no_waits")
def test_the_first_of_all_is_seen_at_the_first_look(two: Two) -> None:
    """C110: the other client remembers that there is no ``pub/``, and no ``exec/``."""
    for name in ("pub", "exec", "own"):
        assert not os.path.lexists(os.path.join(two.b.path, name))
    assert two.b.latest() is None
    publish(two.a, 5)
    assert step_of(two.b) == 5


@pytest.mark.usefixtures("no_waits")
def test_absences_that_the_client_remembers_hide_nothing(two: Two, remembers: bool) -> None:
    """C110: a stat goes on saying that there is none, of the publication and of the save; ``latest`` has both."""
    publish(two.a, 1)
    for step in range(2, 2 + STALE_TRIES):
        began = time.monotonic()
        path = os.path.join(two.a.execution(OLD), f"checkpoint-{step}")
        name = Publication(FIRST, step, os.path.relpath(path, two.a.path).encode()).name
        absent = two.on_b(path), os.path.join(two.b.path, "pub", name)
        assert not any(map(os.path.lexists, absent))
        publish(two.a, step)
        seen = [os.path.lexists(place) for place in absent]
        assert step_of(two.b) == step
        assert all(map(os.path.lexists, absent))
        if time.monotonic() - began < 20:  # else it may have forgotten by itself
            assert seen == [not remembers] * 2
            return
    pytest.fail("every try took longer than the client remembers")


def test_a_folder_that_the_client_remembers_as_absent_is_made_once(two: Two) -> None:
    """C138: mkdir says that it exists, and a stat that it does not."""
    for number in range(ROUNDS):
        attempt = f"n{number:019d}"
        for place in ("exec", f"exec/{attempt}", f"exec/{attempt}/.dispatch"):
            os.path.lexists(os.path.join(two.b.path, place))
        ended = at_once(*(partial(root.make_execution, attempt) for root in (two.a, two.b) * 3))
        assert ended == [root.execution(attempt) for root in (two.a, two.b) * 3]


def test_both_publish_one_save(two: Two) -> None:
    """C108: each is told that it is published, and it is there once."""
    for step in range(1, ROUNDS):
        path = save(two.a, OLD, f"checkpoint-{step}")
        assert two.b.latest() is None or step > 1
        places = ((two.a, path), (two.b, two.on_b(path))) * 3
        ended = at_once(*(partial(root.publish, FIRST, step, at, attempt=OLD) for root, at in places))
        assert not [one for one in ended if isinstance(one, Exception)], ended
        assert len(set(ended)) == 1
        assert len(two.a.listing()) == len(two.b.listing()) == step


# One winner

@pytest.mark.parametrize("how", ["create", "link", "symlink", "mkdir", "whole"])
def test_a_name_is_made_by_one(two: Two, how: str) -> None:
    """C114, C117: exclusive creation is exclusive between two hosts, by each call that the store makes names with."""
    ways: dict[str, Callable[[str, str], object]] = {
        "create": lambda folder, name: os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
        "link": lambda folder, name: os.link(f"{folder}/source", f"{folder}/{name}"),
        "symlink": lambda folder, name: os.symlink("target", f"{folder}/{name}"),
        "mkdir": lambda folder, name: os.mkdir(f"{folder}/{name}"),
        "whole": _whole,
    }
    Path(two.a.path, "source").touch()
    for number in range(2 * ROUNDS):
        name = f"{how}{number}"
        os.path.lexists(os.path.join(two.b.path, name))
        ended = at_once(*(partial(ways[how], root.path, name) for root in (two.a, two.b) * 4))
        lost = [one for one in ended if isinstance(one, Exception)]
        assert len(lost) == 7, ended
        assert all(isinstance(one, FileExistsError) for one in lost), lost


def _whole(folder: str, name: str) -> None:
    if not create_whole(folder, name, b"content"):
        raise FileExistsError(name)


def test_a_root_is_claimed_by_one_job(two: Two) -> None:
    """C130: the other is told whose it is, though its client remembers that nobody has claimed it."""
    for generation in range(ROUNDS):
        for root in (two.a, two.b):
            assert not os.path.lexists(os.path.join(root.path, "own", str(generation)))
            assert root.highest() == Highest(generation - 1, 0)
        jobs = [(two.a, "here"), (two.b, "there")] * 2
        ended = at_once(*(partial(root.claim, job, generation) for root, job in jobs))
        owner = two.a.owners()[generation]
        assert two.b.owners()[generation] == owner
        for (_, job), one in zip(jobs, ended, strict=True):
            if job == owner:
                assert one is None
            else:
                assert isinstance(one, CannotCreateError)
                assert owner in str(one)


def test_a_choice_is_made_once_and_read_at_once(two: Two) -> None:
    """Ranks on two hosts resume from one save, also where one had looked before there was a choice."""
    for step in range(1, ROUNDS):
        publish(two.a, step)
        attempt = f"n{step:019d}"
        two.a.make_execution(attempt)
        assert read_choice(two.b, attempt) is None
        os.path.lexists(os.path.join(two.b.execution(attempt), ".dispatch", "choice"))
        roots = (two.a, two.b) * 2
        if step % 2:
            roots = roots[:1]
        ended = at_once(*(partial(choose, root, attempt, epoch=SECOND) for root in roots))
        assert not [one for one in ended if isinstance(one, Exception)], ended
        for root in (two.a, two.b):
            seen = read_choice(root, attempt)
            assert seen is not None
            assert seen.resume is not None
            assert (seen.turn, seen.step) == (1, step)
            assert seen.resume.startswith(root.path)
            assert Path(seen.resume, "weights").read_bytes() == b"weights"
            assert choose(root, attempt, epoch=SECOND) == seen


def test_what_helpers_say_to_each_other_is_read_at_once(two: Two) -> None:
    """C110: who asks again and again on another host is not told of the absence that its client remembers."""
    two.a.make_execution(NEW)
    assert choose(two.a, NEW, epoch=SECOND).resume is None
    for number in range(1, ROUNDS):
        assert not read_again(two.b, NEW, number)
        assert read_finish(two.b, NEW, number) == (False, None)
        assert read_end(two.b, NEW, number) == (False, None)
        assert claim_run(two.a, NEW, number, this_process(os.getpid()))
        assert say_again(two.a, NEW)
        ask_finish(two.a, NEW, number, 3)
        end_run(two.a, NEW, number, 4)
        assert read_again(two.b, NEW, number)
        assert read_finish(two.b, NEW, number) == (True, 3)
        assert read_end(two.b, NEW, number) == (True, 4)


def test_what_was_chosen_is_there_at_once(two: Two) -> None:
    """C110: a rank whose client remembers that nothing was taken yet does not choose a second time."""
    publish(two.a, 7)
    for number in range(ROUNDS):
        attempt = f"n{number:019d}"
        resume = os.path.join(two.a.make_execution(attempt), "resume", "checkpoint-7")
        two.a.make_in_execution(attempt, b"resume")
        assert not os.path.lexists(two.on_b(resume))
        made = choose(two.a, attempt, epoch=SECOND)
        assert made.resume == resume
        seen = read_choice(two.b, attempt)
        assert seen is not None
        assert is_there(seen)
        assert choose(two.b, attempt, epoch=SECOND) == seen
        assert seen.turn == 1


def test_a_marker_beside_a_save_is_seen_at_once(two: Two) -> None:
    """C110: another node says that the save is whole."""
    for step in range(ROUNDS):
        path = save(two.a, OLD, f"checkpoint-{step}")
        there = two.on_b(path)
        found = look(there, markers=("{name}.done",))
        assert found is not None
        assert not found.proved
        Path(f"{path}.done").touch()
        found = look(there, markers=("{name}.done",))
        assert found is not None
        assert found.proved


# What goes

@pytest.mark.usefixtures("no_waits")
def test_a_save_that_another_host_removes_is_gone_at_the_first_look(two: Two) -> None:
    """C111: while this client has it open; the next older one is taken if that is asked for.

    Whether the server calls the open handle stale, or knows it for a moment longer, makes no difference.
    """
    older = publish(two.a, 1)
    newest = publish(two.a, 2)
    assert step_of(two.b) == 2
    assert os.listdir(two.on_b(newest)) == ["weights"]
    folder = os.open(two.on_b(newest), os.O_RDONLY | os.O_DIRECTORY)
    try:
        shutil.rmtree(newest)
        with pytest.raises(BadDataError, match="checkpoint-2 is gone"):
            two.b.latest()
        fallback = two.b.latest(fallback=True)
        assert fallback is not None
        assert fallback.path == two.on_b(older)
    finally:
        os.close(folder)
    two.b.make_execution(NEW)
    taken = take(two.b, NEW, fallback=True)
    assert taken is not None
    assert taken.save.publication.step == 1


@pytest.mark.usefixtures("no_waits")
def test_a_save_of_one_file_that_another_host_removes_is_gone(two: Two) -> None:
    """C111: a look at its attributes is answered from the cache, and there is no folder to list."""
    older = publish(two.a, 1)
    path = os.path.join(two.a.execution(OLD), "last.pt")
    Path(path).write_bytes(b"weights")
    two.a.publish(FIRST, 2, path, attempt=OLD)
    assert step_of(two.b) == 2
    os.lstat(two.on_b(path))
    os.unlink(path)
    with pytest.raises(BadDataError, match=r"last\.pt is gone"):
        two.b.latest()
    fallback = two.b.latest(fallback=True)
    assert fallback is not None
    assert fallback.path == two.on_b(older)


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_save_that_another_host_renames_is_gone(two: Two, kind: str) -> None:
    """C111: its handle stays good, and only its name is gone."""
    path = os.path.join(two.a.make_execution(OLD), "last")
    if kind == "folder":
        os.mkdir(path)
    Path(path, "weights" if kind == "folder" else "").write_bytes(b"weights")
    two.a.publish(FIRST, 2, path, attempt=OLD)
    assert step_of(two.b) == 2
    os.lstat(two.on_b(path))
    os.rename(path, path + ".moved")
    with pytest.raises(BadDataError, match="last is gone"):
        two.b.latest()
    os.rename(path + ".moved", path)
    assert step_of(two.b) == 2


@pytest.mark.usefixtures("no_waits")
def test_a_save_that_is_emptied_elsewhere_is_no_save(two: Two) -> None:
    """C087: a rotation on another host that was cut short."""
    path = publish(two.a, 1)
    assert step_of(two.b) == 1
    for name in os.listdir(two.on_b(path)):
        os.unlink(os.path.join(path, name))
    with pytest.raises(BadDataError, match="checkpoint-1 is gone"):
        two.b.latest()


def _publish_kept(root: CheckpointRoot, attempt: str, epoch: int, step: int) -> None:
    path = save(root, attempt, f"checkpoint-{step}", BIG, small=b"%d" % step)
    root.publish(epoch, step, kept_save(root, path, attempt), attempt=attempt)
    shutil.rmtree(path)


def _only_the_old_is_over(attempt: str) -> Known:
    return Known(Standing.OVER if attempt == OLD else Standing.RUNNING, "test")


@pytest.mark.parametrize("by", ["thin", "gc"])
def test_what_another_host_removes_does_not_disturb_who_resumes(two: Two, by: str) -> None:
    """C087: a run publishes and removes on one host while executions on the other take what is latest."""
    two.a.make_execution(OLD)
    two.b.make_execution(OLD)
    _publish_kept(two.b, OLD, FIRST, 1)
    done = threading.Event()
    removed: list[bytes] = []

    def run_and_remove() -> None:
        try:
            for step in range(2, 2 + ROUNDS):
                _publish_kept(two.b, OLD, FIRST, step)
                if by == "thin":
                    removed.extend(thin(two.b, OLD, epoch=FIRST, keep_own=1, keep_root=1).removed)
                else:
                    found = plan(two.b, Rules(last=1), _only_the_old_is_over)
                    gone, trouble = remove_all(two.b, found.paths)
                    assert not trouble, trouble
                    removed.extend(gone)
        finally:
            done.set()

    def resume() -> int:
        taken = 0
        while not done.is_set() or not taken:
            attempt = f"r{taken:019d}"
            two.a.make_execution(attempt)
            made = choose(two.a, attempt, epoch=SECOND)
            assert made.resume is not None
            assert Path(made.resume, "small").read_bytes() == b"%d" % (made.step or 0)
            assert Path(made.resume, "weights").read_bytes() == BIG
            taken += 1
        return taken

    ended = at_once(run_and_remove, resume)
    assert not [one for one in ended if isinstance(one, Exception)], ended
    assert removed
    assert step_of(two.a) == 1 + ROUNDS


# The rest

def test_the_filesystem_is_proved(two: Two) -> None:
    """C114: what each execution tries at its start, through either mount."""
    for root, attempt in ((two.a, OLD), (two.b, NEW)):
        root.make_execution(attempt)
        found = probe(root, attempt)
        assert found.links
        assert found.folder_sync
