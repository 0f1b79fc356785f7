"""Real savers that write to S3 themselves; the endpoint and the credentials are the environment's.

save_to_s3.py KIND: each child saves below the ``s3://...`` that it is given. save_to_s3.py load KIND PLACE...: the
library loads each save from S3, and the program ends with 1 if one has not what was saved.

KIND is ``dcp`` (torch.distributed.checkpoint by its fsspec writer, two ranks), ``lightning`` (``ModelCheckpoint``
with a folder in S3), ``boto3`` (a file of ``torch.save``, in parts), or ``copied``: what transformers' Trainer leaves
in a folder, copied as ``s3fs`` and ``aws s3 sync`` do it, many files at once.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import tempfile
import warnings

from forking import done, serve
from ranks import run

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402

torch.set_num_threads(1)
LARGE = 12 << 20
"""Bytes; boto3 sends 8 MiB at once at most."""


def begin() -> str:
    """In each child: where it saves. It has a session of its own, so that all of it can be killed at once."""
    place = serve()
    os.setsid()
    return place


def state(mesh, values) -> dict:
    from torch.distributed.tensor import Shard, distribute_tensor

    return {
        "model": {"w": distribute_tensor(values, mesh, [Shard(0)])},
        "train_state": {"step": torch.tensor(7)},
    }


def dcp(rank: int) -> None:
    """One rank's part; it loads if it was told so."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,))
    wanted = torch.arange(4096.0)
    if not LOADED:
        path = f"{PLACE}/step-7"
        checkpoint.save(state(mesh, wanted), checkpoint_id=path, storage_writer=FsspecWriter(path))
    for path in LOADED:
        found = state(mesh, torch.zeros(4096))
        checkpoint.load(found, checkpoint_id=path, storage_reader=FsspecReader(path))
        assert torch.equal(found["model"]["w"].full_tensor(), wanted), path
        assert int(found["train_state"]["step"]) == 7, path


def lightning() -> None:
    """A real Trainer, which forks where the save begins."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch, index):
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Forks(ModelCheckpoint):
        def _save_checkpoint(self, trainer, filepath):
            super()._save_checkpoint(trainer, f"{begin()}/{os.path.basename(filepath)}")
            done()

    if LOADED:
        from lightning.fabric.utilities.cloud_io import _load

        for path in LOADED:
            found = _load(path, weights_only=False)
            assert found["global_step"] == 3, path
            Model().load_state_dict(found["state_dict"])
        return
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 8)), batch_size=4)
    trainer = pl.Trainer(
        max_steps=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Forks(dirpath=f"{ANYWHERE}/lightning", every_n_train_steps=3, save_top_k=-1)],
    )  # fmt: skip
    trainer.fit(Model(), data)


def by_boto3() -> None:
    """One file in parts, several at once."""
    import boto3

    wanted = torch.arange(LARGE // 4, dtype=torch.float32)
    if not LOADED:
        place = begin()
    bucket, _, prefix = (PLACE_OF(LOADED[0]) if LOADED else place)[5:].partition("/")
    client = boto3.client("s3")
    if not LOADED:
        body = io.BytesIO()
        torch.save({"w": wanted, "step": 7}, body)
        body.seek(0)
        client.upload_fileobj(body, bucket, f"{prefix}/checkpoint-step7.pt")
        return
    for path in LOADED:
        body = io.BytesIO()
        client.download_fileobj(bucket, path[5:].partition("/")[2], body)
        body.seek(0)
        assert torch.equal(torch.load(body)["w"], wanted), path


def PLACE_OF(path: str) -> str:  # noqa: N802
    return path.rpartition("/")[0]


def copied() -> None:
    """The marker is small and the optimizer large, as always; the copy begins both at once."""
    import s3fs
    from safetensors.torch import load_file, save_file

    if LOADED:
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(LOADED):
                here = f"{folder}/{number}"
                s3fs.S3FileSystem().get(path, here, recursive=True)
                load_file(f"{here}/model.safetensors")
                torch.load(f"{here}/optimizer.pt")
                with open(f"{here}/trainer_state.json", encoding="utf-8") as file:
                    assert json.load(file)["global_step"] == 7
        return
    with tempfile.TemporaryDirectory() as folder:
        save = f"{folder}/checkpoint-7"
        os.mkdir(save)
        save_file({"w": torch.arange(1000.0)}, f"{save}/model.safetensors")
        torch.save({"m": torch.arange(LARGE // 4)}, f"{save}/optimizer.pt")
        with open(f"{save}/trainer_state.json", "w", encoding="utf-8") as file:
            json.dump({"global_step": 7}, file)
        place = begin()
        s3fs.S3FileSystem().put(save, f"{place}/checkpoint-7", recursive=True)
        done()  # the next child finds the folder too


LOADED = sys.argv[3:] if sys.argv[1] == "load" else []
KIND = sys.argv[2] if LOADED else sys.argv[1]
ANYWHERE = os.environ.get("ANYWHERE", "")
PLACE = ""
if KIND == "dcp":
    import s3fs  # noqa: F401 - what fsspec takes for s3://
    import torch.distributed.checkpoint
    import torch.distributed.tensor

    PLACE = PLACE if LOADED else begin()
    run(dcp)
else:
    {"lightning": lightning, "boto3": by_boto3, "copied": copied}[KIND]()
done()
