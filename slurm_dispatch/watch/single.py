"""``--single FILE``: a program that writes one file again and again.

A name says nothing here: the same name is a torn file one moment and a whole one the next. So only the file's own
structure counts, and only while nobody writes: it must look the same twice, with a pause that is longer than the
filesystem's clock is coarse; it is copied, never linked, since the program truncates it next; and it must still be
the same after the copy. The copy is ``kept/<stem>-<count><suffix>``, published under the count as step.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, show, store_error
from slurm_dispatch.savers.layout import State, Verdict, torn
from slurm_dispatch.savers.structure import check_single
from slurm_dispatch.store.view import FilesView
from slurm_dispatch.store.whole import Entry, Look, Proof, look
from slurm_dispatch.watch.glance import Marks
from slurm_dispatch.watch.keeping import same_bytes
from slurm_dispatch.watch.publish import Publisher, Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STILL_S = 0.5
"""Between the two looks. The clock that stamps files moves on each 10 ms at least."""
STILL_COARSE_S = 2.1
"""The same where the stamps are whole seconds: then some filesystems count two at a time."""


class SinglePublisher(Publisher):
    """Publishes the one file, each time that it is whole and another than before."""

    def __init__(self, *arguments: Any, resumed: str | None = None, **more: Any) -> None:
        """As :class:`Publisher`.

        :param resumed: what the command was given: the same bytes in FILE are no new save.
        """
        super().__init__(*arguments, resumed=resumed, **more)
        assert self.options.single is not None
        self.file = os.path.join(self.directory, self.options.single)
        self._resumed = resumed
        self._done: tuple[Entry, ...] | None = None
        """The file as it was when it was published, or found to be no new save."""

    def _scan(self, assume: bool) -> Result:
        result = Result()
        seen = self._look()
        self.marks = Marks(saves=((self.file, () if seen is None else seen.entries),))
        if seen is None:
            self._say_missing()
            return result
        self._seen_any = True
        if seen.entries == self._done or not self._is_still(seen, result):
            return result
        if self._is_known():
            self._done = seen.entries
            return result
        if self.alive() and not self._publish_file(seen):
            result.waiting += 1
        return result

    def _look(self) -> Look | None:
        return look(self.file, read=False)

    def _is_still(self, seen: Look, result: Result) -> bool:
        """Whether it is whole by its structure, and nobody writes to it."""
        verdict = self._verdict(seen)
        if verdict.state is not State.WHOLE:
            # One that is being written now is no news; one that does not change is said, once.
            if self._settling.settled(self.file, seen, self._clock()) or verdict.state is State.UNSURE:
                self._once(f"{show(self.options.single or '')} is not published: {verdict.why}")
            result.waiting += 1
            return False
        coarse = any(entry.kind == "f" and entry.mtime_ns % 1_000_000_000 == 0 for entry in seen.entries)
        self._pause(STILL_COARSE_S if coarse else STILL_S)
        again = self._look()
        if again is None or again.entries != seen.entries:
            result.waiting += 1
            return False
        return True

    @staticmethod
    def _pause(seconds: float) -> None:
        time.sleep(seconds)

    def _verdict(self, seen: Look) -> Verdict:
        view = FilesView(self.file, seen)
        if not view.single:
            return torn("it is no regular file")
        try:
            return check_single(view)
        except FileNotFoundError:
            return torn("it went meanwhile")
        except OSError as error:
            raise store_error(error, "reading", self.file) from error

    def _is_known(self) -> bool:
        """Whether it has the bytes of the save that the command resumed from, or of the last one published here."""
        try:
            if self._resumed is not None and same_bytes(self._resumed, self.file):
                return True
            return bool(self._own) and self.keeping.holds(max(self._own)[1], self.file)
        except FileNotFoundError:
            return False

    def _publish_file(self, seen: Look) -> bool:
        step = self._next_step()
        shown = self.options.single or ""
        stem, suffix = os.path.splitext(os.path.basename(self.file))
        name = f"{stem}-{step}{suffix}"
        try:
            path = self.keeping.keep(self.file, seen, Proof.PROVED, copy=True, name=name)
            if path is None or not self.alive():
                return False
            self.root.publish(self.place.epoch, step, path, attempt=self.place.attempt, sync=self.options.sync)
        except BadDataError as error:
            self._once(f"{show(shown)} is not published: {error.line()}")
            return False
        self._done = seen.entries
        self._settling.forget(self.file)
        self._published(step, name, f"{show(shown)} as {show(name)}")
        return True

    def _is_save(self) -> Callable[[bytes], bool] | None:
        single = os.fsencode(self.options.single or "")
        return None if b"/" in single else lambda name: name == single

    def _say_missing(self) -> None:
        if self._clock() - self._began >= self._nothing_s and not self._seen_any:
            self._once(f"{show(self.options.single or '')} is not in {show(self.directory)} yet", key="nothing")
