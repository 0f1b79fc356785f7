"""The plan: every outcome, whose rule it is, and what a shared checkpoint and the site's limits make of it."""

from __future__ import annotations

import pytest

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.applied import HOLD_S_MAX, Applied, applied
from slurm_dispatch.rules.plan import MEANING, changes, plan
from slurm_dispatch.rules.rule import parse_rule, parse_rules

DAY_S = 86400.0


def test_the_plan_has_every_outcome_and_says_whose_rule_it_is() -> None:
    rows = {
        row.outcome: row
        for row in plan(parse_rules(["failed:stop"]), parse_rules(["failed,timeout:resubmit,budget=3"]))
    }
    assert set(rows) == set(Outcome) == set(MEANING)
    assert (rows[Outcome.FAILED].action, rows[Outcome.FAILED].why) == (Action.STOP, "your rule failed:stop")
    assert rows[Outcome.TIMEOUT].budget == 3
    assert rows[Outcome.TIMEOUT].why.startswith("the site's rule")
    assert rows[Outcome.PREEMPTED].why == "built in"
    assert rows[Outcome.COMPLETED].why == "final"


def test_an_outcome_has_a_row_for_each_rule_that_can_count() -> None:
    """Those about some ends only, in the order in which they are tried, then the one about all others."""
    rules = parse_rules(["failed:hold,codes=1+3", "timeout:stop", "failed:stop,signals=SEGV"])
    rows = [row for row in plan(rules, parse_rules(["failed:requeue", "failed:stop"])) if row.outcome == "failed"]
    assert [(row.when, row.action.value) for row in rows] == [
        ("status 1+3", "hold"), ("signal SEGV", "stop"), ("", "requeue"),
    ]  # fmt: skip
    both = plan(parse_rules(["failed:stop,codes=2,signals=9"]))
    assert [row.when for row in both if row.outcome == "failed"] == ["status 2 or signal KILL", ""]


def test_what_changes() -> None:
    rule = parse_rule("failed:resubmit,backoff=30s..30m,exclude-nodes,time=1.5x..3d,mem=2x..512G")
    found = changes(rule, Outcome.FAILED)
    assert found == ("waits 30s..30m", "other nodes", "time x 1.5, up to 3d", "memory x 2, up to 512G")
    assert changes(parse_rule("failed:resubmit"), Outcome.FAILED) == ()
    assert changes(parse_rule("failed,suspect:resubmit"), Outcome.SUSPECT) == ("other nodes",)


@pytest.mark.parametrize(
    ("text", "shared", "found"),
    [
        ("failed:resubmit", False, Applied(Action.RESUBMIT, None, None, "rule")),
        ("failed:requeue", False, Applied(Action.REQUEUE, None, None, "rule")),
        ("failed:stop", False, Applied(Action.STOP, None, None, "rule")),
        ("failed:hold", False, Applied(Action.HOLD, HOLD_S_MAX, Action.RESUBMIT, "rule")),
        ("failed:hold,for=3h", False, Applied(Action.HOLD, 10800.0, Action.RESUBMIT, "rule")),
        ("failed:resubmit,budget=2", True, Applied(Action.HOLD, DAY_S, Action.RESUBMIT, "shared")),
        ("failed:requeue", True, Applied(Action.HOLD, DAY_S, Action.RESUBMIT, "shared")),
        ("failed:hold,for=3h", True, Applied(Action.HOLD, 10800.0, Action.RESUBMIT, "rule")),
        ("failed:hold", True, Applied(Action.HOLD, HOLD_S_MAX, Action.RESUBMIT, "rule")),
        ("failed:stop", True, Applied(Action.STOP, None, None, "rule")),
    ],
)
def test_the_shared_substitution(text: str, shared: bool, found: Applied) -> None:
    """P8: whatever would bring a shared job back becomes a hold, and ``requeue`` a resubmission after it."""
    assert applied(parse_rule(text), shared=shared, shared_hold_for_s=DAY_S) == found


def test_no_rule_brings_a_shared_job_back_by_itself() -> None:
    rules = parse_rules(["failed,timeout:requeue", "lost:resubmit,codes=3", "preempted:resubmit,budget=9"])
    rows = plan(rules, shared=True)
    assert {row.action for row in rows} == {Action.HOLD, Action.STOP}
    assert {row.applied.why for row in rows if row.action is Action.HOLD} == {"shared", "rule"}


@pytest.mark.parametrize(
    ("text", "shared", "allowed", "why"),
    [
        ("failed:requeue", False, {Action.RESUBMIT}, "limit"),
        ("failed:requeue", True, {Action.RESUBMIT}, "shared"),  # what follows is a resubmission
        ("failed:resubmit", False, {Action.RESUBMIT}, "rule"),
        ("failed:resubmit", False, set(), "limit"),
        ("failed:resubmit", True, {Action.REQUEUE}, "limit"),
        ("failed:hold", False, set(), "rule"),
        ("failed:stop", False, set(), "rule"),
    ],
)
def test_the_sites_limit_on_actions(text: str, shared: bool, allowed: set[Action], why: str) -> None:
    found = applied(parse_rule(text), shared=shared, shared_hold_for_s=DAY_S, allowed=frozenset(allowed))
    assert found.why == why
    assert why != "limit" or (found.action, found.hold_for_s) == (Action.HOLD, HOLD_S_MAX)


def test_the_sites_limit_on_holds() -> None:
    for text, shared in (("failed:hold,for=9h", False), ("failed:hold", False), ("failed:resubmit", True)):
        found = applied(parse_rule(text), shared=shared, shared_hold_for_s=DAY_S, longest_hold_s=3600.0)
        assert found.hold_for_s == 3600.0
