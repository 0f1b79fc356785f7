"""A training as a user's job runs it, by one of the real libraries: saves every few steps and rotates, until told.

train_with.py KIND --dir DIR --stop-file FILE [--resume SAVE] [--step-time SECONDS]: trains from SAVE on, saves below
DIR under the names that the library's users have, and ends with a last save when FILE is there. The one weight is the
step that it stands for, so a save that is loaded and is not of the step that it says is an error. The first line it
prints is JSON with the step that it begins after.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
os.environ.update(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")

EVERY = 5
RANK, RANKS = int(os.environ.get("SLURM_PROCID", "0")), int(os.environ.get("SLURM_NTASKS", "1"))
PARSER = argparse.ArgumentParser()
PARSER.add_argument("kind")
PARSER.add_argument("--dir", required=True)
PARSER.add_argument("--stop-file", required=True)
PARSER.add_argument("--resume")
PARSER.add_argument("--step-time", type=float, default=0.2)
GIVEN = PARSER.parse_args()


def told_to_stop() -> bool:
    return os.path.exists(GIVEN.stop_file)


def begins(after: int) -> None:
    if RANK == 0:
        print(json.dumps({"after": after, "kind": GIVEN.kind}), flush=True)


def steps(after: int, stop=told_to_stop):
    """Each step to be trained, and whether it is one to save after; the last one is."""
    step, last = after, False
    while not last:
        step += 1
        time.sleep(GIVEN.step_time)
        last = step % EVERY == 0 and stop()
        yield step, step % EVERY == 0


def the_same(step: int, weight: float) -> None:
    """What was loaded must be what it says."""
    assert step == round(float(weight)), f"the save of step {step} holds the weight of step {weight}"


def keep_two(pattern: str) -> None:
    """The rotation that a script has of its own."""
    saves = [name for name in os.listdir(GIVEN.dir) if re.fullmatch(pattern, name)]
    for name in sorted(saves, key=lambda name: int(re.findall("[0-9]+", name)[-1]))[:-2]:
        path = os.path.join(GIVEN.dir, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def plain() -> None:
    """torch.save under one name for each step."""
    import torch

    after = 0
    if GIVEN.resume:
        found = torch.load(GIVEN.resume)
        after = found["step"]
        the_same(after, found["weight"])
    begins(after)
    for step, save in steps(after):
        if save:
            torch.save({"step": step, "weight": torch.tensor(float(step))}, f"{GIVEN.dir}/model_step{step}.pt")
            keep_two(r"model_step[0-9]+\.pt")


def accelerate() -> None:
    """``save_state`` with a name of the script's own, as the library's examples do it."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    after = 0
    if GIVEN.resume:
        accelerator.load_state(GIVEN.resume)
        after = int(re.findall("[0-9]+", os.path.basename(GIVEN.resume))[-1])
        the_same(after, model.weight)
    begins(after)
    for step, save in steps(after):
        if save:
            with torch.no_grad():
                model.weight.fill_(step)
            accelerator.save_state(f"{GIVEN.dir}/step_{step}")
            keep_two("step_[0-9]+")


def lightning() -> None:
    """A Trainer with a ModelCheckpoint that keeps one; ``callback``: with ours beside it."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    folder, resume, more = GIVEN.dir, GIVEN.resume, []
    if GIVEN.kind == "lightning-callback":
        from slurm_dispatch.integrations.lightning import DispatchCallback

        more = [DispatchCallback()]
        folder, resume = more[0].dirpath, more[0].ckpt_path

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1, bias=False)

        def on_load_checkpoint(self, checkpoint):
            the_same(checkpoint["global_step"], checkpoint["state_dict"]["layer.weight"])
            begins(checkpoint["global_step"])

        def on_save_checkpoint(self, checkpoint):
            checkpoint["state_dict"]["layer.weight"] = torch.full((1, 1), float(checkpoint["global_step"]))

        def training_step(self, batch, index):
            time.sleep(GIVEN.step_time)
            if self.global_step % EVERY == 0 and self.global_step and told_to_stop():
                self.trainer.should_stop = True
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    if not resume:
        begins(0)
    saves = ModelCheckpoint(dirpath=folder, every_n_train_steps=EVERY, save_top_k=1, monitor="step", mode="max")
    trainer = pl.Trainer(
        max_steps=100_000, max_epochs=-1, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[saves, *more],
    )
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(100_000, 1)), batch_size=1)
    trainer.fit(Model(), data, ckpt_path=resume or None)


def dcp() -> None:
    """All ranks of the job in one save; ``callback``: asynchronously, published by ours when it is done."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint

    with_ours = GIVEN.kind == "dcp-callback"
    dist.init_process_group("gloo", init_method="env://", rank=RANK, world_size=RANKS)
    state = {f"weight-{rank}": torch.zeros(()) for rank in range(RANKS) if rank == RANK}
    state["step"] = torch.tensor(0)
    after = 0
    if GIVEN.resume:
        checkpoint.load(state, checkpoint_id=GIVEN.resume)
        after = int(state["step"])
        the_same(after, state[f"weight-{RANK}"])
    begins(after)
    if with_ours:
        from slurm_dispatch.integrations.dcp import async_save

    def all_stop() -> bool:
        said = torch.tensor(int(told_to_stop()))
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return bool(said)

    for step, save in steps(after, all_stop):
        if not save:
            continue
        state[f"weight-{RANK}"], state["step"] = torch.tensor(float(step)), torch.tensor(step)
        if with_ours:
            async_save(state, step=step, checkpoint_id=f"{GIVEN.dir}/step-{step}").result(120)
        else:
            checkpoint.save(state, checkpoint_id=f"{GIVEN.dir}/step-{step}")
        dist.barrier()
        if RANK == 0:
            keep_two("step-[0-9]+")
    dist.destroy_process_group()


def orbax() -> None:
    """The CheckpointManager, which saves in the background and keeps one."""
    import numpy as np
    import orbax.checkpoint as ocp

    manager = ocp.CheckpointManager(GIVEN.dir, options=ocp.CheckpointManagerOptions(max_to_keep=1))
    after = 0
    if GIVEN.resume:
        after = int(os.path.basename(GIVEN.resume))
        before = ocp.CheckpointManager(os.path.dirname(GIVEN.resume))
        found = before.restore(after, args=ocp.args.StandardRestore({"weight": np.zeros(1)}))
        the_same(after, found["weight"][0])
    begins(after)
    for step, save in steps(after):
        if save:
            manager.save(step, args=ocp.args.StandardSave({"weight": np.full(1, float(step))}))
    manager.wait_until_finished()


if __name__ == "__main__":
    {"plain": plain, "accelerate": accelerate, "lightning": lightning, "lightning-callback": lightning, "dcp": dcp,
     "dcp-callback": dcp, "orbax": orbax}[GIVEN.kind]()
    sys.stdout.flush()
    os._exit(0)  # what the libraries left running must not make the end another one
