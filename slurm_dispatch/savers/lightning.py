"""Lightning (PyTorch Lightning): the ``.ckpt`` of ``ModelCheckpoint``, a file or, with sharding strategies, a folder.

**A file.** ``torch.save`` into a temporary file (``fsspec``'s, in ``TMPDIR``) that is then moved to its name. Where
``TMPDIR`` is another filesystem, which on a cluster it mostly is, the move is a copy to the final name: a killed one
leaves a cut ``.ckpt``. So the zip decides, not the name.

**A folder.** Its last file is ``meta.pt`` (FSDP with ``state_dict_type="sharded"``, ``ModelParallelStrategy``),
beside the shards of ``torch.distributed.checkpoint`` and their ``.metadata``; DeepSpeed's strategy writes the tag
``checkpoint`` and then ``latest`` in it, by DeepSpeed's own code.

**The step** is what stands behind ``step=`` (or ``step``, with ``auto_insert_metric_name=False``) in the name, as in
the default ``{epoch}-{step}``; it must be ``global_step`` in the save. A name without it (``last.ckpt``,
``last-v1.ckpt``, ``epoch=3.ckpt``) has no step and is not published (C093). Nor is ``…-v1.ckpt``: such a name is
given to a second save of the same step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers import deepspeed
from slurm_dispatch.savers.dcp import check_shards
from slurm_dispatch.savers.inert import attribute
from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure, whole
from slurm_dispatch.savers.structure import check_files, structure_of
from slurm_dispatch.savers.torchfile import check_saved, read_saved, whole_number

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

META = "meta.pt"
TAG = "checkpoint"
VERSION = "pytorch-lightning_version"
_STEP = re.compile(r"step=?[0-9]")
_SECOND = re.compile(r"-v[0-9]+\.ckpt\Z")
_FORMS = ("*step={step}.ckpt", "*step={step}-[!v]*.ckpt", "*step={step}-v[!0-9]*.ckpt", "*step{step}.ckpt",
          "*step{step}-[!v]*.ckpt")  # fmt: skip
_FOLDERS = ("", "checkpoints/", "lightning_logs/version_*/checkpoints/", "*/version_*/checkpoints/")


def check(view: SaveView) -> Verdict:
    """Whether a ``.ckpt`` is whole."""
    if _SECOND.search(view.name):
        return torn(f"{view.name} is a second save of a step: the one without -v is published")
    if view.single:
        return _check_file(view)
    if any(path.startswith(f"{TAG}/") for path in view.sizes):
        return deepspeed.check_ranks(view, TAG)
    if not view.sizes.get(META):
        return torn(f"{META} is not there yet")
    return check_files(view) or check_saved(view, [META]) or check_shards(view)


def _check_file(view: SaveView) -> Verdict:
    found = structure_of(view, "") if view.sizes[""] else False
    if found:
        return whole(f"{view.name} is a whole zip")
    head = view.read("", 0, 4)
    if found is False or b"PK\x03\x04".startswith(head):
        return torn(f"{view.name} is cut: a zip's directory stands at its end")
    return unsure(f"{view.name} is no zip: another CheckpointIO wrote it")


def step_of(view: SaveView) -> int | None:
    """``global_step`` in the save, if its name says a step at all (``--pattern`` may take the epoch for it)."""
    if not _STEP.search(view.name):
        return None
    if view.single:
        state = read_saved(view, "")
    elif META in view.sizes:
        state = read_saved(view, META)
    else:
        state = read_saved(view, deepspeed.first_state(view, TAG) or "")
    return whole_number(attribute(state, "global_step"))


def recognises(view: SaveView) -> bool:
    """A folder ``.ckpt``, or a file ``.ckpt`` with Lightning's version in it or, cut, with a step in its name."""
    if not view.name.endswith(".ckpt"):
        return False
    if not view.single:
        return any(path in {META, ".metadata"} or path.startswith((f"{TAG}/", "__")) for path in view.sizes)
    if structure_of(view, ""):
        return attribute(read_saved(view, ""), VERSION) is not None
    return "step=" in view.name


LAYOUT = Layout(
    name="lightning",
    title="Lightning",
    patterns=tuple(folder + form for folder in _FOLDERS for form in _FORMS),
    last=(META,),
    proves=(
        "a file by its zip, whose directory comes last; a folder by `meta.pt`, which comes last, and its shards as "
        "`dcp` proves them; with DeepSpeed as `deepspeed` does"
    ),
    check=check,
    any_order=True,
    recognises=recognises,
    source=(
        "lightning 2.6 pytorch/callbacks/model_checkpoint.py (`format_checkpoint_name`, `CHECKPOINT_NAME_LAST`, "
        "`STARTING_VERSION`), fabric/utilities/cloud_io.py (`_atomic_save`), pytorch/strategies/fsdp.py, "
        "model_parallel.py and deepspeed.py (`save_checkpoint`); fsspec 2026.9 implementations/local.py "
        "(`LocalFileOpener.commit`)"
    ),
    step_of=step_of,
)
