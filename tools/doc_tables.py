"""Make the files whose content is in the code: docs/states.md, docs/settings.md and site/dispatch.toml.

python tools/doc_tables.py           write them
python tools/doc_tables.py --check   say which are not what the code says, and end with 1
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from slurm_dispatch.config.documents import reference, sample  # noqa: E402
from slurm_dispatch.records.facts import KINDS, OPTIONAL  # noqa: E402
from slurm_dispatch.records.law import ANY_TIME, LAW, PHASE_TEXTS, Event, Phase  # noqa: E402
from slurm_dispatch.rules.plan import MEANING, plan  # noqa: E402


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def diagram() -> str:
    """The phases as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.NEW}"]
    drawn = [
        move for move in LAW if move.event is not Event.SUPERSEDED and (move.before, move.event) not in SAME_PHASE
    ]
    lines += [f"    {move.before} --> {move.after}: {move.event}" for move in drawn]
    lines += [f"    {Phase.CLOSED} --> [*]"]
    return "\n".join(["```mermaid", *lines, "```"])


SAME_PHASE = {
    (move.before, move.event) for move in LAW if move.before is move.after and move.before is not Phase.RUNNING
}
"""Moves that lead nowhere else; the table has them, and the diagram would be crowded with them."""

HOLDS = """\
## Holds

A hold is a wait for a person. These lead to one, each under its name, which `dispatch why` and `dispatch holds`
show: a rule that says hold; a cap of the job (`budget`, `no_progress`, `max_submissions`, `max_node_hours`, `until`,
`launch_failures`); `shared`, the checkpoint is shared and an older execution may still write it; `breaker` and
`limit`, the site does not let it go on now; `person`, somebody held it.

A release by a person lets the next submission go at once, and budgets and counts begin anew. What the site held goes
on by itself once the site lets it, and keeps its counts. What is held as `shared` goes on once every older execution
has the answer `ceased`; where there can have been an execution that no fact tells of, only a person can release it.
While a person holds the job, nothing else lifts the hold.

The clock of a hold counts only time in which ticks ran. The owner is told at its start, at half of it and an hour
before its end. At its end cessation is asked once more, and then the job is closed as `hold_expired`; a release still
works for 14 days. `dispatch hold` works at any time: before the job waits, it makes the next decision a hold.

## Suspicion

With `--suspect`, a node of a running execution that has been silent for so long makes the outcome `suspect`, and the
replacement goes to other nodes while the old object is there. The old object is cancelled only once the
replacement runs. If its nodes answer before, the replacement is cancelled instead; once that is over and has never
started, the old object is current again. If the old object ends because its node was lost, the suspicion was right,
and nothing more happens. A replacement that has started stays, even if the old object completes meanwhile.

## Other jobs

`dispatch supersede` makes the record of the new job first; then the old job's closing fact names it, which only one
can write, and any tick finishes what is begun. The new job waits where an execution of a shared job may still run.
What a superseded job leaves is followed: an intent without an answer is settled, its object is cancelled unless it is
to be kept, and its end is recorded. `dispatch adopt` uses a number up for the adopted publication, so that whatever
the job publishes next outranks it; an object that waits in Slurm is replaced by one with a later number.
"""


def states() -> str:
    """docs/states.md."""
    rows = [(row.outcome.value, MEANING[row.outcome], row.action.value, _budget(row.budget)) for row in plan(())]
    return "\n".join(
        [
            "# The states of a job",
            "",
            "This page is made from the code by `tools/doc_tables.py`.",
            "",
            "The state of a job is what its facts make. `dispatch show JOB` shows it, and with `--facts` the facts.",
            "",
            table(("state", "means"), [(phase.value, PHASE_TEXTS[phase]) for phase in Phase]),
            "",
            "## What leads where",
            "",
            diagram(),
            "",
            table(
                ("in", "fact", "leads to", "when"),
                [(move.before.value, move.event.value, move.after.value, move.text) for move in LAW],
            ),
            "",
            "A fact that would move a job otherwise makes its record bad data: nothing is decided from it any more,",
            "and other jobs go on. These may come at any time and move nothing:",
            "",
            table(("fact", "says"), list(ANY_TIME.items())),
            "",
            "## What is done about each outcome",
            "",
            "Where neither the user nor the site has a rule that names it:",
            "",
            table(("outcome", "means", "action", "budget"), rows),
            "",
            "A budget is how often a cause may bring the job back without durable progress in between: a publication",
            "of the current execution with a step greater than the one that it resumed from and than its own earlier",
            "ones gives every budget back. Requeues count as resubmissions do. Launches that fail are counted apart,",
            "five in a row unless the site says otherwise; what ends in a maintenance costs nothing. Without budget",
            "the job is held. `completed` is final, and so is a cancel by the owner, or by somebody whom nothing",
            "names: a rule for `cancelled` is about an operator's. Only accounting says who cancelled a job,",
            "`scontrol` does not; so on a site without accounting such a rule never brings a job back.",
            "",
            HOLDS,
            "## The fields of each fact",
            "",
            table(
                ("fact", "fields"),
                [
                    (kind, ", ".join(f"`{name}`" for name in [*fields, *OPTIONAL.get(kind, {})]))
                    for kind, fields in KINDS.items()
                ],
            ),
            "",
        ]
    )


def _budget(budget: int | None) -> str:
    return "-" if budget is None else str(budget)


FILES = {"docs/states.md": states, "docs/settings.md": reference, "site/dispatch.toml": sample}


def stale(top: Path = TOP) -> list[str]:
    """The files that are not what the code says."""
    return [
        name
        for name, make in FILES.items()
        if not (top / name).is_file() or (top / name).read_text("utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` only compare."""
    if arguments == ["--check"]:
        for name in stale():
            print(f"{name} is not what the code says; run tools/doc_tables.py", file=sys.stderr)
        return 1 if stale() else 0
    for name, make in FILES.items():
        (TOP / name).parent.mkdir(exist_ok=True)
        (TOP / name).write_text(make(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
