"""What happened to a job as a table that a person can follow: when, which execution, what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demo.witness import Account, Execution

BESIDE = "|| "
"""Marks what an execution did while a newer one was training."""
Row = tuple[float, str, str]


def render(account: Account, moments: list[tuple[float, str]], facts: list[dict[str, Any]], state: Any) -> str:
    """The timeline.

    :param moments: what the demo did, and when (Unix seconds).
    :param facts: the job's record.
    :param state: the marker of the last save.
    """
    rows: list[Row] = [(at, "", what) for at, what in moments]
    for fact in facts:
        if fact["kind"] == "decision":
            rows.append((fact["at"], "tick", f"decides: {fact['outcome']} -> {fact['action']} ({fact['rule']})"))
        if fact["kind"] == "submitted" and fact["submission"] > 1:
            rows.append((fact["at"], "tick", f"submission {fact['submission']} is Slurm job {fact['slurm_job_id']}"))
    for number, execution in enumerate(account.executions, 1):
        later = account.executions[number:]
        rows += of_execution(account, number, execution, later[0].of("step")[0]["at"] if later else None)
    rows.sort(key=lambda row: row[0])
    zero = rows[0][0] if rows else 0.0
    width = max([len(name) for _, name, _ in rows], default=0)
    lines = [f"{'time':>8}  {'execution':<{width}}  what"]
    lines += [f"{at - zero:>6.1f} s  {name:<{width}}  {what}" for at, name, what in rows]
    lines += ["", f"{BESIDE.strip()} marks what an old execution did while its replacement was training.", ""]
    return "\n".join([*lines, *made_of(account, state), ""])


def of_execution(account: Account, number: int, execution: Execution, replaced: float | None) -> list[Row]:
    """The rows of one execution; ``replaced`` is when its replacement began to train."""
    name = f"{number} (epoch {execution.epoch})"
    start = execution.start
    resumed = execution.resumed
    source = f"from step {resumed[1]} of epoch {resumed[0]}" if resumed else "from nothing"
    ranks = f", {len(execution.ranks)} ranks" if len(execution.ranks) > 1 else ""
    rows = [(start["at"], name, f"begins on {execution.host}{ranks}, {source}")]
    told = execution.of("signal")
    if told:
        rows.append((told[0]["at"], name, "is told to end (SIGTERM), and writes on"))
    steps = execution.of("step")
    end = replaced if replaced is not None else steps[-1]["at"]
    saved = [line for line in execution.of("saved") if line["at"] <= end]
    published = [found for found in account.published_by(execution.epoch) if found.at <= end]
    if saved:
        rows.append((saved[-1]["at"], name, f"has done steps {start['step'] + 1} to {saved[-1]['step']}"))
    if published:
        last = published[-1]
        text = f"has published {len(published)} saves, the last of step {last.publication.step}"
        rows.append((last.at, name, text))
    if replaced is not None:
        beside = execution.wrote_after(replaced)
        saves = [line for line in beside if line["what"] == "saved"]
        late = [found for found in account.published_by(execution.epoch) if found.at > replaced]
        if beside:
            rows.append((beside[0]["at"], name, f"{BESIDE}writes beside execution {number + 1}"))
            last_words = f"{BESIDE}writes no more: {len(saves)} saves beside it, up to step {steps[-1]['step']}"
            rows.append((beside[-1]["at"], name, f"{last_words}; {len(late)} of its publications came late"))
    ended = execution.of("end")
    if ended:
        rows.append((ended[0]["at"], name, f"ends by itself after step {ended[0]['step']}"))
    return rows


def made_of(account: Account, state: Any) -> list[str]:
    """Which execution did which steps of the last save."""
    numbers = {execution.epoch: number for number, execution in enumerate(account.executions, 1)}
    firsts = [(int(epoch), int(first)) for epoch, first in state["lineage"]]
    ends = [first for _, first in firsts[1:]] + [state["global_step"]]
    lines = [f"The last save, of step {state['global_step']}, is made of"]
    for (epoch, first), end in zip(firsts, ends, strict=True):
        lines.append(f"  steps {first + 1:>5} to {end:>5} of execution {numbers.get(epoch, '?')} (epoch {epoch})")
    loss = float.fromhex(state["log_history"][-1])
    lines.append(f"and has, bit for bit, the {state['global_step']} losses that these steps have without a fault")
    lines.append(f"(the last one: {loss:.4f} nats a character).")
    return lines
