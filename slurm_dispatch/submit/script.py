"""The script of a job: where sbatch would find it, and what is in it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.state.jobs import SCRIPT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.submit.command_line import CommandLine


@dataclass(frozen=True, slots=True)
class Script:
    """A script that was read.

    :param content: as sbatch gets it; empty with ``--wrap``.
    :param path: the file that sbatch reads itself; ``None``: it gets ``content`` from us.
    :param name: the name that the job has unless it was given another.
    """

    content: bytes
    path: str | None
    name: str
    wrap: bool = False


def find_script(typed: str, environment: Mapping[str, str], folder: str) -> str:
    """Where sbatch looks: as it is with a ``.`` or ``/`` in front, otherwise in the folder, then along ``PATH``."""
    if typed[:1] in {".", "/"}:
        return typed
    for place in (folder, *environment.get("PATH", "").split(os.pathsep)):
        path = os.path.join(folder, place, typed)
        if place and os.path.exists(path):
            return path
    return typed


def read_script(line: CommandLine, environment: Mapping[str, str], folder: str, stdin: int) -> Script | None:
    """Read the script that the command line means, from a file, from ``stdin``, or none with ``--wrap``.

    :returns: ``None`` where sbatch will not be able to read it either: it then says so itself.
    :raises UsageError: it is larger than :data:`~slurm_dispatch.state.jobs.SCRIPT_MAX`.
    """
    if line.has("wrap"):
        return Script(b"", None, "wrap", wrap=True)
    if line.script is None:
        return Script(_read(stdin, "from standard input"), None, "sbatch")
    path = find_script(line.script, environment, folder)
    try:
        descriptor = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return None
        content = _read(descriptor, show(line.script))
        # A pipe (`dispatch sbatch <(make-script)`) can be read once, and that was now.
        again = stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    return Script(content, line.script if again else None, os.path.basename(path))


def read_file(path: str, folder: str) -> bytes:
    """The content of the script at ``path``, seen from ``folder``.

    :raises UsageError: it cannot be read, is a folder, or is larger than the limit.
    """
    try:
        descriptor = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"the script {show(path)} cannot be read: {error.strerror}") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise UsageError(f"the script {show(path)} is a folder")
        return _read(descriptor, show(path))
    finally:
        os.close(descriptor)


def _read(descriptor: int, what: str) -> bytes:
    parts: list[bytes] = []
    left = SCRIPT_MAX + 1
    while left > 0:
        part = os.read(descriptor, min(left, 1 << 20))
        if not part:
            return b"".join(parts)
        parts.append(part)
        left -= len(part)
    raise UsageError(f"the script {what} is longer than the limit of {SCRIPT_MAX} bytes")
