"""Roots and saves for tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import slurm_dispatch
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.whole import Proof
from tests.kill import Run

OLD, NEW = (f"{name}{os.getpid():017}" for name in ("old", "new"))
"""Attempts of this process of the tests: gc asks every process of the host, and another's tests run beside these."""
FIRST, SECOND = 10**6, 2 * 10**6
"""Epochs of a first and a second submission."""
BIG = b"x" * ((1 << 20) + 5)
"""Large enough to be linked."""


def save(root: CheckpointRoot, attempt: str, name: str, content: bytes = b"weights", **more: bytes) -> str:
    """A save as a framework leaves it: a folder with files. Returns its absolute path."""
    folder = Path(root.make_execution(attempt)) / name
    folder.mkdir()
    for file, inside in {"weights": content, **more}.items():
        (folder / file).write_bytes(inside)
    return str(folder)


def fresh(folder: Path, name: str = "root") -> CheckpointRoot:
    """An empty root in ``folder``."""
    path = folder / name
    path.mkdir()
    return open_root(str(path))


def environment(root: CheckpointRoot | Path, attempt: str = NEW, epoch: int = SECOND) -> dict[str, str]:
    """The variables of an execution, and what Python needs."""
    path = root.path if isinstance(root, CheckpointRoot) else str(root)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(slurm_dispatch.__file__).parent.parent),
        "DISPATCH_CHECKPOINT": path,
        "DISPATCH_ATTEMPT": attempt,
        "DISPATCH_EPOCH": str(epoch),
    }


def dispatch(root: CheckpointRoot | Path, *arguments: str, attempt: str = NEW, epoch: int = SECOND) -> Run:
    """A command line of ours, in a process of its own."""
    argv = [sys.executable, "-m", "slurm_dispatch.cli.main", *arguments]
    return Run(argv, env=environment(root, attempt, epoch))


def script(root: CheckpointRoot | Path, body: str, *arguments: str) -> Run:
    """A few lines of Python with ``root`` open, in a process of its own."""
    head = "import os, sys\nfrom slurm_dispatch.store.root import open_root\n"
    head += "root = open_root(os.environ['DISPATCH_CHECKPOINT'], say=lambda line: print(line, file=sys.stderr))\n"
    return Run([sys.executable, "-c", head + body, *arguments], env=environment(root))


def tree(folder: str | Path) -> dict[str, bytes]:
    """Every regular file below a folder and its content."""
    base = Path(folder)
    return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}


def kept_save(root: CheckpointRoot, path: str, attempt: str = OLD, *, copy: bool = False) -> str:
    """The absolute path of the save at ``path`` after it was kept."""
    kept = keep(root, attempt, path, proof=Proof.PROVED, copy=copy)
    assert kept is not None
    return os.path.join(root.path, os.fsdecode(kept))
