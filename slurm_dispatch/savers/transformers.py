"""The Trainer of Hugging Face transformers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Layout, Verdict, torn, whole
from slurm_dispatch.savers.shards import check_indexes
from slurm_dispatch.savers.structure import check_files
from slurm_dispatch.savers.view import read_json

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

STATE = "trainer_state.json"
INCOMPLETE = "checkpoint-is-incomplete.txt"
_ONLY_TRAINER = re.compile(
    r"(trainer_state\.json|training_args\.bin|checkpoint-is-incomplete\.txt|rng_state(_[0-9]+)?\.pth"
    r"|scheduler\.pt|optimizer\.pt)\Z"
)


def check(view: SaveView) -> Verdict:
    """Whether a ``checkpoint-N`` is whole."""
    if view.single:
        return torn(f"{view.name} is no folder")
    if INCOMPLETE in view.sizes:
        return torn(f"{INCOMPLETE} is there")
    if STATE not in view.sizes:
        return torn(f"{STATE} is not there yet")
    if step_of(view) is None:
        return torn(f"{STATE} is not whole")
    return check_files(view) or check_indexes(view) or whole(STATE)


def step_of(view: SaveView) -> int | None:
    """``global_step`` of the trainer's state."""
    state = read_json(view, STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if isinstance(step, int) and step >= 0 else None


def recognises(view: SaveView) -> bool:
    """A file at the top that only the Trainer writes."""
    return not view.single and any(_ONLY_TRAINER.match(path) for path in view.sizes)


LAYOUT = Layout(
    name="transformers",
    title="transformers Trainer",
    patterns=("checkpoint-{step}",),
    last=(STATE,),
    proves="`trainer_state.json`, whole JSON, and no `checkpoint-is-incomplete.txt`; shards by their index",
    check=check,
    recognises=recognises,
    source="transformers 5.24 src/transformers/trainer.py (`_save_checkpoint`), trainer_jit_checkpoint.py",
    temporary=("tmp-checkpoint-*",),
    step_of=step_of,
)
