"""The best save by a score, over all executions: ``best/<name>`` and ``.dispatch/best`` in the execution's folder.

A saver that keeps its best save beside its last ones loses both the save and the score when each execution has a
folder of its own and older ones are thinned. So each execution that is told a score has links or copies of the best
save in ``best/``, which neither thinning nor gc ever takes, and says in ``.dispatch/best`` what it is: ``{"v": 1,
"metric", "score", "greater_is_better", "epoch", "step", "path" (relative to the root)}``. The next execution takes it
over before it trains. The record is no publication: it is replaced, whole, and decides nothing but which save is the
best one.

The law: *the best save of all is never removed; what goes is an execution's own, once it has a better one, and an
older one's, once a later execution has it or a better one.* In S3, where nothing goes at once, the record says that a
best save is being removed (``"removing": true``) before its first object goes: who reads one asks again afterwards.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, StoreError, TransientError, show
from slurm_dispatch.model.epoch import parse_epoch
from slurm_dispatch.store.body import WRONG, read_body, render_body
from slurm_dispatch.store.folders import make, tries
from slurm_dispatch.store.keep import same_save
from slurm_dispatch.store.outranked import BEST
from slurm_dispatch.store.root import CheckpointRoot
from slurm_dispatch.store.transfer import transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.roots import Root

    Take = Callable[[str, Callable[[], bool]], bytes]
    """Makes a second save in ``best/`` of the execution of the save at a path; its path relative to the root. The
    second argument is asked whether what says that the source is whole is still said."""

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
    :ivar path: absolute, or its ``s3://...``.
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
    root: Root,
    attempt: str,
    source: str,
    *,
    epoch: int,
    step: int,
    metric: str,
    score: float,
    greater_is_better: bool,
    take: Take | None = None,
    still: Callable[[], bool] = lambda: True,
) -> Best:
    """Make the save at ``source`` the best one of this execution, durable; the one before goes.

    :param source: absolute, or ``s3://...``; a whole save, of this execution or of an older one.
    :param take: unless given, links or copies in a root that is a folder.
    :param still: whether what says that the source is whole is still said.
    :raises BadDataError: the score is not finite; or as :func:`slurm_dispatch.store.keep.keep`.
    :raises AbsentError: the save is gone.
    :raises StoreError: the disk.
    """
    if not math.isfinite(score):
        raise BadDataError(f"the score of save {show(source)} is {score}", hint="it must be a finite number")
    if take is None:
        assert isinstance(root, CheckpointRoot)
        relative = os.path.relpath(_take(root, attempt, os.fsencode(source)), root.raw)
    else:
        relative = take(source, still)
    best = Best(metric, score, greater_is_better, epoch, step, root.path_of(relative))
    _write(root, attempt, best)
    _remove_others(root, attempt, relative)
    return best


def read_best(root: Root, attempt: str) -> Best | None:
    """What the execution says is its best save, there or not; ``None`` if it says nothing, or that it is removed.

    :raises BadDataError: the record does not parse.
    """
    best, removing = _read(root, attempt)
    return None if removing else best


def begin_removing(root: Root, attempt: str, relative: bytes) -> None:
    """Say that the best save at ``relative``, or what is in it, is about to be removed; nothing of another one.

    :raises StoreError: it could not be said.
    """
    try:
        best, removing = _read(root, attempt)
    except BadDataError:
        return  # it names nothing
    if best is not None and not removing and f"{best.path}/".startswith(f"{root.path_of(relative)}/"):
        _write(root, attempt, best, removing=True)


def _write(root: Root, attempt: str, best: Best, *, removing: bool = False) -> None:
    more = {"removing": True} if removing else {}
    content = render_body(
        VERSION, metric=best.metric, score=best.score, greater_is_better=best.greater_is_better,
        epoch=str(best.epoch), step=best.step, path=os.fsdecode(within(root, best.path)), **more,
    )  # fmt: skip
    root.notes(attempt).replace(RECORD, content)


def _read(root: Root, attempt: str) -> tuple[Best | None, bool]:
    """What the record says, and whether that is being removed."""
    notes = root.notes(attempt)
    content = notes.read(RECORD, SIZE_MAX)
    if content is None:
        return None, False
    try:
        body = read_body(content, VERSION)
        relative = str(body["path"])
        if os.path.normpath(relative) != relative or not relative.startswith(f"exec/{attempt}/"):
            raise ValueError("its save is not in the execution's folder")
        save = root.path_of(os.fsencode(relative))
        greater = body["greater_is_better"] is True
        step, epoch = int(body["step"]), parse_epoch(body["epoch"])
        best = Best(str(body["metric"]), float(body["score"]), greater, epoch, step, save)
        return best, body.get("removing") is True
    except WRONG as error:
        raise BadDataError(f"best save {show(notes.shown(RECORD))} does not parse: {error}") from error


def is_best_there(root: Root, best: Best) -> bool:
    """Whether the save is there, as a fresh listing shows."""
    folder, name = os.path.split(within(root, best.path))
    return name in root.entries(folder)


def best_of_all(root: Root, metric: str, *, greater_is_better: bool) -> Best | None:
    """The best save over all executions of the root, which was there a moment ago; of equal ones that of the latest.

    :raises BadDataError: a record does not parse.
    :raises StoreError: it could not be looked; never the same as ``None``.
    """
    found: Best | None = None
    for attempt in root.executions():
        one = read_best(root, attempt)
        if one is None or not one.same_measure(metric, greater_is_better) or not is_best_there(root, one):
            continue
        if found is None or one.beats(found.score) or (not found.beats(one.score) and one.epoch > found.epoch):
            found = one
    return found


def carry_best(
    root: Root, attempt: str, *, epoch: int, metric: str, greater_is_better: bool, take: Take | None = None
) -> Best | None:
    """Take the best save over all executions into this one's ``best/``; ``None`` if there is none.

    :param take: see :func:`keep_best`.
    :raises StoreError: the disk, or it changed at each of several tries.
    """
    trouble: StoreError | None = None
    for _ in tries(TAKE_WAITS_S):
        found = best_of_all(root, metric, greater_is_better=greater_is_better)
        if found is None or found.path.startswith(os.path.join(root.execution(attempt), "")):
            return found

        def still(told: Best = found) -> bool:
            return read_best(root, within(root, told.path).split(b"/")[1].decode("ascii")) == told

        try:
            return keep_best(
                root, attempt, found.path, epoch=epoch, step=found.step, metric=metric, score=found.score,
                greater_is_better=greater_is_better, take=take, still=still,
            )
        except (AbsentError, TransientError) as error:
            trouble = error  # its execution has a better one now, or thinning took it because there is a better one
    what = f"taking the best save of {show(root.path)}: it changed or went each time it was tried"
    raise TransientError(what) from trouble


def drop_outdone(root: Root, attempt: str) -> tuple[bytes, ...]:
    """Remove the best saves of older executions that are not better than this one's own, which must be there.

    What an execution says of another metric stays, and what does not parse, and what has no record yet.

    :returns: what was removed, relative to the root. What cannot be removed now goes another time.
    """
    own = read_best(root, attempt)
    if own is None or not is_best_there(root, own):
        return ()
    gone: list[bytes] = []
    for other in root.executions():
        try:
            theirs, removing = (None, False) if other == attempt else _read(root, other)
            if theirs is None or theirs.epoch >= own.epoch:
                continue
            outdone = theirs.same_measure(own.metric, own.greater_is_better) and not theirs.beats(own.score)
            if outdone or removing:  # a removal that was killed goes on
                folder = b"/".join((b"exec", other.encode("ascii"), BEST))
                names = [folder + b"/" + name for name in root.entries(folder)]
                gone += [path for path in names if root.remove(path)]
        except (BadDataError, StoreError):
            continue
    return tuple(gone)


def _take(root: CheckpointRoot, attempt: str, source: bytes) -> bytes:
    """Links or copies of ``source`` in ``best/``; what is there already and is the same stays."""
    folder = root.make_in_execution(attempt, BEST)
    name = os.path.basename(source)
    named = named_now(root, attempt)
    for number in range(1, NAMES_MAX):
        place = folder if number == 1 else os.path.join(folder, b"%d" % number)
        path = os.path.join(place, name)
        if path == source and os.path.lexists(path):
            return path
        if named is not None and is_tangled(os.path.relpath(path, root.raw), named):
            continue
        if number > 1:
            os.close(_made(folder, b"%d" % number, root))
        if not os.path.lexists(path):
            if transfer(source, place, name, copy=False) is None:
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


def _remove_others(root: Root, attempt: str, relative: bytes) -> None:
    """Remove every best save of this execution but one; what cannot be removed now goes with the next one."""
    best = b"/".join((b"exec", attempt.encode("ascii"), BEST))
    try:
        for folder in dict.fromkeys((best, os.path.dirname(relative))):
            for name in root.entries(folder):
                path = folder + b"/" + name
                if relative != path and not relative.startswith(path + b"/"):
                    root.remove(path)
    except StoreError:
        return


def named_now(root: Root, attempt: str) -> bytes | None:
    """The path of what the execution says is its best save, relative to the root."""
    try:
        best = read_best(root, attempt)
    except BadDataError:
        return None
    return None if best is None else within(root, best.path)


def is_tangled(path: bytes, named: bytes) -> bool:
    """Whether the one is in the other: a save that is called by a number is called as a folder in ``best/`` is."""
    return path != named and (path.startswith(named + b"/") or named.startswith(path + b"/"))


def within(root: Root, path: str) -> bytes:
    """The path relative to the root of what :meth:`Root.path_of` calls ``path``."""
    return os.fsencode(path[len(root.path) :].lstrip("/"))
