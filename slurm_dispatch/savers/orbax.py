"""Orbax (``CheckpointManager`` and the checkpointers), which Flax, MaxText and others of JAX save by.

A save is written as ``<name>.orbax-checkpoint-tmp`` (up to 0.11.15 with ``-<time>`` behind it), its items as folders
of such names in it, and renamed when all hosts are done (C100). Before that ``_CHECKPOINT_METADATA`` gets its
``commit_timestamp_nsecs`` and ``commit_success.txt`` is written (since 0.12.3 also where the rename decides; before,
only on stores without a rename, where the name is final from the start); each item gets one of its own. So a save
under its final name that has neither, or whose items alone have it, is not finished, and a folder that is only called
like a step is no save at all (C109).

In an item ``_METADATA`` lists the arrays. With OCDBT, the default, they are in ``d/`` files that ``manifest.ocdbt``
lists in compressed form; the manifest of the item is merged from those of the processes when they are done, and says
how long it is itself. Without, each array is a folder with ``.zarray`` or ``zarr.json``. Nothing is rewritten in a
finished save.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure, whole
from slurm_dispatch.savers.view import read_json

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

STEP_METADATA = "_CHECKPOINT_METADATA"
ITEM_METADATA = "_METADATA"
COMMITTED = "commit_success.txt"
MANIFEST = "manifest.ocdbt"
MAGIC = b"\x0c\xdb\x3a\x2a"
"""The first bytes of a manifest; behind them its length in bytes, 8 bytes, little endian."""
_TEMPORARY = re.compile(r"(^|/)[^/]*\.orbax-checkpoint-tmp")


def check(view: SaveView) -> Verdict:
    """Whether the folder of a step is whole."""
    if view.single:
        return torn(f"{view.name} is no folder")
    unfinished = next((path for path in sorted(view.sizes) if _TEMPORARY.search(path)), None)
    if unfinished is not None:
        return torn(f"{unfinished} belongs to an item that is not finished")
    for path in sorted(view.sizes):
        found = _check_file(view, path)
        if found is not None:
            return found
    if not view.sizes.get(COMMITTED) and any(path.endswith(f"/{COMMITTED}") for path in view.sizes):
        return torn(f"{COMMITTED} is not there yet, which its items have")
    state = read_json(view, STEP_METADATA)
    if isinstance(state, dict) and _is_time(state.get("commit_timestamp_nsecs")):
        return whole(f"{STEP_METADATA} says when it was committed")
    if view.sizes.get(COMMITTED):
        return whole(COMMITTED)
    if STEP_METADATA in view.sizes:
        return torn(f"{STEP_METADATA} does not say that it was committed")
    if any(path.rpartition("/")[2] == ITEM_METADATA for path in view.sizes):
        return unsure(f"no {STEP_METADATA}: an Orbax before 0.7 wrote it, or only an item of it is there")
    return torn(f"{STEP_METADATA} is not there")


def _check_file(view: SaveView, path: str) -> Verdict | None:
    folder, _, name = path.rpartition("/")
    inside = f"{folder}/" if folder else ""
    if name == MANIFEST:
        head = view.read(path, 0, 12)
        if head[:4] != MAGIC or int.from_bytes(head[4:], "little") != view.sizes[path]:
            return torn(f"{path} is cut: it says another length")
        if STEP_METADATA in view.sizes and not _has_item(view, folder):
            return torn(f"{inside}{ITEM_METADATA} is missing")
    if name == ".zarray" and STEP_METADATA in view.sizes and not _has_item(view, folder.rpartition("/")[0]):
        return torn(f"{folder} is no array of an item: there is no {ITEM_METADATA}")
    if name in {STEP_METADATA, ".zarray", "zarr.json"} and not isinstance(read_json(view, path), dict):
        return torn(f"{path} is not whole JSON")
    if name == ITEM_METADATA:
        item = read_json(view, path)
        if not isinstance(item, dict):
            return torn(f"{path} is not whole JSON")
        if item.get("use_ocdbt") and inside + MANIFEST not in view.sizes:
            return torn(f"{inside}{MANIFEST} is missing: {path} says that the arrays are in it")
        if item.get("use_ocdbt") is False:
            return _check_zarr(view, inside, item)
    return None


def _has_item(view: SaveView, folder: str) -> bool:
    """Whether the folder, or one above it, is an item: the manifests of single processes stand in folders of it."""
    while folder and f"{folder}/{ITEM_METADATA}" not in view.sizes:
        folder = folder.rpartition("/")[0]
    return bool(folder) or ITEM_METADATA in view.sizes


def _check_zarr(view: SaveView, inside: str, item: dict[str, Any]) -> Verdict | None:
    """Without OCDBT each array is a folder of its own; one that was deleted or never came is found."""
    for entry in _arrays(item):
        name = ".".join(str(part.get("key")) for part in entry)
        if not any(f"{inside}{name}/{kind}" in view.sizes for kind in (".zarray", "zarr.json")):
            return torn(f"{inside}{name} is missing: {inside}{ITEM_METADATA} lists it")
    return None


def _arrays(item: dict[str, Any]) -> list[list[dict[str, Any]]]:
    tree = item.get("tree_metadata")
    found = []
    for leaf in tree.values() if isinstance(tree, dict) else ():
        value = leaf.get("value_metadata") if isinstance(leaf, dict) else None
        keys = leaf.get("key_metadata") if isinstance(leaf, dict) else None
        if not isinstance(value, dict) or value.get("skip_deserialize", True) or not isinstance(keys, list):
            continue
        if value.get("value_type") in {"jax.Array", "np.ndarray"} and all(isinstance(key, dict) for key in keys):
            found.append(keys)
    return found


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def recognises(view: SaveView) -> bool:
    """``_CHECKPOINT_METADATA`` at the top, or an item with ``_METADATA`` and a manifest."""
    if view.single:
        return False
    folders = {path.rpartition("/")[0] for path in view.sizes if path.rpartition("/")[2] == ITEM_METADATA}
    return STEP_METADATA in view.sizes or any(
        f"{folder}/{MANIFEST}".lstrip("/") in view.sizes and folder.count("/") == 0 for folder in folders
    )


LAYOUT = Layout(
    name="orbax",
    title="Orbax",
    patterns=tuple(
        f"{folder}{prefix}{{step}}"
        for folder in ("", "checkpoints/")
        for prefix in ("", "step_", "ckpt_", "checkpoint_")
    ),
    last=(STEP_METADATA, COMMITTED),
    proves=(
        "`commit_timestamp_nsecs` in `_CHECKPOINT_METADATA`, or `commit_success.txt`; no item under a temporary "
        "name, each `manifest.ocdbt` as long as it says, each array of an item without OCDBT"
    ),
    check=check,
    recognises=recognises,
    source=(
        "orbax-checkpoint 0.12 orbax/checkpoint/_src/path/atomicity.py (`finalize`), step.py (`build_name`), "
        "metadata/checkpoint.py (`StepMetadata`); tensorstore 0.1.86 kvstore/ocdbt, section Storage format"
    ),
    temporary=("*.orbax-checkpoint-tmp*",),
)
