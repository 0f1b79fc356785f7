"""What decides about an end beside its rule: caps, limits, breaker, maintenance, persons; and what changes next."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.inputs import inputs_of, policy_of
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.replay import replay
from slurm_dispatch.records.state import Phase
from slurm_dispatch.records.verdict import verdict
from slurm_dispatch.rules.rule import BUILT_IN, parse_rules
from tests.records.life import Life, make_spec, start_body

POLICY = Policy()


def decided(life: Life, policy: Policy = POLICY, later: float = 0) -> dict[str, Any]:
    return verdict(life.state, policy, life.at + later).body()


def failed(life: Life, number: int = 1, **evidence: Any) -> Life:
    """Its end, with more evidence."""
    body = {**life.run(number).end(number, "failed").facts.pop().body}
    return life.add("end", **{**body, "evidence": {**body["evidence"], **evidence}})


def lives(spec: Any = None, outcome: str = "preempted") -> Life:
    return Life(spec).run(1).end(1, outcome)


# Caps of the job


def test_the_date_until_which_it_may_be_submitted() -> None:
    life = lives(make_spec(until=5000.0))
    assert verdict(life.state, POLICY, 4999.0).action is Action.RESUBMIT
    found = verdict(life.state, POLICY, 5000.0)
    assert (found.action, found.why, found.then) == (Action.HOLD, "until", Action.RESUBMIT)


def test_node_hours_are_nodes_times_the_time_from_start_to_end() -> None:
    """Two nodes (c[1-2]) for half an hour are one node-hour."""
    life = Life(make_spec(max_node_hours=1.0), at=1000.0).intent(1).submitted(1)
    life.add("started", **{**start_body(life.spec, 1), "start_time": 2000})
    life.at = 2000 + 1799
    life.end(1, "preempted")
    assert life.state.node_hours == pytest.approx(1.0)
    assert decided(life)["why"] == "max_node_hours"
    assert decided(lives(make_spec(max_node_hours=1.0)))["action"] == "resubmit"


def test_a_node_list_that_does_not_parse_is_one_node() -> None:
    life = Life(at=1000.0).intent(1).submitted(1)
    life.add("started", **{**start_body(life.spec, 1), "start_time": 1000, "nodes": "c[1"})
    life.at = 1000 + 3599
    assert life.end(1, "preempted").state.node_hours == pytest.approx(1.0)


def test_executions_in_a_row_without_progress() -> None:
    spec = make_spec(no_progress=2)
    life = Life(spec).round(1)
    assert life.state.no_progress == 1
    life.run(2).end(2, "preempted")
    assert decided(life)["why"] == "no_progress"
    life = Life(spec).round(1).run(2).progress(2, 5).end(2, "preempted")
    assert life.state.no_progress == 0
    assert decided(life)["action"] == "resubmit"
    # Slurm has nodes started for it, and slurmd could not open its output, say.
    life = Life(make_spec(no_progress=1)).run(1).end(1, "launch_failed")
    assert life.state.no_progress == 0
    assert decided(life)["action"] == "resubmit"


def test_a_launch_that_failed_is_no_execution_without_progress() -> None:
    life = Life(make_spec(no_progress=1)).intent(1).submitted(1).end(1, "launch_failed")
    assert life.state.no_progress == 0
    assert decided(life)["action"] == "resubmit"


def test_the_sites_limit_without_progress_is_for_jobs_that_name_none() -> None:
    site = Policy(no_progress=1)
    assert decided(lives(), site)["why"] == "no_progress"
    assert decided(lives(make_spec(no_progress=2)), site)["action"] == "resubmit"


def test_a_job_without_a_checkpoint_root_cannot_make_progress_and_is_not_asked_for_it() -> None:
    assert decided(lives(make_spec(root="", no_progress=1)))["action"] == "resubmit"


def test_budgets_count_requeues_too() -> None:
    life = lives(make_spec(rules=("preempted:requeue,budget=1",)))
    body = decided(life)
    assert (body["action"], body["budget_used"], body["submission"]) == ("requeue", 0, None)
    life.add("decision", **body).add("requeued", submission=1, slurm_job_id=101, restart=1)
    life.started(1, restart=1).end(1, "preempted", restart=1)
    assert decided(life)["why"] == "budget"


@pytest.mark.parametrize("how", ["person", "progress"])
def test_a_release_by_a_person_and_progress_give_budgets_back(how: str) -> None:
    life = Life().run(1).end(1, "failed").resubmit(2, "failed").intent(2, 6).submitted(2).started(2)
    if how == "progress":
        life.progress(2, 9).end(2, "failed")
        assert life.state.used == {}
        return
    life.end(2, "failed").holds(3, "failed", "budget")
    assert life.state.used != {}
    assert life.release().state.used == {}


# Rules


def test_a_rule_for_some_statuses_is_about_those_only() -> None:
    spec = make_spec(rules=("failed:stop,codes=3-7", "failed:hold,signals=SEGV"))
    assert decided(failed(Life(spec), exit_code=5))["rule"] == "failed:stop,codes=3-7"
    assert decided(failed(Life(spec), exit_code=1))["rule"].startswith("failed,stalled:resubmit")
    assert decided(failed(Life(spec), exit_code=0, signal=11))["action"] == "hold"


def test_the_helpers_word_about_the_status_comes_before_slurms() -> None:
    """A script that ends with 0 or 1 after its command failed hides the command's own status."""
    life = Life(make_spec(rules=("failed:stop,codes=3",))).run(1)
    body = start_body(life.spec, 1)
    life.add("ended", attempt=body["attempt"], epoch=body["epoch"], status=3, signal=None, outcome=None, step=None)
    assert decided(life.end(1, "failed"))["action"] == "stop"


def test_a_hold_has_the_length_of_its_rule_and_of_the_site_at_most() -> None:
    spec = make_spec(rules=("preempted:hold,for=3d",))
    assert decided(lives(spec))["hold_for_s"] == 3 * 86400
    site = Policy(limits=Limits(longest_hold_s=86400.0))
    assert decided(lives(spec), site)["hold_for_s"] == 86400
    assert decided(lives(make_spec(shared=True, shared_hold_for_s=1e6)), site)["hold_for_s"] == 86400


# The site


def test_what_the_site_does_not_allow_is_held_with_that_reason() -> None:
    site = Policy(limits=Limits(allowed=frozenset({Action.RESUBMIT, Action.HOLD, Action.STOP})))
    body = decided(lives(make_spec(rules=("preempted:requeue",))), site)
    assert (body["action"], body["why"], body["then"]) == ("hold", "limit", "resubmit")
    assert decided(lives(), site)["action"] == "resubmit"


def test_the_sites_limit_on_resubmissions_an_hour() -> None:
    assert decided(lives(), Policy(limits=Limits(resubmissions_left=0)))["why"] == "limit"
    assert decided(lives(), Policy(limits=Limits(resubmissions_left=1)))["action"] == "resubmit"


def test_an_open_breaker_holds_what_comes_next() -> None:
    body = decided(lives(), Policy(breaker="40 resubmissions in 10 minutes"))
    assert (body["action"], body["why"]) == ("hold", "breaker")
    assert "40 resubmissions" in body["reason"]
    assert decided(lives(outcome="completed"), Policy(breaker="x"))["close"] == "completed"


def test_what_ends_in_a_maintenance_costs_nothing_and_comes_back_after_it() -> None:
    spec = make_spec(rules=("preempted:resubmit,budget=0",))
    life = lives(spec)
    body = verdict(life.state, Policy(maintenance_until=life.at + 600.5), life.at).body()
    assert (body["action"], body["free"], body["changes"]) == ("resubmit", True, ["--begin=now+601"])
    assert life.add("decision", **body).state.used == {}


def test_a_persons_hold_is_kept_whatever_the_rule_says() -> None:
    life = Life().run(1).add("hold", reason="look at it", for_s=3600).end(1, "preempted")
    body = decided(life)
    assert (body["action"], body["why"], body["hold_for_s"]) == ("hold", "person", 3600)
    assert life.add("decision", **body).state.phase is Phase.HELD
    life = Life().run(1).add("hold", reason="look at it", for_s=None).end(1, "completed")
    assert decided(life)["close"] == "completed"


# What changes


def changes(life: Life, policy: Policy = POLICY) -> list[str]:
    found = decided(life, policy)["changes"]
    assert isinstance(found, list)
    return found


def test_backoff_is_a_begin_time_so_that_squeue_shows_it() -> None:
    spec = make_spec(rules=("preempted:resubmit,backoff=30s..30m",))
    assert changes(lives(spec)) == ["--begin=now+30"]
    assert changes(Life(spec).round(1).run(2).end(2, "preempted")) == ["--begin=now+60"]
    assert changes(lives(spec), Policy(jitter=1.0)) == ["--begin=now+15"]
    assert changes(lives(make_spec(rules=("preempted:resubmit,backoff=10m",)))) == ["--begin=now+600"]


def test_after_an_sbatch_that_made_nothing_the_wait_is_ours() -> None:
    """What Slurm said no to, it would say no to again at once; there is no object that could wait."""
    life = Life().round(1).intent(2, 6).add("rejected", submission=2, status=1, message="limit")
    body = decided(life)
    assert (body["not_before"], [it for it in body["changes"] if "begin" in it]) == (life.at + 30, [])


def test_nodes_are_excluded_those_to_blame_first() -> None:
    life = lives(outcome="node_fail")
    assert changes(life) == ["--exclude=c1,c2"]
    assert changes(life, Policy(excluded=("c7", "c1"))) == ["--exclude=c1,c2,c7"]
    assert changes(life, Policy(excluded=("c7",), exclude_max=1)) == ["--exclude=c7"]
    body = {**life.facts.pop().body}
    life.add("end", **{**body, "evidence": {**body["evidence"], "nodes": ["c2"]}})
    assert changes(life) == ["--exclude=c2"]
    # Whatever the rule says: no two executions in a row end on the same suspect node.
    assert changes(lives(outcome="preempted"), Policy(excluded=("c7",))) == ["--exclude=c7"]
    assert changes(lives(outcome="preempted")) == []


def test_a_replacement_on_suspicion_goes_to_other_nodes_whatever_the_cap() -> None:
    life = Life(make_spec(rules=("suspect:resubmit",))).run(1).suspected(1, ("c1", "c2"))
    assert changes(life, Policy(exclude_max=0)) == ["--exclude=c1,c2"]


def test_so_many_nodes_are_left_as_the_job_had() -> None:
    """c[1-2] and c7 of four: two must be left, or Slurm refuses the job, or lets it wait for good."""
    life = lives(outcome="node_fail")
    assert changes(life, Policy(excluded=("c7", "c1"), spare=3)) == ["--exclude=c1,c2,c7"]
    assert changes(life, Policy(excluded=("c7", "c1"), spare=2)) == ["--exclude=c1,c2"]
    assert changes(life, Policy(excluded=("c7", "c1"), spare=1)) == ["--exclude=c7"]
    assert changes(life, Policy(excluded=("c7", "c1"), spare=0)) == []
    preempted = lives(outcome="preempted")
    assert changes(preempted, Policy(excluded=("c7", "c8"), spare=1)) == ["--exclude=c7"]
    assert changes(preempted, Policy(excluded=("c7", "c8"), spare=0)) == []


def test_what_sbatch_refused_with_nodes_excluded_is_made_again_at_once_without() -> None:
    life = lives(outcome="node_fail").decided("resubmit", submission=2, changes=["--exclude=c1,c2"])
    life.add("intent", submission=2, word=str(life.spec.word(2)), host="ctl", deadline=life.at, wait_s=1.0,
             changes=["--exclude=c1,c2"], decision=life.state.seq)  # fmt: skip
    life.add("rejected", submission=2, status=1, message="Requested node configuration is not available")
    found = decided(life, Policy(excluded=("c7",)))
    assert (found["outcome"], found["action"], found["submission"]) == ("launch_failed", "resubmit", 3)
    assert (found["changes"], found["not_before"]) == ([], None)
    assert "without --exclude" in found["reason"]
    life.add("decision", **found).add(
        "intent", submission=3, word=str(life.spec.word(3)), host="ctl", deadline=life.at, wait_s=1.0, changes=[],
        decision=life.state.seq,
    )  # fmt: skip
    life.add("rejected", submission=3, status=1, message="Requested node configuration is not available")
    assert decided(life)["not_before"] is not None, "what was refused as it is, is not tried again at once"
    assert replay(life.facts)[-1].same


def test_limits_grow_from_what_the_object_had_up_to_the_ceiling() -> None:
    rules = ("failed:resubmit,time=1.5x..3d,mem=2x..512G",)
    limits = {"time_s": 3600, "mem_mb": 1000}
    assert changes(failed(Life(make_spec(rules=rules)), limits=limits)) == ["--time=0-01:30:00", "--mem=2000M"]
    limits = {"time_s": 3 * 86400 - 60, "mem_mb": 500_000}
    grown = changes(failed(Life(make_spec(rules=rules)), limits=limits))
    assert grown == ["--time=3-00:00:00", "--mem=524288M"]
    assert changes(failed(Life(make_spec(rules=rules)))) == [], "what is not known does not grow"


def test_what_has_grown_stays_and_so_does_what_somebody_changed() -> None:
    rules = ("failed:resubmit,time=2x..3d",)
    life = failed(Life(make_spec(rules=rules)), limits={"time_s": 3600})
    life.add("decision", **decided(life))
    grown = life.state.due
    assert grown is not None
    assert grown.changes == ("--time=0-02:00:00",)
    life.intent(2, len(life.facts))
    body = {**life.facts.pop().body, "changes": list(grown.changes)}
    life.add("intent", **body).submitted(2).started(2).end(2, "preempted")
    assert changes(life) == ["--time=0-02:00:00"]
    assert changes(failed(Life(), changed=["--time=4:00:00", "--qos=x", 7])) == ["--time=4:00:00"]


# Requeue


def test_a_requeue_that_slurm_refused_becomes_a_submission_and_costs_nothing_more() -> None:
    life = lives(make_spec(rules=("preempted:requeue,budget=1",)))
    life.add("decision", **decided(life))
    assert life.state.phase is Phase.REQUEUING
    life.add("requeue_failed", submission=1, slurm_job_id=101, why="Invalid job id")
    body = decided(life)
    assert (body["action"], body["free"], body["submission"], body["on"]) == ("resubmit", True, 2, len(life.facts))
    assert life.add("decision", **body).state.used == {life.state.decision.outcome: 1}  # type: ignore[union-attr]


# What it stands on


def test_the_inputs_say_the_policy() -> None:
    rules = parse_rules(["failed:stop"])
    policy = Policy(
        rules=rules,
        max_submissions=7,
        launch_failures_max=2,
        limits=Limits(frozenset({Action.HOLD}), 3600.0, resubmissions_left=3),
        excluded=("c1",),
        exclude_max=4,
        breaker="b",
        maintenance_until=9.0,
        jitter=0.5,
        no_progress=3,
    )
    assert policy_of(inputs_of(policy, 5.0, rules[0])) == (policy, 5.0)
    assert inputs_of(policy, 5.0, BUILT_IN[0])["rules"] == [], "what the site's other rules were did not matter"
    with pytest.raises(BadDataError, match="do not say what it stands on"):
        policy_of({"now": 5.0})


def test_a_decision_fits_into_a_fact_whatever_the_site_says() -> None:
    """A decision that cannot be written would stop the job for good."""
    long = f"preempted:resubmit,codes={'+'.join(map(str, range(1, 200, 2)))}"
    rules = parse_rules([long] * 99 + ["node_fail:resubmit,exclude-nodes"])
    site = Policy(rules=rules, excluded=tuple(f"{'n' * 250}{it}" for it in range(1000)))
    life = lives(outcome="node_fail")
    life.add("decision", **decided(life, site))
    assert life.state.phase is Phase.WAITING
    assert [it.same for it in replay(life.facts)] == [True]


def test_a_verdict_needs_something_to_decide() -> None:
    with pytest.raises(BadDataError, match="nothing waits"):
        verdict(Life().run(1).state, POLICY, 1.0)


def test_a_decision_that_a_hold_or_a_shared_checkpoint_forbids_is_bad_data() -> None:
    life = Life().run(1).add("hold", reason="", for_s=None).end(1, "preempted").resubmit(2)
    with pytest.raises(BadDataError, match="fact 5 holds the job"):
        fold(life.facts)
    for action in ("resubmit", "requeue"):
        number = 2 if action == "resubmit" else None
        life = lives(make_spec(shared=True)).decided(action, submission=number)
        with pytest.raises(BadDataError, match="waits for a person"):
            fold(life.facts)
