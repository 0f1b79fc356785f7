"""``torch.distributed.checkpoint`` on two ranks, saved asynchronously and published: ``ROOT``.

To a root in S3 without a folder of this host it writes by its own fsspec writer.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from ranks import attempt, become, from_dir, on_ranks, tell
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

from slurm_dispatch import execution
from slurm_dispatch.integrations.dcp import async_save, publish_when_done

SLOW_S = 2.0
IN_S3 = sys.argv[1].startswith("s3://") and from_dir() is None
Writer: Any = FsspecWriter if IN_S3 else FileSystemWriter


class Late(Writer):
    """Writes this rank's files late."""

    def write_data(self, *words: Any, **more: Any) -> Any:
        time.sleep(SLOW_S)
        return super().write_data(*words, **more)


class Broken(Writer):
    """Cannot write."""

    def write_data(self, *words: Any, **more: Any) -> Any:
        raise OSError(28, "No space left on device")


def work(rank: int) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=2)
    this = execution(from_dir=from_dir())
    state = {f"weights-{rank}": torch.full((1000,), float(rank)), "step": torch.tensor(0)}
    for step in (5, 10):
        folder = os.path.join(this.directory, f"step-{step}")
        state["step"] = torch.tensor(step)
        writer = Late(folder) if rank == 1 and step == 10 else Writer(folder)
        began = time.monotonic()
        saved = async_save(state, step=step, checkpoint_id=folder, this=this, storage_writer=writer)
        done = saved.result(120)
        name = None if done is None else os.fsdecode(done.path)
        tell("saved", rank=rank, step=step, path=name, late=time.monotonic() - began >= SLOW_S)
    folder = os.path.join(this.directory, "step-15")
    writer = Broken(folder) if rank == 1 else Writer(folder)
    saved = async_save(state, step=15, checkpoint_id=folder, this=this, storage_writer=writer)
    tell("failed", rank=rank, error=type(saved.exception(120)).__name__)
    # What is done is not what can be published: the folder is not in the execution's own.
    outside = os.path.join(os.path.dirname(this.directory), "outside")
    answer = torch.distributed.checkpoint.async_save(state, checkpoint_id=outside, storage_writer=Writer(outside))
    error = publish_when_done(answer, outside, 20, this=this).exception(120)
    tell("outside", rank=rank, error=None if error is None else type(error).__name__)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    become(sys.argv[1], 1)
    on_ranks(2, work)
    kept = os.path.join(sys.argv[1], "exec", attempt(1), "kept")
    if from_dir() is None and not IN_S3:
        tell("kept", files={name: sorted(os.listdir(f"{kept}/{name}")) for name in os.listdir(kept)})
