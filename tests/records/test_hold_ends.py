"""The end of a hold: who is asked last, and when the owner is told."""

from __future__ import annotations

from dataclasses import replace

from slurm_dispatch.records.actions import AppendFact, AskCessation, Tell
from slurm_dispatch.records.elders import not_ceased
from tests.records.test_holds import ASKS, BLIND, ask, at, attempt, kinds, says, shared, take


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
    assert ask(life, at(86_415.0), ASKS) == [Tell(life.state.holding.seq, "expired")]
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
