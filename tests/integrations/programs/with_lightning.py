"""Lightning's Trainer with ``DispatchCallback``: ``alone ROOT``, or ``helped`` below ``dispatch-watch``."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from ranks import become, from_dir, tell

from slurm_dispatch.errors import NotResumedError
from slurm_dispatch.integrations.lightning import DispatchCallback

SCORES = {5: 0.5, 10: 0.9, 15: 0.3, 20: 0.4, 25: 0.6, 30: 0.5, 35: 0.95, 40: 0.1}


class Stop(Exception):
    """The run is taken away."""


class Model(LightningModule):
    """One weight for each input; the score is what the script says."""

    def __init__(self, stop_at: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.stop_at = stop_at

    def training_step(self, batch: Any, _: int) -> Any:
        if self.global_step == self.stop_at:
            raise Stop
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Score(Callback):
    """Says the score of a step before checkpoints are made: those callbacks run last."""

    def on_train_batch_end(self, trainer: Any, model: Any, *_: Any) -> None:
        model.log("score", torch.tensor(SCORES.get(trainer.global_step, 0.0)))


def run(dispatch: Any, *, steps: int, stop_at: int = -1, resume: bool = True) -> dict[str, Any]:
    seed_everything(7, verbose=False)
    best = ModelCheckpoint(
        dirpath=dispatch.dirpath, filename="best-{step}", monitor="score", mode="max", save_top_k=1,
        every_n_train_steps=5,
    )
    regular = ModelCheckpoint(
        dirpath=dispatch.dirpath, filename="{epoch}-{step}", every_n_train_steps=5, save_last=True
    )
    trainer = Trainer(
        max_steps=steps, callbacks=[Score(), best, regular, dispatch], logger=False, accelerator="cpu", devices=1,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )
    data = torch.utils.data.DataLoader(torch.ones(4000, 4), batch_size=2)
    try:
        trainer.fit(Model(stop_at), data, ckpt_path=dispatch.ckpt_path if resume else None)
    except Stop:
        pass
    except NotResumedError as error:
        return {"error": str(error)}
    score = best.best_model_score
    return {
        "resume": dispatch.ckpt_path, "step": trainer.global_step, "best": best.best_model_path,
        "score": None if score is None else round(float(score), 4),
        "callback": [type(dispatch).__name__, isinstance(dispatch, Callback)],
    }


def alone(root: str) -> None:
    for number, more in (
        (1, {"steps": 100, "stop_at": 17}),
        (2, {"steps": 30}),
        (3, {"steps": 40, "resume": False}),
        (4, {"steps": 40}),
    ):
        become(root, number)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            said = run(DispatchCallback(from_dir=from_dir()), **more)
        changed = [str(one.message) for one in warned if "dirpath has changed" in str(one.message)]
        tell("trained", execution=number, **said, changed=len(changed))


def helped() -> None:
    """Below ``dispatch-watch``, whose variables are there."""
    tell("helped", **run(DispatchCallback(), steps=20))


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    {"alone": alone, "helped": helped}[sys.argv[1]](*sys.argv[2:])
