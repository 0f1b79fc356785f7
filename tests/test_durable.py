"""Files that are there whole or not at all: what is on disk before it is said, and what a lost answer comes to."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from slurm_dispatch import durable
from slurm_dispatch.durable import create_whole
from slurm_dispatch.errors import StoreError
from tests.kill import Run, run

MAKE = """
import sys
from slurm_dispatch.durable import create_whole
print(create_whole(sys.argv[1], "fact", b"text"))
"""
TOP = Path(__file__).resolve().parent.parent


def test_a_file_is_on_disk_before_its_name_and_its_name_before_the_answer(tmp_path: Path) -> None:
    """C119, P6, P7: intents, decisions, choices and notes are all made so."""
    program = Run([sys.executable, "-c", MAKE, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(TOP)})
    calls = "fsync,write,?link,linkat,?unlink,unlinkat"
    ended = run(program, "-y", "-e", f"trace={calls}", trace=tmp_path / "trace")
    assert (ended.status, ended.stdout) == (0, b"True\n"), ended.stderr
    folder = re.escape(os.path.realpath(tmp_path))
    wanted = [
        rf'write\(\d+<{folder}/\.tmp-\w+>, "text"',
        rf"fsync\(\d+<{folder}/\.tmp-\w+>\) += 0",
        rf'link(at)?\(.*{folder}/fact"',
        rf'unlink(at)?\(.*{folder}/\.tmp-\w+"',
        rf"fsync\(\d+<{folder}>\) += 0",
        r"write\(1<.*True",
    ]
    at = 0
    for line in ended.trace:
        if at < len(wanted) and re.search(wanted[at], line):
            at += 1
    assert at == len(wanted), f"did not see {wanted[at]} in its place:\n" + "\n".join(ended.trace[-40:])


def test_the_second_gets_no_and_changes_nothing(tmp_path: Path) -> None:
    """P7: one of many makes it."""
    assert create_whole(str(tmp_path), "fact", b"first")
    assert not create_whole(str(tmp_path), "fact", b"second")
    assert (tmp_path / "fact").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["fact"]


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO])
def test_a_link_that_was_made_and_answered_with_an_error_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The answer of a server can be lost, and the repeated request finds the name there: it is ours all the same."""
    real = os.link

    def lost(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        real(source, target, follow_symlinks=follow_symlinks)
        raise OSError(error, os.strerror(error), target)

    monkeypatch.setattr(os, "link", lost)
    assert create_whole(str(tmp_path), "fact", b"text")
    assert os.listdir(tmp_path) == ["fact"]


def test_a_link_that_was_not_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        del source, follow_symlinks
        raise OSError(errno.EIO, os.strerror(errno.EIO), target)

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(StoreError):
        create_whole(str(tmp_path), "fact", b"text")
    assert os.listdir(tmp_path) == []


def test_replacing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o077)
    try:
        durable.replace_whole(str(tmp_path), "hint", b"one", mode=0o644)
    finally:
        os.umask(before)
    assert ((tmp_path / "hint").read_bytes(), (tmp_path / "hint").stat().st_mode & 0o777) == (b"one", 0o644)

    def full(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[:1])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(durable, "write_all", full)
    with pytest.raises(OSError, match="full"):
        durable.replace_whole(str(tmp_path), "hint", b"two", mode=0o644)
    assert (os.listdir(tmp_path), (tmp_path / "hint").read_bytes()) == (["hint"], b"one")
