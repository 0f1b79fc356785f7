"""The choice of the save to resume from: made once an execution, by an exclusive note that everyone reads.

``exec/<attempt>/.dispatch/choice``, then ``choice-2``, ``choice-3``, ... for later turns of the command: each a JSON
object ``{"v": 1, "turn", "epoch", "resume", "step", "source", "outranked"}``. ``resume`` is relative to the root
where it is in the root, since a root can have another path on another host (C094). In S3 it is the save itself, and
each host brings it to a path of its own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, show
from slurm_dispatch.model.epoch import parse_epoch
from slurm_dispatch.store.body import WRONG, read_body, render_body
from slurm_dispatch.store.folders import is_listed
from slurm_dispatch.store.keep import Taken, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.notes import Notes
    from slurm_dispatch.store.root import CheckpointRoot
    from slurm_dispatch.store.roots import Root

SIZE_MAX = 64 * 1024
VERSION = 1
TURNS_MAX = 100_000
WISH = "wish-"
"""What a note begins with that says, before it is chosen, what is about to be read where there are no links:
``wish-<epoch>-<name of the publication>``."""
_WISH = re.compile(r"wish-([0-9]{20})-(.+)\Z")
_NAME = re.compile(r"choice(?:-([1-9][0-9]{0,5}))?\Z")


@dataclass(frozen=True, slots=True)
class Choice:
    """What this execution resumes from.

    :ivar turn: 1 for the first choice of the execution, 2 for ``choice-2``, and so on.
    :ivar epoch: of the execution.
    :ivar resume: absolute path of the save, or its ``s3://...``; ``None`` on a first start.
    :ivar step: the save's step; ``None`` on a first start and for ``start_from``.
    :ivar source: name of the publication; ``None`` likewise.
    :ivar outranked: a publication of a greater epoch was there: nothing of this execution will be latest.
    """

    turn: int
    epoch: int
    resume: str | None
    step: int | None
    source: str | None
    outranked: bool = False


def choose(
    root: CheckpointRoot,
    attempt: str,
    *,
    epoch: int,
    start_from: str | None = None,
    again: bool = False,
    copy: bool = False,
    fallback: bool = False,
) -> Choice:
    """The execution's choice; makes it if there is none yet, or if what was chosen is gone.

    Takes the latest save into ``resume/`` (:func:`slurm_dispatch.store.keep.take`). Of many processes that
    choose at once all get the same. ``exec/<attempt>/`` must be there.

    :param start_from: an absolute path made before dispatch, used only while ``pub/`` is empty.
    :param again: a new turn of the command in the same execution: choose anew (``choice-<n>``).
    :raises BadDataError: as :meth:`CheckpointRoot.latest`; or ``start_from`` is not there.
    """

    def taken() -> Taken | None:
        return take(root, attempt, copy=copy, fallback=fallback)

    return choose_by(root, attempt, taken, epoch=epoch, start_from=start_from, again=again)


def choose_by(
    root: Root,
    attempt: str,
    take_latest: Callable[[], Taken | None],
    *,
    epoch: int,
    start_from: str | None = None,
    again: bool = False,
    look: Callable[[Choice], bool] | None = None,
) -> Choice:
    """:func:`choose`, whatever taking the latest save means in a root.

    :param take_latest: makes the latest save one that does not go; ``None`` if there is no publication.
    :param look: whether what was chosen before can still be resumed from: :func:`is_there` unless given.
    """
    before = read_choice(root, attempt)
    if before is not None and not again and (look or is_there)(before):
        return before
    turn = 1 if before is None else before.turn + 1
    if turn > TURNS_MAX:
        raise BadDataError(f"execution {attempt} has chosen {TURNS_MAX} times")
    made = _look_for_one(take_latest, turn, epoch, start_from)
    notes = root.notes(attempt)
    name = "choice" if turn == 1 else f"choice-{turn}"
    if notes.leave(name, _render(root, made)):
        return made
    winner = _read(root, notes, name)
    if winner is None:
        raise AbsentError(f"reading choice {name} of {attempt}: it exists and cannot be seen")
    return winner


def read_choice(root: Root, attempt: str) -> Choice | None:
    """The newest choice of the execution, or ``None`` if there is none yet.

    :raises BadDataError: it is there and does not parse.
    """
    return read_said(root, attempt).choice


@dataclass(frozen=True, slots=True)
class Said:
    """What an execution has said of what it resumes from.

    :ivar choice: the newest, ``None`` if there is none yet.
    :ivar wishes: epoch and publication of each save that it was about to read.
    """

    choice: Choice | None
    wishes: tuple[tuple[int, str], ...]


def read_said(root: Root, attempt: str) -> Said:
    """The newest choice and all wishes.

    :raises BadDataError: one is there and does not parse.
    """
    notes = root.notes(attempt)
    try:
        names = notes.names()
    except AbsentError:
        return Said(None, ())
    wishes = tuple((int(match[1]), match[2]) for match in map(_WISH.match, names) if match is not None)
    turns = [int(match[1] or 1) for match in map(_NAME.match, names) if match is not None]
    if not turns:
        return Said(None, wishes)
    newest = max(turns)
    return Said(_read(root, notes, "choice" if newest == 1 else f"choice-{newest}"), wishes)


def wish(root: Root, attempt: str, epoch: int, publication: Publication) -> bool:
    """Say that this execution is about to read a publication's save, and see that it is still the latest.

    Who removes lists the publications first, and reads afterwards who is reading. So where this returns true, whoever
    finds the save outranked finds the wish too, and leaves it (:func:`slurm_dispatch.store.outranked.epochs_of`).

    :returns: false where a newer one was published meanwhile: ask for that.
    """
    root.notes(attempt).leave(f"{WISH}{epoch:020d}-{publication.name}", b"")
    return root.listing()[0] == publication


def is_there(choice: Choice) -> bool:
    """Whether what was chosen is there; that of a first start always is.

    What is in the root is looked for in its folder, opened anew: another host may have made it a moment ago (C110).
    """
    if choice.resume is None:
        return True
    if choice.source is None:  # a person's path, anywhere
        return os.path.lexists(choice.resume)
    return is_listed(os.fsencode(choice.resume))


def _look_for_one(
    take_latest: Callable[[], Taken | None], turn: int, epoch: int, start_from: str | None
) -> Choice:
    taken = take_latest()
    if taken is not None:
        publication = taken.save.publication
        outranked = publication.epoch > epoch
        return Choice(turn, epoch, taken.path, publication.step, publication.name, outranked)
    if start_from is not None:
        if not os.path.isabs(start_from) or not os.path.exists(start_from):
            raise BadDataError(
                f"the save to start from, {show(start_from)}, is not there", hint="give an absolute path"
            )
        return Choice(turn, epoch, start_from, None, None)
    return Choice(turn, epoch, None, None, None)


def _render(root: Root, choice: Choice) -> bytes:
    resume = choice.resume
    if resume is not None and resume.startswith(os.path.join(root.path, "")):
        resume = os.path.relpath(resume, root.path)
    return render_body(
        VERSION, turn=choice.turn, epoch=str(choice.epoch), resume=resume, step=choice.step, source=choice.source,
        outranked=choice.outranked,
    )  # fmt: skip


def _read(root: Root, notes: Notes, name: str) -> Choice | None:
    content = notes.read(name, SIZE_MAX)
    if content is None:
        return None
    try:
        body = read_body(content, VERSION)
        resume = _text(body["resume"])
        return Choice(
            int(body["turn"]),
            parse_epoch(body["epoch"]),
            None if resume is None else os.path.join(root.path, resume),
            None if body["step"] is None else int(body["step"]),
            _text(body["source"]),
            body["outranked"] is True,
        )
    except WRONG as error:
        raise BadDataError(f"choice {show(notes.shown(name))} does not parse: {error}") from error


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not text")
