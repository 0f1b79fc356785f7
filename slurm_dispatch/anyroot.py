"""The checkpoint root of any kind: opened by its scheme, and what each kind does in its own way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

from slurm_dispatch.errors import StoreError, UsageError, show
from slurm_dispatch.s3.place import is_place
from slurm_dispatch.store.findings import findings as posix_findings
from slurm_dispatch.store.manifest import SaveState, manifest_of, read_manifest, state_of, write_manifest
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.saves import check_length, check_save, relative_save
from slurm_dispatch.store.sound import inspect as posix_inspect
from slurm_dispatch.store.space import freed as posix_freed
from slurm_dispatch.store.space import space as posix_space
from slurm_dispatch.store.whole import Proof, look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.roots import Finding, Root
    from slurm_dispatch.store.sound import Found
    from slurm_dispatch.store.space import Space

AnyRoot = Union[CheckpointRoot, "S3Root"]
"""What :func:`open_store` returns; ``store.roots.Root`` is what both can."""


if TYPE_CHECKING:

    def _held(root: AnyRoot) -> Root:
        """Here the type checker holds both kinds to the protocol."""
        return root


def open_store(
    root: str, *, say: Callable[[str], None] | None = None, timeout_s: float | None = None
) -> CheckpointRoot | S3Root:
    """The checkpoint root that ``root`` names: ``s3://bucket/prefix``, or a folder that is there.

    :param say: gets each line that a person should know, once.
    :param timeout_s: for each call to a store in S3; a filesystem has no deadline.
    :raises StoreError: the folder is not there or is no folder.
    :raises UsageError: the place in S3 cannot be one.
    :raises ConfigurationError: S3's client is not installed, or its settings are wrong.
    """
    if is_place(root):
        from slurm_dispatch.s3.root import open_s3_root

        return open_s3_root(root, say=say, timeout_s=timeout_s)
    return open_root(root, say=say)


def publish_by_hand(
    root: AnyRoot, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool
) -> Publication:
    """Publish the path that is given, as it is: whoever says so by hand says that it is whole.

    :raises BadDataError: as :meth:`Root.publish`; nothing is written then.
    """
    if isinstance(root, CheckpointRoot):
        relative = relative_save(root.raw, attempt, path)
        check_length(relative, root.name_max())
        check_save(root.raw, relative)
        if read_manifest(root, relative) is None:
            seen = look(os.path.join(root.raw, relative), read=False)
            if seen is not None:
                root.make_execution(attempt)
                write_manifest(root, relative, manifest_of(seen, Proof.PROVED))
        return root.publish(epoch, step, relative, attempt=attempt, sync=sync)
    from slurm_dispatch.s3.manifest import record

    relative = root.relative_save(attempt, path)
    root.check_save(relative, root.bucket.deadline())
    record(root, relative, Proof.PROVED)
    root.saw(relative)
    return root.publish(epoch, step, relative, attempt=attempt, sync=sync)


def states_of(root: AnyRoot, publications: Sequence[Publication]) -> list[SaveState | StoreError]:
    """The state of each publication's save; an error in the place of one that could not be looked at."""
    if not isinstance(root, CheckpointRoot):
        from slurm_dispatch.s3.manifest import states_of as s3_states

        return s3_states(root, publications)
    states: list[SaveState | StoreError] = []
    for publication in publications:
        try:
            states.append(state_of(root, publication))
        except StoreError as error:
            states.append(error)
    return states


def open_folder_root(root: str, *, say: Callable[[str], None] | None = None) -> CheckpointRoot:
    """The root at a folder, for what is done with folders only.

    :raises UsageError: it is in S3.
    :raises StoreError: it is not there or is no folder.
    """
    if is_place(root):
        raise UsageError(f"checkpoint root {show(root)}: this is for roots that are folders in this version")
    return open_root(root, say=say)


def inspect(root: AnyRoot, publication: Publication) -> Found:
    """Look at a publication's save; never raises for what is wrong with it."""
    if isinstance(root, CheckpointRoot):
        return posix_inspect(root, publication)
    from slurm_dispatch.s3.manifest import inspect as s3_inspect

    return s3_inspect(root, publication)


def space(root: AnyRoot) -> Space:
    """Bytes and inodes, or objects, of a root by execution.

    :raises StoreError: the root could not be listed.
    """
    if isinstance(root, CheckpointRoot):
        return posix_space(root)
    from slurm_dispatch.s3.space import space as s3_space

    return s3_space(root)


def freed(root: AnyRoot, paths: Sequence[bytes]) -> tuple[int, int]:
    """(bytes, inodes or objects) that removing these would give back."""
    if isinstance(root, CheckpointRoot):
        return posix_freed(root, paths)
    from slurm_dispatch.s3.space import freed as s3_freed

    return s3_freed(root, paths)


def findings(root: AnyRoot, attempt: str) -> list[Finding]:
    """What the store of a root is proved to do, tried in the folder of an execution that is nobody's.

    :param attempt: a fresh one; its folder is removed again.
    :raises StoreError: it could not be tried.
    """
    if isinstance(root, CheckpointRoot):
        return posix_findings(root, attempt)
    from slurm_dispatch.s3.proof import findings as s3_findings

    return s3_findings(root.bucket, root.place.key("exec", attempt, ".dispatch"), root=root.path)
