"""The end of a hold: who is asked last, and when the owner is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.records.actions import AppendFact, AskCessation, Tell
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.elders import not_ceased
from tests.records.test_holds import ASKS, BLIND, ask, at, attempt, kinds, says, shared, take

if TYPE_CHECKING:
    from tests.records.life import Life


def held_by(life: Life) -> int:
    """The fact that holds it."""
    holding = life.state.holding
    assert holding is not None
    return holding.seq


def test_what_is_answered_when_the_hold_has_run_out_is_a_fact_and_is_not_asked_again() -> None:
    """An answer is there for one pass only, and the owner is told in another: neither begins anew for the other."""
    life = shared()
    take(life, ask(life, at(0.0), ASKS))
    take(life, ask(life, replace(BLIND, cessation={attempt(life): says("running", life.at)}), ASKS))
    life.at += 86_400.0
    assert ask(life, at(86_399.0), ASKS) != [AskCessation(not_ceased(life.state), last=True)]
    before = at(86_410.0, cessation={attempt(life): says("running", life.at - 21.0)})
    for seen in (at(86_410.0), before):  # what was answered long before does not count
        assert ask(life, seen, ASKS) == [AskCessation(not_ceased(life.state), last=True)]
    equal = at(86_410.0, cessation={attempt(life): says("running", life.at)})
    assert kinds(ask(life, equal, ASKS)) == ["cessation"]
    take(life, ask(life, equal, ASKS))
    life.at += 5.0
    assert ask(life, at(86_415.0), ASKS) == [Tell(held_by(life), "expired")]
    take(life, ask(life, at(86_415.0), ASKS))
    (action,) = ask(life, at(86_420.0), ASKS)
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["why"]) == ("closed", "hold_expired")


def test_a_hold_ends_though_nobody_answers_any_more() -> None:
    life = shared()
    take(life, ask(life, at(0.0), ASKS))
    assert kinds(ask(life, at(86_400.0 + 599.0), ASKS)) == ["AskCessation"]
    take(life, ask(life, at(86_400.0 + 601.0), ASKS))
    assert kinds(ask(life, at(86_400.0 + 601.0), ASKS)) == ["closed"]


def test_a_hold_that_a_maintenance_kept_ends_as_any_other() -> None:
    """Its own time was over long before: it is asked once more when it really runs out, and told by that too."""
    life = shared()
    for _ in range(2):  # the clock, and what its begin is told
        take(life, ask(life, at(0.0), ASKS))
    until = life.at + 300_000.0
    on = held_by(life)
    away = replace(ASKS, holds_until=until)
    later = at(86_400.0 + 90_000.0)
    # Half of it, and its last hour, are those of the time that is really left.
    assert kinds(decide(life.state, later, away, until - 80_000.0)) == ["AskCessation", "Nothing"]
    assert decide(life.state, later, away, until - 30_000.0) == [Tell(on, "half", 30_000.0)]
    take(life, [Tell(on, "half", 30_000.0)])
    assert decide(life.state, later, away, until - 3_000.0) == [Tell(on, "last_hour", 3_000.0)]
    assert decide(life.state, later, away, until + 1.0) == [AskCessation(not_ceased(life.state), last=True)]
    life.at = until
    heard = replace(later, cessation={attempt(life): says("running", until + 2.0)})
    last = decide(life.state, heard, away, until + 2.0)
    assert kinds(last) == ["cessation"]
    take(life, last)
    assert decide(life.state, later, away, until + 3.0) == [Tell(on, "expired")]
    assert decide(life.state, later, away, until + 601.0) == [Tell(on, "expired")]
