"""Make the files whose content is in the code: docs/states.md, docs/savers.md, docs/settings.md, site/dispatch.toml.

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
from slurm_dispatch.savers.table import LAYOUTS  # noqa: E402


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def called(patterns: Sequence[str]) -> str:
    """What saves are called, and in which folders."""
    names = dict.fromkeys(pattern.rpartition("/")[2] for pattern in patterns)
    folders = dict.fromkeys(pattern.rpartition("/")[0] for pattern in patterns)
    if len(patterns) != len(names) * len(folders):
        return ", ".join(f"`{pattern}`" for pattern in patterns)
    text = ", ".join(f"`{name}`" for name in names)
    inside = ", ".join(f"`{folder}/`" for folder in folders if folder)
    if inside:
        text += f"; {'also ' if '' in folders else ''}in {inside}"
    return text


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


SAVERS = """\
# Savers

The table is made from the code by `tools/doc_tables.py`.

`dispatch-watch --layout NAME` says which library saves: what its saves are called and what proves one whole. Without
`--layout`, `--pattern`, `--done` and `--single` it is `auto`: the first layout of the table that recognises a save in
the execution's folder is taken for the run, and it says which, and by which save. Until then, and where nothing is
recognised, a save is called `checkpoint-{step}` and is assumed whole once it does not change.

With a layout a save is *whole* (published at once), *torn* (never published as it is; if it does not change the
reason is said), or neither, and then assumed whole after `--settle`, as docs/dispatch-watch.md says. `--pattern`
stands for the layout's own patterns. With `--done` the marker must be there too, and it decides where the layout
cannot. A save whose own step is not the one of its name is not published.
"""

AFTER_SAVERS = """\
## Names

Where the names can count different things (`step_10.pt`, `epoch_3.pt`) only those of one form are saves: the form of
the save that the command was given, or else the only one that there is. Several forms at once are said and nothing is
published; `--pattern` says which it is.

accelerate's automatic naming counts saves and begins at 0 in each run. Such a save is published under the next number
above all of the root's, and whether the command resumed cannot be seen.

## One file that is written again and again

`--single last.pt` is for programs that write one file. It is published when its structure is whole (zip: `torch.save`
and `.npz`; safetensors; `.npy`), when it looked the same twice half a second apart (2.1 s where the filesystem stamps
whole seconds), and when it was still the same after it was copied. A format that does not say how long it is (HDF5, a
plain pickle) is never published so: write a new name for each save. The copy is `kept/last-12.pt`, and that is what
`DISPATCH_RESUME` names in the next execution (as `resume/last-12.pt`): the suffix stays, the name does not. 12 is the
step: one more than the greatest of the root, so it rises over all executions. What has the bytes of the save that
the command resumed from, or of the last one published, is no new save, so a script may copy it to where the program
looks: `cp "$DISPATCH_RESUME" "$DISPATCH_DIR/last.pt"`. As the count always rises, `not_resumed` (status 80) does not
arise: see to it that the program resumes.

## Files that are written again

Small files of a kept save are copies; large ones are links. A saver that truncates a large file of a finished save
would reach through the link. The Trainer does that with `enable_jit_checkpoint`, in the folder of the present step,
when SIGTERM comes: a save whose `training_args.bin` says so is copied whole. For other programs that do it, `--copy`.

## In S3

Savers that write to S3 themselves (`dispatch-watch` without `--from`): torch.distributed.checkpoint by its fsspec
writer, Lightning with a `dirpath` or `default_root_dir` in S3, a script by boto3 or s3fs. A copy of a folder
(`aws s3 sync`, `s3fs.put`) begins many files at once, and the small ones, which savers write last, are there first:
so `transformers`, `accelerate` and `orbax` prove nothing there without `--done`. Orbax 0.12 refuses to save to `s3://`
("Checkpoint path should be absolute"; orbax/checkpoint/_src/serialization/tensorstore_utils.py).

## Tests

`make savers` runs the real libraries of `tests/savers/requirements.txt`: each program saves in a child that is killed
just before a call at which a file of the save changes, for every such call, and then the helper scans once and
latest is asked for. `make test` runs a sample, and on the cluster a job of each of accelerate, Lightning, torch
(plain files, and `torch.distributed.checkpoint` on two nodes) and Orbax that is taken away in the middle: its
replacement, with one line of its script, goes on from the save that was the latest. What is particular to saves of
several files and several writers, and how each of those libraries resumes, is in
[sharded-savers.md](sharded-savers.md).
"""


def savers() -> str:
    """docs/savers.md."""
    rows = [
        (
            f"`{row.name}`",
            row.title,
            called(row.patterns),
            ", ".join(f"`{name}`" for name in row.last) or "-",
            row.proves,
        )
        for row in LAYOUTS.values()
    ]
    sources = [(f"`{row.name}`", row.source) for row in LAYOUTS.values()]
    return "\n".join(
        [
            SAVERS,
            table(("name", "saver", "names of saves", "written last", "proved by"), rows),
            "",
            "Where that is from:",
            "",
            table(("name", "source"), sources),
            "",
            AFTER_SAVERS,
        ]
    )


FILES = {
    "docs/states.md": states,
    "docs/savers.md": savers,
    "docs/settings.md": reference,
    "site/dispatch.toml": sample,
}


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
