"""A rig with the site's side of the tick: its own files, Slurm's nodes, and what jobs report."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import hearsay, hints
from slurm_dispatch.controller.keeper import Keeper
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.state.users import user_name
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_dispatch.controller.cessation import Asker
    from slurm_dispatch.controller.job import Report
    from slurm_dispatch.controller.view import View

PATIENCE_S = 60.0


class SiteRig(Rig):
    """One site whose rules are ``rules``.

    :ivar log: what an operator is told.
    """

    def __init__(self, folder: Path, rules: SiteRules | None = None, asker: Asker | None = None) -> None:
        super().__init__(folder)
        self.tick_folder = hints.tick_folder(self.path)
        self.log: list[str] = []
        self.rules = SiteRules() if rules is None else rules
        self._asker = asker
        self.anew()

    def anew(self) -> None:
        """Another process ticks from now on: it remembers nothing."""
        self.keeper = Keeper(self.rules, self.port, self._asker, self.log.append)

    def hints(self) -> hints.Hints:
        """What the files say."""
        return hints.load(self.tick_folder)

    def ends(self, key: str, *states: str, **fields: Any) -> None:
        """The current object ends in these states, and the hooks say so."""
        self.slurm.end(self.object(key), *states, **fields)
        self.end_note(key)

    def runs_on_a_silent_node(self, **about: Any) -> tuple[str, int]:
        """A job that runs on c1, which has been silent for 29 seconds; its key and its object."""
        key = self.job(suspect_s=30.0, **about)
        number = self.object(key)
        self.start(key)
        self.tick()
        self.slurm.node("c1", "ALLOCATED", "NOT_RESPONDING")
        self.tick()
        self.later_s += 29.0
        self.tick()
        assert self.state(key).phase.value == "running"
        return key, number

    def decided(self, key: str) -> dict[str, Any]:
        """What the last decision says."""
        return dict(self.last(key, "decision").body)

    def view(self) -> View:
        """What a pass knows, the site's side too."""
        view = super().view()
        view.site = self.keeper.begin(hints.read(self.tick_folder), view.at, full=True)
        return view

    def tick(self, *, view: View | None = None) -> dict[str, Report]:
        """One pass, and what the tick does with the reports."""
        view = self.view() if view is None else view
        reports = super().tick(view=view)
        for report in reports.values():
            self.keeper.hear(report.key, self.uid, user_name(self.uid), self.heard(report))
        hints.write(self.tick_folder, self.keeper.end(view.at))
        return reports

    def heard(self, report: Report) -> hearsay.Hearsay:
        """What a report has for the site."""
        return hearsay.unpack(report.site, self.uid, user_name(self.uid))

    def wait_for(self, what: str, true: Callable[[], Any]) -> None:
        """Wait, without a pass, until ``true``."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {what} in vain: {self.log}")
            time.sleep(0.02)

    def wait(self, what: str, true: Callable[[], Any]) -> None:
        """Pass until ``true``."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {what} in vain: {self.log}")
            self.tick()
            time.sleep(0.02)


__all__ = ["SiteRig"]
