"""The site's settings: defaults, every error at once, who may choose the file, and the sample."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.config.documents import sample
from slurm_dispatch.config.kinds import REQUIRED
from slurm_dispatch.config.limits import Limit
from slurm_dispatch.config.settings import HOOKS, LIMIT_SETTINGS, SETTINGS
from slurm_dispatch.config.site import Site, load_site, parse_site
from slurm_dispatch.errors import ConfigurationError, DeniedError
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
    assert [setting.name for setting in SETTINGS] == list(Site.__dataclass_fields__)[1:-1]
    assert [setting.name for setting in LIMIT_SETTINGS] == list(Limit.__dataclass_fields__)[1:]


def test_the_cluster_s_name_is_written_as_slurm_keeps_it(tmp_path: Path) -> None:
    """C080: the hooks are told it in small letters, and an object is known by it."""
    assert load_site(write(tmp_path / "dispatch.toml", 'state = "/s"\ncluster = "Alpha"\n')).cluster == "alpha"


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
        cessation = ["ask"]
        notify = "mail"
        hooks = ["epilog", "epilogue"]
        suspect_share = 1.5
        shared_hold_for_s = "400d"
        longest_hold_s = "3 days"

        [[limit]]
        actions = ["hold"]
        colour = "blue"

        [[limit]]
        user = ["ada", "ada"]
    """
    path = write(tmp_path / "dispatch.toml", text)
    with pytest.raises(ConfigurationError) as caught:
        load_site(path)
    line = caught.value.line()
    assert caught.value.exit_code == 78
    for part in (
        path,
        "state (line 2): relative is not an absolute path",
        "cluster (line 3): 7 is not a text",
        "user_mode (line 4): yes is not true or false",
        "submit_timeout_s (line 5): 1 is out of bounds, it is 5 to 3600",
        "max_submissions (line 6): 1.5 is not a number without a fraction",
        "tick_interval_s (line 7): True is not a number of seconds",
        "rules (line 8): rule 'failed:retry'",
        "colour (line 9): there is no such setting",
        "cessation (line 10): ask is not an absolute path",
        "notify (line 11): it is a list of texts",
        "hooks (line 12): 'epilogue' is not one of prolog-slurmctld,",
        "suspect_share (line 13): 1.5 is out of bounds, it is 0 to 1",
        "shared_hold_for_s (line 14): 400d is out of bounds, it is 1m to 365d",
        "longest_hold_s (line 15): '3 days' is not a duration",
        "limit 1: actions (line 18): 'hold' is not one of resubmit, requeue",
        "limit 1: colour (line 19): there is no such setting of a limit",
        "limit 2: user (line 22): ada stands twice",
        "limit 2: it limits nothing",
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
        ({"state": "/s", "rules": ["failed:hold,budget=2"]}, "budget goes with resubmit and requeue only"),
        ({"state": "/s", "max_submissions": 10**400}, "is out of bounds, it is 1 to 999999"),
        ({"state": "/s", "tick_interval_s": -(10**400)}, "is out of bounds"),
        ({"state": "/s", "suspect_share": float("nan")}, "suspect_share: nan is not a number"),
        ({"state": "/s", "limit": {"open_jobs": 3}}, "limit: it is a list of tables"),
        ({"state": "/s", "limit": [{"per": "all", "open_jobs": -1}]}, "limit 1: open_jobs: -1 is out of bounds"),
        ({"state": "/s", "limit": [{"open_jobs": 1}] * 1001}, "1001 tables are more than 1000"),
        ({"state": "/s", "max_submissions": 20_000}, "max_submissions: it is more than most_submissions"),
        ({"state": "/s", "cessation": ["/bin/x", "a\0b"]}, "cessation: it has a NUL character"),
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
    [
        (b"x = " + b"[" * 100_000, "is not TOML"),
        (b"state = ", "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"x" * 2_000_000, "more than the limit"),
    ],
)
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ConfigurationError, match=says):
        load_site(str(tmp_path / "f"))


def test_no_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no .*none") as caught:
        load_site(str(tmp_path / "none"))
    assert "DISPATCH_CONFIG" in caught.value.line()


def test_a_file_that_its_readers_may_not_read_says_which_mode_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str, most: int) -> bytes:
        raise DeniedError(f"reading {path}: Permission denied")

    monkeypatch.setattr("slurm_dispatch.config.site.read_regular", denied)
    with pytest.raises(ConfigurationError, match="Permission denied") as caught:
        load_site("/etc/slurm-dispatch/dispatch.toml")
    assert "0644" in caught.value.line()


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
    """What the sample shows of a setting is one that could be written there, and is its default if it has one."""
    lines = [line.removeprefix("# ") for line in sample().splitlines()]
    names = {setting.name for setting in (*SETTINGS, *LIMIT_SETTINGS)}
    settings = [line for line in lines if line.split(" = ")[0] in names or line == "[[limit]]"]
    content = tomllib.loads("\n".join(settings))
    assert set(content) == {setting.name for setting in SETTINGS}
    assert set(content["limit"][0]) == {setting.name for setting in LIMIT_SETTINGS}
    site = parse_site("sample", content)
    for setting in SETTINGS:
        if setting.default is not REQUIRED and setting.default is not None and setting.kind != "limits":
            assert getattr(site, setting.name) == setting.default, setting.name


def test_times_can_be_written_as_people_write_them() -> None:
    site = parse_site("f", {"state": "/s", "tick_interval_s": "10s", "shared_hold_for_s": "36h", "stall_s": 90.5})
    assert (site.tick_interval_s, site.shared_hold_for_s, site.stall_s) == (10, 36 * 3600, 90.5)


def test_limits_are_tables(tmp_path: Path) -> None:
    text = """state = "/s"

[[limit]]
partition = ["gpu", "debug"]
actions = []
longest_hold_s = "7d"

[[limit]]
user = ["ada"]
per = "all"
resubmissions_per_hour = 200
open_jobs = 0
overlap = 1
"""
    site = load_site(write(tmp_path / "f", text))
    assert site.limit == (
        Limit(1, partition=("gpu", "debug"), actions=(), longest_hold_s=7 * 86400),
        Limit(2, user=("ada",), per="all", resubmissions_per_hour=200, open_jobs=0, overlap=1),
    )


def test_what_is_given_says_its_line(tmp_path: Path) -> None:
    lines = [
        "# mine",
        'state = "/s"',
        "",
        '"max_submissions"=7 # x',
        "rules = [",
        '  "failed:stop",',
        "]",
        "[[limit]]",
    ]
    text = "\n".join([*lines, "overlap = 0"])
    site = load_site(write(tmp_path / "f", text))
    assert site.given == {"state": 2, "max_submissions": 4, "rules": 5, "limit": 8, "limit.1.overlap": 9}
    assert site.place("max_submissions") == f"{tmp_path}/f, line 4"
    assert site.place("no_progress") == "built in"
    assert parse_site("f", {"state": "/s"}).place("state") == "f"


def test_user_mode_has_no_hooks_unless_it_says_so() -> None:
    assert parse_site("f", {"state": "/s"}).hooks == HOOKS
    assert parse_site("f", {"state": "/s", "user_mode": True}).hooks == ()
    assert parse_site("f", {"state": "/s", "user_mode": True, "hooks": ["epilog"]}).hooks == ("epilog",)


@pytest.mark.parametrize("argv", [[], ["slurm-nodes"], ["/usr/sbin/ask", "-v", "a b"]])
def test_a_command_is_an_argv(argv: list[str]) -> None:
    assert parse_site("f", {"state": "/s", "cessation": argv}).cessation == tuple(argv)
