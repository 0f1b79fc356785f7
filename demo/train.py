#!/usr/bin/env python3
"""A small real training: a character model in numpy, on the licences that every Debian ships.

It behaves like the trainings that get hurt: it saves every few steps into ``checkpoint-<step>/``, keeps one
save by the rule of Hugging Face's Trainer (the highest number wins, the oldest goes), resumes from the path
that it is given, can ignore SIGTERM, and goes on writing for as long as it lives.

Each start draws its batches anew, from the random state of the save and the run's own name (the epoch):
a *branch*. Two runs that begin from one save therefore part at once, and every loss says whose it is. A save
carries its *lineage* (which branch did which steps) and every loss since step 1, bit for bit; ``--replay``
does the same steps in one process that never stops, and so tells whether a lineage is what it must be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from typing import Any

# One thread: the order of additions, and with it the last bit of a loss, must not depend on the machine's load.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402 (it reads these variables when it is loaded)

MARKER = "trainer_state.json"
"""The file of a save that is written last."""
CORPUS = "/usr/share/common-licenses"
CORPUS_LIMIT = 400_000
"""Bytes of text: enough to learn from, quick to read."""
CONTEXT = 8
EMBED = 8
HIDDEN = 48
BATCH = 16
RATE = 0.004
EXECUTIONS = "/run/slurm-dispatch"
VARIABLES = ("JOB", "EPOCH", "ATTEMPT", "CHECKPOINT", "DIR", "RESUME", "RESUME_STEP")
MEETING_S = 120.0
"""How long a rank waits for rank 0 to say which variables it has."""

Arrays = dict[str, Any]


class TrainingError(Exception):
    """The training cannot go on; the message says why."""


def read_corpus(folder: str) -> bytes:
    """The regular files of ``folder``, each once, in the order of their names."""
    seen: set[str] = set()
    parts: list[bytes] = []
    for name in sorted(os.listdir(folder)):
        path = os.path.realpath(os.path.join(folder, name))
        if os.path.isfile(path) and path not in seen:
            seen.add(path)
            with open(path, "rb") as file:
                parts.append(file.read())
    text = b"\n".join(parts)[:CORPUS_LIMIT]
    if len(text) <= CONTEXT:
        raise TrainingError(f"no text in {folder}")
    return text


class Sampler:
    """Which places of the text make the next batch. Its whole state is one PCG64 generator."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def fork(self, branch: str) -> None:
        """Begin a branch: from the state as it is, and the branch's name."""
        drawn = [int(word) for word in self._generator.integers(0, 2**32, 4, dtype=np.uint32)]
        named = list(hashlib.sha256(branch.encode()).digest()[:16])
        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(drawn + named)))

    def draw(self, length: int) -> Any:
        return self._generator.integers(0, length - CONTEXT, BATCH)

    def state(self) -> Any:
        return self._generator.bit_generator.state

    def load(self, state: Any) -> None:
        self._generator.bit_generator.state = state


class Model:
    """Predicts the next byte from the last :data:`CONTEXT`: embedding, one hidden layer, softmax; Adam."""

    def __init__(self, text: bytes, seed: int) -> None:
        letters = np.frombuffer(text, dtype=np.uint8)
        self.alphabet = np.unique(letters)
        self.text = np.searchsorted(self.alphabet, letters)
        rng = np.random.Generator(np.random.PCG64([seed, 1]))
        size = len(self.alphabet)
        self.weights: Arrays = {
            "embed": rng.normal(0, 0.5, (size, EMBED)),
            "w1": rng.normal(0, 1 / np.sqrt(CONTEXT * EMBED), (CONTEXT * EMBED, HIDDEN)),
            "b1": np.zeros(HIDDEN),
            "w2": rng.normal(0, 1 / np.sqrt(HIDDEN), (HIDDEN, size)),
            "b2": np.zeros(size),
        }
        self.moments: Arrays = {
            f"{kind}.{name}": np.zeros_like(value) for name, value in self.weights.items() for kind in ("m", "v")
        }

    def step(self, places: Any, number: int) -> float:
        """One step of training on the batch at ``places``; ``number`` counts from 1.

        :returns: the mean loss of the batch, in nats for a byte, before the update.
        """
        w = self.weights
        inputs = self.text[places[:, None] + np.arange(CONTEXT)]
        wanted = self.text[places + CONTEXT]
        rows = np.arange(len(places))
        x = w["embed"][inputs].reshape(len(places), -1)
        h = np.tanh(x @ w["w1"] + w["b1"])
        logits = h @ w["w2"] + w["b2"]
        logits -= logits.max(axis=1, keepdims=True)
        likely = np.exp(logits)
        likely /= likely.sum(axis=1, keepdims=True)
        loss = float(-np.log(likely[rows, wanted]).mean())

        slope = likely
        slope[rows, wanted] -= 1
        slope /= len(places)
        back = (slope @ w["w2"].T) * (1 - h * h)
        embed = np.zeros_like(w["embed"])
        np.add.at(embed, inputs.ravel(), (back @ w["w1"].T).reshape(-1, EMBED))
        slopes = {"embed": embed, "w1": x.T @ back, "b1": back.sum(axis=0)}
        slopes |= {"w2": h.T @ slope, "b2": slope.sum(axis=0)}
        for name, value in slopes.items():
            m, v = self.moments[f"m.{name}"], self.moments[f"v.{name}"]
            m += 0.1 * (value - m)
            v += 0.01 * (value * value - v)
            w[name] -= RATE * (m / (1 - 0.9**number)) / (np.sqrt(v / (1 - 0.99**number)) + 1e-8)
        return loss


class Trainer:
    """The state of a training: model, draws, step, lineage and every loss since step 1."""

    def __init__(self, corpus: str, seed: int) -> None:
        text = read_corpus(corpus)
        self.seed = seed
        self.digest = hashlib.sha256(text).hexdigest()
        self.model = Model(text, seed)
        self.sampler = Sampler(seed)
        self.step = 0
        self.lineage: list[tuple[str, int]] = []
        self.losses: list[str] = []

    def branch(self, name: str) -> None:
        """The steps from here on are those of the run ``name``."""
        self.sampler.fork(name)
        self.lineage.append((name, self.step))

    def advance(self) -> str:
        """Do one step; its loss as the exact hexadecimal text of the double."""
        self.step += 1
        loss = self.model.step(self.sampler.draw(len(self.model.text)), self.step).hex()
        self.losses.append(loss)
        return loss

    def save(self, folder: str, pause_s: float = 0.0) -> None:
        """Write a save: weights, moments, random state, and the marker when everything else is there."""
        os.makedirs(folder, exist_ok=True)
        np.savez(os.path.join(folder, "model.npz"), **self.model.weights)
        time.sleep(pause_s)
        np.savez(os.path.join(folder, "optimizer.npz"), **self.model.moments)
        write_json(os.path.join(folder, "random.json"), self.sampler.state())
        state = {
            "global_step": self.step,
            "seed": self.seed,
            "corpus": self.digest,
            "lineage": self.lineage,
            "log_history": self.losses,
        }
        write_json(os.path.join(folder, MARKER), state)

    def load(self, folder: str) -> None:
        """Take everything from a save.

        :raises TrainingError: it is of another text or seed, or its parts do not belong together.
        """
        state = read_json(os.path.join(folder, MARKER))
        for what, mine in (("corpus", self.digest), ("seed", self.seed)):
            if state[what] != mine:
                raise TrainingError(f"{folder} was trained with {what} {state[what]}, not {mine}")
        for name, arrays in (("model.npz", self.model.weights), ("optimizer.npz", self.model.moments)):
            with np.load(os.path.join(folder, name)) as found:
                for key in arrays:
                    arrays[key] = found[key]
        self.sampler.load(read_json(os.path.join(folder, "random.json")))
        self.step = state["global_step"]
        self.lineage = [(str(name), int(first)) for name, first in state["lineage"]]
        self.losses = list(state["log_history"])
        if len(self.losses) != self.step:
            raise TrainingError(f"{folder} says step {self.step} but has {len(self.losses)} losses")


def write_json(path: str, value: object) -> None:
    with open(path, "w", encoding="ascii") as file:
        json.dump(value, file)


def read_json(path: str) -> Any:
    with open(path, encoding="ascii") as file:
        return json.load(file)


def saves_of(folder: str) -> list[tuple[int, str]]:
    """The saves in ``folder`` by their numbers, the greatest last, as Trainer's ``_sorted_checkpoints`` does."""
    found = []
    for name in os.listdir(folder):
        match = re.fullmatch(r"checkpoint-([0-9]+)", name)
        if match and os.path.isdir(os.path.join(folder, name)):
            found.append((int(match[1]), os.path.join(folder, name)))
    return sorted(found)


def rotate(folder: str, limit: int) -> list[str]:
    """Delete all but the ``limit`` saves of the highest numbers; 0 keeps all. The paths that went."""
    gone = [path for _, path in saves_of(folder)[:-limit]] if limit else []
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def replay(state: Any, corpus: str) -> list[str]:
    """The losses of a run without faults that does the steps of ``state``'s lineage in one process."""
    trainer = Trainer(corpus, state["seed"])
    if trainer.digest != state["corpus"]:
        raise TrainingError(f"the text in {corpus} is not the one that this save was trained on")
    turns = [(str(name), int(first)) for name, first in state["lineage"]]
    for number, (name, first) in enumerate(turns):
        if trainer.step != first:
            raise TrainingError(f"branch {name} begins at step {first}, the one before ended at {trainer.step}")
        trainer.branch(name)
        until = turns[number + 1][1] if number + 1 < len(turns) else state["global_step"]
        while trainer.step < until:
            trainer.advance()
    return trainer.losses


class Log:
    """The run's own account: one JSON object a line, written whole, only ever appended to."""

    def __init__(self, folder: str, rank: int, branch: str) -> None:
        os.makedirs(folder, exist_ok=True)
        environ = os.environ
        self.opened_at = time.time()
        self.attempt = environ.get("DISPATCH_ATTEMPT", branch)
        self.path = os.path.join(folder, log_name(self.attempt, rank))
        self.fixed = {
            "host": socket.gethostname(),
            "attempt": self.attempt,
            "epoch": environ.get("DISPATCH_EPOCH", "0"),
            "branch": branch,
            "rank": rank,
            "slurm_job_id": environ.get("SLURM_JOB_ID", ""),
        }
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, what: str, **fields: object) -> None:
        line = {"at": time.time(), "what": what, "pid": os.getpid(), **self.fixed, **fields}
        os.write(self._file, json.dumps(line).encode("ascii") + b"\n")


def log_name(attempt: str, rank: int) -> str:
    return f"{attempt}.{rank}.jsonl"


def variables() -> dict[str, str]:
    """What the execution was given; an absent variable is absent here too."""
    names = [f"DISPATCH_{name}" for name in VARIABLES]
    return {name: os.environ[name] for name in names if name in os.environ}


def meet(log_dir: str, attempt: str, rank: int) -> None:
    """Wait for rank 0's start line and see that it was given the same variables.

    :raises TrainingError: they differ, or rank 0 of this attempt does not appear in :data:`MEETING_S`.
    """
    path = os.path.join(log_dir, log_name(attempt, 0))
    deadline = time.monotonic() + MEETING_S
    while time.monotonic() < deadline:
        try:
            with open(path, encoding="ascii") as file:
                first = json.loads(file.readline())
        except (OSError, ValueError):  # not there yet, or its first line is not whole yet
            time.sleep(0.1)
            continue
        if first["variables"] != variables():
            raise TrainingError(f"rank {rank} has {variables()}, rank 0 has {first['variables']}")
        return
    raise TrainingError(f"rank {rank} of attempt {attempt} saw no rank 0 in {path}")


def began(opened_at: float) -> float:
    """When Slurm started the execution. Slurm 22.05 does not tell: when the node's Prolog made the execution's file.

    :param opened_at: when this process began, which is much later; for a run outside of Slurm.
    """
    told = os.environ.get("SLURM_JOB_START_TIME")
    if told is not None:
        return float(told)
    try:
        return os.stat(os.path.join(EXECUTIONS, f"{os.environ['SLURM_JOB_ID']}.0")).st_mtime
    except (KeyError, OSError):
        return opened_at


def train(options: argparse.Namespace) -> None:
    """Train from the save that was given, or from nothing, to the last step."""
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    log_dir = options.log_dir or options.output_dir
    os.makedirs(options.output_dir, exist_ok=True)
    log = Log(log_dir, rank, options.branch)
    given = options.resume_from_checkpoint
    if given == "last":  # what Trainer's resume_from_checkpoint=True means
        given = saves_of(options.output_dir)[-1][1] if saves_of(options.output_dir) else None
    try:
        trainer = Trainer(options.corpus, options.seed)
        if given:
            trainer.load(given)
        trainer.branch(options.branch)
        begin = {"step": trainer.step, "resume": given, "began": began(log.opened_at), "lineage": trainer.lineage}
        log.write("start", **begin, variables=variables())
        if rank:
            meet(log_dir, log.attempt, rank)
        catch_terminate(log, ignore=options.ignore_term, linger_s=options.linger)
        steps(trainer, log, options, rank)
    except BaseException as error:  # the outermost frame of the run: whatever ends it must stand in its log
        log.write("died", error=f"{type(error).__name__}: {error}")
        raise
    log.write("end", step=trainer.step)


def steps(trainer: Trainer, log: Log, options: argparse.Namespace, rank: int) -> None:
    """The loop: a step, its loss in the log, a save and a rotation every few steps (rank 0 only)."""
    due = time.monotonic()
    last = trainer.step >= options.steps
    while not last:
        loss = trainer.advance()
        log.write("step", step=trainer.step, loss=loss)
        last = trainer.step >= options.steps or bool(options.stop_file and os.path.exists(options.stop_file))
        if rank == 0 and (last or trainer.step % options.save_steps == 0):
            trainer.save(os.path.join(options.output_dir, f"checkpoint-{trainer.step}"), options.save_time)
            gone = rotate(options.output_dir, options.save_total_limit)
            log.write("saved", step=trainer.step, gone=[os.path.basename(path) for path in gone])
        due = max(due + options.step_time, time.monotonic() - options.step_time)
        time.sleep(max(0.0, due - time.monotonic()))


def catch_terminate(log: Log, *, ignore: bool, linger_s: float) -> None:
    """Log a SIGTERM; unless it is ignored, end by it as a program without a handler does, ``linger_s`` later."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def told(number: int, _: object) -> None:
        log.write("signal", signal=number)
        if linger_s:
            signal.signal(signal.SIGALRM, end)
            signal.setitimer(signal.ITIMER_REAL, linger_s)
        elif not ignore:
            end()

    signal.signal(signal.SIGTERM, told)


def leave_the_job(*, ignore_term: bool) -> bool:
    """Fork twice into a session of its own, as daemons do: no signal of the job's end reaches the writer.

    :param ignore_term: whether the first process, too, goes on after SIGTERM.
    :returns: true in the writer. The first process stays, as a launcher does, until the writer is gone.
    """
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        writer = os.fork()
        if writer:
            os.write(write, str(writer).encode())
            os._exit(0)
        os.close(read)
        os.close(write)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # the job's pipes must not wait for the writer
            os.dup2(null, number)
        return True
    if ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(write)
    writer = int(os.read(read, 32))
    os.wait()
    while True:
        try:
            os.kill(writer, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.2)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--output_dir", help="where the saves go")
    add("--resume_from_checkpoint", metavar="PATH", help="a save, or 'last': the highest number in --output_dir")
    add("--log_dir", help="where the run's own log goes (default: --output_dir)")
    add("--corpus", default=CORPUS, help="folder of the text")
    add("--seed", type=int, default=7)
    add("--branch", default=os.environ.get("DISPATCH_EPOCH", "0"), help="the run's name (default: DISPATCH_EPOCH)")
    add("--steps", type=int, default=100, help="train until this step")
    add("--stop-file", metavar="PATH", help="end with a save as soon as this file is there")
    add("--step-time", type=float, default=0.1, help="seconds from step to step, at least")
    add("--save_steps", type=int, default=5, help="save every so many steps")
    add("--save-time", type=float, default=0.0, help="seconds that a save takes, at least")
    add("--save_total_limit", type=int, default=1, help="saves to keep, 0 for all")
    add("--ignore-term", action="store_true", help="go on after SIGTERM")
    add("--linger", type=float, default=0.0, metavar="S", help="go on for S seconds after SIGTERM, then end by it")
    add("--detach", action="store_true", help="write from a process that has left the job")
    add("--replay", metavar="MARKER", help=f"do the steps of a save's {MARKER} again without a fault, and compare")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """0 done; 1 a lineage that is not what it must be, or a training that failed; 64 usage."""
    options = parse(argv)
    try:
        if options.replay:
            state = read_json(options.replay)
            losses = replay(state, options.corpus)
            equal = losses == state["log_history"]
            print(json.dumps({"equal": equal, "lineage": state["lineage"], "losses": losses}))
            return 0 if equal else 1
        if not options.output_dir:
            print("train.py: --output_dir is missing", file=sys.stderr)
            return 64
        if options.detach and not leave_the_job(ignore_term=options.ignore_term):
            return 0
        train(options)
    except TrainingError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
