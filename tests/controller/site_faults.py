"""What must really happen in the examples of every run, by the names that the world counts it under.

A fault that the model has and never comes to is no fault of it. Grouped as the site meets them.
"""

from __future__ import annotations

LAG_AND_LOSS = (
    "accounting is asked while it lags behind",
    "sbatch's reply is lost",
    "sbatch hangs until it is killed",
    "sbatch goes on without its caller",
    "an sbatch that nobody waits for arrives",
    "the gate refuses: refuse",
    "a pass that sees nothing",
    "cancel fails: lost",
    "cancel fails: away",
)
OBJECTS = (
    "an object is purged before its end was seen",
    "slurmctld forgets what runs",
    "an id of the job's own is given away again",
    "the id of the current object is a stranger's",
    "one restart count starts twice",
    "the gate refuses: double_start",
    "the gate refuses: shared",
    "processes outlive their object",
)
OTHERS = (
    "somebody requeues what runs",
    "somebody requeues what has ended",
    "scontrol hold",
    "scontrol release",
    "an object that its owner holds does not start",
    "the comment is edited",
    "an object without its word starts",
)
TWO_CONTROLLERS = (
    "other tick came between",
    "a number of the record was lost to somebody else",
    "a pass of ctl1 with another clock",
    "a pass of ctl2 with another clock",
    "the clock of ctl1 steps",
    "the clock of ctl2 steps",
    "the clock of slurmctld steps",
    "the clock of login steps",
)
CRASHES = tuple(
    f"died before {step}"
    for step in (
        "read", "queue", "detail", "accounting", "submit", "sbatch has arrived", "cancel",
        "append intent", "append submitted", "append end", "append decision", "append started", "append watched",
        "append stray", "append told", "append cessation", "append progress",
        "the notes go", "words are refused", "the site's files are written",
    )
)  # fmt: skip
"""``test_prefix.py`` and the scenes of ``test_kill.py`` have what is rare here, such as death before ``closed``."""
HELPERS = (
    "the helper hands on itself",
    "the helper hands on through its node",
    "end: unfinished",
    "end: stalled",
    "end: not_resumed",
    "end: store_error",
    "durable progress",
    "a ghost publishes",
)
PERSONS = (
    "a supersede",
    "a supersede is cut short",
    "two supersede one job",
    "a job that took over is held for its elder",
    "fact hold",
    "release: person",
    "fact reopened",
    "fact adopted",
    "fact updated",
    "fact request",
    "closed: hold_expired",
    "an execution beside one that a person took upon himself",
)
SITE = (
    "decision: hold by breaker",
    "release: breaker",
    "a pass in maintenance",
    "a recovery costs no budget",
    "cessation: ceased",
    "cessation: running",
    "cessation: unknown",
    "release: ceased",
    "fact suspected",
    "fact cleared",
    "fact burnt",
    "fact requeued",
)
MUST_HAPPEN = (*LAG_AND_LOSS, *OBJECTS, *OTHERS, *TWO_CONTROLLERS, *CRASHES, *HELPERS, *PERSONS, *SITE)

__all__ = ["MUST_HAPPEN"]
