"""``dispatch update``: what the next submission is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.config.site import load_site
from slurm_dispatch.records.replay import replay
from slurm_dispatch.submit.update import read_update
from tests.people.desk import Desk, make_desk
from tests.records.life import make_spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ARGV = ("--job-name=train", "-pshort", "-Qn4", "--mem-per-cpu", "2G", "--no-requeue")


def argv_of(desk: Desk, key: str) -> list[str]:
    """sbatch's arguments of the latest submission."""
    found: list[str] = desk.object(desk.rig.object(key))["argv"]
    return found


def test_the_next_submission_has_it_and_what_is_there_is_left_alone(desk: Desk) -> None:
    key = desk.running(argv=ARGV)
    number = desk.rig.object(key)
    before = desk.object(number)
    text = desk.ok("update", key, "-phigh", "--mem", "64G", "--reason", "more room")
    will = "submission 2 will have --partition=high, --mem=64G"
    assert text == f"job {key}: {will}; what is in Slurm now stays as it is\n"
    assert desk.object(number) == before
    assert desk.phase(key) == "running"
    desk.ended(key, "PREEMPTED")
    argv = argv_of(desk, key)
    kept = ["--job-name=train", "--ntasks=4", "--no-requeue", "--partition=high", "--mem=64G"]
    assert [word for word in argv if word in kept or word.startswith(("--mem", "-p", "--part", "-Q"))] == kept
    assert desk.state(key).spec.partition == "high"
    assert desk.rig.last(key, "updated").body["reason"] == "more room"
    assert all(it.same for it in replay(desk.rig.facts(key)))


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (("-t", "2-0"), (*ARGV, "--time=2-0")),
        (("-t2-0", "--time=3-0"), (*ARGV, "--time=2-0", "--time=3-0")),
        (("-n8",), ("--job-name=train", "-pshort", "--quiet", "--mem-per-cpu", "2G", "--no-requeue", "--ntasks=8")),
        (("--requeue",), (*ARGV[:-1], "--requeue")),
        (("--mem-per-gpu=1G",), ("--job-name=train", "-pshort", "-Qn4", "--no-requeue", "--mem-per-gpu=1G")),
        (("--tasks-per-node", "2"), (*ARGV, "--tasks-per-node=2")),
        (("--exclusive",), (*ARGV, "--exclusive")),
        (("--exclusive=user",), (*ARGV, "--exclusive=user")),
        (("-sA", "ml"), (*ARGV, "--oversubscribe", "--account=ml")),
    ],
)
def test_options_take_the_place_of_those_of_their_name(
    tmp_path: Path, words: Sequence[str], argv: Sequence[str]
) -> None:
    config = tmp_path / "dispatch.toml"
    config.write_text('state = "/srv/state"\n')
    spec = make_spec(argv=ARGV)
    found = read_update(spec, words, None, site=load_site(str(config)), path_of=lambda _, text: text)
    assert (found.argv, found.script) == (argv, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--begin=tomorrow",), "--begin cannot be changed; it is of one submission"),
        (("--comment=x",), "--comment cannot be changed; it is of one submission"),
        (("-H",), "--hold cannot be changed"),
        (("-d", "afterok:1"), "--dependency cannot be changed"),
        (("--array=1-3",), "--array cannot be changed; dispatch supersede"),
        (("-D", "/tmp"), "--chdir cannot be changed"),
        (("-J", "x"), "--job-name cannot be changed"),
        (("--wrap=x",), "--wrap cannot be changed"),
        (("--usage",), "--usage cannot be changed"),
        (("--colour=red",), "sbatch has no option --colour"),
        (("-Z",), "sbatch has no option -Z"),
        (("--time",), "--time needs a value"),
        (("train.sh",), "'train.sh' is not an option; another script is given with --script FILE"),
        (("--checkpoint", "/x"), "--checkpoint cannot be changed; dispatch supersede"),
        (("--shared-checkpoint",), "--shared-checkpoint cannot be changed"),
        (("--start-from", "/x"), "--start-from cannot be changed"),
        (("--adopt-root",), "--adopt-root cannot be changed"),
        (("--unprotected",), "--unprotected cannot be changed"),
        (("--stall", "soon"), "the command line: --stall: 'soon' is not a duration"),
        (("--on", "failed:explode"), "explode"),
        (("--stall=30m", "--stall=1h"), "--stall stands twice in the command line"),
        ((), "nothing of job"),
        (("--reason", "why not"), "nothing of job"),
    ],
)
def test_what_cannot_be_changed_is_said_in_one_line(desk: Desk, words: Sequence[str], says: str) -> None:
    key = desk.job()
    assert says in desk.refused(64, "update", key, *words)
    assert "updated" not in desk.rig.kinds(key)


def test_the_job_comes_first_and_is_open(desk: Desk) -> None:
    over = desk.closed()
    assert "the job comes first" in desk.refused(64, "update", "--time=1", over)
    assert "is closed (completed) and cannot be changed" in desk.refused(64, "update", over, "--time=1")
    assert "no job of yours" in desk.refused(66, "update", "nothing", "--time=1")
    assert os.listdir(desk.rig.record(over).folder).count("script") == 1


def test_an_option_of_a_plugin_is_taken(desk: Desk) -> None:
    key = desk.running()
    desk.ok("update", key, "--plugged", "x")
    assert desk.state(key).spec.argv[-1] == "--plugged=x"


def test_settings_and_rules(desk: Desk) -> None:
    key = desk.running("failed:hold", "preempted:stop")
    text = desk.ok("update", key, "--on", "preempted:resubmit", "--max-submissions", "7", "--stall", "30m")
    assert "the rules preempted:resubmit" in text
    assert "--stall=30m, --max-submissions=7;" in text
    spec = desk.state(key).spec
    assert (spec.rules, spec.max_submissions, spec.stall_s) == (("preempted:resubmit",), 7, 1800.0)
    assert spec.origins["stall"] == "dispatch update: the command line"
    desk.ended(key, "PREEMPTED")
    made = desk.object(desk.rig.object(key))
    assert made["handed"]["SLURM_DISPATCH_STALL"] == "1800"


def test_the_sites_limits_hold_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("most_submissions = 50", "max_submissions = 20")
    limit = ("[[limit]]", 'partition = ["high"]', 'actions = ["requeue"]')
    for desk in make_desk(monkeypatch, *lines, *limit):
        key = desk.job()
        assert "more than the 50" in desk.refused(77, "update", key, "--max-submissions", "51")
        line = desk.refused(77, "update", key, "-phigh", "--on", "failed:resubmit")
        assert "does not allow resubmit" in line
        assert "does not allow --suspect" in desk.refused(77, "update", key, "--suspect", "30s")
        desk.ok("update", key, "--on", "failed:resubmit")


def test_a_shared_job_is_never_started_again_by_slurm(desk: Desk) -> None:
    key = desk.job(shared=True)
    assert "--requeue is not for a shared checkpoint" in desk.refused(64, "update", key, "--requeue")
    assert "--suspect is not for a shared checkpoint" in desk.refused(64, "update", key, "--suspect", "30s")


def test_another_script(desk: Desk) -> None:
    key = desk.running()
    content = "#!/bin/sh\n#SBATCH --hold\n#DISPATCH --on failed:stop --stall 1h\nexec train --lr 2\n"
    script = desk.file("next.sh", content)
    text = desk.ok("update", key, "--script", "next.sh" if desk.root else script)
    assert f"submission 2 will have the script {script}, the rules failed:stop, --stall=1h;" in text
    desk.ended(key, "PREEMPTED")
    made = desk.object(desk.rig.object(key))
    assert made["script"].replace("#SBATCH", "").split() == content.replace("#SBATCH --hold", "").split()
    spec = desk.state(key).spec
    assert (spec.script_name, spec.rules, spec.stall_s) == (script, ("failed:stop",), 3600.0)
    assert "on disk" not in desk.ok("show", key)
    desk.file("next.sh", "#!/bin/sh\nexec other\n")
    hint = f"on disk     the script is another by now; dispatch update {key} --script {script} takes it\n"
    assert hint in desk.ok("show", key)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\n#DISPATCH --checkpoint /other\n", "line 2 of the script: --checkpoint cannot be changed"),
        ("#!/bin/sh\n#DISPATCH --shared-checkpoint\n", "line 2 of the script: --shared-checkpoint cannot be changed"),
        ("#!/bin/sh\n#DISPATCH --colour red\n", "line 2 of the script: --colour is not an option"),
        ("#!/bin/sh\n#SBATCH --array=1-3\n", "the script describes an array"),
        ("#!/bin/sh\n#SBATCH -M second\n", "the script goes to another cluster"),
        ("#!/bin/sh\n#SBATCH hetjob\n", "the script describes an array or a heterogeneous job"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_script_that_is_another_job_is_refused(desk: Desk, script: str | None, says: str) -> None:
    key = desk.job()
    path = "nowhere.sh" if script is None else desk.file("next.sh", script)
    assert says in desk.refused(64, "update", key, "--script", path)
    assert [it for it in os.listdir(desk.rig.record(key).folder) if it.startswith("script")] == ["script"]
    wrapped, path = desk.job(wrap=True), desk.file("a.sh", "#!/bin/sh\n")
    assert "has no script" in desk.refused(64, "update", wrapped, "--script", path)


def test_the_same_root_may_stand_in_the_script(desk: Desk) -> None:
    """Written as it was at the submission, seen from that folder and with that environment."""
    key = desk.job(root="/home/ada/ckpt", workdir="/home/ada/work")
    for text in ("/home/ada/ckpt", "$HOME/ckpt", "../ckpt"):
        desk.ok("update", key, "--script", desk.file("next.sh", f"#!/bin/sh\n#DISPATCH --checkpoint {text}\n"))


def test_what_a_person_says_counts_for_more_than_what_a_rule_had_changed(desk: Desk) -> None:
    key = desk.waiting()
    desk.ok("update", key, "--time=3-0")
    desk.tick()
    assert [word for word in argv_of(desk, key) if word.startswith("--time")] == ["--time=3-0"]


def test_a_rule_does_not_grow_a_limit_that_a_person_has_just_set(desk: Desk) -> None:
    key = desk.running("timeout:resubmit,time=2x..9d")
    desk.ok("update", key, "--time=3-0")
    limits = {"limits": {"time_s": 3600}, "changed": ["--time=120"]}
    desk.add(key, "end", submission=1, slurm_job_id=desk.rig.object(key), restart=0, start_time=None,
             outcome="timeout", evidence=limits, final=True)  # fmt: skip
    desk.tick()
    assert [word for word in argv_of(desk, key) if word.startswith("--time")] == ["--time=3-0"]
    number = desk.rig.object(key)
    desk.add(key, "end", submission=2, slurm_job_id=number, restart=0, start_time=None, outcome="timeout",
             evidence={"limits": {"time_s": 259200}}, final=True)  # fmt: skip
    desk.tick()
    times = [word for word in argv_of(desk, key) if word.startswith("--time")]
    assert times == ["--time=3-0", "--time=6-00:00:00"]
    assert all(it.same for it in replay(desk.rig.facts(key)))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_reads_with_the_rights_of_the_owner(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    key = desk.job()
    monkeypatch.setenv("ROOTS", "/roots")
    secret = os.path.join(desk.home, "secret.sh")
    with open(secret, "w", encoding="ascii") as stream:
        stream.write("#!/bin/sh\nexec secret\n")
    os.chmod(secret, 0o600)
    link = os.path.join(desk.home, "link.sh")
    os.symlink(secret, link)
    assert "Permission denied" in desk.refused(64, "update", key, "--script", link, by_root=True)
    assert "the variable ROOTS is not set" in desk.refused(64, "update", key, "--job-file", "$ROOTS/x", by_root=True)
    desk.ok("update", key, "--script", desk.file("a.sh", "#!/bin/sh\n"), by_root=True)
    folder = desk.rig.record(key).folder
    assert {os.stat(os.path.join(folder, name)).st_uid for name in os.listdir(folder)} == {desk.rig.uid}


def test_a_job_file_is_seen_from_where_the_person_is(desk: Desk) -> None:
    key = desk.job()
    desk.file("job.toml", 'stall = "45m"\non = ["failed:stop"]\n')
    where = "job.toml" if desk.root else os.path.join(desk.home, "job.toml")
    desk.ok("update", key, "--job-file", where)
    assert (desk.state(key).spec.stall_s, desk.state(key).spec.rules) == (2700.0, ("failed:stop",))
    assert json.loads(desk.ok("show", key, "--json"))["state"] == "queued"


def test_a_setting_is_taken_away_again(desk: Desk) -> None:
    key = desk.job(stall_s=60.0)
    assert "will have --no-stall" in desk.ok("update", key, "--no-stall")
    assert desk.state(key).spec.stall_s is None
