"""Jobs on other clusters than the one whose commands the tick runs: ``-M``, and one state folder for several."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.cli.tick import run_once
from slurm_dispatch.controller import elsewhere, index
from slurm_dispatch.controller.elsewhere import Elsewhere
from slurm_dispatch.controller.engine import Engine
from slurm_dispatch.controller.glance import glance
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.maintenance import Window
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siteview import SiteView, Tally
from slurm_dispatch.controller.view import Details
from slurm_dispatch.controller.wish import view_of
from slurm_dispatch.errors import UsageError
from slurm_dispatch.records.places import CLOSED_S, places
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import Phase
from slurm_dispatch.slurm import commands
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.port import Node, Nodes, Unknown
from slurm_dispatch.slurm.run import Finished
from slurm_dispatch.submit.job import find_job
from tests.controller.fake_slurm import FIRST_ID, FakeSlurm
from tests.controller.rig import WAIT_S, Rig
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from slurm_dispatch.controller.view import View

SECOND, THIRD = "second", "third"


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def second(rig: Rig, name: str = SECOND) -> FakeSlurm:
    return rig.slurm.at(name)


def job_there(rig: Rig, *, cluster: str = SECOND, start: bool = True, **about: Any) -> tuple[str, int]:
    """A job that was sent to another cluster, and its object there, running."""
    named = about.pop("clusters", (cluster,))
    words = ("--job-name=train", *([f"--clusters={','.join(named)}"] if named else []))
    with rig.at_once():
        key = rig.job(submitted=False, cluster=cluster, clusters=named, argv=words, **about)
        word = rig.word(key)
        number = second(rig, cluster).plain(comment=f"mine {word}", uid=rig.uid)
        if start:
            second(rig, cluster).start(number)
        body = {"submission": 1, "cluster": cluster, "slurm_job_id": number, "how": "answer"}
        assert rig.record(key).append(3, "submitted", "user:ada@login", body)
    return key, number


def view(rig: Rig, *names: str) -> View:
    """What a pass knows that has asked these clusters too."""
    found = rig.view()
    asker = Elsewhere(rig.port, lambda *_: None)
    asker.ask(found, [set(names)])
    asker.complete(found)
    return found


def test_a_job_of_another_cluster_is_seen_decided_and_submitted_there(site: Site) -> None:
    """C005, C079: its cluster is recorded, and every question and act about it goes there."""
    rig = site.rig
    key, number = job_there(rig)
    there = second(rig)
    there.end(number, "PREEMPTED")
    run_once(site.controller())
    assert rig.kinds(key)[-3:] == ["decision", "intent", "submitted"], site.log
    assert rig.last(key, "submitted").body["cluster"] == SECOND
    assert rig.slurm.calls("submit") == []
    assert len(there.calls("submit")) == 1
    assert "--clusters=second" in there.job(rig.object(key))["argv"]


def test_a_job_that_came_from_another_cluster_s_login_host_goes_back_there(site: Site) -> None:
    """C079: nothing names a cluster in its options, and the tick's own would take the replacement."""
    rig = site.rig
    key, number = job_there(rig, clusters=())
    second(rig).end(number, "NODE_FAIL")
    run_once(site.controller())
    assert rig.last(key, "submitted").body["submission"] == 2, site.log
    assert rig.last(key, "submitted").body["cluster"] == SECOND
    assert rig.slurm.ids() == []


def test_the_same_id_on_two_clusters_is_two_objects(site: Site) -> None:
    """C080: each job is asked for at its own cluster, and a cancel reaches the one that was meant."""
    rig = site.rig
    here = rig.job()
    rig.start(here)
    there, number = job_there(rig)
    assert number == rig.object(here) == FIRST_ID
    rig.slurm.end(FIRST_ID, "COMPLETED")
    run_once(site.controller())
    assert rig.state(here).closed is not None, site.log
    assert rig.state(there).phase == "running", site.log
    body = {"what": "cancel", "reason": "enough"}
    assert rig.record(there).append(len(rig.facts(there)) + 1, "request", "user:ada@login", body)
    site.hand_over()
    run_once(site.controller())
    assert second(rig).job(number)["states"][0] == "CANCELLED", site.log
    assert rig.slurm.job(FIRST_ID)["states"] == ["COMPLETED"]
    assert rig.slurm.calls("cancel") == []


def test_a_stray_is_cancelled_where_it_is(rig: Rig) -> None:
    """C080: an object of the job's word on the other cluster, under the id of the current one, is a stray there."""
    key = rig.job(clusters=("fake", SECOND))
    rig.start(key)
    number = second(rig).plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
    assert number == rig.object(key)
    rig.tick(view=view(rig, SECOND))
    body = rig.last(key, "stray").body
    assert (body["cluster"], body["slurm_job_id"]) == (SECOND, number)
    assert second(rig).job(number)["states"][0] == "CANCELLED"
    assert rig.slurm.job(number)["states"] == ["RUNNING"]


def test_an_id_that_is_two_clusters_names_no_one_job(rig: Rig) -> None:
    """C080: a person is told both keys."""
    here, (there, number) = rig.job(), job_there(rig)
    with pytest.raises(UsageError, match="names 2 jobs") as caught:
        find_job(str(number), rig.folder)
    assert here in str(caught.value)
    assert there in str(caught.value)


def test_a_note_of_the_other_cluster_s_job_of_this_id_is_not_ours(rig: Rig) -> None:
    """C080: a start of the same id elsewhere is no start of this object, whatever word it carries."""
    key = rig.job()
    start = int(time.time())
    rig.start_note(key, rig.object(key), start, cluster=SECOND)
    rig.tick()
    assert "started" not in rig.kinds(key)
    rig.start_note(key, rig.object(key), start, cluster="fake")
    rig.tick()
    assert rig.kinds(key)[-1] == "started"


def test_a_cluster_that_cannot_be_asked_leaves_only_its_own_jobs_unknown(site: Site) -> None:
    """C079: nothing is decided about them, and nobody else's wait."""
    rig = site.rig
    there, number = job_there(rig)
    here = rig.job()
    rig.start(here)
    run_once(site.controller())
    before = rig.kinds(there)
    second(rig).end(number, "FAILED")
    second(rig).knob(queue="away", accounting="away")
    rig.slurm.end(rig.object(here), "PREEMPTED")
    run_once(site.controller())
    assert rig.last(here, "submitted").body["submission"] == 2, site.log
    assert rig.kinds(there) == before
    assert any("cluster second does not tell its queue" in line for line in site.log)


def test_its_own_cluster_s_silence_keeps_no_job_of_another_waiting(site: Site) -> None:
    rig = site.rig
    there, number = job_there(rig)
    run_once(site.controller())
    second(rig).end(number, "PREEMPTED")
    rig.slurm.knob(queue="away", detail="away", accounting="away")
    run_once(site.controller())
    assert rig.last(there, "submitted").body["submission"] == 2, site.log


def test_nothing_is_submitted_to_a_cluster_that_does_not_answer(rig: Rig) -> None:
    """sbatch would refuse it for certain, and that would count against the job."""
    key, number = job_there(rig)
    second(rig).end(number, "NODE_FAIL")
    looked = view(rig, SECOND)
    looked.others[SECOND].queue = Unknown("away")
    assert rig.record(key).append(4, "end", "tick@ctl", _end(number))
    report = rig.tick(view=looked)[key]
    assert rig.kinds(key)[-1] == "decision"
    assert "waits for cluster second" in report.trouble
    rig.tick(view=view(rig, SECOND))
    assert rig.kinds(key)[-1] == "submitted"


def _end(number: int) -> dict[str, Any]:
    evidence = {"state": "NODE_FAIL", "flags": [], "reason": "", "exit_code": None, "signal": None, "by_uid": None,
                "source": "json"}  # fmt: skip
    return {"submission": 1, "slurm_job_id": number, "restart": 0, "start_time": None, "outcome": "node_fail",
            "evidence": evidence, "final": True}  # fmt: skip


def test_what_each_cluster_costs_a_pass(site: Site) -> None:
    """One call for each other cluster that has an open job, and none for one that has none."""
    rig = site.rig
    for _ in range(3):
        job_there(rig)
    job_there(rig, cluster=THIRD)
    second(rig, "fourth")
    run_once(site.controller())
    before = {name: len(second(rig, name).calls()) for name in (SECOND, THIRD, "fourth")}
    own = len(rig.slurm.calls())
    controller = site.controller()
    run_once(controller)
    after = {name: len(second(rig, name).calls()) - before[name] for name in before}
    assert after == {SECOND: 1, THIRD: 1, "fourth": 0}
    assert len(rig.slurm.calls()) - own == 1


def test_an_intent_for_several_clusters_is_looked_for_on_each(rig: Rig) -> None:
    """C001, C079: sbatch -M a,b gives no answer. It is burnt only if each of them says that it has nothing."""
    about = {"submitted": False, "cluster": "fake", "clusters": (SECOND, THIRD)}
    found, gone = rig.job(**about), rig.job(**about)
    number = second(rig, THIRD).plain(comment=f"mine {rig.word(found)}", uid=rig.uid)
    rig.tick(view=view(rig, SECOND, THIRD))
    assert rig.kinds(gone)[-1] == "watched"
    rig.later_s = WAIT_S + 60
    second(rig, THIRD).knob(queue="away", accounting="away")
    rig.tick(view=view(rig, SECOND, THIRD))
    assert rig.kinds(gone)[-1] == rig.kinds(found)[-1] == "watched"
    second(rig, THIRD).knob(queue="ok", accounting="ok")
    rig.tick(view=view(rig, SECOND, THIRD))
    body = rig.last(found, "submitted").body
    assert (body["cluster"], body["slurm_job_id"], body["how"]) == (THIRD, number, "queue")
    assert "burnt" in rig.kinds(gone)


def test_an_object_whose_cluster_was_not_known_is_this_cluster_s(rig: Rig) -> None:
    """C079: Slurm did not tell its configuration when it was submitted. It is followed, and is no stray."""
    with rig.at_once():
        key = rig.job(submitted=False, cluster="")
        number = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
        body = {"submission": 1, "cluster": "", "slurm_job_id": number, "how": "answer"}
        assert rig.record(key).append(3, "submitted", "user:ada@login", body)
    rig.slurm.start(number)
    rig.settle()
    assert rig.slurm.job(number)["states"] == ["RUNNING"]
    rig.slurm.end(number, "PREEMPTED")
    rig.settle()
    assert rig.last(key, "submitted").body["submission"] == 2


@pytest.mark.parametrize("known", ["", "fake"])
def test_a_current_object_is_no_stray_where_slurm_does_not_tell_its_name(rig: Rig, known: str) -> None:
    """C079: a hook's note named the cluster when the object was found, and this pass could not ask for the name."""
    with rig.at_once():
        key = rig.job(submitted=False, cluster=known)
        number = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
        body = {"submission": 1, "cluster": "fake", "slurm_job_id": number, "how": "note"}
        assert rig.record(key).append(3, "submitted", "user:ada@login", body)
    rig.slurm.start(number)
    looked = rig.view()
    looked.cluster, looked.config = "", None
    rig.tick(view=looked)
    assert "stray" not in rig.kinds(key)
    assert rig.slurm.job(number)["states"] == ["RUNNING"]


def test_a_person_s_commands_ask_the_object_s_cluster(rig: Rig) -> None:
    """C079: dispatch show and dispatch cancel, which are no ticks."""
    key, number = job_there(rig)
    assert glance({key: rig.state(key)}, rig.port).words[key] == "RUNNING on c1"
    second(rig).knob(queue="away")
    seen = glance({key: rig.state(key)}, rig.port)
    assert "cluster second: squeue" in seen.trouble
    assert key not in seen.words
    second(rig).knob(queue="ok")
    looked = view_of(rig.means(), rig.port.config(), host="login", cluster="")
    rig.tick(view=looked)
    assert rig.kinds(key)[-1] == "started"
    assert second(rig).calls("queue")
    assert number


def test_nodes_of_another_cluster_are_not_this_one_s() -> None:
    """C080: two clusters have nodes of one name; no suspicion, memory or maintenance crosses over."""
    here = SiteView(nodes=Nodes((Node("c1", "DOWN"),)), suspects=Suspects({"c1": 1.0}), known=True)
    assert [it.name for it in here.silent(["c1"])] == ["c1"]  # type: ignore[union-attr]
    there = here.elsewhere(SECOND)
    assert not isinstance(there.silent(["c1"]), tuple)
    assert there.respond(["c1"]) is None
    assert isinstance(there.nodes, Unknown)


@pytest.mark.parametrize("goals", [(SECOND, "fake"), ("fake", SECOND), (SECOND,)])
def test_what_keeps_its_id_is_decided_by_what_is_on_its_own_cluster(rig: Rig, goals: tuple[str, ...]) -> None:
    """C079: a requeue never leaves the cluster, wherever the next submission of the job could land."""
    key = rig.job("timeout:requeue", clusters=goals)
    rig.start(key)
    rig.tick(view=view(rig, SECOND))
    number = rig.object(key)
    looked = view(rig, SECOND)
    window = Window("all", 0.0, looked.at + 3600.0, "root")
    looked.site = SiteView(known=True, hints=Hints(windows=(window,)))
    looked.others[SECOND].site = looked.site.elsewhere(SECOND)
    engine = Engine(rig.record(key), looked, Details(rig.port, accounting=True), "ada", Tally())
    assert engine.policy(Policy(), rig.state(key)).maintenance_until is not None  # it runs here, in the maintenance
    rig.slurm.end(number, "TIMEOUT", nodes="c1")
    rig.tick(view=view(rig, SECOND))
    assert rig.state(key).phase is Phase.REQUEUING
    second(rig).node("c1", "DOWN", "DRAIN")
    second(rig).node("c2", "DOWN", "DRAIN")
    assert engine.policy(Policy(), rig.state(key)).spare == 2  # c2 and c3; of the other cluster it would be c3


def test_a_cluster_that_hangs_is_put_off(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """C079: it costs a pass its deadline once, and then nothing for a while."""
    second(rig).knob(queue="away")
    said: list[str] = []
    asker = Elsewhere(rig.port, lambda _, line: said.append(line))
    for _ in range(2):
        asker.ask(rig.view(), [{SECOND}])
    assert len(second(rig).calls("queue")) == 2  # it refuses at once: asked again each time
    monkeypatch.setattr(elsewhere, "SLOW_S", -1.0)
    for _ in range(3):
        asker.ask(rig.view(), [{SECOND}])
    assert len(second(rig).calls("queue")) == 3
    assert any("is asked again in" in line for line in said)


def test_one_owner_s_records_make_the_tick_ask_a_bounded_number(rig: Rig) -> None:
    looked = rig.view()
    asker = Elsewhere(rig.port, lambda *_: None)
    asker.ask(looked, [{f"made{number:03}" for number in range(100)}, {SECOND}])
    assert len(looked.others) == elsewhere.OF_OWNER_MAX + 1
    assert SECOND in looked.others


def test_an_intent_of_a_superseded_job_is_looked_for_until_its_cluster_answers(rig: Rig) -> None:
    """C001, C079: the other cluster was away for days; what it has is still the job's, and is found."""
    key = rig.job(submitted=False, cluster="fake", clusters=(SECOND,))
    body = {"why": "superseded", "reason": "", "by_job": "other0000000", "keep": None}
    assert rig.record(key).append(3, "closed", "user:ada@login", body)
    assert places(rig.state(key), "fake", time.time() + 10 * CLOSED_S) == (SECOND,)
    there = second(rig).plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
    for later_s in (2 * CLOSED_S, 2 * CLOSED_S + WAIT_S + 60):
        rig.later_s = later_s
        asked = places(rig.state(key), "fake", time.time() + later_s)
        rig.tick(view=view(rig, *(name for name in asked if name)))
    assert rig.last(key, "submitted").body["slurm_job_id"] == there
    assert places(rig.state(key), "fake", time.time() + 10 * CLOSED_S) == ("",)


def test_places_in_the_index() -> None:
    entry = index.Entry(4, "running", FIRST_ID, None, 1, "a", "b", "", 0.0, index.places_of(("", SECOND)))
    assert index.unpack(index.pack(entry)) == entry
    assert entry.all_places() == ("", SECOND)
    assert index.places_of(("",)) == ""
    assert index.Index({"j": entry}).elsewhere() == {SECOND}


@pytest.mark.parametrize("verb", ["cancel", "requeue", "update"])
def test_every_act_names_the_cluster(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """C080: the same id on two clusters: the act goes to the one that is recorded, and to no other."""
    argvs: list[list[str]] = []

    def run(argv: Sequence[str], *_: Any, **__: Any) -> Finished:
        argvs.append(list(argv))
        return Finished(0, b"", b"")

    monkeypatch.setattr(commands, "run", run)
    port = SlurmCommands({})
    acts: dict[str, Any] = {
        "cancel": lambda: port.cancel(500, "beta"),
        "requeue": lambda: port.requeue(500, "beta"),
        "update": lambda: port.update(500, "beta", {"StartTime": "now"}),
    }
    assert acts[verb]().done
    ((_, where, *rest),) = argvs
    assert where == "--clusters=beta"
    assert rest[-1].removeprefix("JobId=") in {"500", "StartTime=now"}
