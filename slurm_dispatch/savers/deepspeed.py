"""DeepSpeed's ``engine.save_checkpoint``, and Megatron-DeepSpeed, which saves by it.

A save is the folder of a tag, ``global_step<N>`` unless the caller says another. Each rank writes its files under
their final names, in no order; after a barrier rank 0 writes ``latest`` beside the folder, with the tag. That tracker
is neither needed nor trusted here: it may name another save (C095), be missing (C097), or be of a later step (C098).
The files say themselves how many there must be: the state of the model has ``dp_world_size`` and ``mp_world_size``,
the state of the optimizer ``partition_count``. The step is ``global_steps`` in the state of the model.

===============================================  ==============================================================
``mp_rank_<M>_model_states.pt``                  the model, of each model parallel rank
``zero_pp_rank_<D>_mp_rank_<M>_model_states.pt``  the same with ZeRO stage 3, of each data parallel rank too
``[bf16_]zero_pp_rank_<D>_mp_rank_<M>_optim_states.pt``  the optimizer with ZeRO, of each rank
``layer_<L>_expert_<E>_mp_rank_<M>_model_states.pt``     each expert of each layer of a mixture of experts
===============================================  ==============================================================

Not proved are the saves of pipeline modules (``layer_<L>-model_<M>-model_states.pt``: nothing says how many layers
there are), of a mixture of experts without ZeRO, and those in torch's old format (``checkpoint_serialization:
false``). A universal checkpoint (``ds_to_universal.py``) is made by hand from a save that is whole; it copies the
states of the model last. Saved twice under one tag, the files are truncated and written again in place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.inert import attribute
from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure, whole
from slurm_dispatch.savers.structure import check_files
from slurm_dispatch.savers.torchfile import check_saved, read_saved, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_dispatch.savers.view import SaveView

RANKS_MAX = 1_000_000
"""Files that a save may be said to have; a greater number is not believed."""
_MODEL = re.compile(r"(zero_pp_rank_(?P<dp>[0-9]+)_)?mp_rank_(?P<mp>[0-9]+)_model_states\.pt\Z")
_OPTIMIZER = re.compile(r"(?P<kind>[a-z0-9]*_?zero)_pp_rank_(?P<dp>[0-9]+)_mp_rank_(?P<mp>[0-9]+)_optim_states\.pt\Z")
_PIPELINE = re.compile(r"layer_[0-9]+-(model_[0-9]+-)?model_states\.pt\Z")
_EXPERT = re.compile(r"(layer_[0-9]+_)?expert_[0-9]+_mp_rank_[0-9]+_model_states\.pt\Z")
_EXPERT_OPTIMIZER = re.compile(r"expp_rank_[0-9]+_mp_rank_[0-9]+_optim_states\.pt\Z")


def check(view: SaveView) -> Verdict:
    """Whether the folder of a tag is whole."""
    return check_ranks(view)


def check_ranks(view: SaveView, folder: str = "") -> Verdict:
    """The same for a folder in a save of another kind; ``folder`` is its path, empty for the save itself."""
    if view.single:
        return torn(f"{view.name} is no folder")
    inside = f"{folder}/" if folder else ""
    names = _names(view, inside)
    if inside + "zero/optimizer_state.pt" in view.sizes:
        return _check_universal(view, inside, names)
    path = first_state(view, folder)
    if path is None:
        return torn(f"{inside}mp_rank_00_model_states.pt is not there yet")
    found = check_files(view) or check_saved(view, [inside + name for name in sorted(names) if name.endswith(".pt")])
    if found is not None:
        return found
    state, first = read_saved(view, path), path.removeprefix(inside)
    dp, mp = (whole_number(attribute(state, key)) for key in ("dp_world_size", "mp_world_size"))
    if dp is None or mp is None or not 0 < dp * mp <= RANKS_MAX:
        return unsure(f"{inside}{first} does not say how many ranks there were")
    if any(_PIPELINE.match(name) for name in names):
        missing = next((name for name in _models(mp, 0) if name not in names), None)
        if missing is not None:
            return torn(f"{inside}{missing} is not there yet")
        return unsure("nothing says how many layers of the pipeline there are")
    return _check_grid(view, inside, first, state, (dp, mp))


def _check_grid(view: SaveView, inside: str, first: str, state: object, ranks: tuple[int, int]) -> Verdict:
    """The files of all ranks: as many data and model parallel ones as ``first``, the state of the model, says."""
    names = _names(view, inside)
    dp, mp = ranks
    optimizer = next((match for name in sorted(names) if (match := _OPTIMIZER.match(name))), None)
    has_zero = attribute(state, "param_shapes") is not None or optimizer is not None or first.startswith("zero_")
    counts = attribute(state, "num_experts")
    experts = [whole_number(count) for count in counts] if isinstance(counts, list) else []
    wanted: list[str] = []
    if has_zero:
        kind = optimizer["kind"] if optimizer else "zero"
        counted = _partitions(view, f"{inside}{kind}_pp_rank_0_mp_rank_00_optim_states.pt") or dp
        if counted * mp > RANKS_MAX:
            return unsure(f"{inside}{first} does not say how many ranks there were")
        wanted += (
            f"{kind}_pp_rank_{rank}_mp_rank_{model:02d}_optim_states.pt"
            for rank in range(counted)
            for model in range(mp)
        )
        wanted += _models(mp, counted if first.startswith("zero_") else 0)
    else:
        wanted += _models(mp, 0)
    for layer, count in enumerate(experts):
        if count is None or count * len(experts) * mp > RANKS_MAX:
            return unsure(f"{inside}{first} does not say how many experts there are")
        wanted += (
            f"layer_{layer}_expert_{expert}_mp_rank_{model:02d}_model_states.pt"
            for expert in range(count)
            for model in range(mp)
        )
    for name in wanted:
        if name not in names:
            return torn(f"{inside}{name} is not there yet: {first} says {dp} data and {mp} model parallel ranks")
    if not has_zero and (experts or any(map(_EXPERT_OPTIMIZER.match, names)) or any(map(_EXPERT.match, names))):
        return unsure("nothing says in how many files the optimizer of the experts is")
    if not has_zero and attribute(state, "optimizer") is None:
        return unsure(f"{inside}{first} has no state of an optimizer, and nothing says that one is to come")
    return whole(f"the files of all ranks that {inside}{first} says: {len(wanted)}")


def _check_universal(view: SaveView, inside: str, names: set[str]) -> Verdict:
    states = [path for path in sorted(view.sizes) if path.startswith(inside) and path.endswith(".pt")]
    found = check_files(view) or check_saved(view, states)
    if found is not None:
        return found
    if any(path.startswith(f"{inside}tmp/") for path in view.sizes):
        return torn(f"{inside}tmp is still there")
    if not any(map(_MODEL.match, names)):
        return torn(f"{inside}mp_rank_00_model_states.pt is not there yet: it is copied last")
    return unsure("a universal checkpoint does not say how many parameters it has")


def _names(view: SaveView, inside: str) -> set[str]:
    under = (path.removeprefix(inside) for path in view.sizes if path.startswith(inside))
    return {path for path in under if "/" not in path}


def first_state(view: SaveView, folder: str = "") -> str | None:
    """The path in the save of the first rank's state of the model, in ``folder`` as for :func:`check_ranks`."""
    inside = f"{folder}/" if folder else ""
    names = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
    return next((inside + name for name in names if inside + name in view.sizes), None)


def _models(mp: int, partitions: int) -> Iterator[str]:
    for model in range(mp):
        if not partitions:
            yield f"mp_rank_{model:02d}_model_states.pt"
        for rank in range(partitions):
            yield f"zero_pp_rank_{rank}_mp_rank_{model:02d}_model_states.pt"


def _partitions(view: SaveView, path: str) -> int | None:
    """In how many files ZeRO's state is: fewer than the data parallel ranks where groups of them have copies."""
    found = attribute(attribute(read_saved(view, path), "optimizer_state_dict"), "partition_count")
    counts = [whole_number(count) for count in (found if isinstance(found, list) else [found])]
    return max((count for count in counts if count is not None), default=None)


def step_of(view: SaveView) -> int | None:
    """``global_steps`` of the state of the model."""
    first = first_state(view)
    return None if first is None else whole_number(attribute(read_saved(view, first), "global_steps"))


def recognises(view: SaveView) -> bool:
    """A file of one rank at the top of the save, with a name that only DeepSpeed gives."""
    return not view.single and any(
        pattern.match(path) for path in view.sizes for pattern in (_MODEL, _OPTIMIZER, _EXPERT, _PIPELINE)
    )


LAYOUT = Layout(
    name="deepspeed",
    title="DeepSpeed",
    patterns=("global_step{step}", "checkpoints/global_step{step}"),
    last=(),
    proves=(
        "the files of all ranks: as many as the states of model and optimizer say, each a whole zip; the tracker "
        "`latest` beside them is not needed"
    ),
    check=check,
    any_order=True,
    recognises=recognises,
    source=(
        "deepspeed 0.19 deepspeed/runtime/engine.py (`save_checkpoint`, `_get_ckpt_name`, "
        "`_get_rank_zero_ckpt_name`, `_get_expert_ckpt_name`, `_common_checkpoint_state`), "
        "runtime/pipe/module.py (`ckpt_layer_path`), checkpoint/ds_to_universal.py"
    ),
    step_of=step_of,
)
