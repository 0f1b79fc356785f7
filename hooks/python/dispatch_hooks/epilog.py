"""Epilog (node, root): whether the node is clean of the execution that ran, and the end of its file.

It may run never, several times, late, or beside the next Prolog, and it is called without a start time,
comment and user for a job that the controller has forgotten. So the execution is the one that Prolog's file
names, and never the one that the restart count names. It kills nothing.
"""

import os
import time

from dispatch_hooks import boots, child, execution, files, hand, notes, processes, spool

SCAN_PART = 0.5
"""The part of the time for work that the scan of the processes may take."""
HAND_PART = 0.6
"""The part of the time for work by which what the helper left on the node is read."""
NOTE_PART = 0.8
"""The part of the time for work by which the note is in the site's folder, or goes to the spool."""
SWEEP_AGE_S = 3600


def run(call, site):
    """Note the node's state for the execution that ended, and remove its file; false always."""
    if call.job_id is None:
        return False
    begin = time.monotonic()
    note_end(call, site, begin)
    boots.tell(site, begin + site.work_s)
    return False


def note_end(call, site, begin):
    """All that concerns the execution that ended."""
    try:
        folder = files.open_own_folder(site.run, 0o755)
    except (OSError, ValueError) as error:
        child.say("epilog", "%s: %s" % (site.run, files.reason(error)))
        return
    try:
        ended, verified = find(call, folder)
        if ended is None:
            return
        living = others(folder, ended)
        clean, pids = scan(call, ended, living, begin + SCAN_PART * site.work_s)
        about = (ended, call.cluster, call.job_id, call.node_name())
        mine = [notes.of_node(*about, boot=processes.boot(), clean=clean, left=pids, verified=verified)]
        # Asked of the listing: a filesystem that the user put there must not be touched by this process.
        through, cut_off = ended.common + hand.SUFFIX in os.listdir(folder), False
        if through:
            pairs, cut_off = hand.read(site, ended, begin + HAND_PART * site.work_s)
            if pairs:
                # First: who sees the node's note must find this one too.
                mine.insert(0, hand.note(*about, verified=verified, pairs=pairs))
        left = leave(site, begin, mine) and not cut_off
        # The file goes last, so that a later Epilog can still say what this one could not. One that was only
        # guessed may be a newer execution's: it goes if nothing of it runs.
        if left and (verified or clean is True) and end(ended, folder) and through:
            drop(site, ended, begin + site.work_s)
        if left and verified and clean is True:
            boots.end_execution(site, ended.attempt, call.job_id)
        sweep(folder)
    finally:
        os.close(folder)


def find(call, folder):
    """(the execution that ended or ``None``, whether Slurm's start time says so)."""
    if call.start_time is not None:
        found = [call.own_name()]
    else:
        found = [name for job, _, name in execution.components(folder) if job == call.job_id]
        # A component that Slurm has forgotten is called for without its leader.
        if not found and call.leader is None:
            found = [name for job, _, name in execution.names(folder) if job == call.job_id]
    for name in found:
        try:
            ended = execution.read(name, folder)
        except OSError:
            continue  # Prolog never ran here, or an earlier Epilog has been
        except ValueError as error:
            child.say("epilog", "%s: %s" % (name, error))
            files.remove(name, folder)
            continue
        if call.start_time is None and call.restart is not None and ended.restart > call.restart:
            continue  # the next execution has written it already: no end ever shows a smaller count
        return ended, call.start_time is not None
    return None, False


def end(ended, folder):
    """Remove the file of an execution that has ended; of a component's, the common one with the last of them.

    :returns: whether the common one is gone, too.
    """
    files.remove(ended.name, folder)
    if [other for _, _, other in execution.components(folder) if other.startswith(ended.common + ".")]:
        return False
    files.remove(ended.common, folder)
    return True


def drop(site, ended, deadline):
    """Remove the folder for handing on."""
    path = os.path.join(site.run, ended.common + hand.SUFFIX)
    _, done = child.watch(lambda tell: hand.remove(path), deadline)
    if not done:
        child.say("epilog", "%s stays" % path)


def others(folder, ended):
    """The executions of the same user on this node, other than the one that ended."""
    living = []
    for _, _, name in execution.names(folder):
        try:
            other = execution.read(name, folder)
        except (OSError, ValueError):
            continue
        if other.uid == ended.uid and other.attempt != ended.attempt:
            living.append(other)
    return living


def scan(call, ended, living, deadline):
    """(clean: true, false or ``None`` for unknown; the process ids that are left, at most 32)."""
    jobs = {call.job_id, call.leader or call.job_id}
    wanted = processes.Wanted(
        attempt=ended.attempt,
        uid=ended.uid,
        cgroups={b"job_%d" % job for job in jobs} | {call.raw(b"SLURM_JOB_SLUID") or b"-"},
        living={other.attempt for other in living},
        again={other.attempt for other in living if int(other.name.partition(".")[0]) in jobs},
    )
    answer, done = child.watch(lambda tell: tell(processes.scan(wanted)), deadline)
    word, _, rest = answer.partition(b" ")
    if not done or word == b"unknown":
        return None, []
    return word == b"clean", [int(pid) for pid in rest.split()]


def leave(site, begin, own):
    """The notes, into the site's folder as SlurmUser, or into the node's own spool; whether they are there.

    Notes that wait in the spool go with them, so that a folder that was out of reach gets them when it is back.

    :param own: (name, content) of each.
    """
    if site.notes is not None:
        together = own + spool.waiting(site.spool)
        end_at = begin + NOTE_PART * site.work_s
        answer, _ = child.watch(lambda tell: hand_over(site, together, tell), end_at)
        there = {int(number) for number in answer.split()}
        spool.forget(site.spool, [together[number][0] for number in there if number >= len(own)])
        own = [note for number, note in enumerate(own) if number not in there]
        if not own:
            return True
    _, done = child.watch(lambda tell: put(site, own), begin + site.work_s)
    if done and site.notes is not None:
        child.say("epilog", "%s is out of reach: the note is in %s" % (site.notes, site.spool))
    if not done:
        child.say("epilog", "no node note, neither in %s nor in %s" % (site.notes, site.spool))
    return done


def put(site, own):
    """Notes into the spool."""
    for name, content in own:
        spool.put(site.spool, name, content)


def hand_over(site, together, tell):
    """Write notes as SlurmUser, for which this process gives up root; tell the number of each that is there."""
    child.become(site.slurm_user)
    for number, (name, content) in enumerate(together):
        files.create_whole(site.notes, name, content)
        tell(b"%d " % number)


def sweep(folder):
    """Remove what killed Prologs left unfinished more than an hour ago."""
    for name in os.listdir(folder):
        if name.startswith(files.TEMPORARY_PREFIX):
            try:
                if time.time() - os.lstat(name, dir_fd=folder).st_mtime > SWEEP_AGE_S:
                    files.remove(name, folder)
            except OSError:
                continue
