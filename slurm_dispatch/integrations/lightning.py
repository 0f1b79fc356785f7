"""``DispatchCallback`` for Lightning's ``Trainer``: publishes each whole checkpoint, and carries the best one on.

What Lightning does (lightning 2.6, ``pytorch/callbacks/model_checkpoint.py``, ``pytorch/trainer/trainer.py``):
``ModelCheckpoint`` calls ``Trainer.save_checkpoint``, which writes on rank 0 (or on all ranks, by the strategy) and
ends with a barrier of all ranks; only then it deletes the checkpoint that the new one replaces, and only below its
own ``dirpath``. A checkpoint carries the state of each ``ModelCheckpoint``; ``load_state_dict`` takes the scores only
if ``dirpath`` is the same as before, which it is not in an execution's own folder: then the next checkpoint counts as
the best one, whatever its score. ``last.ckpt`` has no step of its own and is not published.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from slurm_dispatch.api import Execution, execution
from slurm_dispatch.integrations.patience import Publishing

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.best import Best

PATTERN = "*step={step}.ckpt"


class Hooks:
    """What ``DispatchCallback`` is, beside a ``lightning.pytorch.Callback``. Made on every rank, before the Trainer::

        dispatch = DispatchCallback()
        saves = ModelCheckpoint(dirpath=dispatch.dirpath, monitor="val_loss", every_n_train_steps=500)
        trainer = Trainer(..., callbacks=[saves, dispatch])
        trainer.fit(model, ckpt_path=dispatch.ckpt_path)

    :param root: the checkpoint root; by default ``DISPATCH_CHECKPOINT``.
    :param from_dir: for a root in S3, as ``dispatch-watch --from``, whose folder is the default: a folder of this
        host below which Lightning saves. Without one ``dirpath`` and ``ckpt_path`` are ``s3://...``.
    :param sync: fsync the save's own files before it is published.
    :param allow_step_back: publish steps below the one resumed from.
    :ivar dirpath: the execution's folder, ``DISPATCH_DIR``.
    :ivar ckpt_path: the checkpoint to resume from, or ``None`` on a first start.
    :raises DispatchError: as :func:`slurm_dispatch.execution`. Out of ``fit()``: ``NotResumedError``, the Trainer did
        not load what it was given; ``BadDataError``, a save cannot be published, as one outside ``dirpath``. A store
        error is said on standard error, and is raised only at the end, if the last save is left unpublished.
    """

    dirpath: str
    ckpt_path: str | None

    def __init__(
        self,
        *,
        root: str | None = None,
        from_dir: str | os.PathLike[str] | None = None,
        sync: bool = False,
        allow_step_back: bool = False,
    ) -> None:
        self.execution: Execution = execution(root=root, from_dir=from_dir)
        self.dirpath = self.execution.directory
        self.ckpt_path = self.execution.resume
        self._publishing = Publishing(self.execution, PATTERN, sync=sync, allow_step_back=allow_step_back)
        self._undo: Callable[[], None] | None = None
        self._step = -1

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Hear of each checkpoint as soon as all ranks have written it, and before an older one is deleted."""
        if stage != "fit" or self.execution.shared or self._undo is not None:
            return
        saving = trainer.save_checkpoint

        def save_checkpoint(filepath: Any, weights_only: bool | None = None, *args: Any, **kwargs: Any) -> None:
            saving(filepath, weights_only, *args, **kwargs)  # it ends with a barrier
            if trainer.is_global_zero and not weights_only:
                self._publish(trainer, os.fspath(filepath))

        trainer.save_checkpoint = save_checkpoint

        def undo() -> None:
            del trainer.save_checkpoint

        self._undo = undo

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """What the storage did not take before is published now, or is an error."""
        if trainer.is_global_zero:
            self._publishing.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Nothing is heard any more."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Before ``ModelCheckpoint`` takes its state: the best checkpoint is this execution's own from here on."""
        if self.execution.shared:
            return
        for saves in _monitoring(trainer):
            state = checkpoint.get("callbacks", {}).get(saves.state_key)
            best: Best | None = None
            if trainer.is_global_zero:
                best = self._carried(saves, state or {})
            best = trainer.strategy.broadcast(best)
            if state is not None and best is not None:
                _point(state, saves, self._here(trainer, best))

    def _publish(self, trainer: Any, path: str) -> None:
        step = trainer.global_step
        if str(step) not in re.findall("[0-9]+", os.path.basename(path)):
            return  # rewritten under one name: it has no step of its own
        if step != self._step:  # two ModelCheckpoints can save one step
            self._publishing.publish(path, step)
            self._step = step
        for saves in _monitoring(trainer):
            if saves.best_model_path == path and saves.best_model_score is not None:
                self._publishing.keep_best(
                    path, step, metric=saves.monitor, score=float(saves.best_model_score),
                    greater_is_better=saves.mode == "max",
                )

    def _here(self, trainer: Any, best: Best) -> Best:
        """Of a root in S3 each host needs it: its first process brings it, and the others find it there."""
        if trainer.local_rank == 0:
            best = self.execution.bring_best(best)
        trainer.strategy.barrier()
        return self.execution.bring_best(best)

    def _carried(self, saves: Any, state: dict[str, Any]) -> Best | None:
        greater = saves.mode == "max"
        found = self.execution.carry_best(saves.monitor, greater_is_better=greater)
        path, score = state.get("best_model_path"), state.get("best_model_score")
        if found is not None or not path or score is None or not os.path.exists(path):
            return found
        # Of an execution that ran without this callback: nobody has said that it is the best one.
        steps = re.findall("[0-9]+", os.path.basename(path))
        return self.execution.keep_best(
            path, int(steps[-1]) if steps else 0, metric=saves.monitor, score=float(score), greater_is_better=greater
        )


def _monitoring(trainer: Any) -> list[Any]:
    """The callback that saves by a score; of several the first one, since an execution has one best save."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    found = [one for one in trainer.checkpoint_callbacks if isinstance(one, ModelCheckpoint)]
    return [one for one in found if one.monitor is not None][:1]


def _point(state: dict[str, Any], saves: Any, best: Best) -> None:
    """A ``ModelCheckpoint``'s state as it would be had the best checkpoint always been here."""
    import torch

    score = torch.tensor(best.score)
    state.update(
        dirpath=saves.dirpath, best_model_path=best.path, best_model_score=score, best_k_models={best.path: score},
        last_model_path="",
    )
    if saves.save_top_k == 1:
        state.update(kth_best_model_path=best.path, kth_value=score)
    else:
        worst = torch.tensor(float("inf") if saves.mode == "min" else -float("inf"))
        state.update(kth_best_model_path="", kth_value=worst)


def __getattr__(name: str) -> type[Hooks]:
    """``DispatchCallback``, made when it is first asked for: Lightning takes seconds to load."""
    if name != "DispatchCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lightning.pytorch import Callback

    made = type(name, (Hooks, Callback), {"__doc__": Hooks.__doc__, "__module__": __name__})
    globals()[name] = made
    return made
