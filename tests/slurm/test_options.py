"""The options of sbatch: the table against real help texts, and reading as getopt_long reads."""

from __future__ import annotations

import getopt
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.slurm.options import (
    NO_VALUE,
    OPTIONAL_VALUE,
    OPTIONS,
    SHORT,
    SOMETIMES_VALUE,
    VALUE,
    VARIABLES,
    Option,
    as_argument,
    from_variables,
    of_version,
    parse,
    plugin_options,
    without_options,
)
from slurm_dispatch.submit.command_line import OWN, read_command_line
from tests.slurm.recorded import ASSETS, answer

# What getopt of Python is told, for comparison. It takes no optional values, so options with one are given as
# without, and are not written with "=" below.
LONG = [f"{name}=" if option.takes == VALUE else name for name, option in OPTIONS.items()]
LETTERS = "".join(f"{letter}:" if option.takes == VALUE else letter for letter, option in SHORT.items())
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=0, max_size=12)


@st.composite
def an_option(draw: st.DrawFn) -> tuple[list[str], tuple[str, str | None]]:
    """One option in one of its spellings, and what it must be read as."""
    option = OPTIONS[draw(st.sampled_from(sorted(OPTIONS)))]
    value = draw(values)
    if option.takes == VALUE:
        spellings = [[f"--{option.name}", value], [f"--{option.name}={value}"]]
        if option.short:
            spellings.append([f"-{option.short}", value])
            if value:
                spellings.append([f"-{option.short}{value}"])
        return draw(st.sampled_from(spellings)), (option.name, value)
    spellings = [[f"--{option.name}"]] + ([[f"-{option.short}"]] if option.short else [])
    return draw(st.sampled_from(spellings)), (option.name, None)


@given(
    st.lists(an_option(), max_size=6),
    st.sampled_from([[], ["--"]]),
    st.lists(values, max_size=3),
    st.sampled_from(["train.sh", "-", "", "a b", "=x"]),
)
def test_reading_is_getopts(
    options: list[tuple[list[str], tuple[str, str | None]]], dashes: list[str], rest: list[str], script: str
) -> None:
    """Whatever is typed: the options, their values, and where the script begins, as an independent getopt says."""
    argv = [word for words, _ in options for word in words] + dashes + [script, *rest]
    parsed = parse(argv)
    assert [(word.name, word.value) for word in parsed.options] == [expected for _, expected in options]
    assert argv[parsed.end :] == [script, *rest]
    assert parsed.dashes == bool(dashes)
    given_options, left = getopt.getopt(argv, LETTERS, LONG)
    assert left == [script, *rest]
    assert len(given_options) == len(options)


@given(st.lists(an_option(), max_size=6), st.sampled_from([[], ["--"]]), st.lists(values, max_size=3), st.data())
def test_sbatchs_words_pass_untouched(
    options: list[tuple[list[str], tuple[str, str | None]]], dashes: list[str], rest: list[str], data: st.DataObject
) -> None:
    """Ours are taken out wherever they stand between sbatch's; all the rest is there byte for byte and in order."""
    own = [["--checkpoint", "/c"], ["--on=failed:stop"], ["--adopt-root"], ["--start-from", "--odd"], ["--no-plan"]]
    theirs = [words for words, _ in options]
    mixed = list(theirs)
    chosen = data.draw(st.lists(st.sampled_from(own), unique_by=tuple, max_size=5))
    for words in chosen:
        mixed.insert(data.draw(st.integers(0, len(mixed))), words)
    line = read_command_line([word for words in mixed for word in words] + dashes + ["job.sh", *rest])
    assert list(line.with_added(["--no-requeue"])) == [
        *(word for words in theirs for word in words), "--no-requeue", *dashes, "job.sh", *rest,
    ]  # fmt: skip
    assert sorted(name for name, _ in line.own) == sorted(words[0][2:].split("=")[0] for words in chosen)


@given(st.lists(an_option(), max_size=8), st.sets(st.sampled_from(sorted(OPTIONS)), max_size=8))
def test_taking_options_out(options: list[tuple[list[str], tuple[str, str | None]]], names: set[str]) -> None:
    """What is left reads as the options that were not to go; 'cluster' is 'clusters' and so on."""
    names = {name for name in names if name not in {"cluster", "clusters", "tasks-per-node", "ntasks-per-node"}}
    left = without_options([word for words, _ in options for word in words], names)
    kept = [(word.name, word.value) for word in parse(left).options]
    assert kept == [expected for _, expected in options if expected[0] not in names]


def help_options(text: str) -> dict[str, str]:
    """The options that a help text shows, with what they take, read independently of the product."""
    found: dict[str, str] = {}
    for match in re.finditer(r"^ {2}(?:-[A-Za-z], |    )--([a-z0-9-]+)(\[=|=|\[)?", text, re.MULTILINE):
        found[match[1]] = {"=": VALUE, "[=": OPTIONAL_VALUE, "[": OPTIONAL_VALUE}.get(match[2] or "", NO_VALUE)
    return found


VERSIONS = ("22.05", "24.11", "26.05")
SOMETIMES = {"requeue": ("22.05", "24.11"), "get-user-env": ("26.05",)}
"""Options with an optional value that take none in these versions: both are read the same, see ``as_argument``."""


def recorded(version: str, name: str) -> Any:
    """What ``tests/assets/record_help.py`` recorded of a version."""
    return json.loads((ASSETS.parent / f"slurm-{version}" / f"{name}.json").read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_is_that_of_a_real_sbatch(version: str) -> None:
    """Every long option of the version and no other, with what it takes, and every short one."""
    assert recorded(version, "version")["stdout"].split()[-1].startswith(f"{version}.")
    real = recorded(version, "options")
    assert len(real["long"]) > 100
    sometimes = {name for name, versions in SOMETIMES.items() if version in versions}
    table = {name: option.takes for name, option in OPTIONS.items() if option.in_version(version)}
    assert all(table[name] == OPTIONAL_VALUE for name in sometimes)
    assert sometimes <= SOMETIMES_VALUE
    assert real["long"] == {**table, **dict.fromkeys(sometimes, NO_VALUE)}
    short = {letter: option.takes == VALUE for letter, option in SHORT.items() if option.in_version(version)}
    assert real["short"] == short


@pytest.mark.parametrize("version", VERSIONS)
def test_every_option_of_a_help_text_is_known(version: str) -> None:
    """None is missing in the table, each takes what the table says, and none is taken for a plugin's."""
    text = recorded(version, "help")["stdout"]
    shown = help_options(text)
    assert len(shown) > 80
    assert shown.keys() <= OPTIONS.keys()
    assert plugin_options(text) == {}
    wrong = {"export", "container", "container-id", "wrap"}
    for name, takes in shown.items():
        # It leaves some values out, and shows that of --export, which must be there, as one that need not be.
        allowed = {
            VALUE: {VALUE, OPTIONAL_VALUE},
            NO_VALUE: {NO_VALUE, OPTIONAL_VALUE},
            OPTIONAL_VALUE: {OPTIONAL_VALUE},
        }
        assert OPTIONS[name].takes in allowed[takes] or name in wrong, name


def test_no_option_of_ours_is_sbatchs() -> None:
    """None equals one of sbatch's or begins one, in any version."""
    for own in OWN:
        assert not [name for name in OPTIONS if name.startswith(own)]


@pytest.mark.parametrize("typed", ["part", "parti", "no-r", "job-n", "outp"])
def test_abbreviations(typed: str) -> None:
    """A beginning that only one option has is that option, as getopt_long decides."""
    (name,) = [name for name in OPTIONS if name.startswith(typed)]
    word = parse([f"--{typed}", "x", "y"]).options[0]
    assert word.name == name
    assert (word.value == "x") == (OPTIONS[name].takes == VALUE)


def test_an_abbreviation_depends_on_the_version() -> None:
    """--cons is --constraint up to 25.05, and two options from 25.11 on."""
    old = parse(["--cons", "gpu", "s.sh"], lambda: of_version("24.11.5", ""))
    assert (old.options[0].name, old.end) == ("constraint", 2)
    new = parse(["--cons", "gpu", "s.sh"], lambda: of_version("25.11.1", ""))
    assert new.options[0].name == "cons"


def test_plugins_options() -> None:
    """Options that a help text has and the table has not are a plugin's."""
    text = answer("help").stdout + "\nOptions provided by plugins:\n      --image=NAME   x\n      --flag    y\n"
    assert plugin_options(text) == {"image": Option("image", "", VALUE), "flag": Option("flag", "", NO_VALUE)}
    parsed = parse(["--image", "a", "--flag", "s.sh"], lambda: of_version("24.11", text))
    assert ([word.name for word in parsed.options], parsed.end) == (["image", "flag"], 3)


def test_the_help_is_asked_for_only_when_needed() -> None:
    """Known options cost no process."""

    def never() -> dict[str, Option]:
        raise AssertionError("asked")

    assert parse(["-N1", "--time=5", "--part", "low", "s.sh"], never).end == 4


def test_variables_become_options() -> None:
    """Each variable's option exists; flags follow sbatch's rule for what 'set' means."""
    assert set(VARIABLES.values()) <= OPTIONS.keys()
    found = from_variables({"SBATCH_PARTITION": "low", "SLURM_HINT": "a", "SBATCH_HINT": "b", "OTHER": "x"})
    assert found == (("hint", "a"), ("hint", "b"), ("partition", "low"))
    assert from_variables({"SBATCH_REQ_SWITCH": "2", "SBATCH_WAIT4SWITCH": "10:00"}) == (("switches", "2@10:00"),)
    for value, expected in (
        ("", "--overcommit"),
        ("yes", "--overcommit"),
        ("2", "--overcommit"),
        ("0", None),
        ("no", None),
    ):
        assert as_argument("overcommit", value) == expected
    assert as_argument("partition", "") == "--partition="
    # "--requeue=1" is refused up to 25.05, and "--get-user-env=1" in 26.05.
    for value in ("", "1", "yes"):
        assert as_argument("requeue", value) == "--requeue"
        assert as_argument("get-user-env", value) == "--get-user-env"
    assert (as_argument("requeue", "0"), as_argument("requeue", "no")) == (None, None)
    assert as_argument("requeue", "expedite") == "--requeue=expedite"
    assert as_argument("get-user-env", "10L") == "--get-user-env=10L"
    assert (as_argument("exclusive", ""), as_argument("exclusive", "user")) == ("--exclusive", "--exclusive=user")
