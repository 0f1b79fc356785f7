"""Real saves of the real libraries, killed at every call at which a file of the save changes.

After each kill the helper scans once as it does after a signal (only what is proved counts), and is asked for latest:
it is never a broken save, and never nothing, since one whole save was published before.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_dispatch.store.keep import COPY_BELOW
from tests.savers.matrix import Boundary, Program, boundaries, kill_at_each
from tests.savers.scene import Scene, difference

pytestmark = pytest.mark.savers
WRITES = frozenset({"write", "writev", "pwrite64"})
PROGRAMS = Path(__file__).resolve().parent / "programs"
LOOSE = frozenset({"training_args.bin", "trainer_state.json", "rng_state.pth", "random_states_0.pkl"})
"""Paths and times are in them, and what Python draws anew in a forked process."""


@dataclass(frozen=True)
class Case:
    """One program, and what the helper is told.

    :ivar before: the save of the template that is published before the kill.
    :ivar saved: the save that the child writes.
    :ivar proves: whether the child's save is published without a wait.
    :ivar published: what the two are called in ``kept/``, if not by their own names.
    """

    script: str
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    before: str
    saved: str
    proves: bool = True
    published: tuple[str, str] | None = None

    def run(self, tmp_path: Path, libraries: Path, *, middle: bool) -> tuple[int, int]:
        """Kill at every point; how often the one and the other save was latest.

        :param middle: also between two writes to one file.
        """
        template, reference = tmp_path / "template", tmp_path / "reference"
        seen = {False: 0, True: 0}
        scenes: dict[Path, Scene] = {}

        def lay_out(place: Path) -> Path:
            scenes[place] = scene = Scene(place, self.options)
            scene.bring(template)
            if not scene.scan():
                assert scene.settle()
            return scene.directory

        with Program(libraries, PROGRAMS / self.script, [str(template), *self.arguments], tmp_path) as program:
            shutil.copytree(template, reference)
            points = boundaries(program, reference)
            if not middle:
                points = _edges(points)
            assert len(points) >= 2
            for point, place in kill_at_each(program, tmp_path, points, lay_out):
                seen[self._check(scenes.pop(place), template, reference, point)] += 1
            whole = tmp_path / "whole"
            whole.mkdir()
            assert program.child(lay_out(whole)).status == 0
            scene = scenes.pop(whole)
            assert scene.scan() if self.proves else scene.settle()
            assert self._check(scene, template, reference, None)
        return seen[False], seen[True]

    def _check(self, scene: Scene, template: Path, reference: Path, point: Boundary | None) -> bool:
        """Whether latest is the child's save."""
        if point is not None:
            # A helper that starts anew, as the next turn of a script does; nothing that it sees has settled.
            scene.publisher = scene.new_publisher()
            scene.scan()
        path = Path(scene.latest().path)
        names = self.published or (Path(self.before).name, Path(self.saved).name)
        assert path.name in names
        saved = path.name == names[1]
        found = difference(path, reference / self.saved if saved else template / self.before, loose=LOOSE)
        assert found is None, f"killed at {point}: latest is {path.name}: {found}"
        return saved


def _edges(points: list[Boundary]) -> list[Boundary]:
    """Without the second and later ones of several writes in a row."""
    return [
        point for number, point in enumerate(points)
        if not (number and point.call in WRITES and points[number - 1].call in WRITES)
    ]  # fmt: skip


CASES = {
    "trainer": Case("trainer.py", ("1", "0", "0"), (), "checkpoint-2", "checkpoint-3"),
    "trainer-by-name": Case(
        "trainer.py", ("2", "0", "0"), ("--layout", "transformers"), "checkpoint-2", "checkpoint-3"
    ),
    "trainer-shards": Case("trainer.py", ("1", "40KB", "0"), (), "checkpoint-2", "checkpoint-3"),
    "accelerate": Case(
        "accelerated.py", ("2", "1", "1"), (), "checkpoints/checkpoint_1", "checkpoints/checkpoint_2", proves=False
    ),
    "accelerate-done": Case(
        "accelerated.py", ("2", "0", "0"), ("--layout", "accelerate", "--done", "random_states_0.pkl"),
        "checkpoints/checkpoint_1", "checkpoints/checkpoint_2",
    ),
    **{
        f"plain-{kind}": Case("plain.py", (kind,), ("--layout", "plain"), f"step_1.{kind}", f"step_2.{kind}")
        for kind in ("pt", "safetensors", "npz", "npy")
    },
    **{
        f"single-{kind}": Case(
            "plain.py", (f"single-{kind}",), ("--single", f"last.{kind}"), f"last.{kind}", f"last.{kind}",
            published=(f"last-1.{kind}", f"last-2.{kind}"),
        )
        for kind in ("pt", "safetensors", "npz", "npy")
    },
}  # fmt: skip
SAMPLE = ("trainer", "accelerate", "plain-pt", "plain-safetensors", "plain-npz", "single-pt")
"""Each library once. What `make test` runs, at the edges of each file; `make savers` runs all cases at every call."""


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filesystems of tests stamp files finely."""
    monkeypatch.setattr("slurm_dispatch.watch.single.STILL_S", 0.05)


@pytest.mark.sample
@pytest.mark.parametrize("name", SAMPLE)
def test_a_save_killed_at_the_edges_of_its_files(name: str, tmp_path: Path, libraries: Path) -> None:
    """C054, C085, C087, C104: never a broken save, never nothing where a whole one was published."""
    case = CASES[name]
    before, saved = case.run(tmp_path, libraries, middle=False)
    assert before >= 1
    assert bool(saved) is case.proves


@pytest.mark.parametrize("name", CASES)
def test_a_save_killed_at_every_call(name: str, tmp_path: Path, libraries: Path) -> None:
    """C054, C085, C087, C104: the same between any two writes, for every program and way to ask for it."""
    case = CASES[name]
    before, saved = case.run(tmp_path, libraries, middle=True)
    print(f"{name}: {before + saved} points, the new save was latest after {saved}")
    assert before >= 1
    assert bool(saved) is case.proves


@pytest.mark.parametrize("kind", ["pt", "safetensors", "npz", "npy"])
def test_a_disk_that_is_full_during_a_save(kind: str, tmp_path: Path, libraries: Path) -> None:
    """C104: what a failed save leaves is not published, and the program may go on and exit with 0."""
    template, reference = tmp_path / "template", tmp_path / "reference"
    scenes: dict[Path, Scene] = {}

    def lay_out(place: Path) -> Path:
        scenes[place] = scene = Scene(place, ["--layout", "plain"])
        scene.bring(template)
        assert scene.scan() == [1]
        return scene.directory

    with Program(libraries, PROGRAMS / "plain.py", [str(template), kind], tmp_path) as program:
        shutil.copytree(template, reference)
        points = [
            point for point in boundaries(program, reference)
            if point.call in WRITES or point.call.startswith("rename") or (point.call == "openat" and point.when == 1)
        ]  # fmt: skip
        assert points
        for _, place in kill_at_each(program, tmp_path, points, lay_out, full_disk=True):
            scene = scenes.pop(place)
            assert scene.settle() == []
            assert scene.latest().publication.step == 1


def test_a_save_that_the_trainer_writes_again(tmp_path: Path, libraries: Path) -> None:
    """C054: it answers SIGTERM in the folder of the present step, which is published, and is killed there."""
    template, reference = tmp_path / "template", tmp_path / "reference"
    scenes: dict[Path, Scene] = {}

    def lay_out(place: Path) -> Path:
        scenes[place] = scene = Scene(place)
        scene.bring(template)
        assert scene.scan()[-1] == 2
        return scene.directory

    torn = 0
    with Program(libraries, PROGRAMS / "trainer.py", [str(template), "2", "0", "1"], tmp_path) as program:
        assert (template / "checkpoint-2" / "model.safetensors").stat().st_size > COPY_BELOW
        shutil.copytree(template, reference)
        for point, place in kill_at_each(program, tmp_path, _edges(boundaries(program, reference)), lay_out):
            scene = scenes.pop(place)
            scene.publisher = scene.new_publisher()
            assert scene.scan() == [], point
            found = difference(Path(scene.latest().path), template / "checkpoint-2")
            assert found is None, f"killed at {point}: {found}"
            torn += difference(scene.directory / "checkpoint-2", template / "checkpoint-2", loose=LOOSE) is not None
    assert torn > 5, "it was not written in place"
