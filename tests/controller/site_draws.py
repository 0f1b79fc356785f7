"""What the model draws from: ends, interruptions, kinds of jobs, what a pass does not see."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.controller.site_passes import SOURCES
from tests.controller.site_port import Cut
from tests.controller.site_world import SUSPECT_S

REPLIES = ("answer", "lost", "late", "very late", "reject")
ENDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "preempted": (("PREEMPTED",), {}),
    "node_fail": (("NODE_FAIL",), {}),
    "failed": (("FAILED",), {"exit_status": 3}),
    "timeout": (("TIMEOUT",), {}),
    "out_of_memory": (("OUT_OF_MEMORY",), {}),
    "deadline": (("DEADLINE",), {}),
    "boot_fail": (("BOOT_FAIL",), {}),
    "completed": (("COMPLETED",), {}),
    "by its owner": (("CANCELLED",), {"by_uid": 1234}),
    "by root": (("CANCELLED",), {"by_uid": 0}),
    "completing": (("PREEMPTED", "COMPLETING"), {}),
}
SAID: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "unfinished": (("COMPLETED",), {}, {"status": 85}),
    "again": (("COMPLETED",), {}, {"outcome": "unfinished", "status": 0}),
    "failed and said so": (("COMPLETED",), {}, {"status": 3}),
    "completed and said so": (("COMPLETED",), {}, {"status": 0}),
    "stalled": (("FAILED",), {"exit_status": 79}, {"outcome": "stalled"}),
    "not_resumed": (("FAILED",), {"exit_status": 80}, {"outcome": "not_resumed"}),
    "store_error": (("FAILED",), {"exit_status": 74}, {"outcome": "store_error", "status": 74}),
    "preempted with a word": (("PREEMPTED",), {}, {"outcome": "store_error"}),
}
"""Ends of which the helper said something: Slurm's states, its fields, and the helper's."""
OFTEN = ("preempted", "node_fail", "failed", "timeout", "completing")
ENDS_OF_WAITING = ("by its owner", "by root", "deadline", "boot_fail")
"""What can become of an object that never ran."""
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"argv": ("--requeue",)},
    "once": {"argv": ("--no-requeue",)},
    "rules": {"argv": ("--requeue",), "rules": ("preempted,node_fail,boot_fail:requeue", "failed:hold,for=1h")},
    "budgets": {"argv": ("--no-requeue",), "rules": ("preempted,failed,timeout,store_error:resubmit,budget=2",)},
    "shared": {"argv": ("--no-requeue",), "shared": True, "shared_hold_for_s": 7200.0},
    "suspects": {"argv": ("--requeue",), "suspect_s": SUSPECT_S},
}
HOSTS = ("ctl1", "ctl2")
ACTS = (
    "other tick", "starts", "ends", "time", "cancel", "hold", "requeue", "helper", "supersede", "release", "clock",
)  # fmt: skip
WHAT = ("die", "die", "die", "other tick", "other tick", *ACTS)
CUT_AT = (
    "read", "queue", "detail", "accounting", "accounting by word", "submit", "submit", "sbatch has arrived", "cancel",
    "requeue", "update", "append intent", "append submitted", "append end", "append decision", "append started",
    "append watched", "append burnt", "append stray", "append closed", "append release", "append requeued",
    "append suspected", "append cleared", "append took_over", "append cessation", "append held", "append refused",
    "the notes go", "words are refused", "the site's files are written",
)  # fmt: skip
"""Steps before which somebody may die, or another come."""
CUTS = st.lists(
    st.builds(Cut, st.sampled_from((1, 1, 1, 2, 3)), st.sampled_from(WHAT), st.sampled_from(CUT_AT))
    | st.builds(Cut, st.integers(1, 20), st.sampled_from(("die", "other tick"))),
    max_size=3,
)  # fmt: skip
REQUEUED, SILENT, LOST = "requeued", "silent", "forgotten"
"""What becomes of a running object beside its end: requeued by somebody, on a silent node, forgotten by slurmctld."""
HOWS = st.lists(
    st.sampled_from(
        [*OFTEN, *OFTEN, *OFTEN, *ENDS, *SAID, *SAID, REQUEUED, REQUEUED, SILENT, SILENT, SILENT, LOST]
    ),
    min_size=1,
    max_size=4,
)
HIDDEN = st.just(frozenset()) | st.frozensets(st.sampled_from(SOURCES)) | st.just(frozenset(SOURCES))
STEPS = st.sampled_from((None, 10, 20, 30, 40, 50))
"""What a helper has published when it speaks: a step, or nothing."""

__all__ = [
    "CUTS", "ENDS", "ENDS_OF_WAITING", "HIDDEN", "HOSTS", "HOWS", "LOST", "OFTEN", "REPLIES", "REQUEUED", "SAID",
    "SILENT", "SPECS", "STEPS",
]  # fmt: skip
