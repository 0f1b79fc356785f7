"""Plain files: what ``torch.save``, ``safetensors`` and numpy write, without a library that gives saves a form.

A single file is proved by its own structure (:mod:`slurm_dispatch.savers.structure`). A folder of such files is never
proved, since nobody knows what else its writer puts in; but it is known to be torn while one of its files is, or
while a shard that an index names is not there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure
from slurm_dispatch.savers.shards import check_indexes
from slurm_dispatch.savers.structure import check_files, check_single, structure_of

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

SHARD = re.compile(r"-[0-9]+-of-[0-9]+\.[a-z]+\Z")
"""One of several files of one model (``model-00001-of-00003.safetensors``): no save by itself."""


def check(view: SaveView) -> Verdict:
    """Whether the save is whole, as far as its files say."""
    if view.single:
        if SHARD.search(view.name):
            return torn(f"{view.name} is one of several files of a model")
        return check_single(view)
    if not any(view.sizes.values()):
        return torn("no file in it has a byte")
    found = check_files(view) or check_indexes(view)
    return found or unsure("nothing in it says that no file is still to come")


def recognises(view: SaveView) -> bool:
    """A single file with a structure of its own."""
    return view.single and bool(view.sizes.get("")) and structure_of(view, "") is not None


LAYOUT = Layout(
    name="plain",
    title="plain files: torch.save, safetensors, numpy",
    patterns=tuple(f"*{word}*{{step}}.*" for word in ("checkpoint", "ckpt", "step", "iter", "epoch")),
    last=(),
    proves=(
        "a single file by its own structure: a zip's directory at its end (`torch.save`, `.npz`), the length that a "
        "safetensors or `.npy` header gives; a folder never, but it is torn while a file of it is or while a shard "
        "that a `*.index.json` names is missing"
    ),
    check=check,
    any_order=True,
    recognises=recognises,
    one_form=True,
    source=(
        "torch 2.13 torch/serialization.py (`_open_zipfile_writer_file`); safetensors 0.8 README, section Format; "
        "numpy 2.4 numpy/lib/_format_impl.py and numpy/lib/_npyio_impl.py (`savez`)"
    ),
)
