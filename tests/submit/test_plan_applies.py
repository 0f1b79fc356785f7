"""The plan is what will be applied: its rows against the verdict on an execution that ended so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.verdict import verdict
from slurm_dispatch.rules.plan import plan
from slurm_dispatch.rules.rule import parse_rules
from tests.records.life import Life, make_spec
from tests.rules.test_rule import a_rule

if TYPE_CHECKING:
    from slurm_dispatch.records.state import State

rules = st.lists(a_rule(), max_size=4)
# Completed and the owner's cancel are final whatever a plan says; suspicion has an object of its own.
outcomes = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.COMPLETED])
endings = st.tuples(st.none() | st.integers(1, 255), st.none() | st.integers(1, 64))
HOUR_S = 3600.0


def ended(own: list[str], outcome: Outcome, ending: tuple[int | None, int | None], *, shared: bool) -> State:
    """The first execution of a job with these rules ended so; root cancelled it if anybody did."""
    life = Life(make_spec(rules=tuple(own), shared=shared, shared_hold_for_s=5 * HOUR_S)).run(1)
    body = dict(life.end(1, outcome.value, by_uid=0).facts.pop().body)
    code, signal = ending
    return life.add("end", **{**body, "evidence": {**body["evidence"], "exit_code": code, "signal": signal}}).state


@given(
    rules, rules, outcomes, endings, st.booleans(),
    st.none() | st.sets(st.sampled_from([Action.RESUBMIT, Action.REQUEUE])), st.sampled_from([2.0, 100.0, 10_000.0]),
)  # fmt: skip
def test_the_plan_says_what_the_verdict_does(
    own: list[str],
    site: list[str],
    outcome: Outcome,
    ending: tuple[int | None, int | None],
    shared: bool,
    allowed: set[Action] | None,
    longest_h: float,
) -> None:
    """Rule, action, how long a hold lasts and what then, for the user's, the site's and built-in rules, any status
    and signal, shared or not, under any limit on actions and holds."""
    limits = Limits(frozenset({Action.HOLD, Action.STOP, *(allowed or ())}), longest_h * HOUR_S)
    if allowed is None:
        limits = Limits(longest_hold_s=longest_h * HOUR_S)
    policy = Policy(rules=parse_rules(site), limits=limits)
    found = verdict(ended(own, outcome, ending, shared=shared), policy, 2000.0)
    rows = plan(
        parse_rules(own),
        policy.rules,
        shared=shared,
        shared_hold_for_s=5 * HOUR_S,
        allowed=None if allowed is None else frozenset(allowed),
        longest_hold_s=longest_h * HOUR_S,
    )
    row = next(row for row in rows if row.rule.matches(outcome, *ending) and row.outcome is outcome)
    assert found.rule.text == row.rule.text
    if found.why in {"budget", "launch_failures"}:  # a budget of 0
        assert row.budget == 0
        return
    assert (found.action, found.hold_for_s, found.then) == (row.action, row.applied.hold_for_s, row.applied.then)
    assert (found.why == "shared") == (row.applied.why == "shared")
    assert (found.why == "limit") == (row.applied.why == "limit")


@given(rules, outcomes, endings)
def test_a_shared_job_never_comes_back_by_itself(
    own: list[str], outcome: Outcome, ending: tuple[int | None, int | None]
) -> None:
    """P8: no rule whatever leads from the end of an execution to another one at once."""
    found = verdict(ended(own, outcome, ending, shared=True), Policy(), 2000.0)
    assert found.action in {Action.HOLD, Action.STOP}
