"""kill -9 at every call of gc and of adopting: what proves a save whole goes first, and the next pass ends it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slurm_dispatch.errors import DispatchError
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.keep import bring, keep
from slurm_dispatch.store.manifest import SaveState, state_of
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.tree import LEFTOVER
from slurm_dispatch.store.whole import Proof
from tests import forked
from tests.store.gc_stage import memory
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, fresh, save, tree

WHOLE = {"weights": BIG, "small": b"s", "inner/rng": b"rng"}


def scene(folder: Path) -> CheckpointRoot:
    """An old run with two saves and what it was given, and a new one with one."""
    root = fresh(folder)
    for attempt, epoch, step in ((OLD, FIRST, 1), (OLD, FIRST, 2), (NEW, SECOND, 5)):
        path = save(root, attempt, f"checkpoint-{step}", BIG, small=b"s")
        os.mkdir(path + "/inner")
        Path(path, "inner", "rng").write_bytes(b"rng")
        kept = keep(root, attempt, path, proof=Proof.PROVED)
        assert kept is not None
        root.publish(epoch, step, kept, attempt=attempt)
    return root


def collect(root: CheckpointRoot) -> tuple[str, ...]:
    """One pass that keeps one save."""
    found = plan(root, Rules(1), lambda _: Known(Standing.OVER, "the test"), lambda name: name.startswith(b"ch"))
    return remove_all(root, found.paths)[1]


def check(root: CheckpointRoot) -> None:
    """Every save is whole, or gone: and where it is half gone nothing is called by its name."""
    assert [one.step for one in root.listing()] == [5, 2, 1]
    latest = root.latest()
    assert latest is not None
    assert tree(latest.path) == WHOLE
    for publication in root.listing():
        path = Path(root.path, os.fsdecode(publication.path))
        state = state_of(root, publication)
        assert (state, tree(path)) in [
            (SaveState.PROVED, WHOLE), (SaveState.UNRECORDED, WHOLE), (SaveState.GONE, {})]  # fmt: skip
        assert publication.step != 5 or state is SaveState.PROVED
    for number in (1, 2):
        own = Path(root.execution(OLD), f"checkpoint-{number}")
        assert tree(own) in (WHOLE, {})
        assert own.exists() == bool(tree(own))
    report = fsck(root)
    assert (report.faults, report.troubles) == ([], [])


def test_gc_at_every_call(tmp_path: Path) -> None:
    folder = Path(memory(tmp_path))
    try:
        place = folder / "place"  # the same each time: a point is known by the paths that its call names
        place.mkdir()
        root = scene(place)
        found = forked.points(lambda: None if not collect(root) else os._exit(9), folder / "trace", Path(root.path))
        assert len(found) > 30
        names = {point.call.removesuffix("at2").removesuffix("at") for point in found}
        assert {"rename", "unlink"} <= names
        for point in found:
            shutil.rmtree(place)
            place.mkdir()
            root = scene(place)
            forked.kill(lambda root=root: collect(root), point, folder / "trace")  # type: ignore[misc]
            check(root)
            assert collect(root) == ()
            check(root)
            for below in ("", "kept", "resume"):
                names_left = root.entries(f"exec/{OLD}/{below}".rstrip("/").encode())
                assert not [name for name in names_left if LEFTOVER.fullmatch(name) or name.startswith(b"checkpoint")]
    finally:
        shutil.rmtree(folder)


def test_adopting_at_every_call(tmp_path: Path) -> None:
    """Until the new publication is there nothing has changed; then its save is whole."""
    folder = Path(memory(tmp_path))

    def adopt(root: CheckpointRoot, attempt: str) -> None:
        old = root.listing()[-1]
        root.publish(SECOND + 10**6, old.step, bring(root, old, attempt), attempt=attempt)

    try:
        place = folder / "place"  # the same each time: a point is known by the paths that its call names
        place.mkdir()
        root = scene(place)
        found = forked.points(lambda: adopt(root, "adopted"), folder / "trace", Path(root.path))
        assert len(found) > 20
        for point in found:
            shutil.rmtree(place)
            place.mkdir()
            root = scene(place)
            forked.kill(lambda root=root: adopt(root, "adopted"), point, folder / "trace")  # type: ignore[misc]
            latest = root.latest()
            assert latest is not None
            assert latest.publication.epoch in {SECOND, SECOND + 10**6}
            assert tree(latest.path) == WHOLE
            # Typed again: under a new name, as a person does who saw it fail.
            try:
                adopt(open_root(root.path), "again")
            except DispatchError as error:
                raise AssertionError(f"killed at {point}: {error}") from error
            again = root.latest()
            assert again is not None
            assert (again.publication.step, tree(again.path)) == (1, WHOLE)
            assert collect(root) == ()
            assert root.latest() == again
    finally:
        shutil.rmtree(folder)
