"""Names: which are saves, of which step, and which never are."""

from __future__ import annotations

import pytest

from slurm_dispatch.errors import UsageError
from slurm_dispatch.model.publication import STEP_MAX
from slurm_dispatch.watch.pattern import is_temporary, parse_pattern


def step_of(pattern: str, name: str) -> int | None:
    match = parse_pattern(pattern).components[0].match(name)
    return None if match is None else match.step


@pytest.mark.parametrize(
    ("pattern", "name", "step"),
    [
        ("checkpoint-{step}", "checkpoint-10", 10),
        ("checkpoint-{step}", "checkpoint-0", 0),
        ("iter_{step}", "iter_0000100", 100),
        ("global_step{step}", "global_step20", 20),
        ("{step}", "4", 4),
        ("epoch=*-step={step}.ckpt", "epoch=3-step=40.ckpt", 40),
        ("step={step}*.ckpt", "step=10.ckpt", 10),
        ("[cC]heckpoint-{step}", "Checkpoint-7", 7),
        ("[!a]-{step}", "b-7", 7),
        ("a.b-{step}", "a.b-7", 7),
        ("checkpoint-{step}", f"checkpoint-{STEP_MAX}", STEP_MAX),
    ],
)
def test_step(pattern: str, name: str, step: int) -> None:
    assert step_of(pattern, name) == step


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("checkpoint-{step}", "checkpoint-"),
        ("checkpoint-{step}", "checkpoint-10-best"),
        ("checkpoint-{step}", "xcheckpoint-10"),
        ("checkpoint-{step}", "checkpoint--10"),
        ("checkpoint-{step}", "checkpoint-١٠"),
        ("checkpoint-{step}", "checkpoint-1e3"),
        ("a.b-{step}", "aXb-7"),
        ("checkpoint-{step}", "checkpoint-10\n"),
        ("[!a]-{step}", "a-7"),
    ],
)
def test_no_match(pattern: str, name: str) -> None:
    assert parse_pattern(pattern).components[0].match(name) is None


def test_a_name_with_two_possible_steps_is_in_doubt() -> None:
    """C093: the rule for the step is explicit; ambiguous names are not published."""
    match = parse_pattern("*{step}*").components[0].match("epoch=3-step=40.ckpt")
    assert match is not None
    assert match.step is None
    assert match.trouble is not None
    assert "3 or 40" in match.trouble


def test_a_run_of_digits_is_never_split() -> None:
    assert step_of("*{step}", "checkpoint-123") == 123
    assert step_of("{step}*", "123-last") == 123


def test_a_step_that_is_too_great_is_in_doubt() -> None:
    for digits in (str(STEP_MAX + 1), "9" * 5000):
        match = parse_pattern("checkpoint-{step}").components[0].match(f"checkpoint-{digits}")
        assert match is not None
        assert match.step is None
        assert match.trouble is not None


@pytest.mark.parametrize(
    "pattern",
    ["", "checkpoint", "{step}-{step}", "/a/{step}", "../{step}", "a//{step}", "1{step}", "{step}0", "[a{step}",
     "{x}{step}", "a/" * 9 + "{step}", "a/./{step}", "{step}/state"],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    """C103: a pattern without a step, for a file that is rewritten in place, is refused."""
    with pytest.raises(UsageError, match="--pattern"):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    "name",
    ["tmp-checkpoint-10", "tmp", "checkpoint-10.tmp", "checkpoint-10.tmp.3", "checkpoint-10.partial",
     "checkpoint-10-incomplete", "checkpoint-is-incomplete.txt",
     "0.orbax-checkpoint-tmp-1703334121930256", ".checkpoint-10", ".tmp-abc",
     "checkpoint-10.part", "checkpoint-10~", "checkpoint-10_tmp", "temp_10"],
)  # fmt: skip
def test_temporary(name: str) -> None:
    """C100: a temporary name of a saver is not a candidate."""
    assert is_temporary(name)


@pytest.mark.parametrize(
    "name", ["checkpoint-10", "0", "iter_10", "temperature=1-step=10.ckpt", "step=10.ckpt", "partial10", "attempt-10"]
)
def test_not_temporary(name: str) -> None:
    assert not is_temporary(name)
