"""Publishing from inside a training, where a storage that fails for a while must not end it.

As with ``dispatch-watch``: a store error is said on standard error, the training goes on, the next save is published,
and only a last save that is left unpublished is an error at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.errors import StoreError
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from slurm_dispatch.api import Execution


class Publishing:
    """Publishes the saves of one training, on one rank.

    :param pattern: what the library calls its saves, as ``--pattern``.
    """

    def __init__(self, execution: Execution, pattern: str, *, sync: bool, allow_step_back: bool) -> None:
        self.execution = execution
        self._options = {"pattern": pattern, "sync": sync, "allow_step_back": allow_step_back}
        self._left: tuple[str, int] | None = None

    def publish(self, path: str, step: int) -> None:
        """Publish a whole save; a store error is said.

        :raises DispatchError: any other error: the save will not be better next time.
        """
        try:
            self.execution.publish(path, step, **self._options)
        except StoreError as error:
            say(f"step {step} is not published: {error.line()}")
            self._left = (path, step)
        else:
            self._left = None

    def keep_best(self, path: str, step: int, *, metric: str, score: float, greater_is_better: bool) -> None:
        """Keep the best save; a store error is said."""
        try:
            self.execution.keep_best(path, step, metric=metric, score=score, greater_is_better=greater_is_better)
        except StoreError as error:
            say(f"the best save, of step {step}, is not kept: {error.line()}")

    def end(self) -> None:
        """The training is done: publish the last save, if that is left.

        :raises DispatchError: it cannot be.
        """
        if self._left is not None:
            path, step = self._left
            self.execution.publish(path, step, **self._options)
            self._left = None
