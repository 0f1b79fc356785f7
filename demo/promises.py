"""The promises of the demo and the fault tests, each a check that says in words what was broken.

A check returns a list of sentences; an empty list means that the promise was kept.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demo.witness import Account, Execution


def overlap(old: Execution, new: Execution) -> int:
    """How many steps and saves the old execution wrote after the first step of the new one."""
    steps = new.of("step")
    return len(old.wrote_after(steps[0]["at"])) if steps else 0


def ran_beside(old: Execution, new: Execution) -> float:
    """For how many seconds the old execution wrote after Slurm had started the new one."""
    return max([line["at"] - new.start["began"] for line in old.of("step", "saved")], default=0.0)


def late_publications(account: Account, old: Execution, new: Execution) -> int:
    """How many saves of the old execution were published after the new one had begun to train."""
    return sum(found.at > new.start["at"] for found in account.published_by(old.epoch))


def epochs_rise(account: Account) -> list[str]:
    """Each execution that begins later has the greater epoch, and every execution an attempt of its own."""
    broken = []
    begun = sorted(account.executions, key=lambda found: found.start["at"])
    for old, new in itertools.pairwise(begun):
        if new.epoch <= old.epoch:
            broken.append(f"epoch {new.epoch} ({new.attempt}) began after epoch {old.epoch} ({old.attempt})")
    return broken


def ranks_agree(account: Account) -> list[str]:
    """All ranks of an execution have the same variables, and do the same steps."""
    broken = []
    for execution in account.executions:
        first = execution.losses()
        for rank, lines in sorted(execution.ranks.items()):
            starts = [line for line in lines if line["what"] == "start"]
            if starts and starts[0]["variables"] != execution.start["variables"]:
                broken.append(f"epoch {execution.epoch}: rank {rank} has {starts[0]['variables']}, "
                              f"rank 0 has {execution.start['variables']}")
            losses = execution.losses(rank)
            if any(losses[step] != first[step] for step in losses.keys() & first.keys()):
                broken.append(f"epoch {execution.epoch}: rank {rank} has other losses than rank 0")
    return broken


def resumed_from_last(account: Account, new: Execution) -> list[str]:
    """The execution went on from the last publication that there was when it began.

    While it looks, the old execution may publish one more: any publication from the last before Slurm started
    the execution to the last before its training began is the right one.
    """
    before = [found for found in account.published if found.publication.epoch < new.epoch]
    sure = [found.publication for found in before if found.at <= new.start["began"]]
    possible = {(found.publication.epoch, found.publication.step) for found in before if found.at <= new.start["at"]}
    least = (sure[-1].epoch, sure[-1].step) if sure else None
    found = new.resumed
    if found is None:
        return [f"epoch {new.epoch} began anew, though {least} was published"] if least else []
    if found not in possible:
        return [f"epoch {new.epoch} resumed from {found}, which was not published when it began"]
    if least and found < least:
        return [f"epoch {new.epoch} resumed from {found}, though {least} was published"]
    return []


def lineage_is_right(account: Account, state: Any, replayed: list[str]) -> list[str]:
    """The last save is made of what its execution went on from, and has the losses of a run without faults.

    :param state: the marker of the last save.
    :param replayed: the losses of one process that does the same steps without a fault.
    """
    broken = []
    lineage = [(int(name), int(first)) for name, first in state["lineage"]]
    last = account.execution(lineage[-1][0])
    if last is None or last.epoch != account.executions[-1].epoch:
        return [f"the last save is made of {lineage}, not of the last execution's steps"]
    told = [(int(name), int(first)) for name, first in last.start["lineage"]]
    if lineage != told:
        broken.append(f"the last save is made of {lineage}, its execution went on from {told}")
    if replayed != state["log_history"]:
        pairs = enumerate(zip(replayed, state["log_history"], strict=False), 1)
        step = next((number for number, (wanted, found) in pairs if wanted != found), len(replayed) + 1)
        broken.append(f"from step {step} on the losses are not those of a run without faults")
    ends = [first for _, first in lineage[1:]] + [state["global_step"]]
    for (epoch, first), end in zip(lineage, ends, strict=True):
        execution = account.execution(epoch)
        mine = execution.losses() if execution else {}
        for step in range(first + 1, end + 1):
            if mine.get(step) != state["log_history"][step - 1]:
                broken.append(f"step {step} of the last save is not the one that epoch {epoch} logged")
                break
    return broken


def old_runs_changed_nothing(account: Account, state: Any, latest: str) -> list[str]:
    """Late saves and publications of replaced executions: outranked, and no part of the last save.

    :param latest: the path that ``dispatch latest`` gives after all is done.
    """
    broken = []
    last = account.executions[-1]
    top = account.published[-1].publication if account.published else None
    if top is None or top.epoch != last.epoch:
        broken.append(f"the greatest publication is of epoch {top.epoch if top else None}, not {last.epoch}")
    elif not latest.encode().endswith(b"/" + top.path):
        broken.append(f"latest is {latest}, not {top.path.decode()}")
    elif state["global_step"] != top.step:
        broken.append(f"the save of step {top.step} holds step {state['global_step']}")
    return broken
