"""``dispatch plan``: what a person reads, and what a program reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.rules.plan import MEANING
from slurm_dispatch.slurm.parse import parse_config
from slurm_dispatch.store import thin
from tests.submit.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED = Path(__file__).parent.parent / "assets" / "slurm-24.11" / "config.json"
HEAD = "#!/bin/bash\n#SBATCH -J llm\n#DISPATCH --checkpoint ~/%x\n"
GOOD = HEAD + "exec dispatch-watch -- python train.py\n"
SPACE = f"space: at most {thin.bound(1, 1).saves} saves"


def planned(scene: Scene, *argv: str, script: str = GOOD) -> list[str]:
    """The lines of a plan that must be there."""
    name = scene.write("job.sh", script)
    result = scene.run("plan", *argv, name)
    assert (result.status, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert "--json" in argv or max(map(len, lines)) <= 100
    return lines


def rows(lines: Sequence[str]) -> dict[str, list[list[str]]]:
    """The table by outcome, a list for each row: the other columns, and last which ends it is about. Each column
    begins where its heading does; a cell's further lines are joined to it, rules without a blank."""
    start = next(number for number, line in enumerate(lines) if line.startswith("OUTCOME"))
    lines = lines[start : lines.index("", start)]
    head = ["OUTCOME", "ACTION", "BUDGET", "WHAT CHANGES", "WHY"]
    assert re.split(r" {2,}", lines[0]) == head
    starts = [lines[0].index(word) for word in head]
    found: dict[str, list[list[str]]] = {}
    for line in lines[1:]:
        cells = [line[at:end].rstrip() for at, end in zip(starts, [*starts[1:], None], strict=True)]
        assert all(at == 0 or line[at - 2 : at].strip() == "" for at in starts)
        if cells[0] and not cells[0].startswith(" "):
            row = [*cells[1:], ""]
            found.setdefault(cells[0], []).append(row)
            continue
        row[-1] = f"{row[-1]} {cells[0].strip()}".strip()
        for number, cell in enumerate(cells[1:]):
            joint = "" if number == 3 and row[3].endswith(",") else " "
            row[number] = f"{row[number]}{joint}{cell}".strip()
    return found


def notes(lines: Sequence[str]) -> list[str]:
    """The notes, each as one line, without what marks them."""
    found: list[str] = []
    for line in lines:
        if line.startswith("note: "):
            found.append(line.removeprefix("note: "))
        elif found:
            found[-1] += f" {line.strip()}"
    return found


def test_without_rules(scene: Scene) -> None:
    """Every outcome has a row; all is built in, and nothing but the space needs a word."""
    lines = planned(scene)
    assert lines[:2] == [f"llm: checkpoint root {scene.home}/llm", ""]
    table = rows(lines)
    assert list(table) == [outcome.value for outcome in Outcome]
    assert table["completed"] == [["stop", "-", "-", "final", ""]]
    assert table["preempted"] == [["resubmit", "no limit", "nothing", "built in", ""]]
    assert table["failed"] == [["resubmit", "2", "nothing", "built in", ""]]
    assert table["node_fail"] == [["resubmit", "no limit", "other nodes", "built in", ""]]
    assert table["launch_failed"] == [["resubmit", "5 in a row", "waits 30s..30m, other nodes", "built in", ""]]
    assert table["cancelled"] == [["hold 14d", "-", "then resubmit", "built in", ""]]
    assert table["stalled"] == [["-", "-", "-", "cannot come: no --stall", ""]]
    assert table["suspect"] == [["-", "-", "-", "cannot come: no --suspect", ""]]
    text = " ".join(lines)
    assert "it is held after 100 submissions, or 5 executions in a row without a new save. " in text
    for outcome, meaning in MEANING.items():
        assert re.search(rf"(^| ){outcome} +{re.escape(meaning)}( |$)", text), outcome
    assert [note[: len(SPACE)] for note in notes(lines)] == [SPACE]


def test_with_rules_of_everybody() -> None:
    """The user's come first, those typed before those written, then the site's; each row says whose it is."""
    site = 'rules = ["failed,timeout:stop", "lost:resubmit,budget=1"]\nmax_submissions = 7\nlaunch_failures = 3\n'
    with Scene(site) as scene:
        script = HEAD + "#DISPATCH --on preempted,failed:resubmit,budget=4\nexec dispatch-watch -- x\n"
        lines = planned(scene, "--on", "preempted:stop", script=script)
    table = rows(lines)
    assert table["preempted"] == [["stop", "-", "-", "your rule preempted:stop (the command line)", ""]]
    why = "your rule failed,preempted:resubmit,budget=4 (line 4 of the script)"
    assert table["failed"] == [["resubmit", "4", "nothing", why, ""]]
    assert table["timeout"] == [["stop", "-", "-", "the site's rule failed,timeout:stop", ""]]
    assert table["lost"] == [["resubmit", "1", "nothing", "the site's rule lost:resubmit,budget=1", ""]]
    assert table["launch_failed"][0][:2] == ["resubmit", "3 in a row"]
    assert "it is held after 7 submissions, or 5 executions" in " ".join(lines)


EVERYTHING = (
    "failed:resubmit,budget=3,backoff=30s..30m,codes=1+3-7,signals=BUS+SEGV,exclude-nodes,time=1.5x..3d,mem=2x..512G"
)


def test_rules_about_some_ends_with_all_that_they_change(scene: Scene) -> None:
    """A row for each rule that can count, in the order in which they are tried; nothing is wider than the screen."""
    lines = planned(scene, "--on", EVERYTHING, "--on", "failed:hold,for=3h", "--on", "lost:requeue")
    first, second = rows(lines)["failed"]
    changes = "waits 30s..30m, other nodes, time x 1.5, up to 3d, memory x 2, up to 512G"
    assert first == [
        "resubmit", "3", changes, f"your rule {EVERYTHING} (the command line)", "status 1+3-7 or signal BUS+SEGV",
    ]  # fmt: skip
    assert second == ["hold 3h", "-", "then resubmit", "your rule failed:hold,for=3h (the command line)", "otherwise"]
    assert rows(lines)["lost"][0][:3] == ["requeue", "no limit", "nothing"]


def test_nothing_but_the_root_is_wider_than_the_screen(scene: Scene) -> None:
    """A rule with a hundred exit statuses is broken where a reader would, and a path is left whole to be copied."""
    every = "+".join(str(number) for number in range(1, 255, 2))
    name = scene.write("job.sh", GOOD.replace("~/%x", "/" + "x" * 120))
    first, *lines = scene.run("plan", "--on", f"failed:stop,codes={every}", name).stdout.decode().splitlines()
    assert first == f"llm: checkpoint root /{'x' * 120}"
    assert max(map(len, lines)) <= 100
    assert re.sub(r"\s", "", rows(lines)["failed"][0][4]) == f"status{every}"


def test_caps(scene: Scene) -> None:
    """Whatever the budgets say, these hold the job."""
    lines = planned(
        scene, "--max-submissions=9", "--max-node-hours=12.5", "--no-progress-limit=1", "--until=2999-12-31T12:00Z"
    )
    text = " ".join(lines)
    assert (
        "held after 9 submissions, or one execution without a new save, or 12.5 node-hours, or on 2999-12-31" in text
    )


def test_a_root_in_s3() -> None:
    """Nothing is asked of a store for a plan; what stands in a path may stand in a prefix."""
    with Scene() as scene:
        lines = planned(scene, "--checkpoint", "s3://Bucket/$USER/%x/")
        assert lines[0] == f"llm: checkpoint root s3://Bucket/{scene.user}/llm"


def test_a_shared_checkpoint() -> None:
    """P8: whatever would bring it back is a hold, and the plan says before the start what it waits for, and then."""
    with Scene('shared_hold_for_s = "36h"\ncessation = ["/sbin/ask"]\n') as scene:
        lines = planned(scene, "--shared-checkpoint", "--on", "timeout:requeue,budget=2", "--on", "lost:hold,for=2h")
    assert lines[0].endswith(", shared")
    table = rows(lines)
    assert table["preempted"] == [["hold 36h", "no limit", "then resubmit", "built in; shared checkpoint: held", ""]]
    why = "your rule timeout:requeue,budget=2 (the command line); shared checkpoint: held"
    assert table["timeout"] == [["hold 36h", "2", "then resubmit", why, ""]]
    assert table["lost"][0][:3] == ["hold 2h", "-", "then resubmit"]
    assert {row[0].split(" ")[0] for found in table.values() for row in found} == {"hold", "stop", "-"}
    (note,) = [note for note in notes(lines) if note.startswith("shared checkpoint: ")]
    for part in ("every 1m this site asks /sbin/ask", "dispatch release", "After 36h it is closed", "for 14d"):
        assert part in note


def test_a_shared_checkpoint_where_nobody_tells() -> None:
    with Scene("cessation = []\n") as scene:
        found = notes(planned(scene, "--shared-checkpoint"))
    assert "nothing here tells whether their processes are gone, so only dispatch release" in found[0]


IN_TIME = (
    "its nodes about every 100s, and a tick looks at least every 30s: the replacement is submitted within 160s of "
    "the last sign of life. Slurm alone gives the node up after 5m (SlurmdTimeout). While"
)


@pytest.mark.parametrize(
    ("timeout", "says"),
    [
        ("300 sec", IN_TIME),
        ("20 sec", "Slurm alone gives the node up after 20s (SlurmdTimeout), often earlier: --suspect gains little"),
        ("0 sec", "SlurmdTimeout is 0 here: it never looks whether nodes live"),
        (None, "Slurm does not say its SlurmdTimeout now"),
    ],
)
def test_what_suspect_means_here(timeout: str | None, says: str) -> None:
    """With this site's SlurmdTimeout, or that it is not known."""
    with Scene("suspicion = true\nsuspect_count = 7\n") as scene:
        scene.answer("scontrol", **({"config": {"SlurmdTimeout": timeout}} if timeout else {"status": 1}))
        lines = planned(scene, "--suspect", "30s")
    (note,) = [note for note in notes(lines) if note.startswith("--suspect 30s: ")]
    assert says in note
    assert "While more nodes are silent than 7 and than 1 % of all nodes, it waits for Slurm" in note
    assert rows(lines)["suspect"] == [["resubmit", "no limit", "other nodes", "built in", ""]]


def test_which_promises_fall_without_hooks() -> None:
    """By the site's own word, or because slurm.conf has no such line; what concerns shared jobs only with them."""
    with Scene('hooks = ["prolog", "task-prolog", "epilog", "prolog-slurmctld"]\n') as scene:
        scene.answer("scontrol", config={"Prolog[0]": "/etc/x", "Epilog": "(null)", "PrologSlurmctld": "(null)"})
        plain, shared = planned(scene), planned(scene, "--shared-checkpoint")
    (note,) = [note for note in notes(plain) if note.startswith("this site lacks")]
    assert note.startswith("this site lacks prolog-slurmctld, epilog-slurmctld, epilog: no gate: ")
    assert "seen by the next tick (30s or cron's minute)" in note
    assert "shared" not in note
    (note,) = [note for note in notes(shared) if note.startswith("this site lacks")]
    assert "a second execution of the shared checkpoint" in note
    assert "the answer slurm-nodes stays unknown" in note


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ((), None),
        (("Prolog[0]",), "prolog"),
        (("TaskProlog", "PrologSlurmctld[0]"), "prolog-slurmctld, task-prolog"),
    ],
)
def test_which_hooks_a_real_configuration_has(gone: Sequence[str], missing: str | None) -> None:
    """As a cluster with all five said it, and with lines taken away."""
    said = parse_config(json.loads(RECORDED.read_text())["stdout"])
    with Scene() as scene:
        scene.answer("scontrol", config={name: value for name, value in said.items() if name not in gone})
        found = [note for note in notes(planned(scene)) if note.startswith("this site lacks")]
    assert [note.split(":")[0] for note in found] == ([] if missing is None else [f"this site lacks {missing}"])


@pytest.mark.parametrize(("release", "falls"), [("22.05", True), ("24.11", False), ("26.05", False)])
def test_which_promises_fall_without_start_times(release: str, falls: bool) -> None:
    """As the release says which one it is; before 23.02 hooks are not told when an execution started."""
    recorded = RECORDED.parents[1] / f"slurm-{release}" / RECORDED.name
    with Scene() as scene:
        scene.answer("scontrol", config=parse_config(json.loads(recorded.read_text())["stdout"]))
        plain, shared = planned(scene), planned(scene, "--shared-checkpoint")
    said = [[note for note in notes(lines) if note.startswith("Slurm ")] for lines in (plain, shared)]
    assert [len(found) for found in said] == ([1, 1] if falls else [0, 0])
    if falls:
        assert said[0][0].startswith("Slurm 22.05 does not tell its hooks when an execution started: a start that ")
        assert "has epoch and folder of the first one" in said[0][0]
        assert "is refused" in said[1][0]
        assert "the answer slurm-nodes stays unknown unless a node boots, and the job waits for you" in said[1][0]


def test_without_any_hook_there_is_no_identity() -> None:
    with Scene("user_mode = true\n") as scene:
        (note, *_) = notes(planned(scene))
    assert "lacks prolog-slurmctld, epilog-slurmctld, prolog, task-prolog, epilog: " in note
    assert "all have epoch 0" in note


def test_the_sites_limits_stand_above_rules() -> None:
    """What the site's own or a built-in rule would do and a limit forbids is a hold, and the row says which limit."""
    bounds = 'actions = ["requeue"]\nlongest_hold_s = "5h"\nresubmissions_per_hour = 3\n'
    limits = '[[limit]]\npartition = ["gpu"]\n' + bounds
    with Scene('rules = ["timeout:requeue", "lost:hold,for=9h"]\n' + limits) as scene:
        lines = planned(scene, "-p", "cpu,gpu")
        table, free = rows(lines), rows(planned(scene, "-p", "cpu"))
    assert "the site's limit 1 lets 3 resubmissions an hour through; a job that comes next is held" in notes(lines)
    assert table["preempted"][0] == [
        "hold 5h", "-", "then resubmit", "built in; the site's limit 1 does not allow resubmit", "",
    ]  # fmt: skip
    assert (table["timeout"][0][0], table["lost"][0][0]) == ("requeue", "hold 5h")
    assert (free["preempted"][0][0], free["lost"][0][0]) == ("resubmit", "hold 9h")


def test_as_json(scene: Scene) -> None:
    """--json says the same as one object."""
    scene.answer("scontrol", config={"SlurmdTimeout": "300 sec"})
    lines = planned(scene, "--json", "--on", "failed:resubmit,budget=4,codes=3,mem=2x..1T", "--stall=2h")
    content = json.loads("\n".join(lines))
    assert content.keys() == {
        "name", "root", "shared", "max_submissions", "max_node_hours", "until", "no_progress", "stall_s", "suspect_s",
        "slurmd_timeout_s", "cessation", "missing_hooks", "plan", "notes",
    }  # fmt: skip
    assert (content["name"], content["root"], content["max_submissions"]) == ("llm", f"{scene.home}/llm", 100)
    assert (content["stall_s"], content["slurmd_timeout_s"], content["cessation"]) == (7200, 300, ["slurm-nodes"])
    assert list(dict.fromkeys(row["outcome"] for row in content["plan"])) == [outcome.value for outcome in Outcome]
    failed, _ = [row for row in content["plan"] if row["outcome"] == "failed"]
    rule = "failed:resubmit,budget=4,codes=3,mem=2x..1T"
    assert failed == {
        "outcome": "failed", "when": "status 3", "possible": True, "action": "resubmit", "budget": 4,
        "hold_for_s": None, "then": None, "changes": ["memory x 2, up to 1T"], "rule": rule,
        "why": f"your rule {rule}", "place": "the command line", "instead": None,
        "means": "it ended with another status",
    }  # fmt: skip
    assert [row["possible"] for row in content["plan"] if row["outcome"] in {"stalled", "suspect"}] == [True, False]
    assert [note[: len(SPACE)] for note in content["notes"]] == [SPACE]


def test_an_open_job_has_an_older_script(scene: Scene) -> None:
    """The plan says when the script on disk is not the one that an open job goes on with."""
    name = scene.write("job.sh", GOOD)
    scene.sbatch("--no-plan", name)
    job = scene.record().read()[0].body["job"]
    assert not any("goes on with" in note for note in notes(planned(scene)))
    found = notes(planned(scene, script=GOOD + "# changed\n"))
    assert found[0].startswith(f"the open job {job} (llm) goes on with the job.sh that it was submitted with")
    assert f"dispatch update {job} --script job.sh" in found[0]
    scene.append("closed", why="superseded", reason="x", by_job="abc")
    assert scene.kinds()[-1] == "closed"
    assert not any("goes on with" in note for note in notes(planned(scene, script=GOOD + "# changed\n")))


NO_HELPER = "the script does not call dispatch-watch"
NO_EXEC = "the script must end with 'exec dispatch-watch"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("exec dispatch-watch -- x\n", None),
        ("echo a\nexec dispatch-watch --done f -- \\\n    srun x\n# the end\n\n", None),
        ("if true; then\n  exec env A=1 /opt/bin/dispatch-watch -- x\nfi\n", None),
        ("python train.py\n", NO_HELPER),
        ("# exec dispatch-watch -- x\nx\n", NO_HELPER),
        ("dispatch-watch -- x\n", NO_EXEC),
        ("dispatch-watch -- x\necho over\n", NO_EXEC),
        ("srun dispatch-watch -- x\n", NO_EXEC),
        ("dispatch-watch --done f -- \\\n    x \\\n    y\n", NO_EXEC),
    ],
)
def test_how_the_script_calls_the_helper(scene: Scene, body: str, word: str | None) -> None:
    """A script that never calls it, or whose shell stays between Slurm's signals and it, is told so."""
    found = [note for note in notes(planned(scene, script=HEAD + body)) if "dispatch-watch" in note]
    assert len(found) == (0 if word is None else 1)
    assert word is None or found[0].startswith(word)


def test_a_script_that_is_no_shells(scene: Scene) -> None:
    """Python has no exec line of its own to ask for."""
    text = "#!/usr/bin/env python3\nimport os\nos.execvp('dispatch-watch', ['dispatch-watch', '--', 'x'])\n"
    assert notes(planned(scene, "--checkpoint", "r", script=text))[0].startswith(SPACE)


@pytest.mark.parametrize(
    ("site", "storage", "told"),
    [
        ("", "accounting_storage/none", False), ("", "accounting_storage/slurmdbd", True), ("", None, True),
        ("accounting = false\n", "accounting_storage/slurmdbd", False), ("accounting = true\n", None, True),
    ],
)  # fmt: skip
def test_who_cancelled_is_told_by_accounting_only(site: str, storage: str | None, told: bool) -> None:
    """C081: without it every cancel is final, whatever a rule says, and the plan does not promise more."""
    with Scene(site) as scene:
        scene.answer("scontrol", config={"AccountingStorageType": storage} if storage else {})
        found = rows(planned(scene, "--on", "cancelled:resubmit,backoff=1m,budget=3"))["cancelled"]
    if told:
        assert found[0][:3] == ["resubmit", "3", "waits 1m"]
    else:
        assert found == [["stop", "-", "-", "final: without accounting nothing tells who cancelled", ""]]


@pytest.mark.parametrize(("command", "warned"), [("exec dispatch-watch -- x", False), ("python x", True)])
def test_a_wrapped_command(scene: Scene, command: str, warned: bool) -> None:
    """--wrap is looked at too."""
    result = scene.run("plan", "--checkpoint", "r", "--wrap", command)
    assert result.status == 0
    assert (b"the wrapped command does not call dispatch-watch" in result.stdout) == warned


def test_what_else_a_person_should_know(scene: Scene) -> None:
    """No root, Slurm's own requeue, and a rule about one's own scancel that never counts."""
    script = "#!/bin/sh\nexec dispatch-watch -- x\n"
    found = notes(planned(scene, "--requeue", "--on", "cancelled:resubmit", script=script))
    assert len(found) == 4
    assert "no checkpoint root" in found[0]
    assert "your own is final" in found[1]
    assert "--requeue" in found[2]
    assert found[3].startswith(SPACE)


def test_the_state_folder_is_not_there(scene: Scene) -> None:
    """The plan is shown all the same, and says that the job could not be submitted now."""
    (scene.path / "state" / "jobs").rename(scene.path / "elsewhere")
    found = notes(planned(scene))
    assert found[0].startswith("dispatch sbatch cannot submit it now: ")
    assert f"{scene.path}/state" in found[0]


def test_nothing_is_written_and_nothing_is_submitted(scene: Scene) -> None:
    """A plan leaves no root and no record, and asks Slurm only how it is configured."""
    planned(scene)
    assert not (scene.home / "llm").exists()
    assert scene.records() == []
    assert {path.name.split("-")[-1] for path in (scene.path / "calls").iterdir()} == {"scontrol"}
    assert {tuple(call.argv) for call in scene.calls("scontrol")} <= {("show", "config"), ("--version",)}


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["--array=1-3", "train.sh"], 64, "arrays"),
        (["-N1", ":", "-N2", "train.sh"], 64, "heterogeneous"),
        (["--on", "failed:explode", "train.sh"], 64, "explode"),
        (["none.sh"], 66, "the script none.sh cannot be read"),
        (["--test-only", "train.sh"], 66, "--test-only"),
        (["--unprotected", "train.sh"], 66, "--unprotected"),
    ],
)
def test_what_has_no_plan(scene: Scene, argv: list[str], status: int, words: str) -> None:
    """One line that says why, and nothing on stdout."""
    result = scene.run("plan", *argv)
    assert (result.status, result.stdout, len(result.ours)) == (status, b"", 1)
    assert words in result.ours[0]


def test_no_configuration(scene: Scene) -> None:
    """78: without the site's settings there is no plan."""
    scene.config.unlink()
    result = scene.run("plan", "train.sh")
    assert (result.status, result.stdout) == (78, b"")
    assert str(scene.config) in result.ours[0]
