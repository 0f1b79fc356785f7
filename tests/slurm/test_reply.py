"""What sbatch's end says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.slurm.port import Accepted, Ambiguous, Rejected
from slurm_dispatch.slurm.reply import find_id, read_reply
from slurm_dispatch.slurm.run import Finished
from tests.slurm.recorded import answer


def finished(status: int | None, stdout: str = "", stderr: str = "", **more: bool) -> Finished:
    """An end of sbatch."""
    return Finished(status, stdout.encode(), stderr.encode(), **more)


@pytest.mark.parametrize("name", ["rejected", "rejected-option"])
def test_recorded_refusals_are_certain(name: str) -> None:
    """What a real sbatch says when it refuses."""
    recorded = answer(name)
    reply = read_reply(finished(recorded.status, recorded.stdout, recorded.stderr), parsable=False)
    assert isinstance(reply, Rejected)
    assert reply.status == recorded.status


@pytest.mark.parametrize(
    "said",
    [
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Zero Bytes were transmitted or received",
        "Connection refused",
        "Connection reset by peer",
        "Interrupted system call",
        "Resource temporarily unavailable",
        "Unexpected message received",
        "Protocol authentication error",
        "Incompatible versions of client and server code",
        "Slurm backup controller in standby mode",
        "Unspecified error",
    ],
)
def test_trouble_on_the_way_is_not_certain(said: str) -> None:
    """C001: the request may have arrived before any of these."""
    text = f"sbatch: error: Batch job submission failed: {said}\n"
    assert isinstance(read_reply(finished(1, stderr=text), parsable=False), Ambiguous)


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
        ("sbatch: error: Slurm job queue full, sleeping and retrying\n"
        "sbatch: error: Batch job submission failed: Unable to create job record, try again\n"),
        "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information\n",
        "sbatch: error: This does not look like a batch script.  The first\n",
        "sbatch: error: Batch job submission failed: Access/permission denied\n",
    ],
)
def test_refusals(said: str) -> None:
    """C025: certain, with sbatch's own status and its message."""
    reply = read_reply(finished(1, stderr=said), parsable=False)
    assert isinstance(reply, Rejected)
    assert reply.message in said


@pytest.mark.parametrize(
    "end",
    [finished(-9), finished(1), finished(0), finished(None, timed_out=True), finished(0, "x\n", truncated=True)],
)
def test_an_end_without_a_word(end: Finished) -> None:
    """Killed, silent, or over a limit: not certain."""
    assert isinstance(read_reply(end, parsable=True), Ambiguous)


def test_an_sbatch_that_never_ran() -> None:
    """It could not be started: certain."""
    reply = read_reply(Finished(None, b"", b"", failure="cannot run sbatch: not found on PATH"), parsable=False)
    assert reply == Rejected(127, "cannot run sbatch: not found on PATH")


@pytest.mark.parametrize(
    ("text", "parsable", "expected"),
    [
        ("Submitted batch job 12\n", False, Accepted(12, None)),
        ("Submitted batch job 12 on cluster a-b.c_1\n", False, Accepted(12, "a-b.c_1")),
        ("12\n", False, None),
        ("12\n", True, Accepted(12, None)),
        ("12;alpha\n", True, Accepted(12, "alpha")),
        ("0\n", True, None),
        ("99999999999\n", True, None),
        ("4294967296\n", True, None),
        ("say: Submitted batch job 12\n", False, None),
        ("Submitted batch job 12 \n", False, None),
        ("Submitted batch job 1\nSubmitted batch job 2\n", False, Accepted(2, None)),
    ],
)
def test_the_id(text: str, parsable: bool, expected: Accepted | None) -> None:
    """C005, C006, C007, C026: the last line that is exactly sbatch's."""
    assert find_id(text.encode(), parsable=parsable) == expected


def test_half_a_line_is_no_id() -> None:
    """'Submitted batch job 1' of '...job 12' must not count while sbatch still writes."""
    assert find_id(b"Submitted batch job 1", parsable=False, ended=False) is None
    assert find_id(b"Submitted batch job 1", parsable=False) == Accepted(1, None)


@given(st.binary(max_size=200), st.booleans())
def test_anything_is_read(stdout: bytes, parsable: bool) -> None:
    """C026: no output makes it fail, and a number is an id only on sbatch's own line."""
    found = find_id(stdout, parsable=parsable)
    if found is not None and not parsable:
        assert b"Submitted batch job %d" % found.slurm_job_id in stdout
