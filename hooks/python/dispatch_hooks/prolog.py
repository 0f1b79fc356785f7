"""Prolog (node, root): the execution file."""

import os
import time

from dispatch_hooks import boots, child, execution, files, hand


def run(call, site):
    """Write the execution file of a job of ours; false always: Prolog refuses nothing."""
    if call.word is None:
        return False
    if call.job_id is None:
        child.say("prolog", "Slurm gave no job id")
        return False
    begin = time.monotonic()
    answer, _ = child.watch(lambda tell: write(call, site, tell), begin + site.work_s)
    if not answer:
        child.say("prolog", "no execution file in %s: the job runs without identity on this node" % site.run)
    if b"kept" in answer:
        boots.tell(site, begin + site.work_s)
    return False


def write(call, site, tell):
    """Write the file, and a component's own, each whole and in place of whatever stands under its name.

    Then, with less at stake, the folder for handing on through the node; and a job with a shared checkpoint is
    written into the spool too: see :mod:`dispatch_hooks.boots`.
    """
    folder = files.open_own_folder(site.run, 0o755)
    try:
        content = execution.render(call, call.word.shared and starts_again(call, folder))
        _put(content, call.file_name(), folder)
        if call.own_name() != call.file_name():
            _put(content, call.own_name(), folder)
        tell(b"there")
    finally:
        os.close(folder)
    try:
        hand.make(site, call.file_name(), call.uid())
    except (OSError, ImportError, AttributeError) as error:
        child.say("prolog", "nothing is handed on through this node: %s" % files.reason(error))
    if boots.has_kept(site.spool):
        tell(b" kept")
    if call.word.shared:
        try:
            boots.begin_execution(call, site, content)
        except (OSError, ValueError) as error:
            child.say("prolog", "%s: %s" % (site.spool, files.reason(error)))  # a reboot will prove nothing then


def starts_again(call, folder):
    """Whether another start of this submission is on the node: slurmctld started one restart count twice.

    PrologSlurmctld refuses that; this is for a site that has none.
    """
    for job, start, name in execution.names(folder):
        if job == (call.leader or call.job_id) and call.start_time and start not in (0, call.start_time):
            try:
                if execution.read(name, folder).word.text == call.word.text:
                    return True
            except (OSError, ValueError):
                continue  # no evidence
    return False


def _put(content, name, folder):
    temporary = files.write_temporary(content, 0o644, folder, sync=False)
    try:
        # A file of an earlier execution (Slurm 22.05, where each has the start time 0) or a planted
        # link or FIFO goes; a planted directory makes this fail, and stays.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        files.remove(temporary, folder)
        raise
