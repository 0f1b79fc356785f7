"""The Trainer with ``DispatchCallback``: ``alone ROOT``, ``ranks ROOT`` or ``hosts ROOT``, or ``helped`` below
``dispatch-watch``."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from ranks import attempt, become, from_dir, on_ranks, tell
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from slurm_dispatch.errors import NotResumedError
from slurm_dispatch.integrations.transformers import DispatchCallback

SCORES = {5: 0.5, 10: 0.9, 15: 0.3, 20: 0.4, 25: 0.6, 30: 0.5, 35: 0.95, 40: 0.1, 45: 0.2}
"""What the evaluation finds at a step."""
SLOW_S = 2.0


class Stop(Exception):
    """The run is taken away."""


class Script(TrainerCallback):
    """Makes the score what the script says, and takes the run away at a step."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at, self.step = stop_at, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step = state.global_step
        if self.step == self.stop_at:
            raise Stop

    def score(self, _: Any) -> dict[str, float]:
        return {"score": SCORES[self.step]}


def make(dispatch: Any, script: Script, *, steps: int, patience: int = 100) -> Trainer:
    set_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (64, 8))]
    arguments = TrainingArguments(
        output_dir=dispatch.output_dir, max_steps=steps, per_device_train_batch_size=2, save_steps=5, eval_steps=5,
        save_strategy="steps", eval_strategy="steps", save_total_limit=1, metric_for_best_model="score",
        greater_is_better=True, load_best_model_at_end=True, logging_steps=5, report_to=[], use_cpu=True,
        disable_tqdm=True, seed=7,
    )
    return Trainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:4], compute_metrics=script.score,
        callbacks=[script, EarlyStoppingCallback(patience), dispatch],
    )


def fingerprint(model: Any) -> float:
    return float(sum(p.detach().double().abs().sum() for p in model.parameters()))


def execution(root: str, number: int, *, steps: int, stop_at: int = 0, resume: bool = True, **more: Any) -> Trainer:
    """One execution, until it is done or is taken away."""
    become(root, number)
    dispatch = DispatchCallback(from_dir=from_dir())
    script = Script(stop_at)
    trainer = make(dispatch, script, steps=steps, **more)
    prints: dict[int, float] = {}

    class Prints(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            prints[state.global_step] = fingerprint(model)

    trainer.add_callback(Prints())
    try:
        trainer.train(resume_from_checkpoint=dispatch.resume_from_checkpoint if resume else None)
    except Stop:
        pass
    except NotResumedError as error:
        tell("not_resumed", execution=number, error=str(error))
        return trainer
    state = trainer.state
    tell(
        "trained", execution=number, rank=int(os.environ.get("RANK", "0")),
        resume=dispatch.resume_from_checkpoint, step=state.global_step,
        best=[state.best_metric, state.best_global_step, state.best_model_checkpoint], prints=prints,
        print=fingerprint(trainer.model), callback=[type(dispatch).__name__, isinstance(dispatch, TrainerCallback)],
    )
    return trainer


def alone(root: str) -> None:
    execution(root, 1, steps=100, stop_at=17)
    execution(root, 2, steps=30)
    execution(root, 3, steps=30, resume=False)
    # The best score of all is carried, so training for two evaluations without a better one is enough to stop.
    execution(root, 4, steps=100, patience=2)


def ranks(root: str) -> None:
    """Two ranks, of which the second one writes its own file of a save late."""

    def work(rank: int) -> None:
        if rank == 1:
            slowly = Trainer._save_rng_state

            def save(self: Trainer, folder: str) -> None:
                time.sleep(SLOW_S)
                slowly(self, folder)

            Trainer._save_rng_state = save
        for number, steps in ((1, 10), (2, 20)):
            trainer = execution(root, number, steps=steps)
            tell("rank", rank=rank, execution=number, best=trainer.state.best_model_checkpoint)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    on_ranks(2, work)
    for number in (1, 2):
        kept = os.path.join(root, "exec", attempt(number), "kept")
        files = {name: sorted(os.listdir(f"{kept}/{name}")) for name in os.listdir(kept)}
        tell("kept", execution=number, files=files)


def hosts(root: str) -> None:
    """Two ranks that share no disk: each has a folder of its own in FROM_DIR, and is the first one of its host."""

    def work(rank: int) -> None:
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", FROM_DIR=f"{from_dir()}/host{rank}")
        for number, steps in ((1, 10), (2, 20)):
            trainer = execution(root, number, steps=steps)
            tell("rank", rank=rank, execution=number, best=trainer.state.best_model_checkpoint)
        torch.distributed.destroy_process_group()

    on_ranks(2, work)


def helped() -> None:
    """Below ``dispatch-watch``, whose variables are there."""
    dispatch = DispatchCallback()
    trainer = make(dispatch, Script(0), steps=20)
    trainer.train(resume_from_checkpoint=dispatch.resume_from_checkpoint)
    tell("helped", directory=dispatch.output_dir, step=trainer.state.global_step)


if __name__ == "__main__":
    {"alone": alone, "ranks": ranks, "hosts": hosts, "helped": helped}[sys.argv[1]](*sys.argv[2:])
