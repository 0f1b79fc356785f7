"""What a training can say itself, in Python: publish a save, ask for the latest, and keep the best one.

Nothing of it is needed: ``dispatch-watch`` publishes without a line of Python. Both together are right, too: a save
that both publish is kept once, and is one publication. The package has these names too (``slurm_dispatch.publish``)
and loads them when they are first used. All of it uses the standard library only, and raises the classes of
:mod:`slurm_dispatch.errors`.

Inside a job root, epoch and attempt come from the environment, as ``dispatch-watch`` (or TaskProlog) set it. Outside
they are arguments.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    NotAllowedError,
    NotResumedError,
    StoreError,
    TransientError,
    UsageError,
    show,
)
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.store.best import Best, best_of_all, carry_best, drop_outdone, keep_best
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.folders import tries
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.manifest import manifest_of, read_manifest, write_manifest
from slurm_dispatch.store.probe import probe
from slurm_dispatch.store.root import CheckpointRoot, Save, open_root
from slurm_dispatch.store.saves import relative_save
from slurm_dispatch.store.thin import KEEP_OWN, KEEP_ROOT, thin
from slurm_dispatch.store.whole import Look, Proof, look
from slurm_dispatch.watch.pattern import parse_pattern, saves_of
from slurm_dispatch.watch.place import KEEP, Place, find_place, parse_keep
from slurm_dispatch.watch.prepare import choose_once, open_place
from slurm_dispatch.watch.turn import last_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.model.publication import Publication

KEEP_WAITS_S = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Waits before each try to keep a save: ``dispatch-watch`` may be keeping the same one."""
START_FROM = "SLURM_DISPATCH_START_FROM"


@dataclass(frozen=True, slots=True)
class Execution:
    """This execution, as the environment says: where it saves, and what it resumes from.

    :ivar root: the checkpoint root, absolute.
    :ivar directory: the only folder to save into, ``DISPATCH_DIR``; it is there.
    :ivar resume: the save to resume from, ``None`` on a first start and in a job with a shared checkpoint.
    :ivar resume_step: its step, ``None`` where it is not known.
    :ivar shared: the job has a shared checkpoint: nothing is published.
    """

    root: str
    epoch: int
    attempt: str
    directory: str
    resume: str | None
    resume_step: int | None
    shared: bool = False

    def publish(self, path: str | os.PathLike[str], step: int, **options: object) -> Publication:
        """:func:`publish` for this execution."""
        if self.shared:
            raise _shared()
        root = open_root(self.root)
        return _publish(root, self.epoch, self.attempt, os.fspath(path), step, **options)  # type: ignore[arg-type]

    def keep_best(
        self, path: str | os.PathLike[str], step: int, *, metric: str, score: float, greater_is_better: bool
    ) -> Best:
        """Say that the whole save at ``path`` is the best one: links or copies of it stay in ``best/``.

        Thinning does not take it, and the next execution carries it on. The best save before it goes.

        :param metric: what was measured, the same words in every execution.
        :raises BadDataError: the score is not finite, or the save is gone or empty.
        """
        if self.shared:
            raise _shared()
        return keep_best(
            open_root(self.root), self.attempt, os.path.abspath(os.fspath(path)), epoch=self.epoch, step=step,
            metric=metric, score=score, greater_is_better=greater_is_better,
        )

    def carry_best(self, metric: str, *, greater_is_better: bool) -> Best | None:
        """The best save over all executions, taken into this one's ``best/``; ``None`` if no execution said one."""
        if self.shared:
            return None
        root = open_root(self.root)
        return carry_best(root, self.attempt, epoch=self.epoch, metric=metric, greater_is_better=greater_is_better)


def execution(*, root: str | None = None, environment: Mapping[str, str] | None = None) -> Execution:
    """This execution. Every rank gets the same answer.

    What ``dispatch-watch`` chose is taken. Where none ran before, the execution's folder is made, the root is claimed
    for the job, and the save to resume from is chosen now, once for all ranks.

    :param root: goes before ``DISPATCH_CHECKPOINT``.
    :raises UsageError: there is no root.
    :raises ConfigurationError: the identity in the environment is incomplete.
    :raises CannotCreateError: the root is another job's.
    :raises BadDataError, StoreError: the root could not be read.
    """
    surroundings = os.environ if environment is None else environment
    place = _place(surroundings, root)
    if place.shared:
        return Execution(place.root, place.epoch, place.attempt, place.root, None, None, shared=True)
    opened = open_place(place)
    choice = read_choice(opened, place.attempt)
    if choice is None:
        choose_once(place, start_from=surroundings.get(START_FROM))
        choice = read_choice(opened, place.attempt)
    if choice is None:
        raise AbsentError(f"reading the choice of execution {place.attempt}: it was made and cannot be seen")
    directory = opened.execution(place.attempt)
    return Execution(place.root, place.epoch, place.attempt, directory, choice.resume, choice.step)


def publish(
    path: str | os.PathLike[str],
    step: int,
    *,
    root: str | None = None,
    epoch: int | None = None,
    attempt: str | None = None,
    pattern: str | None = None,
    copy: bool = False,
    sync: bool = False,
    allow_step_back: bool = False,
) -> Publication:
    """Publish the save at ``path``, a file or folder in this execution's folder, as of training step ``step``.

    Whoever calls this says that the save is whole: all ranks are done with it. It is linked into ``kept/`` first, so
    that no rotation takes it away, and older saves are thinned then. Call it on one rank. When it returns, a power
    loss does not take the publication away. Publishing the same again is success.

    :param step: 0 or more, and not below the step that the execution resumed from.
    :param root: goes before ``DISPATCH_CHECKPOINT``.
    :param epoch: outside a job, together with ``attempt``: whose save it is.
    :param pattern: what the saver calls its saves (as ``--pattern``), so that those that older executions left in
        their own folders are thinned too; by default only what was kept and published is.
    :param copy: copy files of every size, for savers that rewrite large ones in place.
    :param sync: fsync the save's own files first.
    :param allow_step_back: publish a step below the one resumed from.
    :raises BadDataError: the save is outside the execution's folder, missing, empty or torn, its path is too long, or
        its name was published before under another step.
    :raises NotResumedError: the step is below the one that the execution was given.
    :raises NotAllowedError: the job has a shared checkpoint.
    :raises StoreError: it is not known to be published; publish again.
    """
    if (epoch is None) != (attempt is None):
        raise UsageError("epoch and attempt go together", hint="inside a job leave both out")
    place = None if epoch is not None else _place(os.environ, root)
    if place is None:
        opened, whose, which = open_root(_root(root)), check_attempt(attempt or ""), epoch or 0
        opened.make_execution(whose)
    elif place.shared:
        raise _shared()
    else:
        opened, whose, which = open_place(place), place.attempt, place.epoch
    return _publish(
        opened, which, whose, os.fspath(path), step, pattern=pattern, copy=copy, sync=sync,
        allow_step_back=allow_step_back,
    )


def latest(root: str | None = None, *, fallback: bool = False) -> Save | None:
    """The save to resume from: ``.path`` absolute, ``.publication`` with epoch and step. ``None`` on a first start.

    In a job use :func:`execution`: it gives every rank the same save, and one that nobody removes meanwhile.

    :param root: by default ``DISPATCH_CHECKPOINT``.
    :param fallback: where the save of the latest is gone, take the next one.
    :raises BadDataError: a name does not parse, or the save is gone.
    :raises StoreError: it could not be looked; never the same as ``None``.
    """
    return open_root(_root(root)).latest(fallback=fallback)


def best(metric: str, *, greater_is_better: bool, root: str | None = None) -> Best | None:
    """The best save over all executions, ``None`` if no execution said one.

    :raises StoreError: it could not be looked.
    """
    return best_of_all(open_root(_root(root)), metric, greater_is_better=greater_is_better)


def _root(root: str | None) -> str:
    where = root or os.environ.get("DISPATCH_CHECKPOINT")
    if not where:
        raise UsageError("there is no checkpoint root", hint="give root=, or set DISPATCH_CHECKPOINT")
    return where


def _shared() -> NotAllowedError:
    return NotAllowedError("a job with a shared checkpoint publishes nothing", hint="leave out --shared-checkpoint")


def _place(environment: Mapping[str, str], root: str | None) -> Place:
    """Like :func:`find_place`; a run that is not managed is the one of the ``dispatch-watch`` that started it."""
    attempt = environment.get("SLURM_DISPATCH_ATTEMPT")
    place = find_place(environment, root=root)
    if place.job is None and place.slurm_job is None and attempt:
        directory = environment.get("DISPATCH_DIR", "")
        if directory == os.path.join(place.root, "exec", attempt):
            return Place(place.root, None, place.epoch, check_attempt(attempt))
    return place


def _publish(
    root: CheckpointRoot,
    epoch: int,
    attempt: str,
    path: str,
    step: int,
    *,
    pattern: str | None = None,
    copy: bool = False,
    sync: bool = False,
    allow_step_back: bool = False,
) -> Publication:
    choice = read_choice(root, attempt)
    if choice is not None and choice.step is not None and step < choice.step and not allow_step_back:
        raise NotResumedError(
            f"the save of step {step} is not published: this execution resumes from step {choice.step}",
            hint="see that the training loads what it is given, or say allow_step_back",
        )
    relative = relative_save(root.raw, attempt, os.path.abspath(path))
    seen = look(os.path.join(root.raw, relative))
    if seen is not None and seen.torn is not None:
        raise BadDataError(f"save {show(path)} is not whole: {show(seen.torn or path)} is cut")
    if _links(root.path, attempt):
        relative = _kept(root, attempt, relative, seen, copy)
    elif seen is not None and read_manifest(root, relative) is None:
        write_manifest(root, relative, manifest_of(seen, Proof.PROVED))
    for other in root.listing():
        if other.path == relative and other.epoch == epoch and other.step != step:
            raise BadDataError(
                f"save {show(path)} is published as step {other.step} already, and now as step {step}",
                hint="each save needs a name of its own, with its step in it",
            )
    publication = root.publish(epoch, step, relative, attempt=attempt, sync=sync)
    _thin(root, epoch, attempt, pattern)
    return publication


def _kept(root: CheckpointRoot, attempt: str, relative: bytes, seen: Look | None, copy: bool) -> bytes:
    """The kept path of the save, whoever keeps it."""
    trouble: AbsentError | TransientError | None = None
    for _ in tries(KEEP_WAITS_S):
        try:
            kept = keep(root, attempt, relative, proof=Proof.PROVED, copy=copy, expected=seen)
        except (AbsentError, TransientError) as error:
            trouble = error  # dispatch-watch keeps the same save at this moment, or sweeps
            continue
        if kept is not None:
            return kept
        if look(os.path.join(root.raw, relative), read=False) is None:
            raise BadDataError(f"save {show(relative)} is not there")
    raise trouble or BadDataError(f"save {show(relative)} is still being written", hint="publish it when it is whole")


@functools.lru_cache(maxsize=16)
def _links(root: str, attempt: str) -> bool:
    """Whether saves can be kept here: tried once by a process, and not at each save."""
    return probe(open_root(root), attempt).links


def _thin(root: CheckpointRoot, epoch: int, attempt: str, pattern: str | None) -> None:
    """As the ``dispatch-watch`` that started this process was told; one beside, which may have been told otherwise,
    thins itself. Nothing here is an error: the save is published."""
    said = os.environ.get(KEEP)
    try:
        if said is None:
            run = last_run(root, attempt)
            numbers = (KEEP_OWN, KEEP_ROOT) if run is None or run.over else None
        else:
            numbers = parse_keep(said)
        if numbers is not None:
            own, whole = numbers
            is_save = None if pattern is None else saves_of([parse_pattern(pattern)])
            thin(root, attempt, epoch=epoch, keep_own=own, keep_root=whole, is_save=is_save)
            drop_outdone(root, attempt)
    except (BadDataError, StoreError):
        return
