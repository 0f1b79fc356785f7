"""What the documents name is there."""

import re
from pathlib import Path

import pytest

from slurm_dispatch.cli.main import COMMANDS

TOP = Path(__file__).resolve().parent.parent
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").glob("*.md"), TOP / "tests" / "CASES.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_commands_exist(page: Path) -> None:
    for line in re.findall(r"`dispatch ([a-z]+)[^`]*`", page.read_text("utf-8")):
        assert line in COMMANDS, f"{page.name} speaks of dispatch {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE))
    for name in re.findall(r"`?make ([a-z-]+)`", page.read_text("utf-8")):
        assert name in targets, f"{page.name} speaks of make {name}"


def test_every_command_has_a_module_with_help() -> None:
    from click.testing import CliRunner

    from slurm_dispatch.cli.main import dispatch

    for name in COMMANDS:
        result = CliRunner().invoke(dispatch, [name, "--help"])
        assert result.exit_code == 0, f"dispatch {name} --help: {result.output}"
        assert "xample" in result.output or name == "sbatch", f"dispatch {name} --help shows no example"


def test_the_help_of_sbatch_names_each_of_our_options() -> None:
    from slurm_dispatch.cli.sbatch import HELP
    from slurm_dispatch.submit.command_line import OWN

    named = set(re.findall(r"--([a-z-]+)", HELP))
    assert {name for name in OWN if not name.startswith("no-") or name == "no-plan"} <= named
    assert "--no-NAME" in HELP
