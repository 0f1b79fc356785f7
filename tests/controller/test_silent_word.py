"""What ``dispatch why`` says of a silent node under a job that may be replaced for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_dispatch.controller.breaker import Breaker
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.maintenance import Window
from slurm_dispatch.controller.recent import Overlap, Recent
from slurm_dispatch.controller.silence import Silence
from slurm_dispatch.controller.silentword import silent_word
from slurm_dispatch.controller.siterules import SiteRules
from tests.records.life import Life, make_spec

NOW = 1_800_000_000.0
RULES = SiteRules(suspicion=True, suspect_overlaps=1)
SILENT = Hints(silence=Silence(NOW - 5.0, {"c2": NOW - 40.0, "c9": NOW - 90.0}))


def runs(suspect_s: float | None = 60.0) -> Life:
    """It runs on c1 and c2."""
    return Life(replace(make_spec(), suspect_s=suspect_s)).run(1)


def test_it_says_for_how_long_and_what_comes() -> None:
    assert silent_word(runs().state, SILENT, RULES, NOW) == (
        "c2 has been silent for 40s, as ticks saw it; once that lasts 1m a replacement starts elsewhere"
    )


@pytest.mark.parametrize(
    ("hints", "rules", "says"),
    [
        (replace(SILENT, silence=replace(SILENT.silence, why="6 nodes are silent")), RULES, "(6 nodes are silent)"),
        (replace(SILENT, recent=Recent(overlaps=(Overlap(NOW, "other", 7),))), RULES, "as many jobs as"),
        (replace(SILENT, breaker=Breaker("500 resubmissions", NOW)), RULES, "breaker is open (500 resubmissions)"),
        (replace(SILENT, windows=(Window("all", NOW - 9.0, None, "root"),)), RULES, "since a maintenance is on"),
        (SILENT, SiteRules(), "the site allows no suspicion any more"),
    ],
    ids=["many", "overlaps", "breaker", "maintenance", "not_allowed"],
)
def test_what_keeps_it_from_acting_is_said(hints: Hints, rules: SiteRules, says: str) -> None:
    said = silent_word(runs().state, hints, rules, NOW)
    assert says in said
    assert "waits for Slurm" in said
    assert "starts elsewhere" not in said


def test_a_hold_of_a_person_keeps_it_too() -> None:
    held = runs().add("hold", reason="wait", for_s=None)
    assert "since a person holds what comes next" in silent_word(held.state, SILENT, RULES, NOW)


def test_nothing_is_said_where_nothing_can_come_of_it() -> None:
    assert silent_word(runs(None).state, SILENT, RULES, NOW) == ""
    other = Hints(silence=Silence(NOW - 5.0, {"c9": NOW - 90.0}))
    assert silent_word(runs().state, other, RULES, NOW) == ""
    assert silent_word(runs().state, SILENT, RULES, NOW + 3600.0) == ""  # no tick has looked for an hour
    assert silent_word(runs().suspected(1).state, SILENT, RULES, NOW) == ""  # the decision says it
