"""A root in S3 on the real cluster: the main job saves on its nodes' own disks, and a real server has its root.

What is between two hosts' disks, Slurm and the store, and so is in no other test: a run that was replaced goes on
saving and uploading; the next one, on another host, has nothing but what was published; and the store goes away.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from demo import promises
from docker.rig import PATIENCE_S, STATE
from tests.cluster.store import DISK, RemoteJob, Store
from tests.s3.servers import KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.witness import Account, Execution
    from docker.rig import Cluster

RULE = "preempted,node_fail,cancelled:resubmit,budget=20"
LONG_S = 2 * PATIENCE_S
RANK = """#!/bin/sh
# What a rank has: its host and rank, its variables, and the bytes of the save that it resumes from.
cd "${DISPATCH_RESUME:-$DISPATCH_DIR}" || exit 9
sums=$(sha256sum -- * 2>/dev/null | sha256sum | cut -c1-16)
echo "rank $SLURM_PROCID $(hostname) $DISPATCH_RESUME_STEP $sums $DISPATCH_RESUME" >"$1/rank-$SLURM_PROCID"
ls -A "$(dirname -- "$(dirname -- "$DISPATCH_RESUME")")" >"$1/resumes-$SLURM_PROCID"
"""


@pytest.fixture(scope="module")
def store(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server that all hosts reach, and hosts that can use it."""
    made = Store(cluster, tmp_path_factory.mktemp("seaweed"))
    try:
        made.up()
        yield made
    finally:
        made.server.stop(signal.SIGKILL)
        cluster.run("login", ["rm", "-rf", "/home/ada/.aws"])


def late(job: RemoteJob, old: Execution, new: Execution) -> bool:
    """Whether the old execution published after the new one had begun to train."""
    return promises.late_publications(job.account(), old, new) > 1


def test_a_ghost_uploads_beside_its_replacement(cluster: Cluster, store: Store) -> None:
    """Frozen, the node's slurmd cannot end the run that was preempted, and nothing cuts it off the store."""
    job = RemoteJob(store, "ghost")
    try:
        job.begin(["--exclusive", "--nodes=1"], rule=RULE)
        old = job.wait_execution(1)
        job.wait_published(old, 2)
        cluster.fault("stop-slurmd", old.host)
        wants = ["--partition=high", "--exclusive", f"--nodelist={old.host}", "--time=5", "--output=/dev/null"]
        other = cluster.submit("ben", "#!/bin/sh\nexec sleep 600\n", wants)
        new = job.wait_execution(2)
        cluster.run("login", ["scancel", str(other)], user="ben")
        assert new.host != old.host
        job.wait_published(new, 3)
        job.wait("the ghost to publish beside it", lambda: late(job, old, new))
        while_the_store_is_away(job, store, new)
        as_the_user(job)
        closed = job.finish()
        assert closed["why"] == "completed", job.picture()
        check_promises(job, old, new)
        check_thinned(job, store, new)
        check_all_of_it(job)
        assert job.dispatch("result", job.key) == f"{job.root}/exec/{new.attempt}\n"
        check_secrets(job)
        on_two_hosts(job, store)
    finally:
        job.stop()
        for node in cluster.nodes:
            cluster.fault("heal", node)


def while_the_store_is_away(job: RemoteJob, store: Store, new: Execution) -> None:
    """The training goes on, and what it saved last is published once the store is there again."""
    store.server.stop(signal.SIGKILL)
    try:
        steps = len(new.of("step"))

        def trained() -> bool:
            job.said = logs = job.logs_only()
            found = logs.execution(new.epoch)
            return found is not None and len(found.of("step")) > steps + 30 and len(found.of("saved")) > 3

        job.wait("the training to go on without the store", trained)
    finally:
        store.server.start()
    reached = max(line["step"] for line in job.said.execution(new.epoch).of("saved"))
    job.wait(
        "what was saved meanwhile, or later, to be published",
        lambda: any(one.publication.step >= reached for one in job.account().published_by(new.epoch)),
        LONG_S,
    )


def as_the_user(job: RemoteJob) -> None:
    """The commands on the login host, of a root into which two runs write."""
    rows = json.loads(job.dispatch("ls", "--root", job.root, "--json"))
    assert {row["epoch"] for row in rows} == {"1000000", "2000000"}
    assert f"/exec/{rows[0]['path'].split('/')[1]}/" in job.latest()
    taken = json.loads(job.dispatch("du", job.root, "--json"))
    assert len([row for row in taken if row["epoch"] and row["bytes"]]) == 2, taken


def check_all_of_it(job: RemoteJob) -> None:
    """Nothing is wrong; the ghost, which was told to end too, may be thinning while one looks."""

    def well() -> bool:
        looked = json.loads(job.dispatch("fsck", job.root, "--json", check=False))
        assert looked["owners"] == {"0": job.key}
        assert len(looked["executions"]) == 2
        return (looked["faults"], looked["troubles"]) == ([], [])

    job.wait("fsck to find nothing", well)


def check_promises(job: RemoteJob, old: Execution, new: Execution) -> None:
    """All of what is promised of the main job, from its own logs and the names in ``pub/``."""
    known = job.account()
    assert len(known.executions) == 2, job.picture()
    resumed_from_last(known, known.executions[1])
    place, save = job.latest(), job.fetched()
    state = job.state(save)
    broken = promises.epochs_rise(known) + promises.lineage_is_right(known, state, job.replay(save))
    broken += promises.old_runs_changed_nothing(known, state, place)
    assert broken == [], job.picture()
    assert max(one.publication.step for one in known.published_by(old.epoch)) > 0
    resume = str(known.executions[1].start["resume"])
    assert resume.startswith(f"{DISK}/{new.attempt}/resume/"), resume


def resumed_from_last(known: Account, new: Execution) -> None:
    """As :func:`promises.resumed_from_last`, where the store tells whole seconds of a publication's time only."""
    before = [found for found in known.published if found.publication.epoch < new.epoch]
    possible = {(one.publication.epoch, one.publication.step) for one in before if one.at <= new.start["at"]}
    sure = [(one.publication.epoch, one.publication.step) for one in before if one.at + 1.0 <= new.start["began"]]
    assert new.resumed is not None
    assert new.resumed in possible
    assert new.resumed >= max(sure), (new.resumed, sure)


def check_thinned(job: RemoteJob, store: Store, new: Execution) -> None:
    """Three published saves of the root at most are there beside the one of the greatest step."""
    root = store.opened(job.root)
    kept = root.entries(f"exec/{new.attempt}/kept".encode())
    assert 2 <= len(kept) <= 4, kept
    assert len(job.account().published_by(new.epoch)) > len(kept)


def check_secrets(job: RemoteJob) -> None:
    """What is in the user's files is neither in the record nor in what was said."""
    found = job.cluster.run("login", ["grep", "-rlE", f"{SECRET}|{KEY}", f"{STATE}/jobs/{job.key}", job.folder],
                            user="ada", check=False)  # fmt: skip
    assert (found.status, found.stdout) == (1, ""), found


def on_two_hosts(job: RemoteJob, store: Store) -> None:
    """A helper on each rank: all have the save that rank 0 chose, and each host has brought it once."""
    job.cluster.write(f"{job.folder}/rank.sh", RANK, user="ada", mode="755")
    script = "\n".join([
        "#!/bin/sh", "#SBATCH --job-name=two --nodes=2 --ntasks=4 --ntasks-per-node=2",
        f"#SBATCH --output={job.folder}/out-two", f"#DISPATCH --checkpoint {job.root}",
        f"exec srun dispatch-watch --from {DISK} -- {job.folder}/rank.sh {job.folder}", "",
    ])
    job.cluster.write(f"{job.folder}/two.sh", script, user="ada")
    argv = ["dispatch", "sbatch", "--adopt-root", f"{job.folder}/two.sh"]
    answer = job.cluster.run("login", argv, user="ada", cwd=job.folder).stdout
    two = int(answer.removeprefix("Submitted batch job ").strip())
    job.cluster.wait_job(two, ["COMPLETED", "FAILED"], LONG_S)
    out = job.cluster.read(f"{job.folder}/out-two")
    ranks = [job.cluster.read(f"{job.folder}/rank-{rank}").split() for rank in range(4)]
    assert [line[:2] for line in ranks] == [["rank", str(rank)] for rank in range(4)], out
    hosts = [line[2] for line in ranks]
    assert len(set(hosts)) == 2, ranks
    last = os.path.basename(job.latest())
    assert {line[3] for line in ranks} == {last.removeprefix("checkpoint-")}, ranks
    assert len({line[4] for line in ranks}) == 1, ranks
    assert {os.path.basename(line[5]) for line in ranks} == {last}
    assert len(re.findall(r"downloading .*, 4 of 4 files,", out)) == 2, out
    for rank in range(4):
        assert len(job.cluster.read(f"{job.folder}/resumes-{rank}").split()) == 1
