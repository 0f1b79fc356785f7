"""What a user, a full disk or a broken Python does to the hooks: the job starts, the node stays up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import NAMES, PYTHON_HOOKS, START, Ended, Lab, run

if TYPE_CHECKING:
    from pathlib import Path

EVIL = {
    "newlines": "a\nDISPATCH_ATTEMPT=evil\nREFUSE=1\n",
    "100 kB": "x" * 100_000,
    "100 kB of words": "dispatch:abc:0:x " * 6_000,
    "not UTF-8": b"\xff\xfe\x80",
    "commands": '$(touch evil) `touch evil` "; touch evil; #',
    "format": "%n%s%x%1000000d",
    "quotes": "'\"\\'",
    "controls": bytes(range(1, 32)),
    "escapes": "\x1b]0;evil\x07",
    "an option": "--help",
}


def evil(name: str) -> bytes:
    value = EVIL[name]
    return value if isinstance(value, bytes) else value.encode()


def run_with(lab: Lab, hook: str, value: bytes, comment: bytes) -> Ended:
    """Run with ``value`` wherever a user can put one."""
    environment = {name.encode(): text.encode() for name, text in lab.environment().items()}
    environment[b"SLURM_JOB_COMMENT"] = comment
    for name in (
        b"NAME",
        b"ACCOUNT",
        b"PARTITION",
        b"USER",
        b"WORK_DIR",
        b"STDOUT",
        b"EXTRA",
        b"GROUP",
        b"EXIT_CODE2",
    ):
        environment[b"SLURM_JOB_" + name] = value
    environment[b"SLURM_WCKEY"] = environment[b"SPANK_" + b"EVIL"] = value
    environment[b"SPANK__SLURM_SPANK_OPTION_x_y"] = value
    return run(lab.argv(hook), environment)


@pytest.mark.parametrize("name", list(EVIL))
def test_what_a_user_can_write_is_data(lab: Lab, name: str) -> None:
    value = evil(name)
    os.chdir(lab.folder)
    for hook in ("prolog-slurmctld", "prolog", "epilog-slurmctld", "epilog"):
        ended = run_with(lab, hook, value, value + b" dispatch:abc:0:1")
        assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b""), hook
    # A word that a newline is glued to is no word; elsewhere the job is ours, whatever stands before it.
    assert lab.names() == ["end", "node", "start"]
    assert lab.note("start.*")["epoch"] == "1000000"
    assert lab.note("node.*")["attempt"] == lab.note("start.*")["attempt"]
    assert sorted(os.listdir()) == ["node.conf", "notes", "run"]


@pytest.mark.parametrize("name", list(EVIL))
def test_what_a_user_can_write_is_no_word(system_lab: Lab, name: str) -> None:
    value = evil(name)
    for comment in (
        value,
        b"dispatch:" + value,
        b"dispatch:abc:0:1" + value,
        b"dispatch:abc:0:1 " * 3 + b"\n" + value,
    ):
        for hook in PYTHON_HOOKS:
            assert run_with(system_lab, hook, value, comment[:120_000]).status == 0
    assert all(note.startswith(("start", "end", "node")) for note in system_lab.names())


@pytest.mark.parametrize("hook", NAMES)
def test_it_works_with_an_empty_environment(hook: str) -> None:
    """C039: no PATH, HOME or LANG; called by its absolute path, without an argument, as Slurm does it."""
    lab_free = run(
        [f"{os.path.dirname(os.path.dirname(os.path.dirname(__file__)))}/hooks/{hook}"], {"SLURM_JOB_ID": "5"}
    )
    assert lab_free.status == 0
    assert lab_free.stderr == b""


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_harm_nothing(system_lab: Lab, hook: str, closed: str) -> None:
    for name in ("prolog", hook):
        assert system_lab.run(name, before=["/bin/sh", "-c", f'"$@" {closed}', "sh"]).status == 0
    for path in system_lab.notes.iterdir():
        assert path.read_bytes().startswith(b'{"v": 1, ')
    for path in system_lab.run_folder.iterdir():
        assert path.read_bytes().startswith(b"DISPATCH_EXECUTION=1\n")


def broken_python(folder: Path, kind: str) -> str:
    path = folder / "python"
    if kind == "missing":
        return str(path)
    path.write_bytes(
        {
            "garbage": b"\x7fELF garbage",
            "empty": b"",
            "no interpreter": b"#!/nonexistent/python\n",
            "killed": b"#!/bin/sh\nkill -9 $$\n",
            "fails": b"#!/bin/sh\nexit 1\n",
            "aborts": b"#!/bin/sh\nkill -6 $$\n",
        }[kind]
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
@pytest.mark.parametrize("kind", ["missing", "garbage", "empty", "no interpreter", "killed", "fails", "aborts"])
def test_a_broken_python_costs_nobody_a_node(system_lab: Lab, hook: str, kind: str) -> None:
    """C043: exits with 0 for every trouble of its own, a refusal included that it can no longer know."""
    system_lab.python = broken_python(system_lab.folder, kind)
    assert system_lab.run(hook, SLURM_JOB_COMMENT="dispatch:abc:0:1:s", SLURM_JOB_RESTART_COUNT="1").status == 0


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
@pytest.mark.parametrize("what", ["start.py", "dispatch_hooks/main.py", "dispatch_hooks"])
def test_hooks_that_are_half_installed_cost_nobody_a_node(tmp_path: Path, hook: str, what: str) -> None:
    lab = Lab(tmp_path, hooks=tmp_path / "hooks")
    lab.hooks.mkdir()
    source = Lab.hooks
    for name in (*NAMES, "boot"):
        (lab.hooks / name).write_bytes((source / name).read_bytes())
        (lab.hooks / name).chmod(0o755)
    (lab.hooks / "python").mkdir()
    if what != "start.py":
        (lab.hooks / "python" / "start.py").write_bytes((source / "python" / "start.py").read_bytes())
    if what == "dispatch_hooks/main.py":
        (lab.hooks / "python" / "dispatch_hooks").mkdir()
        (lab.hooks / "python" / "dispatch_hooks" / "main.py").write_text("def main(:\n")
    assert lab.run(hook).status == 0


MOUNTS = {
    "full": "mount -t tmpfs -o size=4k none {0} && head -c 4096 /dev/zero >{0}/fill",
    "without inodes": "mount -t tmpfs -o nr_inodes=1 none {0}",
    "read-only": "mount -t tmpfs -o ro none {0}",
}


def mounted(lab: Lab, how: str, path: Path) -> list[str]:
    """A prefix that runs the hook with ``path`` mounted so, in a mount namespace of its own."""
    path.mkdir(exist_ok=True)
    script = MOUNTS[how].format(path) + ' && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", script, "sh"]


@pytest.mark.parametrize("how", list(MOUNTS))
def test_a_run_folder_that_is_full_or_read_only_costs_nobody_a_node(lab: Lab, how: str) -> None:
    before = mounted(lab, how, lab.run_folder)
    for hook in ("prolog", "task-prolog", "epilog"):
        ended = lab.run(hook, before=before, PATH=os.environ["PATH"])
        assert (ended.status, ended.stderr) == (0, b""), hook
    assert lab.names() == []


@pytest.mark.parametrize("how", list(MOUNTS))
def test_a_run_folder_that_cannot_be_made_costs_nobody_a_node(system_lab: Lab, how: str) -> None:
    above = system_lab.folder / "above"
    before = mounted(system_lab, how, above)
    system_lab.run_folder = above / "run"
    for hook in ("prolog", "task-prolog", "epilog"):
        assert system_lab.run(hook, before=before, PATH=os.environ["PATH"]).status == 0, hook


@pytest.mark.parametrize("how", list(MOUNTS))
def test_notes_that_are_full_or_read_only_stop_no_job(lab: Lab, how: str) -> None:
    """C060: a gate that cannot write never refuses for it, so nothing is requeued for ever."""
    before = mounted(lab, how, lab.notes)
    for hook in ("prolog-slurmctld", "epilog-slurmctld"):
        for _ in range(2):
            assert lab.run(hook, before=before, PATH=os.environ["PATH"]).status == 0, hook
    shared = {"SLURM_JOB_COMMENT": "dispatch:abc:0:1:s", "SLURM_JOB_RESTART_COUNT": "1"}
    assert lab.run("prolog-slurmctld", before=before, PATH=os.environ["PATH"], **shared).status == 1


def test_a_refusal_holds_on_a_full_disk(system_lab: Lab) -> None:
    """It is known from what is there; that it cannot be noted changes nothing."""
    system_lab.run("prolog-slurmctld")
    note = system_lab.notes / "start.abc.0.1.7.0"
    script = f"cp {note} {system_lab.folder}/n && mount -t tmpfs -o size=8k none {system_lab.notes}"
    script += (
        f" && cp {system_lab.folder}/n {note} && chmod 600 {note} && head -c 4096 /dev/zero >{system_lab.notes}/fill"
    )
    before = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", script + ' && exec "$@"', "sh"]
    again = {"SLURM_JOB_START_TIME": str(START + 1), "PATH": os.environ["PATH"]}
    assert system_lab.run("prolog-slurmctld", before=before, **again).status == 1


def test_planted_temporary_names_harm_nothing(system_lab: Lab) -> None:
    """Names that nobody can guess are made exclusively; what looks like one is passed over."""
    system_lab.run_folder.mkdir()
    for folder in (system_lab.notes, system_lab.run_folder):
        (folder / ".tmp-0123456789abcdef").symlink_to(system_lab.folder / "evil")
    for hook in ("prolog-slurmctld", "prolog", "epilog-slurmctld", "epilog"):
        assert system_lab.run(hook).status == 0
    assert not (system_lab.folder / "evil").exists()
    assert system_lab.names() == [".tmp-0123456789abcdef", "end", "node", "start"]
