#!/usr/bin/env python3
"""One run of the real ``transformers.Trainer`` in the trials on the cluster; ``--tell`` says what a save is made of.

The Trainer is the library's own, with ``save_total_limit=1``: a tiny GPT-2 made from a configuration learns random
tokens on the CPU. What is added only tells who did what: each entry of ``log_history`` carries the run's name (its
*branch*), and the model has a buffer with the run and the step that wrote its weights. Written are the lines that
``demo/witness.py`` reads.

Loading the libraries takes 5 s of a processor, for each run. So ``--serve SOCKET`` loads them once on each node,
under the interpreter of ``tools/make-venv-savers``, and forks a run when a task asks for one with ``--by SOCKET``.
Such a run has the task's environment and has left its job, as a daemon does: no signal of the job's end reaches it,
and it lives as long as the trial wants. The task waits for it, as a launcher does. ``--tell`` and ``--by`` need the
standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import struct
import sys
import time
from typing import Any

MARKER = "trainer_state.json"
WEIGHTS = "model.safetensors"
BUFFER = "written_by"
"""The model's buffer: the branch and the step, two 64-bit integers."""
TOKENS, LENGTH, EXAMPLES = 64, 16, 256
BATCH = 4
STEPS = 1_000_000


class Log:
    """The run's own account, as ``demo/train.py`` writes it."""

    def __init__(self, folder: str, branch: str) -> None:
        os.makedirs(folder, exist_ok=True)
        attempt = os.environ.get("DISPATCH_ATTEMPT", f"run{branch}")
        self.fixed = {
            "host": socket.gethostname(), "attempt": attempt, "epoch": branch, "branch": branch, "rank": 0,
            "slurm_job_id": os.environ.get("SLURM_JOB_ID", ""),
        }
        path = os.path.join(folder, f"{attempt}.0.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, what: str, **fields: object) -> None:
        line = {"at": time.time(), "what": what, "pid": os.getpid(), **self.fixed, **fields}
        os.write(self._file, json.dumps(line).encode("ascii") + b"\n")


def lineage_of(history: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Which branch did the steps from which on; the step before its first, as ``demo/train.py`` counts."""
    lineage: list[tuple[str, int]] = []
    for entry in history:
        if "branch" in entry and (not lineage or lineage[-1][0] != entry["branch"]):
            lineage.append((str(entry["branch"]), int(entry["step"]) - 1))
    return lineage


def tell(save: str) -> dict[str, Any]:
    """What a save is made of.

    :raises OSError, ValueError: it cannot be read.
    """
    with open(os.path.join(save, MARKER), encoding="utf-8") as file:
        state = json.load(file)
    with open(os.path.join(save, WEIGHTS), "rb") as weights:
        (length,) = struct.unpack("<Q", weights.read(8))
        head = json.loads(weights.read(length))
        begin, end = head[BUFFER]["data_offsets"]
        weights.seek(8 + length + begin)
        written_by = struct.unpack("<qq", weights.read(end - begin))
    steps = [entry["step"] for entry in state["log_history"] if "branch" in entry]
    return {
        "step": state["global_step"], "lineage": lineage_of(state["log_history"]), "steps": len(steps),
        "rising": steps == sorted(set(steps)), "written_by": list(written_by),
    }


def train(options: argparse.Namespace) -> None:
    """Train for ever, from the save that was given or from nothing."""
    log = Log(options.log_dir, options.branch)
    began = float(os.environ.get("SLURM_JOB_START_TIME", time.time()))
    signal.signal(signal.SIGTERM, lambda number, _: log.write("signal", signal=number))  # trapped: it goes on

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    torch.manual_seed(7)
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    model.register_buffer(BUFFER, torch.tensor([int(options.branch), 0]))
    tokens = torch.randint(0, TOKENS, (EXAMPLES, LENGTH), generator=torch.Generator().manual_seed(7))

    class Witness(TrainerCallback):  # type: ignore[misc]
        """Tells what the Trainer does, and keeps it slow."""

        began = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.began = True
            before = [(name, first) for name, first in lineage_of(state.log_history) if name != options.branch]
            log.write("start", step=state.global_step, resume=given, began=began, variables={},
                      lineage=[*before, (options.branch, state.global_step)])

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            getattr(model, BUFFER).copy_(torch.tensor([int(options.branch), state.global_step]))
            log.write("step", step=state.global_step, loss="")
            time.sleep(options.step_time)
            if os.path.exists(options.stop_file):
                log.write("end", step=state.global_step)
                os._exit(0)

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            state.log_history[-1]["branch"] = options.branch

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            log.write("saved", step=state.global_step, there=sorted(os.listdir(options.output_dir)))

    given = options.resume_from_checkpoint
    if given == "last":  # what everybody writes around resume_from_checkpoint=True, which refuses an empty folder
        given = get_last_checkpoint(options.output_dir) if os.path.isdir(options.output_dir) else None
    arguments = TrainingArguments(
        output_dir=options.output_dir, max_steps=STEPS, per_device_train_batch_size=BATCH, save_strategy="steps",
        save_steps=options.save_steps, save_total_limit=1, logging_steps=1, report_to=[], use_cpu=True,
        disable_tqdm=True, dataloader_num_workers=0, seed=7,
    )
    examples = [{"input_ids": row, "labels": row} for row in tokens]
    witness = Witness()
    trainer = Trainer(model=model, args=arguments, train_dataset=examples, callbacks=[witness])
    try:
        trainer.train(resume_from_checkpoint=given)
    except BaseException as error:  # the outermost frame of the run: whatever ends it must stand in its log
        if not witness.began:  # it could not even load its save
            log.write("start", step=0, resume=given, began=began, variables={}, lineage=[(options.branch, 0)])
        log.write("died", error=f"{type(error).__name__}: {error}"[:300])
        raise


def ask(socket_path: str, argv: list[str]) -> int:
    """Have the server of this node fork a run with these words and this process's environment; wait for its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(socket_path)
        connection.sendall(json.dumps({"argv": argv, "environ": dict(os.environ)}).encode() + b"\n")
        with connection.makefile("r") as answer:
            run = int(answer.readline())
    while True:
        try:
            os.kill(run, 0)
        except ProcessLookupError:
            return 0
        time.sleep(0.2)


def serve(socket_path: str) -> None:
    """Load the libraries, then fork a run for each that asks. The socket is there once they are loaded."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers.trainer  # noqa: F401 (all that a run needs of it)

    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # runs are reaped by the kernel
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"{socket_path}.new")
        listening.listen(64)
        os.rename(f"{socket_path}.new", socket_path)
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("r") as asked:
                request = json.loads(asked.readline())
                child = os.fork()
                if child == 0:
                    listening.close()
                    connection.close()
                    run(request["argv"], request["environ"])
                connection.sendall(f"{child}\n".encode())


def run(argv: list[str], environ: dict[str, str]) -> None:
    """In the fork: become the run. Does not return."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environ)
        options = parse(argv)
        os.makedirs(options.log_dir, exist_ok=True)
        said = os.open(f"{options.log_dir}/said.{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o644)
        for number in (1, 2):
            os.dup2(said, number)
        train(options)
        status = 0
    except BaseException:  # the outermost frame of a process
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--output_dir", help="where the saves go")
    add("--resume_from_checkpoint", metavar="PATH", help="a save, or 'last': what get_last_checkpoint finds")
    add("--log_dir", help="where the run's own log goes")
    add("--branch", default=os.environ.get("DISPATCH_EPOCH"), help="the run's name (default: DISPATCH_EPOCH)")
    add("--stop-file", default="", metavar="PATH", help="end as soon as this file is there")
    add("--step-time", type=float, default=0.1, help="seconds that a step takes, at least")
    add("--save_steps", type=int, default=5, help="save every so many steps")
    add("--serve", metavar="SOCKET", help="load the libraries and fork runs")
    add("--by", metavar="SOCKET", help="have the server there fork this run")
    add("--tell", metavar="SAVE", help="print what a save is made of; or of the last save, with --output_dir")
    return parser.parse_args(argv)


def last_in(folder: str) -> str | None:
    """What ``transformers.trainer_utils.get_last_checkpoint`` finds: the folder of the highest number."""
    found = [(int(name[11:]), name) for name in os.listdir(folder) if re.fullmatch(r"checkpoint-[0-9]+", name)]
    return os.path.join(folder, max(found)[1]) if found else None


def main(argv: list[str]) -> int:
    """0, however the run ended: its own log says it."""
    options = parse(argv)
    if options.tell:
        save = last_in(options.output_dir) if options.tell == "last" else options.tell
        try:
            print(json.dumps({"save": save, **(tell(save) if save else {})}))
        except (OSError, ValueError, KeyError, struct.error) as error:
            print(json.dumps({"save": save, "broken": f"{type(error).__name__}: {error}"[:200]}))
        return 0
    if options.serve:
        serve(options.serve)
    return ask(options.by, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
