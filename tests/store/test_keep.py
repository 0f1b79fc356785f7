"""Keeping a save, and taking one to resume from."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.store import keep as keeping
from slurm_dispatch.store.keep import keep, sweep_kept
from slurm_dispatch.store.manifest import SaveState, state_of
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.store.transfer import transfer
from slurm_dispatch.store.whole import Proof, look
from tests.kill import run
from tests.store.scene import BIG, FIRST, NEW, OLD, fresh, kept_save, save, script, tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.root import CheckpointRoot


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def _leftovers(root: CheckpointRoot) -> list[str]:
    return [str(p) for p in Path(root.path).rglob(".tmp-*")]


def test_what_is_kept_outlives_the_rotation(root: CheckpointRoot) -> None:
    """C087: the saver deletes its own save; what was published is still there."""
    path = save(root, OLD, "checkpoint-5", BIG, small=b"state", **{"deeper.txt": b"x"})
    os.mkdir(os.path.join(path, "inner"))
    Path(path, "inner", "rng").write_bytes(b"rng")
    before = tree(path)
    kept = kept_save(root, path)
    assert kept == os.path.join(root.execution(OLD), "kept", "checkpoint-5")
    root.publish(FIRST, 5, kept, attempt=OLD)
    subprocess.run(["rm", "-r", path], check=True)
    latest = root.latest()
    assert latest is not None
    assert tree(latest.path) == before
    assert _leftovers(root) == []


def test_what_is_kept_is_on_disk_before_it_is_told(root: CheckpointRoot, tmp_path: Path) -> None:
    """C119: the copies, the folders of the save, then its manifest, then its name, then the folder of the name."""
    path = save(root, OLD, "checkpoint-5", b"copied")
    body = "from slurm_dispatch.store.keep import keep\nfrom slurm_dispatch.store.whole import Proof\n"
    body += f"print(keep(root, {OLD!r}, {path!r}, proof=Proof.PROVED))\n"
    calls = "fsync,?rename,renameat,renameat2,?link,linkat,write"
    ended = run(script(root, body), "-y", "-e", f"trace={calls}", trace=tmp_path / "trace")
    assert (ended.status, ended.stdout) == (0, f"b'exec/{OLD}/kept/checkpoint-5'\n".encode()), ended.stderr
    kept = re.escape(os.path.realpath(root.execution(OLD)) + "/kept")
    wanted = [
        rf"fsync\(\d+<{kept}/\.tmp-\w+/weights>\) += 0",
        rf"fsync\(\d+<{kept}/\.tmp-\w+>\) += 0",
        r"link(at)?\(.*/save-checkpoint-5\"",
        rf"rename\w*\(.*{kept}/checkpoint-5\"",
        rf"fsync\(\d+<{kept}>\) += 0",
        r"write\(1<",
    ]
    at = 0
    for line in ended.trace:
        if at < len(wanted) and re.search(wanted[at], line):
            at += 1
    assert at == len(wanted), f"did not see {wanted[at]} in its place:\n" + "\n".join(ended.trace[-60:])


def test_a_file_that_is_kept_already_is_never_replaced(root: CheckpointRoot) -> None:
    """Rename would do it in silence, under a publication; who comes second fails and leaves nothing."""
    folder = os.fsencode(root.make_execution(OLD))
    for name, content in ((b"first", b"published"), (b"second", b"other")):
        Path(os.fsdecode(os.path.join(folder, name))).write_bytes(content)
    os.mkdir(os.path.join(folder, b"kept"))
    kept = os.path.join(folder, b"kept")
    assert transfer(os.path.join(folder, b"first"), kept, b"a.pt", copy=False) is not None
    with pytest.raises(StoreError, match="exists"):
        transfer(os.path.join(folder, b"second"), kept, b"a.pt", copy=False)
    assert tree(os.fsdecode(kept)) == {"a.pt": b"published"}


def test_large_files_are_linked_and_small_ones_copied(root: CheckpointRoot) -> None:
    path = save(root, OLD, "checkpoint-5", BIG, small=b"state")
    kept = kept_save(root, path)
    assert os.path.samefile(path + "/weights", kept + "/weights")
    assert not os.path.samefile(path + "/small", kept + "/small")
    with open(path + "/small", "r+b") as file:  # rewritten in place, as a trainer's state is
        file.write(b"STATE")
    assert Path(kept, "small").read_bytes() == b"state"


def test_copies_of_everything_where_it_is_asked_for(root: CheckpointRoot) -> None:
    """C103: a saver that rewrites large files in place."""
    path = save(root, OLD, "checkpoint-5", BIG)
    kept = kept_save(root, path, copy=True)
    assert not os.path.samefile(path + "/weights", kept + "/weights")
    assert Path(kept, "weights").read_bytes() == BIG


def test_times_and_modes_are_the_sources(root: CheckpointRoot) -> None:
    path = save(root, OLD, "checkpoint-5")
    os.utime(path + "/weights", ns=(1_000_000_001, 2_000_000_003))
    os.chmod(path + "/weights", 0o640)
    found = os.stat(kept_save(root, path) + "/weights")
    assert (found.st_mtime_ns, stat.S_IMODE(found.st_mode)) == (2_000_000_003, 0o640)


def test_a_single_file(root: CheckpointRoot) -> None:
    for size in (b"small", BIG):
        path = os.path.join(root.make_execution(OLD), f"step={len(size)}.ckpt")
        Path(path).write_bytes(size)
        kept = kept_save(root, path)
        os.unlink(path)
        assert Path(kept).read_bytes() == size
        root.publish(FIRST, len(size), kept, attempt=OLD)


def test_keeping_twice_is_keeping_once(root: CheckpointRoot) -> None:
    path = save(root, OLD, "checkpoint-5")
    kept = kept_save(root, path)
    Path(path, "weights").write_bytes(b"other")
    assert kept_save(root, path) == kept
    assert Path(kept, "weights").read_bytes() == b"weights"


def test_what_a_rotation_began_to_delete_is_not_kept(root: CheckpointRoot) -> None:
    """C054: whole when it was looked at, then the rotation took a file and was killed: nothing changes any more."""
    path = save(root, OLD, "checkpoint-5", small=b"s")
    seen = look(path)
    assert seen is not None
    os.unlink(path + "/small")
    assert keep(root, OLD, path, proof=Proof.PROVED, expected=seen) is None
    assert tree(Path(root.execution(OLD), "kept")) == {}
    assert _leftovers(root) == []


def test_what_a_killed_keeper_left_and_a_later_turn_wrote_into_is_kept_anew(root: CheckpointRoot) -> None:
    """Large files are links: after a save in place of the same name the kept one would be half old and half new."""
    path = save(root, OLD, "checkpoint-5", BIG, small=b"old")
    kept = kept_save(root, path)
    with open(path + "/weights", "r+b") as file:
        file.write(b"new")
    Path(path, "small").write_bytes(b"new")
    assert kept_save(root, path) == kept
    assert tree(kept) == {"weights": b"new" + BIG[3:], "small": b"new"}
    assert _leftovers(root) == []


def test_what_is_published_is_never_kept_anew(root: CheckpointRoot) -> None:
    path = save(root, OLD, "checkpoint-5", BIG, small=b"old")
    kept = kept_save(root, path)
    root.publish(FIRST, 5, kept, attempt=OLD)
    with open(path + "/weights", "r+b") as file:
        file.write(b"new")
    Path(path, "small").write_bytes(b"new")
    assert kept_save(root, path) == kept
    assert Path(kept, "small").read_bytes() == b"old"


def test_what_a_killed_keeper_left_is_synced(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2: the keeper was killed between the rename and the sync of ``kept/``; what is published must have both."""
    path = save(root, OLD, "checkpoint-5")
    kept = kept_save(root, path)
    synced = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    assert kept_save(root, path) == kept
    assert os.path.realpath(os.path.dirname(kept)) in synced


def _replace(path: str) -> None:
    found = os.stat(path + "/weights")
    Path(path, "new").write_bytes(b"WEIGHTS")
    os.utime(path + "/new", ns=(found.st_atime_ns, found.st_mtime_ns))
    os.rename(path + "/new", path + "/weights")


CHANGES: dict[str, Callable[[str], object]] = {
    "grew": lambda path: Path(path, "weights").write_bytes(b"more than it was"),
    "same size": lambda path: os.utime(path + "/weights", ns=(1, 1)),
    "replaced": _replace,
    "one more": lambda path: Path(path, "late").write_bytes(b"x"),
    "one less": lambda path: os.unlink(path + "/small"),
    "gone": lambda path: subprocess.run(["rm", "-r", path], check=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_meanwhile_is_not_kept_this_time(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """C054, C169: the state is forced: the change happens after the files were linked, before the second listing."""
    path = save(root, OLD, "checkpoint-5", small=b"state")
    real = os.mkdir

    def mkdir(name: bytes | str, *more: int, **kw: int) -> None:
        real(name, *more, **kw)
        if b".tmp-" in os.fsencode(name):
            monkeypatch.undo()
            _later(path, change, monkeypatch)

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert keep(root, OLD, path, proof=Proof.PROVED) is None
    assert os.listdir(os.path.join(root.execution(OLD), "kept")) == []


def _later(path: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the source once its last file has been copied."""
    real = os.fsync
    done: list[bool] = []

    def fsync(descriptor: int) -> None:
        real(descriptor)
        if not done:
            done.append(True)
            CHANGES[change](path)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_source_that_is_not_there(root: CheckpointRoot) -> None:
    root.make_execution(OLD)
    assert keep(root, OLD, root.execution(OLD) + "/checkpoint-5", proof=Proof.PROVED) is None


def test_what_cannot_be_kept(root: CheckpointRoot) -> None:
    path = save(root, OLD, "checkpoint-5")
    os.symlink("/etc/hostname", path + "/out")
    with pytest.raises(BadDataError, match="leads out"):
        keep(root, OLD, path, proof=Proof.PROVED)
    os.unlink(path + "/out")
    os.symlink("weights", path + "/inside")
    os.mkfifo(path + "/fifo")
    with pytest.raises(BadDataError, match="special"):
        keep(root, OLD, path, proof=Proof.PROVED)
    os.unlink(path + "/fifo")
    with pytest.raises(BadDataError, match="empty"):
        keep(root, OLD, save(root, OLD, "checkpoint-6", b""), proof=Proof.PROVED)
    with pytest.raises(BadDataError, match="bytes"):
        keep(root, OLD, save(root, OLD, "c" * 120), proof=Proof.PROVED)
    kept = kept_save(root, path)
    assert os.readlink(kept + "/inside") == "weights"
    assert _leftovers(root) == []


@pytest.mark.parametrize("error", ["EDQUOT", "ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["fsync", "linkat", "write", "utimensat"])
def test_a_disk_that_fails(root: CheckpointRoot, call: str, error: str) -> None:
    """C104, C121: nothing is kept that is not on disk."""
    path = save(root, NEW, "checkpoint-5", BIG, small=b"state")
    body = f"""
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.errors import StoreError
try:
    keep(root, {NEW!r}, {path!r}, proof=Proof.PROVED)
except StoreError as error:
    os._exit(74)
"""
    names = {"linkat": "?link,linkat", "utimensat": "utimensat"}.get(call, call)
    ended = run(script(root, body), "-e", f"trace={names}", "-e", f"inject={names}:error={error}:when=1")
    assert ended.status == 74, ended.stderr
    assert os.listdir(os.path.join(root.execution(NEW), "kept")) == []


@pytest.mark.parametrize("error", ["EPERM", "EXDEV", "EMLINK"])
def test_where_a_link_is_refused_the_file_is_copied(root: CheckpointRoot, error: str) -> None:
    path = save(root, NEW, "checkpoint-5", BIG)
    body = f"""
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.whole import Proof
print(keep(root, {NEW!r}, {path!r}, proof=Proof.PROVED))
"""
    # Only the large file: how its own small files are made whole is not asked here.
    ended = run(
        script(root, body), "-P", path + "/weights", "-e", "trace=?link,linkat",
        "-e", f"inject=?link,linkat:error={error}",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr
    kept = os.path.join(root.execution(NEW), "kept", "checkpoint-5", "weights")
    assert Path(kept).read_bytes() == BIG
    assert not os.path.samefile(kept, path + "/weights")


def test_blocks_are_shared_where_the_filesystem_can(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for ``FICLONE``, which few filesystems have: what it is given, and no copy beside it."""
    cloned: list[int] = []

    def ioctl(writing: int, request: int, reading: int) -> int:
        assert request == 0x40049409
        cloned.append(os.write(writing, os.pread(reading, 1 << 22, 0)))
        return 0

    monkeypatch.setattr("slurm_dispatch.store.transfer.fcntl.ioctl", ioctl)
    path = save(root, OLD, "checkpoint-5", BIG, small=b"state", more=b"more")
    before = tree(path)
    assert tree(kept_save(root, path, copy=True)) == before
    assert sorted(cloned) == sorted(len(content) for content in before.values())


def test_many_small_files(root: CheckpointRoot) -> None:
    """More than are synced one by one: all are there, and each was synced."""
    path = save(root, OLD, "checkpoint-5", **{f"shard{n}": b"%d" % n for n in range(200)})
    before = tree(path)
    assert tree(kept_save(root, path)) == before
    assert len(before) == 201


def test_a_failed_sync_among_many(root: CheckpointRoot) -> None:
    """C121: one of 200 syncs fails: nothing is kept."""
    path = save(root, NEW, "checkpoint-5", **{f"shard{n}": b"%d" % n for n in range(200)})
    body = f"""
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.errors import StoreError
try:
    keep(root, {NEW!r}, {path!r}, proof=Proof.PROVED)
except StoreError as error:
    os._exit(74)
"""
    # Threads count their own calls; with 16 of them at least one comes to its fifth.
    ended = run(script(root, body), "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=5")
    assert ended.status == 74, ended.stderr
    assert os.listdir(os.path.join(root.execution(NEW), "kept")) == []


def test_leftovers_of_a_killed_keeper_are_swept(root: CheckpointRoot) -> None:
    kept_save(root, save(root, OLD, "checkpoint-5"))
    left = Path(root.execution(OLD), "kept", ".tmp-0123456789abcdef", "inner")
    left.mkdir(parents=True)
    (left / "weights").write_bytes(b"x")
    assert sweep_kept(root, OLD) == 1
    assert os.listdir(os.path.join(root.execution(OLD), "kept")) == ["checkpoint-5"]


# Manifests


def test_what_state_a_save_is_in(root: CheckpointRoot) -> None:
    """C169: a run that still lives writes into a file that its replacement resumes from: it is seen."""
    path = save(root, OLD, "checkpoint-5", BIG)
    proved = root.publish(FIRST, 5, kept_save(root, path), attempt=OLD)
    other = save(root, OLD, "checkpoint-6")
    kept = keep(root, OLD, other, proof=Proof.ASSUMED)
    assert kept is not None
    assumed = root.publish(FIRST, 6, kept, attempt=OLD)
    bare = root.publish(FIRST, 7, save(root, OLD, "checkpoint-7"), attempt=OLD)
    assert [state_of(root, p) for p in (proved, assumed, bare)] == [
        SaveState.PROVED, SaveState.ASSUMED, SaveState.UNRECORDED]  # fmt: skip
    with open(path + "/weights", "ab") as late:
        late.write(b"late")
    assert state_of(root, proved) is SaveState.CHANGED
    subprocess.run(["rm", "-r", os.path.join(root.path, os.fsdecode(assumed.path))], check=True)
    assert state_of(root, assumed) is SaveState.GONE


def test_a_late_write_of_the_same_size_is_seen(root: CheckpointRoot) -> None:
    """C169: a saver that writes tensors in place changes no size; the time of the file tells."""
    path = save(root, OLD, "checkpoint-5", BIG)
    publication = root.publish(FIRST, 5, kept_save(root, path), attempt=OLD)
    with open(path + "/weights", "r+b") as late:
        late.write(b"late")
    then = os.stat(path + "/weights").st_mtime_ns + 10**9  # clocks of filesystems tick in milliseconds at best
    os.utime(path + "/weights", ns=(then, then))
    assert state_of(root, publication) is SaveState.CHANGED


def test_a_manifest_that_does_not_parse_is_named(root: CheckpointRoot) -> None:
    publication = root.publish(FIRST, 5, kept_save(root, save(root, OLD, "checkpoint-5")), attempt=OLD)
    manifest = Path(root.execution(OLD), ".dispatch", "save-checkpoint-5")
    for text in ("", "[]", "{}", '{"v": 9}', "x" * 70_000):
        manifest.write_text(text)
        with pytest.raises(StoreError, match="save-checkpoint-5"):
            state_of(root, publication)


# Taking


def test_a_sweep_takes_a_leftover_out_of_sight_before_it_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training may be keeping a save itself: what is half removed must not be there for its rename."""
    root = fresh(tmp_path)
    root.make_execution(NEW)
    kept = os.fsdecode(root.make_in_execution(NEW, b"kept"))
    name = TEMPORARY_PREFIX + "0" * 16
    os.mkdir(os.path.join(kept, name))
    seen: list[list[str]] = []

    def remove(path: bytes) -> bool:
        seen.append(os.listdir(kept))
        return remove_quietly(path)

    monkeypatch.setattr(keeping, "remove_quietly", remove)
    assert sweep_kept(root, NEW) == 1
    assert len(seen) == 1
    assert name not in seen[0]
    assert os.listdir(kept) == []
