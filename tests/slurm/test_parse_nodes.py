"""What ``scontrol show nodes`` prints, and what it never may be taken for."""

from __future__ import annotations

import pytest

from slurm_dispatch.slurm.parse_nodes import parse_nodes
from slurm_dispatch.slurm.port import Node, Nodes, Unknown

# The lines of 24.11, as the test cluster prints them.
PARAGRAPH = """NodeName={name} Arch=x86_64 CoresPerSocket=1{space}
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.97
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=(null)
   NodeAddr={name} NodeHostName={name} Version=24.11.5
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0{space}
   RealMemory=4000 AllocMem=0 FreeMem=21266 Sockets=8 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=low,high{space}
   BootTime={boot} SlurmdStartTime=1796029693
   LastBusyTime=1796029694 ResumeAfterTime=None
   CfgTRES=cpu=8,mem=4000M,billing=8
   AllocTRES=
   CurrentWatts=0 AveWatts=0
   {more}

"""


def paragraph(name: str = "c1", state: str = "IDLE", boot: str = "1796017669", more: str = "") -> str:
    return PARAGRAPH.format(name=name, state=state, boot=boot, more=more, space=" ")


def only(text: str) -> Node:
    answer = parse_nodes(text)
    assert isinstance(answer, Nodes), answer
    (node,) = answer.nodes
    return node


def test_every_node_with_its_partitions_and_its_boot() -> None:
    answer = parse_nodes(paragraph() + paragraph("c2", "DOWN+NOT_RESPONDING", "None"))
    assert answer == Nodes((
        Node("c1", "IDLE", frozenset(), ("low", "high"), 1796017669),
        Node("c2", "DOWN", frozenset({"NOT_RESPONDING"}), ("low", "high"), None),
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("state", "silent", "drained"),
    [
        ("IDLE", False, False),
        ("ALLOCATED+NOT_RESPONDING", True, False),
        ("MIXED*", True, False),
        ("DOWN*+DRAIN", True, True),
        ("DOWN+DRAIN+NOT_RESPONDING", True, True),
        ("IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING", False, False),
        ("IDLE+CLOUD+POWERING_UP+NOT_RESPONDING", False, False),
        ("ALLOCATED+REBOOT_ISSUED+NOT_RESPONDING", False, False),
        ("FUTURE+NOT_RESPONDING", False, False),
        ("IDLE+?", False, False),
        ("IDLE+FAIL", False, True),
    ],
)
def test_who_is_silent_and_who_is_drained(state: str, silent: bool, drained: bool) -> None:
    node = only(paragraph(state=state))
    assert (node.silent, node.drained) == (silent, drained)


def test_the_lines_of_22_05() -> None:
    text = paragraph().replace(" ResumeAfterTime=None", "")
    text = text.replace("   CurrentWatts", "   CapWatts=n/a\n   CurrentWatts")
    text = text.replace("AveWatts=0\n", "AveWatts=0\n   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n")
    assert only(text) == only(paragraph())


def test_a_node_in_no_partition_has_none() -> None:
    assert only(paragraph().replace("   Partitions=low,high \n", "")).partitions == ()


@pytest.mark.parametrize(
    ("reason", "at"),
    [
        ("Duplicate jobid [slurm@1796044042]", 1796044042),
        ("fan; Duplicate jobid [slurm@1796044042]", None),
        ("Duplicate jobid [slurm@2026-11-30T13:07:22]", None),
        ("Duplicate jobid [slurm@1]\n   Reason=Duplicate jobid [slurm@2]", None),
        ("broken [root@1796029694]", None),
    ],
)
def test_a_node_that_was_sent_a_job_twice(reason: str, at: int | None) -> None:
    node = only(paragraph(state="IDLE+DRAIN", more=f"Reason={reason}"))
    assert (node.duplicate_at, node.prolog_failed_at) == (at, None)
    node = only(paragraph(state="IDLE+DRAIN", more=f"Reason={reason.replace('Duplicate jobid', 'Prolog error')}"))
    assert (node.duplicate_at, node.prolog_failed_at) == (None, at)


def test_a_reason_of_several_lines_says_nothing_of_the_node() -> None:
    node = only(paragraph(state="IDLE+DRAIN", more="Reason=broken [root@1796029694]\n          fan\n   Comment=x"))
    assert node.drained


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No nodes in the system\n",
        "scontrol: error\n" + paragraph(),
        paragraph().rstrip("\n"),
        paragraph()[: paragraph().index("State=")] + "\n",
        paragraph() + paragraph(),  # a node twice
        paragraph(state="SLEEPY"),
        paragraph(state="idle"),
        paragraph("c1/../c2"),
        paragraph(more="Comment=x\n   State=IDLE ThreadsPerCore=1 TmpDisk=0"),
        paragraph(more="Comment=x\n   BootTime=1 "),
        paragraph(more="Comment=x\nNodeName=c9 "),
    ],
)
def test_what_does_not_parse_is_unknown(text: str) -> None:
    assert isinstance(parse_nodes(text), Unknown)
