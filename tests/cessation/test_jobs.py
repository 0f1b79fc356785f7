"""Held jobs with a shared checkpoint, in passes of the controller, and what nodes say of their executions."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller.cessation import Asker
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.records.cessation import CEASED, UNKNOWN, answered
from slurm_dispatch.slurm.cessation import SlurmNodes
from slurm_dispatch.slurm.port import Unknown
from tests.cessation.made import execution
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.observation import CessationAnswer

ME = pwd.getpwuid(os.geteuid()).pw_name
FINE = {"c1": "none", "c2": "none"}
RULES = SiteRules(cessation_interval_s=0.0)


def held(rig: SiteRig) -> tuple[str, int, str]:
    """A shared job whose first execution was preempted: its key, Slurm job id and the execution's attempt."""
    key = rig.job(shared=True)
    number = rig.start(key)
    rig.tick()
    attempt = rig.last(key, "started").body["attempt"]
    rig.slurm.set(rig.object(key), states=["PREEMPTED", "COMPLETING"])
    rig.end_note(key)
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    return key, number, attempt


def node_note(rig: SiteRig, key: str, attempt: str, at: int, **changes: Any) -> None:
    """What a hook on c1 leaves about the execution."""
    word = rig.word(key)
    fields = {
        "attempt": attempt, "epoch": str(rig.last(key, "started").body["epoch"]), "node": "c1", "boot": "b:1",
        "clean": True, "left": [], "start_time": rig.last(key, "started").body["start_time"], "verified": True,
        **changes,
    }  # fmt: skip
    name = f"node.{word.job}.{word.generation}.{word.submission}.{rig.object(key)}.{attempt}.c1.{at}"
    rig.note(name, word, rig.object(key), fields)


def answers(rig: SiteRig, key: str) -> list[str]:
    return [fact.body["answer"] for fact in rig.facts(key) if fact.kind == "cessation"]


@pytest.mark.parametrize("how", [{}, {"how": "scan"}, {"how": "boot"}])
def test_a_node_s_word_lets_the_job_go_on(tmp_path: Path, how: dict[str, str]) -> None:
    rig = SiteRig(tmp_path, RULES, Asker(SlurmNodes(lambda *_: FINE), user=ME))
    key, _, attempt = held(rig)
    assert answers(rig, key) == [UNKNOWN]
    node_note(rig, key, attempt, 1, **how)
    rig.wait("its release", lambda: "submitted" in rig.kinds(key)[6:])
    assert rig.last(key, "release").body["how"] == "ceased"
    assert answers(rig, key)[-1] == CEASED
    fact = rig.last(key, "node").body
    assert (fact["how"], fact["seen"] is not None) == (how.get("how", "scan"), True)
    assert not [name for name in rig.notes() if name.startswith("node.")]


def test_a_later_word_is_not_lost_for_an_earlier_one(tmp_path: Path) -> None:
    """The Epilog found processes, and later the node has booted; each is a fact, and the note goes."""
    rig = SiteRig(tmp_path, RULES, Asker(SlurmNodes(lambda *_: FINE), user=ME))
    key, _, attempt = held(rig)
    node_note(rig, key, attempt, 1, clean=False, left=[7])
    rig.wait("the answer", lambda: answers(rig, key)[-1] == "running")
    node_note(rig, key, attempt, 2, clean=True, verified=False)
    rig.wait("the note to be a fact", lambda: rig.kinds(key).count("node") == 2)
    for _ in range(5):
        rig.tick()
    assert rig.state(key).phase.value == "held"
    node_note(rig, key, attempt, 3, how="boot")
    rig.wait("its release", lambda: "submitted" in rig.kinds(key)[6:])
    assert answers(rig, key)[-1] == CEASED
    assert rig.kinds(key).count("node") == 3


@pytest.mark.parametrize(
    ("reasons", "changes"),
    [
        ({**FINE, "c1": "Kill task failed [root@x]"}, {}),
        (Unknown("away"), {}),
        ({"c2": "none"}, {}),
        (FINE, {"verified": False}),
        (FINE, {"clean": None}),
        (FINE, {"node": "c2"}),
        (FINE, {"attempt": "another"}),
    ],
)
def test_what_proves_nothing_lets_nothing_go(
    tmp_path: Path, reasons: dict[str, str] | Unknown, changes: dict[str, Any]
) -> None:
    rig = SiteRig(tmp_path, RULES, Asker(SlurmNodes(lambda *_: reasons), user=ME))
    key, _, attempt = held(rig)
    node = str(changes.get("node", "c1"))
    told = str(changes.get("attempt", attempt))
    word = rig.word(key)
    body = {
        "epoch": str(rig.last(key, "started").body["epoch"]), "boot": "b:1", "clean": True, "left": [],
        "start_time": None, "verified": True, **changes, "node": node, "attempt": told,
    }  # fmt: skip
    name = f"node.{word.job}.{word.generation}.{word.submission}.{rig.object(key)}.{told}.{node}.1"
    rig.note(name, word, rig.object(key), body)
    rig.wait("the note to be a fact", lambda: "node" in rig.kinds(key))
    for _ in range(10):
        rig.tick()
    assert set(answers(rig, key)) == {UNKNOWN}
    assert rig.kinds(key).count("intent") == 1


class ByUser:
    """Says ceased to whoever it was told to."""

    source = "by-user"
    together = False

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> list[CessationAnswer]:
        return [answered(CEASED if it.user == "evil" else UNKNOWN, self.source, "", 1e9) for it in executions]


def test_an_answer_that_another_job_got_lets_nothing_go(tmp_path: Path) -> None:
    """Whoever can name an attempt could otherwise say of it, by his own record, that its nodes are clean."""
    asker = Asker(ByUser(), user=ME)
    rig = SiteRig(tmp_path, RULES, asker)
    key, _, attempt = held(rig)
    other = rig.job(shared=True)
    for _ in range(10):
        asker.start(other, [execution(attempt=attempt, user="evil")])
        rig.tick()
    assert answers(rig, key) == [UNKNOWN]
    assert rig.state(key).phase.value == "held"


def test_what_nodes_say_of_an_elder_s_execution_lets_its_successor_go_on(tmp_path: Path) -> None:
    """The note is about the superseded job's execution, and becomes a fact of that one's record."""
    rig = SiteRig(tmp_path, RULES, Asker(SlurmNodes(lambda *_: FINE), user=ME))
    elder = rig.job(shared=True)
    rig.start(elder)
    rig.tick()
    attempt = rig.last(elder, "started").body["attempt"]
    spec = rig.spec(shared=True, supersedes=elder, generation=1)
    rig.folder.create_job(spec, b"#!/bin/sh\n", b"HOME=/\0", by="user:ada@login")
    key = spec.job
    rig.wait("it to wait for the elder's execution", lambda: "cessation" in rig.kinds(key))
    assert rig.last(elder, "closed").body["by_job"] == key
    assert [it["attempt"] for it in rig.last(key, "took_over").body["executions"]] == [attempt]
    assert set(answers(rig, key)) == {UNKNOWN}
    assert "intent" not in rig.kinds(key)
    node_note(rig, elder, attempt, 1)
    rig.wait("its release", lambda: "intent" in rig.kinds(key))
    assert answers(rig, key)[-1] == CEASED
    assert rig.last(key, "release").body["how"] == "ceased"
