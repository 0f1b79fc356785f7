"""``node.conf`` is parsed, never sourced, and a mistake in it costs its own line only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import TOP, Lab

from dispatch_hooks import settings  # isort: skip

if TYPE_CHECKING:
    from pathlib import Path


def load(tmp_path: Path, text: str | bytes) -> object:
    path = tmp_path / "node.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return settings.load(str(path), "/run/x")


def test_every_setting_of_the_sample_is_known() -> None:
    found = settings.load(str(TOP / "site" / "node.conf"), "/run/x")
    assert found.troubles == []
    assert (found.notes, found.slurm_user, found.deadline_s) == ("/shared/slurm-dispatch/notes", "slurm", 5.0)
    assert found.spool == "/var/spool/slurm-dispatch"


@pytest.mark.parametrize(
    "line",
    [
        "notes=relative",
        "notes",
        "deadline_s=soon",
        "deadline_s=0",
        "deadline_s=nan",
        "slurm_user=",
        "nothing=1",
        "\xff=1",
    ],
)
def test_a_wrong_line_is_named_and_keeps_its_default(tmp_path: Path, line: str) -> None:
    found = load(tmp_path, f"# first\n{line}\nspool=/other\n")
    assert (found.notes, found.slurm_user, found.deadline_s, found.spool) == (None, "slurm", 5.0, "/other")
    (trouble,) = found.troubles
    assert "line 2" in trouble


def test_commands_in_it_are_data(system_lab: Lab) -> None:
    evil = system_lab.folder / "evil"
    with system_lab.conf.open("a") as file:
        file.write(f"$(touch {evil})\nspool=/$(touch {evil})\n. /nonexistent\nexit 1\n")
    for hook in ("prolog-slurmctld", "prolog", "epilog", "epilog-slurmctld"):
        assert system_lab.run(hook).status == 0
    assert not evil.exists()
    assert system_lab.names() == ["end", "node", "start"]


@pytest.mark.parametrize("content", [None, b"\0" * 70_000, b"\xff" * 100])
def test_a_file_that_is_missing_or_nonsense_costs_nobody_a_node(system_lab: Lab, content: bytes | None) -> None:
    system_lab.conf.unlink()
    if content is not None:
        system_lab.conf.write_bytes(content)
    for hook in ("prolog-slurmctld", "prolog", "epilog-slurmctld"):
        assert system_lab.run(hook).status == 0
    assert len(system_lab.files()) == 1
