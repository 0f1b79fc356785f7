#!/usr/bin/env python3
"""The demo: one real training on a real Slurm cluster, hit by three faults, told as a timeline.

``python3 -m demo [--keep]``, or ``make demo``. Starts the cluster if it is not up, submits the training as ada,
lets ``high`` preempt it, lets an operator cancel it, cuts its node off the network and heals it again, and
checks every promise. Ends with 0 if all were kept, with 1 if one was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from demo import promises, timeline
from demo.mainjob import MainJob
from docker.rig import Cluster, ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.witness import Execution

Moments = list[tuple[float, str]]


class Story:
    """The job and what was done to it, told while it happens."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.job = MainJob(cluster, "licences")
        self.moments: Moments = []
        self.began = time.time()

    def tell(self, what: str) -> None:
        """Say what is done now, and keep it for the timeline."""
        self.moments.append((time.time(), what))
        print(f"  {time.time() - self.began:5.1f} s  {what}", file=sys.stderr, flush=True)

    def fault(self, number: int, what: str, act: Callable[[Execution], None]) -> tuple[Execution, Execution]:
        """Wait until execution ``number`` has published twice, do it, wait for the overlap with its replacement."""
        old = self.job.wait_execution(number)
        self.job.wait_published(old, 2)
        self.tell(what.format(node=old.host))
        act(old)
        new = self.job.wait_execution(number + 1)
        self.tell(f"execution {number + 1} trains on {new.host}")
        self.job.wait_published(new, 2)
        return old, new

    def play(self) -> list[str]:
        """The whole story; the promises that were broken."""
        job, cluster = self.job, self.cluster
        job.submit()
        self.tell(f"ada submits Slurm job {job.first_id} with dispatch sbatch; its key is {job.key}")
        beside = []

        def preempt(old: Execution) -> None:
            wants = ["--partition=high", "--exclusive", f"--nodelist={old.host}", "--output=/dev/null"]
            cluster.submit("ben", "#!/bin/sh\nexec sleep 15\n", wants)

        beside.append(self.fault(1, "ben's job in partition high preempts it on {node}", preempt))
        beside.append(self.fault(2, "an operator cancels it with scancel", self.cancel))
        beside.append(self.fault(3, "{node} is cut off the network, its processes live on", self.cut))
        node = beside[-1][0].host
        job.wait_overlap(*beside[-1])
        cluster.fault("heal", node)
        self.tell(f"{node} is healed, its old processes still there")
        last = beside[-1][1]
        job.wait_published(last, len(job.account().published_by(last.epoch)) + 4)
        self.tell("the training is told to end")
        closed = job.finish()
        self.tell(f"the record is closed: {closed['why']}")
        broken = job.broken()
        known = job.account()
        for old, new in beside:
            first, second = known.execution(old.epoch), known.execution(new.epoch)
            if first is None or second is None or promises.ran_beside(first, second) <= 0:
                broken.append(f"epoch {old.epoch} did not write beside epoch {new.epoch}")
        if closed["why"] != "completed":
            broken.append(f"the record was closed as {closed['why']}: {closed['reason']}")
        return broken

    def cancel(self, old: Execution) -> None:
        self.cluster.run("ctl", ["scancel", old.slurm_id])

    def cut(self, old: Execution) -> None:
        self.cluster.fault("cut", old.host)


def run(cluster: Cluster) -> int:
    """Play the story and print its timeline; the demo's status."""
    story = Story(cluster)
    try:
        broken = story.play()
    except ClusterError as error:
        print(f"the story stopped: {error}", file=sys.stderr)
        return 1
    save = story.job.latest()
    print(timeline.render(story.job.account(), story.moments, story.job.facts(), story.job.state(save)))
    for sentence in broken:
        print(f"BROKEN: {sentence}")
    if broken:
        print(story.job.picture(), file=sys.stderr)
    else:
        print("Every promise was kept.")
    return 1 if broken else 0


def main() -> int:
    """0 every promise was kept; 1 one was broken, or the story stopped."""
    parser = argparse.ArgumentParser(prog="python3 -m demo", description="the demo on the real cluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    options = parser.parse_args()
    cluster = Cluster()
    began = time.monotonic()
    print("starting the cluster", file=sys.stderr, flush=True)
    try:
        cluster.up()
        cluster.reset()
        status = run(cluster)
    except ClusterError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            cluster.down()
    print(f"The demo took {time.monotonic() - began:.0f} s.", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
