"""A tick on a state folder that fills up in each of its phases: ``python -m tests.controller.full_disk FOLDER``.

``FOLDER/state`` is a file system of 1 MiB, empty. For every number of free pages from none to more than a tick needs
the tick says in single lines what is wrong and nothing else, what it wrote is whole, and once there is space again
the end is the one that there would have been.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.controller.kill_scenes import SCENES, whole_tick
from tests.controller.scene_end import end, passes, same, sound

if TYPE_CHECKING:
    from tests.controller.kill_scenes import Scene

PAGES = 24
PAGE = 4096


def lay(there: Path, place: Path) -> None:
    """Copy what is ``there`` into the small file system, in place of what was in it."""
    for old in (place / "state").iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name in ("slurm", "aside"):
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(there / name, place / name)
    shutil.copytree(there / "state", place / "state", dirs_exist_ok=True)


def fill(folder: Path, pages: int) -> Path:
    """Leave so many pages free."""
    free = os.statvfs(folder)
    path = folder / "fill"
    path.write_bytes(b"x" * (free.f_bavail * free.f_frsize - pages * PAGE))
    assert os.statvfs(folder).f_bavail == pages
    return path


def tick(scene: Scene, place: Path) -> list[str]:
    """One tick by a process that knows nothing; what it said of the disk."""
    rig = scene.rig(place)
    whole_tick(rig)
    for line in rig.log:
        assert not any(it in line for it in ("\n", "Traceback", "bug:")), line
    return [line for line in rig.log if "No space left on device" in line]


def main(place: Path) -> None:
    """All numbers of pages."""
    scene = next(it for it in SCENES if it.whole)
    made = place / "made"
    made.mkdir()
    scene.make(scene.rig(made))
    lay(made, place)
    tick(scene, place)
    passes(scene, place)
    as_it_must = end(scene.rig(place))
    told, lines = [], []
    for pages in range(PAGES):
        lay(made, place)
        filled = fill(place / "state", pages)
        said = tick(scene, place)
        told.append(len(said))
        lines += said
        assert said == list(dict.fromkeys(said)), "the same line twice"
        sound(scene.rig(place))
        filled.unlink()
        passes(scene, place)
        same(scene.rig(place), as_it_must, f"with {pages} pages left it said {said}")
    print("lines about the disk by free pages:", told, *sorted(set(lines)), sep="\n")
    assert told[0] > 0
    assert told[-1] == 0, "the last phase is one with space enough"
    assert sum(it > 0 for it in told) >= 5


if __name__ == "__main__":
    main(Path(sys.argv[1]))
