"""Every setting of a job, in every place where it can stand: the strongest place counts, and says so."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.config.settings import JOB_SETTINGS
from slurm_dispatch.config.site import parse_site
from slurm_dispatch.errors import UsageError
from slurm_dispatch.submit.command_line import OWN, read_command_line
from slurm_dispatch.submit.directives import own_directives
from slurm_dispatch.submit.settings import COMMAND_LINE, Settings, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = sorted((Path(__file__).resolve().parents[1] / "assets").glob("slurm-*/help.json"))
NOW = 1_800_000_000.0
# For each setting: four values as they are typed, and what each is.
VALUES: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "checkpoint": (("/a", "/b", "/c", "/d"), ("/a", "/b", "/c", "/d")),
    "start-from": (("/a", "/b", "/c", "/d"), ("/a", "/b", "/c", "/d")),
    "shared-hold-for": (("1h", "2h", "3h", "4h"), (3600, 7200, 10800, 14400)),
    "stall": (("1m", "2m", "3m", "4m"), (60, 120, 180, 240)),
    "suspect": (("10s", "20s", "30s", "40s"), (10, 20, 30, 40)),
    "max-submissions": (("1", "2", "3", "4"), (1, 2, 3, 4)),
    "max-node-hours": (("1", "2.5", "3", "4.25"), (1, 2.5, 3, 4.25)),
    "until": (("1d", "2d", "3d", "4d"), tuple(NOW + 86400 * days for days in (1, 2, 3, 4))),
    "no-progress-limit": (("1", "2", "3", "4"), (1, 2, 3, 4)),
}
SINGLE = [setting for setting in JOB_SETTINGS if setting.metavar and setting.name not in {"on", "job-file"}]


def gathered(
    folder: Path, typed: Sequence[tuple[str, str]] = (), written: Sequence[tuple[str, str, str]] = (),
    file: str | None = None, site: dict[str, Any] | None = None,
) -> Settings:  # fmt: skip
    if file is not None:
        (folder / "f.toml").write_text(file)
        typed = [*typed, ("job-file", "f.toml")]
    return gather(
        typed, written, site=parse_site("s", {"state": "/s", **(site or {})}), now=NOW,
        path_of=lambda what, text: str(folder / text),
    )  # fmt: skip


def test_the_test_is_about_every_setting() -> None:
    assert {setting.name for setting in SINGLE} == set(VALUES)


@pytest.mark.parametrize("setting", SINGLE, ids=lambda setting: setting.name)
@pytest.mark.parametrize("places", list(itertools.product([True, False], repeat=4)), ids=str)
def test_the_strongest_place_counts(tmp_path: Path, setting: Any, places: tuple[bool, ...]) -> None:
    texts, values = VALUES[setting.name]
    line, script, in_file, in_site = places
    quoted = texts[2] if texts[2].isdigit() else f'"{texts[2]}"'
    has_site = bool(in_site and setting.site)
    settings = gathered(
        tmp_path,
        [(setting.name, texts[0])] if line else [],
        [(setting.name, texts[1], "line 2 of the script")] if script else [],
        f"{setting.name} = {quoted}\n" if in_file else None,
        {setting.site: values[3]} if has_site else {},
    )
    expected = [
        (line, values[0], COMMAND_LINE),
        (script, values[1], "line 2 of the script"),
        (in_file, values[2], "f.toml, line 1"),
        (has_site, values[3], f"the site's {setting.site} (s)"),
        (True, setting.default, "built in"),
    ]
    _, value, origin = next(row for row in expected if row[0])
    assert settings.values[setting.name] == value
    assert settings.origins.get(setting.name, "built in") == origin
    assert settings.said(setting.name) == (line or script or in_file)


def test_flags_and_rules_add_up(tmp_path: Path) -> None:
    settings = gathered(
        tmp_path,
        [("on", "failed:stop"), ("no-plan", "")],
        [("on", "lost:stop", "line 3 of the script"), ("adopt-root", "", "line 3 of the script")],
        'shared-checkpoint = true\non = ["timeout:hold"]\n',
    )
    assert [rule.text for rule in settings.rules] == ["failed:stop", "lost:stop", "timeout:hold"]
    flags = ("no-plan", "adopt-root", "shared-checkpoint", "unprotected")
    assert [settings.flag(name) for name in flags] == [True, True, True, False]


def test_a_date_of_toml_is_a_date(tmp_path: Path) -> None:
    text = gathered(tmp_path, file="until = 2999-01-31T12:00:00Z\n").values["until"]
    assert text == gathered(tmp_path, [("until", "2999-01-31T12:00Z")]).values["until"]


@pytest.mark.parametrize("value", ["[1]", "{a = 1}", "true", '""', "nan", "inf", "-1", '"x"', "[[]]"])
@pytest.mark.parametrize(
    "setting", [setting for setting in JOB_SETTINGS if not setting.typed_only], ids=lambda it: it.name
)
def test_what_is_wrong_in_a_job_file_names_its_line(tmp_path: Path, setting: Any, value: str) -> None:
    """Whatever stands there: it is taken, or refused in one line that says where it stands."""
    fits = {("checkpoint", '"x"'), ("start-from", '"x"'), ("shared-checkpoint", "true")}
    if (setting.name, value) in fits:
        assert gathered(tmp_path, file=f"\n{setting.name} = {value}\n").origins[setting.name] == "f.toml, line 2"
        return
    with pytest.raises(UsageError) as caught:
        gathered(tmp_path, file=f"\n{setting.name} = {value}\n")
    assert caught.value.line().startswith("f.toml, line 2")
    assert caught.value.line().isprintable()


NEGATABLE = [setting for setting in JOB_SETTINGS if setting.negatable]


@pytest.mark.parametrize("setting", NEGATABLE, ids=lambda setting: setting.name)
@pytest.mark.parametrize("place", ["typed", "written"])
def test_what_a_weaker_place_says_can_be_taken_away(tmp_path: Path, setting: Any, place: str) -> None:
    away = f"no-{setting.name}"
    (tmp_path / "j.toml").write_text("max-submissions = 3\n")
    weaker = "j.toml" if setting.name == "job-file" else VALUES.get(setting.name, (("",),))[0][0]
    line = [(away, "")] if place == "typed" else []
    script = [(setting.name, weaker, "line 2")] if place == "typed" else [(away, "", "line 2")]
    has_site = {setting.site: VALUES[setting.name][1][3]} if setting.site else {}
    file = None
    if place == "written" and not setting.typed_only and setting.name != "job-file":
        file = f'{setting.name} = {"true" if setting.kind == "bool" else repr(VALUES[setting.name][0][0])}\n'
        file = file.replace("'1'", "1")
    settings = gathered(tmp_path, line, script, file, has_site)
    assert settings.values[setting.name] == setting.default
    assert settings.origins[setting.name] == (COMMAND_LINE if place == "typed" else "line 2")
    if setting.name == "job-file":
        assert settings.values["max-submissions"] != 3
    # A stronger place says it again.
    again = gathered(tmp_path, [(setting.name, weaker)], [(away, "", "line 2")])
    assert again.values[setting.name] != setting.default
    with pytest.raises(UsageError, match=f"--{setting.name} stands twice in the command line"):
        gathered(tmp_path, [(setting.name, weaker), (away, "")])


def test_what_takes_away_is_no_beginning_of_an_option_of_sbatchs() -> None:
    theirs = set(re.findall(r"--([a-z][a-z-]+)", "\n".join(path.read_text() for path in HELP)))
    assert {"no-kill", "no-requeue"} <= theirs
    for name in OWN:
        assert not [it for it in theirs if it.startswith(name)], name


def test_a_flag_of_the_script_is_taken_away_on_the_command_line() -> None:
    line = read_command_line(["--no-shared-checkpoint", "--no-suspect", "train.sh"])
    assert line.own == (("no-shared-checkpoint", ""), ("no-suspect", ""))
    assert line.script == "train.sh"
    with pytest.raises(UsageError, match="--no-stall takes no value"):
        read_command_line(["--no-stall=5", "train.sh"])
    found, wrong = own_directives(b"#!/bin/sh\n#DISPATCH --no-stall\n")
    assert (found, wrong) == ((("no-stall", "", "line 2 of the script"),), ())
