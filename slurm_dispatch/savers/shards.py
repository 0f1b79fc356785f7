"""Indexes of shards: ``model.safetensors.index.json``, ``pytorch_model.bin.index.json`` and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Verdict, torn
from slurm_dispatch.savers.view import read_json

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

INDEX_END = ".index.json"


def check_indexes(view: SaveView, folder: str = "") -> Verdict | None:
    """What is missing of the shards that the indexes in ``folder`` name; ``None`` if nothing is.

    Format: ``{"metadata": {"total_size": bytes of all tensors}, "weight_map": {tensor: file}}``, the file beside the
    index (huggingface_hub, ``serialization/_torch.py``). The files are at least as long as their tensors.
    """
    for path in sorted(view.sizes):
        above, _, name = path.rpartition("/")
        if above == folder and name.endswith(INDEX_END):
            found = _check(view, path, above)
            if found is not None:
                return found
    return None


def _check(view: SaveView, path: str, folder: str) -> Verdict | None:
    index = read_json(view, path)
    if not isinstance(index, dict) or not isinstance(index.get("weight_map"), dict):
        return torn(f"{path} is not the whole index")
    names = {str(name) for name in index["weight_map"].values()}
    shards = [f"{folder}/{name}" if folder else name for name in sorted(names)]
    for shard in shards:
        if not view.sizes.get(shard):
            return torn(f"{shard} is missing: {path} names it")
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    have = sum(view.sizes[shard] for shard in shards)
    if isinstance(total, (int, float)) and have < total:
        return torn(f"the files that {path} names have {have} bytes, less than its {int(total)}")
    return None


def check_parts(view: SaveView) -> Verdict | None:
    """A part of torch.distributed.checkpoint's (FSDP's ``pytorch_model_fsdp_0/``, ``optimizer_0/``) that has no
    ``.metadata`` yet: it comes last, by a rename, when all ranks are done."""
    folders = {path.rpartition("/")[0] for path in view.sizes if path.endswith(".distcp")}
    for folder in sorted(folders):
        name = f"{folder}/.metadata" if folder else ".metadata"
        if not view.sizes.get(name):
            return torn(f"{name} is not there yet")
    return None
