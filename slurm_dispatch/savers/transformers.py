"""The Trainer of Hugging Face transformers.

``Trainer._save_checkpoint`` writes into ``checkpoint-<global step>`` without a staging folder and without fsync: the
model (with an index after its shards), ``training_args.bin``, optimizer, scheduler, scaler and the random states,
then ``trainer_state.json`` on rank 0. 4.36 wrote ``tmp-checkpoint-<step>`` and renamed it (no longer in 4.39). Up to
4.35 the random states came after ``trainer_state.json``; a save without them is loaded, with a warning.

What other ranks write of their own (``rng_state_<rank>.pth``, the parts of FSDP) is collective or may be missing, but
for DeepSpeed: whether each rank's part is there is not known, so such a save is assumed whole at best.

``JITCheckpointCallback`` (``enable_jit_checkpoint``) answers SIGTERM with a save of the present step, into the folder
of that step if there is one already: it makes ``checkpoint-is-incomplete.txt`` there and truncates each file in
place. So where ``training_args.bin`` says that it is on, no file of a kept save is a link.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.deepspeed import check_ranks
from slurm_dispatch.savers.layout import Layout, State, Verdict, torn, whole
from slurm_dispatch.savers.shards import check_indexes, check_parts
from slurm_dispatch.savers.structure import check_files
from slurm_dispatch.savers.view import read_json

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

STATE = "trainer_state.json"
INCOMPLETE = "checkpoint-is-incomplete.txt"
ARGUMENTS = "training_args.bin"
ARGUMENTS_MAX = 1 << 20
"""Bytes of the pickled arguments that are looked at; they have some five thousand."""
_ONLY_TRAINER = re.compile(
    r"(trainer_state\.json|training_args\.bin|checkpoint-is-incomplete\.txt|rng_state(_[0-9]+)?\.pth"
    r"|scheduler\.pt|optimizer\.pt)\Z"
)
_JIT = re.compile(rb"enable_jit_checkpoint(?:q.|r....|\x94)?\x88", re.DOTALL)
"""The attribute's name in a pickle, remembered or not, and the opcode for true."""
_DEEPSPEED = re.compile(r"global_step[0-9]+/")


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
    found = check_files(view) or check_indexes(view) or check_parts(view) or _check_deepspeed(view)
    return found or whole(STATE)


def _check_deepspeed(view: SaveView) -> Verdict | None:
    if not any(_DEEPSPEED.match(path) for path in view.sizes):
        return None
    if not view.sizes.get("latest"):
        return torn("latest is not there yet")
    name = view.read("latest", 0, 1024).decode("utf-8", "replace").strip()
    if not any(path.startswith(f"{name}/") for path in view.sizes):
        return torn(f"latest names {name}, which is not there")
    ranks = check_ranks(view, name)
    return None if ranks.state is State.WHOLE else ranks


def step_of(view: SaveView) -> int | None:
    """``global_step`` of the trainer's state."""
    state = read_json(view, STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if isinstance(step, int) and step >= 0 else None


def recognises(view: SaveView) -> bool:
    """A file at the top that only the Trainer writes."""
    return not view.single and any(_ONLY_TRAINER.match(path) for path in view.sizes)


def rewrites_in(view: SaveView) -> tuple[str, ...]:
    """Everything, where the arguments say that a save may be written again at SIGTERM."""
    if ARGUMENTS in view.sizes and _JIT.search(view.read(ARGUMENTS, 0, ARGUMENTS_MAX)) is not None:
        return ("*",)
    return ()


LAYOUT = Layout(
    name="transformers",
    title="transformers Trainer",
    patterns=("checkpoint-{step}",),
    last=(STATE,),
    proves=(
        "`trainer_state.json`, whole and with the step of the name, no `checkpoint-is-incomplete.txt`, every zip and "
        "safetensors file whole, and the shards that an index names; with DeepSpeed the files of all ranks, as "
        "`deepspeed` proves them"
    ),
    check=check,
    recognises=recognises,
    source=(
        "transformers 5.24 trainer.py (`_save_checkpoint`), trainer_jit_checkpoint.py; 4.35, 4.36 and 4.39 "
        "trainer.py for older names and orders; huggingface_hub 2.4 serialization/_torch.py for the index"
    ),
    temporary=("tmp-checkpoint-*",),
    rewrites_in=rewrites_in,
    step_of=step_of,
)
