"""Runs commands in a host of the cluster for ``docker/rig.py``: ``docker exec`` costs 100 ms, this a few.

One connection is one command. The caller sends one line of JSON ``{argv, user, env, cwd, timeout_s}``, then the
command's standard input, and closes its side; the answer is one line of JSON ``{status, stdout, stderr, error}``
(lengths in bytes; ``status`` is negative for a signal, null if the deadline passed) and the bytes of both streams.
Output goes through files, so that a command may leave a daemon behind that keeps them open.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BACKLOG = 64
CHUNK = 1 << 16


def identity(user: str) -> dict[str, Any]:
    """What ``Popen`` needs to run something as ``user``, with an environment as after a login."""
    entry = pwd.getpwnam(user)
    env = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user, "SHELL": entry.pw_shell, "PATH": PATH,
           "LANG": "C.UTF-8"}
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups, "env": env,
            "cwd": entry.pw_dir if os.path.isdir(entry.pw_dir) else "/"}


def serve(connection: socket.socket) -> None:
    """Read one command, run it, answer."""
    with connection.makefile("rb") as incoming:
        request = json.loads(incoming.readline())
        stdin = incoming.read()
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin)
        source.seek(0)
        status, error = execute(request, source, out, err)
        streams = []
        for stream in (out, err):
            stream.seek(0)
            streams.append(stream.read())
    head = {"status": status, "stdout": len(streams[0]), "stderr": len(streams[1]), "error": error}
    connection.sendall(json.dumps(head).encode() + b"\n" + streams[0] + streams[1])


def execute(request: dict[str, Any], source: Any, out: Any, err: Any) -> tuple[int | None, str | None]:
    """Run the command; its status (``None`` if it was ended at the deadline), and why it could not start."""
    try:
        options = identity(request["user"])
        options["env"].update(request["env"])
        if request["cwd"]:
            options["cwd"] = request["cwd"]
        child = subprocess.Popen(request["argv"], stdin=source, stdout=out, stderr=err, start_new_session=True,
                                 restore_signals=True, **options)
    except (OSError, KeyError, subprocess.SubprocessError) as failure:
        return 127, f"{type(failure).__name__}: {failure}"
    try:
        return child.wait(timeout=request["timeout_s"]), None
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return None, None


def listen(path: str) -> socket.socket:
    """The listening socket, for the owner of its folder alone."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server.bind(path)
    owner = os.stat(folder)
    os.chown(path, owner.st_uid, owner.st_gid)
    os.chmod(path, 0o600)
    server.listen(BACKLOG)
    return server


def main() -> None:
    """Serve for ever, one process a command."""
    os.umask(0o022)
    grp.getgrall()  # loads what the lookups need before anything forks
    server = listen(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            status = 1
            try:
                serve(connection)
                status = 0
            finally:
                os._exit(status)
        connection.close()


if __name__ == "__main__":
    main()
