"""PrologSlurmctld (controller's host, SlurmUser): the start note, and the gate.

It refuses for three reasons only, each of them known for certain: a shared job starts a second time; the
tick has refused the submission; Slurm starts one restart count twice, which shows in a start note that has
another start time. Slurm 22.05 tells no start time: there a start note may be this very start's, whose hook runs
again, and a shared job is refused, since of its checkpoint a person decides. Every trouble of its own lets the
execution start.
"""

import os
import time

from dispatch_hooks import child, files, flat_json, notes


def run(call, site):
    """Leave the start note; true if the execution must not start."""
    if call.word is None or call.job_id is None:
        return False
    refused = call.word.shared and (call.restart or 0) > 0
    if site.notes is None:
        child.say("prolog-slurmctld", "no notes folder is set: no start note, and no gate but for shared jobs")
        return refused
    work = _refuse_shared if refused else _gate
    answer, done = child.watch(lambda tell: work(call, site, tell), time.monotonic() + site.work_s)
    refused = refused or answer.startswith(b"refuse")
    if not done:
        what = "refused, but not noted" if refused else "started without a start note"
        child.say("prolog-slurmctld", "%s: %s" % (site.notes, what))
    return refused


def _refuse_shared(call, site, tell):
    note_refusal(call, site, "shared")


def _gate(call, site, tell):
    child.become(site.slurm_user)
    why = gate(call, site)
    if why is not None:
        tell(b"refuse")  # before the note: a full disk must not let it start
        note_refusal(call, site, why)


def gate(call, site):
    """Leave the start note; why the execution must not start, or ``None``.

    :raises OSError: there is no start note, and nothing speaks against the start.
    """
    word, restart = call.word, call.count()
    if _stands(os.path.join(site.notes, "refuse." + word.name)):
        return "refuse"
    name = "start.%s.%d.%d" % (word.name, call.job_id, restart)
    at, _ = notes.now()
    try:
        if notes.leave(site, name, start_fields(call, at)):
            return None
    except OSError:
        # It could not be written (a full disk). One that stands there already is evidence all the same.
        if _starts_twice(call, site, name):
            return "double_start"
        raise
    return "double_start" if _starts_twice(call, site, name) else None


def _starts_twice(call, site, name):
    """Whether the start note ``name`` is of an earlier start of this very restart count."""
    path = os.path.join(site.notes, name)
    if not _stands(path):
        return False
    try:
        other = started_at(files.read_regular(path, notes.NOTE_MAX), call)
    except (OSError, ValueError) as error:
        child.say("prolog-slurmctld", "start note %s is no evidence: %s" % (name, files.reason(error)))
        return False
    if other is None or call.start_time is None:
        return call.word.shared
    return other != call.start_time  # otherwise this hook ran twice for one execution


def started_at(content, call):
    """The start time in a start note for this word, job and restart count; ``None`` if Slurm gave none.

    :raises ValueError: the note is torn, of another version, or another execution's.
    """
    fields = flat_json.read(content)
    mine = {
        "v": 1,
        "job": call.word.job,
        "generation": call.word.generation,
        "submission": call.word.submission,
        "slurm_job_id": call.job_id,
        "restart": call.count(),
    }
    for name, value in mine.items():
        if fields.get(name) != value:
            raise ValueError("its field %s is not this execution's" % name)
    start = fields.get("start_time")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise ValueError("its start time is not a number")
    return start


def start_fields(call, at):
    """The start note's fields."""
    restart = call.count()
    array, task = call.number(b"SLURM_ARRAY_JOB_ID", 2**32 - 1), call.number(b"SLURM_ARRAY_TASK_ID", 2**32 - 1)
    return notes.opening(call.word, call.cluster, call.job_id, at) + [
        ("restart", restart),
        ("start_time", call.start_time),
        ("attempt", call.attempt()),
        ("epoch", str(call.word.epoch(restart))),
        ("nodes", call.nodes()),
        ("uid", call.uid()),
        ("user", call.text(b"SLURM_JOB_USER")),
        ("partition", call.text(b"SLURM_JOB_PARTITION")),
        ("account", call.text(b"SLURM_JOB_ACCOUNT")),
        ("array", None if array is None or task is None else "%d_%d" % (array, task)),
        ("het_leader", call.leader),
        ("sluid", call.text(b"SLURM_JOB_SLUID")),
    ]


def note_refusal(call, site, why):
    """Leave the note that says why."""
    at, _ = notes.now()
    restart = call.count()
    name = "refused.%s.%d.%d.%d" % (call.word.name, call.job_id, restart, call.start_time or 0)
    fields = [("restart", restart), ("start_time", call.start_time), ("why", why)]
    notes.leave(site, name, notes.opening(call.word, call.cluster, call.job_id, at) + fields)


def _stands(path):
    try:
        os.lstat(path)
    except OSError:
        return False
    return True
