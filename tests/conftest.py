"""What all tests share: one seed, and for those that need it a real cluster of their own.

``SEED=N`` repeats a run's random choices. ``DISPATCH_KEEP=1`` leaves the cluster up after the tests and takes
one that is up already, for work on tests; without it each worker begins with a new one.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from docker.rig import Cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
ON_A_CLUSTER = tuple(os.path.join(HERE, part) + os.sep for part in ("cluster", "docker"))
"""The folders whose tests need the real cluster."""
_LONGEST = "preemptions engine transformers savers trials faults cessation_jobs cessation tick backup"
LONGEST = tuple(os.path.join(HERE, "cluster", f"test_{name}.py") for name in _LONGEST.split())
"""The files that take minutes, longest first: they begin first, or the last of them keeps one worker when all others
are done."""

USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
"""What a command ignores that a shell puts into the background, or nohup begins: its own programs would, too."""

# A loaded machine is no reason for a test to fail, and a failure must be repeatable.
hypothesis.settings.register_profile(
    "here", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for all workers, which inherit this environment; signals as a person at a terminal has them."""
    for number, usual in USUAL.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    os.environ.setdefault("SEED", str(secrets.randbelow(2**32)))
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = os.environ["SEED"]


def pytest_report_header() -> str:
    """The seed, where everybody sees it."""
    return f"SEED={os.environ['SEED']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed again with the failures, since ``-q`` prints no header."""
    terminalreporter.write_line(f"SEED={os.environ['SEED']} repeats the random choices of this run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the cluster, before ``-m`` selects, and begin with the longest files."""
    rank = {path: number for number, path in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(str(item.path), len(rank)))
    for item in items:
        if str(item.path).startswith(ON_A_CLUSTER):
            item.add_marker("cluster")


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """The next test of the process is as it is alone: who needs another umask gives it back."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    after = os.umask(before)
    assert oct(after) == oct(before), "this test leaves another umask to the next"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random choices of one test: repeated by ``SEED``, whatever else runs."""
    return random.Random(f"{os.environ['SEED']} {request.node.nodeid}")


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A folder that every user can reach: pytest's own lie below one that only root may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-dispatch-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Cluster]:
    """The worker's own cluster. A missing engine is an error here, never a skip."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    cluster = Cluster(f"{Cluster().name}-{worker}")
    keep = bool(os.environ.get("DISPATCH_KEEP"))
    if not keep:
        cluster.down()
    cluster.up()
    yield cluster
    if not keep:
        cluster.down()


@pytest.fixture(scope="module")
def cluster(session_cluster: Cluster) -> Cluster:
    """The worker's cluster, as good as new at the beginning of each module: idle, no jobs, notes or records."""
    session_cluster.reset()
    return session_cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the cluster looked like when a test failed."""
    report = yield
    if report.failed and report.when != "teardown":
        found = getattr(item, "funcargs", {}).get("cluster")
        if isinstance(found, Cluster):
            report.sections.append(("the cluster", found.picture()))
    return report
