"""The ready-made commands of ``site/cessation``, with ssh, fence agents and Slurm that say and do anything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_dispatch.records.cessation import AskedExecution, question
from tests.cessation.made import ATTEMPT, clean, execution

TOP = Path(__file__).resolve().parent.parent.parent
SCRIPTS = TOP / "site" / "cessation"
DEADLINE_S = 120.0
SHELLS = [path for name in ("sh", "dash", "bash") if (path := shutil.which(name))]


@dataclass
class Bench:
    """A folder of programs that stand in for those of the site, first on the PATH."""

    folder: Path

    def __post_init__(self) -> None:
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.program("dispatch", f'exec env PYTHONPATH={TOP} {sys.executable} -m slurm_dispatch.cli.main "$@"')
        self.sinfo({"c1": "none", "c2": "none"})
        config = self.folder / "dispatch.toml"
        config.write_text(f'state = "{self.folder}/state"\nslurm_bin = "{self.bin}"\n')
        # Whoever runs this may have a PATH of which nothing is known.
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "DISPATCH_CONFIG": str(config)}

    def program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def sinfo(self, reasons: dict[str, str]) -> None:
        lines = "\n".join(f"printf '%s|%s|%s\\n' \"$mark\" '{node}' '{why}'" for node, why in reasons.items())
        mark = """for word; do case $word in --format=*) mark=${word#--format=} mark=${mark%%"|"*} ;; esac; done"""
        self.program("sinfo", f"{mark}\n{lines}")
        self.program("scontrol", "echo 'ClusterName = lab'; echo 'SLURM_VERSION = 24.11.5'")

    def ask(self, argv: list[str], asked: AskedExecution | bytes, *, shell: str = "") -> tuple[int, str]:
        """Run a script of the site; its status and what it said."""
        name, *options = argv
        command = [*([shell] if shell else []), str(SCRIPTS / name), *options]
        data = asked if isinstance(asked, bytes) else question(asked)
        done = subprocess.run(
            command, input=data, env=self.environment, capture_output=True, timeout=DEADLINE_S, cwd="/", check=False
        )
        assert done.stdout.count(b"\n") <= 1, done.stdout
        return done.returncode, done.stdout.decode()


@pytest.fixture
def bench(open_tmp: Path) -> Bench:
    return Bench(open_tmp)


FENCE = ["fence-power", "-t", "20", "fence_lab", "-a", "{node}-bmc", "-o", "status"]
ALL = {"slurm-nodes": ["slurm-nodes"], "ssh-nodes": ["ssh-nodes", "-t", "20"], "fence-power": FENCE}


def said(name: str = "clean", *, attempt: str = ATTEMPT, status: int = 0) -> str:
    """An ssh that says what ``dispatch ps`` would, on the host that it was told."""
    return f"""for word; do case $word in c[0-9]*) node=$word ;; esac; done
echo "{name} {attempt} $node"
exit {status}"""


def test_the_scripts_are_those_that_the_documents_name() -> None:
    assert sorted(path.name for path in SCRIPTS.iterdir()) == sorted(ALL)
    text = (TOP / "docs" / "cessation.md").read_text()
    assert all(f"- `{name}" in text for name in ALL)
    assert all(os.access(SCRIPTS / name, os.X_OK) for name in ALL)


@pytest.mark.parametrize("name", list(ALL))
def test_what_every_node_said_itself_is_enough(bench: Bench, name: str) -> None:
    """Nobody is asked where nothing is missing."""
    for program in ("ssh", "fence_lab"):
        bench.program(program, "kill -9 $PPID")
    assert bench.ask(ALL[name], execution(clean("c1"), clean("c2", how="boot")))[0] == 0


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b"\0\xff",
        b'{"v":1}',
        question(execution()).replace(b'"c2"', b'"c2;touch evil"'),
        question(execution()).replace(b'"c2"', b'"-oProxyCommand=touch evil"'),
        question(execution()).replace(b'"c2"', b'"$(touch evil)"'),
        question(execution()).replace(b'"c2"', b'"c2\\nnode c3"'),
        question(execution()).replace(ATTEMPT.encode(), b"$(touch evil)"),
        question(execution()).replace(b'"object": 7', b'"object": "7; touch evil"'),
        question(execution())[:-40],
    ],
)
def test_what_is_no_question_is_unknown(bench: Bench, name: str, data: bytes) -> None:
    bench.program("ssh", f"touch {bench.folder}/asked; {said()}")
    bench.program("fence_lab", f"touch {bench.folder}/asked; echo 'Status: OFF'; exit 2")
    status, _ = bench.ask(ALL[name], data)
    assert status not in {0, 1}
    assert not (bench.folder / "asked").exists()


@pytest.mark.parametrize("name", list(ALL))
def test_a_dispatch_that_is_not_there_is_unknown(bench: Bench, name: str) -> None:
    (bench.bin / "dispatch").unlink()
    assert bench.ask(ALL[name], execution(clean("c1"), clean("c2")))[0] not in {0, 1}


@pytest.mark.parametrize("name", list(ALL))
def test_a_broken_configuration_is_unknown(bench: Bench, name: str) -> None:
    (bench.folder / "dispatch.toml").write_text("nonsense")
    assert bench.ask(ALL[name], execution(clean("c1"), clean("c2")))[0] not in {0, 1}


@pytest.mark.parametrize("name", list(ALL))
def test_the_owner_s_name_is_data(bench: Bench, name: str) -> None:
    bench.program("ssh", said())
    bench.program("fence_lab", "echo 'Status: OFF'; exit 2")
    evil = 'a"; touch evil; $(touch evil)\n\0 -o x'
    words = [clean("c1"), clean("c2")] if name == "slurm-nodes" else []
    built_in = name == "slurm-nodes"  # which asks the cluster that is named, and there is none of this name
    assert bench.ask(ALL[name], execution(*words, user=evil, cluster="lab" if built_in else evil))[0] == 0
    if built_in:
        assert bench.ask(ALL[name], execution(*words, cluster=evil))[0] == 75


def test_slurm_nodes_is_the_built_in_answer(bench: Bench) -> None:
    assert bench.ask(["slurm-nodes"], execution(clean("c1")))[0] == 75
    assert bench.ask(["slurm-nodes"], execution(clean("c1"), clean("c2", clean=False)))[0] == 1
    bench.sinfo({"c1": "none", "c2": "Kill task failed [root@2026]"})
    status, text = bench.ask(["slurm-nodes"], execution(clean("c1"), clean("c2")))
    assert (status, text) == (75, 'c2: Slurm says "Kill task failed" of it\n')
    bench.program("sinfo", "exit 1")
    assert bench.ask(["slurm-nodes"], execution(clean("c1"), clean("c2")))[0] == 75


@pytest.mark.parametrize("shell", SHELLS)
def test_ssh_nodes_asks_each_node_that_has_not_said_it(bench: Bench, shell: str) -> None:
    bench.program("ssh", f'printf "%s\\n" "$@" >>{bench.folder}/asked.$$; {said()}')
    status, text = bench.ask(["ssh-nodes", "-l", "root", "-i", "/key"], execution(clean("c1")), shell=shell)
    assert (status, text) == (0, "1 nodes were searched, and 1 have said it themselves\n")
    (path,) = bench.folder.glob("asked.*")
    words = path.read_text().splitlines()
    assert words[-3:] == ["--", "c2", f"dispatch ps --attempt {ATTEMPT} --job 7 --uid 54321"]
    for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no", "IdentitiesOnly=yes"):
        assert words[words.index(option) - 1] == "-o"
    assert words[words.index("-l") + 1] == "root"


def test_ssh_nodes_asks_side_by_side(bench: Bench) -> None:
    """Each waits for the other."""
    wait = f"touch {bench.folder}/there.$$; until [ $(ls {bench.folder} | grep -c there) -ge 2 ]; do sleep 0.01; done"
    bench.program("ssh", f"{wait}\n{said()}")
    assert bench.ask(["ssh-nodes", "-t", "60"], execution())[0] == 0


def test_a_process_that_moves_on_between_two_looks_is_found(bench: Bench) -> None:
    """c1 is clean when it is searched; then c2 starts something there, and ends."""
    moved = f"test -e {bench.folder}/moved"
    bench.program("ssh", f"""case $* in
*c1*) if {moved}; then {said("left", status=1)}; fi ;;
*c2*) touch {bench.folder}/moved ;;
esac
{said()}""")
    assert bench.ask(["ssh-nodes", "-j", "1"], execution()) == (1, "processes are left on c1 \n")


def test_ssh_nodes_says_where_processes_are_left(bench: Bench) -> None:
    bench.program("ssh", f"case $* in *c1*) {said()} ;; esac\n{said('left', status=1)}")
    assert bench.ask(["ssh-nodes"], execution()) == (1, "processes are left on c2 \n")


ODD = {
    "no answer": "exit 0",
    "255": "echo 'ssh: connect to host c2 port 22: No route to host' >&2; exit 255",
    "unknown": said("unknown", status=75),
    "clean with another status": said("clean", status=75),
    "left with 0": said("left", status=0),
    "clean with 1": said("clean", status=1),
    "another attempt": said(attempt="zzzz"),
    "another node": f"echo 'clean {ATTEMPT} c9'",
    "no node": f"echo 'clean {ATTEMPT}'",
    "more on the line": f"echo 'clean {ATTEMPT} c2 or so'",
    "something before it": f"echo 'Welcome to c2'; {said()}",
    "on stderr first": f"echo 'Warning' >&2; {said()}",
    "a forged status": "printf 'clean x\\nstatus 0\\n'; exit 3",
    "too much": "yes",
    "much": f"head -c 300000 /dev/zero; {said()}",
    "killed": "kill -9 $$",
    "hangs": "exec sleep 1000",
    "hangs and ignores": "trap '' TERM; while :; do sleep 1; done",
    "control characters": r"printf '\033[2J\r\n\0\n'; exit 3",
}


@pytest.mark.parametrize("odd", list(ODD))
def test_an_odd_answer_of_a_node_is_unknown(bench: Bench, odd: str) -> None:
    seconds = "5" if odd.startswith("hangs") else "60"
    bench.program("ssh", f'case "$*" in *" c1 "*) {said()} ;; esac\n{ODD[odd]}')
    status, text = bench.ask(["ssh-nodes", "-t", seconds], execution())
    assert status not in {0, 1}
    assert "c2 (" in text
    assert text.strip("\n").isprintable()


def test_one_node_that_has_processes_counts_whatever_another_says(bench: Bench) -> None:
    bench.program("ssh", f'case "$*" in *" c1 "*) {said("left", status=1)} ;; esac\nexit 255')
    assert bench.ask(["ssh-nodes"], execution())[0] == 1


def test_a_node_may_have_another_host_name_if_the_site_says_so(bench: Bench) -> None:
    bench.program("ssh", f"echo 'clean {ATTEMPT} ip-10-0-0-7'")
    assert bench.ask(["ssh-nodes"], execution())[0] not in {0, 1}
    assert bench.ask(["ssh-nodes", "-a"], execution())[0] == 0


def test_the_command_over_there_can_be_another(bench: Bench) -> None:
    bench.program("ssh", f'for last; do :; done; echo "$last" >{bench.folder}/said; {said()}')
    bench.ask(["ssh-nodes", "-c", "sudo -n /usr/bin/dispatch ps"], execution(nodes=("c1",)))
    expected = f"sudo -n /usr/bin/dispatch ps --attempt {ATTEMPT} --job 7 --uid 54321\n"
    assert (bench.folder / "said").read_text() == expected


@pytest.mark.parametrize("options", [["-t", "x"], ["-j", "1;id"], ["-x"], ["-t"]])
@pytest.mark.parametrize("name", ["ssh-nodes", "fence-power"])
def test_a_wrong_option_is_unknown(bench: Bench, name: str, options: list[str]) -> None:
    bench.program("ssh", said())
    bench.program("fence_lab", "echo 'Status: OFF'; exit 2")
    assert bench.ask([name, *options, *FENCE[3:]], execution())[0] not in {0, 1}


@pytest.mark.parametrize("shell", SHELLS)
def test_fence_power_asks_the_agent_of_each_node_that_has_not_said_it(bench: Bench, shell: str) -> None:
    bench.program("fence_lab", f'printf "%s|" "$@" >>{bench.folder}/asked.$2; echo "Status: OFF"; exit 2')
    argv = [*FENCE, "-p", "two words {node}", "$(id)", "*"]
    status, text = bench.ask(argv, execution(clean("c1"), nodes=("c1", "c2", "c3")), shell=shell)
    assert (status, text) == (0, "2 nodes are off, and 1 have said it themselves\n")
    asked = {path.name: path.read_text() for path in bench.folder.glob("asked.*")}
    assert asked == {
        f"asked.{node}-bmc": f"-a|{node}-bmc|-o|status|-p|two words {node}|$(id)|*|" for node in ("c2", "c3")
    }


ODD_AGENTS = {
    "on": "echo 'Status: ON'; exit 0",
    "off with 0": "echo 'Status: OFF'; exit 0",
    "on with 2": "echo 'Status: ON'; exit 2",
    "2 and no word": "exit 2",
    "2 for usage": "echo 'usage: fence_lab' >&2; exit 2",
    "both": "echo 'Status: ON'; echo 'Status: OFF'; exit 2",
    "error": "echo 'Connection timed out' >&2; exit 1",
    "another word": "echo 'Status: OFFLINE'; exit 2",
    "a forged status": "printf 'Status: OFF\\nstatus 2\\n'; exit 1",
    "too much": "echo 'Status: OFF'; yes",
    "much": "echo 'Status: OFF'; head -c 300000 /dev/zero; exit 2",
    "killed": "echo 'Status: OFF'; kill -9 $$",
    "hangs": "echo 'Status: OFF'; exec sleep 1000",
    "hangs and ignores": "echo 'Status: OFF'; trap '' TERM; while :; do sleep 1; done",
    "not there": "",
}


@pytest.mark.parametrize("odd", list(ODD_AGENTS))
def test_an_odd_answer_of_an_agent_is_unknown(bench: Bench, odd: str) -> None:
    seconds = "5" if odd.startswith("hangs") else "60"
    bench.program("fence_lab", f'case "$*" in *c1-bmc*) echo "Status: OFF"; exit 2 ;; esac\n{ODD_AGENTS[odd]}')
    if odd == "not there":
        (bench.bin / "fence_lab").unlink()
    status, text = bench.ask([*FENCE[:2], seconds, *FENCE[3:]], execution())
    assert status not in {0, 1}
    assert "c2 (" in text


@pytest.mark.parametrize("argv", [["fence-power"], ["fence-power", "fence_lab", "-a", "c1-bmc"]])
def test_fence_power_must_know_whom_to_ask(bench: Bench, argv: list[str]) -> None:
    """An agent that is asked of the same controller for every node would prove them all with one that is off."""
    bench.program("fence_lab", "echo 'Status: OFF'; exit 2")
    assert bench.ask(argv, execution())[0] not in {0, 1}


def test_a_thousand_nodes_are_asked(bench: Bench) -> None:
    nodes = tuple(f"c{number:04d}" for number in range(300))
    bench.program("fence_lab", "echo 'Status: OFF'; exit 2")
    began = time.monotonic()
    assert bench.ask(FENCE, execution(nodes=nodes))[0] == 0
    assert time.monotonic() - began < DEADLINE_S


def test_the_fields_are_safe_for_a_shell(bench: Bench) -> None:
    data = question(execution(clean("c1"), user="$(id)\nnode c9", start=12.9, end=None))
    done = subprocess.run(
        [str(bench.bin / "dispatch"), "cessation", "--fields"],
        input=data, env=bench.environment, capture_output=True, timeout=DEADLINE_S, check=True, text=False,
    )  # fmt: skip
    assert done.stdout.decode().splitlines() == [
        f"attempt {ATTEMPT}", "job 7", "uid 54321", "start 12", "end -", "proved 1", "node c2",
    ]  # fmt: skip
    assert json.loads(data)["owner"] == "$(id)\nnode c9"
