"""Handing on through the node: the folder that Prolog makes, what TaskProlog tells of it, what Epilog makes of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.state.notes import parse_note
from tests.hooks.lab import HOOKS, START, Lab, exported, run
from tests.hooks.test_epilog import OWNER, prolog
from tests.hooks.test_task_prolog import task, write_file

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"7.{START}"
PROGRESS = {"step": 40, "resumed_from": 10}
ENDED = {"status": 85, "signal": None, "outcome": "unfinished", "step": 40}


def folder(lab: Lab) -> Path:
    """The folder as the user's helper finds it, where nothing can be mounted."""
    made = lab.run_folder / f"{NAME}.d"
    made.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(made, int(OWNER), -1)
    return made


def leave(made: Path, kind: str, attempt: str, body: dict[str, Any], **more: Any) -> None:
    path = made / kind
    path.write_text(json.dumps({"v": 1, "attempt": attempt, "epoch": "1000000", **body, **more}) + "\n")


def handed(lab: Lab) -> dict[str, Any]:
    """The note, which the tick must be able to read."""
    (path,) = lab.notes.glob("handed.*")
    note = parse_note(path.name, path.read_bytes())
    assert (str(note.word), note.slurm_job_id, note.cluster) == ("dispatch:abc:0:1", 7, "lab")
    return dict(note.body)


def test_what_the_helper_left_becomes_a_note(lab: Lab) -> None:
    attempt = prolog(lab)
    made = folder(lab)
    leave(made, "progress", attempt, PROGRESS)
    leave(made, "ended", attempt, ENDED)
    assert lab.run("epilog").status == 0
    assert handed(lab) == {
        "attempt": attempt, "epoch": "1000000", "node": "c1", "uid": int(OWNER), "start_time": START,
        "verified": True, "progress": 40, "resumed_from": 10, "ended": True, "status": 85, "signal": None,
        "outcome": "unfinished", "last": 40,
    }  # fmt: skip
    assert lab.names() == ["handed", "node"]


def test_it_goes_before_the_node_s_own_note(system_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick takes that one for a sign that no word of the helper's comes any more."""
    from dispatch_hooks import call, epilog, settings

    attempt = prolog(system_lab)
    leave(folder(system_lab), "ended", attempt, ENDED)
    left: list[str] = []
    monkeypatch.setattr(epilog, "leave", lambda site, begin, own: left.extend(name for name, _ in own))
    environment = {name.encode(): value.encode() for name, value in system_lab.environment().items()}
    site = settings.load(str(system_lab.conf), str(system_lab.run_folder))
    epilog.note_end(call.Call(environment), site, time.monotonic())
    assert [name.partition(".")[0] for name in left] == ["handed", "node"]


def test_what_was_not_said_is_null(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    made = folder(system_lab)
    leave(made, "progress", attempt, PROGRESS)
    system_lab.run("epilog")
    body = handed(system_lab)
    assert (body["progress"], body["resumed_from"], body["ended"]) == (40, 10, False)
    assert {body[name] for name in ("status", "signal", "outcome", "last")} == {None}


def test_an_execution_that_left_nothing_has_no_such_note(system_lab: Lab) -> None:
    prolog(system_lab)
    folder(system_lab)
    system_lab.run("epilog")
    assert system_lab.names() == ["node"]
    assert system_lab.files() == []


WRONG: dict[str, bytes] = {
    "another execution's": json.dumps({"v": 1, "attempt": "x", "epoch": "1000000", **ENDED}).encode(),
    "another epoch's": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "2000000", "status": 0}',
    "another version": b'{"v": 2, "attempt": "ATTEMPT", "epoch": "1000000", "status": 0}',
    "a word of no helper": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "outcome": "completed"}',
    "a status out of bounds": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "status": 256}',
    "a truth for a status": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "status": true}',
    "a step below 0": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "step": -1}',
    "too long": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "more": "' + b"x" * 1024 + b'"}',
    "torn": b'{"v": 1, "attempt": "ATTEMPT", "epo',
    "nested": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "a": [1]}',
    "not UTF-8": b'{"v": 1, "attempt": "ATTEMPT", "epoch": "1000000", "a": "\xff"}',
    "lines": b"\n\n\n",
    "empty": b"",
}


@pytest.mark.parametrize("how", list(WRONG))
def test_what_no_helper_writes_is_not_passed_on(system_lab: Lab, how: str) -> None:
    attempt = prolog(system_lab)
    made = folder(system_lab)
    (made / "ended").write_bytes(WRONG[how].replace(b"ATTEMPT", attempt.encode()))
    (made / "progress").write_bytes(WRONG[how].replace(b"ATTEMPT", attempt.encode()))
    ended = system_lab.run("epilog")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    assert system_lab.names() == ["node"]
    leave(made, "ended", attempt, ENDED)


def test_progress_without_a_step_is_none(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    made = folder(system_lab)
    leave(made, "progress", attempt, {"step": None, "resumed_from": None})
    leave(made, "ended", attempt, {**ENDED, "outcome": None})
    system_lab.run("epilog")
    body = handed(system_lab)
    assert (body["progress"], body["outcome"], body["status"]) == (None, None, 85)


def test_links_and_fifos_are_not_read(system_lab: Lab) -> None:
    """Another's file, which the user may read or not, and what would hold up a reader for ever."""
    attempt = prolog(system_lab)
    made = folder(system_lab)
    target = system_lab.folder / "elsewhere"
    target.write_text(json.dumps({"v": 1, "attempt": attempt, "epoch": "1000000", **ENDED}))
    (made / "ended").symlink_to(target)
    os.mkfifo(made / "progress")
    assert system_lab.run("epilog").status == 0
    assert system_lab.names() == ["node"]


def test_a_link_in_place_of_the_folder_is_not_followed(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    made = folder(system_lab)
    leave(made, "ended", attempt, ENDED)
    made.rename(system_lab.folder / "elsewhere")
    made.symlink_to(system_lab.folder / "elsewhere")
    assert system_lab.run("epilog").status == 0
    assert system_lab.names() == ["node"]
    assert (system_lab.folder / "elsewhere" / "ended").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_it_is_read_with_the_user_s_own_rights(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    made = folder(system_lab)
    leave(made, "ended", attempt, ENDED)
    (made / "ended").chmod(0o600)  # root's
    system_lab.run("epilog")
    assert system_lab.names() == ["node"]


def test_out_of_reach_of_the_notes_both_go_to_the_spool_and_on_from_there(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    leave(folder(system_lab), "ended", attempt, ENDED)
    system_lab.notes.rename(system_lab.folder / "away")
    system_lab.run("epilog")
    assert sorted(path.name.partition(".")[0] for path in system_lab.spool.iterdir()) == ["handed", "node"]
    (system_lab.folder / "away").rename(system_lab.notes)
    prolog(system_lab, SLURM_JOB_START_TIME=str(START + 5))
    system_lab.run("epilog", SLURM_JOB_START_TIME=str(START + 5))
    assert list(system_lab.spool.iterdir()) == []
    assert handed(system_lab)["status"] == 85
    assert system_lab.names() == ["handed", "node", "node"]


def test_where_nothing_can_be_left_file_and_folder_stay_for_a_later_epilog(system_lab: Lab) -> None:
    attempt = prolog(system_lab)
    leave(folder(system_lab), "ended", attempt, ENDED)
    system_lab.notes.rename(system_lab.folder / "away")
    system_lab.spool.write_text("no folder")
    system_lab.run("epilog")
    assert system_lab.files() == [NAME, f"{NAME}.d"]
    system_lab.spool.unlink()
    (system_lab.folder / "away").rename(system_lab.notes)
    system_lab.run("epilog")
    assert handed(system_lab)["status"] == 85


# The folder itself.


@lru_cache
def can_mount() -> bool:
    """Whether this process may have mounts of its own."""
    argv = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
    except FileNotFoundError:
        return False


mounts = pytest.mark.skipif(not can_mount(), reason="nothing can be mounted here; the cluster's tests do")


def in_one_place(lab: Lab, *steps: str, **changes: str | None) -> str:
    """Run a few lines of shell beside each other's mounts; ``HOOK`` in one is a hook's whole command line."""
    lines = [
        step.replace("PROLOG", shlex.join(lab.argv("prolog"))).replace("EPILOG", shlex.join(lab.argv("epilog")))
        for step in steps
    ]
    script = "set -e\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n" + "\n".join(lines)
    argv = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script]
    ended = run(argv, lab.environment(SLURM_JOB_UID=OWNER, **changes))
    assert (ended.status, ended.stderr) == (0, b""), ended
    return ended.stdout.decode()


@mounts
def test_the_folder_is_the_user_s_small_and_gone_with_the_execution(lab: Lab) -> None:
    lab.configure(hand_kib="64")
    made = lab.run_folder / f"{NAME}.d"
    shown = in_one_place(
        lab,
        "PROLOG",
        f"stat -c '%u %a' {made}",
        f"head -c 1000000 /dev/zero >{made}/fill 2>/dev/null || stat -c %s {made}/fill",
        "PROLOG",  # Slurm runs it twice: what is there stays
        f"ls {made}",
        f"i=0; while touch {made}/$i 2>/dev/null; do i=$((i + 1)); done; test $i -lt 32",
        f"grep -c {made} /proc/self/mounts; grep {made} /proc/self/mounts | cut -d' ' -f3,4",
        "EPILOG",
        f"grep -c {made} /proc/self/mounts || ls {lab.run_folder}",
    )
    owner, size, name, count, kind, after = shown.splitlines()
    assert owner == f"{OWNER} 700"
    assert int(size) <= 64 * 1024
    assert (name, count, after) == ("fill", "1", "0")
    assert kind.startswith("tmpfs ")
    assert {"nosuid", "nodev", "noexec", "size=64k"} <= set(kind.split(" ")[1].split(","))
    assert lab.files() == []


@mounts
def test_what_another_s_execution_left_goes(lab: Lab) -> None:
    """Slurm 22.05 gives no start time, so an id that comes again has the same name."""
    lab.configure(hand_kib="16")
    made = lab.run_folder / "7.0.d"
    shown = in_one_place(
        lab,
        f"mkdir -p {made} && mount -t tmpfs -o uid=1 none {made} && touch {made}/old",
        "PROLOG",
        f"stat -c %u {made}; ls {made}",
        SLURM_JOB_START_TIME=None,
    )
    assert shown == f"{OWNER}\n"


@mounts
def test_mounts_of_the_user_s_own_go_too(system_lab: Lab) -> None:
    system_lab.configure(hand_kib="16")
    made = system_lab.run_folder / f"{NAME}.d"
    stack = f"for i in $(seq 12); do mount -t tmpfs none {made}; done"
    in_one_place(system_lab, "PROLOG", stack, "EPILOG", f"! grep -q {made} /proc/self/mounts")
    assert system_lab.files() == []


@pytest.mark.parametrize(
    ("size", "uid"), [("0", OWNER), ("64", "0"), ("64", None)], ids=["no-size", "of-root", "of-nobody"]
)
def test_without_a_folder_the_execution_is_as_ever(system_lab: Lab, size: str, uid: str | None) -> None:
    system_lab.configure(hand_kib=size)
    assert system_lab.run("prolog", SLURM_JOB_UID=uid).status == 0
    assert system_lab.files() == [NAME]


def test_where_nothing_can_be_mounted_there_is_no_folder(system_lab: Lab) -> None:
    """A folder of the user's in /run itself would let him fill it."""
    system_lab.configure(hand_kib="64")
    # A user namespace of its own: root in it, and not allowed to mount.
    without = "import os,sys,ctypes; ctypes.CDLL(None).prctl(24, 21); os.execv(sys.argv[1], sys.argv[1:])"
    before = [] if os.geteuid() else ["/usr/bin/python3", "-c", without]
    assert system_lab.run("prolog", before=before, SLURM_JOB_UID=OWNER).status == 0
    assert system_lab.files() == [NAME]


@pytest.mark.parametrize("size", ["-1", "8", "1025", "x"])
def test_a_size_that_cannot_be_is_said_and_not_taken(size: str, tmp_path: Path) -> None:
    from dispatch_hooks import settings  # type: ignore[import-not-found]

    (tmp_path / "conf").write_text(f"hand_kib={size}\n")
    loaded = settings.load(str(tmp_path / "conf"), "/run")
    assert loaded.hand_kib == 0
    assert len(loaded.troubles) == 1


# TaskProlog.

SHELL = ["/bin/sh"]


def test_a_folder_that_the_user_cannot_write_is_not_named(open_tmp: Path) -> None:
    """Another user's, say: Slurm 22.05 gives no start time, and an id can come again."""
    write_file(open_tmp / "run")
    (open_tmp / "run" / f"{NAME}.d").mkdir(mode=0o500)
    other = {"user": 54321, "group": 54321, "extra_groups": []} if os.geteuid() == 0 else {}  # root writes anywhere
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": str(START)}
    argv = [*SHELL, str(HOOKS / "task-prolog"), str(open_tmp / "run")]
    with (HOOKS / "task-prolog").open("rb") as script:  # which that user may have no way to
        argv[1:2] = ["-s"]
        done = subprocess.run(argv, env=given, stdin=script, capture_output=True, timeout=60, check=True, **other)
    assert exported(done.stdout)["DISPATCH_JOB"] == "abc"
    assert "SLURM_DISPATCH_HAND" not in exported(done.stdout)


def test_tasks_are_told_of_their_own_node_s_folder(tmp_path: Path) -> None:
    write_file(tmp_path / "run")
    inherited = {"SLURM_DISPATCH_HAND": "/run/slurm-dispatch/another.d"}
    assert "SLURM_DISPATCH_HAND" not in exported(task(SHELL, tmp_path / "run").stdout)
    assert exported(task(SHELL, tmp_path / "run", **inherited).stdout)["SLURM_DISPATCH_HAND"] is None
    (tmp_path / "run" / f"{NAME}.d").mkdir(mode=0o700)
    told = exported(task(SHELL, tmp_path / "run", **inherited).stdout)
    assert told["SLURM_DISPATCH_HAND"] == str(tmp_path / "run" / f"{NAME}.d")
    assert (HOOKS / "task-prolog").exists()
