"""Files as torch.save, safetensors and numpy write them.

plain.py FOLDER KIND: leaves FOLDER/step_1.EXT and each child writes step_2.EXT in a folder of its own; with a KIND
that begins with ``single-`` the name is last.EXT both times.
"""

from __future__ import annotations

import os
import sys

from forking import done, serve

os.environ.update(OMP_NUM_THREADS="1")

import numpy as np
import safetensors.torch
import torch

torch.set_num_threads(1)
FOLDER, KIND = sys.argv[1:3]


def write(path: str, step: int) -> None:
    """The save of a step."""
    weights = torch.full((256, 256), float(step))
    match KIND.rpartition("-")[2]:
        case "pt":
            torch.save({"model": {"w": weights, "b": weights[0].clone()}, "step": step}, path)
        case "safetensors":
            safetensors.torch.save_file({"w": weights, "b": weights[0].clone()}, path)
        case "npz":
            np.savez(path, w=weights.numpy(), step=np.array(step))
        case "npy":
            np.save(path, weights.numpy())
        case other:
            raise ValueError(other)


def name(folder: str, step: int) -> str:
    """Where it goes."""
    single, _, kind = KIND.rpartition("-")
    return os.path.join(folder, f"last.{kind}" if single else f"step_{step}.{kind}")


os.makedirs(FOLDER, exist_ok=True)
write(name(FOLDER, 1), 1)
folder = serve()
os.makedirs(folder, exist_ok=True)
write(name(folder, 2), 2)
done()
