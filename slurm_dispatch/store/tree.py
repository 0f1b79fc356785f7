"""Names below a checkpoint root, listed and removed by descriptors: no link on the way is ever followed.

The law of removing: *what proves a save whole goes first, then its name, as one, and only then its bytes.* Killed at
any call, it leaves a save that is as it was, or a name that nobody takes for one (``.tmp-<random>``).
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import AbsentError, show, store_error
from slurm_dispatch.store.folders import enter
from slurm_dispatch.store.remove import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

LEFTOVER = re.compile(re.escape(TEMPORARY_PREFIX.encode()) + rb"[0-9a-f]{16}")
"""The names of what is being made or removed here, and of what a kill left of it."""


def names_in(root: bytes, relative: bytes) -> list[bytes]:
    """The names in the folder ``relative`` of the root, sorted; none where it is not there.

    :raises StoreError: it cannot be listed, or is no folder (:class:`CorruptError`), a link included.
    """
    try:
        descriptor = open_in(root, relative)
    except AbsentError:
        return []
    try:
        return sorted(os.fsencode(name) for name in os.listdir(descriptor))
    except FileNotFoundError:
        return []  # removed since
    except OSError as error:
        raise store_error(error, "listing", relative) from error
    finally:
        os.close(descriptor)


def remove_in(root: bytes, relative: bytes, unprove: Callable[[], None]) -> bool:
    """Remove what is at ``relative``, a file or a folder and everything in it.

    :param unprove: takes away what is elsewhere and says that it is whole; called first, if it is there.
    :returns: false if it was not there, or went by another hand meanwhile.
    :raises StoreError: it could not be; it is out of sight then, or as it was but for that proof.
    """
    folder, name = os.path.split(relative)
    try:
        parent = open_in(root, folder)
    except AbsentError:
        return False
    try:
        os.lstat(name, dir_fd=parent)
        if not LEFTOVER.fullmatch(name):
            unprove()
        # A temporary name too: a keeper that still lives would give what is left of it the name of a save.
        away = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}".encode()
        os.rename(name, away, src_dir_fd=parent, dst_dir_fd=parent)
        remove_tree(parent, away)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise store_error(error, "removing", relative) from error
    finally:
        os.close(parent)
    return True


def open_in(root: bytes, relative: bytes) -> int:
    """The folder at ``relative`` of the root, entered one part at a time.

    :raises AbsentError: it is not there.
    :raises CorruptError: a part of it is no folder.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise store_error(error, "opening folder", show(root)) from error
    shown = root
    for part in relative.split(b"/"):
        shown = os.path.join(shown, part)
        try:
            inner = enter(descriptor, part, shown)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


__all__ = ["LEFTOVER", "names_in", "open_in", "remove_in"]
