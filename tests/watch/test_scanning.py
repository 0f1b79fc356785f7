"""What a scan finds in real folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import AbsentError
from slurm_dispatch.watch import scanning
from slurm_dispatch.watch.pattern import parse_pattern
from slurm_dispatch.watch.scanning import scan

if TYPE_CHECKING:
    from pathlib import Path


def steps(folder: Path, pattern: str = "checkpoint-{step}") -> list[int]:
    return [one.step for one in scan(str(folder), parse_pattern(pattern)).found]


def test_order_is_by_step_and_not_by_name_or_time(tmp_path: Path) -> None:
    """C088: mtime is never used."""
    for step in (100, 9, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        os.utime(tmp_path / f"checkpoint-{step}", (1000 - step, 1000 - step))
    assert steps(tmp_path) == [9, 20, 100]


def test_the_helper_s_own_folders_are_no_saves(tmp_path: Path) -> None:
    for name in ("kept", "resume", ".dispatch"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "a" / "2").mkdir(parents=True)
    assert steps(tmp_path, "*/{step}") == [2]


def test_deep_patterns(tmp_path: Path) -> None:
    (tmp_path / "run" / "5").mkdir(parents=True)
    (tmp_path / "run" / "6").mkdir()
    (tmp_path / "file").touch()
    assert steps(tmp_path, "r?n/{step}") == [5, 6]
    assert steps(tmp_path, "x*/{step}") == []
    assert steps(tmp_path, "*/{step}") == [5, 6]


def test_temporary_names(tmp_path: Path) -> None:
    """C100: an Orbax temporary folder is not a candidate; the final one is."""
    (tmp_path / "0.orbax-checkpoint-tmp-1703334121930256").mkdir()
    (tmp_path / "tmp-checkpoint-3").mkdir()
    (tmp_path / "0").mkdir()
    assert steps(tmp_path, "{step}") == [0]
    assert steps(tmp_path, "*{step}") == [0]


def test_what_does_not_match_hides_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with more samples than anybody looks at has the saves among them; too many saves are said."""
    monkeypatch.setattr(scanning, "ENTRIES_MAX", 5)
    for number in range(50):
        (tmp_path / f"sample{number}.png").touch()
    for step in (10, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
    listing = scan(str(tmp_path), parse_pattern("checkpoint-{step}"))
    assert [one.step for one in listing.found] == [10, 20]
    assert listing.troubles == ()
    listing = scan(str(tmp_path), parse_pattern("sample{step}.png"))
    assert len(listing.found) == 5
    assert "the rest is not looked at" in listing.troubles[0][1]


def test_hostile_names(tmp_path: Path) -> None:
    """Names that are no text, or more than a line, are names as others are."""
    for name in (b"check\npoint-7", b"\xff\xfe-8", b"checkpoint-9\n", b"checkpoint-\xd9\xa1"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))
    assert steps(tmp_path) == []
    assert steps(tmp_path, "*-{step}") == [7, 8]
    assert steps(tmp_path, "*{step}*") == [7, 8, 9]


def test_two_saves_of_one_step(tmp_path: Path) -> None:
    """C093: several saves of one step are said and not published, unless they are the same files."""
    (tmp_path / "step=10.ckpt").write_text("a")
    (tmp_path / "step=10-v1.ckpt").write_text("b")
    (tmp_path / "step=20.ckpt").write_text("c")
    os.link(tmp_path / "step=20.ckpt", tmp_path / "step=20-last.ckpt")
    listing = scan(str(tmp_path), parse_pattern("step={step}*.ckpt"))
    assert [one.step for one in listing.found] == [20]
    assert len(listing.troubles) == 1
    assert "both saves of step 10" in listing.troubles[0][1]


def test_leading_zeros_are_one_step(tmp_path: Path) -> None:
    for name in ("checkpoint-10", "checkpoint-010"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w").write_text(name)
    assert steps(tmp_path) == []


def test_links_are_no_saves(tmp_path: Path) -> None:
    """C094: what a link is called says nothing about what it will name later."""
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-2").symlink_to("/")
    listing = scan(str(tmp_path), parse_pattern("checkpoint-{step}"))
    assert [one.step for one in listing.found] == [1]
    assert "symbolic link" in listing.troubles[0][1]


def test_names_that_did_not_match(tmp_path: Path) -> None:
    for n in range(50):
        (tmp_path / f"x{n:02d}").touch()
    assert scan(str(tmp_path), parse_pattern("checkpoint-{step}")).names == tuple(f"x{n:02d}" for n in range(10))


def test_a_missing_folder_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(AbsentError):
        scan(str(tmp_path / "gone"), parse_pattern("checkpoint-{step}"))


def test_names_that_are_not_text(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/checkpoint-\xff1")
    assert steps(tmp_path) == []
    assert len(scan(str(tmp_path), parse_pattern("*{step}")).found) == 1
