"""Jobs that depend on a Slurm job which is replaced or requeued wait for the one that counts."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller import dependents
from slurm_dispatch.controller.elsewhere import Elsewhere
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.records.describe import fact_text
from slurm_dispatch.records.state import Phase
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path, SiteRules(notify=("/bin/true",), notify_user=ME))


def depends(rig: SiteRig, text: str, *, comment: str = "", **fields: object) -> int:
    """A job of the owner's that waits for others."""
    number = rig.slurm.plain(comment=comment, uid=rig.uid)
    rig.slurm.set(number, dependency=text, reason="Dependency", **fields)
    return number


def times_out(rig: SiteRig, key: str) -> int:
    """The job's first object ends; its id."""
    number = rig.object(key)
    rig.start(key)
    rig.settle()
    rig.ends(key, "TIMEOUT")
    return number


def test_dependents_wait_for_the_new_id(rig: SiteRig) -> None:
    """C083: a plain job and one of ours; what depends on something else stays as it is."""
    key = rig.job("timeout:resubmit")
    old = rig.object(key)
    there = rig.slurm.plain(comment="", uid=rig.uid)
    plain = depends(rig, f"afterok:{old}(unfulfilled),afterany:{there}(unfulfilled)")
    ours = depends(rig, f"afterok:{old}(failed)", comment="dispatch:another00000:0:1")
    other = depends(rig, "afterok:7(unfulfilled)")
    assert times_out(rig, key) == old
    rig.settle()
    new = rig.object(key)
    assert new != old
    assert rig.slurm.job(plain)["updated"] == {"Dependency": f"afterok:{new},afterany:{there}"}
    assert rig.slurm.job(ours)["updated"] == {"Dependency": f"afterok:{new}"}
    assert "updated" not in rig.slurm.job(other)
    assert rig.last(key, "dependents").body == {"jobs": [plain, ours]}
    assert rig.last(key, "repointed").body == {"slurm_job_id": new, "moved": [plain, ours], "left": []}
    kinds = rig.kinds(key)
    assert kinds.index("dependents") < kinds.index("intent", kinds.index("dependents"))


def test_the_third_id_too(rig: SiteRig) -> None:
    """C083: what was moved once is moved again."""
    key = rig.job("timeout:resubmit")
    waits = depends(rig, f"afterok:{rig.object(key)}(failed)")
    for _ in range(2):
        times_out(rig, key)
        rig.settle()
    assert rig.kinds(key).count("repointed") == 2
    assert rig.slurm.job(waits)["updated"] == {"Dependency": f"afterok:{rig.object(key)}"}


def test_a_requeue_keeps_the_id_and_its_dependents_are_asked_to_wait_anew(rig: SiteRig) -> None:
    """C083: Slurm's "failed" stays at a dependent although the object that it names runs again (seen on 24.11)."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    waits = depends(rig, f"afterok:{number}(failed)")
    rig.start(key)
    rig.settle()
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    assert rig.object(key) == number
    assert rig.slurm.job(waits)["updated"] == {"Dependency": f"afterok:{number}"}
    assert rig.slurm.job(waits)["dependency"] == f"afterok:{number}(unfulfilled)"


def test_without_dependents_there_is_one_question_and_no_fact(rig: SiteRig) -> None:
    """C083: nothing is asked in a quiet tick."""
    key = rig.job("timeout:resubmit")
    rig.start(key)
    rig.settle()
    assert rig.slurm.calls("dependents") == []
    rig.ends(key, "TIMEOUT")
    rig.settle()
    rig.settle()
    assert rig.slurm.calls("dependents") == ["dependents"]
    assert not {"dependents", "repointed"} & set(rig.kinds(key))


def test_many_jobs_of_one_owner_ask_once(rig: SiteRig) -> None:
    keys = [rig.job("timeout:resubmit") for _ in range(5)]
    for key in keys:
        rig.start(key)
    rig.settle()
    for key in keys:
        rig.ends(key, "TIMEOUT")
    rig.tick()
    assert all(rig.kinds(key).count("submitted") == 2 for key in keys)
    assert rig.slurm.calls("dependents") == ["dependents"]


def test_what_cannot_be_moved_is_told(rig: SiteRig) -> None:
    """C083: an array, whose raw id would mean all of it (C037), and one that Slurm has cancelled already; once."""
    key = rig.job("timeout:resubmit")
    old = rig.object(key)
    array = depends(rig, f"afterok:{old}(failed)", array="990_[1-4]")
    killed = depends(
        rig, f"afterok:{old}(failed)", states=["CANCELLED"], end_time=1, by_uid=None
    )
    rig.slurm.set(killed, reason="DependencyNeverSatisfied")
    by_hand = depends(rig, f"afterok:{old}(failed)", states=["CANCELLED"])
    refused = depends(rig, f"afterok:{old}(failed),afterok:7(unfulfilled)")  # of which slurmctld knows no more
    times_out(rig, key)
    rig.wait("the owner to be told", lambda: "told" in rig.kinds(key))
    rig.settle()
    new = rig.object(key)
    body = rig.last(key, "repointed").body
    assert body["moved"] == []
    left = {it["slurm_job_id"]: it["why"] for it in body["left"]}
    assert set(left) == {array, killed, refused}
    assert "Job dependency problem" in left[refused]
    assert f"scontrol update JobId={array} Dependency=afterok:{new}" in left[array]
    assert "it is cancelled" in left[killed]
    assert all("updated" not in rig.slurm.job(number) for number in left.keys() | {by_hand})
    assert rig.last(key, "told").body["on"] == rig.last(key, "repointed").seq
    times_out(rig, key)
    rig.settle()
    assert rig.kinds(key).count("repointed") == 1  # they are left for good


def test_slurm_that_does_not_tell_is_asked_again(rig: SiteRig) -> None:
    """C083: the job comes back all the same, and its dependents are moved once Slurm answers."""
    key = rig.job("timeout:resubmit")
    waits = depends(rig, f"afterok:{rig.object(key)}(failed)")
    rig.slurm.knob(dependents="away")
    times_out(rig, key)
    rig.settle()
    assert rig.kinds(key).count("submitted") == 2
    assert rig.last(key, "dependents").body == {"jobs": None}
    assert "not known" in rig.reports[key].trouble
    rig.slurm.knob(dependents="ok", update="away")
    rig.settle()
    assert "repointed" not in rig.kinds(key)
    rig.slurm.knob(update="ok")
    rig.settle()
    assert rig.last(key, "repointed").body["moved"] == [waits]
    assert rig.reports[key].trouble == ""


def test_very_many_are_moved_by_several_passes(rig: SiteRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """C083: a child has a deadline, and each is a call."""
    monkeypatch.setattr(dependents, "AT_ONCE", 2)
    key = rig.job("timeout:resubmit")
    waits = [depends(rig, f"afterok:{rig.object(key)}(failed)") for _ in range(5)]
    times_out(rig, key)
    rig.tick()
    rig.tick()
    assert len(rig.slurm.calls("update")) <= 4
    assert "the next pass does the others" in rig.reports[key].trouble
    rig.settle()
    new = f"afterok:{rig.object(key)}(unfulfilled)"
    assert [rig.slurm.job(number)["dependency"] for number in waits] == [new] * 5
    assert rig.slurm.calls("update") == ["update"] * 5
    assert rig.reports[key].trouble == ""


def test_a_job_that_completes_meanwhile_is_not_closed_before(rig: SiteRig) -> None:
    """C083: Slurm forgets it some time after, and what waited for the old id would wait for ever."""
    key = rig.job("timeout:resubmit")
    waits = depends(rig, f"afterok:{rig.object(key)}(failed)")
    rig.slurm.knob(dependents="away")
    times_out(rig, key)
    rig.settle()
    rig.start(key)
    rig.settle()
    rig.ends(key, "COMPLETED")
    rig.settle()
    assert rig.state(key).phase is Phase.ENDED
    rig.slurm.knob(dependents="ok")
    rig.settle()
    assert rig.last(key, "repointed").body["moved"] == [waits]
    assert rig.state(key).phase is Phase.CLOSED


def test_what_a_job_that_completes_cannot_move_is_told_too(rig: SiteRig) -> None:
    """C083: it is closed before the owner's command has answered, and he hears of it all the same."""
    key = rig.job("timeout:resubmit")
    depends(rig, f"afterok:{rig.object(key)}(failed)", array="990_[1-4]")
    rig.slurm.knob(dependents="away")
    times_out(rig, key)
    rig.settle()
    rig.start(key)
    rig.settle()
    rig.ends(key, "COMPLETED")
    rig.slurm.knob(dependents="ok")
    rig.wait("the owner to be told", lambda: "told" in rig.kinds(key))
    assert rig.last(key, "told").body["on"] == rig.last(key, "repointed").seq
    rig.settle()
    assert rig.kinds(key).count("told") == 1
    assert rig.state(key).phase is Phase.CLOSED


def test_those_of_a_cluster_that_the_job_has_left_are_told(rig: SiteRig) -> None:
    """C079, C083: Slurm knows no dependency on a job of another cluster."""
    argv = ("--job-name=train", "--clusters=second")
    key = rig.job("timeout:resubmit", cluster="second", clusters=("second",), argv=argv)
    waits = depends(rig, f"afterok:{rig.object(key)}(failed)")
    times_out(rig, key)
    rig.settle()
    asker = Elsewhere(rig.port, lambda *_: None)
    for _ in range(2):
        looked = rig.view()
        asker.ask(looked, [{"second"}])
        asker.complete(looked)
        rig.tick(view=looked)
    assert rig.last(key, "submitted").body["cluster"] == "second"
    assert rig.last(key, "dependents").body == {"jobs": [waits]}
    body = rig.last(key, "repointed").body
    assert body["moved"] == []
    assert [it["slurm_job_id"] for it in body["left"]] == [waits]
    assert "cluster" in body["left"][0]["why"]


def test_but_not_for_ever(rig: SiteRig) -> None:
    """C083: where Slurm never tells, the job is closed, and the record says that its dependents are not known."""
    key = rig.job("timeout:resubmit")
    rig.slurm.knob(dependents="away")
    times_out(rig, key)
    rig.settle()
    rig.start(key)
    rig.settle()
    rig.ends(key, "COMPLETED")
    rig.settle()
    rig.later_s = 300.0
    rig.settle()
    assert rig.state(key).phase is Phase.CLOSED
    assert rig.state(key).dependents


def test_an_id_that_is_anothers_by_now_is_not_followed(rig: SiteRig) -> None:
    """C061, C083: what waits for a job that got the old id meanwhile waits for that one."""
    key = rig.job("timeout:resubmit")
    old = times_out(rig, key)
    rig.settle()
    rig.slurm.set(old, comment="dispatch:another00000:0:1", states=["RUNNING"], dependency=None)
    waits = depends(rig, f"afterok:{old}(unfulfilled)")
    times_out(rig, key)
    rig.settle()
    assert "updated" not in rig.slurm.job(waits)


def test_a_job_that_supersedes_takes_the_dependents_over(rig: SiteRig) -> None:
    """C083: another job goes on under another id."""
    key = rig.job()
    old = times_out(rig, key)
    waits = depends(rig, f"afterok:{old}(failed)")
    spec = rig.spec(generation=1, supersedes=key)
    rig.folder.create_job(spec, b"#!/bin/sh\ntrue\n", b"", by="user:ada@login")
    rig.settle(12)
    new = rig.object(spec.job)
    assert rig.slurm.job(waits)["updated"] == {"Dependency": f"afterok:{new}"}


# What a later submission depends on itself.


def argv_of(rig: SiteRig, key: str) -> list[str]:
    """The arguments of the latest object."""
    return list(rig.slurm.job(rig.object(key))["argv"])


def test_met_dependencies_are_not_repeated(rig: SiteRig) -> None:
    """C084: what it depended on may be long forgotten, and Slurm refuses that."""
    key = rig.job("timeout:resubmit", argv=("--kill-on-invalid-dep=yes",), dependency="afterok:7")
    times_out(rig, key)
    rig.settle()
    assert not [word for word in argv_of(rig, key) if "dependency" in word]
    assert "--kill-on-invalid-dep=yes" in argv_of(rig, key)


def test_what_was_never_met_is_repeated_with_the_ids_of_now(rig: SiteRig) -> None:
    """C084: an operator cancels what still waits, and a person releases it: it does not start before its turn."""
    first = rig.job("timeout:resubmit")
    old = times_out(rig, first)
    rig.settle()
    key = rig.job(dependency=f"afterok:{old}:7")
    rig.slurm.end(rig.object(key), "CANCELLED", by_uid=rig.uid + 1)
    rig.settle()
    state = rig.state(key)
    assert state.phase is Phase.HELD
    assert state.holding is not None
    body = {"on": state.holding.seq, "how": "person", "reason": ""}
    assert rig.record(key).append(state.seq + 1, "release", "user:ada@login", body)
    rig.settle()
    assert f"--dependency=afterok:{rig.object(first)}:7" in argv_of(rig, key)


def test_what_slurm_cancelled_for_its_dependency_can_be_opened_again(rig: SiteRig) -> None:
    """C083, C084: one of ours with --kill-on-invalid-dep: its record says why it is closed, and a person who opens it
    gets it back behind the job that it waited for, not before it."""
    first = rig.job("timeout:resubmit")
    old = rig.object(first)
    key = rig.job("cancelled:resubmit", dependency=f"afterok:{old}", argv=("--kill-on-invalid-dep=yes",))
    number = rig.object(key)
    rig.slurm.set(number, dependency=f"afterok:{old}(failed)")
    rig.start(first)
    rig.settle()
    rig.slurm.end(number, "CANCELLED", reason="DependencyNeverSatisfied", by_uid=None)
    rig.ends(first, "TIMEOUT")
    rig.settle()
    closed = rig.last(key, "closed").body
    assert (closed["why"], "can never be met (DependencyNeverSatisfied)" in closed["reason"]) == ("cancelled", True)
    assert [it["slurm_job_id"] for it in rig.last(first, "repointed").body["left"]] == [number]
    body = {"reason": "it shall run", "submission": 2}
    assert rig.record(key).append(rig.state(key).seq + 1, "reopened", "user:ada@login", body)
    rig.settle()
    assert f"--dependency=afterok:{rig.object(first)}" in argv_of(rig, key)


def test_the_record_says_it_in_words(rig: SiteRig) -> None:
    """C083: for ``dispatch show --facts`` and ``why``."""
    key = rig.job("timeout:resubmit")
    waits = depends(rig, f"afterok:{rig.object(key)}(failed)")
    times_out(rig, key)
    rig.settle()
    assert fact_text(rig.last(key, "dependents")) == f"Slurm jobs that depend on it: {waits}"
    assert f"{waits} now depend on Slurm job {rig.object(key)}" in fact_text(rig.last(key, "repointed"))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verb", ["dependents", "submit", "update"])
@pytest.mark.parametrize("rule", ["timeout:resubmit", "timeout:requeue"])
def test_a_pass_that_dies_is_finished_by_the_next(
    rig: SiteRig, monkeypatch: pytest.MonkeyPatch, rule: str, verb: str, *, after: bool
) -> None:
    """C083: before or after each thing that is asked or done, the first time and the second: nothing is lost and
    nothing is done twice."""
    for turn in (1, 2):
        key = rig.job(rule)
        old = rig.object(key)
        waits = depends(rig, f"afterok:{old}(failed)")
        rig.start(key)
        rig.settle()
        rig.ends(key, "TIMEOUT")
        original, left = getattr(rig.slurm, verb), [turn]

        def dies(*arguments: Any, original: Any = original, left: list[int] = left, **named: Any) -> Any:
            left[0] -= 1
            answer = original(*arguments, **named) if left[0] or after else None
            if not left[0]:
                raise RuntimeError("killed")
            return answer

        monkeypatch.setattr(rig.slurm, verb, dies)
        rig.tick()
        monkeypatch.setattr(rig.slurm, verb, original)
        rig.later_s += 100.0
        for _ in range(3):  # an answer of sbatch that was lost is watched first
            rig.settle()
            rig.later_s += 100.0
        new = rig.object(key)
        assert (new == old) == ("requeue" in rule)
        assert rig.slurm.job(waits)["dependency"] == f"afterok:{new}(unfulfilled)"
        assert rig.kinds(key).count("repointed") == 1
        assert len([it for it in rig.slurm.ids() if f"dispatch:{key}:" in rig.slurm.job(it)["comment"]]) == (
            1 if "requeue" in rule else 2
        )
