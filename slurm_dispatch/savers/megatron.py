"""Megatron-LM and what saves by Megatron Core (Bridge, NeMo): ``iter_<7 digits>``.

The tracker ``latest_checkpointed_iteration.txt`` stands beside the saves, is written after them, and may name a later
step than there is (C098) or be missing (C097): the step is that of the folder, and where the save has one itself
(``iteration``), it must be the same. Megatron loads a save that is not the tracker's with ``--ckpt-step``.

**Distributed formats.** ``torch_dist``: ``common.pt`` first (up to Core 0.19; later it is a key of the shards), the
shards of ``torch.distributed.checkpoint`` and their ``.metadata``, then ``metadata.json``, which Megatron needs to
know the format (``dist_checkpointing.save``; an asynchronous save ends the same way). ``torch_dcp`` and
``fsdp_dtensor``: the shards and their ``.metadata`` only. ``integrity.json`` (``--verify-integrity``) comes after all
that, and tokenizer files after the tracker: a save is loaded without them.

**The old format, ``torch``.** A folder for each model parallel rank,
``mp_rank_<tensor>[_<pipeline>][_<expert>]``, with ``model_optim_rng.pt`` and, with the distributed optimizer,
``distrib_optim.pt``, in no order among the ranks. The arguments that each ``model_optim_rng.pt`` has in it say how
many there must be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from slurm_dispatch.savers.dcp import METADATA, check_ends, check_shards, read_shards
from slurm_dispatch.savers.inert import attribute
from slurm_dispatch.savers.layout import Layout, State, Verdict, torn, unsure, whole
from slurm_dispatch.savers.structure import check_files
from slurm_dispatch.savers.torchfile import check_saved, read_saved, whole_number
from slurm_dispatch.savers.view import read_json

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

COMMON = "common.pt"
CONFIG = "metadata.json"
MODEL = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
RANKS_MAX = 1_000_000
_RANK = re.compile(r"mp_rank_(?P<tensor>[0-9]{2,})(_[0-9]{3,}){0,2}\Z")
_NAME = re.compile(r"iter_[0-9]{7,}\Z")


def check(view: SaveView) -> Verdict:
    """Whether an ``iter_<step>`` is whole."""
    if view.single:
        return torn(f"{view.name} is no folder")
    found = check_files(view)
    if found is not None:
        return found
    if COMMON in view.sizes:
        found = check_saved(view, [COMMON])
        if found is not None:
            return found
    if any(_RANK.match(path.partition("/")[0]) for path in view.sizes):
        return _check_ranks(view)
    return _check_distributed(view)


def _check_distributed(view: SaveView) -> Verdict:
    if CONFIG in view.sizes:
        config = read_json(view, CONFIG)
        if not isinstance(config, dict) or not isinstance(config.get("sharded_backend"), str):
            return torn(f"{CONFIG} is not whole JSON")
        if config["sharded_backend"] != "torch_dist":
            return unsure(f"{CONFIG} says a format that is not known here: {config['sharded_backend']!r}")
    if METADATA not in view.sizes:
        return check_shards(view)
    shards = read_shards(view, METADATA)
    if isinstance(shards, Verdict):
        return shards
    found = check_ends(view, "", shards)
    if found.state is not State.WHOLE:
        return found
    # Since Core 0.20 torch_dist saves the common state among the shards.
    has_common = COMMON in view.sizes or any(key.partition("/")[0] == "common_state" for key in shards.keys)
    if has_common and CONFIG not in view.sizes:
        return torn(f"{CONFIG} is not there yet")
    if CONFIG in view.sizes and not has_common:
        return torn(f"{COMMON} is missing, and the shards have no common state")
    return found


def _check_ranks(view: SaveView) -> Verdict:
    names = sorted({path.partition("/")[0] for path in view.sizes if _RANK.match(path.partition("/")[0])})
    first = f"{names[0]}/{MODEL}"
    if first not in view.sizes:
        return torn(f"{first} is not there yet")
    found = check_saved(view, [path for path in sorted(view.sizes) if path.endswith(".pt")])
    if found is not None:
        return found
    arguments = attribute(read_saved(view, first), "args")
    tensor = whole_number(attribute(arguments, "tensor_model_parallel_size"))
    pipeline = whole_number(attribute(arguments, "pipeline_model_parallel_size"))
    # Arguments from before there were experts have no number of them.
    expert = whole_number(attribute(arguments, "expert_model_parallel_size")) or 1
    if tensor is None or pipeline is None or not 0 < tensor * pipeline * expert <= RANKS_MAX:
        return unsure(f"{first} does not say how many ranks there were")
    distributed, unsaved = (attribute(arguments, name) for name in ("use_distributed_optimizer", "no_save_optim"))
    has_optimizer = bool(distributed) and not unsaved
    for folder in _folders(tensor, pipeline, expert):
        for name in (MODEL, OPTIMIZER) if has_optimizer and expert == 1 else (MODEL,):
            if f"{folder}/{name}" not in view.sizes:
                return torn(
                    f"{folder}/{name} is not there yet: {first} says {tensor} tensor, {pipeline} pipeline and "
                    f"{expert} expert parallel ranks"
                )
    if has_optimizer and expert > 1:
        return unsure(f"with experts nothing says which ranks write {OPTIMIZER}")
    if any(path.rpartition("/")[2].startswith("layer_wise_optimizer_") for path in view.sizes):
        return unsure("nothing says in how many files the layer-wise optimizer is")
    return whole(f"the folders of all ranks that {first} says: {tensor * pipeline * expert}")


def _folders(tensor: int, pipeline: int, expert: int) -> list[str]:
    """As ``get_checkpoint_name`` calls them."""
    return [
        f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "") + (f"_{e:03d}" if expert > 1 else "")
        for t in range(tensor)
        for p in range(pipeline)
        for e in range(expert)
    ]


def step_of(view: SaveView) -> int | None:
    """``iteration`` of the common state or of the first rank; none where it is among the shards."""
    candidates = [COMMON, *sorted(path for path in view.sizes if path.endswith(f"/{MODEL}"))]
    found: Any = next((path for path in candidates if path in view.sizes), None)
    return None if found is None else whole_number(attribute(read_saved(view, found), "iteration"))


def recognises(view: SaveView) -> bool:
    """The folder of a rank, ``common.pt``, or shards in a folder with Megatron's name."""
    if view.single:
        return False
    if any(_RANK.match(path.partition("/")[0]) and path.count("/") == 1 for path in view.sizes):
        return True
    if COMMON in view.sizes:
        return True
    return bool(_NAME.match(view.name)) and any(path.endswith((METADATA, ".distcp")) for path in view.sizes)


LAYOUT = Layout(
    name="megatron",
    title="Megatron-LM, Megatron Core",
    patterns=("iter_{step}", "checkpoints/iter_{step}"),
    last=(CONFIG,),
    proves=(
        "distributed formats: `.metadata` and its shards as `dcp` proves them, and `metadata.json` where it belongs; "
        "the old format: the files of all ranks that the arguments in them say"
    ),
    check=check,
    any_order=True,
    recognises=recognises,
    source=(
        "Megatron-LM core_v0.16 and 0.20 megatron/training/checkpointing.py (`save_checkpoint`, "
        "`get_checkpoint_name`), megatron/core/dist_checkpointing/serialization.py (`save`), core.py "
        "(`save_config`), strategies/filesystem_async.py"
    ),
    temporary=("*.metadata.tmp",),
    step_of=step_of,
)
