"""Prolog (node, root): the execution file."""

import os
import time

from dispatch_hooks import child, execution, files


def run(call, site):
    """Write the execution file of a job of ours; false always: Prolog refuses nothing."""
    if call.word is None:
        return False
    if call.job_id is None:
        child.say("prolog", "Slurm gave no job id")
        return False
    _, done = child.watch(lambda tell: write(call, site.run), time.monotonic() + site.work_s)
    if not done:
        child.say("prolog", "no execution file in %s: the job runs without identity on this node" % site.run)
    return False


def write(call, run_folder):
    """Write the file, and a component's own, each whole and in place of whatever stands under its name."""
    content = execution.render(call)
    folder = files.open_own_folder(run_folder, 0o755)
    try:
        _put(content, call.file_name(), folder)
        if call.own_name() != call.file_name():
            _put(content, call.own_name(), folder)
    finally:
        os.close(folder)


def _put(content, name, folder):
    temporary = files.write_temporary(content, 0o644, folder, sync=False)
    try:
        # A file of an earlier execution (Slurm 22.05, where each has the start time 0) or a planted
        # link or FIFO goes; a planted directory makes this fail, and stays.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        files.remove(temporary, folder)
        raise
