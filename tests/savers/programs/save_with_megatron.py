"""Megatron Core's ``dist_checkpointing`` on the CPU, in the format ``torch_dist``.

save_with_megatron.py save RANKS: each child saves iter_0000005, as ``save_checkpoint`` of Megatron-LM calls it.
save_with_megatron.py load RANKS SAVE...: load each, and end with 1 if one has not what was saved.
"""

from __future__ import annotations

import logging
import os
import queue
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


# The library's queue is that of a process started anew ("spawn"), which would import this program again for each
# save; a save that is not asynchronous takes its results out in the process that puts them in.
filesystem_async._get_write_results_queue = queue.Queue
# There is no GPU to wait for.
torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"


WORLD = int(sys.argv[2])


def state(rank: int, fill: bool):
    """Two tensors of which each rank has a part, and what all have."""
    made = {"iteration": 5, "args": {"tensor_model_parallel_size": 1}}
    for name in ("w", "b"):
        whole = torch.arange(64.0).reshape(2, 32)
        part = whole.chunk(WORLD)[rank].clone() if fill else torch.zeros(2 // WORLD, 32)
        made[name] = ShardedTensor.from_rank_offsets(f"model.{name}", part, (0, rank, WORLD))
    return made


def save(rank: int) -> None:
    """One rank's part."""
    path = f"{FOLDER}/iter_0000005"
    if rank == 0:
        os.mkdir(path)
    torch.distributed.barrier()
    dist_checkpointing.save(state(rank, True), path)


def load(rank: int) -> None:
    """All ranks load every save."""
    for path in sys.argv[3:]:
        wanted = state(rank, False)
        found = dist_checkpointing.load({name: wanted[name] for name in ("w", "b")}, path)
        for name in ("w", "b"):
            assert torch.equal(found[name], torch.arange(64.0).reshape(2, 32).chunk(WORLD)[rank]), path
        assert found["iteration"] == 5, path


if sys.argv[1] == "load":
    run(load, WORLD)
else:
    FOLDER = serve()
    run(save, WORLD)
done()
