"""A rule: on these outcomes do this.

As text, in ``#DISPATCH`` lines, on the command line, in job files, in the site's settings and in facts alike::

    preempted,node_fail:resubmit,budget=10
    failed:resubmit,signals=SEGV+BUS,exclude-nodes
    failed:hold,for=24h

Outcomes, a colon, the action, then options (:data:`~slurm_dispatch.rules.options.RULE_OPTIONS`). The first
rule that matches decides: those of the user in their order, then the site's, then :data:`BUILT_IN`, which
names every outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import DispatchError, UsageError, show
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.options import BUDGET_MAX, BY_SIGNAL, Backoff, Growth, read_options, write_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RULE_LENGTH_MAX = 1_000
"""Characters of a rule's text; all sixteen outcomes and every option fit several times."""
RULES_MAX = 100
"""Rules of one job: more is a generated text that nobody reads."""


@dataclass(frozen=True, slots=True)
class Rule:
    """On one of ``outcomes`` do ``action``.

    :param outcomes: at least one; never ``completed``, which is final.
    :param budget: how often this may bring the job back for *each* of its outcomes without durable progress
        in between, 0 to 1,000,000; ``None``: as often as the job's caps allow.
    :param text: the rule as it is shown and recorded.
    :param backoff: how long the next submission waits in Slurm; ``None``: not at all.
    :param codes: exit statuses of the command, 1 to 255, that the rule is about; ``None``: any.
    :param signals: signals that ended the command, 1 to 64, that the rule is about; ``None``: any. With both
        it is about either.
    :param exclude_nodes: the next submission stays off the nodes of this execution.
    :param time: growth of the time limit, with a ceiling in seconds.
    :param mem: growth of the memory asked for, with a ceiling in MiB.
    :param hold_for_s: how long a hold lasts; ``None``: as long as the site lets it.
    """

    outcomes: frozenset[Outcome]
    action: Action
    budget: int | None
    text: str
    backoff: Backoff | None = None
    codes: frozenset[int] | None = None
    signals: frozenset[int] | None = None
    exclude_nodes: bool = False
    time: Growth | None = None
    mem: Growth | None = None
    hold_for_s: float | None = None

    @property
    def narrow(self) -> bool:
        """It is about some exit statuses or signals only."""
        return self.codes is not None or self.signals is not None

    def matches(self, outcome: Outcome, code: int | None = None, signal: int | None = None) -> bool:
        """Whether the rule is about this end.

        A shell says signal n as status 128+n, and Slurm passes on what the shell said; so the one is taken for
        the other, whichever of them the rule names.
        """
        if outcome not in self.outcomes:
            return False
        if not self.narrow:
            return True
        if code is not None and signal is None and BY_SIGNAL < code <= BY_SIGNAL + 64:
            signal = code - BY_SIGNAL
        elif signal is not None and not code:
            code = BY_SIGNAL + signal
        return code in (self.codes or ()) or signal in (self.signals or ())


def parse_rule(text: str) -> Rule:
    """The rule that ``text`` says.

    :raises UsageError: it does not parse.
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
    try:
        return make_rule(outcomes, action, **read_options(options, action))
    except DispatchError as error:
        raise UsageError(f"{where}: {error}", hint=error.hint) from error


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Each text as a rule, in order; refuses more than :data:`RULES_MAX`."""
    if len(texts) > RULES_MAX:
        raise UsageError(f"{len(texts)} rules are more than the {RULES_MAX} that one job can have")
    return tuple(parse_rule(text) for text in texts)


def first_match(rules: Iterable[Rule], outcome: Outcome, code: int | None = None, signal: int | None = None) -> Rule:
    """The first rule that matches; the built-in ones come after those given.

    :param code: the command's status, if it is known; ``signal``: what ended it instead.
    """
    for rule in (*rules, *BUILT_IN):
        if rule.matches(outcome, code, signal):
            return rule
    raise DispatchError(f"no built-in rule names {outcome}")  # a test holds BUILT_IN to all of them


def make_rule(outcomes: frozenset[Outcome], action: Action, **options: Any) -> Rule:
    """A rule with its canonical text, which parses as the same rule.

    :param options: fields of :class:`Rule`.
    """
    names = ",".join(outcome.value for outcome in Outcome if outcome in outcomes)
    return Rule(
        outcomes=outcomes,
        action=action,
        text=f"{names}:{action}{write_options(options)}",
        budget=options.pop("budget", None),
        **options,
    )


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


def _built_in(outcomes: str, action: Action, **options: Any) -> Rule:
    return make_rule(frozenset(map(Outcome, outcomes.split())), action, **options)


BUILT_IN: tuple[Rule, ...] = (
    _built_in("preempted timeout unfinished", Action.RESUBMIT),
    _built_in("node_fail boot_fail suspect", Action.RESUBMIT, exclude_nodes=True),
    # A launch that failed can be the node's fault, or the site's for a while: another node, and some time.
    _built_in("launch_failed", Action.RESUBMIT, backoff=Backoff(30.0, 1800.0), exclude_nodes=True),
    _built_in("failed stalled", Action.RESUBMIT, budget=2),
    # A store comes back; no number of tries says when.
    _built_in("store_error", Action.RESUBMIT, backoff=Backoff(60.0, 1800.0)),
    # The same again would end the same way, or nobody knows what happened: a person looks.
    _built_in("out_of_memory not_resumed cancelled lost", Action.HOLD),
    _built_in("deadline", Action.STOP),
    _built_in("completed", Action.STOP),
)
"""What happens about an outcome that neither the user nor the site names."""

__all__ = [
    "BUDGET_MAX", "BUILT_IN", "RULES_MAX", "RULE_LENGTH_MAX", "Backoff", "Growth", "Rule", "first_match",
    "make_rule", "parse_rule", "parse_rules",
]  # fmt: skip
