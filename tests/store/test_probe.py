"""What an execution tries of a filesystem before it publishes there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import CannotCreateError
from slurm_dispatch.store import probe as probing
from slurm_dispatch.store.probe import mount_of, probe
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.kill import run
from tests.store.scene import NEW, fresh, script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def test_probe_of_a_good_filesystem(root: CheckpointRoot) -> None:
    root.make_execution(NEW)
    found = probe(root, NEW)
    assert found.links
    assert found.folder_sync
    assert os.listdir(os.path.join(root.execution(NEW), ".dispatch")) == []


def test_probe_refuses_a_filesystem_without_exclusive_creation(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C117: both creators succeed."""
    root.make_execution(NEW)
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *more, **kw: real(path, flags & ~os.O_EXCL, *more, **kw))
    with pytest.raises(CannotCreateError, match="O_EXCL"):
        probe(root, NEW)
    assert os.listdir(os.path.join(root.execution(NEW), ".dispatch")) == []


def test_probe_refuses_a_filesystem_that_folds_case(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    root.make_execution(NEW)
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    with pytest.raises(CannotCreateError, match="case"):
        probe(root, NEW)


def test_probe_without_links(root: CheckpointRoot) -> None:
    root.make_execution(NEW)
    body = f"from slurm_dispatch.store.probe import probe\nprint(probe(root, {NEW!r}).links)"
    ended = run(script(root, body), "-e", "trace=?link,linkat", "-e", "inject=?link,linkat:error=EPERM")
    assert (ended.status, ended.stdout) == (0, b"False\n"), ended.stderr


@pytest.mark.parametrize(("options", "said"), [("rw,vers=4.2,nocto", 1), ("rw,vers=4.2", 0)])
def test_a_mount_that_does_not_ask_its_server_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: int
) -> None:
    """C112: with nocto a fresh listing is not fresh."""
    lines: list[str] = []
    root = open_root(str(tmp_path), say=lines.append)
    root.make_execution(NEW)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - nfs4 server:/x {options}\n")
    monkeypatch.setattr(probing, "MOUNTS", str(mounts))
    probe(root, NEW)
    assert len(lines) == said
    assert all("nocto" in line for line in lines)


MOUNTINFO = """22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:40 / /s3 rw,relatime shared:1 - fuse.s3fs s3fs rw,user_id=0
41 22 0:41 / /nfs\\040two rw,relatime - nfs server:/x rw,vers=2,rsize=8192
42 22 0:42 / /nfs rw,relatime - nfs4 server:/x rw,vers=4.2
"""


def test_mounts_are_read(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO)
    assert mount_of(b"/s3/x/y", str(mounts))[0] == "fuse.s3fs"
    assert mount_of(b"/s3x", str(mounts))[0] == "ext4"
    assert "vers=2" in mount_of(b"/nfs two", str(mounts))[1]
    assert mount_of(b"/nfs/a", str(mounts))[0] == "nfs4"
    assert mount_of(b"/x", str(tmp_path / "none"))[0] == ""


@pytest.mark.parametrize(("kind", "options"), [("fuse.s3fs", "rw"), ("fuse.mount-s3", "rw"), ("nfs", "rw,vers=2")])
def test_probe_refuses_by_name(
    root: CheckpointRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: str
) -> None:
    """C114, C135: an object store behind FUSE, and NFS 2, do not make a name exclusively."""
    root.make_execution(NEW)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - {kind} source {options}\n")
    monkeypatch.setattr(probing, "MOUNTS", str(mounts))
    with pytest.raises(CannotCreateError) as caught:
        probe(root, NEW)
    assert ("s3://" in caught.value.line()) == kind.startswith("fuse.")
