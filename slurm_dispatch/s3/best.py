"""The best save of an execution in S3: ``best/<name>``, or ``best/<n>/<name>`` where that is the one before.

What is in the store already is copied there and not sent again. A place where something stands that nobody names,
left by a process that was killed, is used; what is named stays whole until the next one is named.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.s3.transfer import copy_save, is_sent, upload
from slurm_dispatch.store.best import is_tangled, named_now, within
from slurm_dispatch.store.keep import kept_path
from slurm_dispatch.store.outranked import BEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.root import S3Root


def take_best(
    root: S3Root, attempt: str, source: str, still: Callable[[], bool], *, say: Callable[[str], None] | None = None
) -> bytes:
    """See :data:`slurm_dispatch.store.best.Take`.

    :param source: ``s3://...`` in this root, or a path of this host.
    :raises AbsentError: it went meanwhile.
    :raises BadDataError: it is not there, is empty, or changed.
    """
    named = named_now(root, attempt)
    inside = within(root, source) if source.startswith(f"{root.path}/") else None
    if inside is not None and inside == named:
        return inside
    target = _free(attempt, os.path.basename(source.rstrip("/")), named)
    if inside is not None:
        copy_save(root, inside, target, say=say, still=still)
        return target
    kept = kept_path(attempt, os.fsencode(os.path.basename(source)))
    if is_sent(root, kept, source):
        copy_save(root, kept, target, say=say)
        return target
    own = f"exec/{attempt}/"
    return upload(root, attempt, source, name=target.decode("utf-8")[len(own) :], say=say)


def _free(attempt: str, name: str, named: bytes | None) -> bytes:
    """A place in ``best/`` that neither is, nor is in, nor holds what is named now."""
    own = f"exec/{attempt}/{os.fsdecode(BEST)}"
    for place in (f"{own}/{name}", f"{own}/2/{name}", f"{own}/3/{name}"):
        path = os.fsencode(place)
        if named is None or (path != named and not is_tangled(path, named)):
            return path
    raise AssertionError


__all__ = ["take_best"]
