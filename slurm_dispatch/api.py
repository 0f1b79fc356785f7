"""What a training can say itself, in Python: publish a save, ask for the latest, and keep the best one.

Nothing of it is needed: ``dispatch-watch`` publishes without a line of Python. Both together are right, too: a save
that both publish is kept once, and is one publication. The package has these names too (``slurm_dispatch.publish``)
and loads them when they are first used. All of it uses the standard library only, and raises the classes of
:mod:`slurm_dispatch.errors`.

Inside a job root, epoch and attempt come from the environment, as ``dispatch-watch`` (or TaskProlog) set it. Outside
they are arguments.

For a root in S3 a training saves into a folder of its host, below what ``dispatch-watch --from`` or ``from_dir``
says, and a save is uploaded before it is published; or it writes to S3 itself and publishes ``s3://...``. The client
has threads, which outlive no fork: after a process has called, those that it forks do not.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.anyroot import open_store, taker
from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    NotAllowedError,
    NotResumedError,
    StoreError,
    UsageError,
    show,
)
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.s3.place import is_place
from slurm_dispatch.store.best import Best, best_of_all, carry_best, drop_outdone, keep_best
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.root import CheckpointRoot, Save
from slurm_dispatch.store.thin import KEEP_OWN, KEEP_ROOT, thin
from slurm_dispatch.watch import local
from slurm_dispatch.watch.inside import own
from slurm_dispatch.watch.pattern import parse_pattern, saves_of
from slurm_dispatch.watch.place import FROM, KEEP, Place, find_place, parse_keep
from slurm_dispatch.watch.prepare import choose_once, follow, open_place
from slurm_dispatch.watch.say import say
from slurm_dispatch.watch.turn import last_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.anyroot import AnyRoot
    from slurm_dispatch.model.publication import Publication

START_FROM = "SLURM_DISPATCH_START_FROM"
LOCAL_RANK = "LOCAL_RANK"
"""What torchrun, accelerate and Lightning call a process among those of its host."""
TIMEOUT_S = 900.0
"""For the save to resume from to be on this host, brought by its first process."""


@dataclass(frozen=True, slots=True)
class Execution:
    """This execution, as the environment says: where it saves, and what it resumes from.

    :ivar root: the checkpoint root, absolute, or ``s3://bucket/prefix``.
    :ivar directory: the only folder to save into, ``DISPATCH_DIR``; it is there. For a root in S3 a folder of this
        host, or where no folder was named the ``s3://...`` to write to.
    :ivar resume: the save to resume from, ``None`` on a first start and in a job with a shared checkpoint. For a root
        in S3 it is whole on this host; or where no folder was named its ``s3://...``.
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
        opened, here = _open(self.root), None if is_place(self.directory) else self.directory
        return _publish(
            opened, self.epoch, self.attempt, os.fspath(path), step, directory=here, **options,  # type: ignore[arg-type]
        )

    def keep_best(
        self, path: str | os.PathLike[str], step: int, *, metric: str, score: float, greater_is_better: bool
    ) -> Best:
        """Say that the whole save at ``path`` is the best one: links or copies of it stay in ``best/``.

        In S3 what was published is copied there by the store, and anything else is uploaded. Thinning does not take
        it, and the next execution carries it on. The best save before it goes.

        :param metric: what was measured, the same words in every execution.
        :raises BadDataError: the score is not finite, or the save is gone or empty.
        """
        if self.shared:
            raise _shared()
        root, source = _open(self.root), os.fspath(path)
        return keep_best(
            root, self.attempt, source if is_place(source) else os.path.abspath(source), epoch=self.epoch, step=step,
            metric=metric, score=score, greater_is_better=greater_is_better, take=taker(root, self.attempt),
        )

    def carry_best(self, metric: str, *, greater_is_better: bool) -> Best | None:
        """The best save over all executions, taken into this one's ``best/``; ``None`` if no execution said one.

        Of a root in S3 its ``path`` is there: :meth:`bring_best` brings it to this host.
        """
        if self.shared:
            return None
        root = _open(self.root)
        return carry_best(
            root, self.attempt, epoch=self.epoch, metric=metric, greater_is_better=greater_is_better,
            take=taker(root, self.attempt),
        )

    def bring_best(self, best: Best) -> Best:
        """The same with a path on this host, whole, brought if it is not here. Of a root that is a folder, and where
        the training reads in S3 itself, it is as it was. On each host, by one of its processes first.

        :raises StoreError: the store or the disk; or a later execution has taken it over meanwhile.
        """
        root = _open(self.root)
        if isinstance(root, CheckpointRoot) or is_place(self.directory) or not is_place(best.path):
            return best
        return replace(best, path=local.bring_best(root, os.path.join(self.directory, "best"), best))


def execution(
    *,
    root: str | None = None,
    from_dir: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Execution:
    """This execution. Every rank gets the same answer.

    What ``dispatch-watch`` chose is taken. Where none ran before, the execution's folder is made, the root is claimed
    for the job, and the save to resume from is chosen now, once for all ranks. For a root in S3 with a folder, the
    first process of each host (by ``LOCAL_RANK`` or Slurm) brings the save there, and the others wait for it.

    :param root: goes before ``DISPATCH_CHECKPOINT``.
    :param from_dir: for a root in S3, as ``dispatch-watch --from``: a folder of this host, the same on each, below
        which the training saves. By default what that said; without it the training reads and writes in S3 itself.
    :param timeout_s: of those who wait.
    :raises UsageError: there is no root; or ``from_dir`` for one that is a folder.
    :raises ConfigurationError: the identity in the environment is incomplete.
    :raises CannotCreateError: the root is another job's.
    :raises BadDataError, StoreError: the root could not be read.
    """
    surroundings = os.environ if environment is None else environment
    place = _place(surroundings, root, from_dir)
    if place.shared:
        return Execution(place.root, place.epoch, place.attempt, place.root, None, None, shared=True)
    if local.is_remote(place):
        return _of_remote(place, surroundings, timeout_s)
    opened = open_place(place)
    choice = read_choice(opened, place.attempt)
    if choice is None:
        choose_once(place, start_from=surroundings.get(START_FROM))
        choice = read_choice(opened, place.attempt)
    if choice is None:
        raise AbsentError(f"reading the choice of execution {place.attempt}: it was made and cannot be seen")
    directory = opened.execution(place.attempt)
    return Execution(place.root, place.epoch, place.attempt, directory, choice.resume, choice.step)


def _of_remote(place: Place, environment: Mapping[str, str], timeout_s: float) -> Execution:
    rank = environment.get(LOCAL_RANK, "")
    if rank.isdigit() and rank.isascii():
        place = replace(place, local_rank=max(place.local_rank, int(rank)))
    if place.local is None or place.local_rank == 0:
        prepared = choose_once(place, start_from=environment.get(START_FROM))
    else:
        prepared = follow(place, supervisor=os.getppid(), timeout_s=timeout_s)
    return Execution(place.root, place.epoch, place.attempt, prepared.directory, prepared.resume, prepared.step)


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

    For a root in S3 it is uploaded to ``kept/`` first, unless ``dispatch-watch`` beside has done that, or does: then
    that is waited for. It must stay until this returns. A save that the saver wrote to S3 itself is published where
    it is.

    :param path: of this host; or the ``s3://...`` of what was written to a root in S3.
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
        opened, whose, which, here = _open(_root(root)), check_attempt(attempt or ""), epoch or 0, None
        opened.make_execution(whose)
    elif place.shared:
        raise _shared()
    else:
        opened, whose, which = _open_place(place), place.attempt, place.epoch
        here = None if place.local is None else local.directory(place)
    return _publish(
        opened, which, whose, os.fspath(path), step, directory=here, pattern=pattern, copy=copy, sync=sync,
        allow_step_back=allow_step_back,
    )


def latest(
    root: str | None = None, *, fallback: bool = False, to: str | os.PathLike[str] | None = None
) -> Save | None:
    """The save to resume from: ``.path`` absolute, ``.publication`` with epoch and step. ``None`` on a first start.

    In a job use :func:`execution`: it gives every rank the same save, and one that nobody removes meanwhile.

    :param root: by default ``DISPATCH_CHECKPOINT``.
    :param fallback: where the save of the latest is gone (with ``to``, or damaged), take the next one.
    :param to: of a root in S3: bring the save below this folder of this host, whole, unless it is there already, and
        give that path; without it ``.path`` is ``s3://...``.
    :raises BadDataError: a name does not parse, or the save is gone.
    :raises StoreError: it could not be looked; never the same as ``None``.
    """
    opened = _open(_root(root))
    if to is None or isinstance(opened, CheckpointRoot):
        return opened.latest(fallback=fallback)
    found = local.bring_latest(opened, os.path.abspath(os.fspath(to)), fallback=fallback)
    return None if found is None else Save(found.save.publication, found.path)


def best(metric: str, *, greater_is_better: bool, root: str | None = None) -> Best | None:
    """The best save over all executions, ``None`` if no execution said one.

    :raises StoreError: it could not be looked.
    """
    return best_of_all(_open(_root(root)), metric, greater_is_better=greater_is_better)


def _root(root: str | None) -> str:
    where = root or os.environ.get("DISPATCH_CHECKPOINT")
    if not where:
        raise UsageError("there is no checkpoint root", hint="give root=, or set DISPATCH_CHECKPOINT")
    return where


def _shared() -> NotAllowedError:
    return NotAllowedError("a job with a shared checkpoint publishes nothing", hint="leave out --shared-checkpoint")


def _place(
    environment: Mapping[str, str], root: str | None, from_dir: str | os.PathLike[str] | None = None
) -> Place:
    """Like :func:`find_place`; a run that is not managed is the one of the ``dispatch-watch`` that started it."""
    attempt = environment.get("SLURM_DISPATCH_ATTEMPT")
    folder = None if from_dir is None else os.path.abspath(os.fspath(from_dir))
    if folder is None and is_place(root or environment.get("DISPATCH_CHECKPOINT") or ""):
        folder = environment.get(FROM)
    place = find_place(environment, root=root, local=folder, remote=True)
    if place.job is None and place.slurm_job is None and attempt:
        one = Place(place.root, None, place.epoch, check_attempt(attempt), local=place.local)
        usual = local.directory(one) if local.is_remote(one) else os.path.join(one.root, "exec", attempt)
        if environment.get("DISPATCH_DIR") == usual:
            return one
    return place


def _open(root: str) -> AnyRoot:
    """The root. One in S3 once in a process: what it has shown stays shown, and its client is made once."""
    return _in_s3(root) if is_place(root) else open_store(root)


@functools.lru_cache(maxsize=16)
def _in_s3(root: str) -> AnyRoot:
    return open_store(root, say=say)


def _open_place(place: Place) -> AnyRoot:
    """The root of the execution, claimed for its job."""
    return _claimed(place) if local.is_remote(place) else open_place(place)


@functools.lru_cache(maxsize=16)
def _claimed(place: Place) -> AnyRoot:
    return local.claim_remote(place)


def _publish(
    root: AnyRoot,
    epoch: int,
    attempt: str,
    path: str,
    step: int,
    *,
    directory: str | None = None,
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
    relative = own(root, attempt, path, directory=directory, copy=copy)
    for other in root.listing():
        if other.path == relative and other.epoch == epoch and other.step != step:
            raise BadDataError(
                f"save {show(path)} is published as step {other.step} already, and now as step {step}",
                hint="each save needs a name of its own, with its step in it",
            )
    publication = root.publish(epoch, step, relative, attempt=attempt, sync=sync)
    _thin(root, epoch, attempt, pattern)
    return publication


def _thin(root: AnyRoot, epoch: int, attempt: str, pattern: str | None) -> None:
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
