"""A file that the rig makes in a host is never seen without its whole content and its mode.

Where the script runs does not matter: it runs here, and stands still where a reader could look.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from docker.rig import WRITE

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = 60.0
OLD, NEW = "old\n", "new\n" * 50_000
# In the place of a command: says what stands at the target before the real one runs.
LOOK = """#!/bin/sh
stat -c '{name} %a %s' -- "$TARGET" 2>/dev/null >>"$LOG" || echo '{name} absent' >>"$LOG"
exec {program} "$@"
"""


def begin(path: Path, mode: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(["/bin/sh", "-c", WRITE, "sh", str(path), mode], env={**os.environ, **(environ or {})},
                            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def seen(path: Path) -> tuple[int, str]:
    return stat.S_IMODE(path.stat().st_mode), path.read_text()


def looked(folder: Path, target: Path) -> list[str]:
    """Write, with a look before each command that changes something; what was seen at the target."""
    (folder / "bin").mkdir()
    for name in ("cat", "chmod", "mv"):
        program = folder / "bin" / name
        program.write_text(LOOK.format(name=name, program=f"/bin/{name}"))
        program.chmod(0o755)
    log = folder / "log"
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LOG": str(log), "TARGET": str(target)}
    with begin(target, "754", environ) as process:
        assert process.communicate(NEW, DEADLINE_S) == (None, "")
    assert process.returncode == 0
    return log.read_text().splitlines()


def test_the_name_is_not_there_before_it_has_all(tmp_path: Path) -> None:
    target = tmp_path / "sub folder" / "file"
    assert looked(tmp_path, target) == ["cat absent", "chmod absent", "mv absent"]
    assert seen(target) == (0o754, NEW)
    assert os.listdir(target.parent) == ["file"]


def test_what_was_there_stays_whole_until_then(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    target = tmp_path / "into" / "file"
    target.write_text(OLD)
    target.chmod(0o600)
    with target.open() as reader:
        assert looked(tmp_path, target) == [f"{name} 600 {len(OLD)}" for name in ("cat", "chmod", "mv")]
        assert reader.read() == OLD
    assert seen(target) == (0o754, NEW)
    assert os.listdir(target.parent) == ["file"]


def test_half_of_the_content_is_seen_by_nobody(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with begin(target, "644") as process:
        assert process.stdin is not None
        half = len(NEW) // 2
        process.stdin.write(NEW[:half])
        process.stdin.flush()
        ends_at = time.monotonic() + DEADLINE_S
        while [path.stat().st_size for path in tmp_path.iterdir()] != [half]:
            assert time.monotonic() < ends_at, list(tmp_path.iterdir())
            time.sleep(0.01)
        assert not target.exists()
        assert [path.name[0] for path in tmp_path.iterdir()] == ["."], "a listing by ls would show it"
        process.communicate(NEW[half:], DEADLINE_S)
    assert seen(target) == (0o644, NEW)


@pytest.mark.parametrize(("mode", "target"), [("none", "file"), ("644", "folder")])
def test_a_failure_leaves_nothing(tmp_path: Path, mode: str, target: str) -> None:
    """No mode, or a folder in the place of the file."""
    (tmp_path / "folder").mkdir()
    with begin(tmp_path / target, mode) as process:
        _, said = process.communicate(NEW, DEADLINE_S)
    assert process.returncode != 0
    assert said
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []
