"""EpilogSlurmctld (controller's host, SlurmUser): the end note, which is the kick too.

The processes of the execution are still alive now, and the restart count that is seen here is already the
next one's in some paths, so the note says the start time, and what was seen only as that.
"""

import time

from dispatch_hooks import child, notes


def run(call, site):
    """Leave the end note; false always."""
    if call.word is None or call.job_id is None:
        return False
    if site.notes is None:
        child.say("epilog-slurmctld", "no notes folder is set: no end note")
        return False
    at, at_ns = notes.now()
    name = "end.%s.%d.%d.%d" % (call.word.name, call.job_id, call.start_time or 0, at_ns)
    fields = notes.opening(call.word, call.cluster, call.job_id, at) + [
        ("start_time", call.start_time),
        ("restart_seen", call.restart),
        ("exit_code", call.text(b"SLURM_JOB_EXIT_CODE2")),
        ("nodes", call.nodes()),
        ("uid", call.uid()),
    ]
    _, done = child.watch(lambda tell: notes.leave(site, name, fields), time.monotonic() + site.work_s)
    if not done:
        child.say("epilog-slurmctld", "no end note in %s: the tick sees the end when it next asks Slurm" % site.notes)
    return False
