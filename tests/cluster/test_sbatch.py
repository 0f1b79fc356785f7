"""``dispatch sbatch`` and what it hands on, on a real cluster, beside plain sbatch."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest

from docker.rig import PATIENCE_S, STATE

if TYPE_CHECKING:
    from docker.rig import Cluster, Finished

HOME = "/home/ada"
SHOW = """#!/bin/bash
#SBATCH --comment="as it was"
file=$1
{ echo "zero=$0"; echo "args=$*"; echo "pwd=$PWD"; echo "umask=$(umask)"; echo "nofile=$(ulimit -n)"; } >"$file.tmp"
env -0 | tr '\\n\\0' '\\001\\n' | grep -v '^BASH_FUNC' | sort >>"$file.tmp"
mv "$file.tmp" "$file"
"""
AGAIN = SHOW.replace("file=$1\n", "file=$1.$DISPATCH_EPOCH\n") + 'test "$DISPATCH_EPOCH" -gt 1000000 || sleep 600\n'
# The intent says how long it is watched before it may be settled, so that only the wrapper needs these.
SHORT = f"""state = "{STATE}"
cluster = "dispatch"
submit_timeout_s = 15
message_timeout_s = 10
query_timeout_s = 5
"""
# What differs between two jobs, whoever submitted them, and what is ours.
VOLATILE = (
    "zero=", "args=", "SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_JOB_SLUID=", "SLURM_JOB_START_TIME=",
    "SLURM_JOB_END_TIME=", "SLURM_TASK_PID=", "SLURM_JOB_NODELIST=", "SLURM_NODELIST=", "SLURMD_NODENAME=",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_JOB_COMMENT=", "HOSTNAME=", "SLURM_LOCALID=", "TMPDIR=", "DISPATCH_", "SLURM_DISPATCH_", "_=",
    "SLURM_PRIO_PROCESS=", "SLURM_JOB_CPUS_PER_NODE=", "SLURM_CPUS_ON_NODE=", "SLURM_SUBMIT_HOST=",
)  # fmt: skip


def dispatch(cluster: Cluster, *words: str, text: str = "", env: dict[str, str] | None = None) -> Finished:
    """``dispatch sbatch WORDS`` as ada on login."""
    return cluster.run("login", ["dispatch", "sbatch", *words], user="ada", input=text, env=env, check=False)


def job_id(done: Finished) -> int:
    """The id in sbatch's own line, which must be all of stdout."""
    assert done.status == 0, done
    words = done.stdout.split()
    assert words[:3] == ["Submitted", "batch", "job"], done
    return int(words[3])


def file(cluster: Cluster, path: str) -> list[str]:
    """The lines of a file that a job makes, once it is there."""
    cluster.wait_until(lambda: cluster.run("login", ["test", "-e", path], check=False).status == 0, PATIENCE_S, path)
    return cluster.read(path).splitlines()


def stable(lines: list[str]) -> list[str]:
    """Without what differs between any two jobs."""
    return sorted(line for line in lines if not line.startswith(VOLATILE))


def facts(cluster: Cluster, key: str) -> list[dict[str, object]]:
    """The record of a job."""
    names = cluster.sh("login", f"ls {STATE}/jobs/{key}/facts | grep -v tmp").split()
    return [json.loads(cluster.read(f"{STATE}/jobs/{key}/facts/{name}")) for name in names]


def key_of(done: Finished) -> str:
    """The job's key in our own line."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dispatch: job ")]
    return line.split()[2].rstrip(",")


@pytest.mark.parametrize(
    "options",
    [[], ["--export=NONE"], ["--export=A=1,MINE"], ["--export=ALL,X=2"]],
    ids=["all", "none", "list", "all-and-one"],
)
def test_the_job_is_as_with_plain_sbatch(cluster: Cluster, options: list[str]) -> None:
    """C017, C021, C046: $0, folder, umask, limits, environment and Command= are those of plain sbatch."""
    name = f"show-{secrets.token_hex(3)}-{'-'.join(options).strip('-').replace('=', '_').replace(',', '_') or 'all'}"
    cluster.write(f"{HOME}/sub/show.sh", SHOW, user="ada", mode="755")
    env = {"MINE": "one\ntwo", "DISPATCH_EPOCH": "7", "SLURM_RESTART_COUNT": "4"}
    common = ["-o", "/dev/null", "-D", f"{HOME}/sub", *options, "sub/show.sh"]
    plain_env = {"MINE": "one\ntwo"}
    plain = cluster.run("login", ["sbatch", *common, f"{name}.plain"], user="ada", env=plain_env)
    ours = dispatch(cluster, "--checkpoint", f"{HOME}/root-{name}", *common, f"{name}.ours", env=env)
    number = job_id(ours)
    lines = file(cluster, f"{HOME}/sub/{name}.ours")
    assert stable(lines) == stable(file(cluster, f"{HOME}/sub/{name}.plain"))
    assert f"SLURM_DISPATCH_CHECKPOINT={HOME}/root-{name}" in lines
    assert "DISPATCH_EPOCH=1000000" in lines
    assert not [line for line in lines if line.startswith("SLURM_RESTART_COUNT=")]
    zero = [line for line in lines if line.startswith("zero=")]
    assert zero[0].endswith(f"/job{number:05d}/slurm_script")
    shown = cluster.sh("ctl", f"scontrol show job {number}")
    beside = cluster.sh("ctl", f"scontrol show job {job_id(plain)}")
    commands = [line.strip() for line in (shown + beside).splitlines() if line.startswith("   Command=")]
    assert commands[0].replace(".ours", ".plain") == commands[1]
    assert f"Comment=as it was dispatch:{key_of(ours)}:0:1" in shown


@pytest.mark.parametrize(
    ("options", "script"),
    [
        ([], "file"),
        (["--export=NONE"], "file"),
        (["--export=A=1,MINE"], "file"),
        (["--export=ALL,X=2"], "stdin"),
        (["--begin=now", "-J", "named"], "directives"),
    ],
    ids=["all", "none", "list", "stdin", "directives"],
)
def test_the_next_submission_is_as_the_first(cluster: Cluster, options: list[str], script: str) -> None:
    """Environment, folder, umask, limits, name and arguments of a resubmission are those of the first submission."""
    words_of = "-".join(options).strip("-").replace("=", "_").replace(",", "_") or "all"
    tag = f"again-{secrets.token_hex(3)}-{script}-{words_of}"
    text = AGAIN if script != "stdin" else AGAIN.replace("$1.", f"{HOME}/{tag}.")
    if script == "directives":
        text = text.replace("#SBATCH", "#SBATCH --begin=now\n#SBATCH --parsable --nice=3\n#SBATCH", 1)
    cluster.write(f"{HOME}/{tag}.sh", text, user="ada", mode="755")
    words = [
        "dispatch", "sbatch", "--checkpoint", f"{HOME}/root-{tag}", "--on", "cancelled:resubmit", "-p", "low",
        "-o", "/dev/null", *options, *([] if script == "stdin" else [f"{tag}.sh", tag, "a b"]),
    ]  # fmt: skip
    limited = ["sh", "-c", 'umask 027; exec "$@"', "sh", *words]
    env = {"MINE": "one\ntwo", "SBATCH_TIMELIMIT": "20"}
    done = cluster.run("login", limited, user="ada", input=text if script == "stdin" else "", env=env)
    first = int(done.stdout.split()[-1])
    before = file(cluster, f"{HOME}/{tag}.1000000")
    assert "umask=0027" in before
    cluster.run("ctl", ["scancel", str(first)])
    after = file(cluster, f"{HOME}/{tag}.2000000")
    assert stable(after) == stable(before)

    def submitted() -> list[dict[str, object]] | None:
        found = [fact for fact in facts(cluster, key_of(done)) if fact["kind"] == "submitted"]
        return found if len(found) > 1 else None

    # The job may run before whoever submitted it has come to write that down.
    second = cluster.wait_until(submitted, PATIENCE_S, "the second submission in the record")[1]["slurm_job_id"]
    names = cluster.sh("ctl", f"scontrol show job {first}; scontrol show job {second}")
    shown = [line.split("JobName=")[1] for line in names.splitlines() if "JobName=" in line]
    assert shown[0] == shown[1]
    assert names.count("TimeLimit=00:20:00") == 2
    assert f"dispatch:{key_of(done)}:0:2" in names


def test_a_submission_from_inside_a_job(cluster: Cluster) -> None:
    """A job that submits another hands its environment on; nothing of its own identity is in the inner one."""
    out = f"inner-{secrets.token_hex(3)}.out"
    cluster.write(f"{HOME}/inner.sh", SHOW, user="ada", mode="755")
    outer = (
        f"#!/bin/sh\ndispatch sbatch -o /dev/null --checkpoint {HOME}/root-inner {HOME}/inner.sh {HOME}/{out}\n"
    )
    cluster.write(f"{HOME}/outer.sh", outer, user="ada", mode="755")
    done = dispatch(cluster, "-o", f"{HOME}/outer.out", "--checkpoint", f"{HOME}/root-outer", "outer.sh")
    inner = dict(line.split("=", 1) for line in file(cluster, f"{HOME}/{out}") if "=" in line)
    assert inner["DISPATCH_JOB"] != key_of(done)
    assert inner["SLURM_DISPATCH_CHECKPOINT"] == f"{HOME}/root-inner"
    assert inner["DISPATCH_EPOCH"] == "1000000"
    assert inner["SLURM_DISPATCH_RECORD"] == f"{STATE}/jobs/{inner['DISPATCH_JOB']}"


@pytest.mark.parametrize(
    "words",
    [
        ["--partition=nowhere", "--wrap", "true"],
        ["--nodes=none", "--wrap", "true"],
        ["--nonsense", "--wrap", "true"],
        ["--wrap", "true", "script.sh"],
        ["nothing.sh"],
        ["--test-only", "--wrap", "true"],
    ],
)
def test_refusals_are_sbatchs_own(cluster: Cluster, words: list[str]) -> None:
    """C013, C025: status, stdout and stderr of plain sbatch, and the record says rejected."""
    plain = cluster.run("login", ["sbatch", *words], user="ada", check=False)
    ours = dispatch(cluster, "--checkpoint", f"{HOME}/root-refused", *words)
    theirs = "".join(line for line in ours.stderr.splitlines(keepends=True) if not line.startswith("dispatch: "))
    if "--test-only" in words:  # the time in its message moves on
        assert (ours.status, ours.stdout, theirs.split(" to start at ")[0].split()[:2]) == (
            plain.status, plain.stdout, plain.stderr.split(" to start at ")[0].split()[:2],
        )  # fmt: skip
        return
    assert (ours.status, ours.stdout, theirs) == (plain.status, plain.stdout, plain.stderr)


def test_wait_for_a_job_that_never_started(cluster: Cluster) -> None:
    """C031: plain sbatch --wait ends with 0 for a job that was cancelled in the queue; ours does not."""
    script = (
        "dispatch sbatch --no-plan --checkpoint ~/root-wait --hold --wait -J waits --wrap true & "
        "while ! squeue -h -n waits -o %A | grep -q .; do sleep 0.2; done; "
        "scancel --name waits; wait $!"
    )
    done = cluster.run("login", ["bash", "-c", script], user="ada", check=False, timeout_s=PATIENCE_S)
    assert done.status == 1
    assert "cancelled" in done.stderr


def test_a_lost_answer_is_one_job(cluster: Cluster) -> None:
    """C001, P6: slurmctld takes the request and the answer is lost: 75, and the tick finds exactly one object."""
    script = "#!/bin/sh\nsleep 600\n"
    cluster.write(f"{HOME}/lost.sh", script, user="ada", mode="755")
    cluster.write(f"{HOME}/short.toml", SHORT, user="ada", mode="644")
    cluster.service_off()  # it begins to look when what was on the way has arrived
    cluster.sh("ctl", "kill -STOP $(pidof slurmctld)")
    try:
        done = cluster.run(
            "login",
            ["dispatch", "sbatch", "--checkpoint", f"{HOME}/root-lost", "lost.sh"],
            user="ada",
            env={"DISPATCH_CONFIG": f"{HOME}/short.toml"},
            check=False,
            timeout_s=400,
        )
    finally:
        cluster.sh("ctl", "kill -CONT $(pidof slurmctld)")
    assert done.status == 75, done
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dispatch: nobody knows")]
    key = line.split("has job ")[1].split(":")[0]

    def carrying() -> list[str]:
        queue = cluster.sh("ctl", "squeue -h -t all -o '%A %k'").splitlines()
        return [words.split()[0] for words in queue if f"dispatch:{key}:0:1" in words]

    (number,) = cluster.wait_until(carrying, PATIENCE_S, "what sbatch had sent to arrive")
    assert [fact["kind"] for fact in facts(cluster, key)] == ["spec", "intent"]
    cluster.service_on()

    def settled() -> list[dict[str, object]]:
        return [fact for fact in facts(cluster, key) if fact["kind"] in {"submitted", "burnt"}]

    (fact,) = cluster.wait_until(settled, 400, f"the intent of job {key} to be settled")
    assert (fact["kind"], fact.get("slurm_job_id")) == ("submitted", int(number))
    assert carrying() == [number]
