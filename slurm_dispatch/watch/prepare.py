"""Before the command: whose root it is, the execution's folder, and the save to resume from, chosen once.

Runs in a process apart with a deadline (:mod:`slurm_dispatch.watch.apart`), because a root may hang.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_dispatch.durable import sync_name
from slurm_dispatch.errors import AbsentError, BadDataError, DispatchError, StoreError, TransientError, store_error
from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.store.choice import Choice, choose, is_there, read_choice
from slurm_dispatch.store.manifest import manifest_of
from slurm_dispatch.store.probe import probe
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.watch.turn import Run, Runner, claim_run, last_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.watch.judge import Judge
    from slurm_dispatch.watch.place import Place

PAUSE_S = 0.2
"""Between two looks of a rank that waits for the first one's choice."""
ROUNDS = 20
"""How often a run number may be taken by another before it is an error."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the command is to be given.

    :ivar directory: absolute, ``exec/<attempt>`` of the root; of a shared job the root itself.
    :ivar step: of the save that it resumes from; of a shared job the greatest that was there before.
    :ivar run: number of this process's run, ``None`` if it does not publish.
    :ivar links: whether saves can be kept by links.
    :ivar outranked: a newer execution of the job has published already.
    :ivar known: the saves that an earlier run of this execution left: absolute path, and digest of what it was
        then (empty if it could not be looked at).
    :ivar left_settles: whether those can be assumed whole: only where a helper beside was killed, and the training
        that it was beside may live on. After the end of a command its torn save never changes again.
    :ivar space: one line if there is too little for two saves.
    :ivar other: why this process does not publish, for the person, or ``None``.
    :ivar before: one line if the helper that published what this execution resumes from never said that it ended.
    """

    directory: str
    resume: str | None
    step: int | None
    run: int | None
    links: bool = True
    outranked: bool = False
    known: dict[str, str] = field(default_factory=dict)
    left_settles: bool = False
    space: str | None = None
    other: str | None = None
    before: str | None = None

    def encode(self) -> bytes:
        """For the way through a pipe."""
        return json.dumps(asdict(self)).encode("utf-8")

    @classmethod
    def decode(cls, text: bytes) -> Prepared:
        """The inverse of :meth:`encode`."""
        return cls(**json.loads(text))


def open_place(place: Place) -> CheckpointRoot:
    """The root of the execution, claimed for its job, with the execution's folder in it.

    A root that is not there is made if the folder that it lies in is: a missing mount is never papered over.

    :raises CannotCreateError: the root is another job's.
    :raises StoreError: it is not there and cannot be made.
    """
    try:
        root = open_root(place.root)
    except AbsentError:
        try:
            os.mkdir(place.root)
        except FileExistsError:
            pass
        except OSError as error:
            raise store_error(error, "making the checkpoint root", place.root) from error
        sync_name(place.root)  # what is published in it is not more durable than it is
        root = open_root(place.root)
    if place.job is not None:
        root.claim(place.job, place.generation)
    root.make_execution(place.attempt)
    return root


def prepare(place: Place, *, start_from: str | None, copy: bool, runner: Runner, judge: Judge) -> Prepared:
    """Everything of the first process of a step, or of the only one.

    :param start_from: what ``--start-from`` or ``SLURM_DISPATCH_START_FROM`` said.
    :param runner: the supervisor's process.
    :param judge: which names are saves, for :attr:`Prepared.known`.
    :raises DispatchError: nothing must be started; the exit code is the error's.
    """
    start_from = None if start_from is None else os.path.abspath(start_from)
    root = open_place(place)
    for _ in range(ROUNDS):
        before = last_run(root, place.attempt)
        if before is not None and not before.over:
            choice = choose(root, place.attempt, epoch=place.epoch, start_from=start_from, copy=copy)
            return _prepared(root, place, choice, other=other_helper(before))
        # Chosen before the run is claimed: a rank that sees a run finds a choice.
        again = before is not None and place.tasks == 1
        found = probe(root, place.attempt)
        choice = choose(root, place.attempt, epoch=place.epoch, start_from=start_from, again=again, copy=copy)
        number = 1 if before is None else before.number + 1
        if claim_run(root, place.attempt, number, runner):
            # Before the command starts: what it saves itself must show that it resumed.
            left = () if before is None else judge.listing(root.execution(place.attempt)).found
            known = {one.path: _digest(one.path) for one in left}
            prepared = _prepared(root, place, choice, run=number, links=found.links)
            return replace(prepared, known=known, left_settles=_may_live_on(before, runner))
    raise StoreError(
        f"{ROUNDS} other helpers began in this execution meanwhile", hint="start one dispatch-watch a step"
    )


def _digest(path: str) -> str:
    try:
        seen = look(path, read=False)
    except (BadDataError, StoreError):
        seen = None  # a later scan says what is wrong with it
    return "" if seen is None else manifest_of(seen, Proof.ASSUMED).digest


def _may_live_on(before: Run | None, runner: Runner) -> bool:
    """Whether the training that the run before published for can be the one that this run publishes for."""
    killed_beside = before is not None and not before.ended and before.runner is not None and before.runner.beside
    return killed_beside and runner.beside


def choose_once(place: Place, *, start_from: str | None) -> Prepared:
    """The execution's choice, made now if there is none: for ``dispatch env --prepare``, on any rank."""
    root = open_place(place)
    if place.shared:
        return Prepared(root.path, None, None, None)
    choice = choose(root, place.attempt, epoch=place.epoch, start_from=start_from)
    return _prepared(root, place, choice)


def read(place: Place) -> Prepared:
    """The execution's choice as it is; on a root that is not there, and without a choice, nothing to resume."""
    if place.shared:
        return Prepared(place.root, None, None, None)
    try:
        root = open_root(place.root)
        choice = read_choice(root, place.attempt)
    except AbsentError:
        choice = None
    if choice is None:
        return Prepared(os.path.join(place.root, "exec", place.attempt), None, None, None)
    return _prepared(root, place, choice)


def follow(place: Place, *, timeout_s: float) -> Prepared:
    """Every other rank: wait for the first one's choice.

    :raises TransientError: there is none after ``timeout_s`` seconds.
    """

    def chosen(root: CheckpointRoot) -> Prepared | None:
        choice = read_choice(root, place.attempt)
        if choice is None or not is_there(choice):
            return None
        return _prepared(root, place, choice)

    return wait_for_first(place, chosen, "the choice of rank 0", timeout_s=timeout_s)


def wait_for_first(
    place: Place, find: Callable[[CheckpointRoot], Prepared | None], what: str, *, timeout_s: float
) -> Prepared:
    """Look into the root again and again until the first rank has done what the others wait for.

    :param find: what it made of the root; ``None``, or :class:`AbsentError`: not yet.
    :raises TransientError: it has not after ``timeout_s`` seconds.
    """
    ends_at = time.monotonic() + timeout_s
    supervisor = os.getppid()
    while True:
        try:
            found = find(open_root(place.root))
        except AbsentError:
            found = None  # the first rank makes the root
        if found is not None:
            return found
        if os.getppid() != supervisor:
            raise TransientError(f"the helper that waited for {what} was ended")
        if time.monotonic() > ends_at:
            raise TransientError(
                f"rank {place.rank} waited {timeout_s:g} s for {what} in {place.root}",
                hint="see what rank 0 said; is the root on a filesystem that all nodes share?",
            )
        time.sleep(PAUSE_S)


def low_space(root: CheckpointRoot, choice: Choice) -> str | None:
    """One line if the root's filesystem has no room for two more saves such as the one that was chosen."""
    seen = None if choice.resume is None else look(choice.resume, read=False)
    if seen is None:
        return None
    try:
        found = os.statvfs(root.path)
    except OSError:
        return None  # a filesystem that does not say
    free = found.f_bavail * found.f_frsize
    if found.f_blocks == 0 or free >= 2 * seen.size:
        return None
    return f"{root.path} has {free:,} bytes left, less than two saves of {seen.size:,}"


def other_helper(before: Run) -> str:
    """One line: who publishes for this execution."""
    who = "another process" if before.runner is None else f"process {before.runner.pid} on {before.runner.host}"
    return f"{who} publishes for this execution; this one only runs the command"


def _prepared(
    root: CheckpointRoot,
    place: Place,
    choice: Choice,
    *,
    run: int | None = None,
    links: bool = True,
    other: str | None = None,
) -> Prepared:
    directory = root.execution(place.attempt)
    space = None if run is None else low_space(root, choice)
    before = None if run != 1 else silent_before(root, choice, place.attempt)
    return Prepared(
        directory, choice.resume, choice.step, run, links, choice.outranked, space=space, other=other, before=before
    )


def silent_before(root: CheckpointRoot, choice: Choice, attempt: str) -> str | None:
    """One line if the helper of the execution that published what was chosen was killed, or still runs: what that run
    saved later is not published (C167). Looks only, and says nothing where it cannot."""
    try:
        parts = [] if choice.source is None else parse_name(choice.source).path.split(b"/")
        if len(parts) < 3 or parts[0] != b"exec" or parts[1] == attempt.encode():
            return None
        run = last_run(root, parts[1].decode("ascii"))
    except (DispatchError, ValueError):
        return None  # a save that was published by hand, or whose folder is thinned
    if run is None or run.ended:
        return None
    return (
        f"the helper of attempt {parts[1].decode('ascii')}, which published step {choice.step}, never said that it "
        "ended: it was killed, or still runs; what that run saved later is not published"
    )
