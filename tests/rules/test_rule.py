"""Rules: what parses, what is refused with which words, and which rule decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import DispatchError, UsageError
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.plan import MEANING, plan
from slurm_dispatch.rules.rule import BUILT_IN, RULES_MAX, first_match, parse_rule, parse_rules

MAY_BE_NAMED = [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED]


def test_a_rule_says_outcomes_action_and_budget() -> None:
    rule = parse_rule("preempted, node_fail : resubmit , budget=10")
    assert rule.outcomes == {Outcome.PREEMPTED, Outcome.NODE_FAIL}
    assert (rule.action, rule.budget) == (Action.RESUBMIT, 10)
    assert rule.text == "node_fail,preempted:resubmit,budget=10"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("preempted", "has no action"),
        ("", "has no action"),
        (":resubmit", "'' is not an outcome"),
        ("preemted:resubmit", "'preemted' is not an outcome"),
        ("PREEMPTED:resubmit", "'PREEMPTED' is not an outcome"),
        ("failed:retry", "'retry' is not an action"),
        ("failed:", "'' is not an action"),
        ("completed:resubmit", "completed is final"),
        ("failed,failed:stop", "names failed twice"),
        ("failed:resubmit,budget", "'budget' is not an option"),
        ("failed:resubmit,backoff=3s", "'backoff=3s' is not an option"),
        ("failed:resubmit,budget=1,budget=2", "two budgets"),
        ("failed:resubmit,budget=-1", "budget '-1' is not a whole number"),
        ("failed:resubmit,budget=1_0", "budget '1_0' is not a whole number"),
        ("failed:resubmit,budget=01", "budget '01' is not a whole number"),
        ("failed:resubmit,budget=1000001", "out of bounds"),
        ("failed:stop,budget=3", "a budget goes with resubmit only"),
        ("failed:hold", "the action 'hold' is not available in this version"),
        ("failed:requeue", "the action 'requeue' is not available in this version"),
        ("failed:" + "x" * 2000, "longer than 1000 characters"),
        ("failed\n:stop\x1b[31m", "is not an"),
    ],
)
def test_a_bad_rule_is_refused_in_one_line_that_names_it(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert says in str(caught.value)
    assert "rule '" in str(caught.value)
    assert caught.value.line().isprintable()


def test_more_rules_than_a_person_reads_are_refused() -> None:
    assert len(parse_rules(["failed:stop"] * RULES_MAX)) == RULES_MAX
    with pytest.raises(UsageError, match="101 rules"):
        parse_rules(["failed:stop"] * (RULES_MAX + 1))


@given(
    st.lists(st.sampled_from(MAY_BE_NAMED), min_size=1, unique=True),
    st.sampled_from([Action.RESUBMIT, Action.STOP]),
    st.none() | st.integers(0, 1_000_000),
)
def test_the_text_of_a_rule_is_the_rule_again(outcomes: list[Outcome], action: Action, budget: int | None) -> None:
    option = "" if budget is None or action is Action.STOP else f",budget={budget}"
    rule = parse_rule(",".join(outcome.value for outcome in outcomes) + f":{action}{option}")
    assert parse_rule(rule.text) == rule
    assert rule.outcomes == set(outcomes)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused_as_usage(text: str) -> None:
    refusal: DispatchError | None = None
    try:
        parse_rule(text)
    except DispatchError as error:
        refusal = error
    assert refusal is None or (refusal.exit_code == 64)
    assert refusal is None or (refusal.line().isprintable())


def test_every_outcome_has_one_built_in_rule() -> None:
    named = [outcome for rule in BUILT_IN for outcome in rule.outcomes]
    assert sorted(named) == sorted(Outcome)


@pytest.mark.parametrize(
    ("outcome", "action", "budget"),
    [
        ("preempted", "resubmit", None),
        ("node_fail", "resubmit", None),
        ("boot_fail", "resubmit", None),
        ("launch_failed", "resubmit", None),
        ("timeout", "resubmit", None),
        ("unfinished", "resubmit", None),
        ("failed", "resubmit", 2),
        ("store_error", "resubmit", 5),
        ("out_of_memory", "stop", None),
        ("not_resumed", "stop", None),
        ("cancelled", "stop", None),
        ("deadline", "stop", None),
        ("lost", "stop", None),
        ("completed", "stop", None),
    ],
)
def test_what_happens_where_nobody_says_otherwise(outcome: str, action: str, budget: int | None) -> None:
    rule = first_match((), Outcome(outcome))
    assert (rule.action.value, rule.budget) == (action, budget)


def test_the_first_rule_that_names_the_outcome_decides() -> None:
    rules = parse_rules(["cancelled,failed:resubmit,budget=1", "failed:stop"])
    assert first_match(rules, Outcome.FAILED) is rules[0]
    assert first_match(rules, Outcome.CANCELLED).action is Action.RESUBMIT
    assert first_match(rules, Outcome.TIMEOUT) in BUILT_IN


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
