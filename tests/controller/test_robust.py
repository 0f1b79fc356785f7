"""Records that are broken or go away, folders full of names, clocks that step back, a disk that is full.

The tick says one line of it, other jobs go on, and once the cause is gone so does the job itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import sitefolder
from slurm_dispatch.records.facts import fact_name
from slurm_dispatch.records.forms import JSON_SIZE_MAX
from slurm_dispatch.state.jobs import Record
from tests.controller.site_rig import SiteRig
from tests.controller.sites import TOP, Site, make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.records.facts import Fact

NAMES = 65_000


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


def last_fact(site: Site, key: str) -> Path:
    return Path(site.rig.record(key).facts_folder) / fact_name(len(site.rig.facts(key)))


def unreadable(path: Path) -> None:
    """Somebody has closed it to its owner. Root, as whom nobody reads, would not notice."""
    path.chmod(0)
    os.chown(path, 0 if os.geteuid() == 0 else -1, -1)


def linked(path: Path) -> None:
    aside = path.with_name(f"{path.name}-aside") if path.is_dir() else path.parent.parent / "aside"
    path.rename(aside)
    path.symlink_to(aside)


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn": (lambda path: os.truncate(path, 40), "is not JSON"),
    "empty": (lambda path: os.truncate(path, 0), "is not JSON"),
    "huge": (lambda path: path.write_bytes(b" " * (JSON_SIZE_MAX + 1)), "more than the limit of"),
    "of another version": (
        lambda path: path.write_text('{"v": 99, "seq": 3, "at": 1, "kind": "x", "by": "x"}\n'),
        "version 99",
    ),
    "unreadable": (unreadable, "Permission denied"),
    "a link": (linked, "symbolic link"),
    "a folder": (replaced_by_a_folder, "not a regular file"),
    "a pipe": (replaced_by_a_pipe, "not a regular file"),
    "a gap": (lambda path: path.with_name(fact_name(9)).write_bytes(path.read_bytes()), "is missing"),
    "a foreign name": (lambda path: path.with_name("notes.txt").write_text(""), "is not the name of a fact"),
    "closed": (lambda path: path.parent.chmod(0), "Permission denied"),
    "no facts": (lambda path: shutil.rmtree(path.parent), "there is no job"),
    "a link to facts": (lambda path: linked(path.parent), "is not a real folder"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_record_stops_its_own_job_and_says_so_once(site: Site, how: str) -> None:
    broken, whole = site.preempted(), site.preempted()
    folder = site.rig.record(broken).folder
    kept = site.folder / "kept"
    subprocess.run(["cp", "-a", folder, str(kept)], check=True)
    spoil, says = BROKEN[how]
    spoil(last_fact(site, broken))
    controller = site.controller()
    for _ in range(2):
        controller.tick(full=True)
    (line,) = [line for line in site.log if broken in line]
    assert says in line
    assert "\n" not in line
    assert "bug" not in line
    assert site.rig.kinds(whole)[-1] == "submitted"
    assert len(site.rig.slurm.ids()) == 3
    subprocess.run(["rm", "-rf", folder], check=True)
    subprocess.run(["mv", str(kept), folder], check=True)
    controller.tick(full=True)
    assert site.rig.kinds(broken)[-1] == "submitted"
    assert len(site.rig.slurm.ids()) == 4


@pytest.mark.parametrize("when", ["before it is read", "after it was read", "before a fact is added"])
def test_a_job_that_is_removed_while_a_tick_reads(site: Site, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    gone, stays = sorted([site.preempted(), site.preempted()])
    read, append = Record.read, Record.append

    def remove(record: Record) -> None:
        if record.key == gone and os.path.isdir(record.facts_folder):
            shutil.rmtree(record.folder, ignore_errors=True)  # its owner may not remove the folder itself
            shutil.rmtree(record.facts_folder, ignore_errors=True)

    def reads(record: Record) -> list[Fact]:
        if when == "before it is read":
            remove(record)
        found = read(record)
        if when == "after it was read":
            remove(record)
        return found

    def appends(record: Record, *rest: object, **more: object) -> bool:
        if when == "before a fact is added":
            remove(record)
        return append(record, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Record, "read", reads)
    monkeypatch.setattr(Record, "append", appends)
    controller = site.controller()
    controller.tick(full=True)
    (line,) = [line for line in site.log if gone in line]
    assert "bug" not in line
    monkeypatch.undo()
    assert site.rig.kinds(stays)[-1] == "submitted"
    assert len(site.rig.slurm.ids()) == 3
    shutil.rmtree(site.rig.record(gone).folder, ignore_errors=True)
    site.log.clear()
    controller.tick(full=True)
    assert [line for line in site.log if gone in line] == []


def test_sixty_five_thousand_names_in_each_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than some file systems have links for; nobody's job, fact or note among them."""
    monkeypatch.setattr(sitefolder, "TIMEOUT_S", 300.0)  # a slow machine is no fault
    memory = "/dev/shm"  # where there is one: names are made ten times as fast there
    folder = tempfile.mkdtemp(prefix="dispatch-test-", dir=memory if os.access(memory, os.W_OK) else None)
    mask = os.umask(0o022)
    try:
        os.chmod(folder, 0o755)
        site = Site(Path(folder))
        key = site.preempted()
        names = {site.rig.record(key).facts_folder: ".tmp-", f"{site.rig.path}/tick": ".tmp-"}
        names |= {f"{site.rig.path}/{name}": "X" for name in ("jobs", "notes")}
        for place, name in names.items():
            for number in range(NAMES):
                os.mknod(f"{place}/{name}{number}")
        controller = site.controller(owner_timeout_s=300.0)
        for _ in range(2):
            controller.tick(full=True)
        assert site.rig.kinds(key)[-1] == "submitted"
        assert len(site.log) < 30, site.log[:30]
    finally:
        os.umask(mask)
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize("known_to", ["slurmctld", "accounting"])
def test_a_clock_that_steps_back_an_hour_between_two_ticks(tmp_path: Path, known_to: str) -> None:
    """What was submitted an hour from now is watched all the same, and no hold runs out or begins anew by it."""
    rig = SiteRig(tmp_path)
    held = rig.job("preempted:hold,for=24h")
    early, late = rig.job(), rig.job()
    for key in (held, early):
        rig.start(key)
        rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.settle()
    real = time.time
    with pytest.MonkeyPatch.context() as patched:  # this host's clock was an hour ahead
        patched.setattr(time, "time", lambda: real() + 3600.0)
        rig.start(late)
        rig.ends(late, "PREEMPTED", "COMPLETING")
        rig.settle()
    second = rig.object(late)
    rig.slurm.set(second, submit_time=int(real()))  # slurmctld's clock was right
    rig.start(late)
    rig.start(early)
    rig.ends(early, "PREEMPTED", "COMPLETING")
    rig.anew()
    rig.settle()
    assert rig.kinds(early)[-1] == "submitted"
    assert rig.state(held).phase.value == "held"
    assert rig.state(late).phase.value == "running"
    rig.ends(late, "PREEMPTED", "COMPLETING")
    if known_to == "accounting":
        rig.slurm.forget(second)
    rig.settle()
    assert rig.last(late, "end").body["outcome"] == "preempted"
    assert rig.object(late) != second
    alive = [number for number in rig.slurm.ids() if rig.slurm.job(number)["states"] == ["PENDING"]]
    assert sorted(alive) == sorted([rig.object(early), rig.object(late)])


def test_a_disk_that_fills_up_in_each_phase_of_a_tick(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    mount = 'mount -t tmpfs -o size=1m none "$0/state" && exec "$@"'
    program = [sys.executable, "-m", "tests.controller.full_disk", str(tmp_path)]
    argv = [*alone, "sh", "-c", mount, str(tmp_path), *program]
    ended = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)
