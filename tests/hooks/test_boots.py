"""A node that has booted says of what began before that nothing of it is left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import START, Lab, read_note, waiting
from tests.hooks.test_deadline import delay, hanging

from dispatch_hooks import boots, processes  # isort: skip

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "dispatch:abc:0:1:s"
OWNER = str(1_200_000_000 + os.getpid())
BEFORE = "11111111-2222-3333-4444-555555555555:7"


def begin(lab: Lab, **changes: str | None) -> Path:
    """Prolog of a job with a shared checkpoint; what it keeps over a reboot."""
    before = kept(lab)
    given = {"SLURM_JOB_COMMENT": SHARED, "SLURM_JOB_UID": OWNER, **changes}
    assert lab.run("prolog", **given).status == 0
    (path,) = set(kept(lab)) - set(before)
    return path


def kept(lab: Lab) -> list[Path]:
    return sorted(lab.spool.glob("begun.*")) if lab.spool.exists() else []


def reboot(lab: Lab) -> None:
    """What a reboot does: the execution files go, and what was kept is of another boot."""
    for path in lab.run_folder.iterdir():
        path.unlink()
    boot = processes.boot()
    for path in kept(lab):
        text = path.read_text()
        assert f"\nBOOT={boot}\n" in text
        path.write_text(text.replace(f"BOOT={boot}", f"BOOT={BEFORE}"))


def attempt_of(path: Path) -> str:
    return path.name.split(".")[1]


def test_a_job_of_its_own_folder_costs_nothing(system_lab: Lab) -> None:
    assert system_lab.run("prolog").status == 0
    assert not system_lab.spool.exists()


def test_a_clean_end_forgets_it(lab: Lab) -> None:
    begin(lab)
    lab.run("epilog", SLURM_JOB_COMMENT=SHARED)
    assert lab.note("node.*")["clean"] is True
    assert kept(lab) == []


def test_what_was_left_at_its_end_stays_known(system_lab: Lab) -> None:
    path = begin(system_lab)
    with waiting({"DISPATCH_ATTEMPT": attempt_of(path)}):
        system_lab.run("epilog", SLURM_JOB_COMMENT=SHARED)
    assert system_lab.note("node.*")["clean"] is False
    assert kept(system_lab) == [path]
    reboot(system_lab)
    system_lab.run("boot")
    notes = [read_note(path) for path in sorted(system_lab.notes.iterdir())]
    assert [(note["clean"], note["how"]) for note in notes] == [(False, "scan"), (True, "boot")]


@pytest.mark.parametrize("hook", ["boot", "prolog", "epilog"])
def test_after_a_reboot_the_node_tells(lab: Lab, hook: str) -> None:
    """C172 is the other case: a node that comes back with its memory has the same boot id."""
    path = begin(lab, SLURM_CLUSTER_NAME="a=b\n\x07é")
    reboot(lab)
    other = {} if hook == "boot" else {"SLURM_JOB_ID": "8", "SLURM_JOB_COMMENT": "dispatch:other:0:1"}
    ended = lab.run(hook, **other)
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    note = lab.note(f"node.abc.0.1.7.{attempt_of(path)}.c1.*")
    assert note.pop("at") > START
    assert note == {
        "v": 1,
        "job": "abc",
        "generation": 0,
        "submission": 1,
        "shared": True,
        "cluster": "a=b???",
        "slurm_job_id": 7,
        "attempt": attempt_of(path),
        "epoch": "1000000",
        "node": "c1",
        "boot": processes.boot(),
        "clean": True,
        "left": [],
        "start_time": START,
        "verified": True,
        "how": "boot",
    }
    assert kept(lab) == []
    lab.run(hook, **other)
    assert len(list(lab.notes.glob("node.abc.*"))) == 1


@pytest.mark.parametrize("hook", ["boot", "epilog"])
def test_on_the_same_boot_nothing_is_told(system_lab: Lab, hook: str) -> None:
    path = begin(system_lab)
    system_lab.run(hook, SLURM_JOB_ID="8", SLURM_JOB_COMMENT="dispatch:other:0:1")
    assert system_lab.names() == []
    assert kept(system_lab) == [path]


def test_the_same_execution_begun_again_counts_from_the_later_boot(system_lab: Lab) -> None:
    path = begin(system_lab)
    reboot(system_lab)
    system_lab.run("prolog", SLURM_JOB_COMMENT=SHARED, SLURM_JOB_UID=OWNER)
    assert kept(system_lab) == [path]
    system_lab.run("boot")
    assert system_lab.names() == []


def test_notes_out_of_reach_are_told_later(system_lab: Lab) -> None:
    path = begin(system_lab)
    reboot(system_lab)
    away = system_lab.folder / "away"
    system_lab.notes.rename(away)
    assert system_lab.run("boot").status == 0
    assert kept(system_lab) == [path]
    away.rename(system_lab.notes)
    system_lab.run("boot")
    assert system_lab.note("node.abc.*")["how"] == "boot"


@pytest.mark.parametrize("hook", ["prolog", "boot"])
def test_a_spool_that_hangs_holds_nothing_up(system_lab: Lab, hook: str) -> None:
    begin(system_lab)
    reboot(system_lab)
    system_lab.configure(deadline_s="2")
    with hanging(system_lab, hook, *delay("openat", "-P", str(system_lab.spool))) as status:
        assert status == 0
    assert system_lab.files() == ([f"7.{START}"] if hook == "prolog" else [])


def test_notes_that_hang_hold_nothing_up(system_lab: Lab) -> None:
    path = begin(system_lab)
    reboot(system_lab)
    system_lab.configure(deadline_s="2")
    with hanging(system_lab, "boot", *delay("openat", "-P", str(system_lab.notes))) as status:
        assert status == 0
    assert kept(system_lab) == [path]


def test_a_site_without_notes_on_its_nodes_finds_it_in_the_spool(system_lab: Lab) -> None:
    begin(system_lab)
    reboot(system_lab)
    text = system_lab.conf.read_text()
    system_lab.conf.write_text("".join(line for line in text.splitlines(True) if not line.startswith("notes=")))
    system_lab.run("boot")
    assert [path.name.partition(".")[0] for path in system_lab.spool.iterdir()] == ["node"]


def test_many_are_told_of_in_turn(system_lab: Lab) -> None:
    path = begin(system_lab)
    reboot(system_lab)
    for number in range(boots.TOLD_MAX + 3):
        (path.parent / f"begun.x{number}.7").write_text(
            path.read_text().replace(f"DISPATCH_ATTEMPT={attempt_of(path)}", f"DISPATCH_ATTEMPT=x{number}")
        )
    system_lab.run("boot")
    assert len(system_lab.names()) == boots.TOLD_MAX
    system_lab.run("boot")
    assert len(system_lab.names()) == boots.TOLD_MAX + 4
    assert kept(system_lab) == []


def test_a_copy_of_a_node_s_disk_says_nothing_of_that_node(system_lab: Lab) -> None:
    """An image for other nodes, taken from one on which a shared job ran: it boots, and the job runs on."""
    path = begin(system_lab)
    reboot(system_lab)
    text = path.read_text()
    assert f"\nHOST={os.uname().nodename}\n" in text
    path.write_text(text.replace(f"HOST={os.uname().nodename}", "HOST=another"))
    assert system_lab.run("boot").status == 0
    assert system_lab.names() == []
    assert kept(system_lab) == []


@pytest.mark.parametrize("content", ["", "BOOT=x\n", "DISPATCH_EXECUTION=1\nBOOT=x\n", "\xff\0", "x" * 70000])
def test_what_is_none_of_ours_is_removed_and_proves_nothing(system_lab: Lab, content: str) -> None:
    good = begin(system_lab)
    reboot(system_lab)
    (system_lab.spool / "begun.0.7").write_bytes(content.encode("latin-1"))
    os.symlink("/etc/passwd", system_lab.spool / "begun.1.7")
    ended = system_lab.run("boot")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    assert system_lab.note("node.*")["attempt"] == attempt_of(good)
    assert kept(system_lab) == []
