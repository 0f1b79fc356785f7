"""The POSIX store on a real filesystem: faults put in by strace, modes, races, and calls counted."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import AbsentError, BadDataError, CorruptError, StoreError
from slurm_dispatch.model.publication import Publication, encode_path
from slurm_dispatch.store import root as rooting
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.kill import Ended, run
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, dispatch, environment, fresh, save, script

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS = "?lstat,?stat,newfstatat,?statx"
CALLS = "openat,fsync,write,mkdirat,?mkdir,close"


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def _publish(root: CheckpointRoot, *strace: str, options: tuple[str, ...] = (), trace: Path | None = None) -> Ended:
    path = os.path.join(root.execution(NEW), "checkpoint-5")
    return run(dispatch(root, "publish", "--step", "5", *options, path), *strace, trace=trace)


def test_the_order_of_calls(root: CheckpointRoot, tmp_path: Path) -> None:
    """C119: the save's files, its folders, then the name, then the folders of the name, then the answer."""
    save(root, NEW, "checkpoint-5", more=b"more")
    ended = _publish(root, "-y", "-e", f"trace={CALLS}", options=("--sync",), trace=tmp_path / "trace")
    assert ended.status == 0
    real = os.path.realpath(root.path)
    wanted = [
        r"fsync\(\d+<%s/exec/\w+/checkpoint-5/(weights|more)>\)",
        r"fsync\(\d+<%s/exec/\w+/checkpoint-5/(weights|more)>\)",
        r"fsync\(\d+<%s/exec/\w+/checkpoint-5>\)",
        r"fsync\(\d+<%s/exec/\w+>\)",
        r"fsync\(\d+<%s/exec>\)",
        r"openat\(\d+<%s/pub>, .*O_CREAT\|O_EXCL",
        r"fsync\(\d+<%s/pub>\)",
        r"fsync\(\d+<%s>\)",
        r"write\(1<",
    ]
    patterns = [p % re.escape(real) if "%s" in p else p for p in wanted]
    at = 0
    for line in ended.trace:
        if at < len(patterns) and re.search(patterns[at], line):
            at += 1
    assert at == len(patterns), f"did not see {patterns[at]} in its place:\n" + "\n".join(ended.trace[-60:])


def test_a_folder_that_cannot_be_synced_is_said_once(root: CheckpointRoot) -> None:
    """C118: EINVAL of an fsync of a folder is not fatal."""
    save(root, NEW, "checkpoint-5")
    pub = os.path.join(root.path, "pub")
    os.mkdir(pub)
    ended = _publish(root, "-P", pub, "-P", root.path, "-e", "trace=fsync", "-e", "inject=fsync:error=EINVAL")
    assert ended.status == 0, ended.stderr
    assert ended.stderr.count(b"cannot sync folders") == 1
    assert len(root.listing()) == 1


def test_a_failed_sync_is_fatal_for_this_publication(root: CheckpointRoot) -> None:
    """C118: EIO: not said to be published; publishing again makes it so."""
    save(root, NEW, "checkpoint-5")
    os.mkdir(os.path.join(root.path, "pub"))
    ended = _publish(
        root, "-P", os.path.join(root.path, "pub"), "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"
    )
    assert (ended.status, ended.stdout) == (74, b"")
    assert _publish(root).status == 0


@pytest.mark.parametrize("error", ["EDQUOT", "ENOSPC", "EIO"])
def test_a_save_that_does_not_reach_the_disk_is_not_published(root: CheckpointRoot, error: str) -> None:
    """C121: a full disk or quota shows itself at fsync, and a half-written save is not published."""
    path = save(root, NEW, "checkpoint-5")
    weights = os.path.join(path, "weights")
    ended = _publish(
        root, "-P", weights, "-e", "trace=fsync", "-e", f"inject=fsync:error={error}", options=("--sync",)
    )
    assert ended.status == 74, ended.stderr
    assert b"weights" in ended.stderr
    assert root.listing() == []


def test_an_error_at_close_is_an_error(root: CheckpointRoot) -> None:
    """C121: a delayed write error of the publication itself."""
    path = save(root, NEW, "checkpoint-5")
    name = Publication(SECOND, 5, os.path.relpath(path, root.path).encode()).name
    pub = os.path.join(root.path, "pub")
    ended = _publish(
        root, "-P", os.path.join(pub, name), "-e", "trace=close", "-e", "inject=close:error=EDQUOT"
    )
    assert (ended.status, ended.stdout) == (74, b"")


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "EACCES"])
def test_a_name_that_cannot_be_made(root: CheckpointRoot, error: str) -> None:
    """C122, C104: a full directory, quota or disk, or a read-only one: nothing is there, and 74 says so."""
    path = save(root, NEW, "checkpoint-5")
    name = Publication(SECOND, 5, os.path.relpath(path, root.path).encode()).name
    ended = _publish(root, "-P", name, "-e", "trace=openat", "-e", f"inject=openat:error={error}")
    assert (ended.status, ended.stdout) == (74, b""), ended.stderr
    assert root.listing() == []


def _latest(root: CheckpointRoot, *strace: str) -> Ended:
    return run(dispatch(root, "latest"), *strace)


def _published(root: CheckpointRoot) -> str:
    path = save(root, OLD, "checkpoint-5")
    root.publish(FIRST, 5, path, attempt=OLD)
    return path


@pytest.mark.parametrize("error", ["ESTALE", "ENOENT"])
def test_a_save_that_is_not_seen_at_first(root: CheckpointRoot, error: str) -> None:
    """C110, C111: absence is believed only after fresh listings."""
    path = _published(root)
    ended = _latest(root, "-P", path, "-e", f"trace={LOOKS}", "-e", f"inject={LOOKS}:error={error}:when=1")
    assert (ended.status, ended.stdout.decode()) == (0, path + "\n"), ended.stderr


@pytest.mark.parametrize("error", ["ESTALE", "ENOENT"])
def test_a_save_that_is_never_seen_is_gone(root: CheckpointRoot, error: str) -> None:
    """C111: vanished, listed again, a bounded number of times."""
    path = _published(root)
    ended = _latest(root, "-P", path, "-e", f"trace={LOOKS}", "-e", f"inject={LOOKS}:error={error}")
    assert (ended.status, ended.stdout) == (65, b""), ended.stderr


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_save_that_is_seen_and_is_not_in_its_folder_is_gone(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """C111: a client may remember for a minute what another host has removed; its folder, opened anew, has it not."""
    path = _published(root)
    if kind == "file":
        path = os.path.join(root.make_execution(OLD), "last.pt")
        Path(path).write_bytes(b"weights")
        root.publish(FIRST, 6, path, attempt=OLD)
    looked = os.lstat

    def without(name: str | bytes, *, dir_fd: int | None = None) -> os.stat_result:
        if dir_fd is not None and os.fsencode(name) == os.fsencode(os.path.basename(path)):
            raise FileNotFoundError(errno.ENOENT, "not there", name)
        return looked(name, dir_fd=dir_fd)

    assert root.latest() is not None
    monkeypatch.setattr(os, "lstat", without)
    monkeypatch.setattr(rooting, "FRESH_WAITS_S", (0.0, 0.0))
    with pytest.raises(BadDataError, match="is gone"):
        root.latest()


@pytest.mark.parametrize("error", ["EACCES", "EIO", "ETIMEDOUT"])
def test_could_not_look_is_not_gone(root: CheckpointRoot, error: str) -> None:
    """C126: an answer that is no answer is 74, and the next try may succeed."""
    path = _published(root)
    ended = _latest(root, "-P", path, "-e", f"trace={LOOKS}", "-e", f"inject={LOOKS}:error={error}")
    assert (ended.status, ended.stdout) == (74, b""), ended.stderr
    assert _latest(root).status == 0


@pytest.mark.parametrize(("error", "when", "status"), [
    ("ESTALE", "when=1", 0), ("ESTALE", "when=1+", 74), ("EACCES", "when=1", 74), ("EIO", "when=1", 74),
    ("ENOENT", "when=1", 0),
])  # fmt: skip
def test_trouble_with_the_folder_of_publications(root: CheckpointRoot, error: str, when: str, status: int) -> None:
    """C091, C110, C111: "no publication" and "could not look" never look alike."""
    _published(root)
    # The name as it is in the call: relative to the open root.
    ended = _latest(root, "-P", "pub", "-e", "trace=openat", "-e", f"inject=openat:error={error}:{when}")
    assert ended.status == status, ended.stderr
    assert bool(ended.stdout) == (status == 0)


def test_a_missing_root_is_no_first_start(tmp_path: Path) -> None:
    ended = run(dispatch(tmp_path / "nowhere", "latest"))
    assert (ended.status, ended.stdout) == (74, b"")
    (tmp_path / "file").touch()
    assert run(dispatch(tmp_path / "file", "latest")).status == 74
    with pytest.raises(AbsentError):
        open_root(str(tmp_path / "nowhere"))


def test_200_000_names_without_looking_at_each(root: CheckpointRoot, tmp_path: Path) -> None:
    """C122, C123: the newest is found from the names alone; the number of calls does not grow with them."""
    path = _published(root)
    pub = os.open(os.path.join(root.path, "pub"), os.O_RDONLY)
    spare = tmp_path / "spare"
    encoded = encode_path(os.path.relpath(path, root.path).encode())
    name = ""
    for number in range(6, 200_006):
        name = f"{FIRST + number // 1000:020d}-{number:020d}-{encoded}"
        if number % 50_000 == 6:  # links to an empty file are made ten times faster than files, and look the same
            spare.unlink(missing_ok=True)
            spare.touch()
        os.link(spare, name, dst_dir_fd=pub)
    os.close(pub)
    ended = run(dispatch(root, "latest", "--json"), "-e", f"trace={LOOKS}", trace=tmp_path / "trace")
    assert ended.status == 0, ended.stderr
    assert json.loads(ended.stdout)["name"] == name
    marked = [line for line in ended.trace if root.path in line or '"00000' in line]
    assert len(marked) < 60, f"{len(marked)} calls that look at a path"


def test_modes_are_the_roots_and_not_the_umask(tmp_path: Path) -> None:
    """C136: with umask 077 a team-mate's job still sees and writes in the root."""
    shared = tmp_path / "team"
    shared.mkdir()
    os.chown(shared, -1, os.getgid())
    shared.chmod(0o2770)
    body = f"""
os.umask(0o077)
path = root.make_execution({NEW!r})
root.claim('job', 0)
os.mkdir(path + '/checkpoint-5')
open(path + '/checkpoint-5/weights', 'w').write('x')
root.publish({SECOND}, 5, path + '/checkpoint-5', attempt={NEW!r})
"""
    ended = run(script(shared, body))
    assert ended.status == 0, ended.stderr
    for name in ("own", "exec", "pub", f"exec/{NEW}", f"exec/{NEW}/.dispatch"):
        mode = (shared / name).stat().st_mode
        assert (name, oct(stat.S_IMODE(mode))) == (name, "0o2770")
    (publication,) = (shared / "pub").iterdir()
    assert stat.S_IMODE(publication.stat().st_mode) == 0o660


def test_a_private_root_stays_private(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    root = open_root(str(private))
    root.publish(FIRST, 5, save(root, OLD, "checkpoint-5"), attempt=OLD)
    (publication,) = (private / "pub").iterdir()
    assert stat.S_IMODE(publication.stat().st_mode) == 0o600
    assert stat.S_IMODE((private / "pub").stat().st_mode) == 0o700


RACE = """
import time
barrier = sys.argv[1]
open(barrier + '/' + str(os.getpid()), 'w').close()
deadline = time.monotonic() + 60
while len(os.listdir(barrier)) < 8:
    assert time.monotonic() < deadline, 'the others did not come'
"""


def _race(root: CheckpointRoot, body: str, barrier: Path) -> list[tuple[int, str, str]]:
    barrier.mkdir()
    what = script(root, RACE + body, str(barrier))
    processes = [
        subprocess.Popen([*what.argv, str(number)], env=dict(what.env or {}), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for number in range(8)
    ]  # fmt: skip
    ended = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        ended.append((process.returncode, out, err))
    return ended


def test_eight_processes_make_one_execution(root: CheckpointRoot, tmp_path: Path) -> None:
    """C138: mkdir at once: one makes it, all have it."""
    ended = _race(root, f"print(root.make_execution({NEW!r}))", tmp_path / "barrier")
    assert [status for status, _, _ in ended] == [0] * 8, ended
    assert {out.strip() for _, out, _ in ended} == {root.execution(NEW)}


def test_a_folder_that_exists_and_is_not_seen(root: CheckpointRoot) -> None:
    """C138: EEXIST, and then ENOENT from a client's cache."""
    root.make_execution(NEW)
    path = root.execution(NEW)
    ended = run(
        script(root, f"root.make_execution({NEW!r})"),
        "-P", path, "-e", "trace=openat", "-e", "inject=openat:error=ENOENT:when=1..2",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr


def test_eight_processes_publish_one_save(root: CheckpointRoot, tmp_path: Path) -> None:
    """C108: all are told that it is published, and it is there once."""
    path = save(root, NEW, "checkpoint-5")
    ended = _race(root, f"root.publish({SECOND}, 5, {path!r}, attempt={NEW!r})", tmp_path / "barrier")
    assert [status for status, _, _ in ended] == [0] * 8, ended
    assert len(root.listing()) == 1


def test_eight_jobs_claim_one_root(root: CheckpointRoot, tmp_path: Path) -> None:
    """C130: exactly one gets it, and the others are told which."""
    ended = _race(root, "root.claim('job' + sys.argv[2], 0)", tmp_path / "barrier")
    winners = [number for number, (status, _, _) in enumerate(ended) if status == 0]
    assert len(winners) == 1, ended
    assert os.readlink(os.path.join(root.path, "own", "0")) == f"job{winners[0]}"
    for number, (_, _, err) in enumerate(ended):
        assert number in winners or f"job{winners[0]}" in err


def test_the_path_on_another_host(root: CheckpointRoot, tmp_path: Path) -> None:
    """C094, C130: a root has more than one name; what is published is relative to it."""
    other = tmp_path / "other"
    other.symlink_to(root.path)
    save(root, NEW, "checkpoint-5")
    there = open_root(str(other))
    publication = there.publish(SECOND, 5, os.path.join(root.execution(NEW), "checkpoint-5"), attempt=NEW)
    assert publication.path == f"exec/{NEW}/checkpoint-5".encode()
    latest = there.latest()
    assert latest is not None
    assert latest.path == str(other / "exec" / NEW / "checkpoint-5")


def test_a_link_to_the_newest_save_is_published_as_that_save(root: CheckpointRoot) -> None:
    """C094, C095: a pointer can change; what is published is what it names now."""
    path = save(root, NEW, "checkpoint-5")
    link = os.path.join(root.execution(NEW), "latest")
    os.symlink(path, link)
    assert root.publish(SECOND, 5, link, attempt=NEW).path == f"exec/{NEW}/checkpoint-5".encode()


def test_links_that_lead_out(root: CheckpointRoot, tmp_path: Path) -> None:
    """C094: what a link outside the save names can be taken away by somebody else."""
    path = save(root, NEW, "checkpoint-5")
    (tmp_path / "outside").write_bytes(b"x")
    for target in (str(tmp_path / "outside"), "../../../../outside", "../other", path + "/weights"):
        os.symlink(target, os.path.join(path, "link"))
        with pytest.raises(BadDataError, match="leads out"):
            root.publish(SECOND, 5, path, attempt=NEW)
        os.unlink(os.path.join(path, "link"))
    os.symlink("weights", os.path.join(path, "link"))
    root.publish(SECOND, 5, path, attempt=NEW)
    save(root, OLD, "checkpoint-6")
    link = os.path.join(root.execution(NEW), "stolen")
    os.symlink(os.path.join(root.execution(OLD), "checkpoint-6"), link)
    with pytest.raises(BadDataError, match="outside"):
        root.publish(SECOND, 6, link, attempt=NEW)


def test_special_files(root: CheckpointRoot) -> None:
    path = save(root, NEW, "checkpoint-5")
    os.mkfifo(os.path.join(path, "fifo"))
    with pytest.raises(BadDataError, match="special"):
        root.publish(SECOND, 5, path, attempt=NEW)
    with pytest.raises(BadDataError):
        root.publish(SECOND, 5, os.path.join(path, "fifo"), attempt=NEW)


def test_something_else_under_the_name(root: CheckpointRoot) -> None:
    """P2: what is found there counts only if it is an empty file."""
    path = save(root, NEW, "checkpoint-5")
    name = Publication(SECOND, 5, os.path.relpath(path, root.path).encode()).name
    pub = Path(root.path) / "pub"
    pub.mkdir()
    (pub / name).write_text("text")
    with pytest.raises(CorruptError, match="not an empty file"):
        root.publish(SECOND, 5, path, attempt=NEW)
    (pub / name).unlink()
    (pub / name).mkdir()
    with pytest.raises(CorruptError):
        root.publish(SECOND, 5, path, attempt=NEW)


@pytest.mark.parametrize("name", ["pub", "exec", "own"])
def test_a_link_in_place_of_our_folders(root: CheckpointRoot, tmp_path: Path, name: str) -> None:
    """Nothing is made or read through a link that somebody put there."""
    (tmp_path / "elsewhere").mkdir()
    (Path(root.path) / name).symlink_to(tmp_path / "elsewhere")
    acts: dict[str, Callable[[], object]] = {
        "pub": lambda: root.publish(SECOND, 5, save(root, NEW, "checkpoint-5"), attempt=NEW),
        "exec": lambda: root.make_execution(NEW),
        "own": lambda: root.claim("job", 0),
    }
    with pytest.raises((StoreError, BadDataError)):
        acts[name]()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_disk_of_64_kib(tmp_path: Path) -> None:
    """C104: the disk is full in mid-save: the earlier publication stays latest, and nothing torn is kept."""
    body = f"""
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.errors import StoreError
path = root.make_execution({NEW!r})
def lay(step, size):
    os.mkdir(f'{{path}}/checkpoint-{{step}}')
    with open(f'{{path}}/checkpoint-{{step}}/weights', 'wb', buffering=0) as file:
        file.write(b'x' * size)
lay(1, 4096)
root.publish({SECOND}, 1, keep(root, {NEW!r}, path + '/checkpoint-1', proof=Proof.PROVED), attempt={NEW!r})
lay(2, 30 * 1024)
try:
    kept = keep(root, {NEW!r}, path + '/checkpoint-2', proof=Proof.PROVED)
    sys.exit('kept ' + repr(kept))
except StoreError as error:
    print(error)
print(sorted(os.listdir(path + '/kept')), root.latest().publication.step)
"""
    mounted = tmp_path / "small"
    mounted.mkdir()
    what = script(mounted, body)
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    mount = 'mount -t tmpfs -o size=64k,nr_inodes=1000 none "$0" && exec "$@"'
    ended = subprocess.run(
        [*alone, "sh", "-c", mount, str(mounted), *what.argv], env=dict(what.env or {}), capture_output=True,
        timeout=120, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "No space left" in ended.stdout
    assert "['checkpoint-1'] 1" in ended.stdout


def test_nothing_is_ever_renamed_over_or_removed_in_pub(root: CheckpointRoot, tmp_path: Path) -> None:
    """P2: the only call that changes ``pub/`` is the exclusive create."""
    save(root, NEW, "checkpoint-5")
    trace = tmp_path / "trace"
    changing = "?rename,renameat,renameat2,?unlink,unlinkat,?truncate,ftruncate,?link,linkat,openat,write"
    assert _publish(root, "-y", "-e", f"trace={changing}", trace=trace).status == 0
    pub = os.path.realpath(root.path) + "/pub"
    lines = [line for line in trace.read_text().splitlines() if pub in line and "= -1" not in line]
    changed = [line for line in lines if not re.search(r"openat\(.*O_RDONLY", line) and "write(1<" not in line]
    assert len(changed) == 1, changed
    assert "O_WRONLY|O_CREAT|O_EXCL" in changed[0]


def test_big_is_big() -> None:
    """The scene's large file is linked, not copied."""
    from slurm_dispatch.store.keep import COPY_BELOW

    assert len(BIG) >= COPY_BELOW
    assert sys.executable
    assert environment(Path("/x"))["DISPATCH_CHECKPOINT"] == "/x"
