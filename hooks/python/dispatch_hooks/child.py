"""Work in a forked child that is left behind at the deadline, so that no filesystem can hold a hook up."""

import os
import select
import time

ANSWER_MAX = 4096
"""Bytes of a child's answer."""
LINE_MAX = 400
"""Characters of a line in syslog."""
LOG_WAIT_S = 0.3
"""How long a hook waits for syslog, which can hang as well."""
_DESCRIPTORS = 256


def fill_streams():
    """Open ``/dev/null`` for each of the descriptors 0 to 2 that is closed, so that no file gets its number."""
    while True:
        descriptor = os.open("/dev/null", os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


def watch(work, deadline):
    """Run ``work(tell)`` in a child of its own session; ``tell(bytes)`` hands an answer to this process.

    :param deadline: when to stop waiting, by ``time.monotonic()``.
    :returns: (answer, done): what was told so far, and whether the work ended, by itself and without an
        exception. A child that hangs is left behind; it holds nothing that Slurm waits for.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _let_go(write_end)
            work(lambda answer: os.write(write_end, answer))
            status = 0
        except Exception as error:  # noqa: BLE001  the outermost frame of this process
            say("work", describe(error))
        finally:
            os._exit(status)
    os.close(write_end)
    answer, ended = _collect(read_end, deadline)
    os.close(read_end)
    if not ended:
        return answer, False
    while True:  # the pipe closes a moment before the child can be waited for
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return answer, status == 0
        if time.monotonic() > deadline:
            return answer, False
        time.sleep(0.0002)


def _collect(read_end, deadline):
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    answer = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(int(left * 1000) + 1):
            return answer, False
        part = os.read(read_end, ANSWER_MAX)
        if not part:
            return answer, True
        answer = (answer + part)[:ANSWER_MAX]


def _let_go(keep):
    """Leave the hook's session, its streams (Slurm reads them to their end) and its folder."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if keep is None:
        os.closerange(3, _DESCRIPTORS)
    else:
        os.closerange(3, keep)
        os.closerange(keep + 1, max(_DESCRIPTORS, keep + 1))
    os.chdir("/")
    os.umask(0o077)


def become(user):
    """Give up root for good, for ``user`` (a name or a number); nothing to do in a process that is not root."""
    if os.geteuid() != 0:
        return
    import pwd

    if user.isdigit():
        uid = gid = int(user)
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            pass  # a number without an entry is its own group
    else:
        found = pwd.getpwnam(user)
        uid, gid = found.pw_uid, found.pw_gid
    if uid == 0:
        return
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def describe(error):
    """An exception as one line."""
    return "%s: %s" % (type(error).__name__, error)


def one_line(text):
    """``text`` for syslog: printable ASCII only, at most :data:`LINE_MAX` characters."""
    return "".join(c if " " <= c <= "~" else "?" for c in str(text)[:LINE_MAX])


def say(hook, text):
    """One line to syslog, waited for at most :data:`LOG_WAIT_S`: a full log socket must not stop a hook."""
    line = one_line("slurm-dispatch %s: job %s: %s" % (hook, os.environ.get("SLURM_JOB_ID", "?")[:20], text))
    try:
        pid = os.fork()
    except OSError:
        return
    if pid == 0:
        try:
            _let_go(None)
            import syslog

            syslog.openlog("slurm-dispatch", syslog.LOG_PID, syslog.LOG_DAEMON)
            syslog.syslog(syslog.LOG_WARNING, line)
        finally:
            os._exit(0)
    end = time.monotonic() + LOG_WAIT_S
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
