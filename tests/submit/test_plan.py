"""``dispatch plan``: what a person reads, and what a program reads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.store.thin import bound
from tests.submit.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "#!/bin/bash\n#SBATCH -J llm\n#DISPATCH --checkpoint ~/%x\n"
GOOD = HEAD + "exec dispatch-watch -- python train.py\n"
SPACE = f"space: at most {bound(1, 1).saves} saves"


def planned(scene: Scene, *argv: str, script: str = GOOD) -> list[str]:
    """The lines of a plan that must be there."""
    name = scene.write("job.sh", script)
    result = scene.run("plan", *argv, name)
    assert (result.status, result.stderr) == (0, b"")
    return result.stdout.decode().splitlines()


def rows(lines: Sequence[str]) -> dict[str, list[str]]:
    """The table by outcome: what stands in the other columns, which two or more blanks part."""
    start = next(number for number, line in enumerate(lines) if line.startswith("OUTCOME"))
    table = lines[start : lines.index("", start)]
    assert re.split(r" {2,}", table[0]) == ["OUTCOME", "WHAT IT MEANS", "ACTION", "BUDGET", "WHY"]
    found = {}
    for line in table[1:]:
        outcome, *cells = re.split(r" {2,}", line)
        assert len(cells) == 4
        # Each column begins where its heading does.
        for word, cell in zip(("WHAT IT MEANS", "ACTION", "BUDGET", "WHY"), cells, strict=True):
            assert line[table[0].index(word) :].startswith(cell)
        found[outcome] = cells[1:]
    return found


def notes(lines: Sequence[str]) -> list[str]:
    """The notes, without what marks them."""
    return [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]


def test_without_rules(scene: Scene) -> None:
    """Every outcome has a row; all is built in, and nothing but the space needs a word."""
    lines = planned(scene)
    assert lines[:2] == [f"llm: checkpoint root {scene.home}/llm", ""]
    table = rows(lines)
    assert list(table) == [outcome.value for outcome in Outcome]
    assert table["completed"] == ["stop", "-", "final"]
    assert table["preempted"] == ["resubmit", "no limit", "built in"]
    assert table["failed"] == ["resubmit", "2", "built in"]
    assert table["launch_failed"] == ["resubmit", "5", "built in"]
    assert table["cancelled"] == ["stop", "-", "built in"]
    assert "The job has at most 100 submissions." in lines[-3]
    assert [note[: len(SPACE)] for note in notes(lines)] == [SPACE]
    assert max(map(len, lines)) <= 120


def test_with_rules_of_everybody() -> None:
    """The user's come first, those typed before those written, then the site's; each row says whose it is."""
    site = 'rules = ["failed,timeout:stop", "lost:resubmit,budget=1"]\nmax_submissions = 7\nlaunch_failures = 3\n'
    with Scene(site) as scene:
        script = HEAD + "#DISPATCH --on preempted,failed:resubmit,budget=4\nexec dispatch-watch -- x\n"
        lines = planned(scene, "--on", "preempted:stop", script=script)
    table = rows(lines)
    assert table["preempted"] == ["stop", "-", "your rule preempted:stop"]
    assert table["failed"] == ["resubmit", "4", "your rule failed,preempted:resubmit,budget=4"]
    assert table["timeout"] == ["stop", "-", "the site's rule failed,timeout:stop"]
    assert table["lost"] == ["resubmit", "1", "the site's rule lost:resubmit,budget=1"]
    assert table["launch_failed"] == ["resubmit", "3", "built in"]
    assert "The job has at most 7 submissions." in lines[-3]


def test_as_json(scene: Scene) -> None:
    """--json says the same as one object."""
    lines = planned(scene, "--json", "--on", "failed:resubmit,budget=4")
    content = json.loads("\n".join(lines))
    assert content.keys() == {"name", "root", "max_submissions", "plan", "notes"}
    assert (content["name"], content["root"], content["max_submissions"]) == ("llm", f"{scene.home}/llm", 100)
    assert [row["outcome"] for row in content["plan"]] == [outcome.value for outcome in Outcome]
    (failed,) = [row for row in content["plan"] if row["outcome"] == "failed"]
    assert failed == {
        "outcome": "failed", "action": "resubmit", "budget": 4, "why": "your rule failed:resubmit,budget=4",
        "means": "the command ended with another status",
    }  # fmt: skip
    assert [note[: len(SPACE)] for note in content["notes"]] == [SPACE]


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
    """A plan leaves no root, no record, and asks no command of Slurm."""
    planned(scene)
    assert not (scene.home / "llm").exists()
    assert scene.records() == []
    assert list((scene.path / "calls").iterdir()) == []


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
