"""What docker/cluster and docker/fault say to somebody who asks for what is not there."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from docker.rig import ROOT, ClusterError

if TYPE_CHECKING:
    from docker.rig import Cluster


def said(script: str, *words: str, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run([os.path.join(ROOT, "docker", script), *words], env={**os.environ, **environ},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("script", "words", "line"), [
    ("cluster", ["dance"], "cluster: unknown command dance; see docker/cluster --help"),
    ("cluster", ["up", "now"], "cluster: up takes no argument"),
    ("cluster", ["shell", "c9"], "cluster: there is no host c9; the hosts are ctl login c1 c2 c3"),
    ("fault", ["burn", "c1"], "fault: unknown fault burn; see docker/fault --help"),
    ("fault", ["cut"], "fault: cut takes one node: c1 c2 c3"),
    ("fault", ["cut", "ctl"], "fault: there is no node ctl; the nodes are c1 c2 c3"),
    ("fault", ["crash-controller", "c1"], "fault: crash-controller takes no argument"),
    ("fault", ["kill-login", "login"], "fault: kill-login takes no argument"),
    ("base", ["sarge"], 'base: "sarge" is no release that the cluster knows; say trixie, bookworm or sid'),
])
def test_usage_is_one_line_and_64(script: str, words: list[str], line: str) -> None:
    assert said(script, *words) == (64, "", f"{line}\n")


@pytest.mark.parametrize("name", ["Two", "a b", "-x", "x-", "a/b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    status, _, err = said("cluster", "status", DISPATCH_CLUSTER=name)
    assert status == 64
    assert err.startswith(f'cluster: DISPATCH_CLUSTER is "{name}": use small letters')


def test_a_release_that_is_none_is_refused() -> None:
    assert said("cluster", "status", DISPATCH_RELEASE="sarge") == (
        64, "", 'cluster: "sarge" is no release that the cluster knows; say trixie, bookworm or sid\n'
    )


@pytest.mark.parametrize("release", ["trixie", "bookworm", "sid"])
def test_a_smaller_cluster_has_fewer_hosts(release: str) -> None:
    status, _, err = said("cluster", "shell", "c3", DISPATCH_RELEASE=release, DISPATCH_SMALL="1")
    assert (status, err) == (64, "cluster: there is no host c3; the hosts are ctl login c1 c2\n")


def test_help_names_every_command() -> None:
    status, out, _ = said("cluster", "--help")
    assert status == 0
    for word in ("up", "down", "shell", "logs", "refresh", "status", "name"):
        assert f"\n  {word} " in out
    status, out, _ = said("fault", "--help")
    assert status == 0
    for word in ("cut", "heal", "kill-slurmd", "stop-slurmd", "reboot", "pause", "unpause", "kill-node"):
        assert f"\n  {word} NODE " in out


def test_a_cluster_that_is_not_there_is_one_clear_line(cluster: Cluster) -> None:
    del cluster  # an engine must answer
    away = {"DISPATCH_CLUSTER": "never-made"}
    assert said("fault", "cut", "c1", **away) == (
        1, "", "fault: cluster never-made is not there; start it with docker/cluster up\n"
    )
    assert said("cluster", "shell", **away) == (
        1, "", "cluster: login is not running; start it with docker/cluster up\n"
    )
    assert said("cluster", "down", **away)[0] == 0


def test_a_fault_on_a_node_that_is_dead_says_how_to_undo_it(cluster: Cluster) -> None:
    cluster.fault("kill-node", "c3")
    with pytest.raises(ClusterError, match=r"c3 is exited, not running; docker/fault heal c3 undoes what was done"):
        cluster.fault("cut", "c3")
    cluster.fault("heal", "c3")


def test_logs_and_status_are_there_to_read(cluster: Cluster) -> None:
    environ = {"DISPATCH_CLUSTER": cluster.name}
    status, out, _ = said("cluster", "logs", "ctl", **environ)
    assert status == 0
    assert "==> ctl /var/log/slurm/slurmctld.log" in out
    status, out, _ = said("cluster", "status", **environ)
    assert status == 0
    assert "c3 " in out
