"""What is left of root in the child that touches a shared folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOKS = Path(__file__).resolve().parents[2] / "hooks" / "python"
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from dispatch_hooks import child
os.setgroups([0, 4, 65000])
child.become(sys.argv[2])
print(open("/proc/self/status").read())
"""


@pytest.mark.parametrize("user", ["65533", "nobody"])
def test_nothing_of_root_is_left(user: str) -> None:
    """P10: ids, groups and capabilities; a group of root's would open what SlurmUser must not."""
    assert os.geteuid() == 0, "this test gives up root: run it as root"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", PROGRAM, str(HOOKS), user],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert len(set(lines["Uid"].split())) == len(set(lines["Gid"].split())) == 1
    assert "0" not in lines["Uid"].split() + lines["Gid"].split()
    assert lines["Groups"].split() == []
    assert [int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")] == [0, 0, 0]
