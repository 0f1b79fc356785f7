"""A root in which a real program's saves are published by the helper's own scans."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.single import SinglePublisher
from tests.store.scene import FIRST, OLD, fresh

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurm_dispatch.store.root import CheckpointRoot, Save


@dataclass
class Now:
    """A clock that the test moves."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Scene:
    """One root and one execution; the root is shared by scenes of one folder.

    :ivar options: words of the command line, without the command.
    """

    folder: Path
    options: Sequence[str] = ()
    attempt: str = OLD
    epoch: int = FIRST
    resumed: str | None = None
    resumed_step: int | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    clock: Now = field(default_factory=Now)

    def __post_init__(self) -> None:
        there = self.folder / "root"
        self.root: CheckpointRoot = open_root(str(there)) if there.exists() else fresh(self.folder)
        self.directory = Path(self.root.make_execution(self.attempt))
        self.publisher = self.new_publisher()

    def new_publisher(self) -> Publisher:
        """As a helper that starts anew makes it."""
        options = parse([*self.options, "--", "x"])
        place = Place(self.root.path, "k" * 12, self.epoch, self.attempt)
        publisher = (Publisher if options.single is None else SinglePublisher)(
            self.root, place, options, resumed_step=self.resumed_step, resumed=self.resumed, known=self.known,
            clock=self.clock,
        )  # fmt: skip
        publisher.begin()
        return publisher

    def bring(self, template: Path) -> None:
        """Put saves into the execution's folder, with the times that they have."""
        shutil.copytree(template, self.directory, dirs_exist_ok=True)

    def scan(self, *, assume: bool = False) -> list[int]:
        """The steps that one scan publishes."""
        return self.publisher.scan(assume=assume).published

    def settle(self) -> list[int]:
        """The steps that are published once nothing has changed for longer than ``--settle``."""
        steps: list[int] = []
        for _ in range(5):
            steps += self.scan(assume=True)
            self.clock.seconds += 40
        return steps

    def latest(self) -> Save:
        """The latest; there must be one."""
        save = self.root.latest()
        assert save is not None, "nothing is published"
        return save


def difference(found: Path, reference: Path, *, loose: Collection[str] = ()) -> str | None:
    """How a save differs from what an undisturbed run of the same program wrote, ``None`` if it does not.

    :param loose: files that have times or paths of their own in them: they must be whole JSON or zip files.
    """
    if reference.is_file():
        return None if found.read_bytes() == reference.read_bytes() else f"{found} has other bytes"
    names = {str(path.relative_to(reference)) for path in reference.rglob("*") if path.is_file()}
    there = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    if names != there:
        return f"missing {sorted(names - there)}, more {sorted(there - names)}"
    for name in sorted(names):
        if name in loose:
            if not _is_sound(found / name):
                return f"{name} is torn"
        elif (found / name).read_bytes() != (reference / name).read_bytes():
            return f"{name} has other bytes"
    return None


def _is_sound(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
            return True
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (ValueError, OSError, zipfile.BadZipFile):
        return False
