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
from slurm_dispatch.slurm.parse import ACCOUNT_FIELDS, DEPENDENT_FIELDS, queue_format
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


def record_arrays(cluster: Cluster, folder: Path, *, restarts: bool) -> None:
    """A real array in every state at once, with an identity word in its comment as if somebody had copied one."""
    script = 'if test "$SLURM_ARRAY_TASK_ID" = 0; then exit 3; fi; sleep 600'
    options = ("--array=0-4%2", "--comment", "mine dispatch:abc:0:3", "-J", "array", "--wrap", script)
    number = int(submit(cluster, *options))

    def rows() -> dict[str, str]:
        argv = ["squeue", "-h", "-t", "all", "-j", str(number), "-o", "%i %A %T"]
        text = cluster.run("login", argv, user="ada").stdout
        return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines()}

    def all_states() -> bool:
        states = [row.split()[1] for row in rows().values()]
        return states.count("FAILED") == 1 and states.count("RUNNING") == 2 and "PENDING" in states

    cluster.wait_until(all_states, PATIENCE_S, "a task that failed, two that run, and the rest")
    tasks = {name: int(row.split()[0]) for name, row in rows().items()}
    fields = f"--format={','.join(ACCOUNT_FIELDS)}{',Restarts' if restarts else ''},Comment"
    task = next(raw for name, raw in tasks.items() if name == f"{number}_1")
    calls = {
        "array-queue": QUEUE,
        "array-accounting": [*ACCOUNT, fields, f"--jobs={number}", "--starttime=1970-01-02"],
        "array-json": ["scontrol", "--json", "show", "job", str(number)],
        "array-text": ["scontrol", "show", "job", str(number)],
        "array-task-json": ["scontrol", "--json", "show", "job", str(task)],
        "array-task-text": ["scontrol", "show", "job", str(task)],
    }

    def told() -> bool:
        text = str(call(cluster, calls["array-accounting"])["stdout"])
        return all(text.count(f"{NONCE}{state}{NONCE}") == rows for state, rows in (("FAILED", 1), ("RUNNING", 2)))

    cluster.wait_until(told, PATIENCE_S, "accounting")
    for name, argv in calls.items():
        write(folder / f"{name}.json", call(cluster, argv))
    write(folder / "array.json", {"array": number, "tasks": tasks})
    cluster.run("login", ["scancel", str(number)], user="ada")


def record_dependents(cluster: Cluster, folder: Path) -> None:
    """Jobs that wait for one that fails, in every form, and one that Slurm cancels for it."""
    first = submit(cluster, "--hold", "--wrap", "exit 1")
    after = {
        "met": f"afterany:{first}",
        "failed": f"afterok:{first}",
        "killed": f"afterok:{first}",
        "either": f"afterok:{first}?afternotok:{first}",
        "array": f"afterok:{first}",
        "singleton": "singleton",
        "waits": f"afterok:{first}",
    }
    more = {"killed": ["--kill-on-invalid-dep=yes"], "array": ["--array=1-3"], "singleton": ["-J", "same"]}
    submit(cluster, "--hold", "-J", "same", "--wrap", "true")
    jobs = {
        name: submit(cluster, "--dependency", text, *more.get(name, []), "--wrap", "sleep 600")
        for name, text in after.items()
    }
    other = submit(cluster, "--hold", "--wrap", "true")
    cluster.run("login", ["scontrol", "update", f"JobId={jobs['waits']}", f"Dependency=afterok:{other}"], user="ada")
    cluster.run("login", ["scontrol", "release", first], user="ada")
    cluster.wait_job(int(jobs["killed"]), ["CANCELLED"])
    uid = cluster.run("login", ["id", "-u"], user="ada").stdout.strip()
    where = ["--all", "--noheader", "--states=PENDING,CANCELLED", f"--user={uid}"]
    argv = ["squeue", *where, f"--format={queue_format(NONCE, DEPENDENT_FIELDS)}"]
    forgotten = ["sbatch", "--dependency=afterok:999999", "--wrap", "true"]
    write(folder / "dependents.json", call(cluster, argv))
    write(folder / "dependency-forgotten.json", call(cluster, forgotten))
    write(folder / "dependents-jobs.json", {"first": first, "other": other, **jobs})
    cluster.run("login", ["scancel", "-u", "ada"], user="ada")


def write(path: Path, content: object) -> None:
    """One file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def main(release: str) -> None:
    """Everything for one release."""
    cluster = Cluster(f"record-{release}", release=release, small=True)
    cluster.up()
    cluster.reset()
    said = cluster.run("ctl", ["slurmctld", "-V"]).stdout
    version = re.search(r"\b(\d\d)\.(\d\d)\.\S+", said)
    if version is None:
        raise SystemExit(f"slurmctld -V says {said!r}")
    folder = HERE / f"slurm-{version[1]}.{version[2]}"
    restarts = (int(version[1]), int(version[2])) >= (24, 11)
    record_calls(cluster, folder, restarts=restarts)
    record_arrays(cluster, folder, restarts=restarts)
    record_dependents(cluster, folder)
    recording = Recording(cluster, restarts=restarts, say=lambda line: print(line, file=sys.stderr, flush=True))
    recording.all()
    head = {"slurm": version[0], "debian": release, "recorded": time.strftime("%Y-%m-%d"), "restarts": restarts}
    write(folder / "ends.json", {**head, "ends": recording.result()})
    if not os.environ.get("DISPATCH_KEEP"):
        cluster.down()


if __name__ == "__main__":
    main(*sys.argv[1:])
