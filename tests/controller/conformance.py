"""What the controller's tests rely on, said once and held against the stand-in and against the real Slurm.

In a cluster: ``python3 -m tests.controller.conformance`` as a user, on a host with Slurm's commands.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.model.identity import Word, new_key
from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment
from slurm_dispatch.slurm.port import (
    Absent,
    Accepted,
    JobDetail,
    Nodes,
    Present,
    Queue,
    QueueJob,
    SbatchCall,
    SlurmPort,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 120.0
NO_SUCH_ID = 67_000_001


class World(Protocol):
    """What only the cluster itself or its people can do."""

    refuses_the_unknown: bool
    """A dependency on a job that is not there is refused; Slurm 22.05 passes over it."""

    def run(self, slurm_job_id: int) -> None:
        """See to it that the object runs."""
        ...

    def requeue(self, slurm_job_id: int) -> None:
        """What a user does with ``scontrol requeue``."""
        ...


class Real:
    """The cluster that this process is in."""

    def __init__(self, port: SlurmCommands) -> None:
        self._port = port
        self.refuses_the_unknown = port.version() > (22, 5)

    def run(self, slurm_job_id: int) -> None:
        """Wait for the scheduler and the node."""
        until("it to run", lambda: _queue(self._port, slurm_job_id).state == "RUNNING")

    def requeue(self, slurm_job_id: int) -> None:
        """By its owner."""
        subprocess.run(["scontrol", "requeue", str(slurm_job_id)], check=True, timeout=60)


def until(what: str, true: Callable[[], bool]) -> None:
    """Wait for ``true``; fails with ``what``."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited for {what} in vain")
        time.sleep(0.1)


def check(port: SlurmPort, world: World) -> None:
    """Every statement, in the order of two objects' lives. Leaves nothing running."""
    before = time.time()
    word, number = _submit(port)
    try:
        _queued(port, number, word, before)
        _depended_on(port, number, refused=world.refuses_the_unknown)
        world.run(number)
        _running(port, number)
    finally:
        assert port.cancel(number, None).done
    _cancelled(port, number, word)
    _, number = _submit(port)
    try:
        world.run(number)
        world.requeue(number)
        _requeued(port, number)
    finally:
        assert port.cancel(number, None).done
    until("a requeued one to be cancelled", lambda: "CANCELLED" in _detail(port, number).states)
    _, number = _submit(port)
    try:
        world.run(number)
        _requeued_by_the_port(port, number)
    finally:
        assert port.cancel(number, None).done
    _unable(port)


def _submit(port: SlurmPort, *options: str) -> tuple[Word, int]:
    word = Word(new_key(), 0, 1)
    call = SbatchCall(
        argv=(*options, "--requeue", f"--comment=mine {word}", "--job-name=conformance", "--output=/dev/null"),
        environment=dict(commands_environment()),
        deadline_s=60.0,
        script=b"#!/bin/sh\nexec sleep 300\n",
        workdir="/tmp",
    )
    answer = port.submit(call)
    assert isinstance(answer, Accepted), answer
    return word, answer.slurm_job_id


def _queued(port: SlurmPort, number: int, word: Word, before: float) -> None:
    queued = _queue(port, number)
    assert (queued.word, queued.uid) == (word, os.getuid())
    assert queued.state in {"PENDING", "CONFIGURING", "RUNNING"}
    assert queued.submit_time is not None
    assert before - 60 <= queued.submit_time <= time.time() + 60
    detail = _detail(port, number)
    assert (detail.restart, detail.uid, detail.word) == (0, os.getuid(), word)
    assert port.detail([NO_SUCH_ID])[NO_SUCH_ID] == Absent()
    assert port.accounting([NO_SUCH_ID])[NO_SUCH_ID] == Absent()
    found = port.accounting_by_word(Word(word.job, 0, 2), os.getuid(), since=int(before) - 60)
    assert found == Absent(), found


def _depended_on(port: SlurmPort, number: int, *, refused: bool) -> None:
    """What depends on an object is told, and can be changed; a job that is not there is refused for certain."""
    _, waits = _submit(port, f"--dependency=afterok:{number}")
    try:
        assert _depends(port, waits).startswith(f"afterok:{number}(")
        assert port.update(waits, None, {"Dependency": f"afterany:{number}"}).done
        assert _depends(port, waits).startswith(f"afterany:{number}(")
        answer = port.update(waits, None, {"Dependency": f"afterok:{NO_SUCH_ID}"})
        assert (answer.done, answer.refused) == (not refused, refused), answer
    finally:
        assert port.cancel(waits, None).done


def _depends(port: SlurmPort, number: int) -> str:
    found = port.dependents(os.getuid())
    assert isinstance(found, tuple), found
    (text,) = [it.text for it in found if it.slurm_job_id == number and it.state == "PENDING" and not it.array]
    return text


def _running(port: SlurmPort, number: int) -> None:
    queued, detail = _queue(port, number), _detail(port, number)
    assert queued.state == "RUNNING"
    assert queued.start_time == detail.start_time
    assert detail.start_time is not None


def _requeued(port: SlurmPort, number: int) -> None:
    """It waits again, and accounting keeps a row of the execution."""
    _waits_again(port, number)

    def has_row() -> bool:
        rows = port.accounting([number])[number]
        return isinstance(rows, Present) and any("REQUEUED" in row.states for row in rows.value)

    until("a row of the execution that was requeued", has_row)


def _waits_again(port: SlurmPort, number: int) -> None:
    """PENDING at once, perhaps completing too, which hides the state in the text of 22.05; the count has risen."""
    detail = _detail(port, number)
    assert "PENDING" in detail.states or (detail.source == "text" and detail.states == {"COMPLETING"}), detail
    assert detail.restart == 1
    until("it to wait", lambda: "PENDING" in _detail(port, number).states)


def _requeued_by_the_port(port: SlurmPort, number: int) -> None:
    """The id stays, the count rises once however often it is asked, and the begin delay can be lifted."""
    _nodes(port, number)
    assert port.requeue(number, None).done
    assert port.requeue(number, None).done  # it waits already: nothing more happens
    _waits_again(port, number)
    until("its old run to be over", lambda: _queue(port, number).state == "PENDING")
    nodes = port.nodes()
    assert isinstance(nodes, Nodes)
    name = nodes.nodes[0].name
    assert port.update(number, None, {"StartTime": "now", "ExcNodeList": name}).done
    until("the begin delay to be gone", lambda: _queue(port, number).reason != "BeginTime")


def _nodes(port: SlurmPort, number: int) -> None:
    """Every node of the running object is told, and answers."""
    answer = port.nodes()
    assert isinstance(answer, Nodes), answer
    found = {node.name: node for node in answer.nodes}
    node = found[_queue(port, number).nodes]
    assert not node.silent
    assert node.partitions
    assert node.boot_time is not None


def _unable(port: SlurmPort) -> None:
    """What Slurm will never do it refuses for certain."""
    for answer in (port.requeue(NO_SUCH_ID, None), port.update(NO_SUCH_ID, None, {"StartTime": "now"})):
        assert (answer.done, answer.refused) == (False, True), answer


def _cancelled(port: SlurmPort, number: int, word: Word) -> None:
    assert port.cancel(number, None).done  # once more is as good
    until("it to be cancelled", lambda: "CANCELLED" in _detail(port, number).states)
    assert _queue(port, number).state in {"CANCELLED", "COMPLETING"}

    def last_row() -> JobDetail | None:
        """Its owner's: 22.05 may have the end before it has the job, and shows root's id meanwhile."""
        rows = port.accounting([number])[number]
        row = rows.value[-1] if isinstance(rows, Present) else None
        return row if row is not None and "CANCELLED" in row.states and row.uid == os.getuid() else None

    until("accounting to have the end", lambda: last_row() is not None)
    row = last_row()
    assert row is not None
    assert row.by_uid == os.getuid()
    found = port.accounting_by_word(word, os.getuid(), since=int(time.time()) - 3600)
    assert isinstance(found, Present)
    assert {row.slurm_job_id for row in found.value} == {number}


def _queue(port: SlurmPort, number: int) -> QueueJob:
    queue = port.queue()
    assert isinstance(queue, Queue), queue
    found = queue.of_id(number)
    assert found is not None, number
    return found


def _detail(port: SlurmPort, number: int) -> JobDetail:
    answer = port.detail([number])[number]
    assert isinstance(answer, Present), answer
    return answer.value


if __name__ == "__main__":
    commands = SlurmCommands(commands_environment())
    check(commands, Real(commands))
    print("conforms")
