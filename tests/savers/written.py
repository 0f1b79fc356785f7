"""Saves as the savers' own code writes them, without the savers: for what a test must be able to bend.

A file of ``torch.save`` is made of the parts that it has (``data.pkl`` and a record for a tensor, in a stored zip).
That the layouts understand what the real libraries write is shown by ``test_sharded.py``.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


class Files:
    """A save in memory. :class:`slurm_dispatch.savers.view.SaveView` of bytes by path."""

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        self.name = name
        self.files = dict(files)

    @property
    def single(self) -> bool:
        """One file, whose path is empty."""
        return set(self.files) == {""}

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes by path."""
        return {path: len(data) for path, data in self.files.items()}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file."""
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return self.files[path][offset:][:length]

    def but(self, *without: str) -> Files:
        """The same without some files."""
        return Files(self.name, {path: data for path, data in self.files.items() if path not in without})

    def cut(self, path: str, length: int) -> Files:
        """The same with one file cut."""
        return Files(self.name, {**self.files, path: self.files[path][:length]})


def made_of(module: str, name: str, **attributes: Any) -> Any:
    """An object that :func:`pickled` writes as one of the class ``module.name`` with these attributes."""
    thing = type(name, (), {"__module__": module, "__qualname__": name, "stand_in": True})()
    vars(thing).update(attributes)
    return thing


class _Pickler(pickle._Pickler):
    """Writes the names of stand-ins without looking for their modules."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if not getattr(obj, "stand_in", False):
            super().save_global(obj, name)
        elif self.proto >= 4:
            self.save(obj.__module__)
            self.save(obj.__qualname__)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{obj.__module__}\n{obj.__qualname__}\n".encode())


def pickled(thing: object, protocol: int = 4) -> bytes:
    """A pickle, also of what :func:`made_of` has made."""
    out = io.BytesIO()
    _Pickler(out, protocol).dump(thing)
    return out.getvalue()


def saved(state: object, stem: str = "archive") -> bytes:
    """``torch.save(state, f"{stem}.pt")``, with one record beside the pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        file.writestr(f"{stem}/data.pkl", pickle.dumps(state, protocol=2))
        file.writestr(f"{stem}/data/0", b"\0" * 4096)
        file.writestr(f"{stem}/version", b"3\n")
    return out.getvalue()


def metadata(places: Mapping[str, tuple[str, int, int]], *, keys: tuple[str, ...] = (), protocol: int = 4) -> bytes:
    """``.metadata`` with the places (file, offset, length) of what is saved."""
    storage = {
        made_of(METADATA, "MetadataIndex", fqn=fqn, offset=None, index=None): made_of(
            FILESYSTEM, "_StorageInfo", relative_path=path, offset=offset, length=length
        )
        for fqn, (path, offset, length) in places.items()
    }
    names = {key: made_of(METADATA, "BytesStorageMetadata") for key in (*places, *keys)}
    whole = made_of(
        METADATA, "Metadata", state_dict_metadata=names, planner_data=None, storage_data=storage, storage_meta=None
    )
    return pickled(whole, protocol)


def dcp(name: str = "step-7") -> Files:
    """Two ranks."""
    return Files(name, dcp_files())


def dcp_files(*, keys: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Its files."""
    places = {"w": ("__0_0.distcp", 0, 100), "b": ("__0_0.distcp", 100, 28), "v": ("__1_0.distcp", 0, 64)}
    return {
        ".metadata": metadata(places, keys=keys), "__0_0.distcp": b"0" * 128, "__1_0.distcp": b"1" * 64,
    }  # fmt: skip


def deepspeed_files(*, dp: int = 2, mp: int = 1, stage: int = 1, step: int = 20, **more: Any) -> dict[str, bytes]:
    """As ``save_checkpoint`` of DeepSpeed 0.19 writes them."""
    state = {
        "module": {}, "optimizer": None if stage else {"state": {}}, "param_shapes": [{}] if stage else None,
        "global_steps": step, "dp_world_size": dp, "mp_world_size": mp, "ds_version": "0.19.8", **more,
    }  # fmt: skip
    files = {}
    for model in range(mp):
        if stage < 3:
            files[f"mp_rank_{model:02d}_model_states.pt"] = saved(state)
        for rank in range(dp):
            if stage == 3:
                files[f"zero_pp_rank_{rank}_mp_rank_{model:02d}_model_states.pt"] = saved(state)
            if stage:
                zero = {"optimizer_state_dict": {"partition_count": dp if stage == 3 else [dp]}}
                files[f"zero_pp_rank_{rank}_mp_rank_{model:02d}_optim_states.pt"] = saved(zero)
    return files


def megatron_files(
    *, tensor: int = 2, pipeline: int = 1, expert: int = 1, step: int = 20, **arguments: Any
) -> dict[str, bytes]:
    """As ``save_checkpoint`` of Megatron-LM writes the format ``torch``."""
    import argparse

    args = argparse.Namespace(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert, use_distributed_optimizer=True, no_save_optim=None, **arguments,
    )  # fmt: skip
    files = {}
    for t in range(tensor):
        for p in range(pipeline):
            for e in range(expert):
                folder = f"mp_rank_{t:02d}"
                folder += f"_{p:03d}" if pipeline > 1 else ""
                folder += f"_{e:03d}" if expert > 1 else ""
                files[f"{folder}/model_optim_rng.pt"] = saved({"args": args, "iteration": step, "model": {}})
                files[f"{folder}/distrib_optim.pt"] = saved({})
    return files


def megatron_dist_files(*, common: bool = True, step: int = 20) -> dict[str, bytes]:
    """As ``dist_checkpointing.save`` of Megatron Core writes them: with ``common.pt`` up to 0.19, then without."""
    keys = () if common else ("common_state/shard_0_1",)
    config = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    files = {**dcp_files(keys=keys), "metadata.json": json.dumps(config).encode()}
    if common:
        files["common.pt"] = saved({"iteration": step, "args": {}})
    return files


def manifest(length: int = 113) -> bytes:
    """A ``manifest.ocdbt`` of tensorstore: magic, its own length, the rest."""
    return b"\x0c\xdb\x3a\x2a" + length.to_bytes(8, "little") + b"\1" * (length - 12)


def orbax_files(*, committed: bool = True, ocdbt: bool = True) -> dict[str, bytes]:
    """As a ``CheckpointManager`` of Orbax 0.12 leaves a step."""
    step = {"item_handlers": {"state": "x"}, "commit_timestamp_nsecs": 2 if committed else None}
    leaf = {
        "key_metadata": [{"key": "w", "key_type": 2}],
        "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False},
    }
    item = {"tree_metadata": {"('w',)": leaf}, "use_ocdbt": ocdbt}
    files = {"_CHECKPOINT_METADATA": json.dumps(step).encode(), "state/_METADATA": json.dumps(item).encode()}
    if committed:
        files["commit_success.txt"] = files["state/commit_success.txt"] = b"Checkpoint commit was successful"
    if ocdbt:
        files["state/manifest.ocdbt"] = manifest()
        files["state/d/0123456789abcdef0123456789abcdef"] = b"data"
    else:
        files["state/w/.zarray"] = b"{}"
        files["state/w/0"] = b"data"
    return files
