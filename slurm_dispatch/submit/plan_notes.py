"""What a person should know beside the table of a plan, each in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, show
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.quantity import duration, moment
from slurm_dispatch.records.people import RELEASE_EXPIRED_S
from slurm_dispatch.slurm.configuration import is_set, lines_of, seconds_of, tells_starts
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.store.thin import bound

if TYPE_CHECKING:
    from slurm_dispatch.submit.plan import Plan

HELPER = "dispatch-watch"
_EXEC = re.compile(rf"\bexec\s(.*\s)?(\S*/)?{HELPER}\b")
NO_HELPER = f"does not call {HELPER}: no save is kept, published or handed to the next run"
CONFIG_OF_HOOK = {
    "prolog-slurmctld": "PrologSlurmctld",
    "epilog-slurmctld": "EpilogSlurmctld",
    "prolog": "Prolog",
    "task-prolog": "TaskProlog",
    "epilog": "Epilog",
}
"""The line of slurm.conf that has each hook."""


def caps(plan: Plan) -> str:
    """When the job is held however much budget there is."""
    spec = plan.spec
    limit = spec.no_progress
    found = [f"{spec.max_submissions} submissions"]
    if limit is not None:
        found.append(
            f"{limit} executions in a row without a new save" if limit > 1 else "one execution without a new save"
        )
    if spec.max_node_hours is not None:
        found.append(f"{spec.max_node_hours:g} node-hours")
    text = ", or ".join(found)
    return text if spec.until is None else f"{text}, or on {moment(spec.until)}"


def notes(plan: Plan) -> list[str]:
    """All of them, for ``dispatch plan``."""
    found = []
    if not plan.spec.root:
        found.append("no checkpoint root: dispatch sbatch refuses the job without --checkpoint ROOT")
    try:
        StateFolder(plan.site.state)
    except DispatchError as error:
        found.append(f"dispatch sbatch cannot submit it now: {error}")
    found += warnings(plan)
    if not plan.spec.shared:
        most = bound(1, 1).saves
        found.append(
            f"space: at most {most} saves stay in the root at a time, if the training's own rotation keeps one"
        )
    return found


def warnings(plan: Plan) -> list[str]:
    """What may be other than the person thinks; for ``dispatch sbatch`` too."""
    request = plan.request
    found = []
    if not request.script.wrap:
        found += _helper_notes(request.script.content)
    else:
        wrapped = request.line.parsed.last("wrap")
        if wrapped is None or HELPER not in (wrapped.value or ""):
            found.append(f"the wrapped command {NO_HELPER}")
    again = {Action.RESUBMIT, Action.REQUEUE, Action.HOLD}
    own = [row for row in plan.rows if row.outcome is Outcome.CANCELLED and row.action in again]
    if any(any(row.rule is rule for rule in (*plan.rules, *plan.site.rules)) for row in own):
        found.append("the rule for cancelled is about another's scancel only: your own is final")
    if "--no-requeue" not in plan.spec.argv:
        found.append("Slurm itself requeues it (--requeue); the rules apply once the object has ended for good")
    elif any(word.split("=")[0] == "--requeue" for word in plan.spec.argv):
        found.append("--requeue does not count: Slurm must not start a job with a shared checkpoint by itself")
    found += _shared(plan)
    found += _suspicion(plan)
    hourly = plan.bounded.resubmissions_per_hour
    if hourly is not None:
        place = plan.bounded.place("resubmissions_per_hour")
        found.append(f"{place} lets {hourly} resubmissions an hour through; a job that comes next is held")
    found += _hooks(plan)
    found += _no_start_times(plan)
    return found


def _helper_notes(script: bytes) -> list[str]:
    lines = [line.strip() for line in script.decode("utf-8", "surrogateescape").splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    if not any(HELPER in line for line in commands):
        return [f"the script {NO_HELPER}"]
    shell = lines[0].rstrip().endswith(("sh", "sh -l", "sh -e", "sh -eu")) if lines else False
    if shell and not any(_EXEC.search(line) for line in commands):
        why = "a signal reaches the shell, and the helper only when the shell hands it on"
        return [f"the script must end with 'exec {HELPER} ...': otherwise {why}"]
    return []


def _shared(plan: Plan) -> list[str]:
    """What a hold for a shared checkpoint waits for, and what then."""
    if not plan.spec.shared:
        return []
    site, length = plan.site, duration(plan.spec.shared_hold_for_s)
    if site.cessation:
        asked = f"every {duration(site.cessation_interval_s)} this site asks {show(site.cessation[0])}"
        who = (
            f"{asked} whether their processes are gone. Once all are, or when you say dispatch release, it comes back"
        )
    else:
        who = "nothing here tells whether their processes are gone, so only dispatch release brings the job back"
    first = "shared checkpoint: nothing runs beside an older execution, and the job is held first"
    after = f"After {length} it is closed, and dispatch release still works for {duration(RELEASE_EXPIRED_S)}"
    return [f"{first}. While it is, {who}. {after}"]


def _suspicion(plan: Plan) -> list[str]:
    """What ``--suspect`` means with this site's SlurmdTimeout."""
    after = plan.spec.suspect_s
    if after is None:
        return []
    timeout = seconds_of(plan.config, "SlurmdTimeout")
    tick = plan.site.tick_interval_s
    if timeout is None:
        text = "Slurm does not say its SlurmdTimeout now, so it is not known how much earlier that is"
    elif timeout == 0:
        text = "Slurm's SlurmdTimeout is 0 here: it never looks whether nodes live, and no node is ever suspected"
    else:
        ping = timeout / 3
        most = ping + tick + after
        seen = (
            f"Slurm looks at its nodes about every {duration(ping)}, and a tick looks at least every {duration(tick)}"
        )
        alone = f"Slurm alone gives the node up after {duration(timeout)} (SlurmdTimeout)"
        text = f"{seen}: the replacement is submitted within {duration(most)} of the last sign of life. {alone}"
        if most >= timeout:
            text = f"{text}, often earlier: --suspect gains little here"
    what = f"--suspect {duration(after)}: a node that does not respond for so long from the first tick that sees it"
    share = f"{plan.site.suspect_share * 100:g} % of all nodes"
    others = f"While more nodes are silent than {plan.site.suspect_count} and than {share}, it waits for Slurm"
    return [f"{what} is taken for lost. {text}. {others}"]


def missing_hooks(plan: Plan) -> list[str]:
    """The hooks that the site does not have: by its own settings, or because slurm.conf has no such line."""
    found = []
    whole = "PrologFlags" in plan.config  # every version lists it, right among the hooks
    for hook, line in CONFIG_OF_HOOK.items():
        said = lines_of(plan.config, line)
        unset = not any(map(is_set, said)) if said else whole
        if hook not in plan.site.hooks or unset:
            found.append(hook)
    return found


def _hooks(plan: Plan) -> list[str]:
    """Which promises fall where hooks are missing."""
    missing = missing_hooks(plan)
    found = []
    if "prolog" in missing or "task-prolog" in missing:
        found.append("executions get no identity: all have epoch 0, and a replaced run can outrank the next one")
    if "prolog-slurmctld" in missing:
        text = "no gate: a start that Slurm repeats after a crash is not refused"
        if plan.spec.shared:
            text += ", and a second execution of the shared checkpoint only once it is on its nodes, or not at all"
        found.append(text)
    if "epilog" in missing:
        text = "nothing is known of what an execution leaves on its nodes"
        if plan.spec.shared and plan.site.cessation[:1] == ("slurm-nodes",):
            text += ": the answer slurm-nodes stays unknown, and the job waits for you"
        found.append(f"{text}, and progress counts only where nodes reach the state folder")
    if "epilog-slurmctld" in missing:
        every = duration(plan.site.tick_interval_s)
        found.append(f"the end of an execution is seen by the next tick ({every} or cron's minute), not at once")
    names = ", ".join(missing)
    return [f"this site lacks {names}: {'; '.join(found)}"] if found else []


def _no_start_times(plan: Plan) -> list[str]:
    """Which promises fall on Slurm 22.05, whose hooks are not told when an execution started."""
    if tells_starts(plan.config):
        return []
    if not plan.spec.shared:
        text = "a start that Slurm repeats after a crash has epoch and folder of the first one"
    else:
        text = "a start that Slurm repeats after a crash is refused, and so can be one whose hook it repeats"
        if plan.site.cessation[:1] == ("slurm-nodes",):
            text += "; the answer slurm-nodes stays unknown unless a node boots, and the job waits for you"
    release = plan.config["SLURM_VERSION"][:5]
    return [f"Slurm {release} does not tell its hooks when an execution started: {text}"]
