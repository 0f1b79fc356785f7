"""A job's settings: where they can stand, which place counts, every error at once, and the site's limits above."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.config.settings import JOB_SETTINGS
from slurm_dispatch.model.quantity import parse_moment
from slurm_dispatch.records.fold import fold
from tests.submit.scene import SCRIPT, Scene

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "#!/bin/bash\n"
END = "exec dispatch-watch -- x\n"


def specified(scene: Scene, *argv: str, script: str = SCRIPT) -> dict[str, Any]:
    """The specification of a job that was submitted."""
    result = scene.sbatch("--no-plan", *argv, scene.write("job.sh", script))
    assert (result.status, len(result.ours)) == (0, 1)
    return dict(scene.facts()[0].body)


def refused(scene: Scene, *argv: str, script: str = SCRIPT, status: int = 64) -> str:
    """The one line of a refusal; nothing is submitted or written."""
    result = scene.sbatch(*argv, scene.write("job.sh", script))
    assert (result.status, result.stdout, len(result.ours)) == (status, b"", 1)
    assert (scene.records(), scene.calls("sbatch"), scene.root.exists()) == ([], [], False)
    return result.ours[0]


def test_where_nothing_is_said(scene: Scene) -> None:
    spec = specified(scene)
    names = ("shared", "shared_hold_for_s", "stall_s", "suspect_s", "max_submissions", "max_node_hours", "until")
    assert [spec[name] for name in names] == [False, 86400, None, None, 100, None, None]
    assert (spec["no_progress"], spec["account"], spec["partition"], spec["rules"]) == (5, "", "", [])
    assert spec["origins"]["max-submissions"] == "built in"
    assert spec["origins"]["checkpoint"] == "the command line"


def test_every_setting_on_the_command_line() -> None:
    with Scene("suspicion = true\n") as scene:
        spec = specified(
            scene, "--stall=30m", "--suspect", "30s", "--max-submissions", "7", "--max-node-hours=1.5",
            "--until=2999-01-31T00:00Z", "--no-progress-limit=3", "--on", "failed:requeue", "-pgpu,cpu", "-A", "phys",
        )  # fmt: skip
    names = ("stall_s", "suspect_s", "max_submissions", "max_node_hours", "until", "no_progress")
    assert [spec[name] for name in names] == [1800, 30, 7, 1.5, parse_moment("2999-01-31T00:00Z", 0), 3]
    assert (spec["rules"], spec["account"], spec["partition"]) == (["failed:requeue"], "phys", "gpu,cpu")
    assert spec["origins"]["on 1"] == "the command line"


def test_a_shared_checkpoint_reaches_word_and_job(scene: Scene) -> None:
    """The word ends in :s, Slurm must not requeue it, and the helper is told; so is it of --stall."""
    spec = specified(scene, "--shared-checkpoint", "--shared-hold-for=2h", "--stall=90s")
    assert (spec["shared"], spec["shared_hold_for_s"]) == (True, 7200)
    call = scene.call()
    assert next(word for word in call.argv if word.startswith("--comment=")).endswith(":0:1:s")
    assert "--no-requeue" in call.argv
    assert (call.environment["SLURM_DISPATCH_SHARED"], call.environment["SLURM_DISPATCH_STALL"]) == ("1", "90")


def test_slurms_own_requeue_is_not_for_a_shared_checkpoint(scene: Scene) -> None:
    """P8: --requeue is taken back, from wherever it comes; later submissions have --no-requeue too."""
    spec = specified(scene, "--shared-checkpoint", "--requeue", script=HEAD + "#SBATCH --requeue\n" + END)
    for argv in (scene.call().argv, spec["argv"]):
        said = [word for word in argv if word in {"--requeue", "--no-requeue"}]
        assert said[-1] == "--no-requeue"


def test_inherited_ones_do_not_reach_the_job(scene: Scene) -> None:
    env = {"SLURM_DISPATCH_SHARED": "1", "SLURM_DISPATCH_STALL": "5"}
    scene.sbatch("train.sh", env=env)
    assert not set(env) & set(scene.call().environment)


JOB_FILE = """
# mine
checkpoint = "/elsewhere"
stall = "1h"
max-submissions = 3
max-node-hours = 4
until = 2999-01-31
no-progress-limit = 9
on = [
  "timeout:hold",
  "failed:stop",
]
"""


def test_the_command_line_beats_the_script_and_that_the_job_file() -> None:
    """Rules add up in the same order; each value says where it stands."""
    with Scene("no_progress = 8\nmax_node_hours = 1\n") as scene:
        scene.write("run.toml", JOB_FILE)
        script = (
            HEAD + "#DISPATCH --job-file run.toml --max-submissions 4\n#DISPATCH --on lost:stop --stall=2h\n" + END
        )
        spec = specified(scene, "--stall", "3h", "--on", "failed:hold", script=script)
    assert (spec["root"], spec["stall_s"], spec["max_submissions"]) == (str(scene.root), 10800, 4)
    assert (spec["max_node_hours"], spec["no_progress"]) == (4, 9)
    assert spec["rules"] == ["failed:hold", "lost:stop", "timeout:hold", "failed:stop"]
    file = "run.toml, line"
    assert {name: spec["origins"][name] for name in ("stall", "max-submissions", "max-node-hours", "until")} == {
        "stall": "the command line", "max-submissions": "line 2 of the script", "max-node-hours": f"{file} 6",
        "until": f"{file} 7",
    }  # fmt: skip
    assert [spec["origins"][f"on {number}"] for number in (1, 2, 3, 4)] == [
        "the command line", "line 3 of the script", f"{file} 9, rule 1", f"{file} 9, rule 2",
    ]  # fmt: skip


def test_the_sites_defaults_come_last() -> None:
    site = 'no_progress = 8\nmax_node_hours = 1\nstall_s = "6h"\nmax_submissions = 9\nshared_hold_for_s = "3d"\n'
    with Scene(site) as scene:
        spec = specified(scene)
    names = ("no_progress", "max_node_hours", "stall_s", "max_submissions", "shared_hold_for_s")
    assert [spec[name] for name in names] == [8, 1, 21600, 9, 3 * 86400]
    assert spec["origins"]["no-progress-limit"] == f"the site's no_progress ({scene.config}, line 4)"


def test_another_job_file_on_the_command_line_counts_alone(scene: Scene) -> None:
    scene.write("a.toml", 'stall = "1h"\n')
    scene.write("b/b.toml", "max-submissions = 3\n")
    spec = specified(scene, "--job-file=~/b/b.toml", script=HEAD + "#DISPATCH --job-file a.toml\n" + END)
    assert (spec["stall_s"], spec["max_submissions"]) == (None, 3)


def test_everything_that_is_wrong_is_said_at_once_with_its_place(scene: Scene) -> None:
    scene.write(
        "bad.toml",
        'stall = 5\non = ["failed:stop", "failed:retry"]\ncolour = 1\nno-plan = true\nmax-submissions = "x"\n',
    )
    script = (
        HEAD + "#DISPATCH --job-file bad.toml --until 2001-01-01\n#DISPATCH --max-node-hours=-1 --on lost\n" + END
    )
    line = refused(
        scene, "--stall", "3", "--no-progress-limit=0", "--suspect=1h1m", "--on=failed:hold,for=3",
        f"--max-submissions={'9' * 30}", script=script,
    )  # fmt: skip
    file = "bad.toml, line"
    for part in (
        "the command line: --stall: '3' is not a duration",
        "the command line: --no-progress-limit: 0 is out of bounds, it is 1 to 1000",
        "the command line: --suspect: '1h1m' is not a duration",
        "the command line: rule 'failed:hold,for=3': for: '3' is not a duration",
        "line 2 of the script: --until: 2001-01-01 is over",
        "line 3 of the script: --max-node-hours: -1 is out of bounds, it is 0.01 to 1000000000",
        f"the command line: --max-submissions: {'9' * 30} is out of bounds, it is 1 to 999999",
        "line 3 of the script: rule 'lost' has no action",
        f"{file} 1: stall: 5s is out of bounds, it is 1m to 30d",
        f"{file} 2, rule 2: rule 'failed:retry'",
        f"{file} 3: colour is not a setting of a job file",
        f"{file} 4: no-plan is not a setting of a job file",
        f"{file} 5: max-submissions: x is not a number",
    ):
        assert part in line


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--job-file", "none.toml"], "the command line: job file: reading"),
        (["--job-file", "broken.toml"], "broken.toml is not TOML"),
        (["--job-file", "$NONE"], "the variable NONE is not set"),
        (["--job-file=a", "--job-file=b"], "--job-file stands twice in the command line"),
        (["--stall=1h", "--stall=2h"], "--stall stands twice in the command line"),
        (["--until", "30d", "--until", "31d"], "--until stands twice"),
        (["--stall"], "is not a duration"),
        (["--shared-checkpoint=yes"], "--shared-checkpoint takes no value"),
        (["--shared-checkpoint", "--suspect=30s"], "suspect is not for a shared checkpoint"),
        (["--on=failed:stop"] * 101, "101 rules are more than the 100"),
    ],
)
def test_what_is_refused(scene: Scene, argv: Sequence[str], says: str) -> None:
    scene.write("broken.toml", "stall = ")
    assert says in refused(scene, *argv)


def test_more_than_a_record_holds_is_refused_in_time(scene: Scene) -> None:
    every = "+".join(str(number) for number in range(1, 255, 2))
    rule = f"failed,timeout,lost,stalled,preempted:hold,codes={every},signals={'+'.join(every.split('+')[:32])}"
    line = refused(scene, *(["--on", rule] * 100))
    assert "the job's settings do not fit into its record: fact 1 has" in line


LIMITS = """
longest_hold_s = "10d"
[[limit]]
partition = ["gpu"]
actions = ["resubmit"]
longest_hold_s = "2d"
[[limit]]
account = ["phys"]
overlap = 0
"""


def test_what_the_sites_limits_do_not_allow_is_refused_with_both_places() -> None:
    """77, and all at once: the action, the length of a hold, suspicion, the cap on submissions."""
    with Scene(LIMITS) as scene:
        line = refused(
            scene, "-pgpu", "--on=failed:requeue", "--on=lost:hold,for=3d", "--suspect=30s", "--shared-hold-for=3d",
            "--max-submissions=10001", status=77,
        )  # fmt: skip
        for part in (
            "the command line: rule 'failed:requeue': the site's limit 1 does not allow requeue",
            "the command line: rule 'lost:hold,for=3d': a hold of more than 48h is not allowed (the site's limit 1)",
            "the command line: this site does not allow --suspect",
            "--shared-hold-for 3d is longer than the 48h that the site's limit 1 allows",
            "--max-submissions 10001 is more than the 10000",
        ):
            assert part in line
        line = refused(scene, "-pcpu", "--on=failed:requeue", "--on=lost:hold,for=11d", status=77)
        assert "requeue" not in line
        assert "more than 10d is not allowed (the site's longest_hold_s)" in line
        assert specified(scene, "-pgpu", "--shared-checkpoint", "--on=failed:requeue")["rules"] == ["failed:requeue"]


def test_a_limit_on_overlap_refuses_suspicion() -> None:
    with Scene("suspicion = true\n" + LIMITS) as scene:
        assert "the site's limit 2 does not allow --suspect" in refused(scene, "-Aphys", "--suspect=30s", status=77)
        assert specified(scene, "-Achem", "--suspect=30s")["suspect_s"] == 30


def test_a_default_is_bounded_by_a_limit_without_a_word() -> None:
    with Scene('shared_hold_for_s = "5d"\n' + LIMITS) as scene:
        assert specified(scene, "-pgpu", "--shared-checkpoint")["shared_hold_for_s"] == 2 * 86400


def test_one_open_job_too_many_is_refused() -> None:
    """Only open jobs that the limit names count; a closed one makes room."""
    with Scene('[[limit]]\npartition = ["gpu"]\nopen_jobs = 1\n') as scene:
        assert scene.sbatch("-pgpu", "train.sh").status == 0
        scene.root = scene.path / "scratch" / "two"
        result = scene.sbatch("-pgpu", "train.sh")
        assert (result.status, result.stdout, len(scene.records())) == (77, b"", 1)
        assert "you have 1 open jobs, and the site's limit 1 allows 1" in result.ours[0]
        assert not scene.root.exists()
        assert scene.sbatch("-pcpu", "train.sh").status == 0
    with Scene('[[limit]]\npartition = ["gpu"]\nopen_jobs = 1\n') as scene:
        scene.sbatch("-pgpu", "train.sh")
        scene.append("closed", why="superseded", reason="x", by_job="abc")
        assert fold(scene.facts()).closed is not None
        scene.root = scene.path / "scratch" / "two"
        assert scene.sbatch("-pgpu", "train.sh").status == 0


def table(lines: Sequence[str], head: str) -> dict[str, tuple[str, str]]:
    """A table of config show: value and origin by name."""
    start = next(number for number, line in enumerate(lines) if line.startswith(head))
    columns = (lines[start].index("VALUE"), lines[start].index("FROM"))
    found = {}
    for line in lines[start + 1 :]:
        if not line:
            break
        value, _, origin = line[columns[0] :].partition("  ") if len(line) > columns[1] else (line, "", "")
        found[line[: columns[0]].strip()] = (value.strip(), origin.strip())
    return found


def test_config_show_of_the_site() -> None:
    """Every setting, its value as a file has it, and its line or that it is built in."""
    with Scene(
        'rules = ["failed:stop", "lost:hold,for=2d"]\nlongest_hold_s = 864000\n' + "[[limit]]\noverlap = 0\n"
    ) as scene:
        result = scene.run("config", "show")
    assert (result.status, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert lines[0] == f"Site: {scene.config}"
    found = table(lines, "SITE'S SETTING")
    assert found["state"] == (f'"{scene.path}/state"', "line 1")
    assert found["submit_timeout_s"] == ("60", "line 2")
    assert found["shared_hold_for_s"] == ('"24h"', "built in")
    assert found["longest_hold_s"] == ('"10d"', "line 5")
    assert found["cluster"] == ("-", "built in")
    assert (found["rules (1)"], found["rules (2)"]) == (("failed:stop", "line 4"), ("lost:hold,for=48h", "line 4"))
    assert found["limit 1: overlap"] == ("0", "line 7")
    assert "limit 1: per" not in found


def test_config_show_of_a_job() -> None:
    with Scene(LIMITS) as scene:
        scene.write("run.toml", 'stall = "1h"\n')
        name = scene.write("job.sh", HEAD + "#DISPATCH --job-file run.toml --on lost:stop\n#SBATCH -p gpu\n" + END)
        result = scene.run("config", "show", "--checkpoint", "~/%x", name)
        lines = result.stdout.decode().splitlines()
        assert (result.status, result.stderr) == (0, b"")
        found = table(lines, "JOB'S SETTING")
        assert set(found) - {"on (1)"} == {setting.name for setting in JOB_SETTINGS} - {"on"}
        assert found["checkpoint"] == (f'"{scene.home}/job.sh"', "the command line")
        assert found["stall"] == ('"1h"', "run.toml, line 1")
        assert found["on (1)"] == ("lost:stop", "line 2 of the script")
        assert found["max-submissions"] == ("100", "built in")
        limits = table(lines, "LIMIT OF THE SITE")
        assert limits == {
            "actions": ('["resubmit"]', "the site's limit 1"), "longest_hold_s": ('"48h"', "the site's limit 1"),
        }  # fmt: skip
        content = json.loads(scene.run("config", "show", "--json", "-J", "a", "--until", "9d", name).stdout)
        assert content.keys() == {"file", "site", "job", "rules", "limits"}
        assert content["job"]["stall"] == {"value": 3600, "from": "run.toml, line 1"}
        assert content["job"]["checkpoint"] == {"value": None, "from": "built in"}
        assert content["rules"] == [{"rule": "lost:stop", "from": "line 2 of the script"}]
        assert content["limits"] == {
            "actions": {"value": ["resubmit"], "from": "the site's limit 1"},
            "longest_hold_s": {"value": 172800, "from": "the site's limit 1"},
        }
        assert content["site"]["limit"]["value"][1]["account"] == ["phys"]
        assert content["site"]["longest_hold_s"]["value"] == 10 * 86400
        assert (scene.records(), scene.calls("sbatch")) == ([], [])


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["config", "set"], 64, "dispatch config show"),
        (["config", "show", "none.sh"], 66, "there is no job to show settings of"),
        (["config", "show", "--stall=x", "train.sh"], 64, "is not a duration"),
    ],
)
def test_what_config_cannot_show(scene: Scene, argv: list[str], status: int, words: str) -> None:
    result = scene.run(*argv)
    assert (result.status, result.stdout, len(result.ours)) == (status, b"", 1)
    assert words in result.ours[0]


def test_config_show_says_all_that_is_wrong_with_the_site(scene: Scene) -> None:
    scene.config.write_text('state = "x"\ncolour = 1\n')
    result = scene.run("config", "show")
    assert (result.status, result.stdout) == (78, b"")
    assert "state (line 1): " in result.ours[0]
    assert "colour (line 2): " in result.ours[0]
