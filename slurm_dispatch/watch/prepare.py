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
from slurm_dispatch.s3.place import is_place
from slurm_dispatch.store.choice import choose, is_there, read_choice
from slurm_dispatch.store.manifest import manifest_of
from slurm_dispatch.store.probe import probe
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.watch import local
from slurm_dispatch.watch.apart import goes_on
from slurm_dispatch.watch.tree import DISK
from slurm_dispatch.watch.turn import Run, Runner, claim_run, last_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from slurm_dispatch.store.choice import Choice
    from slurm_dispatch.store.roots import Root
    from slurm_dispatch.watch.judge import Judge
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.tree import Tree

PAUSE_S = 0.2
"""Between two looks of a rank that waits for the first one's choice."""
REMOTE_PAUSE_S = 1.0
REMOTE_PAUSE_S_MAX = 10.0
"""The same where each look is several requests to a store in S3, which cost money: hundreds of ranks may wait for a
download of minutes. From look to look the pause becomes a fifth longer."""
_WAITED = "see what rank 0 said; is the root on a filesystem that all nodes share?"
_WAITED_REMOTE = (
    "see what rank 0 said; --timeout must cover the download of the save, and --from be one folder for a host's tasks"
)
ROUNDS = 20
"""How often a run number may be taken by another before it is an error."""


if TYPE_CHECKING:
    _Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the command is to be given.

    :ivar directory: absolute: ``exec/<attempt>`` of the root, or of a root in S3 ``<attempt>`` below ``--from``; of a
        shared job the root itself.
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


def open_any(place: Place) -> Root:
    """The root of any kind, claimed for the execution's job, and where its notes can be left."""
    return local.claim_remote(place) if local.is_remote(place) else open_place(place)


class _InFolder:
    """A root that is a folder: the command saves into it."""

    tree: Tree = DISK

    def __init__(self, place: Place, *, copy: bool) -> None:
        self.root = open_place(place)
        self.directory = self.root.execution(place.attempt)
        self.free_on = self.root.path
        self._place = place
        self._copy = copy

    def probe(self) -> bool:
        """Refuse a root that does not do what is needed; whether saves can be kept by links."""
        return probe(self.root, self._place.attempt).links

    def choose(self, start_from: str | None, *, again: bool = False) -> Choice:
        """The execution's choice, made if there is none, taken to where it stays."""
        place = self._place
        return choose(
            self.root, place.attempt, epoch=place.epoch, start_from=start_from, again=again, copy=self._copy,
            begin=self._begin,
        )

    def forget(self, choice: Choice) -> None:
        """Let go of what earlier turns resumed from: here those are links, which thinning removes."""

    def _begin(self, start_from: str) -> str:
        return local.begin_below(os.path.join(self.directory, "resume"), start_from, goes_on)


class _InBucket:
    """A root in S3: the command saves into a folder of this host."""

    tree: Tree = DISK

    def __init__(self, place: Place, *, timeout_s: float | None) -> None:
        self.directory = local.make_local(place)
        self.root = local.claim_remote(place, timeout_s=timeout_s)
        self.free_on = self.directory
        self._place = place

    def probe(self) -> bool:
        """Done before the claim, which needs it; saves are kept by uploading them."""
        return True

    def choose(self, start_from: str | None, *, again: bool = False) -> Choice:
        """The execution's choice, made if there is none, brought to this host."""
        return local.choose_and_bring(self.root, self._place, start_from=start_from, again=again, moving=goes_on)

    def forget(self, choice: Choice) -> None:
        """Remove what was brought to this host for earlier turns."""
        local.forget_brought(self._place, choice)


class _ToBucket:
    """A root in S3: the command saves into it itself."""

    def __init__(self, place: Place, *, timeout_s: float | None) -> None:
        from slurm_dispatch.watch.objects import Objects

        self.root = local.claim_remote(place, timeout_s=timeout_s)
        self.tree: Tree = Objects(self.root, place.attempt)
        self.directory = self.root.execution(place.attempt)
        self.free_on = self.directory
        self._place = place

    def probe(self) -> bool:
        """Done before the claim; saves cannot be kept."""
        return False

    def choose(self, start_from: str | None, *, again: bool = False) -> Choice:
        """The execution's choice, made if there is none: the save where it is."""
        return local.choose_remote(self.root, self._place, start_from=start_from, again=again)

    def forget(self, choice: Choice) -> None:
        """Nothing was brought."""


_Hands = _InFolder | _InBucket | _ToBucket


def _hands(place: Place, *, copy: bool = False, timeout_s: float | None = None) -> _Hands:
    """The root, opened, claimed and ready to be written to.

    :param timeout_s: for each call to a store in S3.
    """
    if not local.is_remote(place):
        return _InFolder(place, copy=copy)
    return (_ToBucket if place.local is None else _InBucket)(place, timeout_s=timeout_s)


def prepare(
    place: Place, *, start_from: str | None, copy: bool, runner: Runner, judge: Judge, timeout_s: float | None = None
) -> Prepared:
    """Everything of the first process of a step, or of the only one.

    :param start_from: what ``--start-from`` or ``SLURM_DISPATCH_START_FROM`` said.
    :param runner: the supervisor's process.
    :param judge: which names are saves, for :attr:`Prepared.known`.
    :param timeout_s: for each call to a store in S3.
    :raises DispatchError: nothing must be started; the exit code is the error's.
    """
    if start_from is not None and not is_place(start_from):
        start_from = os.path.abspath(start_from)
    hands = _hands(place, copy=copy, timeout_s=timeout_s)
    root = hands.root
    judge.tree = hands.tree
    for _ in range(ROUNDS):
        before = last_run(root, place.attempt)
        if before is not None and not before.over:
            return _prepared(hands, place, hands.choose(start_from), other=other_helper(before))
        # Chosen before the run is claimed: a rank that sees a run finds a choice.
        again = before is not None and place.tasks == 1
        links = hands.probe()
        choice = hands.choose(start_from, again=again)
        number = 1 if before is None else before.number + 1
        if claim_run(root, place.attempt, number, runner):
            if again and before is not None and before.ended and not runner.beside:
                hands.forget(choice)
            # Before the command starts: what it saves itself must show that it resumed.
            left = () if before is None else judge.listing(hands.directory).found
            known = {one.path: _digest(judge, one.path) for one in left}
            prepared = _prepared(hands, place, choice, run=number, links=links)
            return replace(prepared, known=known, left_settles=_may_live_on(before, runner))
    raise StoreError(
        f"{ROUNDS} other helpers began in this execution meanwhile", hint="start one dispatch-watch a step"
    )


def _digest(judge: Judge, path: str) -> str:
    try:
        seen = judge.tree.look(path, read=False)
    except (BadDataError, StoreError):
        seen = None  # a later scan says what is wrong with it
    return "" if seen is None else manifest_of(seen, Proof.ASSUMED).digest


def _may_live_on(before: Run | None, runner: Runner) -> bool:
    """Whether the training that the run before published for can be the one that this run publishes for."""
    killed_beside = before is not None and not before.ended and before.runner is not None and before.runner.beside
    return killed_beside and runner.beside


def choose_once(place: Place, *, start_from: str | None) -> Prepared:
    """The execution's choice, made now if there is none: for ``dispatch env --prepare``, on any rank."""
    if place.shared:
        return Prepared(open_place(place).path, None, None, None)
    hands = _hands(place)
    return _prepared(hands, place, hands.choose(start_from))


def read(place: Place) -> Prepared:
    """The execution's choice as it is; on a root that is not there, and without a choice, nothing to resume."""
    if place.shared:
        return Prepared(place.root, None, None, None)
    remote = local.is_remote(place)
    directory = local.directory(place) if remote else os.path.join(place.root, "exec", place.attempt)
    try:
        root: Root = local.open_remote(place) if remote else open_root(place.root)
        choice = read_choice(root, place.attempt)
    except AbsentError:
        choice = None
    if choice is None:
        return Prepared(directory, None, None, None)
    return _followed(directory, local.read_local(place, choice) if remote else choice)


def follow(place: Place, *, supervisor: int, timeout_s: float) -> Prepared:
    """Every other rank: wait for the first one's choice.

    :raises TransientError: there is none after ``timeout_s`` seconds.
    """

    what = "the choice of rank 0"
    if local.is_remote(place):
        directory = local.directory(place) if place.local is None else local.make_local(place)
        remote = local.open_remote(place, timeout_s=timeout_s)

        def here() -> Prepared | None:
            choice = read_choice(remote, place.attempt)
            found = None if choice is None else local.follow_choice(remote, place, choice, goes_on)
            return None if found is None else _followed(directory, found)

        return _wait(place, here, what, supervisor=supervisor, timeout_s=timeout_s)

    def chosen(root: CheckpointRoot) -> Prepared | None:
        choice = read_choice(root, place.attempt)
        if choice is None or not is_there(choice):
            return None
        return _followed(root.execution(place.attempt), choice)

    return wait_for_first(place, chosen, what, supervisor=supervisor, timeout_s=timeout_s)


def _followed(directory: str, choice: Choice) -> Prepared:
    return Prepared(directory, choice.resume, choice.step, None, outranked=choice.outranked)


def wait_for_first(
    place: Place, find: Callable[[CheckpointRoot], Prepared | None], what: str, *, supervisor: int, timeout_s: float
) -> Prepared:
    """Look into the root again and again until the first rank has done what the others wait for.

    :param supervisor: the process that waits for the answer. It can have ended before this one has begun.
    :param find: what it made of the root; ``None``, or :class:`AbsentError`: not yet.
    :raises TransientError: it has not after ``timeout_s`` seconds.
    """
    # Opened anew each time: the first rank makes the root.
    return _wait(place, lambda: find(open_root(place.root)), what, supervisor=supervisor, timeout_s=timeout_s)


def _wait(
    place: Place, find: Callable[[], _Found | None], what: str, *, supervisor: int, timeout_s: float
) -> _Found:
    remote = local.is_remote(place)
    pause_s = REMOTE_PAUSE_S if remote else PAUSE_S
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            found = find()
        except AbsentError:
            found = None
        if found is not None:
            return found
        if os.getppid() != supervisor:
            raise TransientError(f"the helper that waited for {what} was ended")
        if time.monotonic() > ends_at:
            raise TransientError(
                f"rank {place.rank} waited {timeout_s:g} s for {what} in {place.root}",
                hint=_WAITED_REMOTE if remote else _WAITED,
            )
        time.sleep(pause_s)
        if remote:
            pause_s = min(pause_s * 1.2, REMOTE_PAUSE_S_MAX)


def low_space(folder: str, choice: Choice) -> str | None:
    """One line if the filesystem of ``folder`` has no room for two more saves such as the one that was chosen."""
    seen = None if choice.resume is None else look(choice.resume, read=False)
    if seen is None:
        return None
    try:
        found = os.statvfs(folder)
    except OSError:
        return None  # a filesystem that does not say
    free = found.f_bavail * found.f_frsize
    if found.f_blocks == 0 or free >= 2 * seen.size:
        return None
    return f"{folder} has {free:,} bytes left, less than two saves of {seen.size:,}"


def other_helper(before: Run) -> str:
    """One line: who publishes for this execution."""
    who = "another process" if before.runner is None else f"process {before.runner.pid} on {before.runner.host}"
    return f"{who} publishes for this execution; this one only runs the command"


def _prepared(
    hands: _Hands,
    place: Place,
    choice: Choice,
    *,
    run: int | None = None,
    links: bool = True,
    other: str | None = None,
) -> Prepared:
    space = None if run is None else low_space(hands.free_on, choice)
    before = None if run != 1 else silent_before(hands.root, choice, place.attempt)
    return Prepared(
        hands.directory,
        choice.resume,
        choice.step,
        run,
        links,
        choice.outranked,
        space=space,
        other=other,
        before=before,
    )


def silent_before(root: Root, choice: Choice, attempt: str) -> str | None:
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
