#!/usr/bin/python3 -IS
# ruff: noqa: UP031 - any Python runs it
"""Stands in for Slurm's commands: keeps what it was called with, and answers as the files beside it say.

Copied under each command's name into a scene's ``bin``. It holds no opinion on what Slurm does: what the answers
look like is what the recorded ones of a real cluster look like (``tests/assets``).
"""

import json
import os
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = os.path.basename(sys.argv[0])
SURROGATES = {"encoding": "utf-8", "errors": "surrogateescape"}


def knobs():
    try:
        with open(os.path.join(HERE, "answers", NAME + ".json"), **SURROGATES) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def jobs():
    path = os.path.join(HERE, "jobs")
    if not os.path.exists(path):
        return []
    with open(path, **SURROGATES) as file:
        return [json.loads(line) for line in file]


def keep(argv):
    """What this call was; for sbatch also what it would read."""
    files = {}
    for word in argv:
        number = word[len("--export-file=") :] if word.startswith("--export-file=") else word[len("/dev/fd/") :]
        if word.startswith(("--export-file=", "/dev/fd/")):
            with open("/dev/fd/" + number, **SURROGATES) as file:
                files[word] = file.read()
    call = {
        "argv": argv,
        "environment": dict(os.environ),
        "stdin": sys.stdin.buffer.read().decode(**SURROGATES) if NAME == "sbatch" else "",
        "files": files,
        "folder": os.getcwd(),
        "umask": os.umask(0),
    }
    name = "%d-%d-%s" % (time.time_ns(), os.getpid(), NAME)
    with open(os.path.join(HERE, "calls", "." + name + ".new"), "w", **SURROGATES) as file:
        json.dump(call, file)
    os.rename(file.name, os.path.join(HERE, "calls", name))  # whole, for who reads while we hang


def accept(argv):
    """Slurm takes the job: from now on the queue has it."""
    comment = [word[len("--comment=") :] for word in argv if word.startswith("--comment=")]
    job = {"id": 101 + len(jobs()), "uid": knobs().get("uid", os.getuid()), "state": "PENDING"}
    job["comment"] = comment[-1] if comment else ""
    with open(os.path.join(HERE, "jobs"), "a", **SURROGATES) as file:
        file.write(json.dumps(job) + "\n")
    return job["id"]


def print_queue(argv):
    form = next(word[len("--format=") :] for word in argv if word.startswith("--format="))
    asked = len([name for name in os.listdir(os.path.join(HERE, "calls")) if name.endswith("-squeue")])
    if asked <= knobs().get("omit", 0):
        return
    for job in jobs():
        fields = {"A": job["id"], "U": job["uid"], "T": job["state"], "V": 1700000000, "S": "N/A", "i": job["id"]}
        fields.update({"r": "None", "N": "", "k": job["comment"]})
        line = form
        for letter, value in fields.items():
            line = line.replace("%" + letter, str(value), 1) if letter != "k" else line
        print(line.replace("%k", job["comment"]))


def wait_for(name):
    """Hang until the test makes this file, or the caller ends us."""
    while name and os.path.exists(HERE) and not os.path.exists(os.path.join(HERE, name)):
        time.sleep(0.02)


def main():
    argv = sys.argv[1:]
    knob = knobs()
    keep(argv)
    out, status = knob.get("stdout", ""), knob.get("status", 0)
    if NAME == "sbatch" and argv[:1] == ["--version"]:
        out = "slurm 24.11.5\n"
    elif NAME == "sbatch" and argv[:1] == ["--help"]:
        out = knob.get("help", "")
    elif NAME == "sbatch" and knob.get("accept", True):
        number = accept(argv)
        out = out.replace("{id}", str(number)) if "stdout" in knob else "Submitted batch job %d\n" % number
    elif NAME == "squeue" and status == 0:
        print_queue(argv)
    elif NAME == "scontrol" and argv == ["--version"]:
        out, status = "slurm 24.11.5\n", 0
    elif NAME == "scontrol" and argv == ["show", "config"] and status == 0:
        out = "ClusterName             = alpha\nMessageTimeout          = 10 sec\nSLURM_VERSION           = 24.11.5\n"
        out += "".join("%-24s= %s\n" % line for line in knob.get("config", {}).items())
    elif NAME == "sacct" and "status" not in knob:
        knob, status = {"stderr": "Slurm accounting storage is disabled\n"}, 1
    wait_for(knob.get("silent_until"))
    sys.stderr.write(knob.get("stderr", ""))
    sys.stdout.write(out)
    sys.stdout.flush()
    sys.stderr.flush()
    wait_for(knob.get("hang_until"))
    if "signal" in knob:
        os.kill(os.getpid(), knob["signal"])
    sys.exit(status)


sys.stdout.reconfigure(errors="surrogateescape")
sys.stderr.reconfigure(errors="surrogateescape")
main()
