"""What there must be when everybody in a :class:`tests.s3.world.World` has gone, and after two more passes of gc."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from slurm_dispatch.anyroot import inspect
from slurm_dispatch.s3.root import S3Root, open_s3_root
from slurm_dispatch.store import gc as collecting
from slurm_dispatch.store import outranked
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing
from slurm_dispatch.store.manifest import PREFIX as MANIFEST
from tests.s3.world import PREFIX, ROOT, World, is_save

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication

REST = {f"exec/run0/best/checkpoint-1/{name}" for name in ("model", "done")} | {"exec/run0/logs/out"}
"""What is no save; it is there before anybody begins."""


def check_end(world: World) -> None:
    """One more pass by hand gives the space back, a second one finds nothing, and what stays is what must."""
    root = open_s3_root(ROOT)
    publications = root.listing()
    names = [one.name for one in publications]
    all_names = sorted(world.history, reverse=True)
    assert names == all_names, f"{len(names)} of {len(all_names)} publications are listed"
    over = Known(Standing.OVER, "the world")
    for turn in range(2):
        found = collecting.plan(root, Rules(1), lambda _: over, is_save)
        there = [one for one in publications if root.save_objects(one.path, root.bucket.deadline())]
        removed, trouble = outranked.remove_all(root, found.paths)
        assert not trouble
        for latest in publications[:1]:
            assert world.is_of(world.content(latest.path), latest), "the latest went"
        assert turn == 0 or not removed, f"a second pass removes {removed}"
    assert root.listing() == publications
    save = root.latest()
    assert ([] if save is None else [save.publication]) == publications[:1]
    objects = {key.removeprefix(f"{PREFIX}/") for key in world.shelf.objects}
    assert objects >= REST, f"{REST - objects}, which is no save, went"
    _nothing_leaks(root, publications, there, objects)
    greatest = outranked.greatest_step(publications)
    if greatest is not None and greatest.attempt == publications[0].attempt:
        assert world.is_of(world.content(greatest.path), greatest), f"the greatest step, {greatest}, went"
    report = fsck(root, inspecting=functools.partial(inspect, root))
    assert not report.faults, f"fsck: {report.faults}"
    assert not report.troubles


def _nothing_leaks(
    root: S3Root, publications: list[Publication], there: list[Publication], objects: set[str]
) -> None:
    """Of saves there are those that stay and no others but the newest execution's that are not published; no object
    of a save that went is left, and no manifest without a save."""
    greatest = outranked.greatest_step(publications)
    # The very greatest may be a ghost's, and gone; then the greatest of those that are there stays.
    stay = {one.path for one in (*publications[:1], greatest, outranked.greatest_step(there)) if one is not None}
    saves = {
        "/".join(parts[: 4 if parts[2] == "kept" else 3]).encode()
        for parts in (key.split("/") for key in objects)
        if parts[0] == "exec" and (parts[2] == "kept" or is_save(parts[2].encode()))
    }
    named = {one.path for one in publications}
    assert saves & named <= stay, f"not given back: {saves & named - stay}"
    epochs = outranked.epochs_of(root, outranked.by_attempt(publications))
    newest = publications[0].epoch if publications else 0
    for path in saves - named:
        epoch = epochs.get(path.decode().split("/")[1], 0)
        assert epoch is None or epoch >= newest, f"not given back, and never published: {path!r}"
    notes = {key.rpartition("/")[2].removeprefix(MANIFEST) for key in objects if f"/.dispatch/{MANIFEST}" in key}
    names = {path.decode().rpartition("/")[2] for path in saves}
    assert notes <= names, f"manifests without a save: {notes - names}"


__all__ = ["REST", "check_end"]
