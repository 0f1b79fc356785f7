"""A rule: on these outcomes do this.

As text, in ``#DISPATCH`` lines, on the command line and in facts alike::

    preempted,node_fail:resubmit,budget=10
    failed:stop

Outcomes, a colon, the action, then options. The first rule that names an outcome decides it: those of the
user in their order, then the site's, then :data:`BUILT_IN`, which names every outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, UsageError, show
from slurm_dispatch.model.epoch import parse_count
from slurm_dispatch.model.outcome import Action, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUDGET_MAX = 1_000_000
"""No job comes near it: N ends at 999,999."""
RULE_LENGTH_MAX = 1_000
"""Characters of a rule's text; all sixteen outcomes and every option fit several times."""
RULES_MAX = 100
"""Rules of one job: more is a generated text that nobody reads."""
NOT_YET = {Action.HOLD, Action.REQUEUE}
"""Actions that parse and that this version does not carry out."""


@dataclass(frozen=True, slots=True)
class Rule:
    """On one of ``outcomes`` do ``action``.

    :param outcomes: at least one; never ``completed``, which is final.
    :param budget: how often this may resubmit for *each* of its outcomes without durable progress in
        between, 0 to 1,000,000; ``None``: as often as the job's cap on submissions allows.
    :param text: the rule as it is shown and recorded.
    """

    outcomes: frozenset[Outcome]
    action: Action
    budget: int | None
    text: str


def parse_rule(text: str) -> Rule:
    """The rule that ``text`` says.

    :raises UsageError: it does not parse, or asks for an action that this version does not have yet.
    """
    where = f"rule '{show(text)}'"
    if len(text) > RULE_LENGTH_MAX:
        raise UsageError(f"{where} is longer than {RULE_LENGTH_MAX} characters")
    left, colon, right = text.partition(":")
    if not colon:
        raise UsageError(f"{where} has no action", hint="write OUTCOMES:ACTION, such as preempted:resubmit,budget=10")
    outcomes = frozenset(_outcomes(left, where))
    word, *options = [part.strip() for part in right.split(",")]
    try:
        action = Action(word)
    except ValueError as error:
        known = ", ".join(action.value for action in Action)
        raise UsageError(f"{where}: '{show(word)}' is not an action", hint=f"it is one of {known}") from error
    budget = _budget(options, where)
    if budget is not None and action is not Action.RESUBMIT:
        raise UsageError(f"{where}: a budget goes with resubmit only")
    if action in NOT_YET:
        raise UsageError(
            f"{where}: the action '{action}' is not available in this version", hint="use resubmit or stop"
        )
    return _rule(outcomes, action, budget)


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Each text as a rule, in order; refuses more than :data:`RULES_MAX`."""
    if len(texts) > RULES_MAX:
        raise UsageError(f"{len(texts)} rules are more than the {RULES_MAX} that one job can have")
    return tuple(parse_rule(text) for text in texts)


def first_match(rules: Iterable[Rule], outcome: Outcome) -> Rule:
    """The first rule that names ``outcome``; the built-in ones come after those given."""
    for rule in (*rules, *BUILT_IN):
        if outcome in rule.outcomes:
            return rule
    raise DispatchError(f"no built-in rule names {outcome}")  # a test holds BUILT_IN to all of them


def _outcomes(text: str, where: str) -> list[Outcome]:
    found: list[Outcome] = []
    for word in (part.strip() for part in text.split(",")):
        try:
            outcome = Outcome(word)
        except ValueError as error:
            known = ", ".join(outcome.value for outcome in Outcome if outcome is not Outcome.COMPLETED)
            raise UsageError(f"{where}: '{show(word)}' is not an outcome", hint=f"it is one of {known}") from error
        if outcome is Outcome.COMPLETED:
            raise UsageError(f"{where}: completed is final, no rule can change it")
        if outcome in found:
            raise UsageError(f"{where} names {outcome} twice")
        found.append(outcome)
    return found


def _budget(options: list[str], where: str) -> int | None:
    budget: int | None = None
    for option in options:
        name, equals, value = option.partition("=")
        if name.strip() != "budget" or not equals:
            raise UsageError(f"{where}: '{show(option)}' is not an option", hint="the option is budget=N")
        if budget is not None:
            raise UsageError(f"{where} has two budgets")
        try:
            budget = parse_count("budget", value.strip(), BUDGET_MAX)
        except DispatchError as error:
            raise UsageError(f"{where}: {error}", hint=error.hint) from error
    return budget


def _rule(outcomes: frozenset[Outcome], action: Action, budget: int | None) -> Rule:
    names = ",".join(outcome.value for outcome in Outcome if outcome in outcomes)
    return Rule(outcomes, action, budget, f"{names}:{action}" + ("" if budget is None else f",budget={budget}"))


BUILT_IN: tuple[Rule, ...] = (
    _rule(
        frozenset({
            Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.BOOT_FAIL, Outcome.LAUNCH_FAILED,
            Outcome.TIMEOUT, Outcome.UNFINISHED,
        }),
        Action.RESUBMIT,
        None,
    ),
    _rule(frozenset({Outcome.FAILED}), Action.RESUBMIT, 2),
    _rule(frozenset({Outcome.STORE_ERROR}), Action.RESUBMIT, 5),
    _rule(
        frozenset({
            Outcome.OUT_OF_MEMORY, Outcome.NOT_RESUMED, Outcome.STALLED, Outcome.CANCELLED,
            Outcome.DEADLINE, Outcome.SUSPECT, Outcome.LOST,
        }),
        Action.STOP,
        None,
    ),
    _rule(frozenset({Outcome.COMPLETED}), Action.STOP, None),
)
"""What happens about an outcome that neither the user nor the site names."""
