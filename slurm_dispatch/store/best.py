"""The best save by a score, over all executions: ``best/<name>`` and ``.dispatch/best`` in the execution's folder.

A saver that keeps its best save beside its last ones loses both the save and the score when each execution has a
folder of its own and older ones are thinned. So each execution that is told a score has links or copies of the best
save in ``best/``, which neither thinning nor gc ever takes, and says in ``.dispatch/best`` what it is: ``{"v": 1,
"metric", "score", "greater_is_better", "epoch", "step", "path" (relative to the root)}``. The next execution takes it
over before it trains. The record is no publication: it is replaced, whole, and decides nothing but which save is the
best one.

The law: *the best save of all is never removed; what goes is an execution's own, once it has a better one, and an
older one's, once a later execution has it or a better one.*
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import read_regular, replace_whole
from slurm_dispatch.errors import AbsentError, BadDataError, StoreError, TransientError, show, store_error
from slurm_dispatch.model.epoch import parse_epoch
from slurm_dispatch.store.body import WRONG, read_body, render_body
from slurm_dispatch.store.folders import is_listed, list_fresh, make, tries
from slurm_dispatch.store.keep import remove_out_of_sight, same_save
from slurm_dispatch.store.outranked import BEST
from slurm_dispatch.store.transfer import transfer

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot

RECORD = "best"
SIZE_MAX = 64 * 1024
VERSION = 1
TAKE_WAITS_S = (0.0, 0.1, 0.5, 1.0)
"""Waits before each try to take a best save that its own execution may be replacing meanwhile."""
NAMES_MAX = 100
"""Best saves of one name and different content in one execution; each goes when the next one is there."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best save that an execution knows of.

    :ivar metric: what was measured, the same words in every execution of the job.
    :ivar score: finite.
    :ivar epoch: of the execution that has it in its ``best/``.
    :ivar path: absolute.
    """

    metric: str
    score: float
    greater_is_better: bool
    epoch: int
    step: int
    path: str

    def same_measure(self, metric: str, greater_is_better: bool) -> bool:
        """Whether it can be compared with scores of this metric."""
        return (self.metric, self.greater_is_better) == (metric, greater_is_better)

    def beats(self, score: float) -> bool:
        """Whether it is better than ``score``, not only as good."""
        return self.score > score if self.greater_is_better else self.score < score


def keep_best(
    root: CheckpointRoot,
    attempt: str,
    source: str | bytes,
    *,
    epoch: int,
    step: int,
    metric: str,
    score: float,
    greater_is_better: bool,
    copy: bool = False,
) -> Best:
    """Make the save at ``source`` the best one of this execution, durable; the one before goes.

    :param source: absolute; a whole save, of this execution or of an older one.
    :raises BadDataError: the score is not finite; or as :func:`slurm_dispatch.store.keep.keep`.
    :raises AbsentError: the save is gone.
    :raises StoreError: the disk.
    """
    if not math.isfinite(score):
        raise BadDataError(f"the score of save {show(source)} is {score}", hint="it must be a finite number")
    path = _take(root, attempt, os.fsencode(source), copy)
    relative = os.path.relpath(path, root.raw)
    content = render_body(
        VERSION, metric=metric, score=score, greater_is_better=greater_is_better, epoch=str(epoch), step=step,
        path=os.fsdecode(relative),
    )  # fmt: skip
    folder = os.path.join(root.execution(attempt), ".dispatch")
    try:
        replace_whole(folder, RECORD, content, mode=root.modes().file, sync=True)
    except OSError as error:
        raise store_error(error, "writing", os.path.join(folder, RECORD)) from error
    _remove_others(os.path.join(root.raw, b"exec", attempt.encode("ascii"), BEST), path)
    return Best(metric, score, greater_is_better, epoch, step, os.fsdecode(path))


def read_best(root: CheckpointRoot, attempt: str) -> Best | None:
    """What the execution says is its best save, there or not; ``None`` if it says nothing.

    :raises BadDataError: the record does not parse.
    """
    path = os.path.join(root.execution(attempt), ".dispatch", RECORD)
    try:
        content = read_regular(path, SIZE_MAX)
    except AbsentError:
        return None
    try:
        body = read_body(content, VERSION)
        save = os.path.join(root.path, str(body["path"]))
        if not os.path.normpath(save).startswith(os.path.join(root.path, "exec", attempt, "")):
            raise ValueError("its save is not in the execution's folder")
        greater = body["greater_is_better"] is True
        step, epoch = int(body["step"]), parse_epoch(body["epoch"])
        return Best(str(body["metric"]), float(body["score"]), greater, epoch, step, save)
    except WRONG as error:
        raise BadDataError(f"best save {show(path)} does not parse: {error}") from error


def best_of_all(root: CheckpointRoot, metric: str, *, greater_is_better: bool) -> Best | None:
    """The best save over all executions of the root, which was there a moment ago; of equal ones that of the latest.

    :raises BadDataError: a record does not parse.
    :raises StoreError: it could not be looked; never the same as ``None``.
    """
    found: Best | None = None
    for attempt in root.executions():
        one = read_best(root, attempt)
        if one is None or not one.same_measure(metric, greater_is_better) or not is_listed(os.fsencode(one.path)):
            continue
        if found is None or one.beats(found.score) or (not found.beats(one.score) and one.epoch > found.epoch):
            found = one
    return found


def carry_best(
    root: CheckpointRoot, attempt: str, *, epoch: int, metric: str, greater_is_better: bool, copy: bool = False
) -> Best | None:
    """Take the best save over all executions into this one's ``best/``; ``None`` if there is none.

    :raises StoreError: the disk, or it changed at each of several tries.
    """
    trouble: StoreError | None = None
    for _ in tries(TAKE_WAITS_S):
        found = best_of_all(root, metric, greater_is_better=greater_is_better)
        if found is None or found.path.startswith(os.path.join(root.execution(attempt), "")):
            return found
        try:
            return keep_best(
                root, attempt, found.path, epoch=epoch, step=found.step, metric=metric, score=found.score,
                greater_is_better=greater_is_better, copy=copy,
            )
        except (AbsentError, TransientError) as error:
            trouble = error  # its execution has a better one now, or thinning took it because there is a better one
    what = f"taking the best save of {show(root.path)}: it changed or went each time it was tried"
    raise TransientError(what) from trouble


def drop_outdone(root: CheckpointRoot, attempt: str) -> tuple[bytes, ...]:
    """Remove the best saves of older executions that are not better than this one's own, which must be there.

    What an execution says of another metric stays, and what does not parse, and what has no record yet.

    :returns: what was removed, relative to the root. What cannot be removed now goes another time.
    """
    own = read_best(root, attempt)
    if own is None or not is_listed(os.fsencode(own.path)):
        return ()
    gone: list[bytes] = []
    for other in root.executions():
        try:
            theirs = None if other == attempt else read_best(root, other)
            if theirs is None or theirs.epoch >= own.epoch or theirs.beats(own.score):
                continue
            if theirs.same_measure(own.metric, own.greater_is_better):
                folder = b"/".join((b"exec", other.encode("ascii"), BEST))
                names = [folder + b"/" + name for name in root.entries(folder)]
                gone += [path for path in names if root.remove(path)]
        except (BadDataError, StoreError):
            continue
    return tuple(gone)


def _take(root: CheckpointRoot, attempt: str, source: bytes, copy: bool) -> bytes:
    """Links or copies of ``source`` in ``best/``; what is there already and is the same stays."""
    folder = root.make_in_execution(attempt, BEST)
    name = os.path.basename(source)
    for number in range(1, NAMES_MAX):
        place = folder if number == 1 else os.path.join(folder, b"%d" % number)
        path = os.path.join(place, name)
        if path == source and os.path.lexists(path):
            return path
        if number > 1:
            os.close(_made(folder, b"%d" % number, root))
        if not os.path.lexists(path):
            if transfer(source, place, name, copy=copy) is None:
                if not os.path.lexists(source):
                    raise AbsentError(f"taking {show(source)}: it is gone")
                raise TransientError(f"taking {show(source)}: it changed meanwhile")
            return path
        if same_save(source, path):
            return path
    raise BadDataError(f"save {show(source)} has been the best {NAMES_MAX} times in one execution")


def _made(folder: bytes, name: bytes, root: CheckpointRoot) -> int:
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return make(parent, name, os.path.join(folder, name), root.modes().folder)
    finally:
        os.close(parent)


def _remove_others(folder: bytes, path: bytes) -> None:
    """Remove every best save of this execution but ``path``; what cannot be removed now goes with the next one."""
    try:
        for name in list_fresh(folder):
            inner = os.path.join(folder, name)
            if path != inner and not path.startswith(inner + b"/"):
                remove_out_of_sight(folder, name)
        if os.path.dirname(path) != folder:
            for name in list_fresh(os.path.dirname(path)):
                if name != os.path.basename(path):
                    remove_out_of_sight(os.path.dirname(path), name)
    except StoreError:
        return
