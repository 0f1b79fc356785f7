"""Which names are saves and what is said of each: by ``--pattern`` and ``--done`` alone, or by a layout's row."""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import show, store_error
from slurm_dispatch.savers.auto import recognise
from slurm_dispatch.savers.layout import State
from slurm_dispatch.savers.shards import check_indexes
from slurm_dispatch.savers.table import LAYOUTS, layout_named
from slurm_dispatch.watch.options import AUTO
from slurm_dispatch.watch.pattern import RESERVED, parse_pattern, saves_of
from slurm_dispatch.watch.scanning import Candidate, Listing, candidates, scan
from slurm_dispatch.watch.tree import DISK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from slurm_dispatch.savers.layout import Layout
    from slurm_dispatch.savers.view import SaveView
    from slurm_dispatch.store.whole import Look
    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.pattern import Pattern
    from slurm_dispatch.watch.tree import Tree

ASKED_MAX = 4
"""Saves that ``auto`` asks of in one scan for each layout: the newest, and the oldest."""
PACE = 20
"""A save that has not changed is checked again once this many times as long has passed as the check took: the index
of a great save takes seconds to read, and one that was killed stays as it is."""
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
_UNSEEN = "nothing shows which objects it has: name the one that is put last with --done, or upload it with --from"
_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What is said of one save.

    :ivar state: of a layout, or of the marker and the files' structure.
    :ivar why: one line.
    :ivar wrong: why it is never published though it is whole, or ``None``.
    :ivar copied: which of its files are copied when it is kept, by their path.
    :ivar may_settle: whether it tells something that nothing changes.
    """

    seen: Look
    state: State
    why: str
    wrong: str | None = None
    copied: Callable[[str], bool] = lambda _: False
    may_settle: bool = True


class Judge:
    """The judgement of one run. In ``auto`` it remembers the layout that it took."""

    def __init__(
        self,
        options: Options,
        *,
        resumed: str | None = None,
        say: Callable[[str], None] = lambda _: None,
        tree: Tree = DISK,
    ) -> None:
        """
        :param resumed: the save that the command was given: its name shows which form of names counts.
        :param say: takes the line that says which layout ``auto`` took.
        :param tree: where the saves are.
        """
        self.tree = tree
        self._options = options
        self._say = say
        self._auto = options.layout == AUTO
        self._form = None if resumed is None else _form(os.path.basename(resumed))
        self._patterns: dict[str, tuple[Pattern, ...]] = {}
        self._checked: dict[str, tuple[Opinion, float]] = {}
        """By path: what was said last, and until when it holds for a save that is unchanged (monotonic)."""
        self.stamps: dict[str, object] = {}
        """The stamps of the folders of the last listing."""
        self.layout: Layout | None = None
        """The layout; ``None`` where ``--pattern`` and ``--done`` alone say what a save is."""
        if options.layout is not None and not self._auto:
            self.layout = layout_named(options.layout)

    @property
    def text(self) -> str:
        """What names were looked for, for a person."""
        if self.layout is not None and not self._options.own_pattern:
            return f"--layout {self.layout.name} ({', '.join(self.layout.patterns)})"
        text = f"--pattern {self._options.pattern.text!r}"
        return f"{text}, and --layout auto recognised no saver's" if self._auto else text

    @property
    def counted(self) -> bool:
        """Whether the number in the names begins anew in each run, and is no step; known once there are saves."""
        if self.layout is None or self._options.own_pattern or self._form is None:
            return False
        name = self._form.replace("#", "1")
        return any(parse_pattern(text).components[-1].match(name) is not None for text in self.layout.counted)

    def patterns(self) -> tuple[Pattern, ...]:
        """What names of saves look like."""
        return self._of(self.layout)

    def _of(self, layout: Layout | None) -> tuple[Pattern, ...]:
        if layout is None or self._options.own_pattern:
            return (self._options.pattern,)
        if layout.name not in self._patterns:
            self._patterns[layout.name] = tuple(parse_pattern(text) for text in layout.patterns)
        return self._patterns[layout.name]

    def listing(self, directory: str, *, reserved: Collection[str] = RESERVED) -> Listing:
        """The saves in ``directory`` by their names.

        :raises StoreError: it could not be listed.
        """
        self.tree.begin()
        self.stamps = {}
        if self._auto and (self.layout is None or self.layout.one_form):
            self._recognise(directory, reserved)
        found = self._scan(directory, self.layout, reserved)
        if self.layout is None or not self.layout.one_form or self._options.own_pattern:
            return found
        return self._of_one_form(directory, found)

    def _scan(self, directory: str, layout: Layout | None, reserved: Collection[str]) -> Listing:
        if layout is None:
            return scan(
                directory, self._options.pattern, reserved=reserved, tree=self.tree, stamps=self.stamps
            )
        return scan(
            directory,
            self._of(layout),
            reserved=reserved,
            unfinished=layout.is_temporary,
            tree=self.tree,
            stamps=self.stamps,
        )

    def _recognise(self, directory: str, reserved: Collection[str]) -> None:
        """Take the first layout of the table that recognises one of its candidates; a surer one later on, too."""
        rows = list(LAYOUTS.values())
        rows = rows if self.layout is None else rows[: rows.index(self.layout)]
        patterns = list(dict.fromkeys(pattern for layout in rows for pattern in self._of(layout)))
        there = candidates(directory, patterns, reserved=reserved, tree=self.tree, stamps=self.stamps)
        asked: dict[str, Layout | None] = {}
        for layout in rows:
            found = [one for one in there if self._is_called(layout, os.path.relpath(one.path, directory))]
            for candidate in dict.fromkeys([*found[: ASKED_MAX // 2], *found[-ASKED_MAX // 2 :]]):
                if candidate.path not in asked:
                    asked[candidate.path] = self._recognised(candidate.path)
                if asked[candidate.path] is layout:
                    name = show(os.path.relpath(candidate.path, directory))
                    self._say(f"--layout auto: {name} is a save of {layout.title}: --layout {layout.name} is taken")
                    self.layout = layout
                    return

    def _recognised(self, path: str) -> Layout | None:
        seen = self.tree.look(path, read=False)
        if seen is None:
            return None
        try:
            return recognise(self.tree.view(path, seen))
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            raise store_error(error, "reading in save", path) from error

    def _is_called(self, layout: Layout, relative: str) -> bool:
        """Whether a path in the execution's folder is one of the layout's names."""
        parts = relative.split(os.sep)
        return not layout.is_temporary(parts[-1]) and any(
            len(pattern.components) == len(parts)
            and all(component.match(part) for component, part in zip(pattern.components, parts, strict=True))
            for pattern in self._of(layout)
        )

    def _of_one_form(self, directory: str, listing: Listing) -> Listing:
        forms: dict[str, list[Candidate]] = {}
        for candidate in listing.found:
            forms.setdefault(_form(os.path.basename(candidate.path)), []).append(candidate)
        if self._form not in forms and len(forms) == 1:
            self._form = next(iter(forms))
        others = [one for form, several in forms.items() if form != self._form for one in several]
        shown = " and ".join(show(form) for form in sorted(forms)[:3])
        troubles = [
            (one.path, f"names of more than one form ({shown}) may count different things; say which with --pattern")
            for one in others[:1]
        ]
        return Listing(tuple(forms.get(self._form or "", ())), (*listing.troubles, *troubles), listing.names)

    def opinion(self, candidate: Candidate) -> Opinion | None:
        """What is said of a save now; ``None`` if it went meanwhile.

        :raises BadDataError: it has too many files.
        :raises StoreError: it could not be looked.
        """
        done = self._options.done
        seen = self.tree.look(candidate.path, done, read=self.layout is None or bool(done))
        if seen is None:
            return None
        try:
            return self._without_layout(candidate, seen) if self.layout is None else self._paced(candidate, seen)
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            raise store_error(error, "reading in save", candidate.path) from error

    def _without_layout(self, candidate: Candidate, seen: Look) -> Opinion:
        if seen.torn is not None:
            return Opinion(seen, State.TORN, f"{show(seen.torn or candidate.path)} is cut")
        if seen.proved:
            return Opinion(seen, State.WHOLE, ", ".join(self._options.done) or "its own structure")
        view = self.tree.view(candidate.path, seen)
        missing = check_indexes(view)
        if missing is not None:
            return Opinion(seen, missing.state, missing.why, may_settle=self._may_settle(view))
        if not self._may_settle(view):
            return Opinion(seen, State.UNSURE, _UNSEEN, may_settle=False)
        return Opinion(seen, State.UNSURE, "nothing in it says that it is whole")

    def _may_settle(self, view: SaveView) -> bool:
        """Whether an object that is still on its way would be seen: one object comes at once, of several one may."""
        return self.tree.shows_growth or view.single

    def _paced(self, candidate: Candidate, seen: Look) -> Opinion:
        """What the layout says, without asking it again too soon."""
        said = self._checked.get(candidate.path)
        began = time.monotonic()
        if said is not None and said[0].seen == seen and began < said[1]:
            return said[0]
        opinion = self._by(candidate, seen)
        ended = time.monotonic()
        self._checked = {path: one for path, one in self._checked.items() if ended < one[1]}
        self._checked[candidate.path] = (opinion, ended + PACE * (ended - began))
        return opinion

    def _by(self, candidate: Candidate, seen: Look) -> Opinion:
        layout, done = self.layout, self._options.done
        assert layout is not None
        view = self.tree.view(candidate.path, seen)
        verdict = layout.check(view)
        state, why = verdict.state, verdict.why
        if done and state is not State.TORN:
            # The user's own marker decides where the layout cannot say, and is needed where it can.
            state, why = (State.WHOLE, ", ".join(done)) if seen.proved else (State.UNSURE, f"no {done[0]}")
        may_settle = self._may_settle(view)
        if state is State.WHOLE and not done and not may_settle and not layout.any_order:
            state, why = State.UNSURE, _UNSEEN
        if state is State.TORN:
            return Opinion(seen, state, why, may_settle=may_settle)
        wrong = _wrong_step(layout, view, candidate)
        return Opinion(seen, state, why, wrong, layout.copied(view), may_settle)

    def number_of(self, name: str) -> int | None:
        """The number in a name that the last part of a pattern matches."""
        for pattern in self.patterns():
            match = pattern.components[-1].match(name)
            if match is not None and match.step is not None:
                return match.step
        return None

    def is_save(self) -> Callable[[bytes], bool] | None:
        """Whether a name at the top of an execution's folder is a save, for thinning; ``None``: names do not say."""
        return saves_of(self.patterns())


def _wrong_step(layout: Layout, view: SaveView, candidate: Candidate) -> str | None:
    step = None if layout.step_of is None else layout.step_of(view)
    if step is None or step == candidate.step:
        return None
    return f"its name says step {candidate.step} and what is in it says {step}"


def _form(name: str) -> str:
    return _DIGITS.sub("#", name)
