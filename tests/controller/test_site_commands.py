"""``dispatch nodes`` and ``dispatch site maintenance``, with Slurm's commands replaced by small scripts."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.site import begin, parse_length
from slurm_dispatch.controller import hints, memory
from slurm_dispatch.controller.memory import Fading, Failure
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.errors import NotAllowedError, UsageError
from tests.controller.sites import Site, make_site
from tests.slurm.test_parse_nodes import paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    for made in make_site():
        nodes = made.folder / "nodes"
        nodes.write_text(paragraph("c1", "DOWN+NOT_RESPONDING") + paragraph("c2") + paragraph("c3"))
        made.install({"scontrol": f"#!/bin/sh\ncat {nodes}\n"})
        yield made


def tick_folder(site: Site) -> str:
    return hints.tick_folder(site.rig.path)


def remembered(site: Site, *failures: tuple[str, int, str, float]) -> None:
    """Put these into the node memory: node, owner, outcome, age."""
    now = time.time()
    told = [
        Failure(now - age_s, f"job{number}", 1, uid, outcome, "low", (node,))
        for number, (node, uid, outcome, age_s) in enumerate(failures)
    ]
    write_file(tick_folder(site), "memory", memory.content(memory.remember((), told, Fading(), now)))


def test_nodes_shows_the_evidence_and_what_is_kept_off(site: Site) -> None:
    me = os.getuid()
    remembered(site, ("c2", me, "node_fail", 60.0), ("c3", me, "failed", 5.0))
    write_file(tick_folder(site), "silent", {"at": time.time(), "nodes": {"c1": time.time() - 90.0}, "drained": {}})
    done = site.dispatch("nodes")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[1:3]] == ["c2", "c1"]
    assert "keep off" in done.stdout
    assert "node_fail of job0" in done.stdout
    assert "silent since 1m ago" in done.stdout
    assert "c3" not in done.stdout
    found = json.loads(site.dispatch("nodes", "--all", "--json").stdout)
    assert [(row["node"], row["avoided"]) for row in found["nodes"]] == [("c2", True), ("c3", False), ("c1", False)]
    (entry,) = found["nodes"][0]["evidence"]
    assert (entry["outcome"], entry["uid"]) == ("node_fail", me)
    assert entry["expires"] > time.time()


def test_nodes_without_slurm_says_so_and_avoids_none(site: Site) -> None:
    remembered(site, ("c2", os.getuid(), "node_fail", 60.0))
    (site.folder / "bin" / "scontrol").write_text(
        "#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    )
    done = site.dispatch("nodes")
    assert done.returncode == 0, done.stderr
    assert "Slurm does not tell its nodes" in done.stdout
    assert "may use it" in done.stdout


def test_nodes_of_a_site_where_nothing_happened(site: Site) -> None:
    (site.folder / "nodes").write_text(paragraph("c2"))
    done = site.dispatch("nodes")
    assert (done.returncode, done.stdout) == (0, "no node has evidence against it, and none is silent\n")


def test_maintenance_begins_ends_and_is_listed(site: Site) -> None:
    assert site.dispatch("site", "maintenance").stdout == "no maintenance is announced\n"
    assert site.dispatch("site", "maintenance", "begin", "--for", "4h").returncode == 0
    done = site.dispatch("site", "maintenance", "begin", "--partition", "gpu")
    assert "partition gpu has begun, until it is ended" in done.stdout
    listed = json.loads(site.dispatch("site", "maintenance", "--json").stdout)["maintenance"]
    assert [(it["partition"], it["active"]) for it in listed] == [("all", True), ("gpu", True)]
    assert 4 * 3600 - 100 < listed[0]["end"] - time.time() < 4 * 3600 + 100
    longer = site.dispatch("site", "maintenance", "begin", "--for", "2d")
    assert "the whole cluster goes on" in longer.stdout
    again = json.loads(site.dispatch("site", "maintenance", "--json").stdout)["maintenance"]
    assert again[0]["begin"] == listed[0]["begin"]
    assert site.dispatch("site", "maintenance", "end").returncode == 0
    twice = site.dispatch("site", "maintenance", "end")
    assert twice.returncode == 66, twice.stderr
    assert "over" in site.dispatch("site", "maintenance").stdout
    assert os.stat(os.path.join(tick_folder(site), "maintenance.all")).st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "words",
    [("--partition", "../x"), ("--partition", "all"), ("--partition", ""), ("--for", "soon"), ("--for", "91d")],
)
def test_what_is_no_partition_or_no_length_is_refused(site: Site, words: tuple[str, ...]) -> None:
    done = site.dispatch("site", "maintenance", "begin", *words)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1), done.stderr
    assert site.dispatch("site", "maintenance").stdout == "no maintenance is announced\n"


def test_a_user_announces_no_maintenance(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    config = site.folder / "dispatch.toml"
    config.write_text(f'state = "{site.rig.path}"\n')
    monkeypatch.setenv("DISPATCH_CONFIG", str(config))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(NotAllowedError):
        begin.callback(partition=None, length=None)  # type: ignore[misc]
    assert os.listdir(tick_folder(site)) == []


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("4h", 14_400.0), ("90d", 7_776_000.0)])
def test_a_length(text: str, seconds: float) -> None:
    assert parse_length(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "0s", "-1h", "1w", "4h ", "1e3s", "9999999s"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(UsageError):
        parse_length(text)


@pytest.mark.parametrize("command", [("nodes",), ("site", "maintenance")])
def test_each_has_help_with_an_example(site: Site, command: tuple[str, ...]) -> None:
    done = site.dispatch(*command, "--help")
    assert done.returncode == 0
    assert f"dispatch {' '.join(command)}" in done.stdout
    assert "Exit codes" in done.stdout
