"""What tests on the real cluster share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docker.rig import PATIENCE_S
from tests.cluster.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    """Jobs of ada; none is left behind."""
    yield Jobs(cluster)
    cluster.run("ctl", ["scancel", "-u", "ada"], check=False)
    cluster.wait_until(cluster.nodes_idle, PATIENCE_S, "all nodes to be idle")
