"""What had returned is there after a power loss, and the test would see it if it were not.

These need a second kernel (``user-mode-linux``); where it does not run they fail and say why.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.power.cycles import GUEST, KINDS, Disk, Story, run, table
from tests.uml.kernel import Kernel, KernelError, make_image

if TYPE_CHECKING:
    from collections.abc import Iterator

CYCLES = 6
CALLS = 60
"""On a disk with room for two saves, and one that takes no write."""
FORGOTTEN = [("folder", kind) for kind in KINDS] + [("file", kind) for kind in ("fact", "kept", "published")]
"""Which fsync is left out, and the statement right after which the power goes: what it names is what is lost then."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder for disks, of which nothing is left: they are large."""
    folder = tmp_path / "power"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def running(folder: Path) -> list[str]:
    """Processes whose command line names the folder (that of one that is dead is empty)."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if process.name.isdigit() and bytes(folder) in line:
            found.append(f"{process.name}: {line!r}")
    return found


def test_what_had_returned_is_there_after_every_loss(place: Path) -> None:
    """C119: publications, kept saves, facts, notes and choices, after a loss right behind each and in mid-write."""
    seed = os.environ["SEED"]
    result = run(place, CYCLES, seed)
    said = table(result, seed)
    print(said)
    assert not result.lost, said
    assert result.kills == CYCLES
    # Each is seen to have been written, and looked after.
    assert not [kind for kind in KINDS if not result.returned[kind]], said
    assert not [kind for kind in KINDS if kind != "thinned" and not result.looks[kind]], said
    assert not running(place)


def test_a_product_that_forgets_to_sync_is_found(place: Path) -> None:
    """Without the fsync of folders, or of files, the last thing that was told is gone or torn, every time."""
    story = Story(place, [Disk(mutant=mutant) for mutant, _ in FORGOTTEN], os.environ["SEED"])
    story.lose([(kind, 1) for _, kind in FORGOTTEN])
    result = story.look()
    lost = Counter((disk, kind) for disk, kind, _, _ in result.lost)
    missed = []
    for disk, (mutant, kind) in enumerate(FORGOTTEN):
        # A thinning writes nothing: what was published before it is what goes.
        if not lost[disk, "published" if kind == "thinned" else kind]:
            missed.append((mutant, kind, [entry for entry in result.lost if entry[0] == disk]))
    assert not missed, missed


def test_a_disk_that_is_full_or_fails_is_heard_and_nothing_that_returned_is_lost(place: Path) -> None:
    """C121: no call returns as if it had written when the disk says no; a publisher that is deaf to it is found."""
    full, failing, deaf = range(3)
    disks = [Disk(size=64 << 20), Disk(), Disk(mutant="deaf")]
    story = Story(place, disks, os.environ["SEED"])
    story.fail([None, ("kept", 1), ("kept", 1)], CALLS)
    result = story.look()
    raised = [[error for at, error, _ in result.raised if at == disk] for disk in range(3)]
    assert any("No space left" in error for error in raised[full]), raised[full]
    assert any(error.startswith("publish_kept: ") for error in raised[failing]), raised[failing]
    # In a save the training fails too, and in a tick the site's hooks do.
    strange = [error for _, error, ours in result.raised if not ours and not error.startswith(("save: ", "tick: "))]
    assert not strange
    assert ("published" not in [kind for disk, kind in result.behind if disk == failing]), result.behind
    lost = [entry for entry in result.lost if entry[0] != deaf]
    assert not lost, lost
    # The one that does not listen told of a publication that is not there.
    assert (deaf, "published") in result.behind
    assert any(entry[:2] == (deaf, "published") for entry in result.lost), result.lost


def test_a_machine_without_the_kernel_is_an_error_that_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(KernelError, match=r"linux\.uml is not installed: tools/ensure-host user-mode-linux"):
        Kernel(GUEST, place / "config", [])


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_a_kernel_that_does_not_come_up_is_an_error_with_its_last_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    program = place / "linux.uml"
    program.write_text(f"#!/bin/sh\necho 'Checking that ptrace can change system call numbers... failed'\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    with (
        pytest.raises(KernelError, match=r"(?s)second kernel \(linux\.uml\) ended with .*ptrace can change.*failed"),
        Kernel(GUEST, place / "config", []) as kernel,
    ):
        list(kernel.statements())


def test_a_disk_that_cannot_be_mounted_is_an_error(place: Path) -> None:
    make_image(place / "disk0")
    story = Story(place, [Disk(options="no_such_option")], "1")
    with pytest.raises(KernelError, match="mount"):
        story.look()
    assert not running(place)
