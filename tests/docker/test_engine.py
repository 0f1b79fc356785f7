"""docker/ensure-engine starts an engine again that was killed with everything that it ran.

In namespaces of its own: its processes, network, ``/run`` and ``/var/lib/docker`` are none of the machine's, so
that everything can be killed. It needs root.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from docker.rig import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from docker.rig import Cluster

PROLOGUE = r"""
set -eux
root=$1 folder=$2
export TMPDIR=$folder
mount --make-rprivate /
mkdir -p /var/lib/docker "$folder/lib" "$folder/run/lock"
mount --bind "$folder/lib" /var/lib/docker
mount --bind "$folder/run" /run
test /var/run -ef /run || mount --bind "$folder/run" /var/run
ip link set lo up

sleeps() { test "$(docker inspect -f '{{.State.Running}}' sleeper)" = "$1"; }

"$root/docker/ensure-engine"
# An image with nothing in it, and the machine's own programs.
tar -c -T /dev/null | docker import - empty >/dev/null
docker run -d --name sleeper --network none -v /usr:/usr:ro -v /lib:/lib:ro -v /lib64:/lib64:ro empty \
    /usr/bin/sleep infinity >/dev/null
sleeps true
"""
EVERYTHING = r"""
# This shell is process 1, and is spared.
kill -KILL -1
# The numbers that the engine left belong to somebody else now.
sleep 1000 &
for file in /run/docker.pid /run/docker/containerd/containerd.pid; do
    test -s "$file"
    printf %s "$!" >"$file"
done
test -S /run/docker.sock
"$root/docker/ensure-engine"
sleeps false
docker start sleeper >/dev/null
sleeps true
echo fine
"""
ENGINE_ONLY = r"""
pkill -KILL -x dockerd
# It dies with its parent, or is killed here.
pkill -KILL -x containerd || :
while pgrep -x 'dockerd|containerd' >/dev/null; do sleep 0.05; done
pgrep -f containerd-shim >/dev/null
"$root/docker/ensure-engine"
docker start sleeper >/dev/null
sleeps true
# The one that lived on is gone; a zombie does not count, since nobody reaps it here.
test "$(ps -C sleep -o stat= | grep -vc Z)" = 1
echo fine
"""
TERMINATED = r"""
kill -TERM -1
"$root/docker/ensure-engine"
docker start sleeper >/dev/null
sleeps true
echo fine
"""


def survives(folder: Path, script: str) -> None:
    words = ["unshare", "-mnpf", "--mount-proc", "--kill-child=KILL", "sh", "-c", PROLOGUE + script, "sh"]
    done = subprocess.run([*words, ROOT, str(folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=500, check=False)
    assert (done.returncode, done.stdout.split("\n")[-2:]) == (0, ["fine", ""]), done.stderr


def test_everything_killed_and_its_numbers_given_to_others(cluster: Cluster, tmp_path: Path) -> None:
    del cluster  # the engine is installed
    survives(tmp_path, EVERYTHING)


def test_only_the_engine_killed_while_its_containers_live(cluster: Cluster, tmp_path: Path) -> None:
    del cluster
    survives(tmp_path, ENGINE_ONLY)


def test_everything_told_to_end_and_asked_for_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """The old engine is still ending when the new one is asked for."""
    del cluster
    survives(tmp_path, TERMINATED)
