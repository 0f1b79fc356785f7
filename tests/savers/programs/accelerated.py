"""A tiny model under the real Accelerator of accelerate, with one object registered for checkpointing.

accelerated.py FOLDER TOTAL SAFE OBJECTS: leaves FOLDER/checkpoints/checkpoint_0 and checkpoint_1, and each child
saves checkpoint_2 in a folder of its own, by ``save_state`` with automatic naming.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings

from forking import done, serve

warnings.filterwarnings("ignore")
os.environ.update(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import ProjectConfiguration  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(7)
FOLDER, TOTAL, SAFE, OBJECTS = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1", int(sys.argv[4])


class Counter:
    """An object with a state."""

    def state_dict(self):
        return {"seen": 1}

    def load_state_dict(self, state):
        pass


shutil.rmtree(FOLDER, ignore_errors=True)
project = ProjectConfiguration(project_dir=FOLDER, automatic_checkpoint_naming=True, total_limit=TOTAL)
accelerator = Accelerator(cpu=True, project_config=project)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
for _ in range(OBJECTS):
    accelerator.register_for_checkpointing(Counter())


def step() -> None:
    """One step of training."""
    accelerator.backward(model(torch.ones(2, 16)).sum())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()


for _ in range(2):
    step()
    accelerator.save_state(safe_serialization=SAFE)
step()
folder = serve()
accelerator.project_configuration.set_directories(folder)
accelerator.save_state(safe_serialization=SAFE)
done()
