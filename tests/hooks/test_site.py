"""The stubs that slurm.conf names, and the installation."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.config.site import load_site
from tests.hooks.lab import DEADLINE_S, NAMES, SHELLS, START, TOP, Lab, run

from dispatch_hooks import settings  # isort: skip

if TYPE_CHECKING:
    from pathlib import Path

STUBS = TOP / "site" / "stubs"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shell", list(SHELLS))
def test_a_stub_ends_with_0_where_nothing_is_installed(tmp_path: Path, name: str, shell: str) -> None:
    stub = tmp_path / name
    stub.write_text((STUBS / name).read_text().replace("/usr/libexec", str(tmp_path)))
    ended = run([SHELLS[shell], str(stub)], {})
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_goes_on_to_its_hook_and_passes_the_status_on(tmp_path: Path, name: str) -> None:
    stub, hook = tmp_path / name, tmp_path / "slurm-dispatch" / name
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 9\n")
    hook.chmod(0o755)
    stub.write_text((STUBS / name).read_text().replace("/usr/libexec", str(tmp_path)))
    assert run(["/bin/sh", str(stub)], {}).status == 9
    hook.chmod(0o644)
    assert run(["/bin/sh", str(stub)], {}).status == 0


def test_the_stubs_are_those_of_the_hooks() -> None:
    assert sorted(path.name for path in STUBS.iterdir()) == sorted(NAMES)
    lines = (TOP / "site" / "slurm.conf.lines").read_text()
    assert sorted(re.findall(r"^\w+=/etc/slurm/dispatch/(\S+)$", lines, re.MULTILINE)) == sorted(NAMES)


@pytest.mark.parametrize("folder", ["site", "docker"])
def test_the_hooks_and_the_commands_agree_on_the_state_folder(folder: str) -> None:
    hooks = settings.load(str(TOP / folder / "node.conf"), "/run/slurm-dispatch")
    assert hooks.troubles == []
    commands = load_site(str(TOP / folder / "dispatch.toml"))
    assert (hooks.notes, hooks.slurm_user) == (f"{commands.state}/notes", commands.slurm_user)


def test_an_installation_runs_and_can_be_repeated(tmp_path: Path) -> None:
    install = [str(TOP / "site" / "install-hooks"), str(tmp_path / "root")]
    conf = tmp_path / "root" / "etc" / "slurm-dispatch" / "node.conf"
    for text in (None, "# the site's own\n"):
        if text is not None:
            conf.write_text(text)
        subprocess.run(install, check=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
        assert text is None or conf.read_text() == text
    hooks = tmp_path / "root" / "usr" / "libexec" / "slurm-dispatch"
    lab_folder = tmp_path / "lab"
    lab_folder.mkdir()
    lab = Lab(lab_folder, hooks=hooks)
    for name in NAMES:
        assert lab.run(name).status == 0
    assert lab.names() == ["end", "node", "start"]
    assert not [path for path in hooks.rglob("*") if path.name.endswith(".new")]
    assert list((hooks / "python" / "dispatch_hooks" / "__pycache__").glob("main.*.pyc"))
    assert lab.note("start.*")["start_time"] == START
