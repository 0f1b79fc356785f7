"""The site's side of a tick with its children: who writes and runs what, and what an owner's child may say."""

from __future__ import annotations

import json
import os
import pwd
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.cli.tick import run_once
from slurm_dispatch.config.limits import Limit
from slurm_dispatch.controller import hearsay, hints, owner
from slurm_dispatch.controller import tick as ticks
from slurm_dispatch.controller.hearsay import Hearsay
from slurm_dispatch.controller.keeper import Keeper
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tick import Controller, Settings
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.state.users import user_name
from tests.controller.sites import SECOND_OWNER, SLURM_USER, Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


def controller(site: Site, rules: SiteRules) -> Controller:
    """A controller of a site with these rules."""
    settings = Settings(state=site.rig.path, user_mode=not site.root, slurm_user=SLURM_USER, host="ctl",
                        owner_timeout_s=30.0)  # fmt: skip
    means = site.rig.means()
    return Controller(settings, means, site.log.append, keeper=Keeper(rules, means.port, None, site.log.append))


def remembered(site: Site) -> hints.Hints:
    return hints.load(hints.tick_folder(site.rig.path))


def out_of_memory(site: Site) -> str:
    """A job of the owner that has just ended so, which holds it."""
    key = site.rig.job()
    site.rig.start(key)
    site.rig.slurm.end(site.rig.object(key), "OUT_OF_MEMORY", exit_signal=9)
    site.rig.end_note(key)
    site.hand_over()
    return key


def test_a_tick_remembers_what_it_brought_back_and_its_files_are_its_own(site: Site) -> None:
    keys = [site.preempted() for _ in range(3)]
    run_once(controller(site, SiteRules()))
    found = remembered(site).recent
    assert sorted(it.job for it in found.resubmissions) == sorted(keys)
    assert {(it.uid, it.partition, it.account) for it in found.resubmissions} == {(site.rig.uid, "low", "ml")}
    assert sorted(it.job for it in found.ends) == sorted(keys)
    status = os.stat(os.path.join(hints.tick_folder(site.rig.path), "recent"))
    assert (status.st_uid, status.st_mode & 0o777) == (os.geteuid(), 0o644)
    stamp = status.st_mtime_ns
    run_once(controller(site, SiteRules()))
    assert os.stat(os.path.join(hints.tick_folder(site.rig.path), "recent")).st_mtime_ns == stamp  # nothing new


def test_the_notify_command_runs_as_its_user_and_the_tick_waits_for_it(site: Site) -> None:
    said = site.folder / "said"
    said.mkdir()
    said.chmod(0o777)
    command = site.folder / "notify"
    command.write_text(f"#!/bin/sh\n/usr/bin/id -un >{said}/user\n/bin/cat >{said}/message\n")
    command.chmod(0o755)
    key = out_of_memory(site)
    run_once(controller(site, SiteRules(notify=(str(command),), notify_user=SLURM_USER, notify_timeout_s=60.0)))
    assert site.rig.last(key, "told").body["status"] == 0
    message = json.loads((said / "message").read_text())
    assert (message["job"], message["what"], message["uid"]) == (key, "start", site.rig.uid)
    if site.root:
        assert (said / "user").read_text() == f"{SLURM_USER}\n"
        assert message["user"] == user_name(site.rig.uid)


def forge(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    """The owners' children report this for the site, whatever they do."""
    real = owner.work

    def lies(*words: Any, **more: Any) -> bytes:
        reports = json.loads(real(*words, **more))
        for report in reports:
            report["site"] = said
        return json.dumps(reports).encode("ascii")

    monkeypatch.setattr(owner, "work", lies)


@pytest.mark.parametrize(
    "said",
    [{"ended": []}, {**hearsay.pack(Hearsay(clock=True)), "ended": [[1, 1.0, "failed", ["x;y"]]]}, [], "x", None],
)
def test_a_child_that_reports_nonsense_for_the_site_changes_nothing_there(
    site: Site, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    site.preempted()
    forge(monkeypatch, said)
    run_once(controller(site, SiteRules()))
    assert remembered(site) == hints.Hints()
    assert (
        len([line for line in site.log if "makes no sense" in line or "nonsense" in line or "no object" in line]) == 1
    )


def test_a_child_cannot_speak_for_another_owner_nor_of_the_future(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = site.preempted()
    said = Hearsay("x", "low", [hearsay.Ended(1, time.time() + 1e6, "node_fail", ("c1",))], [(2, time.time() + 1e6)])
    forge(monkeypatch, hearsay.pack(said))
    before = time.time()
    run_once(controller(site, SiteRules()))
    found = remembered(site)
    assert [(it.job, it.uid) for it in found.recent.resubmissions] == [(key, site.rig.uid)]
    assert all(
        before <= it.at <= time.time() for it in (*found.recent.resubmissions, *found.recent.ends, *found.memory)
    )


@pytest.mark.parametrize("apart", ["owners", "parts of one owner"])
@pytest.mark.parametrize("limits", [(), (Limit(1, account="ml", overlap=1),)], ids=["site", "account"])
def test_the_limit_on_overlaps_is_one_for_all_owners_of_a_pass(
    site: Site, monkeypatch: pytest.MonkeyPatch, apart: str, limits: tuple[Limit, ...]
) -> None:
    """Each owner's child reads its own jobs: what the others suspect in the same pass it cannot know."""
    second = pwd.getpwnam(SECOND_OWNER).pw_uid if site.root and apart == "owners" else site.rig.uid
    monkeypatch.setattr(ticks, "OWNER_JOBS_MAX", 1)
    keys = []
    for uid in (site.rig.uid, second, site.rig.uid):
        site.rig.uid = uid
        key = site.rig.job(suspect_s=30.0, account="ml")
        site.rig.start(key)
        site.hand_over()
        keys.append(key)
    rules = SiteRules(suspicion=True, suspect_overlaps=9 if limits else 1, limits=limits)
    run_once(controller(site, rules))
    now = time.time()
    silent = {"at": now - 5.0, "nodes": {"c1": now - 100.0}, "drained": {}}
    write_file(hints.tick_folder(site.rig.path), "silent", silent)
    site.rig.slurm.node("c1", "ALLOCATED", "NOT_RESPONDING")
    for _ in range(2):
        run_once(controller(site, rules))
        assert sum("suspected" in site.rig.kinds(key) for key in keys) == 1
    rules = replace(rules, suspect_overlaps=9, limits=())
    run_once(controller(site, rules))
    assert sum("suspected" in site.rig.kinds(key) for key in keys) == 3
