"""Records what the commands of a real cluster answer, for the tests that have no cluster.

``python3 -m tests.assets.record RELEASE`` (``trixie``: Slurm 24.11, ``bookworm``: 22.05, ``sid``: the newest) starts
a cluster of its own, makes every end of ``ends.py`` there and records what Slurm says of each in
``slurm-<version>/ends.json`` beside this file, and what each of the calls below answers in
``slurm-<version>/<name>.json``, with what it was called with. The nonce of the calls is a fixed one. It takes about
six minutes. ``DISPATCH_KEEP=1`` leaves the cluster up.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

from docker.rig import PATIENCE_S, Cluster
from slurm_dispatch.slurm.parse import ACCOUNT_FIELDS, queue_format
from tests.assets.ends import NONCE, Recording

HERE = Path(__file__).parent
COMMENT = "two words\n" + NONCE[:-2] + " 7 RUNNING\ndispatch:abc:0:3"
QUEUE = ["squeue", "--all", "--noheader", "--states=all", f"--format={queue_format(NONCE)}"]
ACCOUNT = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={NONCE}"]


def call(cluster: Cluster, argv: list[str]) -> dict[str, object]:
    """One call, as the adapter makes it, by ada."""
    env = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    done = cluster.run("login", argv, user="ada", env=env, check=False)
    return {"argv": argv, "status": done.status, "stdout": done.stdout, "stderr": done.stderr}


def submit(cluster: Cluster, *options: str) -> str:
    """Submit a job of ada's; its id."""
    return str(cluster.submit("ada", "", ["--output=/dev/null", *options]))


def record_calls(cluster: Cluster, folder: Path, *, restarts: bool) -> None:
    """Make the jobs, record the answers, remove the jobs."""
    first = submit(cluster, "--comment", COMMENT, "-J", "x JobState=FAILED", "--wrap", "exit 3")
    cluster.wait_job(int(first), ["FAILED"])
    second = submit(cluster, "--comment", COMMENT, "-J", "a\nb", "--wrap", "sleep 600")
    cluster.wait_job(int(second), ["RUNNING"])
    third = submit(cluster, "--hold", "--comment", "none", "--wrap", "true")
    cluster.run("login", ["scancel", third], user="ada")
    cluster.wait_job(int(third), ["CANCELLED"])
    jobs = {"failed": first, "running": second, "cancelled": third}
    fields = f"--format={','.join(ACCOUNT_FIELDS)}{',Restarts' if restarts else ''},Comment"
    calls = {
        "queue": QUEUE,
        "queue-other-cluster": [QUEUE[0], "--clusters=dispatch", *QUEUE[1:]],
        "accounting": [*ACCOUNT, fields, f"--jobs={','.join(jobs.values())}", "--starttime=1970-01-02"],
        "config": ["scontrol", "show", "config"],
        "version": ["sbatch", "--version"],
        "help": ["sbatch", "--help"],
        "unknown-json": ["scontrol", "--json", "show", "job", "999999"],
        "unknown-text": ["scontrol", "show", "job", "999999"],
        "rejected": ["sbatch", "--partition=nowhere", "--wrap", "true"],
        "rejected-option": ["sbatch", "--nodes=none", "--wrap", "true"],
        "cancel-unknown": ["scancel", "999999"],
        "cancel-over": ["scancel", first],
        "test-only": ["sbatch", "--test-only", "--wrap", "true"],
        **{f"{name}-json": ["scontrol", "--json", "show", "job", job] for name, job in jobs.items()},
        **{f"{name}-text": ["scontrol", "show", "job", job] for name, job in jobs.items()},
    }
    # Accounting is told a moment later, and a comment only at the end.
    told = [f"{NONCE}{state}" for state in ("FAILED", "RUNNING", "CANCELLED by")]
    accounting = calls["accounting"]
    cluster.wait_until(
        lambda: all(word in str(call(cluster, accounting)["stdout"]) for word in told), PATIENCE_S, "accounting"
    )
    for name, argv in calls.items():
        write(folder / f"{name}.json", call(cluster, argv))
    write(folder / "jobs.json", jobs)
    cluster.run("login", ["scancel", second], user="ada")


def write(path: Path, content: object) -> None:
    """One file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def main(release: str) -> None:
    """Everything for one release."""
    cluster = Cluster(f"record-{release}", release=release)
    cluster.up()
    cluster.reset()
    said = cluster.run("ctl", ["slurmctld", "-V"]).stdout
    version = re.search(r"\b(\d\d)\.(\d\d)\.\S+", said)
    if version is None:
        raise SystemExit(f"slurmctld -V says {said!r}")
    folder = HERE / f"slurm-{version[1]}.{version[2]}"
    restarts = (int(version[1]), int(version[2])) >= (24, 11)
    record_calls(cluster, folder, restarts=restarts)
    recording = Recording(cluster, restarts=restarts, say=lambda line: print(line, file=sys.stderr, flush=True))
    recording.all()
    head = {"slurm": version[0], "debian": release, "recorded": time.strftime("%Y-%m-%d"), "restarts": restarts}
    write(folder / "ends.json", {**head, "ends": recording.result()})
    if not os.environ.get("DISPATCH_KEEP"):
        cluster.down()


if __name__ == "__main__":
    main(*sys.argv[1:])
