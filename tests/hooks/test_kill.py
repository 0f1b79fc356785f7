"""A kill at every call that changes something: nothing torn, nothing twice, the next run goes on."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import START, Lab, read_note
from tests.kill import Point, Run, kill_at_every_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWNER = "1999999999"


def lab_of(place: Path) -> Lab:
    lab = Lab.__new__(Lab)
    lab.folder, lab.python, lab.settings, lab.hooks = place, "/usr/bin/python3", {}, Lab.hooks
    lab.notes, lab.run_folder, lab.spool = place / "notes", place / "run", place / "spool"
    lab.conf = place / "node.conf"
    return lab


def scene(
    hook: str, prepare: Callable[[Lab], None], statuses: frozenset[int], **changes: str
) -> Callable[[Path], Run]:
    def make(place: Path) -> Run:
        lab = Lab(place)
        lab.configure(deadline_s="60")
        prepare(lab)
        return Run(lab.argv(hook), env=lab.environment(SLURM_JOB_UID=OWNER, **changes), cwd=place, statuses=statuses)

    return make


def nothing_torn(place: Path, point: Point | None = None) -> Lab:
    """Every note whole and every execution file whole, under its name; unfinished ones only under theirs."""
    lab = lab_of(place)
    for folder in (lab.notes, lab.spool):
        for path in folder.iterdir() if folder.exists() else ():
            if not path.name.startswith(".tmp-"):
                assert read_note(path)["job"] == "abc"
    for name in lab.files():
        if not name.startswith(".tmp-") and not name.endswith(".d"):
            text = (lab.run_folder / name).read_text()
            assert text.startswith("DISPATCH_EXECUTION=1\n")
            assert text.endswith(f"UID={OWNER}\n")
    return lab


def nothing(lab: Lab) -> None:
    """Nothing to lay out."""


def started(lab: Lab) -> None:
    assert lab.run("prolog", SLURM_JOB_UID=OWNER).status == 0


def gated(lab: Lab) -> None:
    assert lab.run("prolog-slurmctld", SLURM_JOB_UID=OWNER).status == 0


def notes_of(place: Path) -> list[str]:
    return [name for name in nothing_torn(place).names() if not name.startswith(".")]


def test_the_start_note(tmp_path: Path) -> None:
    def finished(place: Path) -> None:
        assert notes_of(place) == ["start"]

    kill_at_every_call(
        tmp_path, scene("prolog-slurmctld", nothing, frozenset({0})), check=nothing_torn, finished=finished, least=6
    )


def test_the_refusal_of_a_double_start(tmp_path: Path) -> None:
    def finished(place: Path) -> None:
        assert notes_of(place) == ["refused", "start"]
        assert nothing_torn(place).note("start.*")["start_time"] == START

    make = scene("prolog-slurmctld", gated, frozenset({1}), SLURM_JOB_START_TIME=str(START + 1))
    kill_at_every_call(tmp_path, make, check=nothing_torn, finished=finished, least=10)


def test_the_execution_file(tmp_path: Path) -> None:
    def finished(place: Path) -> None:
        names = [name for name in nothing_torn(place).files() if not name.startswith(".")]
        assert names == [f"7.{START}"]

    kill_at_every_call(
        tmp_path, scene("prolog", nothing, frozenset({0})), check=nothing_torn, finished=finished, least=5
    )


def test_the_end_note(tmp_path: Path) -> None:
    def finished(place: Path) -> None:
        assert set(notes_of(place)) == {"end"}

    kill_at_every_call(
        tmp_path, scene("epilog-slurmctld", nothing, frozenset({0})), check=nothing_torn, finished=finished, least=6
    )


@pytest.mark.parametrize("reachable", [True, False])
def test_the_node_note_and_the_end_of_the_execution_file(tmp_path: Path, reachable: bool) -> None:
    def prepare(lab: Lab) -> None:
        started(lab)
        if not reachable:
            lab.configure(notes=str(lab.folder / "nowhere"), deadline_s="60")

    def left(place: Path) -> list[Path]:
        # The spool too: a child that was killed could not leave it among the notes.
        lab = nothing_torn(place)
        return [path for folder in (lab.notes, lab.spool) for path in folder.glob("node.*")]

    def check(place: Path, point: Point) -> None:
        # The file goes last: where it is gone, the note is there.
        assert f"7.{START}" in lab_of(place).files() or left(place), "the end of the execution is lost"

    def finished(place: Path) -> None:
        assert left(place)
        assert [name for name in lab_of(place).files() if not name.startswith(".")] == []

    kill_at_every_call(tmp_path, scene("epilog", prepare, frozenset({0})), check=check, finished=finished, least=8)


def test_what_the_helper_left_is_noted_before_the_execution_file_goes(tmp_path: Path) -> None:
    def prepare(lab: Lab) -> None:
        started(lab)
        made = lab.run_folder / f"7.{START}.d"
        made.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(made, int(OWNER), -1)
        lines = (lab.run_folder / f"7.{START}").read_text().splitlines()
        attempt = next(line.partition("=")[2] for line in lines if line.startswith("DISPATCH_ATTEMPT="))
        (made / "ended").write_text(json.dumps({"v": 1, "attempt": attempt, "epoch": "1000000", "status": 3}))

    def left(place: Path) -> list[str]:
        lab = nothing_torn(place)
        return [path.name for folder in (lab.notes, lab.spool) for path in folder.glob("handed.*")]

    def check(place: Path, point: Point) -> None:
        assert f"7.{START}" in lab_of(place).files() or left(place), "what the helper left is lost"

    def finished(place: Path) -> None:
        assert left(place)
        assert f"7.{START}" not in lab_of(place).files()

    kill_at_every_call(tmp_path, scene("epilog", prepare, frozenset({0})), check=check, finished=finished, least=10)
