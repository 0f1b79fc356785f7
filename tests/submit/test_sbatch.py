"""``dispatch sbatch`` against stand-ins for Slurm's commands: what is typed, and what reaches sbatch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.config.site import load_site
from slurm_dispatch.errors import NotAllowedError
from slurm_dispatch.slurm.limits import NAMES
from slurm_dispatch.submit import first
from slurm_dispatch.submit.request import Plain, prepare

if TYPE_CHECKING:
    from tests.submit.scene import Scene


def own_words(argv: list[str]) -> list[str]:
    """argv without the comment of ours."""
    return [word for word in argv if not word.startswith("--comment=dispatch:")]


def test_a_plain_submission(scene: Scene) -> None:
    """sbatch's words are untouched and in order, ours come after them and before the script, the record is whole."""
    result = scene.sbatch("-N", "2", "--time=10", "-J", "x y", "train.sh", "--epochs", "10")
    call = scene.call()
    key = scene.record().key
    assert (result.status, result.stdout, result.theirs) == (0, b"Submitted batch job 101\n", b"")
    assert call.argv == [
        "-N", "2", "--time=10", "-J", "x y", "--no-requeue", f"--comment=dispatch:{key}:0:1",
        "train.sh", "--epochs", "10",
    ]  # fmt: skip
    assert scene.kinds() == ["spec", "intent", "submitted"]
    assert result.ours[0].startswith(f"job {key}, Slurm job 101, checkpoint root {scene.root}")
    assert scene.record().script() == (scene.home / "train.sh").read_bytes()
    spec = scene.facts()[0].body
    assert spec["argv"] == ["--nodes=2", "--time=10", "--job-name=x y", "--no-requeue"]
    assert (spec["script_name"], spec["script_args"], spec["workdir"]) == (
        "train.sh",
        ["--epochs", "10"],
        str(scene.home),
    )
    assert (spec["cluster"], spec["name"], spec["umask"]) == ("alpha", "x y", 0o022)
    assert scene.facts()[2].body == {"submission": 1, "cluster": "alpha", "slurm_job_id": 101, "how": "answer"}


def test_the_job_environment(scene: Scene) -> None:
    """Ours is set, what an outer job left is gone, the rest is as it was; the record has the limits too."""
    stale = {
        "DISPATCH_EPOCH": "1000000", "SLURM_DISPATCH_DIR": "/old", "SLURM_RESTART_COUNT": "3",
        "MINE": "a\nb", "É": "\udcff",
    }  # fmt: skip
    scene.sbatch("--start-from", "old/save", "train.sh", env=stale)
    environment = scene.call().environment
    assert environment["SLURM_DISPATCH_CHECKPOINT"] == str(scene.root)
    assert environment["SLURM_DISPATCH_RECORD"] == scene.record().folder
    assert environment["SLURM_DISPATCH_START_FROM"] == str(scene.home / "old/save")
    assert environment["MINE"] == "a\nb"
    assert environment["É"] == "\udcff"
    assert not {"DISPATCH_EPOCH", "SLURM_DISPATCH_DIR", "SLURM_RESTART_COUNT"} & environment.keys()
    recorded = dict(entry.split(b"=", 1) for entry in scene.record().environment().split(b"\0") if entry)
    assert recorded[b"MINE"] == b"a\nb"
    assert {f"SLURM_RLIMIT_{name}".encode() for name in NAMES} <= recorded.keys()


def test_a_save_to_start_from_in_s3(scene: Scene) -> None:
    """With what is put into paths; one slash at the end makes no difference, and what is no save is refused."""
    scene.sbatch("--start-from", "s3://models/$WHO/llm-7b/", "train.sh", env={"WHO": "me"})
    assert scene.call().environment["SLURM_DISPATCH_START_FROM"] == "s3://models/me/llm-7b"
    assert scene.facts()[0].body["start_from"] == "s3://models/me/llm-7b"
    for wrong, why in (("s3://models", "names no save"), ("s3://m/../x", "not plain"), ("gs://m/x", "a path, or s3://")):
        result = scene.sbatch("--start-from", wrong, "train.sh")
        assert (result.status, len(result.ours)) == (64, 1)
        assert why in result.ours[0]


def test_quotes_in_a_wrapped_command(scene: Scene) -> None:
    """C010: the wrapped command is one word and stays it."""
    command = 'echo "a b" && echo it\'s $HOME `id`'
    scene.sbatch("--wrap", command)
    assert own_words(scene.call().argv) == ["--wrap", command, "--no-requeue"]
    spec = scene.facts()[0].body
    assert (spec["wrap"], spec["name"], spec["script_name"]) == (True, "wrap", None)
    assert spec["argv"] == [f"--wrap={command}", "--no-requeue"]


def test_no_shell_reads_names(scene: Scene) -> None:
    """C012: parentheses, '=', '*' and ':' in a script's path and a job's name reach sbatch as they are."""
    name = scene.write("D01_log(kd)=-1...1/run.slurm", "#!/bin/sh\n:\n")
    job = "r dates=1:7_c(4,2*7)#1"
    scene.sbatch("-J", job, name)
    assert own_words(scene.call().argv) == ["-J", job, "--no-requeue", name]
    assert scene.facts()[0].body["name"] == job


@pytest.mark.parametrize("first", ["#!/usr/bin/env -S python3 -u", "#!/usr/bin/python3", "#!/bin/bash -l"])
def test_the_first_line_stays_first(scene: Scene, first: str) -> None:
    """C014: the script is the user's file: no text of ours in it, whatever its interpreter."""
    name = scene.write("a.py", f"{first}\nprint(1)\n")
    scene.sbatch(name)
    assert scene.call().argv[-1] == name
    assert (scene.home / "a.py").read_text() == f"{first}\nprint(1)\n"


def test_directives_after_a_comment_and_a_blank_line(scene: Scene) -> None:
    """C015: a directive after comments and blank lines counts as for sbatch: the array is seen, and refused."""
    name = scene.write("a.sh", "#!/bin/bash\n# text\n\n#SBATCH --array=1-3%2\necho\n")
    result = scene.sbatch(name)
    assert result.status == 64
    assert "arrays" in result.ours[-1]
    assert scene.calls("sbatch") == []
    after = scene.write("b.sh", "#!/bin/bash\necho\n#SBATCH --array=1-3%2\n#DISPATCH --nonsense\n")
    assert scene.sbatch(after).status == 0


def test_the_script_goes_by_its_path(scene: Scene) -> None:
    """C017: sbatch opens the user's own file by the name that was typed, so Command= and $0 are as without us."""
    scene.write("sub/run.sh", "#!/bin/sh\n:\n")
    scene.sbatch("-D", "/tmp", "sub/run.sh")
    assert own_words(scene.call().argv) == ["-D", "/tmp", "--no-requeue", "sub/run.sh"]
    assert scene.call().folder == str(scene.home)


@pytest.mark.parametrize("script", ["#!/bin/sh\n:\n", "#!/bin/sh\n#SBATCH --export=NONE\n:\n"])
@pytest.mark.parametrize("options", [[], ["--export=ALL,MASTER_PORT=29999"], ["--export=NONE"]])
def test_export_is_the_users(scene: Scene, script: str, options: list[str]) -> None:
    """C021: no --export of ours, ever; what the job needs travels in variables that pass anyway."""
    scene.sbatch(*options, scene.write("a.sh", script))
    assert [word for word in scene.call().argv if word.startswith("--export")] == options
    assert "SLURM_DISPATCH_CHECKPOINT" in scene.call().environment


@pytest.mark.parametrize(
    ("options", "variables"),
    [(["--array=1-10000%500"], {}), (["-a", "1"], {}), (["--arr=1"], {}), ([], {"SBATCH_ARRAY_INX": "0-15:4"})],
)
def test_arrays_are_refused(scene: Scene, options: list[str], variables: dict[str, str]) -> None:
    """C027: an array is refused with one line, however it is asked for."""
    result = scene.sbatch(*options, "train.sh", env=variables)
    assert (result.status, len(result.ours)) == (64, 1)
    assert scene.calls("sbatch") == []
    assert scene.records() == []


def test_a_script_from_standard_input(scene: Scene) -> None:
    """The script that we read for the record reaches sbatch byte for byte."""
    script = b"#!/bin/sh\n#SBATCH -N1\n\xff\n"
    scene.sbatch("-n1", stdin=script)
    assert scene.call().stdin.encode("utf-8", "surrogateescape") == script
    assert scene.record().script() == script
    assert own_words(scene.call().argv) == ["-n1", "--no-requeue"]
    assert scene.facts()[0].body["name"] == "sbatch"


def test_a_script_that_can_be_read_once(scene: Scene) -> None:
    """`dispatch sbatch <(make-script)`: the pipe is read once, by us, and sbatch still gets script and arguments."""
    os.mkfifo(scene.home / "pipe")
    os.chmod(scene.home / "pipe", 0o644)
    running = scene.start(["sbatch", "--checkpoint", str(scene.root), "pipe", "a", "b"])
    with open(scene.home / "pipe", "w") as pipe:
        pipe.write("#!/bin/sh\necho from a pipe\n")
    assert running.wait().status == 0
    call = scene.call()
    assert list(call.files.values()) == ["#!/bin/sh\necho from a pipe\n"]
    assert call.argv[-3:] == [next(iter(call.files)), "a", "b"]
    assert "--job-name=pipe" in call.argv


def test_dashes_before_the_script(scene: Scene) -> None:
    """Ours stand before '--', and a script that begins with a dash is the script."""
    scene.write("-odd.sh", "#!/bin/sh\n:\n")
    scene.sbatch("-N1", "--", "-odd.sh", "--checkpoint", "x")
    assert own_words(scene.call().argv) == ["-N1", "--no-requeue", "--", "-odd.sh", "--checkpoint", "x"]


def test_unprotected(scene: Scene) -> None:
    """--unprotected: sbatch with the user's words, and nothing of ours anywhere."""
    result = scene.run("sbatch", "--unprotected", "-N1", "train.sh", env={"DISPATCH_JOB": "x"})
    assert (result.status, result.ours) == (0, [])
    assert scene.call().argv == ["-N1", "train.sh"]
    assert not [
        name for name in scene.call().environment if name.startswith("SLURM_DISPATCH_") or name == "DISPATCH_JOB"
    ]
    assert scene.records() == []


@pytest.mark.parametrize(
    ("options", "variables", "line", "added"),
    [
        ([], {}, "", ["--no-requeue"]),
        (["--requeue"], {}, "", []),
        ([], {"SBATCH_REQUEUE": ""}, "", []),
        ([], {"SBATCH_REQUEUE": "0"}, "", ["--no-requeue"]),
        ([], {}, "#SBATCH --requeue", []),
        (["--no-requeue"], {"SBATCH_REQUEUE": "1"}, "#SBATCH --requeue", ["--no-requeue"]),
        (["--on=failed:requeue"], {}, "", ["--requeue"]),
        (["--on=failed:requeue", "--no-requeue"], {}, "", ["--no-requeue"]),
        (["--on=failed:requeue", "--shared-checkpoint"], {}, "", ["--no-requeue"]),
        (["-o", "log.txt"], {}, "", ["--no-requeue", "--open-mode=append"]),
        ([], {"SBATCH_OUTPUT": "log.txt"}, "", ["--no-requeue", "--open-mode=append"]),
        ([], {}, "#SBATCH -e log.txt", ["--no-requeue", "--open-mode=append"]),
        (["-o", "log-%5j.txt"], {}, "", ["--no-requeue"]),
        (["-o", "log.txt"], {}, "#SBATCH --open-mode=truncate", ["--no-requeue"]),
        (["-o", "log.txt"], {"SBATCH_OPEN_MODE": "truncate"}, "", ["--no-requeue"]),
    ],
)
def test_what_we_add(
    scene: Scene, options: list[str], variables: dict[str, str], line: str, added: list[str]
) -> None:
    """C048: --no-requeue and --open-mode=append only where the user set nothing, in any of the three places."""
    name = scene.write("a.sh", f"#!/bin/sh\n{line}\n:\n")
    scene.sbatch(*options, name, env=variables)
    theirs = [word for word in options if not word.startswith(("--on=", "--shared-"))]
    assert own_words(scene.call().argv) == [*theirs, *added, name]


@pytest.mark.parametrize("place", ["argv", "directive"])
def test_the_users_comment(scene: Scene, place: str) -> None:
    """The user's comment stays, the identity word is its last; a word that was copied from another job goes."""
    text = "my run dispatch:abc:0:7 two"
    name = scene.write(
        "a.sh", "#!/bin/sh\n" + (f'#SBATCH --comment="{text}"\n:\n' if place == "directive" else ":\n")
    )
    scene.sbatch(*(["--comment", text] if place == "argv" else []), name)
    comments = [word for word in scene.call().argv if word.startswith("--comment=")]
    assert comments == [f"--comment=my run two dispatch:{scene.record().key}:0:1"]
    assert scene.facts()[0].body["comment"] == "my run two"


@pytest.mark.parametrize(
    ("variables", "recorded"),
    [({"SBATCH_REQUEUE": "1"}, ["--requeue"]), ({"SBATCH_REQUEUE": "0"}, ["--no-requeue"])],
)
def test_a_variable_that_says_requeue(scene: Scene, variables: dict[str, str], recorded: list[str]) -> None:
    """A later submission has it as an option, which sbatch before 25.11 refuses with a value."""
    scene.sbatch("-J", "x", "train.sh", env=variables)
    argv = scene.facts()[0].body["argv"]
    assert [word for word in argv if "requeue" in word] == recorded


def test_heterogeneous_jobs_are_refused(scene: Scene) -> None:
    """C030: one line, whether the command line or the script says so, and nothing is made."""
    for result in (
        scene.sbatch("-N1", ":", "-N2", "train.sh"),
        scene.sbatch(scene.write("h.sh", "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n:\n")),
    ):
        assert result.status == 64
        assert "heterogeneous" in result.ours[-1]
        assert len(result.ours) == 1
    assert scene.calls("sbatch") == []
    assert scene.records() == []


def test_our_directives(scene: Scene) -> None:
    """#DISPATCH lines count up to the first command, with ~, variables and patterns; the command line is stronger."""
    name = scene.write(
        "d.sh",
        "#!/bin/sh\n#SBATCH -J net/7\n#DISPATCH --checkpoint ~/$RUN-%x-%u-%A  # ours\n"
        "#DISPATCH --on failed:stop\n:\n#DISPATCH --bad\n",
    )
    result = scene.run("sbatch", "--on", "preempted:resubmit,budget=3", name, env={"RUN": "r"})
    assert result.status == 0
    spec = scene.facts()[0].body
    assert spec["root"] == f"{scene.home}/r-net_7-{scene.user}-{spec['job']}"
    assert spec["rules"] == ["preempted:resubmit,budget=3", "failed:stop"]
    assert os.path.isdir(spec["root"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--chekpoint x", "--chekpoint"),
        ("--nodes=2", "--nodes"),
        ("checkpoint x", "checkpoint"),
        ("--checkpoint", "needs a value"),
        ("--adopt-root=1", "takes no value"),
        ("--checkpoint $NOT_SET", "NOT_SET"),
        ("--checkpoint a%j", "%j"),
        ('--checkpoint "a', "quote"),
        ("--on failed:explode", "explode"),
        ("--checkpoint gs://b/k", "s3://BUCKET/PREFIX"),
        ("--checkpoint s3://", "not plain"),
        ("--checkpoint s3://bucket/a/../b", "not plain"),
        ("--checkpoint s3://x/a", "no bucket"),
        ("--checkpoint s3://bucket/a --shared-checkpoint", "--shared-checkpoint is for a folder"),
    ],
)
def test_wrong_directives(scene: Scene, line: str, words: str) -> None:
    """Each is one line that names what is wrong, and nothing is submitted."""
    result = scene.run("sbatch", scene.write("d.sh", f"#!/bin/sh\n#DISPATCH {line}\n:\n"))
    assert (result.status, len(result.ours)) == (64, 1)
    assert words in result.ours[0]
    assert scene.calls("sbatch") == []


def test_all_that_is_wrong_with_directives(scene: Scene) -> None:
    """One line has every mistake with its place, and a hint that several have once."""
    lines = ["#DISPATCH --on failed:explode --on foo:stop", "", "#DISPATCH --on preempted", "#DISPATCH --chekpoint x"]
    lines += ["#DISPATCH --checkpoint a", '#DISPATCH --checkpoint b "', "#DISPATCH --checkpoint c --adopt-root=1"]
    name = scene.write("d.sh", "\n".join(["#!/bin/sh", *lines, ":", "#DISPATCH --on bar:stop"]))
    result = scene.run("sbatch", "--on", "bad:stop", name)
    assert (result.status, len(result.ours)) == (64, 1)
    found = result.ours[0].split(" | ")
    begin = (
        "line 5 of the script: --chekpoint is not an option",
        "line 7 of the script: a quote is not closed",
        "line 8 of the script: --adopt-root takes no value",
        "--checkpoint stands twice in the script's #DISPATCH lines",
        "the command line: rule 'bad:stop': 'bad' is not an outcome; it is one of ",
        "line 2 of the script: rule 'failed:explode': 'explode' is not an action",
        "line 2 of the script: rule 'foo:stop': 'foo' is not an outcome",
        "line 4 of the script: rule 'preempted' has no action",
    )
    assert len(found) == len(begin)
    for said, wanted in zip(found, begin, strict=True):
        assert said.startswith(wanted)
    assert result.ours[0].count("it is one of unfinished") == 1
    assert scene.calls("sbatch") == []


def test_a_job_of_root(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10: refused with one line that says what to do; --unprotected is sbatch's alone."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    environment, script = scene.environment(), str(scene.home / "train.sh")
    site = load_site(str(scene.config))
    with pytest.raises(NotAllowedError) as caught:
        prepare(["--checkpoint", "r", script], environment=environment, site=site)
    assert caught.value.exit_code == 77
    assert caught.value.line() == (
        "jobs of root are not managed; submit it as the user whose job it is, or without recovery: "
        "dispatch sbatch --unprotected"
    )
    assert isinstance(prepare(["--unprotected", script], environment=environment, site=site), Plain)


def test_no_root(scene: Scene) -> None:
    """A job needs a checkpoint root, an inherited one is another job's."""
    result = scene.run("sbatch", "train.sh", env={"DISPATCH_CHECKPOINT": "/old", "SLURM_DISPATCH_CHECKPOINT": "/old"})
    assert result.status == 64
    assert "--checkpoint" in result.ours[0]


def test_a_root_in_s3(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is looked into by the place that was meant; the job, its record and the person have that place."""

    def prepared(path: str, *, adopt: bool) -> int:
        (scene.home / "asked").write_text(f"{path} {adopt}")
        return 3

    monkeypatch.setattr(first, "prepare_root", prepared)
    result = scene.run("sbatch", "--checkpoint", "s3://Runs/$USER/", "--adopt-root", "train.sh")
    assert result.status == 0, result.stderr
    place = f"s3://Runs/{scene.user}"
    asked = scene.home / "asked"
    assert asked.read_text() == f"{place} True"
    assert scene.call().environment["SLURM_DISPATCH_CHECKPOINT"] == place
    assert (scene.facts()[0].body["root"], scene.facts()[0].body["generation"]) == (place, 3)
    assert any(f"checkpoint root {place}" in line for line in result.ours)


def test_a_root_of_another_job(scene: Scene) -> None:
    """73 naming the job; --adopt-root starts above everything that is there."""
    own = scene.root / "own"
    own.mkdir(parents=True)
    (own / "4").symlink_to("otherjob")
    (scene.root / "pub").mkdir()
    (scene.root / "exec").mkdir()
    result = scene.sbatch("train.sh")
    assert result.status == 73
    assert "otherjob" in result.ours[-1]
    assert scene.calls("sbatch") == []
    assert scene.sbatch("--adopt-root", "train.sh").status == 0
    assert scene.facts()[0].body["generation"] == 5
    assert scene.call().argv[-2].endswith(":5:1")


def test_the_plan_is_said(scene: Scene) -> None:
    """The plan and what a person should know are on stderr behind the job's line, unless --no-plan."""
    name = scene.write("plain.sh", "#!/bin/sh\npython train.py\n")
    job, *lines = scene.sbatch("--on", "failed:stop", "--on", "preempted:resubmit,budget=1", name).ours
    assert job.startswith("job ")
    assert lines == [
        "plan: resubmit after unfinished, timeout, node_fail, boot_fail, preempted (once),",
        "      launch_failed, store_error",
        "plan: hold for 14d after out_of_memory, cancelled, not_resumed, lost",
        "plan: stop after failed, deadline",
        "plan: held after 100 submissions, or 5 executions in a row without a new save;",
        "      dispatch plan says more",
        "note: the script does not call dispatch-watch: no save is kept, published or handed",
        "      to the next run",
    ]
    scene.root = scene.path / "scratch" / "other"
    assert len(scene.sbatch("--no-plan", name).ours) == 1
    scene.root = scene.path / "scratch" / "third"
    said = scene.sbatch("--on", "failed:resubmit,codes=3", "--on", "failed:hold,for=4h", name).ours
    assert "plan: hold for 4h after failed (otherwise)" in said
    assert any("failed (status 3)" in line for line in said)


def test_an_option_of_a_plugin(scene: Scene) -> None:
    """A long option that the table does not have is looked up in sbatch's help, so that the script is found."""
    scene.answer(
        "sbatch", help="Options provided by plugins:\n      --container-image=[USER@]IMAGE   [pyxis] image\n"
    )
    scene.sbatch("--container-image", "img", "-N1", "train.sh")
    assert own_words(scene.call().argv) == ["--container-image", "img", "-N1", "--no-requeue", "train.sh"]
    assert "--container-image=img" in scene.facts()[0].body["argv"]


def test_a_script_beside_a_wrapped_command(scene: Scene) -> None:
    """It is sbatch that refuses it: it must see the script."""
    scene.sbatch("--wrap", "true", "train.sh", "x")
    assert own_words(scene.call().argv) == ["--wrap", "true", "--no-requeue", "train.sh", "x"]


@pytest.mark.parametrize(
    ("options", "repeated"),
    [(["-o", "log.txt"], True), (["-o", "log-%j"], False), (["-o", "log.txt", "--open-mode=truncate"], False)],
)
def test_later_submissions_cut_no_log(scene: Scene, options: list[str], *, repeated: bool) -> None:
    """C048: what we add to the first submission the next ones have too, and the user's choice wins in all of them."""
    scene.sbatch(*options, "train.sh")
    argv = scene.facts()[0].body["argv"]
    assert ("--open-mode=append" in argv) == repeated
    assert ("--open-mode=truncate" in argv) == ("--open-mode=truncate" in options)
