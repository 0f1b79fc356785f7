"""Rules: what parses, what is refused with which words, and which rule decides."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import DispatchError, UsageError
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.options import RULE_OPTIONS, signal_name
from slurm_dispatch.rules.rule import (
    BUILT_IN,
    RULES_MAX,
    Backoff,
    Growth,
    Rule,
    first_match,
    parse_rule,
    parse_rules,
)

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
        ("failed:resubmit,colour=3s", "'colour=3s' is not an option"),
        ("failed:resubmit,budget=1,budget=2", "budget stands twice"),
        ("failed:resubmit,budget=-1", "budget '-1' is not a whole number"),
        ("failed:resubmit,budget=1_0", "budget '1_0' is not a whole number"),
        ("failed:resubmit,budget=01", "budget '01' is not a whole number"),
        ("failed:resubmit,budget=1000001", "out of bounds"),
        ("failed:stop,budget=3", "budget goes with resubmit and requeue only"),
        ("failed:hold,budget=3", "budget goes with resubmit and requeue only"),
        ("failed:resubmit,exclude-nodes=n1", "'exclude-nodes=n1' is not an option"),
        ("failed:stop,exclude-nodes", "exclude-nodes goes with resubmit and requeue only"),
        ("failed:resubmit,backoff=30", "backoff: '30' is not a duration"),
        ("failed:resubmit,backoff=0s", "does not go from a wait to a longer one"),
        ("failed:resubmit,backoff=30m..30s", "does not go from a wait to a longer one"),
        ("failed:resubmit,backoff=4000d", "longer than ten years"),
        ("failed:requeue,backoff=30s", "backoff goes with resubmit only"),
        ("failed:resubmit,codes=0", "exit status 0 is out of bounds"),
        ("failed:resubmit,codes=256", "exit status 256 is out of bounds"),
        ("failed:resubmit,codes=7-3", "'7-3' has no exit status in it"),
        ("failed:resubmit,codes=1;2", "exit status '1;2' is not a whole number"),
        ("failed:resubmit,codes=", "exit status '' is not a whole number"),
        ("failed:resubmit,signals=0", "signal 0 is out of bounds"),
        ("failed:resubmit,signals=65", "signal 65 is out of bounds"),
        ("failed:resubmit,signals=ZAP", "'ZAP' is not a signal"),
        ("failed:resubmit,time=1.5x", "'1.5x' is not a factor with a ceiling"),
        ("failed:resubmit,time=2..3d", "'2..3d' is not a factor with a ceiling"),
        ("failed:resubmit,time=1x..3d", "the factor 1 is out of bounds"),
        ("failed:resubmit,time=101x..3d", "the factor 101 is out of bounds"),
        ("failed:resubmit,time=2x..0s", "the ceiling is nothing"),
        ("failed:requeue,time=2x..3d", "time goes with resubmit only"),
        ("failed:resubmit,mem=2x..3d", "'3d' is not a size"),
        ("failed:resubmit,mem=2x..2000T", "more than a PiB"),
        ("failed:resubmit,for=24h", "for goes with hold only"),
        ("failed:hold,for=0s", "a hold for no time is none"),
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


waits = st.builds(lambda number, unit: f"{number}{unit}", st.integers(1, 99), st.sampled_from("smhd"))
OPTIONS = {
    "budget": st.integers(0, 1_000_000).map("budget={}".format),
    "backoff": waits.map("backoff={}".format) | waits.map("backoff={}..100d".format),
    "codes": st.sets(st.integers(1, 255), min_size=1).map(lambda it: "codes=" + "+".join(map(str, it))),
    "signals": st.sets(st.integers(1, 64), min_size=1).map(lambda it: "signals=" + "+".join(map(str, it))),
    "exclude-nodes": st.just("exclude-nodes"),
    "time": st.builds("time={}x..{}".format, st.sampled_from(["1.5", "2", "1.001", "100"]), waits),
    "mem": st.builds(
        "mem={}x..{}{}".format, st.sampled_from(["1.5", "3"]), st.integers(1, 900), st.sampled_from("MGT")
    ),
    "for": waits.map("for={}".format),
}


@st.composite
def a_rule(draw: st.DrawFn) -> str:
    """A rule with any options that go with its action, in any order."""
    outcomes = draw(st.lists(st.sampled_from(MAY_BE_NAMED), min_size=1, unique=True))
    action = draw(st.sampled_from(list(Action)))
    names = [option.name for option in RULE_OPTIONS if action in option.actions]
    options = [draw(OPTIONS[name]) for name in draw(st.lists(st.sampled_from(names), unique=True))]
    return ",".join([",".join(outcome.value for outcome in outcomes) + f":{action}", *options])


@given(a_rule())
def test_the_text_of_a_rule_is_the_rule_again(text: str) -> None:
    rule = parse_rule(text)
    assert parse_rule(rule.text) == rule
    outcomes, _, rest = text.partition(":")
    assert rule.outcomes == {Outcome(word) for word in outcomes.split(",")}
    set_ = {option.name for option in RULE_OPTIONS if getattr(rule, option.field) is not None}
    set_ -= set() if rule.exclude_nodes else {"exclude-nodes"}
    assert {word.split("=")[0] for word in rest.split(",")[1:]} == set_


def test_every_option_says_what_it_says() -> None:
    """Each value as its field has it: seconds, MiB, numbers of signals."""
    rule = parse_rule(
        "failed : resubmit, mem=2x..512G, time=1.5x..3d, exclude-nodes, signals=segv+9+SIGBUS+35, codes=1+3-5+4, "
        "backoff=30s..30m, budget=4"
    )
    assert rule == Rule(
        outcomes=frozenset({Outcome.FAILED}),
        action=Action.RESUBMIT,
        budget=4,
        backoff=Backoff(30, 1800),
        codes=frozenset({1, 3, 4, 5}),
        signals=frozenset({7, 9, 11, 35}),
        exclude_nodes=True,
        time=Growth(1.5, 3 * 86400),
        mem=Growth(2, 512 * 1024),
        text="failed:resubmit,budget=4,backoff=30s..30m,codes=1+3-5,signals=BUS+KILL+SEGV+35,exclude-nodes,"
        "time=1.5x..3d,mem=2x..512G",
    )
    assert parse_rule("lost:hold,for=48h").hold_for_s == 48 * 3600
    assert parse_rule("lost:hold").hold_for_s is None


@pytest.mark.parametrize(
    ("code", "number", "chosen"),
    [
        (1, None, 0), (2, None, 2), (137, None, 1), (None, 9, 1), (0, 9, 1), (139, None, 0), (None, 11, 0),
        (None, None, 2), (None, 10, 2), (193, None, 2), (128, None, 2),
    ],
)  # fmt: skip
def test_statuses_and_signals(code: int | None, number: int | None, chosen: int) -> None:
    """A rule that names some counts only for those; 128+n, a shell's word for signal n, is the signal."""
    rules = parse_rules(["failed:stop,codes=1+139", "failed:hold,signals=KILL", "failed,timeout:requeue"])
    assert first_match(rules, Outcome.FAILED, code, number) is rules[chosen]
    assert first_match(rules, Outcome.TIMEOUT, code, number) is rules[2]
    assert first_match(rules[:2], Outcome.TIMEOUT, code, number) in BUILT_IN


def test_a_node_that_was_taken_back_while_the_job_ran_is_a_rule_of_its_own() -> None:
    """C053: a spot instance that ends leaves a plain failure with status 130, which no state of Slurm's tells apart:
    a rule about that signal brings it back as often as it says, and other failures are not touched."""
    rules = parse_rules(["failed:resubmit,signals=INT,budget=50,exclude-nodes", "failed:stop"])
    assert first_match(rules, Outcome.FAILED, 130, None) is rules[0]
    assert first_match(rules, Outcome.FAILED, None, 2) is rules[0]
    assert first_match(rules, Outcome.FAILED, 1, None) is rules[1]


def test_signals_have_the_names_that_they_have_here() -> None:
    """Every name that this Python knows is the same number in a rule; the first 31 have one on every host."""
    for number in range(1, 65):
        name = signal_name(number)
        assert parse_rule(f"failed:stop,signals={name}").signals == frozenset({number})
        assert name.isdigit() == (number > 31)
    for known in signal.Signals:
        if known <= 31:
            assert parse_rule(f"failed:stop,signals={known.name}").signals == frozenset({int(known)})


def test_codes_and_signals_together_are_either() -> None:
    rule = parse_rule("failed:stop,codes=3,signals=TERM")
    ends = [(3, None), (None, 15), (143, None), (4, None), (None, 9), (None, None)]
    assert [rule.matches(Outcome.FAILED, *end) for end in ends] == [True, True, True, False, False, False]


def test_a_backoff_doubles_up_to_its_most_with_jitter() -> None:
    range_, constant = Backoff(30, 1800), Backoff(600, 600)
    assert [range_.wait_s(used, 0.0) for used in (0, 1, 2, 6, 7, 1000)] == [30, 60, 120, 1800, 1800, 1800]
    assert [range_.wait_s(used, 1.0) for used in (0, 1, 9)] == [15, 30, 900]
    assert [constant.wait_s(used, 1.0) for used in (0, 1, 9)] == [600, 600, 600]


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(0, 10**6), st.floats(0, 1))
def test_a_wait_stays_within_the_range(first: float, more: float, used: int, jitter: float) -> None:
    backoff = Backoff(first, first + more)
    assert first / 2 - 1 <= backoff.wait_s(used, jitter) <= first + more + 1


def test_growth_stops_at_its_ceiling_and_never_shrinks() -> None:
    growth = Growth(2, 100)
    assert [growth.grown(limit) for limit in (10, 60, 100, 300)] == [20, 100, 100, 300]


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
    ("outcome", "text"),
    [
        ("preempted", "preempted:resubmit"),
        ("timeout", "timeout:resubmit"),
        ("unfinished", "unfinished:resubmit"),
        ("node_fail", "node_fail:resubmit,exclude-nodes"),
        ("boot_fail", "boot_fail:resubmit,exclude-nodes"),
        ("suspect", "suspect:resubmit,exclude-nodes"),
        ("launch_failed", "launch_failed:resubmit,backoff=30s..30m,exclude-nodes"),
        ("failed", "failed:resubmit,budget=2"),
        ("stalled", "stalled:resubmit,budget=2"),
        ("store_error", "store_error:resubmit,backoff=1m..30m"),
        ("out_of_memory", "out_of_memory:hold"),
        ("not_resumed", "not_resumed:hold"),
        ("cancelled", "cancelled:hold"),
        ("lost", "lost:hold"),
        ("deadline", "deadline:stop"),
    ],
)
def test_what_happens_where_nobody_says_otherwise(outcome: str, text: str) -> None:
    rule, wanted = first_match((), Outcome(outcome)), parse_rule(text)
    assert replace(rule, outcomes=wanted.outcomes, text=text) == wanted


def test_completed_is_final() -> None:
    assert first_match((), Outcome.COMPLETED).action is Action.STOP


def test_the_first_rule_that_names_the_outcome_decides() -> None:
    rules = parse_rules(["cancelled,failed:resubmit,budget=1", "failed:stop"])
    assert first_match(rules, Outcome.FAILED) is rules[0]
    assert first_match(rules, Outcome.CANCELLED).action is Action.RESUBMIT
    assert first_match(rules, Outcome.TIMEOUT) in BUILT_IN
