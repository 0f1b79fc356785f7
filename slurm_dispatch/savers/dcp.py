"""``torch.distributed.checkpoint``, and torchtitan, which saves by it.

Each rank writes its shards ``__<rank>_<n>.distcp`` under their final names. When all have, rank 0 writes
``.metadata.tmp`` and renames it to ``.metadata`` (``FileSystemWriter.finish``), after an asynchronous save too. It is
the pickle of a ``Metadata``, whose ``storage_data`` says of each part of each tensor in which file, from which byte
on, and how long it stands; nothing of it is executed here (:mod:`slurm_dispatch.savers.inert`). So a shard that was
cut, or that a rank wrote to the disk of another node, is found (C101, C102).

In S3 (``FsspecWriter``) that rename is a copy and a removal; between the two both are there, and what is kept in mind
of the save would not be so any more.

Saved without collectives, each rank leaves ``__<rank>.metadata`` of its own and nothing says how many ranks there
are: such a save is never proved. Nothing is rewritten in a finished save.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.savers.inert import CutError, Made, NotInertError, attribute, pairs, read_pickle
from slurm_dispatch.savers.layout import Layout, Verdict, torn, unsure, whole

if TYPE_CHECKING:
    from slurm_dispatch.savers.view import SaveView

METADATA = ".metadata"
METADATA_MAX = 64 << 20
"""Bytes; a longer ``.metadata`` is not read, and its save is not proved. One shard of one tensor takes some 110."""
ALLOWED = frozenset({"torch.distributed.checkpoint.metadata.Metadata"})
"""What the pickle may be of."""
ALLOWED_STORAGE = frozenset({"torch.distributed.checkpoint.filesystem._StorageInfo"})
"""What the places of shards may be; another writer's are not understood."""
_SHARD = re.compile(r"__[0-9]+_[0-9]+\.distcp\Z")
_OF_RANK = re.compile(r"__[0-9]+\.metadata\Z")


@dataclass(frozen=True, slots=True)
class Shards:
    """What a ``.metadata`` says.

    :ivar ends: for each file, in its order, up to which byte something of the save stands in it.
    :ivar keys: the names of what was saved.
    """

    ends: dict[str, int]
    keys: tuple[str, ...]


def check(view: SaveView) -> Verdict:
    """Whether a folder of ``torch.distributed.checkpoint`` is whole."""
    return check_shards(view)


def check_shards(view: SaveView, folder: str = "") -> Verdict:
    """The same for a folder in a save of another kind; ``folder`` is its path, empty for the save itself."""
    if view.single:
        return torn(f"{view.name} is no folder")
    inside = f"{folder}/" if folder else ""
    if inside + METADATA not in view.sizes:
        if any(_OF_RANK.match(path.removeprefix(inside)) for path in view.sizes):
            return unsure("each rank wrote its own metadata, and nothing says how many ranks there are")
        return torn(f"{inside}{METADATA} is not there yet")
    if f"{inside}{METADATA}.tmp" in view.sizes:
        return torn(f"{inside}{METADATA}.tmp is still there")
    found = read_shards(view, inside + METADATA)
    return found if isinstance(found, Verdict) else check_ends(view, inside, found)


def check_ends(view: SaveView, inside: str, found: Shards) -> Verdict:
    """Whether every file that ``.metadata`` names is there, as long as it says; ``inside`` is the folder's path."""
    for name, end in found.ends.items():
        path = inside + name
        size = view.sizes.get(path)
        if size is None:
            return torn(f"{path} is missing: {METADATA} names it, or its rank wrote to the disk of another node")
        if size < end:
            return torn(f"{path} has {size} bytes: {METADATA} says at least {end}")
    return whole(f"{inside}{METADATA} and its {len(found.ends)} files")


def read_shards(view: SaveView, path: str) -> Shards | Verdict:
    """What a ``.metadata`` says, or why it is not known.

    :raises OSError: of the view's reader.
    """
    if view.sizes[path] > METADATA_MAX:
        return unsure(f"{path} has more than {METADATA_MAX} bytes and is not read")
    try:
        found = read_pickle(view.read(path, 0, METADATA_MAX))
    except CutError:
        return torn(f"{path} is cut")
    except NotInertError as error:
        return unsure(f"{path} is not understood: {error}")
    if not isinstance(found, Made) or found.name not in ALLOWED:
        return unsure(f"{path} is not understood: it is no Metadata")
    storage = pairs(attribute(found, "storage_data"))
    if storage is None:
        return unsure(f"{path} is not understood: it has no storage_data")
    ends: dict[str, int] = {}
    for _, place in storage:
        if not isinstance(place, Made) or place.name not in ALLOWED_STORAGE:
            return unsure(f"{path} is not understood: its shards were not written by FileSystemWriter")
        name, offset, length = (attribute(place, key) for key in ("relative_path", "offset", "length"))
        if not (isinstance(name, str) and isinstance(offset, int) and isinstance(length, int)):
            return unsure(f"{path} is not understood: a shard without a place")
        ends[name] = max(ends.get(name, 0), offset + length)
    saved = pairs(attribute(found, "state_dict_metadata")) or ()
    return Shards(ends, tuple(key for key, _ in saved if isinstance(key, str)))


def recognises(view: SaveView) -> bool:
    """A shard or ``.metadata`` at the top of the save."""
    return not view.single and any(path == METADATA or _SHARD.match(path) for path in view.sizes)


LAYOUT = Layout(
    name="dcp",
    title="torch.distributed.checkpoint, torchtitan",
    patterns=("step-{step}", "checkpoint/step-{step}", "step_{step}", "checkpoint_{step}"),
    last=(METADATA,),
    proves="`.metadata`, which is renamed into place last, and every file that it lists, as long as it says",
    check=check,
    any_order=True,
    recognises=recognises,
    source=(
        "torch 2.13 torch/distributed/checkpoint/filesystem.py (`FileSystemWriter.finish`, `_StorageInfo`), "
        "metadata.py; torchtitan 0.2 torchtitan/components/checkpoint.py (`_create_checkpoint_id`: step-N)"
    ),
    temporary=("*.metadata.tmp",),
)
