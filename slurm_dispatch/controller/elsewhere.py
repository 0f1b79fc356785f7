"""The queues of the other clusters on which there are open jobs, asked by the tick beside its own.

A pass costs one call for each such cluster, and none where there is none; its configuration is asked once a process.
One that hangs is left alone for a while: its own jobs stay unknown meanwhile, and nobody else's wait for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.configuration import has_accounting
from slurm_dispatch.slurm.port import Queue, SlurmPort, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_dispatch.controller.view import View

CLUSTERS_MAX = 64
"""Other clusters that one pass asks."""
OF_OWNER_MAX = 16
"""Of one owner's jobs: what his records name costs the site a call each, also where there is no such cluster."""
SLOW_S = 5.0
"""A cluster that gives no answer within this hangs; one that refuses at once costs nothing to ask again."""
PUT_OFF_S = (60.0, 600.0)
"""It is put off for the first, doubled each time up to the second."""


class Elsewhere:
    """What one process knows of other clusters.

    :param trouble: takes one line about a cluster that does not answer.
    """

    def __init__(self, port: SlurmPort, trouble: Callable[[str, str], None]) -> None:
        self._port = port
        self._trouble = trouble
        self._ports: dict[str, SlurmPort] = {}
        self._configs: dict[str, Mapping[str, str]] = {}
        self._put_off: dict[str, tuple[float, float]] = {}  # until (monotonic), length

    def ask(self, view: View, wanted: Iterable[set[str]]) -> None:
        """Add to ``view`` what the other clusters tell.

        :param wanted: for each owner, the clusters of his jobs.
        """
        names: set[str] = set()
        for of_owner in wanted:
            names.update(sorted(of_owner)[:OF_OWNER_MAX])
        for name in sorted(names)[:CLUSTERS_MAX]:
            queue = self._queue(name)
            if isinstance(queue, Unknown):
                self._trouble(f"cluster {name}", f"cluster {name} does not tell its queue: {queue.why}")
            view.add(name, queue, self._configs.get(name))

    def complete(self, view: View) -> None:
        """Add what only those who work need: the notes, and the configuration of each cluster that answers."""
        for name, other in view.others.items():
            if name not in self._configs and other.told:
                config = self._at(name).config()
                if not isinstance(config, Unknown):
                    self._configs[name] = config
            other.config = self._configs.get(name)
            other.accounting = None if other.config is None else has_accounting(other.config)
            other.notes, other.bad = view.notes, view.bad

    def _queue(self, name: str) -> Queue | Unknown:
        until, length = self._put_off.get(name, (0.0, PUT_OFF_S[0] / 2))
        began = time.monotonic()
        if began < until:
            return Unknown(f"cluster {name} did not answer, and is asked again in {until - began:.0f} s")
        queue = self._at(name).queue()
        now = time.monotonic()
        if isinstance(queue, Unknown) and now - began > SLOW_S:
            length = min(PUT_OFF_S[1], 2 * length)
            self._put_off[name] = (now + length, length)
        elif not isinstance(queue, Unknown):
            self._put_off.pop(name, None)
        return queue

    def _at(self, name: str) -> SlurmPort:
        if name not in self._ports:
            self._ports[name] = self._port.at(name)
        return self._ports[name]


__all__ = ["CLUSTERS_MAX", "OF_OWNER_MAX", "PUT_OFF_S", "SLOW_S", "Elsewhere"]
