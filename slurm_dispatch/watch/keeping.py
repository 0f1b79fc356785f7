"""How a whole save becomes the execution's own before it is published: by links in the root, or by an upload to it.

Either way it is ``exec/<attempt>/kept/<its name>`` of the root, and its manifest says what it was.
"""

from __future__ import annotations

import filecmp
import os
import re
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import CannotCreateError, StoreError, store_error
from slurm_dispatch.store.folders import list_fresh
from slurm_dispatch.store.keep import keep, kept_path, remove_out_of_sight, sweep_kept
from slurm_dispatch.store.manifest import manifest_of, write_manifest
from slurm_dispatch.store.saves import check_length
from slurm_dispatch.store.whole import look
from slurm_dispatch.watch.sending import announced

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.root import CheckpointRoot
    from slurm_dispatch.store.whole import Look, Proof
    from slurm_dispatch.watch.objects import Objects

_DIGEST = re.compile(rb"[0-9a-f]{12}\Z")


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

    Nothing of the folder is removed but what our own killed downloads left: its saves are the saver's to rotate. What
    a training that publishes itself uploads, or has published, is not uploaded again.

    :param folder: ``DIR/<attempt>``; ``None`` where nobody else of this host publishes for the execution.
    :param say: gets progress.
    :param moving: is told that an upload goes on, and for how many seconds it may be silent.
    """

    def __init__(
        self,
        root: S3Root,
        attempt: str,
        folder: str | None,
        *,
        say: Callable[[str], None],
        moving: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._attempt = attempt
        self._folder = folder
        self._say = say
        self._moving = moving

    def begin(self) -> None:
        """See :meth:`Keeping.begin`."""
        if self._folder is None:
            return
        resume = os.fsencode(os.path.join(self._folder, "resume"))
        try:
            folders = [os.path.join(resume, name) for name in list_fresh(resume) if _DIGEST.match(name)]
            for folder in folders:
                for name in list_fresh(folder):
                    if name.startswith(TEMPORARY_PREFIX.encode()):
                        remove_out_of_sight(folder, name)
        except StoreError:
            return  # there is none; or it is swept the next time

    def keep(
        self, path: str, seen: Look, proof: Proof, *, copy: bool | Callable[[bytes], bool], name: str | None = None
    ) -> bytes | None:
        """See :meth:`Keeping.keep`. What an upload that was ended has sent already is not sent again; ``None`` also
        while another process of this host uploads the save."""
        called = os.path.basename(path) if name is None else name
        check_length(kept_path(self._attempt, os.fsencode(called)), self._root.name_max())
        with announced(self._folder, called) as alone:
            return self._sent(path, seen, proof, called) if alone else None

    def _sent(self, path: str, seen: Look, proof: Proof, called: str) -> bytes | None:
        from slurm_dispatch.s3 import manifest
        from slurm_dispatch.s3.transfer import upload

        try:
            relative = upload(
                self._root, self._attempt, path, name=f"kept/{called}", say=self._say, moving=self._moving
            )
        except CannotCreateError:
            return kept_path(self._attempt, os.fsencode(called))  # published already: it is not ours to touch
        now = look(path, read=False)
        if now is None or now.entries != seen.entries:
            return None
        objects = self._root.save_objects(relative, self._root.bucket.deadline())
        key = self._root.place.key(relative.decode("utf-8"))
        manifest.write_manifest(self._root, relative, manifest.manifest_of(objects, key, proof))
        return relative

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
        manifest.write_manifest(self._root, relative, manifest.manifest_of(objects, key, proof))
        return relative

    def holds(self, name: str, path: str) -> bool:
        """See :meth:`Keeping.holds`. Of a file that is written again and again there is no save of its own here."""
        return False


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
