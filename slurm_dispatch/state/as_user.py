"""Work done as somebody else: in a child that gives its privileges up for good, with a deadline.

The law: *nothing of a user's is touched with more rights than the user has, and nothing of a user's can
hold the caller up.* The answer comes from a process of the user's, who may have taken it over: it is data.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from slurm_dispatch import errors
from slurm_dispatch.durable import write_all
from slurm_dispatch.errors import DispatchError, NotAllowedError, ServiceAwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULT_MAX = 80 * 1024 * 1024
"""Bytes of a child's answer: more than the largest record."""
OWNER_TIMEOUT_S = 20.0
"""How long one piece of work may take unless told otherwise."""
KILL_WAIT_S = 1.0
"""A process that SIGKILL does not end in this time is stuck in the kernel (a dead file server)."""
MESSAGE_MAX = 4096
_HEADER = 9  # one byte that says what follows, and its length in eight

_abandoned: list[int] = []


def in_child(
    uid: int,
    gid: int,
    groups: Sequence[int],
    work: Callable[[], bytes],
    deadline_s: float = OWNER_TIMEOUT_S,
    *,
    site_files: bool = False,
) -> bytes:
    """Run ``work`` in a forked child with exactly this uid, gid and supplementary groups, and return its result.

    The child has no privilege left and cannot regain one, umask 077, working directory ``/``, a session of
    its own, and no descriptor but 0 to 2 (``/dev/null`` and our stderr). Where the caller is not root, uid
    must be his own, and only the deadline and the isolation remain.

    :param site_files: ``work`` touches the site's own files only, so that uid 0 is allowed (sites whose
        SlurmUser is root).
    :returns: what ``work`` returned; at most :data:`RESULT_MAX` bytes.
    :raises DispatchError: what ``work`` raised, with its class, message and hint.
    :raises NotAllowedError: uid 0 was asked for on behalf of a user, or another's uid by somebody who is
        not root.
    :raises ServiceAwayError: the deadline passed, or the child died. It and all that it started were
        killed; what the kernel does not let go of was left alone.
    """
    if uid == 0 and os.geteuid() == 0 and not site_files:
        raise NotAllowedError("nothing of a user's is done as root", hint="jobs of root are not managed")
    if os.geteuid() not in {0, uid}:
        raise NotAllowedError(f"uid {os.geteuid()} cannot work as uid {uid}", hint="run it as that user, or as root")
    _reap_abandoned()
    end = time.monotonic() + deadline_s
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child((uid, gid, groups), work, writing, deadline_s)
    os.close(writing)
    try:
        answer = _read(reading, end)
    finally:
        os.close(reading)
        status = _finish(child, end)
    return _unwrap(answer, status, uid, deadline_s)


def groups_of(user: str, gid: int) -> list[int]:
    """The supplementary groups that a login of ``user`` has now (the group database; may ask a server)."""
    return os.getgrouplist(user, gid)


def _child(
    user: tuple[int, int, Sequence[int]], work: Callable[[], bytes], writing: int, deadline_s: float
) -> NoReturn:
    """All that the child does; never returns."""
    try:
        try:
            _isolate(writing, deadline_s)
            _drop(*user)
            result = work()
            tag = b"R"
            if len(result) > RESULT_MAX:
                raise ServiceAwayError(f"an answer of {len(result)} bytes is over the limit of {RESULT_MAX}")
        except DispatchError as error:
            tag, result = b"E", _describe(type(error).__name__, str(error), error.hint)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a process of its own
            tag, result = b"E", _describe("DispatchError", f"{type(error).__name__}: {error}", "")
        write_all(3, tag + len(result).to_bytes(8, "big") + result)
    finally:
        os._exit(0)  # whatever happened: the caller's own frames must never run on in here


def _isolate(writing: int, deadline_s: float) -> None:
    """A session, no descriptors, no handlers of the caller's, and an end of its own should the caller die."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    if writing != 3:
        if null == 3:
            null = os.dup(null)
        os.dup2(writing, 3, inheritable=False)
    for standard in (0, 1):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 3:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the listing itself
    try:
        # What an owner wrote can need much memory to read: then this is what goes, and not slurmctld beside it.
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
            stream.write("1000")
    except OSError:
        pass
    signal.setitimer(signal.ITIMER_REAL, deadline_s + KILL_WAIT_S)
    os.umask(0o077)
    os.chdir("/")


def _drop(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Become the user for good, and make sure of it."""
    if os.geteuid() != 0 or uid == 0:
        return
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # clears every capability, and makes the process undumpable
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise NotAllowedError(f"the system did not change to uid {uid}, gid {gid}")
    if set(os.getgroups()) - {gid} != set(groups) - {gid}:
        raise NotAllowedError(f"the system did not give up the groups of root for uid {uid}")
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        return
    raise NotAllowedError(f"root could be regained from uid {uid}")


def _describe(name: str, message: str, hint: str) -> bytes:
    return json.dumps([name, message[:MESSAGE_MAX], hint[:MESSAGE_MAX]]).encode()


def _read(reading: int, end: float) -> bytes:
    """What the child sends until it ends, or until the deadline, or until it sends too much."""
    parts: list[bytes] = []
    length = 0
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while length <= RESULT_MAX + _HEADER:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            break
        part = os.read(reading, 1 << 20)
        if not part:
            break
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def _finish(child: int, end: float) -> int | None:
    """End the child and all that it started; its wait status, or ``None`` if the kernel holds it."""
    # Killed before it is reaped: until then its number, which is that of its group, is nobody else's.
    if not _has_ended(child, min(end, time.monotonic() + KILL_WAIT_S)):
        os.kill(child, signal.SIGKILL)
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it died before it had a group, or nothing of it is left
    if not _has_ended(child, time.monotonic() + KILL_WAIT_S):
        _abandoned.append(child)
        return None
    return os.waitpid(child, 0)[1]


def _has_ended(child: int, end: float) -> bool:
    """Whether the child ends before ``end``; does not reap it."""
    pause = 0.0005
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _reap_abandoned() -> None:
    for child in list(_abandoned):
        if os.waitpid(child, os.WNOHANG)[0]:
            _abandoned.remove(child)


def _unwrap(answer: bytes, status: int | None, uid: int, deadline_s: float) -> bytes:
    tag, length, result = answer[:1], int.from_bytes(answer[1:_HEADER], "big"), answer[_HEADER:]
    if len(answer) < _HEADER or len(result) != length or tag not in {b"R", b"E"}:
        if status is not None and os.WIFEXITED(status):
            raise ServiceAwayError(f"the work as uid {uid} ended without an answer")
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            raise ServiceAwayError(f"the work as uid {uid} died of signal {os.WTERMSIG(status)}")
        raise ServiceAwayError(
            f"the work as uid {uid} took longer than {deadline_s:g} s",
            hint="its files may be on a server that is away",
        )
    if tag == b"R":
        return result
    try:
        name, message, hint = json.loads(result)
        kind = getattr(errors, name, DispatchError)
    except (ValueError, TypeError) as error:
        raise ServiceAwayError(f"the work as uid {uid} gave an answer that does not parse") from error
    if not (isinstance(kind, type) and issubclass(kind, DispatchError)):
        kind = DispatchError
    raise kind(str(message), hint=str(hint))


