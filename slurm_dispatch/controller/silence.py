"""Which nodes do not answer slurmctld, since when, and when that may be acted on.

The law of this module: *a suspicion acts only on a node that a look of now sees silent, and only while the silence
is about that node.* Many silent nodes are a network or a controller in trouble; silence soon after slurmctld's
start is slurmctld's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.tickfile import number, text
from slurm_dispatch.slurm.configuration import seconds_of
from slurm_dispatch.slurm.port import Nodes, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME = "silent"
GAP_S = 300.0
"""Looks further apart than this say nothing of the time between: what is silent now is seen for the first time."""
GIVEN_UP_S = 3600.0
"""A node that is DOWN and has been silent for this long was given up by Slurm and says nothing of the network now."""
PINGS = 2
PING_S_DEFAULT = 100.0
"""slurmctld's interval between pings where SlurmdTimeout is 0 (slurmctld/controller.c, 22.05 to 26.05)."""
NAMES_MAX = 100_000
WHY_MAX = 500


@dataclass(frozen=True, slots=True)
class Silence:
    """What the looks so far have seen.

    :param at: Unix seconds of the last look.
    :param silent: node: Unix seconds of the first look that saw it silent, of those without a break.
    :param drained: the same for nodes that are drained.
    :param why: why no suspicion acted then, for a person; empty where nothing kept it.
    """

    at: float = 0.0
    silent: Mapping[str, float] = field(default_factory=dict)
    drained: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Suspects:
    """The nodes whose silence may be acted on, or why none is.

    :param since: node: Unix seconds of the first tick that saw it silent.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


def look(before: Silence, answer: Nodes | Unknown, now: float, gap_s: float = GAP_S) -> Silence:
    """What is known after a look; one without an answer leaves it as it was.

    :param gap_s: see :data:`GAP_S`; longer where the site's ticks come less often.
    """
    if isinstance(answer, Unknown):
        return before
    old = before if 0.0 <= now - before.at <= gap_s else Silence()
    silent = {node.name: min(now, old.silent.get(node.name, now)) for node in answer.nodes if node.silent}
    drained = {node.name: min(now, old.drained.get(node.name, now)) for node in answer.nodes if node.drained}
    return Silence(now, silent, drained)


def suspects(
    silence: Silence,
    answer: Nodes | Unknown,
    config: Callable[[], Mapping[str, str] | Unknown],
    now: float,
    *,
    share: float,
    count: int,
) -> Suspects:
    """Whose silence may be acted on now.

    :param answer: the look of this very pass.
    :param config: asks for Slurm's configuration as it is now, since a slurmctld that has started again says so in
        it; called only where a node is silent.
    :param share: no suspicion acts while more than this share of the nodes is silent, and more than ``count``.
    """
    if isinstance(answer, Unknown):
        return Suspects(why=f"Slurm does not tell its nodes: {answer.why}")
    counted = [
        node.name
        for node in answer.nodes
        if node.silent and not (node.state == "DOWN" and now - silence.silent.get(node.name, now) > GIVEN_UP_S)
    ]
    if not counted:
        return Suspects()
    most = max(float(count), share * len(answer.nodes))
    if len(counted) > most:
        return Suspects(why=f"{len(counted)} nodes are silent, more than {most:g}: that is not about one node")
    told = config()
    if isinstance(told, Unknown):
        return Suspects(why=f"Slurm does not tell since when slurmctld runs: {told.why}")
    started = seconds_of(told, "BOOT_TIME")
    if started is None:
        return Suspects(why="Slurm does not tell since when slurmctld runs")
    wait_s = PINGS * ping_s(told)
    if now < started + wait_s:
        return Suspects(why=f"slurmctld has not run for two pings ({wait_s:g} s) yet")
    living = {node.name for node in answer.nodes if node.silent and node.state != "DOWN"}
    return Suspects({name: since for name, since in silence.silent.items() if name in living})


def ping_s(config: Mapping[str, str]) -> float:
    """Seconds between slurmctld's pings of its nodes: a third of SlurmdTimeout, in whole seconds."""
    timeout_s = seconds_of(config, "SlurmdTimeout")
    return float(max(1, int(timeout_s) // 3)) if timeout_s else PING_S_DEFAULT


def from_content(content: Mapping[str, Any] | None) -> Silence:
    """What a file says; nothing seen where it says nothing that can be used."""
    found = content or {}
    told = (_times(found.get("nodes")), _times(found.get("drained")))
    return Silence(number(found.get("at")), *told, text(found.get("why"), WHY_MAX))


def content(silence: Silence) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    nodes = {"nodes": dict(silence.silent), "drained": dict(silence.drained)}
    return {"at": silence.at, **nodes, "why": silence.why[:WHY_MAX]}


def _times(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    found = {text(name): number(at, -1.0) for name, at in list(value.items())[:NAMES_MAX]}
    return {name: at for name, at in found.items() if name and at >= 0.0}


__all__ = ["GAP_S", "NAME", "Silence", "Suspects", "content", "from_content", "look", "ping_s", "suspects"]
