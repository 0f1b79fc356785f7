"""``DispatchCallback`` for the ``Trainer`` of transformers: publishes in ``on_save``, and carries the best save on.

What the Trainer does (transformers 5.24, ``trainer.py`` and ``trainer_callback.py``): ``_save_checkpoint`` writes
``checkpoint-<global_step>`` below ``output_dir``, ``trainer_state.json`` last of rank 0's files, deletes older saves
by ``save_total_limit``, and then calls ``on_save`` on every rank, without waiting for ranks that still write their
own files. ``trainer_state.json`` names the best save by its absolute path; ``_init_training_state`` forgets the path
(not the score) when it resumes and that folder is gone, which it is once an older execution has been thinned. Then
``load_best_model_at_end`` loads nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from slurm_dispatch.api import Execution, execution
from slurm_dispatch.errors import BadDataError, StoreError, UsageError, show
from slurm_dispatch.integrations.patience import Publishing
from slurm_dispatch.s3.place import is_place

if TYPE_CHECKING:
    from slurm_dispatch.store.best import Best

PATTERN = "checkpoint-{step}"


class Hooks:
    """What ``DispatchCallback`` is, beside a ``TrainerCallback``. Made on every rank, before the Trainer trains::

        dispatch = DispatchCallback()
        arguments = TrainingArguments(output_dir=dispatch.output_dir, ...)
        trainer = Trainer(..., args=arguments, callbacks=[dispatch])
        trainer.train(resume_from_checkpoint=dispatch.resume_from_checkpoint)

    :param root: the checkpoint root; by default ``DISPATCH_CHECKPOINT``.
    :param from_dir: for a root in S3, as ``dispatch-watch --from``, whose folder is the default: a folder of this
        host below which the Trainer saves. It saves to folders only.
    :param sync: fsync the save's own files before it is published.
    :param allow_step_back: publish steps below the one resumed from.
    :ivar output_dir: the execution's folder, ``DISPATCH_DIR``.
    :ivar resume_from_checkpoint: the save to resume from, or ``None`` on a first start.
    :raises DispatchError: as :func:`slurm_dispatch.execution`. Out of ``train()``: ``NotResumedError``, the Trainer
        did not load what it was given; ``BadDataError``, a save cannot be published, as one outside ``output_dir``.
        A store error is said on standard error, and is raised only at the end, if the last save is unpublished.
    """

    output_dir: str
    resume_from_checkpoint: str | None

    def __init__(
        self,
        *,
        root: str | None = None,
        from_dir: str | os.PathLike[str] | None = None,
        sync: bool = False,
        allow_step_back: bool = False,
    ) -> None:
        self.execution: Execution = execution(root=root, from_dir=from_dir)
        if is_place(self.execution.directory):
            raise UsageError(
                f"the Trainer saves to folders, and {show(self.execution.root)} is in S3",
                hint="start it with dispatch-watch --from DIR, or give from_dir=DIR",
            )
        self.output_dir = self.execution.directory
        self.resume_from_checkpoint = self.execution.resume
        self._publishing = Publishing(self.execution, PATTERN, sync=sync, allow_step_back=allow_step_back)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The state is loaded: point it to the best save over all executions, taken into this one's ``best/``."""
        if self.execution.shared or args.metric_for_best_model is None:
            return
        best: Best | None = None
        if state.is_world_process_zero:
            best = self._carried(args, state)
        best = _from_rank_0(best)
        if best is None:
            return
        from accelerate import PartialState

        with PartialState().local_main_process_first():  # of a root in S3 each host needs it
            best = self.execution.bring_best(best)
        state.best_metric = best.score
        state.best_global_step = best.step
        state.best_model_checkpoint = best.path

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for all ranks, then publish on rank 0; and keep the save if it is the best one."""
        from accelerate import PartialState

        PartialState().wait_for_everyone()
        if self.execution.shared or not state.is_world_process_zero:
            return
        save = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self._publishing.publish(save, state.global_step)
        if state.best_metric is not None and state.best_global_step == state.global_step:
            self._publishing.keep_best(
                save, state.global_step, metric=args.metric_for_best_model, score=float(state.best_metric),
                greater_is_better=bool(args.greater_is_better),
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What the storage did not take before is published now, or is an error."""
        if state.is_world_process_zero:
            self._publishing.end()

    def _carried(self, args: Any, state: Any) -> Best | None:
        """The better one of what the executions said, and what the state says whose save is still there."""
        metric, greater = args.metric_for_best_model, bool(args.greater_is_better)
        found = self.execution.carry_best(metric, greater_is_better=greater)
        path, score, step = state.best_model_checkpoint, state.best_metric, state.best_global_step
        if path is None or score is None or not step or (found is not None and not _better(score, found, greater)):
            return found
        try:
            # A save of an execution that ran without this callback: nobody has said that it is the best one.
            return self.execution.keep_best(path, step, metric=metric, score=float(score), greater_is_better=greater)
        except (BadDataError, StoreError):
            return found


def _better(score: float, than: Best, greater_is_better: bool) -> bool:
    return score > than.score if greater_is_better else score < than.score


def _from_rank_0(best: Best | None) -> Best | None:
    """What rank 0 found, on every rank: the Trainer compares scores on each of them."""
    from accelerate.utils import broadcast_object_list

    said = [best]
    broadcast_object_list(said)
    return said[0]


def __getattr__(name: str) -> type[Hooks]:
    """``DispatchCallback``, made when it is first asked for: transformers takes seconds to load."""
    if name != "DispatchCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from transformers import TrainerCallback

    made = type(name, (Hooks, TrainerCallback), {"__doc__": Hooks.__doc__, "__module__": __name__})
    globals()[name] = made
    return made
