"""What is known of one saver, as a table row: what its saves are called, and what proves one whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.savers.view import SaveView


class State(str, Enum):
    """What a layout says of a save."""

    WHOLE = "whole"
    """Proved: by the marker that the saver writes last, by its index, or by the files' own structure."""
    TORN = "torn"
    """The save's own structure says that it is not whole, or not yet."""
    UNSURE = "unsure"
    """Nothing in it says either: it may be assumed whole once it does not change."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state and its reason: one line without the save's name, that names the file that decided."""

    state: State
    why: str


def whole(why: str) -> Verdict:
    """Proved."""
    return Verdict(State.WHOLE, why)


def torn(why: str) -> Verdict:
    """Not whole, or not yet."""
    return Verdict(State.TORN, why)


def unsure(why: str) -> Verdict:
    """Nothing says."""
    return Verdict(State.UNSURE, why)


@dataclass(frozen=True, slots=True)
class Layout:
    """One saver.

    :ivar name: what ``--layout`` calls it.
    :ivar title: what people call it.
    :ivar patterns: globs with one ``{step}`` (see :mod:`slurm_dispatch.watch.pattern`), relative to ``DISPATCH_DIR``.
    :ivar last: what the saver writes last, as globs in the save; for people and the documentation.
    :ivar proves: one sentence for the documentation: what :attr:`check` looks at.
    :ivar check: whether a save is whole. Raises what the view's reader raises.
    :ivar temporary: globs of names that are not finished, beside those that are never saves for any saver.
    :ivar rewrites_in: globs in this save of files that its writer will write again, in place, although it is whole:
        they are copied when it is kept, whatever their size.
    :ivar counted: those of the patterns whose number begins anew in each run: it orders the saves of one run, and is
        no step.
    :ivar one_form: names that differ in more than their numbers (``step_10.pt``, ``epoch_3.pt``) may count different
        things, so only those of one form are saves.
    :ivar step_of: the step that stands in the save itself, ``None`` if none does; a save whose name says another is
        not published (C098).
    :ivar any_order: the save says itself which files belong to it, so it is whole in whatever order they came; else
        the proof is that the saver writes one file after all others, which a copy to S3 does not keep to.
    :ivar recognises: whether a save that a pattern of this layout matches is of this saver, finished or not; for
        ``auto``. True only for what no other program is likely to have made.
    :ivar source: the saver's documentation or source that says all this, with its version.
    """

    name: str
    title: str
    patterns: tuple[str, ...]
    last: tuple[str, ...]
    proves: str
    check: Callable[[SaveView], Verdict]
    recognises: Callable[[SaveView], bool]
    source: str
    temporary: tuple[str, ...] = ()
    rewrites_in: Callable[[SaveView], tuple[str, ...]] | None = None
    counted: tuple[str, ...] = ()
    one_form: bool = False
    step_of: Callable[[SaveView], int | None] | None = None
    any_order: bool = False

    def is_temporary(self, name: str) -> bool:
        """Whether the saver gives ``name`` to what is not finished."""
        return any(fnmatchcase(name, glob) for glob in self.temporary)

    def copied(self, view: SaveView) -> Callable[[str], bool]:
        """Which files of the save, by their path in it, must be copied when it is kept.

        :raises OSError: of the view's reader.
        """
        globs = () if self.rewrites_in is None else self.rewrites_in(view)
        return lambda path: any(fnmatchcase(path, glob) for glob in globs)
