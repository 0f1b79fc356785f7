"""``Accelerator.save_state`` of Hugging Face accelerate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Layout, Verdict, torn, whole
from slurm_dispatch.savers.shards import check_indexes
from slurm_dispatch.savers.structure import check_files

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

_STATES = re.compile(r"random_states_(0|[1-9][0-9]*)\.pkl\Z")


def check(view: SaveView) -> Verdict:
    """Whether a folder of ``save_state`` is whole."""
    if view.single:
        return torn(f"{view.name} is no folder")
    ranks = sorted(int(match[1]) for path in view.sizes if (match := _STATES.match(path)) and view.sizes[path])
    if not ranks:
        return torn("random_states_0.pkl is not there yet")
    if ranks != list(range(len(ranks))):
        missing = next(rank for rank in range(len(ranks)) if rank not in ranks)
        return torn(f"random_states_{missing}.pkl is not there yet")
    return check_files(view) or check_indexes(view) or whole(f"random_states_{ranks[-1]}.pkl")


def recognises(view: SaveView) -> bool:
    """``random_states_<rank>.pkl`` at the top."""
    return not view.single and any(_STATES.match(path) for path in view.sizes)


LAYOUT = Layout(
    name="accelerate",
    title="accelerate save_state",
    patterns=("checkpoints/checkpoint_{step}",),
    last=("random_states_*.pkl",),
    proves="`random_states_<rank>.pkl` of each rank, which comes last",
    check=check,
    recognises=recognises,
    source="accelerate 1.15 accelerate/accelerator.py (`save_state`), checkpointing.py (`save_accelerator_state`)",
)
