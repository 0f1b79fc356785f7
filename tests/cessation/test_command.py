"""The site's command: what its end means, and that nothing it does can hold the tick up."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.records.cessation import CEASED, RUNNING, UNKNOWN, question
from slurm_dispatch.slurm.cessation import OUTPUT_MAX, SiteCommand, SlurmNodes, drain_reasons, signal_of
from slurm_dispatch.slurm.port import Unknown
from tests.cessation.made import ATTEMPT, clean, execution

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.records.observation import CessationAnswer

PATH = "/usr/bin:/bin"


def command(folder: Path, script: str, name: str = "ask") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def ask(argv: list[str], deadline_s: float = 60.0) -> CessationAnswer:
    before = time.time()
    (answer,) = SiteCommand(argv, {"PATH": PATH}).ask([execution()], deadline_s)
    assert before <= answer.at <= time.time()
    return answer


@pytest.mark.parametrize(
    ("script", "meaning"),
    [
        ("exit 0", CEASED),
        ("exit 1", RUNNING),
        *((f"exit {status}", UNKNOWN) for status in (2, 3, 75, 126, 127, 255)),
        ("kill -9 $$", UNKNOWN),
        ("kill -1 $$", UNKNOWN),
        ("echo ceased; exit 2", UNKNOWN),
        (f"head -c {OUTPUT_MAX + 1} /dev/zero; exit 0", UNKNOWN),
        ("yes; exit 0", UNKNOWN),
    ],
)
def test_the_status_is_the_answer(tmp_path: Path, script: str, meaning: str) -> None:
    answer = ask([command(tmp_path, script)])
    assert (answer.answer, answer.source) == (meaning, "ask")


def test_it_reads_the_question_and_nothing_else_of_ours(tmp_path: Path) -> None:
    path = command(tmp_path, f'cat >{tmp_path}/in; env >{tmp_path}/env; pwd >{tmp_path}/pwd; echo "$#" "$@"')
    answer = ask([path, "a b", "$(touch x)", "*"])
    assert answer.detail == "3 a b $(touch x) *"
    assert (tmp_path / "in").read_bytes() == question(execution())
    assert json.loads((tmp_path / "in").read_text())["attempt"] == ATTEMPT
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "_", "SHLVL", "OLDPWD"}
    assert (tmp_path / "pwd").read_text() == "/\n"


@pytest.mark.parametrize("argv", [["/nonexistent/ask"], ["no-such-command-here"], ["/etc/passwd"], ["/"], ["a\0b"]])
def test_a_command_that_is_not_there_is_unknown(argv: list[str]) -> None:
    answer = ask(argv)
    assert answer.answer == UNKNOWN
    assert answer.detail


def test_a_command_that_hangs_is_unknown_and_ended(tmp_path: Path) -> None:
    path = command(tmp_path, f"echo $$ >{tmp_path}/pid; sleep 1000 & echo $! >>{tmp_path}/pid; wait; exit 0")
    answer = ask([path], deadline_s=5.0)
    assert answer.answer == UNKNOWN
    assert "deadline" in answer.detail
    for pid in map(int, (tmp_path / "pid").read_text().split()):
        deadline = time.monotonic() + 60
        while is_alive(pid):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_that_ends_with_0_after_the_deadline_is_unknown(tmp_path: Path) -> None:
    """Its outputs are closed, so that only its end is waited for."""
    assert ask([command(tmp_path, "exec >&- 2>&-; sleep 1000; exit 0")], deadline_s=1.0).answer == UNKNOWN


def test_what_it_prints_cannot_forge_a_line(tmp_path: Path) -> None:
    answer = ask([command(tmp_path, r"printf '\n  \033[31mred\rover\tthere\n second line\n'; exit 1")])
    assert answer.answer == RUNNING
    assert answer.detail == r"\x1b[31mred\rover\tthere"


def test_its_own_words_are_shown_with_why_it_is_unknown(tmp_path: Path) -> None:
    answer = ask([command(tmp_path, "echo c1 does not answer; echo trouble >&2; exit 2")])
    assert answer.detail == "status 2: trouble (c1 does not answer)"


def test_a_question_of_many_nodes_fits(tmp_path: Path) -> None:
    nodes = tuple(f"node{number:05d}" for number in range(20_000))
    asked = execution(*(clean(node) for node in nodes), nodes=nodes)
    path = command(tmp_path, "wc -c")
    (answer,) = SiteCommand([path], {"PATH": PATH}).ask([asked], 60.0)
    assert (answer.answer, int(answer.detail)) == (CEASED, len(question(asked)))


def test_the_setting_names_the_signal() -> None:
    assert signal_of((), {}) is None
    assert isinstance(signal_of(("slurm-nodes",), {}), SlurmNodes)
    assert isinstance(signal_of(("/usr/lib/ask", "slurm-nodes"), {}), SiteCommand)


def sinfo(folder: Path, script: str) -> dict[str, str]:
    mark = """for word; do case $word in --format=*) mark=${word#--format=} mark=${mark%%"|"*} ;; esac; done"""
    command(folder, f"{mark}\n{script}", "sinfo")
    command(folder, "echo 'ClusterName = lab'; echo 'SLURM_VERSION = 24.11.5'", "scontrol")
    return {"PATH": f"{folder}:{PATH}"}


def test_slurm_is_asked_once_for_all_and_only_if_something_hangs_on_it(tmp_path: Path) -> None:
    environment = sinfo(tmp_path, f'echo x >>{tmp_path}/calls; echo "$mark|c1|none"; echo "$mark|c2|none"')
    signal = signal_of(("slurm-nodes",), environment)
    assert signal is not None
    assert signal.together
    proved, not_proved = execution(clean("c1"), clean("c2")), execution(attempt="b")
    found = signal.ask([proved, not_proved], 60.0)
    assert [answer.answer for answer in found] == [CEASED, UNKNOWN]
    signal.ask([not_proved], 60.0)
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo nonsense", "sleep 1000", "", 'echo "$mark|c1|none"', 'echo "x|c1|none"; echo "x|c2|none"'],
)
def test_a_slurm_that_does_not_answer_proves_nothing(tmp_path: Path, script: str) -> None:
    reasons = drain_reasons(sinfo(tmp_path, script), 2.0)
    assert isinstance(reasons, Unknown) or "c2" not in reasons
    signal = signal_of(("slurm-nodes",), sinfo(tmp_path, script))
    assert signal is not None
    (answer,) = signal.ask([execution(clean("c1"), clean("c2"))], 2.0)
    assert answer.answer == UNKNOWN


def test_the_reasons_are_those_of_sinfo(tmp_path: Path) -> None:
    environment = sinfo(tmp_path, 'echo "$mark|c1|none"; echo "$mark|c2|Kill task failed [root@x]"')
    assert drain_reasons(environment, 60.0) == {"c1": "none", "c2": "Kill task failed [root@x]"}
    assert sorted(os.listdir(tmp_path)) == ["scontrol", "sinfo"]


def test_nodes_of_another_cluster_are_asked_for_there(tmp_path: Path) -> None:
    """C080: two clusters have nodes of one name, and what Slurm says of the one proves nothing of the other."""
    script = """case $* in *--clusters=lab*) exit 9 ;; *--clusters=second*) echo "$mark|c1|Kill task failed" ;;
        *) echo "$mark|c1|none" ;; esac"""
    signal = signal_of(("slurm-nodes",), sinfo(tmp_path, script))
    assert signal is not None
    here = execution(clean("c1"), nodes=("c1",))
    there = replace(here, cluster="second")
    assert [answer.answer for answer in signal.ask([here, there], 60.0)] == [CEASED, UNKNOWN]
