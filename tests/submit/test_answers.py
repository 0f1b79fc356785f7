"""``dispatch sbatch`` against stand-ins for Slurm's commands: what sbatch answers, and what comes of it."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.submit.scene import until

if TYPE_CHECKING:
    from tests.submit.scene import Result, Scene

LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"


@pytest.mark.parametrize("status", [0, 1])
def test_a_lost_answer_is_looked_up(scene: Scene, status: int) -> None:
    """C001: sbatch fails on the way back though the job was accepted: exactly one job, found by its word."""
    scene.answer("sbatch", stdout="", stderr=LOST if status else "", status=status)
    result = scene.sbatch("train.sh")
    assert (result.status, result.stdout) == (0, b"Submitted batch job 101\n")
    assert len(scene.calls("sbatch")) == 1
    assert scene.facts()[-1].body["how"] == "queue"


def test_a_lost_answer_of_another_cluster_is_looked_up_there(scene: Scene) -> None:
    """C001, C005: the look-up asks the cluster that the job went to; that the own one has nothing says nothing."""
    scene.answer("sbatch", stdout="", stderr=LOST, status=1)
    assert scene.sbatch("-M", "beta", "train.sh").status == 0
    assert [call.argv[0] for call in scene.calls("squeue")] == ["--clusters=beta"]
    assert scene.facts()[-1].body["cluster"] == "beta"
    assert scene.facts()[0].body["clusters"] == ["beta"]


@pytest.mark.parametrize("names", ["all", "a,b;c", "x" * 301, "a, all"])
def test_clusters_that_cannot_be_followed_are_refused(scene: Scene, names: str) -> None:
    """C079: an object is asked for where it is, so that must be known before it is submitted."""
    result = scene.sbatch("-M", names, "train.sh")
    assert (result.status, len(result.ours)) == (64, 1)
    assert scene.calls("sbatch") == []


def test_an_answer_that_stays_lost(scene: Scene) -> None:
    """C001: the look-up fails too: 75, the key is named, no second call, and the intent stays for the tick."""
    scene.answer("sbatch", stdout="", stderr=LOST, status=1)
    scene.answer("squeue", status=1, stderr="squeue: error: Unable to contact slurm controller (connect failure)\n")
    result = scene.sbatch("train.sh")
    assert (result.status, result.stdout, result.theirs) == (75, b"", LOST.encode())
    assert scene.record().key in result.ours[-1]
    assert "do not submit it again" in result.ours[-1]
    assert len(scene.calls("sbatch")) == 1
    assert scene.kinds() == ["spec", "intent"]


def test_one_listing_without_the_job_proves_nothing(scene: Scene) -> None:
    """C003: the queue leaves the job out of two answers; it is asked again, and nothing is submitted twice."""
    scene.answer("sbatch", stdout="", stderr=LOST, status=1)
    scene.answer("squeue", omit=2)
    assert scene.sbatch("train.sh").status == 0
    assert len(scene.calls("squeue")) == 3
    assert len(scene.calls("sbatch")) == 1
    assert scene.facts()[-1].body["slurm_job_id"] == 101


def test_somebody_elses_word_is_not_ours(scene: Scene) -> None:
    """P6: an object with the job's word that belongs to another user is not adopted."""
    scene.answer("sbatch", uid=scene.uid + 1, stdout="", stderr=LOST, status=1)
    result = scene.sbatch("train.sh")
    assert result.status == 75
    assert (scene.path / "jobs").read_text().count(f"dispatch:{scene.record().key}:0:1") == 1  # the queue has it
    assert scene.kinds() == ["spec", "intent"]  # and never burnt by the one who has not watched it


@pytest.mark.parametrize(
    ("printed", "options", "number", "cluster"),
    [
        ("75168975;alpha\n", ["--parsable", "-M", "alpha"], 75168975, "alpha"),
        ("75168975\n", ["--parsable"], 75168975, "alpha"),
    ],
)
def test_parsable(scene: Scene, printed: str, options: list[str], number: int, cluster: str) -> None:
    """C005: id and cluster apart, stdout as sbatch printed it."""
    scene.answer("sbatch", stdout=printed)
    result = scene.sbatch(*options, "train.sh")
    assert result.stdout == printed.encode()
    assert scene.facts()[-1].body == {"submission": 1, "cluster": cluster, "slurm_job_id": number, "how": "answer"}


def test_the_clusters_name_in_the_sentence(scene: Scene) -> None:
    """C006: 'on cluster nautilus' is the cluster and never the id."""
    scene.answer("sbatch", stdout="Submitted batch job 3969755 on cluster nautilus\n")
    assert scene.sbatch("train.sh").status == 0
    assert (scene.facts()[-1].body["slurm_job_id"], scene.facts()[-1].body["cluster"]) == (3969755, "nautilus")


@pytest.mark.parametrize(
    ("options", "cluster", "goes"),
    [((), "beta", "alpha"), ((), "alpha", None), (("-M", "alpha,beta"), "beta", "alpha or beta"),
     (("-M", "beta"), "beta", None)],
)  # fmt: skip
def test_another_cluster_is_said(scene: Scene, options: tuple[str, ...], cluster: str, goes: str | None) -> None:
    """C079: Slurm put it on another cluster than the one of this host: a person learns where it is and goes on."""
    scene.answer("sbatch", stdout=f"Submitted batch job 500 on cluster {cluster}\n")
    result = scene.sbatch("--no-plan", *options, "train.sh")
    notes = [line for line in result.ours if line.startswith("note: it is on")]
    words = f"note: it is on cluster {cluster}, which ticks ask through slurmdbd; what replaces it goes to {goes}"
    assert notes == ([] if goes is None else [words])


def test_a_banner_before_the_id(scene: Scene) -> None:
    """C007: a plugin's banner on stdout is shown and not read."""
    banner = 'sbatch: This job will be charged to the account "liu" 7\n12\n'
    scene.answer("sbatch", stdout=banner + "Submitted batch job 1556425\n")
    assert scene.sbatch("train.sh").stdout == f"{banner}Submitted batch job 1556425\n".encode()
    assert scene.facts()[-1].body["slurm_job_id"] == 1556425


def test_a_warning_on_stderr(scene: Scene) -> None:
    """C009: stderr is passed on and never read for the id."""
    warning = "sbatch: error: Invalid --exclusive specification\nSubmitted batch job 9\n"
    scene.answer("sbatch", stdout="Submitted batch job 77\n", stderr=warning)
    result = scene.sbatch("--wrap", "hostname", env={"SBATCH_EXCLUSIVE": "true"})
    assert result.theirs == warning.encode()
    assert scene.facts()[-1].body["slurm_job_id"] == 77
    assert scene.facts()[0].body["argv"][0] == "--exclusive=true"


def test_a_script_with_dos_lines(scene: Scene) -> None:
    """C013: sbatch refuses it in its own words; we neither repair it nor record a submission."""
    name = scene.write("s.sh", b"#!/bin/bash\r\n#SBATCH -n1\r\n")
    refusal = "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
    scene.answer("sbatch", accept=False, stdout="", stderr=refusal, status=1)
    result = scene.sbatch(name)
    assert (result.status, result.stdout, result.theirs) == (1, b"", refusal.encode())
    assert scene.kinds() == ["spec", "intent", "rejected", "closed"]
    assert (scene.home / "s.sh").read_bytes() == b"#!/bin/bash\r\n#SBATCH -n1\r\n"


def test_odd_directives(scene: Scene) -> None:
    """C016: unquoted blanks and trailing remarks on directives are sbatch's business."""
    name = scene.write("a.sh", "#!/bin/bash\n#SBATCH --job-name=Big simulation\n#SBATCH -n 2     (cores)\n:\n")
    refusal = "sbatch: error: Invalid directive found in batch script: simulation\n"
    scene.answer("sbatch", accept=False, stdout="", stderr=refusal, status=255)
    result = scene.sbatch(name)
    assert (result.status, result.theirs) == (255, refusal.encode())


def test_a_script_at_the_limit(scene: Scene) -> None:
    """C024: we add nothing to the script; a refusal for its size is passed on and is certain."""
    script = b"#!/bin/sh\n" + b"#" * (4 * 1024 * 1024 - 210)
    refusal = (
        "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long\n"
    )
    scene.answer("sbatch", accept=False, stdout="", stderr=refusal, status=1)
    result = scene.sbatch(scene.write("big.sh", script))
    assert (result.status, result.theirs) == (1, refusal.encode())
    assert scene.kinds()[-2:] == ["rejected", "closed"]
    too_long = scene.sbatch(scene.write("huge.sh", script + b"#" * 300))
    assert too_long.status == 64
    assert "limit" in too_long.ours[-1]


def test_a_submit_limit(scene: Scene) -> None:
    """C025: a limit of the account is a certain refusal, with sbatch's own status, at once."""
    refusal = (
        "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates "
        "accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
    )
    scene.answer("sbatch", accept=False, stdout="", stderr=refusal, status=1)
    result = scene.sbatch("train.sh")
    assert (result.status, result.theirs) == (1, refusal.encode())
    assert "accounting/QOS policy" in scene.facts()[2].body["message"]
    assert len(scene.calls("sbatch")) == 1


@pytest.mark.parametrize(
    "printed", ["", "Your job is in.\n", "1\n", "Submitted batch job\n", "Submitted batch job 0\n"]
)
def test_no_id_is_never_made_up(scene: Scene, printed: str) -> None:
    """C026: status 0 without an id is looked up; nothing is taken for one."""
    scene.answer("sbatch", stdout=printed, accept=False)
    result = scene.sbatch("train.sh")
    assert (result.status, result.stdout) == (75, printed.encode())
    assert scene.kinds() == ["spec", "intent"]


def test_wait_gives_back_the_jobs_status(scene: Scene) -> None:
    """C031: with --wait the record has the id while sbatch waits, and its status, the job's, is given back."""
    scene.answer("sbatch", stdout="Submitted batch job {id}\n", status=7, hang_until="over")
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "-W", "train.sh"])
    until("the id is in the record", lambda: len(scene.facts_so_far()) == 3)
    (scene.path / "over").touch()
    assert running.wait().status == 7
    assert "--wait" not in scene.facts()[0].body["argv"]


def test_wait_has_no_deadline(scene: Scene) -> None:
    """--wait takes as long as the job: once the id is known, the deadline of the submission is over."""
    scene.config.write_text(f'state = "{scene.path}/state"\nsubmit_timeout_s = 15\n')
    scene.answer("sbatch", stdout="Submitted batch job {id}\n", hang_until="over")
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "--wait", "train.sh"])
    until("the intent's deadline is over", lambda: _overdue(scene))
    (scene.path / "over").touch()
    assert running.wait().status == 0


def _overdue(scene: Scene) -> bool:
    facts = scene.facts_so_far()
    return len(facts) > 1 and time.time() > facts[1].body["deadline"] + 1


def test_an_sbatch_that_hangs_is_ended(scene: Scene) -> None:
    """P6: the writer ends its own sbatch at the intent's deadline; the answer is then unknown."""
    scene.config.write_text(f'state = "{scene.path}/state"\nsubmit_timeout_s = 5\n')
    scene.answer("sbatch", accept=False, stdout="", hang_until="never")
    result = scene.sbatch("train.sh")
    assert result.status == 75
    assert "deadline" in result.ours[-1]


def test_an_interrupt_is_not_an_answer(scene: Scene) -> None:
    """Ctrl-C while sbatch runs: sbatch is ended, and whether Slurm has the job is looked up."""
    scene.answer("sbatch", stdout="", hang_until="never")
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "train.sh"])
    until("sbatch runs", scene.accepted)
    running.signal(signal.SIGINT)
    result = running.wait()
    assert (result.status, result.stdout) == (0, b"Submitted batch job 101\n")
    assert scene.facts()[-1].body["how"] == "queue"


def test_an_sbatch_that_a_signal_ends(scene: Scene) -> None:
    """An sbatch that was killed may have submitted."""
    scene.answer("sbatch", stdout="", signal=9)
    assert scene.sbatch("train.sh").status == 0
    assert scene.facts()[-1].body["how"] == "queue"


def test_no_sbatch_is_certain(scene: Scene) -> None:
    """sbatch cannot be started: nothing is in Slurm, for certain."""
    (scene.path / "bin" / "sbatch").unlink()
    result = scene.sbatch("train.sh")
    assert (result.status, scene.kinds()) == (127, ["spec", "intent", "rejected", "closed"])


def test_quiet(scene: Scene) -> None:
    """-Q prints no id: it is looked up, and nothing is printed for it."""
    scene.answer("sbatch", stdout="")
    result = scene.sbatch("-Q", "train.sh")
    assert (result.status, result.stdout) == (0, b"")
    assert scene.facts()[-1].body["how"] == "queue"
    assert scene.facts()[0].body["argv"] == ["--no-requeue", "--job-name=train.sh"]


@pytest.mark.parametrize("word", ["--help", "-V", "--usage", "--test-only"])
def test_what_submits_nothing_is_sbatchs_own(scene: Scene, word: str) -> None:
    """With --version, --test-only and the like sbatch gets the words as they are, in our place."""
    scene.answer("sbatch", accept=False, stdout="said\n", status=3, help="said\n")
    result = scene.run("sbatch", "-N1", word, "train.sh")
    assert (result.status, result.stdout) == (3, b"said\n")
    assert scene.call().argv == ["-N1", word, "train.sh"]
    assert scene.records() == []


def test_the_state_folder_is_away(scene: Scene) -> None:
    """69, --unprotected is named, and sbatch is not called."""
    (scene.path / "state" / "jobs").rename(scene.path / "elsewhere")
    result = scene.sbatch("train.sh")
    assert result.status == 69
    assert "--unprotected" in result.ours[-1]
    assert scene.calls("sbatch") == []


def test_a_script_that_is_not_there(scene: Scene) -> None:
    """sbatch says it in its own words."""
    scene.answer("sbatch", accept=False, stdout="", stderr="sbatch: error: Unable to open file no.sh\n", status=1)
    result = scene.sbatch("no.sh")
    assert (result.status, result.stderr) == (1, b"sbatch: error: Unable to open file no.sh\n")
    assert scene.call().argv == ["no.sh"]


def test_a_wait_for_a_cancelled_job(scene: Scene) -> None:
    """C031: sbatch --wait ends with 0 for a job that was cancelled in the queue; ours ends with 1 and says so."""
    number = 4
    text = "JobId=4 JobName=x\n   UserId=a(1) GroupId=b(2)\n   JobState=CANCELLED Reason=None Dependency=(null)\n"
    text += "   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n   StartTime=1 EndTime=2 Deadline=N/A\n"
    scene.answer("sbatch", stdout=f"Submitted batch job {number}\n")
    scene.answer("scontrol", stdout=text)
    result = scene.sbatch("--wait", "train.sh")
    assert result.status == 1
    assert "cancelled" in result.ours[-1]


ENDED: dict[str, Any] = {
    "start_time": None, "restart": 0, "final": True,
    "evidence": {"state": "FAILED", "flags": [], "reason": "", "exit_code": 3, "signal": None, "by_uid": None,
                 "source": "json"},
}  # fmt: skip
DECIDED: dict[str, Any] = {
    "rule": "x", "budget_used": 0, "budget": None, "reason": "", "not_before": None, "close": None,
}  # fmt: skip


@pytest.mark.parametrize(("closed", "status"), [("completed", 0), ("failed", 3)])
def test_a_wait_covers_the_replacements(scene: Scene, closed: str, status: int) -> None:
    """C031: sbatch's own job has failed, and the job goes on: --wait ends with the last of them."""
    tick = scene.path / "state" / "tick" / "last"
    tick.touch()
    scene.answer("sbatch", stdout="Submitted batch job {id}\n", status=3, hang_until="over")
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "--wait", "train.sh"])
    until("the id is in the record", lambda: len(scene.facts_so_far()) == 3)
    (scene.path / "over").touch()
    word = f"{scene.facts_so_far()[1].body['word'][:-1]}2"
    scene.append("end", submission=1, slurm_job_id=101, outcome="failed", **ENDED)
    scene.append("decision", on=4, outcome="failed", action="resubmit", submission=2, **DECIDED)
    scene.append("intent", submission=2, word=word, host="ctl", deadline=1e9, wait_s=9.0, changes=[], decision=5)
    scene.append("submitted", submission=2, cluster="alpha", slurm_job_id=102, how="answer")
    until("it says so", lambda: b"submission 2 is Slurm job 102" in running.said())
    scene.append("end", submission=2, slurm_job_id=102, outcome="failed", **ENDED)
    scene.append("decision", on=8, outcome="failed", action="stop", submission=None, **{**DECIDED, "close": closed})
    scene.append("closed", why=closed, reason="")
    assert running.wait().status == status


WATCHED = {"submission": 1, "host": "other", "first_seen": 5.0}


def overtaken(scene: Scene, *others: tuple[str, dict[str, Any]]) -> Result:
    """Submit, and have others write facts while sbatch runs and has not answered yet."""
    given = json.loads((scene.path / "answers" / "sbatch.json").read_text())
    scene.answer("sbatch", **given, silent_until="over")
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "train.sh"])
    until("sbatch is called", lambda: scene.calls("sbatch"))
    for kind, body in others:
        scene.append(kind, **body)
    (scene.path / "over").touch()
    return running.wait()


def test_a_tick_that_watches_meanwhile(scene: Scene) -> None:
    """P6: its ``watched`` has the number after the intent: the answer is written as the next, and all is well."""
    scene.answer("sbatch")
    result = overtaken(scene, ("watched", WATCHED))
    assert (result.status, result.stdout) == (0, b"Submitted batch job 101\n")
    assert scene.kinds() == ["spec", "intent", "watched", "submitted"]
    assert scene.facts()[-1].body["how"] == "answer"
    assert result.ours[0].startswith(f"job {scene.record().key}, Slurm job 101")


def test_a_refusal_while_a_tick_watches(scene: Scene) -> None:
    """C025: the refusal is recorded behind the tick's ``watched``, and the record is closed and whole."""
    scene.answer("sbatch", accept=False, stdout="", stderr="sbatch: error: no\n", status=1)
    result = overtaken(scene, ("watched", WATCHED))
    assert (result.status, result.stdout, result.stderr) == (1, b"", b"sbatch: error: no\n")
    assert scene.kinds() == ["spec", "intent", "watched", "rejected", "closed"]


def test_a_lost_answer_while_a_tick_watches(scene: Scene) -> None:
    """C001: what the wrapper finds by the word is written behind the tick's ``watched``."""
    scene.answer("sbatch", stdout="", stderr=LOST, status=1)
    result = overtaken(scene, ("watched", WATCHED))
    assert (result.status, result.stdout) == (0, b"Submitted batch job 101\n")
    assert scene.kinds() == ["spec", "intent", "watched", "submitted"]
    assert scene.facts()[-1].body["how"] == "queue"


@pytest.mark.parametrize("answer", [{}, {"stdout": "", "stderr": LOST, "status": 1}], ids=["an answer", "lost"])
def test_an_answer_that_came_too_late(scene: Scene, answer: dict[str, Any]) -> None:
    """P6: the number was given up before sbatch answered: 75, one line that says so, and the record stays whole."""
    scene.answer("sbatch", **answer)
    result = overtaken(scene, ("watched", WATCHED), ("burnt", {"submission": 1, "evidence": "nowhere"}))
    assert result.status == 75
    assert len(result.ours) == 1
    assert "too late" in result.ours[0]
    assert f"dispatch show {scene.record().key}" in result.ours[0]
    assert scene.kinds() == ["spec", "intent", "watched", "burnt"]


def test_a_tick_that_closes_a_refused_job_first(scene: Scene) -> None:
    """The refusal and its end are there already: nothing is written twice, and sbatch's status is given back."""
    scene.answer("sbatch", accept=False, stdout="", stderr="sbatch: error: no\n", status=1)
    rejected = {"submission": 1, "status": 1, "message": "sbatch: error: no"}
    result = overtaken(scene, ("rejected", rejected), ("closed", {"why": "rejected", "reason": "no"}))
    assert (result.status, result.ours) == (1, [])
    assert scene.kinds() == ["spec", "intent", "rejected", "closed"]
