"""Two ranks of one training on this machine, for programs that save together.

:func:`run` forks a process for each rank. If one is killed the other ends by the broken connection, or is killed once
it has waited long enough; then the process that called is killed too, so that a tracer of it sees one end, and what
the ranks have started with it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback

WORLD = 2
ALONE_S = 10.0
"""How long a rank may go on when the other has gone."""


def run(work, world: int = WORLD, *, writers: bool = False) -> None:
    """``work(rank)`` in a process for each rank, all in one gloo group. Kills this process if a rank fails.

    With ``writers`` the ranks save by processes of their own, and one ends when a writer of its is killed: it would
    wait for its answer for ever.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    if os.getpgid(0) != os.getpid():  # who begins a session has a group of his own already
        os.setpgid(0, 0)
    there = {}
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            _rank(rank, world, port, listener, work, writers)
        there[pid] = rank
    listener.close()
    failed = False
    ends_at = None
    while there:
        pid, status = os.waitpid(-1, os.WNOHANG if failed else 0)
        if pid == 0:
            if time.monotonic() > ends_at:
                break
            time.sleep(0.005)
            continue
        there.pop(pid, None)
        if status and not failed:
            failed, ends_at = True, time.monotonic() + ALONE_S
    if failed:
        os.killpg(0, signal.SIGKILL)


def _rank(rank: int, world: int, port: int, listener: socket.socket, work, writers: bool) -> None:
    import datetime as dt

    import torch.distributed as dist

    if writers:
        threading.Thread(target=_watch_children, daemon=True).start()
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        options = {"master_listen_fd": listener.detach()} if rank == 0 else {}
        store = dist.TCPStore(
            "127.0.0.1", port, world, rank == 0, dt.timedelta(seconds=120), use_libuv=True, **options
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        work(rank)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()
    os._exit(0)


def _watch_children() -> None:
    """In a rank: end it when one of its processes was killed. Looked for, since any thread may get the signal."""
    while True:
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                    children = [int(word) for word in file.read().split()]
                for pid in children:
                    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    if ended is not None and ended.si_code != os.CLD_EXITED:
                        os._exit(1)
            except (FileNotFoundError, ProcessLookupError, ChildProcessError):
                continue  # a thread, or a process that was waited for meanwhile
        time.sleep(0.2)  # a tracer stops the process at each call
