"""The command line of the helper: every refusal is one line that names the option."""

from __future__ import annotations

import pytest

from slurm_dispatch.errors import UsageError
from slurm_dispatch.watch import words
from slurm_dispatch.watch.options import OPTIONS, help_text, parse


def test_all_options() -> None:
    options = parse(
        [
            "--root",
            "/r",
            "--pattern",
            "it_{step}",
            "--done",
            "a",
            "--done=b/*.x",
            "--settle",
            "5",
            "--interval",
            "0.5",
            "--timeout",
            "2m",
            "--grace=7s",
            "--start-from",
            "/s",
            "--copy",
            "--sync",
            "--keep",
            "4,5",
            "--no-thin",
            "--before-end",
            "10m:USR1",
            "--allow-step-back",
            "--on-error",
            "end",
            "--require-managed",
            "--steps",
            "--",
            "srun",
            "python",
            "--root",
            "x",
        ]
    )
    assert options.command == ["srun", "python", "--root", "x"]
    assert (options.root, options.pattern.text, options.done) == ("/r", "it_{step}", ["a", "b/*.x"])
    assert (options.settle_s, options.interval_s, options.timeout_s, options.grace_s) == (5, 0.5, 120, 7)
    assert (options.start_from, options.copy, options.sync, options.thin) == ("/s", True, True, False)
    assert (options.keep_own, options.keep_root, options.before_end) == (4, 5, (600, 10))
    assert options.allow_step_back
    assert options.end_on_error
    assert options.require_managed
    assert options.steps


def test_defaults() -> None:
    options = parse(["--", "true"])
    assert (options.settle_s, options.interval_s, options.timeout_s) == (60, 10, 900)
    assert (options.keep_own, options.keep_root, options.thin) == (2, 3, True)
    assert not options.end_on_error
    assert parse(["--before-end", "90", "--", "x"]).before_end == (90, 15)
    assert parse(["--keep", "7", "--beside"]).keep_own == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "no command"),
        (["--"], "no command after --"),
        (["srun", "x"], "'srun' stands before --"),
        (["--patern", "x"], "'--patern'"),
        (["--sett", "5", "--", "x"], "'--sett'"),
        (["--settle"], "--settle needs a value"),
        (["--settle", "--", "x"], "--settle needs a value"),
        (["--settle", "x", "--", "x"], "--settle 'x' is not a time"),
        (["--settle", "-1", "--", "x"], "--settle '-1'"),
        (["--settle", "99999999", "--", "x"], "--settle '99999999' is out of bounds"),
        (["--interval", "0", "--", "x"], "--interval '0' is out of bounds"),
        (["--settle", "1", "--settle", "2", "--", "x"], "--settle is given twice"),
        (["--copy=1", "--", "x"], "--copy takes no value"),
        (["--keep", "0", "--", "x"], "--keep '0'"),
        (["--keep", "1,x", "--", "x"], "--keep 'x'"),
        (["--before-end", "10m:KILL", "--", "x"], "--before-end '10m:KILL'"),
        (["--before-end", "10m:", "--", "x"], "--before-end '10m:'"),
        (["--before-end", "10x", "--", "x"], "--before-end '10x'"),
        (["--on-error", "stop", "--", "x"], "--on-error 'stop'"),
        (["--done", "/abs", "--", "x"], "--done '/abs'"),
        (["--done", "../x", "--", "x"], "--done '../x'"),
        (["--root", "", "--", "x"], "--root has no path"),
        (["--beside", "--finish"], "exclude each other"),
        (["--beside", "--", "x"], "take no command"),
        (["--beside", "--status", "0"], "--status goes with --finish"),
        (["--finish", "--status", "999"], "--status '999'"),
        (["--pattern", "x", "--", "x"], "--pattern 'x'"),
    ],
)
def test_refused(line: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert said in str(caught.value)
    assert "\n" not in caught.value.line()
    assert caught.value.exit_code == 64


def test_the_help_names_every_option() -> None:
    text = help_text()
    for row in OPTIONS:
        assert row.name in text


def test_words_on_a_first_start() -> None:
    line = ["a", "--out={dir}", "{resume:--from}", "{resume:--from=}", "{resume}", "{x}", "{dir}/log"]
    assert words.fill(line, "/d", None) == ["a", "--out=/d", "{x}", "/d/log"]


def test_words_with_a_save() -> None:
    line = ["a", "{resume:--from}", "{resume:ckpt_path=}", "{resume}", '{"json": 1}']
    assert words.fill(line, "/d", "/s 1") == ["a", "--from", "/s 1", "ckpt_path=/s 1", "/s 1", '{"json": 1}']


@pytest.mark.parametrize(
    "word", ["x{resume:--from}", "{resume:--from}x", "{resume:}", "a={resume}", "{resume:a}{resume:b}"]
)
def test_words_refused(word: str) -> None:
    with pytest.raises(UsageError, match="resume"):
        words.check([word])
