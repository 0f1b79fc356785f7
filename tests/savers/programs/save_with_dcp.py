"""torch.distributed.checkpoint with two ranks (gloo), as torchtitan calls it.

save_with_dcp.py save MODE: each child saves step-7 into its folder; MODE is ``save`` or ``async_save``.
save_with_dcp.py load SAVE...: load each, and end with 1 if one has not what was saved.
"""

from __future__ import annotations

import sys
import warnings

from forking import done, serve
from ranks import run

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor, zeros  # noqa: E402

torch.set_num_threads(1)


def save(rank: int) -> None:
    """One rank's part."""
    mesh = init_device_mesh("cpu", (2,))
    state = {
        "model": {"w": distribute_tensor(torch.arange(1000.0), mesh, [Shard(0)])},
        "optimizer": {"w": distribute_tensor(torch.arange(4096.0), mesh, [Shard(0)])},
        "train_state": {"step": torch.tensor(7)},
    }
    path = f"{FOLDER}/step-7"
    if sys.argv[2] == "save":
        dcp.save(state, checkpoint_id=path)
    else:
        dcp.async_save(state, checkpoint_id=path).result()


def load(rank: int) -> None:
    """Both ranks load every save."""
    mesh = init_device_mesh("cpu", (2,))
    for path in sys.argv[2:]:
        state = {
            "model": {"w": zeros(1000, device_mesh=mesh, placements=[Shard(0)])},
            "optimizer": {"w": zeros(4096, device_mesh=mesh, placements=[Shard(0)])},
            "train_state": {"step": torch.tensor(0)},
        }
        dcp.load(state, checkpoint_id=path)
        assert torch.equal(state["model"]["w"].full_tensor(), torch.arange(1000.0)), path
        assert torch.equal(state["optimizer"]["w"].full_tensor(), torch.arange(4096.0)), path
        assert int(state["train_state"]["step"]) == 7, path


if sys.argv[1] == "load":
    run(load)
else:
    FOLDER = serve()
    run(save)
done()
