"""``python -m tests.nfs.guest CONFIG``, in the second kernel: serve, mount twice, run tests, measure.

CONFIG is a JSON file: ``tools`` (folder with the programs of NFS), ``options`` (of the two mounts), ``tests`` (what
pytest is given), ``publications`` (how many are measured, 0 for none), ``mutant`` (whether the product looks at paths
where it should list their folders).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.store import best, choice, folders, keep, notes, root, whole
from tests.nfs import server
from tests.nfs.window import measure
from tests.store.kinds import NFS_MOUNTS
from tests.uml.channel import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

WHY_MAX = 3000


class Teller:
    """A plugin of pytest that tells what came of each test, on lines of its own."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test once: what it failed at, or that it was called, or that it was not."""
        if report.failed or report.skipped or report.when == "call":
            print(flush=True)
            tell("test", name=report.nodeid, outcome=report.outcome, why=report.longreprtext[-WHY_MAX:])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that does not load."""
        if report.failed:
            print(flush=True)
            tell("test", name=report.nodeid, outcome="failed", why=report.longreprtext[-WHY_MAX:])


def main(path: str) -> None:
    """All of it; trouble of its own is told as ``failed``."""
    try:
        with open(path, encoding="utf-8") as stream:
            config = json.load(stream)
        tools = server.Tools(config["tools"])
        server.start(tools, "/dev/ubda")
        mounts = [server.mount(tools, number, options) for number, options in enumerate(config["options"])]
        tell("mounted", clients=server.clients())
        if config["mutant"]:
            _mutate()
        if config["publications"]:
            tell("window", **measure(mounts[0], mounts[1], config["publications"]))
        if config["tests"]:
            _test(config["tests"], mounts, config["options"])
        tell("end")
    except Exception:
        tell("failed", why=traceback.format_exc())


def _mutate() -> None:
    for module in (best, choice, keep, notes, root, whole):
        assert module.is_listed is folders.is_listed  # type: ignore[attr-defined]
        module.is_listed = os.path.lexists  # type: ignore[attr-defined]


def _test(what: Sequence[str], mounts: Sequence[str], options: Sequence[str]) -> None:
    os.environ[NFS_MOUNTS] = ":".join(mounts)
    os.environ["NFS_OPTIONS"] = options[1]
    # The root is read-only, and the console is the channel.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = "/dev/tmp/hypothesis"
    words = ["-q", "-s", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", "/dev/tmp/pytest"]
    tell("pytest", status=int(pytest.main([*words, *what], plugins=[Teller()])))


if __name__ == "__main__":
    main(sys.argv[1])
