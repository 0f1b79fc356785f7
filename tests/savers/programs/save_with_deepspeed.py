"""DeepSpeed with two ranks on the CPU.

save_with_deepspeed.py save STAGE: each child saves global_step1 with that ZeRO stage.
save_with_deepspeed.py load STAGE SAVE...: load each by its tag, and end with 1 if one is not of step 1.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

from forking import done, serve
from ranks import run

warnings.filterwarnings("ignore")
os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
logging.disable(logging.WARNING)

import deepspeed  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
# The shared memory operator would be compiled; without it the group's own collectives are used.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
STAGE = int(sys.argv[2])


def engine():
    """A model of two layers after one step."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": STAGE},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    made, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    made.backward(made(torch.ones(2, 8)).float().mean())
    made.step()
    return made


def save(rank: int) -> None:
    """One rank's part."""
    engine().save_checkpoint(FOLDER)


def load(rank: int) -> None:
    """Both ranks load every save."""
    made = engine()
    for path in sys.argv[3:]:
        made.global_steps = 0
        found, _ = made.load_checkpoint(os.path.dirname(path), tag=os.path.basename(path))
        assert found is not None, path
        assert made.global_steps == 1, path


if sys.argv[1] == "load":
    run(load)
else:
    FOLDER = serve()
    run(save)
done()
