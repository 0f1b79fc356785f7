"""``torch.distributed.checkpoint``: an asynchronous save that is published when its future is done.

What it does (torch 2.13, ``torch/distributed/checkpoint/state_dict_saver.py`` and ``filesystem.py``): every rank
writes its own ``__<rank>_<n>.distcp`` files; the coordinator (rank 0) collects what all ranks wrote, writes
``.metadata`` under a temporary name, renames it, and is done. So on rank 0 the future is done only after every rank's
files are written; with ``no_dist`` each save is of one rank alone. An exception in a callback of a future is logged
and lost, so the publication has a future of its own.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from slurm_dispatch.api import Execution, execution
from slurm_dispatch.s3.place import is_place

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication


def async_save(
    state_dict: dict[str, Any],
    *,
    step: int,
    checkpoint_id: str | os.PathLike[str],
    this: Execution | None = None,
    sync: bool = False,
    **options: Any,
) -> Future[Publication | None]:
    """``torch.distributed.checkpoint.async_save``, published by rank 0 when it is done. Called on every rank.

    :param checkpoint_id: the folder of the save, in the execution's folder; each step needs one of its own. For a
        root in S3 all ranks of a save are on one host, or write to ``s3://...`` itself.
    :param this: the execution; by default :func:`slurm_dispatch.execution`.
    :param sync: fsync the save's own files before it is published.
    :param options: of ``async_save`` itself.
    :returns: the publication on rank 0, ``None`` on the others and in a job with a shared checkpoint; or the error of
        the save or of the publication. Wait for it before the training ends, and before the next save.
    """
    import torch.distributed.checkpoint as dcp

    here = this or execution()
    folder = os.fspath(checkpoint_id)
    if not is_place(folder):
        folder = os.path.abspath(folder)
    answer = dcp.async_save(state_dict, checkpoint_id=folder, **options)
    saving: Future[Any] = getattr(answer, "upload_completion", answer)
    return publish_when_done(saving, folder, step, this=here, sync=sync, alone=bool(options.get("no_dist")))


def publish_when_done(
    saving: Future[Any],
    path: str | os.PathLike[str],
    step: int,
    *,
    this: Execution | None = None,
    sync: bool = False,
    alone: bool = False,
) -> Future[Publication | None]:
    """Publish the save at ``path`` on rank 0 when ``saving`` is done. For those who call ``async_save`` themselves.

    :param alone: the save is of this rank alone (``no_dist``): it publishes whatever its rank is.
    """
    here = this or execution()
    published: Future[Publication | None] = Future()
    published.set_running_or_notify_cancel()
    first = alone or _rank() == 0

    def done(future: Future[Any]) -> None:
        try:
            future.result()
            made = here.publish(path, step, sync=sync) if first and not here.shared else None
        except BaseException as error:  # noqa: BLE001 (it is the future's, whoever waits for it gets it)
            published.set_exception(error)
        else:
            published.set_result(made)

    saving.add_done_callback(done)
    return published


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
