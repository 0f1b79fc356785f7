"""Prolog (node, root): the execution file."""

import os
import time

from dispatch_hooks import boots, child, execution, files


def run(call, site):
    """Write the execution file of a job of ours; false always: Prolog refuses nothing."""
    if call.word is None:
        return False
    if call.job_id is None:
        child.say("prolog", "Slurm gave no job id")
        return False
    begin = time.monotonic()
    _, done = child.watch(lambda tell: write(call, site), begin + site.work_s)
    if not done:
        child.say("prolog", "no execution file in %s: the job runs without identity on this node" % site.run)
    boots.tell(site, time.monotonic(), begin + site.work_s)
    return False


def write(call, site):
    """Write the file, and a component's own, each whole and in place of whatever stands under its name.

    A job with a shared checkpoint is written into the spool too: see :mod:`dispatch_hooks.boots`.
    """
    content = execution.render(call)
    folder = files.open_own_folder(site.run, 0o755)
    try:
        _put(content, call.file_name(), folder)
        if call.own_name() != call.file_name():
            _put(content, call.own_name(), folder)
    finally:
        os.close(folder)
    if call.word.shared:
        try:
            boots.begin_execution(call, site, content)
        except (OSError, ValueError) as error:
            child.say("prolog", "%s: %s" % (site.spool, files.reason(error)))  # a reboot will prove nothing then


def _put(content, name, folder):
    temporary = files.write_temporary(content, 0o644, folder, sync=False)
    try:
        # A file of an earlier execution (Slurm 22.05, where each has the start time 0) or a planted
        # link or FIFO goes; a planted directory makes this fail, and stays.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        files.remove(temporary, folder)
        raise
