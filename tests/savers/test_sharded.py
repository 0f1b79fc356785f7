"""Real saves of Lightning, torch.distributed.checkpoint, DeepSpeed, Megatron Core and Orbax, killed at each file.

Where a save has two ranks, the rank that is first to make a call dies, and the other ends by the broken connection.
After each kill the layout that ``auto`` takes is asked: it never calls a save whole that has not all files of a
finished one, and what it calls whole is then loaded by the library itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.savers.auto import recognise
from slurm_dispatch.savers.layout import State
from slurm_dispatch.store.view import FilesView
from slurm_dispatch.store.whole import look
from tests.savers.matrix import Boundary, Program, boundaries

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.savers
PROGRAMS = Path(__file__).resolve().parent / "programs"
SAMPLE_POINTS = 8
"""So many of the points, evenly, and the last three, are what `make test` runs."""
LOAD_S = 600.0


@dataclass(frozen=True)
class Case:
    """One program.

    :ivar saved: what it writes in the folder that it is given.
    :ivar layout: what ``auto`` must take it for.
    :ivar step: what stands in the save; ``None`` if nothing does.
    """

    script: str
    arguments: tuple[str, ...]
    saved: str
    layout: str
    step: int | None

    def state(self, folder: Path) -> State | None:
        """What the layout says of the save in ``folder``; ``None`` if there is none."""
        path = folder / self.saved
        seen = look(str(path))
        if seen is None:
            return None
        view = FilesView(str(path), seen)
        layout = recognise(view)
        if layout is None:
            return None
        assert layout.name == self.layout
        state = layout.check(view).state
        if state is State.WHOLE and layout.step_of is not None:
            assert layout.step_of(view) == self.step
        return state


@dataclass
class Found:
    """What a matrix came to."""

    states: Counter[State | None] = field(default_factory=Counter)
    passed_by: int = 0
    """Children that came to their end: a thread of theirs wrote in other portions than the first child's."""
    whole: list[Path] = field(default_factory=list)


def run(case: Case, tmp_path: Path, libraries: Path, *, sample: bool) -> Found:
    """Kill at the points, and look."""
    found = Found()
    reference = tmp_path / "reference"
    reference.mkdir()
    with Program(libraries, PROGRAMS / case.script, case.arguments, tmp_path) as program:
        points = boundaries(program, reference, several=True)
        assert case.state(reference) is State.WHOLE
        for number, point in enumerate(_some(points) if sample else points):
            place = tmp_path / f"point{number:04d}"
            place.mkdir()
            child = program.child(
                place, "-e", f"trace={point.call}", "-P", str(place / point.path),
                "-e", f"inject={point.call}:signal=KILL:when={point.when}",
            )  # fmt: skip
            assert child.status in {0, -9}, (child.status, child.stderr)
            state = case.state(place)
            if child.status == 0:
                found.passed_by += 1
                assert state is State.WHOLE, point
            else:
                found.states[state] += 1
            if state is State.WHOLE:
                assert _names(place / case.saved) == _names(reference / case.saved), point
                found.whole.append(place / case.saved)
            else:
                shutil.rmtree(place)
    return found


def _some(points: list[Boundary]) -> list[Boundary]:
    every = max(1, len(points) // SAMPLE_POINTS)
    return sorted({*points[::every], *points[-3:]}, key=points.index)


def _names(save: Path) -> set[str]:
    """The files; of those with names that are drawn only that there are some, since their number is drawn too."""
    files = [str(path.relative_to(save)) for path in save.rglob("*") if path.is_file()]
    return {re.sub(r"[0-9a-f]{32}", "*", name) for name in files}


def load(case: Case, libraries: Path, saves: list[Path]) -> None:
    """The library itself loads every save; the program compares."""
    words = ["load", *case.arguments[1:]] if case.layout in {"deepspeed", "megatron"} else ["load"]
    ended = subprocess.run(
        [str(libraries), str(PROGRAMS / case.script), *words, *map(str, saves)], capture_output=True, text=True,
        timeout=LOAD_S, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]


CASES = {
    "lightning": Case("save_with_lightning.py", ("save", "file"), "epoch=0-step=3.ckpt", "lightning", 3),
    "lightning-folder": Case("save_with_lightning.py", ("save", "folder"), "epoch=0-step=3.ckpt", "lightning", 3),
    "dcp": Case("save_with_dcp.py", ("save", "save"), "step-7", "dcp", None),
    "dcp-async": Case("save_with_dcp.py", ("save", "async_save"), "step-7", "dcp", None),
    "orbax": Case("save_with_orbax.py", ("save", "rename"), "9", "orbax", None),
    "orbax-commit": Case("save_with_orbax.py", ("save", "commit"), "9", "orbax", None),
}
MORE = {
    **{
        f"deepspeed-{stage}": Case("save_with_deepspeed.py", ("save", str(stage)), "global_step1", "deepspeed", 1)
        for stage in (0, 1, 3)
    },
    **{
        f"megatron-{ranks}": Case("save_with_megatron.py", ("save", str(ranks)), "iter_0000005", "megatron", 5)
        for ranks in (1, 2)
    },
}
"""With the libraries of requirements-more.txt."""
SAMPLE = ("lightning", "dcp", "orbax-commit")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """``TMPDIR`` on another filesystem, as on most clusters: Lightning's last move is a copy then."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert os.stat(folder).st_dev != tmp_path.stat().st_dev
        monkeypatch.setenv("TMPDIR", folder)
        yield


@pytest.mark.sample
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_save_killed_at_some_file_boundaries(name: str, tmp_path: Path, libraries: Path) -> None:
    """C093, C100, C101, C102, C109: never whole while something is missing, whole once the save returned."""
    found = run(CASES[name], tmp_path, libraries, sample=True)
    _showed_something(CASES[name], found)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", CASES)
def test_a_save_killed_at_every_file_boundary(name: str, tmp_path: Path, libraries: Path) -> None:
    """C093, C100, C101, C102, C109: the same at each of them, and what is called whole is loaded by the library."""
    _every(name, CASES[name], tmp_path, libraries)


@pytest.mark.parametrize("name", MORE)
def test_a_save_of_more_libraries_killed_at_every_file_boundary(
    name: str, tmp_path: Path, more_libraries: Path
) -> None:
    """C095, C097, C098: the files of all ranks prove a save, whatever a tracker says."""
    _every(name, MORE[name], tmp_path, more_libraries)


def _every(name: str, case: Case, tmp_path: Path, libraries: Path) -> None:
    found = run(case, tmp_path, libraries, sample=False)
    states = {str(state): count for state, count in found.states.items()}
    print(f"{name}: {found.states.total()} kills: {states}; {found.passed_by} passed by")
    _showed_something(case, found)
    load(case, libraries, found.whole)


def _showed_something(case: Case, found: Found) -> None:
    # A save that is renamed has its name only once it is whole.
    assert found.states[None if case.arguments[-1] == "rename" else State.TORN] >= 1
    assert found.states[State.TORN] + found.states[None] >= 2
    assert found.passed_by <= found.states.total()
