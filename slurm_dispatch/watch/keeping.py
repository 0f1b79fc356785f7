"""How a whole save becomes the execution's own before it is published: by links in the root, or by an upload to it.

Either way it is ``exec/<attempt>/kept/<its name>`` of the root, and its manifest says what it was.
"""

from __future__ import annotations

import filecmp
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.durable import TEMPORARY_PREFIX, make_folder
from slurm_dispatch.errors import BadDataError, CannotCreateError, StoreError, store_error
from slurm_dispatch.store.keep import keep, kept_path, sweep_kept
from slurm_dispatch.store.manifest import manifest_of, write_manifest
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.store.saves import check_length
from slurm_dispatch.store.transfer import transfer
from slurm_dispatch.store.whole import look
from slurm_dispatch.watch.local import DIGEST, names_here
from slurm_dispatch.watch.sending import FOLDER, announced

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.bucket import Meta
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.root import CheckpointRoot
    from slurm_dispatch.store.whole import Look, Proof
    from slurm_dispatch.watch.objects import Objects

class Keeping(Protocol):
    """What a publisher does with a whole save."""

    def begin(self) -> None:
        """Remove what a killed process left half made."""

    def keep(
        self, path: str, seen: Look, proof: Proof, *, copy: bool | Callable[[bytes], bool], name: str | None = None
    ) -> bytes | None:
        """Make the save at ``path`` the execution's own; its path relative to the root, to be published.

        :param seen: the look that showed that it is whole: it must still be that when it is kept.
        :param copy: which files the saver may write again in place, by their path in the save.
        :param name: what the kept save is called instead; then it is kept even where links cannot be had.
        :returns: ``None`` if it changed or went meanwhile.
        :raises BadDataError: it cannot be kept as it is.
        :raises StoreError: the store; the same again is safe.
        """

    def holds(self, name: str, path: str) -> bool:
        """Whether the kept save of one file called ``name`` is the file at ``path``, byte for byte.

        :raises FileNotFoundError: that went meanwhile.
        """


class Linked:
    """Keeping in a root that is a folder.

    :param links: whether links can be had; otherwise the saver's own path is published.
    """

    def __init__(self, root: CheckpointRoot, attempt: str, *, links: bool = True) -> None:
        self._root = root
        self._attempt = attempt
        self._links = links

    def begin(self) -> None:
        """See :meth:`Keeping.begin`."""
        sweep_kept(self._root, self._attempt)

    def keep(
        self, path: str, seen: Look, proof: Proof, *, copy: bool | Callable[[bytes], bool], name: str | None = None
    ) -> bytes | None:
        """See :meth:`Keeping.keep`."""
        if self._links or name is not None:
            called = None if name is None else os.fsencode(name)
            return keep(self._root, self._attempt, path, proof=proof, copy=copy, expected=seen, name=called)
        relative = os.fsencode(os.path.relpath(path, self._root.path))
        write_manifest(self._root, relative, manifest_of(seen, proof))
        return relative

    def holds(self, name: str, path: str) -> bool:
        """See :meth:`Keeping.holds`."""
        return same_bytes(os.path.join(self._root.execution(self._attempt), "kept", name), path)


class Uploaded:
    """Keeping in a root in S3, of what the command saved in a folder of this host.

    What is uploaded are links and copies in ``DIR/<attempt>/.dispatch/sent``, as they are made in a root that is a
    folder, so that neither the saver's rotation nor its next writing disturbs an upload of minutes; they go when it
    has ended. Where there are no links, it is the saver's own. Nothing else is removed: saves are the saver's. What a
    training that publishes itself uploads, or has published, is not sent again.

    :param folder: ``DIR/<attempt>``; ``None`` where nobody else of this host publishes for the execution.
    :param links: false where the saver leaves a save alone until :meth:`keep` is done: then that itself is uploaded.
    :param say: gets progress.
    :param moving: is told that an upload goes on, and for how many seconds it may be silent.
    """

    def __init__(
        self,
        root: S3Root,
        attempt: str,
        folder: str | None,
        *,
        links: bool = True,
        say: Callable[[str], None],
        moving: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._attempt = attempt
        self._folder = folder
        self._ours = os.fsencode(os.path.join(folder or "", FOLDER))
        self._links_in = os.path.join(self._ours, b"sent")
        self._say = say
        self._moving = moving
        self._links: bool | None = None if links and folder is not None else False
        """Whether links can be had; ``None``: not tried yet."""

    def begin(self) -> None:
        """See :meth:`Keeping.begin`: links of uploads, and downloads, that were killed."""
        if self._folder is None:
            return
        for name in names_here(self._links_in):
            remove_quietly(os.path.join(self._links_in, name))
        resume = os.fsencode(os.path.join(self._folder, "resume"))
        for digest in names_here(resume):
            folder = os.path.join(resume, digest)
            for name in names_here(folder) if DIGEST.match(digest) else ():
                if name.startswith(TEMPORARY_PREFIX.encode()):
                    remove_quietly(os.path.join(folder, name))

    def keep(
        self, path: str, seen: Look, proof: Proof, *, copy: bool | Callable[[bytes], bool], name: str | None = None
    ) -> bytes | None:
        """See :meth:`Keeping.keep`. What an upload that was ended has sent already is not sent again; ``None`` also
        while another process of this host uploads the save."""
        called = os.path.basename(path) if name is None else name
        check_length(kept_path(self._attempt, os.fsencode(called)), self._root.name_max())
        with announced(self._folder, called) as alone:
            sent = self._sent(path, seen, copy, called) if alone else None
        if sent is None:
            return None
        relative, objects = sent
        self._record(relative, objects, proof)
        return relative

    def _sent(
        self, path: str, seen: Look, copy: bool | Callable[[bytes], bool], called: str
    ) -> tuple[bytes, list[Meta]] | None:
        mine = os.path.join(self._links_in, os.fsencode(called))
        objects: list[Meta] = []
        source: str | None = path
        try:
            if self._links is not False or (copy is True and self._folder is not None):
                source = self._linked(path, seen, mine, copy)
            relative = None if source is None else self._upload(source, called, seen, objects.extend)
        except BadDataError:
            self._sweep(path, called)
            raise
        finally:
            if source != path:
                remove_quietly(mine)
        if relative is None:
            return None
        if source == path and ((now := look(path, read=False)) is None or now.entries != seen.entries):
            self._sweep(path, called)
            return None
        return relative, objects

    def _record(self, relative: bytes, objects: list[Meta], proof: Proof) -> None:
        """Leave what the save is now; what was known of that very save before, and how, stays."""
        from slurm_dispatch.s3 import manifest

        before = manifest.read_manifest(self._root, relative)
        if before is None or manifest.manifest_of(self._root, relative, objects, before.proof) != before:
            manifest.write_manifest(
                self._root, relative, manifest.manifest_of(self._root, relative, objects, proof)
            )
        self._root.saw(relative)

    def _linked(self, path: str, seen: Look, mine: bytes, copy: bool | Callable[[bytes], bool]) -> str | None:
        """The path of our own links to the save, or its own where there can be none; ``None`` if it has changed."""
        try:
            for folder in (self._ours, self._links_in):
                make_folder(os.fsdecode(folder))
            if self._links is None:
                self._links = can_link(self._links_in)
            if not self._links and copy is not True:
                return path
            remove_quietly(mine)
            name = os.path.basename(mine)
            done = transfer(os.fsencode(path), self._links_in, name, copy=copy, expected=seen, durable=False)
        except BadDataError:
            raise
        except StoreError as error:
            self._root.say(f"what is uploaded is the saver's own, which it must leave alone: {error}")
            return path
        return None if done is None else os.fsdecode(mine)

    def _upload(self, source: str, called: str, seen: Look, listed: Callable[[list[Meta]], None]) -> bytes:
        from slurm_dispatch.s3.transfer import upload

        try:
            return upload(
                self._root, self._attempt, source, name=f"kept/{called}", known_as=seen, say=self._say,
                moving=self._moving, listed=listed,
            )  # fmt: skip
        except CannotCreateError as error:
            raise BadDataError(str(error)) from error

    def _sweep(self, path: str, called: str) -> None:
        """Take away what was sent of a save that the saver has removed meanwhile: no upload will go on with it.

        With a manifest it was sent whole before, and may be published: the answer to that can be late.
        """
        from slurm_dispatch.s3 import manifest

        if os.path.lexists(path):
            return
        relative = kept_path(self._attempt, os.fsencode(called))
        with suppress(StoreError, BadDataError):  # the next execution removes what is not published
            if manifest.read_manifest(self._root, relative) is None:
                self._root.remove(relative)

    def holds(self, name: str, path: str) -> bool:
        """See :meth:`Keeping.holds`; told by what stands with the object: which file it was."""
        from slurm_dispatch.s3.transfer import token_of

        key = self._root.place.key("exec", self._attempt, "kept", name)
        return self._root.bucket.sent(key, self._root.bucket.deadline()) == token_of(path)


class Written:
    """Keeping of nothing: the saver has written into the root in S3 itself, and its own path is published.

    There are no links in S3, and a copy of every save would be as large as the saves: what the saver removes is gone.

    :param tree: what :meth:`keep` was told of was seen in.
    """

    def __init__(self, root: S3Root, attempt: str, tree: Objects) -> None:
        self._root = root
        self._attempt = attempt
        self._tree = tree

    def begin(self) -> None:
        """See :meth:`Keeping.begin`. Nothing is ever half made."""

    def keep(
        self, path: str, seen: Look, proof: Proof, *, copy: bool | Callable[[bytes], bool], name: str | None = None
    ) -> bytes | None:
        """See :meth:`Keeping.keep`."""
        from slurm_dispatch.s3 import manifest

        relative = self._root.relative_save(self._attempt, path)
        check_length(relative, self._root.name_max())
        objects = self._root.save_objects(relative, self._root.bucket.deadline())
        key = self._root.place.key(relative.decode("utf-8"))
        if self._tree.entries_of(objects, key) != seen.entries:
            return None
        manifest.write_manifest(self._root, relative, manifest.manifest_of(self._root, relative, objects, proof))
        if seen.size:
            self._root.saw(relative)
        return relative

    def holds(self, name: str, path: str) -> bool:
        """See :meth:`Keeping.holds`. Of a file that is written again and again there is no save of its own here."""
        return False


def can_link(folder: bytes) -> bool:
    """Whether a file in ``folder`` can have a second name there."""
    one, other = (os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}".encode()) for _ in range(2))
    try:
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.link(one, other)
    except OSError:
        return False
    finally:
        remove_quietly(one)
        remove_quietly(other)
    return True


def same_bytes(one: str, other: str) -> bool:
    """Whether two files are there with the same bytes.

    :raises FileNotFoundError: one of them went meanwhile.
    :raises StoreError: they could not be read.
    """
    try:
        # Same sizes first: a comparison of bytes is rare.
        if not os.path.isfile(one) or os.path.getsize(one) != os.path.getsize(other):
            return False
        return filecmp.cmp(one, other, shallow=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise store_error(error, "reading", other) from error
    finally:
        filecmp.clear_cache()


__all__ = ["Keeping", "Linked", "Uploaded", "Written", "same_bytes"]
