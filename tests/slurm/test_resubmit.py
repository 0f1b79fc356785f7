"""The next submission's call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.model.identity import find_word
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.slurm.directives import foreign_options, lines_of, sbatch_options, without
from slurm_dispatch.slurm.limits import propagated
from slurm_dispatch.slurm.resubmit import resubmission

if TYPE_CHECKING:
    from slurm_dispatch.slurm.port import SbatchCall

SPEC = Spec(
    job="abc", generation=2, user="ada", uid=1, gid=1, groups=(), cluster="c", name="n", root="/r", shared=False,
    argv=("--nodes=2", "--no-requeue", "--job-name=train.sh"), script_name="train.sh", script_args=("--x", "a b"),
    script_sha256="", wrap=False, workdir="/home/ada", umask=0o027, comment="mine", rules=(), max_submissions=100,
    start_from=None, host="login",
)  # fmt: skip
PLAIN = b"#!/bin/sh\n#SBATCH -n1\n:\n"
ENVIRONMENT = b"A=1\0LD_PRELOAD=/x.so\0SLURM_DISPATCH_CHECKPOINT=/r\0SLURM_RLIMIT_NOFILE=777\0SLURM_RLIMIT_AS=5\0"
SITE = {"PATH": "/slurm/bin", "SLURM_CONF": "/s.conf", "SLURM_TIME_FORMAT": "%s", "LD_PRELOAD": "/y.so"}


def again(spec: Spec = SPEC, script: bytes = PLAIN, changes: tuple[str, ...] = (), **more: object) -> SbatchCall:
    """The call of submission 7."""
    return resubmission(
        spec, spec.word(7), script_path="/state/jobs/abc/script", script=script, environment=ENVIRONMENT,
        site_environment=SITE, deadline_s=150, changes=changes, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_call() -> None:
    """Recorded options, the rule's, the comment with the new word, the copy of the script, its arguments."""
    call = again(changes=("--exclude=c1",))
    assert call.argv == (
        "--nodes=2", "--no-requeue", "--job-name=train.sh", "--exclude=c1", "--comment=mine dispatch:abc:2:7",
        "/state/jobs/abc/script", "--x", "a b",
    )  # fmt: skip
    assert (call.workdir, call.umask, call.script, call.script_at) == ("/home/ada", 0o027, b"", None)
    assert find_word("mine dispatch:abc:2:7") == SPEC.word(7)


def test_sbatch_itself_gets_nothing_of_the_users() -> None:
    """P10: the job's environment goes by --export-file, sbatch's own is the site's."""
    call = again()
    assert call.environment == {"PATH": "/slurm/bin", "SLURM_CONF": "/s.conf"}
    assert call.job_environment == ENVIRONMENT + b"SLURM_JOB_NAME=n\0"
    assert call.limits == ()


@pytest.mark.parametrize("export", ["NONE", "NIL", "none", "A", "A=3,B"])
def test_an_export_that_would_throw_the_file_away(export: str) -> None:
    """Only what it exports is in sbatch's own environment: never LD_PRELOAD, never the host's time format."""
    call = again(replace(SPEC, argv=(f"--export={export}",)))
    assert call.job_environment is None
    expected = {"PATH": "/slurm/bin", "SLURM_CONF": "/s.conf", "SLURM_DISPATCH_CHECKPOINT": "/r"}
    assert call.environment == expected | ({"A": "1"} if export == "A" else {})
    assert dict(call.limits) == {"RLIMIT_NOFILE": 777, "RLIMIT_AS": 5}
    assert again(script=f"#!/bin/sh\n#SBATCH --export={export}\n:\n".encode()).job_environment is None


def test_an_export_of_all_and_more() -> None:
    """ALL keeps the file, and srun in the job is told of the option."""
    handed = again(replace(SPEC, argv=("--export=ALL,X=2",))).job_environment
    assert handed is not None
    sbatchs = [b"SLURM_EXPORT_ENV=ALL,X=2", b"SLURM_JOB_NAME=n"]
    assert sorted(handed.split(b"\0")) == sorted([*ENVIRONMENT.split(b"\0"), *sbatchs])


def handed_on(spec: Spec, script: bytes = PLAIN) -> set[bytes]:
    """What the job's environment has beside the recorded one."""
    handed = again(spec, script).job_environment
    assert handed is not None
    return set(handed.split(b"\0")) - set(ENVIRONMENT.split(b"\0"))


def test_what_sbatch_sets_and_forgets_beside_the_file() -> None:
    """Seen on 22.05: the first execution had SLURM_JOB_NAME, and the next one not. srun reads the others."""
    name = b"SLURM_JOB_NAME=n"
    options = ("--open-mode=Truncate", "--acctg-freq=task=1", "--container=/c", "--container-id=i", "--profile=Task")
    found = handed_on(replace(SPEC, argv=options))
    assert found == {
        name, b"SLURM_OPEN_MODE=t", b"SLURM_ACCTG_FREQ=task=1", b"SLURM_CONTAINER=/c", b"SLURM_CONTAINER_ID=i",
        b"SLURM_PROFILE=Task",
    }  # fmt: skip
    script = b"#!/bin/sh\n#SBATCH --open-mode=append\n:\n"
    assert handed_on(SPEC, script) == {name, b"SLURM_OPEN_MODE=a"}
    assert handed_on(replace(SPEC, argv=("--open-mode=truncate",)), script) == {name, b"SLURM_OPEN_MODE=t"}
    assert handed_on(replace(SPEC, script_name=None, wrap=True, name="wrap")) == {b"SLURM_JOB_NAME=wrap"}
    # From standard input without a name: Slurm calls it sbatch, and sbatch sets nothing.
    assert handed_on(replace(SPEC, script_name=None, name="sbatch")) == set()
    assert handed_on(replace(SPEC, script_name=None)) == {name}


def test_a_container_that_the_user_set_himself_stays() -> None:
    spec = replace(SPEC, argv=("--container=/c",))
    handed = resubmission(
        spec, spec.word(7), script_path="/s", script=PLAIN, environment=b"SLURM_CONTAINER=/own\0SLURM_JOB_NAME=old\0",
        site_environment=SITE, deadline_s=150,
    ).job_environment  # fmt: skip
    assert handed == b"SLURM_CONTAINER=/own\0SLURM_JOB_NAME=n\0"


def test_what_is_not_repeated() -> None:
    """Options of the first submission alone go, on the command line and in the script; the lines stay."""
    script = b"#!/bin/sh\n#SBATCH --hold -N 3 --begin=now+1hour\n"
    script += b"#SBATCH -d afterok:3 # why\n#SBATCH -Wn 2\n:\n#SBATCH -H\n"
    call = again(script=script)
    assert call.script == b"#!/bin/sh\n#SBATCH -N 3\n#SBATCH\n#SBATCH --ntasks=2\n:\n#SBATCH -H\n"
    assert call.script_at == len(call.argv) - 2
    assert call.argv[call.script_at :] == ("--x", "a b")
    assert "/state/jobs/abc/script" not in call.argv
    spec = replace(
        SPEC, argv=("--hold", "--begin=now", "--parsable", "--wait", "--nodes=2", "--dependency=singleton")
    )
    assert again(spec).argv[0:2] == ("--nodes=2", "--comment=mine dispatch:abc:2:7")


def test_exclude() -> None:
    """The rule's --exclude adds to the user's, and -w gives way to it, wherever it stands."""
    spec = replace(SPEC, argv=("--exclude=c9", "--nodelist=c1"))
    assert again(spec, changes=("--exclude=c1",)).argv[:2] == ("--exclude=c9", "--exclude=c9,c1")
    script = b"#!/bin/sh\n#SBATCH -w c1\n:\n"
    assert again(script=script, changes=("--exclude=c1",)).script == b"#!/bin/sh\n#SBATCH\n:\n"
    assert again(script=script).script == b""
    # Nodes that he does not ask for may be excluded beside his own list.
    assert again(spec, changes=("--exclude=c2,c[4-6]",)).argv[:3] == (
        "--exclude=c9", "--nodelist=c1", "--exclude=c9,c2,c[4-6]",
    )  # fmt: skip
    for own in ("--nodelist=n[1-3]", "--nodelist=./hosts", "--nodelist=n[1"):
        assert own not in again(replace(SPEC, argv=(own,)), changes=("--exclude=n2",)).argv


def test_a_wrapped_command() -> None:
    """--wrap is repeated as it is, without a script."""
    spec = replace(SPEC, wrap=True, argv=("--wrap=a b",), script_name=None, script_args=())
    call = again(spec, script=b"")
    assert call.argv == ("--wrap=a b", "--comment=mine dispatch:abc:2:7")
    assert call.script_at is None


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        ({}, None, {"NOFILE": "", "AS": ""}),
        ({"PropagateResourceLimits": "NONE"}, None, {}),
        ({"PropagateResourceLimits": "NOFILE,CORE"}, None, {"NOFILE": ""}),
        ({"PropagateResourceLimits": "(null)", "PropagateResourceLimitsExcept": "AS"}, None, {"NOFILE": ""}),
        ({"PropagateResourceLimits": "NONE"}, "", {"NOFILE": "U", "AS": "U"}),
        ({}, "AS", {"AS": "U"}),
    ],
)
def test_limits(config: dict[str, str], asked: str | None, expected: dict[str, str]) -> None:
    """Handed on as sbatch would: what the site propagates, or what --propagate asks for."""
    marks = propagated(config, asked)
    assert {name: mark for name, mark in marks.items() if name in {"NOFILE", "AS"}} == expected
    spec = SPEC if asked is None else replace(SPEC, argv=(f"--propagate={asked}" if asked else "--propagate",))
    handed = again(spec, config=config).job_environment
    assert handed is not None
    assert {e.split(b"=")[0].decode()[13:] for e in handed.split(b"\0") if e.startswith(b"SLURM_RLIMIT_")} == set(
        expected
    )


@given(st.binary(max_size=120))
def test_any_script_is_read(content: bytes) -> None:
    """C016: no script makes reading it fail, and one without the options comes back as it is."""
    sbatch_options(b"#!/bin/sh\n#SBATCH " + content)
    foreign_options(content)
    assert without(content, {"array-that-is-not-there"}) == content


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=1, max_size=8), max_size=4))
def test_what_is_left_reads_the_same(values: list[str]) -> None:
    """Words that stay on a line that was rewritten are read as before, whatever is in them."""
    quoted = " ".join('--comment="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    script = f"#!/bin/sh\n#SBATCH --hold {quoted}\n:\n".encode()
    words = lines_of(script, b"#SBATCH")[0].words
    assert words == ("--hold", *(f"--comment={value}" for value in values))
    left = lines_of(without(script, {"hold"}), b"#SBATCH")[0].words
    assert left == tuple(word for word in words if word != "--hold")


def test_a_variable_that_makes_a_program_load_something_goes_by_its_value() -> None:
    """P10: sbatch runs on the tick's host, and nothing of a user's is loaded there, whatever --export names."""
    variables = {
        "LD_PRELOAD": "/home/eve/evil.so", "LD_LIBRARY_PATH": "/odd,path", "PATH": "/home/eve/bin:/bin", "A": "1",
        "SLURM_CONF": "/home/eve/slurm.conf", "SLURM_JWT": "x",
    }  # fmt: skip
    text = "".join(f"{name}={value}\0" for name, value in variables.items()).encode()
    spec = replace(SPEC, argv=("--export=A,LD_PRELOAD,LD_LIBRARY_PATH,PATH,B=2",))
    call = resubmission(
        spec, spec.word(7), script_path="/s", script=b"#!/bin/sh\n", environment=text,
        site_environment={"PATH": "/slurm/bin"}, deadline_s=150,
    )  # fmt: skip
    assert call.environment == {"PATH": "/slurm/bin", "A": "1"}
    exports = [word for word in call.argv if word.startswith("--export=")]
    assert exports[-1] == "--export=A,LD_PRELOAD=/home/eve/evil.so,PATH=/home/eve/bin:/bin,B=2"
    none = replace(SPEC, argv=("--export=NONE",))
    call = resubmission(
        none, none.word(7), script_path="/s", script=b"#!/bin/sh\n", environment=text,
        site_environment={"PATH": "/slurm/bin"}, deadline_s=150,
    )  # fmt: skip
    assert call.environment == {"PATH": "/slurm/bin"}
    assert [word for word in call.argv if word.startswith("--export=")] == ["--export=NONE"]


def test_memory_is_asked_for_in_one_way() -> None:
    """sbatch refuses --mem beside --mem-per-cpu on one command line."""
    spec = replace(SPEC, argv=("--nodes=2", "--mem-per-cpu=2G"))
    assert again(spec, changes=("--mem=64G",)).argv[:2] == ("--nodes=2", "--mem=64G")
    assert again(spec, changes=("--time=1",)).argv[:3] == ("--nodes=2", "--mem-per-cpu=2G", "--time=1")
    # It counts the script's directives too (seen on 24.11).
    script = b"#!/bin/sh\n#SBATCH --mem-per-cpu=100M --time=5\n#SBATCH --nodes=2\ntrue\n"
    left = again(replace(SPEC, argv=()), script, changes=("--mem=64G",)).script
    assert b"mem-per-cpu" not in left
    assert b"--time=5" in left
    assert b"--nodes=2" in left
    # By dispatch update, with the command line's way to ask for it.
    assert b"mem-per-cpu" not in again(replace(SPEC, argv=("--mem=1G",)), script).script
    # Nothing is put into another form without need.
    assert again(replace(SPEC, argv=("--mem-per-cpu=1G",)), script).script == b""
    assert again(replace(SPEC, argv=()), script, changes=("--time=1",)).script == b""
