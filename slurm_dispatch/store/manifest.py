"""What a save was when it was kept, and how it was known to be whole: ``exec/<attempt>/.dispatch/save-<name>``.

Large files of a kept save are links: a run that still lives can write into them (C169). It cannot be kept from it,
but a save that is no longer what was published is seen here, by names, sizes and times.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX, create_whole, read_regular, sync_folder
from slurm_dispatch.errors import AbsentError, BadDataError, CorruptError, show, store_error
from slurm_dispatch.store.body import WRONG, read_body, render_body
from slurm_dispatch.store.tree import open_in
from slurm_dispatch.store.whole import Look, Proof, look

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import CheckpointRoot

SIZE_MAX = 64 * 1024
VERSION = 1
PREFIX = "save-"


class SaveState(str, Enum):
    """What ``dispatch ls`` says of a publication's save."""

    PROVED = "proved"
    ASSUMED = "assumed"
    GONE = "gone"
    CHANGED = "changed"
    UNRECORDED = "unrecorded"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is remembered of a save.

    :ivar files: regular files in it.
    :ivar size: bytes in them.
    :ivar digest: SHA-256 over kind, path, size and mtime of all its entries, 64 hexadecimal digits.
    """

    proof: Proof
    files: int
    size: int
    digest: str


def manifest_of(seen: Look, proof: Proof) -> Manifest:
    """The manifest of a look. Inodes are not part of it: a copy is the same save."""
    digest = hashlib.sha256()
    for entry in seen.entries:
        digest.update(b"%s %d %d %d\0%s\0" % (
            entry.kind.encode("ascii"), entry.size, entry.mtime_ns, len(entry.path), entry.path))  # fmt: skip
    return Manifest(proof, seen.files, seen.size, digest.hexdigest())


def render(path: bytes, manifest: Manifest) -> bytes:
    """The text of the manifest of the save at ``path``."""
    return render_body(
        VERSION, path=os.fsdecode(path), proof=manifest.proof.value, files=manifest.files, size=manifest.size,
        digest=manifest.digest,
    )  # fmt: skip


def parse(content: bytes, path: bytes, shown: str) -> Manifest | None:
    """What :func:`render` wrote for ``path``; ``None`` if it is about another save of the same name.

    :param shown: where it was read, for messages.
    :raises CorruptError: it does not parse.
    """
    try:
        body = read_body(content, VERSION)
        if body["path"] != os.fsdecode(path):
            return None  # in another folder of the execution
        return Manifest(Proof(body["proof"]), int(body["files"]), int(body["size"]), str(body["digest"]))
    except WRONG as error:
        raise CorruptError(f"manifest {show(shown)} does not parse: {error}") from error


def write_manifest(root: CheckpointRoot, path: bytes, manifest: Manifest) -> None:
    """Leave it for the save at ``path`` (relative to the root, in an execution's folder).

    One that was left for the same name, by a process that was killed before its save was there, is replaced.
    """
    folder, name = _place(root, path)
    content = render(path, manifest)
    if create_whole(folder, name, content, mode=root.modes().file):
        return
    try:
        # Nothing is published from it yet, or it says the same: this is no publication, so it may be replaced.
        temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        create_whole(folder, temporary, content, mode=root.modes().file)
        os.rename(os.path.join(folder, temporary), os.path.join(folder, name))
        sync_folder(folder)
    except OSError as error:
        raise store_error(error, "writing", os.path.join(folder, name)) from error


def read_manifest(root: CheckpointRoot, path: bytes) -> Manifest | None:
    """What was left for the save at ``path``, or ``None`` if nothing was.

    :raises CorruptError: it is there and does not parse.
    """
    try:
        folder, name = _place(root, path)
        content = read_regular(os.path.join(folder, name), SIZE_MAX)
    except (AbsentError, BadDataError):
        return None
    return parse(content, path, os.path.join(folder, name))


def forget_manifest(root: CheckpointRoot, path: bytes) -> None:
    """Remove what was left for the save at ``path``, which is about to go; nothing of another save of its name.

    One a publication would pile up for as long as the job lives; and where the save is gone and this is there, the
    save did not go by us.

    :raises StoreError: it could not be removed.
    """
    parts = path.split(b"/")
    if len(parts) < 3 or parts[0] != b"exec":
        return
    try:
        if read_manifest(root, path) is None:
            return
    except CorruptError:
        return  # nobody knows whose it is
    folder, name = _place(root, path)
    try:
        descriptor = open_in(root.raw, b"exec/" + parts[1] + b"/.dispatch")
    except AbsentError:
        return
    try:
        os.unlink(os.fsencode(name), dir_fd=descriptor)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise store_error(error, "removing", os.path.join(folder, name)) from error
    finally:
        os.close(descriptor)


def state_of(root: CheckpointRoot, publication: Publication) -> SaveState:
    """The save as it is now, against its manifest.

    :raises StoreError: it could not be looked.
    """
    seen = look(os.path.join(root.raw, publication.path), read=False)
    if seen is None or (len(seen.entries) == 1 and seen.size == 0):
        return SaveState.GONE
    manifest = read_manifest(root, publication.path)
    if manifest is None:
        return SaveState.UNRECORDED
    if manifest_of(seen, manifest.proof) != manifest:
        return SaveState.CHANGED
    return SaveState(manifest.proof.value)


def _place(root: CheckpointRoot, path: bytes) -> tuple[str, str]:
    parts = path.split(b"/")
    if len(parts) < 3 or parts[0] != b"exec":
        raise BadDataError(f"save {show(path)} is not in an execution's folder")
    folder = os.path.join(root.path, "exec", os.fsdecode(parts[1]), ".dispatch")
    return folder, PREFIX + os.fsdecode(parts[-1])
