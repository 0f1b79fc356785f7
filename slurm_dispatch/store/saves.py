"""Where a save is: its path relative to the root, inside the execution that made it, with nothing that leads out."""

from __future__ import annotations

import functools
import os
import stat

from slurm_dispatch.errors import BadDataError, show, store_error
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.model.publication import PREFIX_LENGTH, check_path
from slurm_dispatch.store.folders import sync


def relative_save(root: bytes, attempt: str, path: str | bytes) -> bytes:
    """The path of a save relative to the root, with every link on the way resolved (C094).

    :param path: absolute, by any name that the root has on this host, or relative to the root.
    :raises BadDataError: it is not inside ``exec/<attempt>/``, or cannot be written in a publication.
    """
    return find_save(root, attempt, path)[0]


def find_save(root: bytes, attempt: str, path: str | bytes) -> tuple[bytes, os.stat_result | None]:
    """:func:`relative_save`, and what is there if it was looked at on the way, for :func:`check_save`."""
    raw = os.fsencode(path)
    own = _own_folder(attempt)
    plain = _plainly(root, own, raw)
    if plain is not None:
        return plain
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, raw))
    folder = os.path.join(real_root, *own, b"")
    if not real.startswith(folder) or real == folder:
        raise BadDataError(
            f"save {show(path)} is outside {show(folder)}", hint="an execution publishes what it wrote itself"
        )
    if real[len(folder) :].split(b"/", 1)[0] == b".dispatch":
        raise BadDataError(f"save {show(path)} is in the helper's own folder")
    relative = real[len(os.path.join(real_root, b"")) :]
    check_path(relative)
    return relative, None


@functools.lru_cache(maxsize=16)
def _own_folder(attempt: str) -> list[bytes]:
    return [b"exec", check_attempt(attempt).encode("ascii")]


def _plainly(root: bytes, own: list[bytes], path: bytes) -> tuple[bytes, os.stat_result] | None:
    """The usual case, without resolving the whole path: the root as it is written, then folders that are no links."""
    relative = path[len(root) + 1 :] if path.startswith(root + b"/") else path
    parts = relative.split(b"/")
    if len(parts) < 3 or parts[:2] != own or parts[2] == b".dispatch":
        return None
    if b"" in parts or b"." in parts or b".." in parts or 0 in relative:
        return None
    where = root
    try:
        for part in parts:
            where += b"/" + part
            found = os.lstat(where)
            if stat.S_ISLNK(found.st_mode):
                return None
    except OSError:
        return None
    return relative, found


def longest_path(limit: int) -> int:
    """Bytes of the longest path of a save that a publication's name of ``limit`` bytes carries."""
    return max(0, (limit - PREFIX_LENGTH) * 5 // 8)


def check_length(relative: bytes, limit: int) -> None:
    """Refuse a path for which the publication's name would be longer than ``limit`` bytes, the filesystem's own."""
    length = PREFIX_LENGTH + -(-len(relative) * 8 // 5)
    if length > limit:
        longest = longest_path(limit)
        raise BadDataError(
            f"the save's path {show(relative)} has {len(relative)} bytes",
            hint=f"this filesystem's names of {limit} bytes carry at most {longest}; use shorter folder names",
        )


def check_save(root: bytes, relative: bytes, found: os.stat_result | None = None) -> None:
    """Refuse a save that is missing or empty, or that has special files or links that lead out of it.

    Nothing is read but folders, and of files only the size, up to the first one that has a byte in it.

    :param found: what is there, where that is known a moment ago.
    :raises BadDataError: naming the save and what is wrong.
    :raises StoreError: it could not be looked.
    """
    path = root + b"/" + relative
    try:
        if not _has_bytes(path, found or os.lstat(path)):
            raise BadDataError(f"save {show(relative)} is empty", hint="no file in it has a byte")
    except FileNotFoundError as error:
        raise BadDataError(f"save {show(relative)} is not there") from error
    except OSError as error:
        raise store_error(error, "looking at save", relative) from error


def _has_bytes(path: bytes, found: os.stat_result) -> bool:
    if stat.S_ISREG(found.st_mode):
        return found.st_size > 0
    if not stat.S_ISDIR(found.st_mode):
        raise BadDataError(f"save {show(path)} is neither a file nor a folder")
    full = False
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    full = full or entry.stat(follow_symlinks=False).st_size > 0
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_symlink():
                    check_link(path, entry.path)
                else:
                    raise BadDataError(f"save {show(path)} has a special file, {show(entry.path)}")
    return full


def check_link(save: bytes, link: bytes) -> bytes:
    """The target of a link inside a save, which must be relative and stay inside.

    :raises BadDataError: it leads out of the save: whoever removes what it names takes a part of the save away.
    """
    target = os.readlink(link)
    inside = os.path.join(os.path.realpath(save), b"")
    where = os.path.realpath(os.path.join(os.path.dirname(link), target))
    if target.startswith(b"/") or not os.path.join(where, b"").startswith(inside):
        raise BadDataError(
            f"save {show(save)} has a link that leads out of it, {show(link)} to {show(target)}",
            hint="a save must hold its own files; links in it are relative",
        )
    return target


def sync_save(root: bytes, relative: bytes) -> None:
    """Fsync every file of a save, then its folders from the innermost out, then those above it up to the root.

    :raises StoreError: one of them failed (``ENOSPC`` and ``EDQUOT`` can come only now, C121).
    """
    path = os.path.join(root, relative)
    doing = path
    try:
        folders: list[bytes] = []
        stack = [path] if stat.S_ISDIR(os.lstat(path).st_mode) else []
        if not stack:
            _sync(path, os.O_RDONLY)
        while stack:
            folder = stack.pop()
            folders.append(folder)
            with os.scandir(folder) as entries:
                for entry in entries:
                    doing = entry.path
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        _sync(entry.path, os.O_RDONLY | os.O_NONBLOCK)
        for folder in [*reversed(folders), *_above(root, relative)]:
            doing = folder
            _sync_folder(folder)
    except OSError as error:
        raise store_error(error, "syncing", doing) from error


def _above(root: bytes, relative: bytes) -> list[bytes]:
    above = []
    while relative := os.path.dirname(relative):
        above.append(os.path.join(root, relative))
    return above


def _sync(path: bytes, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: bytes) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor, path)
    finally:
        os.close(descriptor)
