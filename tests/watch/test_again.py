"""``dispatch again``: saved and not finished, said before, while or after the helper runs, from any rank or step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.again import again
from slurm_dispatch.durable import create_whole
from slurm_dispatch.errors import ConfigurationError, NotAllowedError, ServiceAwayError
from slurm_dispatch.store import notes
from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch.turn import claim_run, end_run, read_again, say_again, this_process
from tests.watch.rig import DEADLINE_S, Scene, until
from tests.watch.test_troubles import record
from tests.watch.test_turns import rank

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.state.jobs import Record

AGAIN = [sys.executable, "-m", "slurm_dispatch.cli.main", "again"]


def ended(made: Record) -> list[Fact]:
    return [fact for fact in made.read() if fact.kind == "ended"]


def test_the_command_says_it(scene: Scene) -> None:
    """The status stays the command's own; what comes next is the record's to say."""
    made = record(scene.folder)
    helper = scene.helper("--", *AGAIN, environment=scene.environment(SLURM_DISPATCH_RECORD=made.folder))
    assert helper.end() == 0
    assert helper.has_said("this execution is unfinished: dispatch-watch hands it on when its command has ended")
    (fact,) = ended(made)
    assert (fact.body["outcome"], fact.body["status"]) == ("unfinished", 0)


def test_another_step_says_it_while_the_command_runs(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    helper = scene.train("save 10 wait go kill TERM", environment=environment)
    helper.until_said("published step 10")
    assert "hands it on" in again({**environment, **rank(3, 8, step="4")})
    assert ended(made) == []
    scene.open("go")
    assert helper.end() == 128 + 15
    (fact,) = ended(made)
    assert (fact.body["outcome"], fact.body["signal"], fact.body["step"]) == ("unfinished", 15, 10)


def test_said_before_the_helper_starts(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    said = again(environment)
    assert said == "no dispatch-watch runs in this execution now: it is unfinished, and the job's record was told"
    assert scene.train("save 10 exit 0", environment=environment).end() == 0
    assert [(fact.body["outcome"], fact.body["step"]) for fact in ended(made)] == [
        ("unfinished", None), ("unfinished", 10),
    ]  # fmt: skip


def test_said_after_the_helper_has_ended(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    assert scene.train("save 10 exit 0", environment=environment).end() == 0
    again(environment)
    assert [fact.body["outcome"] for fact in ended(made)] == [None, "unfinished"]


def test_it_is_of_one_turn_of_the_command(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    assert scene.helper("--", *AGAIN, environment=environment).end() == 0
    assert scene.train("save 10 exit 0", environment=environment).end() == 0
    assert [fact.body["outcome"] for fact in ended(made)] == ["unfinished", None]


def test_a_run_that_ends_at_the_same_moment_is_not_trusted_to_have_seen_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = open_root(str(tmp_path))
    root.make_execution("att")
    assert claim_run(root, "att", 1, this_process(os.getpid()))
    def end_first(folder: str, name: str, content: bytes, *, mode: int) -> bool:
        if name == "run-1.again":
            end_run(root, "att", 1, 0)
        return create_whole(folder, name, content, mode=mode)

    with monkeypatch.context() as patch:
        patch.setattr(notes, "create_whole", end_first)
        assert not say_again(root, "att")
    assert read_again(root, "att", 1)  # the run may have seen it all the same
    assert not say_again(root, "att")
    assert read_again(root, "att", 2)


def test_the_exit_codes_of_the_helper_come_first(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    again(environment)
    assert scene.train("wait never", "--stall", "0.5", environment=environment).end() == 79
    assert ended(made)[-1].body["outcome"] == "stalled"


@pytest.mark.parametrize(("record_folder", "status"), [(None, 0), ("/no/such/thejob", 0), (None, 3)])
def test_where_the_record_cannot_be_told_the_status_says_it(
    scene: Scene, record_folder: str | None, status: int
) -> None:
    """A decision that comes before the node's Epilog rests on the script's status alone."""
    environment = scene.environment()
    if record_folder is not None:
        environment["SLURM_DISPATCH_RECORD"] = record_folder
    helper = scene.helper("--", "sh", "-c", f'"$@" || exit 99; exit {status}', "sh", *AGAIN, environment=environment)
    assert helper.end() == (status or 85)
    assert helper.has_said("ending with 85") == (status == 0)


def test_with_nobody_to_tell_it_says_what_to_do(scene: Scene) -> None:
    with pytest.raises(ServiceAwayError) as error:
        again(scene.environment(SLURM_DISPATCH_RECORD="/no/such/thejob"))
    assert "no dispatch-watch runs in this execution" in str(error.value)
    assert "end the script with status 85" in error.value.hint
    done = subprocess.run(
        AGAIN, env=scene.environment(), capture_output=True, timeout=DEADLINE_S, text=True, check=False
    )
    assert done.returncode == 69
    assert "SLURM_DISPATCH_RECORD does not name the job's record" in done.stderr


def test_the_node_s_epilog_can_tell_the_record(scene: Scene) -> None:
    folder = scene.folder / "hand"
    folder.mkdir(mode=0o700)
    assert "this node's Epilog tells the job's record" in again(scene.environment(SLURM_DISPATCH_HAND=str(folder)))
    assert [path.name for path in folder.iterdir()] == ["ended"]
    assert json.loads((folder / "ended").read_text()) == {
        "v": 1, "attempt": "attempt1", "epoch": "1000000", "status": None, "signal": None, "outcome": "unfinished",
        "step": None,
    }  # fmt: skip


def test_outside_a_managed_job_it_is_refused(scene: Scene) -> None:
    environment = scene.environment()
    for name in ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT"):
        del environment[name]
    with pytest.raises(NotAllowedError):
        again(environment)
    with pytest.raises(ConfigurationError):
        again({**environment, "DISPATCH_JOB": "thejob"})
    assert list(scene.root.iterdir()) == []


def test_a_helper_beside_hands_it_on(scene: Scene) -> None:
    from tests.watch.test_turns import BEGIN, WATCH, beside, said

    made = record(scene.folder)
    wait = 'until [ -e "$3/go" ]; do sleep 0.05; done; '
    script = BEGIN + wait + f'"$1" -m slurm_dispatch.cli.main again; {WATCH} --finish'
    process = beside(scene, script, environment=scene.environment(SLURM_DISPATCH_RECORD=made.folder))
    until(lambda: "a first start" in said(scene), "the helper")
    scene.open("go")
    assert process.wait(120) == 0
    assert [fact.body["outcome"] for fact in ended(made)] == ["unfinished"]
