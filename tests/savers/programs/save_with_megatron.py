"""Megatron Core's ``dist_checkpointing`` with two ranks on the CPU, in the format ``torch_dist``.

save_with_megatron.py save: each child saves iter_0000005, as ``save_checkpoint`` of Megatron-LM calls it.
save_with_megatron.py load SAVE...: load each, and end with 1 if one has not what was saved.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import warnings

from forking import done, serve
from ranks import run

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
from megatron.core import dist_checkpointing  # noqa: E402
from megatron.core.dist_checkpointing import ShardedTensor  # noqa: E402
from megatron.core.dist_checkpointing.strategies import filesystem_async  # noqa: E402

torch.set_num_threads(1)


class Results:
    """One result: of what the library asks, as it asks it."""

    def __init__(self):
        self.queue = multiprocessing.get_context("fork").Queue()

    def put(self, result):
        self.queue.put(result)

    def get_nowait(self):
        return self.queue.get(timeout=60)


# The library's queue is a process started by "spawn", which would outlive a rank that is killed.
filesystem_async._get_write_results_queue = Results
# There is no GPU to wait for.
torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"


def state(rank: int, fill: bool):
    """A tensor of which each rank has one half, and what all have."""
    half = torch.arange(64.0).reshape(2, 32)[rank : rank + 1].clone() if fill else torch.zeros(1, 32)
    return {
        "model": ShardedTensor.from_rank_offsets("model.w", half, (0, rank, 2)),
        "iteration": 5,
        "args": {"tensor_model_parallel_size": 1},
    }


def save(rank: int) -> None:
    """One rank's part."""
    path = f"{FOLDER}/iter_0000005"
    if rank == 0:
        os.mkdir(path)
    torch.distributed.barrier()
    dist_checkpointing.save(state(rank, True), path)


def load(rank: int) -> None:
    """Both ranks load every save."""
    for path in sys.argv[2:]:
        found = dist_checkpointing.load({"model": state(rank, False)["model"]}, path)
        assert torch.equal(found["model"], torch.arange(64.0).reshape(2, 32)[rank : rank + 1]), path
        assert found["iteration"] == 5, path


if sys.argv[1] == "load":
    run(load)
else:
    FOLDER = serve()
    run(save)
done()
