"""Lightning: the ModelCheckpoint of a real Trainer, and the folder of its sharding strategies.

save_with_lightning.py save file: each child saves ``epoch=0-step=3.ckpt``.
save_with_lightning.py save folder: each child saves the same as FSDPStrategy does with sharded states. The strategy
itself asks for a GPU, so its functions are called as its ``save_checkpoint`` calls them.
save_with_lightning.py load SAVE...: load each, and end with 1 if one has not what was saved.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

from forking import done, serve

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import lightning.pytorch as lightning  # noqa: E402
import torch  # noqa: E402
from lightning.fabric.strategies.fsdp import _distributed_checkpoint_load, _distributed_checkpoint_save  # noqa: E402
from lightning.fabric.utilities.cloud_io import _atomic_save  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

torch.set_num_threads(1)
NAME = "epoch=0-step=3.ckpt"


class Model(lightning.LightningModule):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Forks(ModelCheckpoint):
    """Forks where the save begins."""

    def _save_checkpoint(self, trainer, filepath):
        folder = serve()
        path = os.path.join(folder, os.path.basename(filepath))
        if sys.argv[2] == "file":
            super()._save_checkpoint(trainer, path)
            done()
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(False)
        os.makedirs(path)
        from pathlib import Path

        _distributed_checkpoint_save({"model": checkpoint.pop("state_dict")}, Path(path))
        _atomic_save(checkpoint, Path(path) / "meta.pt")
        done()


if sys.argv[1] == "load":
    from pathlib import Path

    for path in sys.argv[2:]:
        folder = os.path.isdir(path)
        state = torch.load(os.path.join(path, "meta.pt") if folder else path, weights_only=False)
        assert state["global_step"] == 3, path
        if folder:
            model = {"model": Model().state_dict()}
            _distributed_checkpoint_load(model, Path(path))
        else:
            Model().load_state_dict(state["state_dict"])
    done()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 8)), batch_size=4)
trainer = lightning.Trainer(
    max_steps=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[Forks(dirpath=os.getcwd(), every_n_train_steps=3, save_top_k=-1)],
)  # fmt: skip
trainer.fit(Model(), data)
