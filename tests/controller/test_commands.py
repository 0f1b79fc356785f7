"""``dispatch tick`` and ``dispatch cancel`` as commands, with Slurm's commands replaced by small scripts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.tick import Renewal, make_controller
from slurm_dispatch.config.site import load_site
from slurm_dispatch.controller.kick import Kick
from slurm_dispatch.controller.loop import Loop
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAY = "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"


@pytest.fixture
def site() -> Iterator[Site]:
    for made in make_site():
        made.install(dict.fromkeys(("squeue", "scontrol", "sacct", "scancel", "sbatch"), AWAY))
        yield made


def test_a_tick_with_slurm_away_says_so_in_one_line_and_is_done(site: Site) -> None:
    key = site.preempted()
    facts = site.rig.kinds(key)
    done = site.dispatch("tick")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("dispatch: Slurm does not tell its queue: squeue: ")
    assert [kind for kind in site.rig.kinds(key) if kind != "started"] == facts
    assert site.rig.folder.last_tick() is not None


def test_a_cancel_with_slurm_away_is_recorded_and_says_what_comes(site: Site) -> None:
    key = site.preempted()
    done = site.dispatch("cancel", key, "--wait", "0", "--reason", "enough")
    assert done.returncode == 75, done.stderr
    assert "the wish is recorded" in done.stdout
    request = site.rig.last(key, "request")
    assert (request.body["what"], request.body["reason"]) == ("cancel", "enough")
    assert os.stat(site.rig.record(key)._path(request.seq)).st_uid == site.rig.uid
    again = site.dispatch("cancel", key, "--wait", "0", "--json")
    assert json.loads(again.stdout)["closed"] is None
    assert site.rig.kinds(key).count("request") == 1


def test_a_job_that_is_not_there_cannot_be_cancelled(site: Site) -> None:
    done = site.dispatch("cancel", "nosuchjob")
    assert done.returncode == 66, done.stderr
    assert done.stderr.count("\n") == 1


def test_a_configuration_that_is_wrong_is_one_line(site: Site) -> None:
    with open(site.folder / "dispatch.toml", "a", encoding="ascii") as stream:
        stream.write("nonsense = 1\n")
    done = site.dispatch("tick")
    assert done.returncode == 78, done.stderr
    assert "nonsense" in done.stderr
    assert done.stderr.count("\n") == 1


def test_settings_that_change_count_in_a_loop_that_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cron's ticks read the file each time: both must decide by the same."""
    config = site.folder / "dispatch.toml"
    monkeypatch.setenv("DISPATCH_CONFIG", str(config))
    text = config.read_text()
    renewal = Renewal(load_site(), make_controller(load_site()))
    first = renewal.controller
    passes: list[str] = []

    def turn(full: bool) -> float | None:
        assert full
        passes.append(config.read_text().removeprefix(text))
        now = ("rules = [", "", '# nothing new\n', 'rules = ["failed:stop"]\n')[len(passes) - 1 :][:1]
        config.write_text(text + now[0])
        return None

    monkeypatch.setattr(Kick, "ensure", lambda _: None)
    loop = Loop(turn, Kick("/nowhere", lambda work, deadline_s: work()), 0.01, renewal.is_due)
    loop.run()
    assert not loop.ended
    assert passes == ["", "rules = [", "", "# nothing new\n"]
    assert [rule.text for rule in renewal.site.rules] == ["failed:stop"]
    assert renewal.controller is not first
    assert [rule.text for rule in renewal.controller._means.policy.rules] == ["failed:stop"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2, said
    assert said[0].startswith(f"dispatch: {config} is not TOML: ")
    assert said[0].endswith("; the settings of before go on")
    assert said[1] == f"dispatch: the settings of {config} have changed; the new ones count from now on"


@pytest.mark.parametrize("command", ["tick", "cancel"])
def test_each_has_help_with_an_example(site: Site, command: str) -> None:
    done = site.dispatch(command, "--help")
    assert done.returncode == 0
    assert f"dispatch {command}" in done.stdout
    assert "Exit codes" in done.stdout
