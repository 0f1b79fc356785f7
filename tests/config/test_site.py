"""The site's settings: defaults, every error at once, who may choose the file, and the sample."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.config.settings import REQUIRED, SETTINGS, sample
from slurm_dispatch.config.site import Site, load_site, parse_site
from slurm_dispatch.errors import ConfigurationError
from slurm_dispatch.rules.rule import parse_rules

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = os.geteuid() == 0


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_what_is_not_given_is_the_default(tmp_path: Path) -> None:
    site = load_site(write(tmp_path / "dispatch.toml", 'state = "/shared/state"\n'))
    assert site.state == "/shared/state"
    for setting in SETTINGS:
        if setting.default is not REQUIRED:
            assert getattr(site, setting.name) == setting.default, setting.name


def test_the_settings_of_the_table_are_the_fields() -> None:
    assert {setting.name for setting in SETTINGS} | {"path"} == set(Site.__dataclass_fields__)


def test_everything_can_be_set(tmp_path: Path) -> None:
    text = """
        state = "/s"
        cluster = "alpha"
        slurm_user = "slurmy"
        user_mode = true
        slurm_bin = "/opt/slurm/bin"
        submit_timeout_s = 100
        message_timeout_s = 12.5
        query_timeout_s = 10
        owner_timeout_s = 5
        tick_interval_s = 7
        max_submissions = 9
        launch_failures = 2
        accounting = false
        rules = ["preempted:resubmit,budget=50", "failed:stop"]
    """
    site = load_site(write(tmp_path / "dispatch.toml", text))
    assert (site.cluster, site.slurm_bin, site.message_timeout_s) == ("alpha", "/opt/slurm/bin", 12.5)
    assert (site.accounting, site.user_mode, site.launch_failures) == (False, True, 2)
    assert site.rules == parse_rules(["preempted:resubmit,budget=50", "failed:stop"])


def test_everything_that_is_wrong_is_said_at_once_with_its_place(tmp_path: Path) -> None:
    text = """
        state = "relative"
        cluster = 7
        user_mode = "yes"
        submit_timeout_s = 1
        max_submissions = 1.5
        tick_interval_s = true
        rules = ["failed:retry"]
        colour = "blue"
    """
    path = write(tmp_path / "dispatch.toml", text)
    with pytest.raises(ConfigurationError) as caught:
        load_site(path)
    line = caught.value.line()
    assert caught.value.exit_code == 78
    for part in (
        path,
        "state: relative is not an absolute path",
        "cluster: 7 is not a text",
        "user_mode: yes is not true or false",
        "submit_timeout_s: 1 is out of bounds, it is 5 to 3600",
        "max_submissions: 1.5 is not a number",
        "tick_interval_s: True is not a number of seconds",
        "rules: rule 'failed:retry'",
        "colour: there is no such setting",
    ):
        assert part in line
    assert line.isprintable()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "state: it must be given"),
        ({"state": ""}, "state: it is empty"),
        ({"state": "~/state"}, "state: ~/state is not an absolute path"),
        ({"state": "/s", "rules": "failed:stop"}, "rules: it is a list of texts"),
        ({"state": "/s", "rules": ["failed:hold"]}, "not available in this version"),
    ],
)
def test_a_setting_is_refused(content: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_site("f", content)
    assert says in caught.value.line()


def test_in_user_mode_the_state_folder_may_be_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert parse_site("f", {"state": "~/state", "user_mode": True}).state == "/home/ada/state"


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"state = ", "is not TOML"), (b"\xff", "is not TOML"), (b"x" * 2_000_000, "more than the limit")],
)
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ConfigurationError, match=says):
        load_site(str(tmp_path / "f"))


def test_no_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no .*none") as caught:
        load_site(str(tmp_path / "none"))
    assert "DISPATCH_CONFIG" in caught.value.line()


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPATCH_CONFIG", write(tmp_path / "f", 'state = "/from/the/variable"'))
    (tmp_path / "f").chmod(0o644)
    assert load_site().state == "/from/the/variable"


@pytest.mark.skipif(not ROOT, reason="it is root who must not follow it; the suite runs as root in CI")
def test_root_does_not_follow_a_file_that_another_could_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    monkeypatch.setenv("DISPATCH_CONFIG", write(path, 'state = "/s"'))
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="not root's alone"):
        load_site()
    path.chmod(0o644)
    load_site()
    os.chown(path, 4321, 4321)
    with pytest.raises(ConfigurationError, match="not root's alone"):
        load_site()
    path.unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        load_site()


def test_the_sample_is_a_file_that_loads_as_the_defaults(tmp_path: Path) -> None:
    site = load_site(write(tmp_path / "f", sample()))
    assert site == parse_site(site.path, {"state": "/shared/slurm-dispatch"})


def test_the_sample_loads_with_every_line_uncommented() -> None:
    lines = [line.removeprefix("# ") for line in sample().splitlines()]
    names = {setting.name for setting in SETTINGS}
    settings = [line for line in lines if line.split(" = ")[0] in names]
    assert len(settings) == len(SETTINGS)
    parse_site("sample", tomllib.loads("\n".join(settings)))
