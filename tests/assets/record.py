"""Records what the commands of a real cluster answer, for the tests that have no cluster.

``python3 -m tests.assets.record HOST FOLDER`` runs each of the calls below on HOST (a container of
``docker/cluster``) as ada and writes stdout, stderr and status to ``FOLDER/<name>.json``, with what it was called
with. The nonce of the calls is a fixed one. Run it on a cluster where the job ``first`` has ended, ``second`` runs
and ``third`` was cancelled; it makes these itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from slurm_dispatch.slurm.parse import ACCOUNT_FIELDS, queue_format

NONCE = "<0123456789abcdef>"
DEADLINE_S = 120.0
COMMENT = "two words\n" + NONCE[:-2] + " 7 RUNNING\ndispatch:abc:0:3"
QUEUE = ["squeue", "--all", "--noheader", "--states=all", f"--format={queue_format(NONCE)}"]
ACCOUNT = [
    "sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={NONCE}",
    f"--format={','.join(ACCOUNT_FIELDS)},Restarts,Comment",
]  # fmt: skip


def call(host: str, argv: list[str]) -> dict[str, object]:
    """One call, as the adapter makes it."""
    prefix = ["docker", "exec", "-u", "ada", "-w", "/home/ada", "-e", "LC_ALL=C", "-e", "SLURM_TIME_FORMAT=%s", host]
    done = subprocess.run(
        [*prefix, *argv], capture_output=True, text=True, errors="surrogateescape", timeout=DEADLINE_S
    )
    return {"argv": argv, "status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def submit(host: str, *options: str) -> str:
    """Submit a job; its id."""
    answer = call(host, ["sbatch", "--parsable", "--output=/dev/null", *options])
    if answer["status"] != 0:
        raise SystemExit(f"sbatch: {answer['stderr']}")
    return str(answer["stdout"]).strip()


def wait_for(host: str, job: str, state: str) -> None:
    """Wait until a job has a state."""
    end = time.monotonic() + DEADLINE_S
    while str(call(host, ["squeue", "-h", "-t", "all", "-o", "%T", "-j", job])["stdout"]).strip() != state:
        if time.monotonic() > end:
            raise SystemExit(f"job {job} did not come to {state}")
        time.sleep(0.2)


def main(host: str, folder: str) -> None:
    """Make the jobs, record the answers, remove the jobs."""
    first = submit(host, "--comment", COMMENT, "-J", "x JobState=FAILED", "--wrap", "exit 3")
    wait_for(host, first, "FAILED")
    second = submit(host, "--comment", COMMENT, "-J", "a\nb", "--wrap", "sleep 600")
    wait_for(host, second, "RUNNING")
    third = submit(host, "--hold", "--comment", "none", "--wrap", "true")
    call(host, ["scancel", third])
    wait_for(host, third, "CANCELLED")
    jobs = {"failed": first, "running": second, "cancelled": third}
    calls = {
        "queue": QUEUE,
        "queue-other-cluster": [QUEUE[0], "--clusters=dispatch", *QUEUE[1:]],
        "accounting": [*ACCOUNT, f"--jobs={','.join(jobs.values())}", "--starttime=1970-01-02"],
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
    for name, argv in calls.items():
        write(folder, name, call(host, argv))
    write(folder, "jobs", jobs)
    call(host, ["scancel", second])


def write(folder: str, name: str, content: object) -> None:
    """One file."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    Path(folder, f"{name}.json").write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
