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
from slurm_dispatch.records.state import ANY_TIME, LAW, PHASE_TEXTS, Phase  # noqa: E402
from slurm_dispatch.rules.plan import MEANING, plan  # noqa: E402


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def diagram() -> str:
    """The phases as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.NEW}"]
    lines += [f"    {move.before} --> {move.after}: {move.event}" for move in LAW]
    lines += [f"    {Phase.CLOSED} --> [*]"]
    return "\n".join(["```mermaid", *lines, "```"])


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
            "ones gives every budget back. A launch that failed uses no budget; five in a row stop the job. Every",
            "job has a cap on its submissions, 100 unless told otherwise. `completed` is final, and so is a cancel",
            "by the owner, or by somebody whom nothing names: a rule for `cancelled` is about an operator's. Only",
            "accounting says who cancelled a job, `scontrol` does not; so on a site without accounting such a rule",
            "never brings a job back.",
            "",
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
