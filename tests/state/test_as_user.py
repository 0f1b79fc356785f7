"""Work in a child: whose rights it has, what reaches it, what comes back, and what it cannot hold up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import BadDataError, DispatchError, NotAllowedError, ServiceAwayError
from slurm_dispatch.state import as_user
from slurm_dispatch.state.as_user import in_child

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = os.geteuid() == 0
OTHER = 54321
"""A uid that nobody has."""
UID, GID = (OTHER, OTHER) if ROOT else (os.getuid(), os.getgid())
GROUPS = [OTHER, OTHER + 1] if ROOT else []
GENEROUS_S = 60.0


def child(work: Callable[[], bytes], deadline_s: float = GENEROUS_S) -> bytes:
    return in_child(UID, GID, GROUPS, work, deadline_s)


def status_lines() -> bytes:
    return Path("/proc/self/status").read_bytes()


def test_the_suite_runs_as_root_in_its_container_or_as_a_user() -> None:
    """So that a reader of the log sees which of the two was tested."""
    assert child(lambda: b"%d" % os.geteuid()) == b"%d" % UID


@pytest.mark.skipif(not ROOT, reason="only root has privileges to give up; the suite runs as root in CI")
def test_the_privileges_are_gone_for_good() -> None:
    lines = dict(line.split(b":\t", 1) for line in child(status_lines).splitlines() if b":\t" in line)
    assert lines[b"Uid"].split() == [b"%d" % OTHER] * 4
    assert lines[b"Gid"].split() == [b"%d" % OTHER] * 4
    assert sorted(lines[b"Groups"].split()) == [b"%d" % OTHER, b"%d" % (OTHER + 1)]
    for name in (b"CapEff", b"CapPrm", b"CapAmb"):
        assert int(lines[name], 16) == 0, name


@pytest.mark.skipif(not ROOT, reason="only root has privileges to give up; the suite runs as root in CI")
def test_root_cannot_be_regained_and_its_files_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)

    def work() -> bytes:
        refused = []
        for name, attempt in (
            ("setuid", lambda: os.setuid(0)),
            ("setgid", lambda: os.setgid(0)),
            ("setgroups", lambda: os.setgroups([0])),
            ("open", lambda: os.open(secret, os.O_RDONLY)),
        ):
            try:
                attempt()
            except PermissionError:
                refused.append(name)
        return json.dumps(refused).encode()

    assert json.loads(child(work)) == ["setuid", "setgid", "setgroups", "open"]


@pytest.mark.skipif(not ROOT, reason="only root could work as root; the suite runs as root in CI")
@pytest.mark.skipif(not ROOT, reason="only root has privileges to give up; the suite runs as root in CI")
@pytest.mark.parametrize(
    ("name", "what"), [("setresuid", "root could be regained"), ("setgroups", "did not give up the groups")]
)
def test_a_system_that_does_not_give_up_root_stops_the_work(
    monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    """Whatever let it (a security module, a user namespace): the work is not begun."""
    real = os.setresuid

    def regained(*ids: int) -> None:
        if ids != (0, 0, 0):
            real(*ids)

    monkeypatch.setattr(os, name, regained if name == "setresuid" else lambda _: None)
    with pytest.raises(NotAllowedError, match=what):
        child(lambda: b"began")


def test_nothing_of_a_users_is_done_as_root() -> None:
    with pytest.raises(NotAllowedError, match="as root"):
        in_child(0, 0, [], lambda: b"")
    assert in_child(0, 0, [], lambda: b"the site's own", site_files=True) == b"the site's own"


def test_a_user_cannot_work_as_another() -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from slurm_dispatch.errors import NotAllowedError\n"
        "from slurm_dispatch.state.as_user import in_child\n"
        "os.setuid(int(sys.argv[2])) if os.getuid() == 0 else None\n"
        "try:\n    in_child(os.getuid() + 1, 1, [], lambda: b'')\n"
        "except NotAllowedError as error:\n    print('refused')\n"
    )
    top = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, top, str(UID)], capture_output=True, timeout=GENEROUS_S, check=False
    )
    assert done.stdout == b"refused\n", done.stderr


def test_the_child_is_alone(tmp_path: Path) -> None:
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)

    def work() -> bytes:
        umask = os.umask(0)
        descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        return json.dumps(
            [umask, os.getcwd(), os.getsid(0) == os.getpid(), descriptors[:4], len(descriptors)]
        ).encode()

    try:
        umask, folder, leads, descriptors, count = json.loads(child(work))
    finally:
        os.close(leaked)
    assert (umask, folder, leads) == (0o077, "/", True)
    assert descriptors == [0, 1, 2, 3]
    assert count == 5  # and that of the listing


def test_a_large_answer_comes_back_whole() -> None:
    answer = os.urandom(1 << 20) * 5
    assert child(lambda: answer) == answer


def test_an_answer_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "RESULT_MAX", 1000)
    assert child(lambda: b"x" * 1000) == b"x" * 1000
    with pytest.raises(ServiceAwayError, match="over the limit of 1000"):
        child(lambda: b"x" * 1001)


def test_an_error_keeps_class_message_and_hint() -> None:
    def work() -> bytes:
        raise BadDataError("fact 3 is broken", hint="look at it")

    with pytest.raises(BadDataError) as caught:
        child(work)
    assert caught.value.line() == "fact 3 is broken; look at it"


def test_a_bug_in_the_work_is_one_line() -> None:
    def work() -> bytes:
        raise ValueError("two\nlines")

    with pytest.raises(DispatchError, match=r"ValueError: two\\nlines") as caught:
        child(work)
    assert type(caught.value) is DispatchError


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGTERM)])
def test_a_child_that_dies_is_an_error(end: Callable[[], None]) -> None:
    def work() -> bytes:
        end()
        return b"never"

    with pytest.raises(ServiceAwayError, match=r"without an answer|died of signal 15"):
        child(work)


def test_an_answer_that_is_cut_off_is_no_answer() -> None:
    def work() -> bytes:
        os.write(3, b"R" + (100).to_bytes(8, "big") + b"half")
        os._exit(0)

    with pytest.raises(ServiceAwayError, match="without an answer"):
        child(work)


@pytest.mark.parametrize("answer", [b"E" + (2).to_bytes(8, "big") + b"{}", b"Z" + (0).to_bytes(8, "big")])
def test_a_child_that_was_taken_over_can_only_give_nonsense(answer: bytes) -> None:
    def work() -> bytes:
        os.write(3, answer)
        os._exit(0)

    with pytest.raises(ServiceAwayError):
        child(work)


def test_an_error_of_a_class_that_is_none_of_ours_is_a_plain_one() -> None:
    def work() -> bytes:
        text = json.dumps(["annotations", "m", ""]).encode()
        os.write(3, b"E" + len(text).to_bytes(8, "big") + text)
        os._exit(0)

    with pytest.raises(DispatchError, match=r"^m$") as caught:
        child(work)
    assert type(caught.value) is DispatchError


def test_a_child_that_hangs_is_killed_at_the_deadline_with_all_that_it_started(open_tmp: Path) -> None:
    """C059: work that hangs (a dead file server), and that SIGTERM does not end."""
    open_tmp.chmod(0o777)
    told = open_tmp / "grandchild"

    def work() -> bytes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid:
            told.with_suffix(".part").write_text(str(pid))
            told.with_suffix(".part").rename(told)
        while True:
            signal.pause()

    for deadline_s in (1, 5, 25, GENEROUS_S):  # the first that leaves it the time to start
        with pytest.raises(ServiceAwayError, match=f"took longer than {deadline_s:g} s"):
            child(work, deadline_s)
        if told.exists():
            break
    grandchild = int(told.read_text())
    until = time.monotonic() + GENEROUS_S
    while _is_alive(grandchild) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _is_alive(grandchild)


def _is_alive(pid: int) -> bool:
    """Whether the process runs: a zombie that nobody reaps is over, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_the_kernel_does_not_let_go_of_is_left_alone_and_reaped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in an uninterruptible call, here one whose kill never arrives."""
    monkeypatch.setattr(as_user, "KILL_WAIT_S", 0.05)
    sent: list[int] = []
    real_kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: None)

    def work() -> bytes:
        signal.pause()
        return b""

    with pytest.raises(ServiceAwayError, match="took longer"):
        child(work, 0.2)
    assert as_user._abandoned == sent
    monkeypatch.undo()
    for pid in sent:
        real_kill(pid, signal.SIGKILL)
    until = time.monotonic() + GENEROUS_S
    while as_user._abandoned and time.monotonic() < until:
        child(lambda: b"")
        time.sleep(0.02)
    assert not as_user._abandoned


def test_handlers_of_the_caller_do_not_run_in_the_child() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert child(lambda: str(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL).encode()) == b"True"
    finally:
        signal.signal(signal.SIGTERM, before)
