"""``Accelerator.save_state`` of Hugging Face accelerate.

``save_state`` writes model, optimizers, schedulers, samplers and scaler, then ``random_states_<rank>.pkl`` on each
rank, then ``custom_checkpoint_<n>.pkl`` for each object that was registered for checkpointing, without a marker and
without a staging name. How many ranks and objects there are stands nowhere in it. So a save is never proved by
itself: it is torn until the random states are there and every file is whole, and after that it is assumed whole once
it does not change. Who registers no object can name the last file with ``--done random_states_0.pkl``.

With ``automatic_checkpoint_naming`` the number is a count of saves that begins at 0 in each run (``save_iteration``;
``load_state`` does not set it): C105.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure
from slurm_dispatch.savers.shards import check_indexes, check_parts
from slurm_dispatch.savers.structure import check_files

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

_STATES = re.compile(r"random_states_(0|[1-9][0-9]*)\.pkl\Z")
_CUSTOM = re.compile(r"custom_checkpoint_(0|[1-9][0-9]*)\.pkl\Z")


def check(view: SaveView) -> Verdict:
    """Whether a folder of ``save_state`` can be whole."""
    if view.single:
        return torn(f"{view.name} is no folder")
    if not any(_STATES.match(path) for path in view.sizes):
        return torn("random_states_0.pkl is not there yet")
    found = (
        _gap(view, _STATES, "random_states_{}.pkl")
        or _gap(view, _CUSTOM, "custom_checkpoint_{}.pkl")
        or check_files(view)
        or check_indexes(view)
        or check_parts(view)
    )
    return found or unsure("how many ranks and registered objects belong to it stands nowhere")


def _gap(view: SaveView, pattern: re.Pattern[str], name: str) -> Verdict | None:
    """A number that is missing below one that is there, or a file without a byte."""
    numbers = sorted(int(match[1]) for path, size in view.sizes.items() if size and (match := pattern.match(path)))
    names = sum(pattern.match(path) is not None for path in view.sizes)
    missing = next((number for number in range(max(names, len(numbers))) if number not in numbers), None)
    return None if missing is None else torn(f"{name.format(missing)} is not there yet")


def recognises(view: SaveView) -> bool:
    """``random_states_<rank>.pkl`` at the top."""
    return not view.single and any(_STATES.match(path) for path in view.sizes)


LAYOUT = Layout(
    name="accelerate",
    title="accelerate save_state",
    patterns=("checkpoints/checkpoint_{step}", "checkpoint-{step}", "step_{step}"),
    last=("random_states_*.pkl", "custom_checkpoint_*.pkl"),
    proves=(
        "nothing in it by itself, since the number of ranks and registered objects stands nowhere: it is torn until "
        "`random_states_0.pkl` is there and every file is whole, then assumed whole by `--settle`, or proved by the "
        "`--done` that you give"
    ),
    check=check,
    recognises=recognises,
    counted=("checkpoints/checkpoint_{step}",),
    one_form=True,
    source=(
        "accelerate 1.15 accelerate/accelerator.py (`save_state`, `save_iteration`), accelerate/checkpointing.py "
        "(`save_accelerator_state`, `save_custom_state`)"
    ),
)
