"""A rig whose ticks pass over jobs by the index, and are held against ticks that pass over none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.controller import hints, index, owner
from slurm_dispatch.controller.index import Index
from slurm_dispatch.state.users import user_name
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.controller.job import Report
    from slurm_dispatch.controller.siterules import SiteRules
    from slurm_dispatch.controller.view import View

OLD_NS = 1_600_000_000_000_000_000
"""Time stamps of folders count on from here: no two are the same, and none is young."""


class IndexRig(SiteRig):
    """One site.

    :ivar skipped: how many visits the index has spared.
    """

    def __init__(self, folder: Path, rules: SiteRules | None = None) -> None:
        super().__init__(folder, rules)
        self.index = Index()
        self.skipped = 0
        self._stamps = 0
        self._sizes: dict[str, int] = {}
        self._last: float | None = None

    def stamp(self) -> None:
        """Give each folder of facts that has changed a time stamp of its own."""
        for job in self.folder.jobs():
            path = self.record(job.key).facts_folder
            size = len(os.listdir(path))
            if self._sizes.get(job.key) != size:
                self._stamps += 1
                self._sizes[job.key] = size
                os.utime(path, ns=(OLD_NS + self._stamps, OLD_NS + self._stamps))

    def indexed_tick(self) -> dict[str, Report]:
        """One pass over the jobs that the index picks; fails if another one had anything to do."""
        self.stamp()
        view = self.view()
        names: dict[str, list[str]] = {}
        for name in self.notes():
            names.setdefault(name.split(".")[1], []).append(name)
        keys = [job.key for job in self.folder.jobs()]
        picked = self.index.pick(self.uid, keys, names, view, self._last)
        moved = owner.unpack_moved(owner.moved(self.folder.jobs_folder, picked.ask), picked.ask)
        visited = picked.visit + moved
        self._nothing_to_do([key for key in picked.ask if key not in moved], view)
        reports = self._work(visited, view)
        for key, report in reports.items():
            self.index.put(key, index.entry_of(report.rest))
            self.keeper.hear(key, self.uid, user_name(self.uid), self.heard(report))
        self.folder.notes().remove([name for report in reports.values() for name in report.done_notes])
        hints.write(self.tick_folder, self.keeper.end(view.at))
        self._last = view.at
        self.index = index.parse(index.render(self.index, self.uid, "basis").decode("ascii"), self.uid, "basis")
        assert not self.index.changed, "what was written is not read"
        return reports

    def _work(self, keys: list[str], view: View) -> dict[str, Report]:
        answer = owner.work(
            self.folder.jobs_folder, self.uid, keys, view, self.means(), before=self.index.entries
        )
        return {report.key: report for report in owner.unpack(answer, keys, self.notes())}

    def _nothing_to_do(self, keys: list[str], view: View) -> None:
        """Visit the jobs that are passed over: no fact, no act, nothing to say."""
        facts = {key: self.kinds(key) for key in keys}
        acts = [call for call in self.slurm.calls() if call in {"submit", "cancel", "requeue", "update"}]
        for key, report in self._work(keys, view).items():
            what = f"{key}: {self.state(key).phase} {report}"
            assert self.kinds(key) == facts[key], what
            said = self.heard(report)
            told = [report.lines, report.trouble, report.soon, report.done_notes, report.refuse, said.ended]
            assert not any([*told, said.resubmitted, said.ask, said.tell, said.overlap]), what
        after = [call for call in self.slurm.calls() if call in {"submit", "cancel", "requeue", "update"}]
        assert after == acts
        self.skipped += len(keys)


__all__ = ["IndexRig"]
