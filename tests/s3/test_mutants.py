"""The model sees what it is there for: each of these faults of the product fails at the assertion meant for it.

A fault that the model no longer finds is a hole in the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.cli import latest as looking
from slurm_dispatch.errors import CorruptError, DispatchError, StoreError
from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.s3 import bucket as buckets
from slurm_dispatch.s3 import root as rooting
from slurm_dispatch.s3 import transfer
from slurm_dispatch.s3.bucket import Bucket, Made
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.store import gc as collecting
from slurm_dispatch.store import outranked, thin
from slurm_dispatch.store.claims import foreign
from slurm_dispatch.store.gc import Known, Standing
from slurm_dispatch.watch import keeping, local
from tests.s3.plans import plan_of
from tests.s3.test_model import Ground, ground
from tests.s3.world import Run
from tests.store.mutants import Mutant, Patch, hunt

if TYPE_CHECKING:
    import random

__all__ = ["ground"]

RUNS = 4000
"""Runs in which a fault must show; where requests come in another order it may take some thousand."""


def large_first(patch: Patch) -> None:
    """Of what goes, the markers are the last."""

    def remove(self: S3Root, relative: bytes) -> bool:
        deadline = self.bucket.deadline()
        objects = self.save_objects(relative, deadline)
        if objects:
            rooting.forget_manifest(self, relative)
        for meta in sorted(objects, key=lambda one: (-one.size, one.key)):
            self.bucket.remove(meta.key, deadline)
        return bool(objects)

    patch.setattr(S3Root, "remove", remove)


def manifest_last(patch: Patch) -> None:
    """What goes is called whole until nothing is left of it."""
    real = rooting.forget_manifest
    patch.setattr(rooting, "forget_manifest", lambda *_: None)

    def remove(self: S3Root, relative: bytes) -> bool:
        done = bare(self, relative)
        real(self, relative)
        return done

    bare = S3Root.remove
    patch.setattr(S3Root, "remove", remove)


def first_object_only(patch: Patch) -> None:
    """Of what goes, the rest stays."""

    def remove(self: S3Root, relative: bytes) -> bool:
        deadline = self.bucket.deadline()
        objects = self.save_objects(relative, deadline, first=1)
        for meta in objects:
            rooting.forget_manifest(self, relative)
            self.bucket.remove(meta.key, deadline)
        return bool(objects)

    patch.setattr(S3Root, "remove", remove)


def brought_unchecked(patch: Patch) -> None:
    """What was downloaded is not held to its manifest, nor listed again."""
    patch.setattr(transfer.Source, "check", lambda _: None)
    patch.setattr(transfer, "check_as_recorded", lambda *_: None)


def verified_once(patch: Patch) -> None:
    """What goes while it is checked is the answer."""
    patch.setattr(looking, "verified", looking._passing)


def first_page(patch: Patch) -> None:
    """What comes after the first page is not asked for."""

    def below(self: Bucket, folder: str, deadline: Any, *, first: int | None = None) -> list[Any]:
        def pages() -> list[Any]:
            for chunk in self._library.list(self._store(), folder):
                return [buckets._meta(one) for one in chunk]
            return []

        return self._again(deadline, "listing", folder, pages)

    patch.setattr(Bucket, "below", below)


def failed_is_nothing(patch: Patch) -> None:
    """A listing that failed is one of nothing."""
    real = Bucket.below

    def below(self: Bucket, folder: str, deadline: Any, *, first: int | None = None) -> list[Any]:
        try:
            return real(self, folder, deadline, first=first)
        except StoreError:
            return []

    patch.setattr(Bucket, "below", below)


def refused_is_anothers(patch: Patch) -> None:
    """What was refused is somebody else's: our own answer was never lost."""

    def same(self: Bucket, key: str, *_: Any) -> bool:
        raise CorruptError(f"object {key} is there with another content")

    patch.setattr(Bucket, "_same", same)


def conflict_is_there(patch: Patch) -> None:
    """What was refused is there, without a look."""
    patch.setattr(Bucket, "_same", lambda *_: True)


def late_is_done(patch: Patch) -> None:
    """A publication that did not answer in time was made."""
    real = Bucket.create

    def create(self: Bucket, key: str, body: bytes, deadline: Any) -> Made:
        try:
            return real(self, key, body, deadline)
        except StoreError:
            if "/pub/" in key:
                return Made.NEW
            raise

    patch.setattr(Bucket, "create", create)


def no_wish(patch: Patch) -> None:
    """Nobody says what he is about to read."""
    patch.setattr(local, "wish", lambda *_: True)


def wish_unseen(patch: Patch) -> None:
    """It is said, and not seen whether that was in time."""
    real = local.wish

    def wish(*them: Any) -> bool:
        real(*them)
        return True

    patch.setattr(local, "wish", wish)


def nothing_is_lent(patch: Patch) -> None:
    """The helper does not ask what its replacement is reading."""
    real = outranked.epochs_of
    patch.setattr(thin, "epochs_of", lambda root, published, lent=None: real(root, published))


def unread_is_none(patch: Patch) -> None:
    """A choice that could not be read is none."""
    real = outranked.read_said

    def said(root: Any, attempt: str) -> Any:
        try:
            return real(root, attempt)
        except StoreError:
            return type("Said", (), {"choice": None, "wishes": ()})

    patch.setattr(outranked, "read_said", said)


def latest_goes(patch: Patch) -> None:
    """What stays is counted from the second on."""

    def staying(publications: Any, there: Any, rules: Any) -> set[bytes]:
        return {one.path for one in there[1 : rules.last + 1]}

    patch.setattr(collecting, "staying", staying)


def greatest_goes(patch: Patch) -> None:
    """A great step of an old run is no reason to stay."""
    patch.setattr(collecting, "greatest_step", lambda _: None)


def running_is_over(patch: Patch) -> None:
    """Nobody asks whether an execution runs."""
    real = collecting.plan
    over = Known(Standing.OVER, "")

    def plan(root: Any, rules: Any, standing: Any, is_save: Any) -> Any:
        def asked(attempt: str) -> Known:
            standing(attempt)
            return over

        return real(root, rules, asked, is_save)

    patch.setattr(collecting, "plan", plan)


def no_epochs(patch: Patch) -> None:
    """The helper thins every other execution, its replacement's too."""
    real = thin.epochs_of

    def epochs(root: Any, published: Any, lent: Any = None) -> dict[str, int | None]:
        return dict.fromkeys(real(root, published), 0)

    patch.setattr(thin, "epochs_of", epochs)


def everything_goes(patch: Patch) -> None:
    """Of an older execution all goes, not only saves."""
    patch.setattr(outranked.Candidates, "_written_save", lambda self, name: name != b".dispatch")


def manifests_stay(patch: Patch) -> None:
    """What a saver removed itself leaves its manifest, one a publication."""
    patch.setattr(outranked.Candidates, "unsaved", lambda *_: None)


def size_is_enough(patch: Patch) -> None:
    """What is there with the size of the file is the file, also of what was sent before it was written anew."""
    real = Bucket.sent

    def sent(self: Bucket, key: str, deadline: Any) -> Any:
        found = real(self, key, deadline)
        return None if found is None else (found[0], TOKENS.setdefault(key, found[1]))

    patch.setattr(Bucket, "sent", sent)
    patch.setattr(transfer, "_token", lambda entry: "same")


TOKENS: dict[str, str] = {}


def not_looked_again(patch: Patch) -> None:
    """What was uploaded is the save, whatever the training wrote meanwhile."""

    def files(source: str) -> Any:
        return LISTED.setdefault(source, real(source))

    def keep(self: Any, path: str, seen: Any, proof: Any, *, copy: Any, name: Any = None) -> Any:
        LISTED.clear()
        return bare(self, path, seen, proof, copy=copy, name=name)

    real, bare = transfer._files, keeping.Uploaded.keep
    patch.setattr(transfer, "_files", files)
    patch.setattr(keeping.Uploaded, "keep", keep)
    patch.setattr(keeping, "look", lambda path, read=True: None)
    patch.setattr(keeping, "look", lambda path, read=True: Everything())


LISTED: dict[str, Any] = {}


class Everything:
    """A look that is like every other."""

    @property
    def entries(self) -> Any:
        """Equal to all."""
        return self

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def chosen_twice(patch: Patch) -> None:
    """A first start is no choice: who comes later makes another."""
    real = local.choose_by

    def choose(*them: Any, look: Any, **more: Any) -> Any:
        return real(*them, look=lambda choice: choice.source is not None and look(choice), **more)

    patch.setattr(local, "choose_by", choose)


def stranger(patch: Patch) -> None:
    """Publications that were not there when nobody had claimed the root are another job's."""

    def refuse(self: S3Root, generation: int, deadline: Any) -> None:
        name = self._greatest(deadline)
        if name is not None and parse_name(name).epoch // 10**12 >= generation:
            raise foreign(self.path, generation)

    patch.setattr(S3Root, "_refuse_foreign", refuse)


PEACE = {"kills": 0, "faults": 0.0, "upset": 0.0}
FAULTS = {"faults": 0.05}
TWO = {"runs": (Run(3), Run(2, remote=True)), "hands": (), **PEACE}
FETCH = {"runs": (Run(4),), "hands": (), "readers": ("fetch", "fetch"), "hot": "delete", "switch": 0.1}
READ = {"runs": (Run(4), Run(2)), "hands": (), "readers": ("fetch", "latest")}
MUTANTS = [
    Mutant(large_first, ("before what proves it whole",)),
    Mutant(manifest_last, ("before what proves it whole",)),
    Mutant(first_object_only, ("not given back", "a second pass removes")),
    Mutant(brought_unchecked, ("fetch",), 105, {**PEACE, **FETCH}),
    Mutant(verified_once, ("verify",), 1327, {"hot": "list", "readers": ("verify", "verify")}),
    Mutant(first_page, ("are listed", "is given", "resumes from"), 0, {**PEACE, **READ, "page": 3}),
    Mutant(failed_is_nothing, ("resumes from", "is given", "and has 0 with 0"), 0, FAULTS),
    Mutant(refused_is_anothers, ("does not keep an empty object empty",), 0, FAULTS),
    Mutant(conflict_is_there, ("is said to be published",), 40, FAULTS),
    Mutant(late_is_done, ("is said to be published",), 27, FAULTS),
    Mutant(no_wish, ("resumes from", "starts from"), 46, TWO),
    Mutant(wish_unseen, ("resumes from", "starts from"), 46, TWO),
    Mutant(nothing_is_lent, ("resumes from", "starts from"), 0, TWO),
    Mutant(unread_is_none, ("resumes from", "starts from"), 266, {**TWO, **FAULTS}),
    Mutant(latest_goes, ("latest",)),
    Mutant(greatest_goes, ("of the greatest step",), 322),
    Mutant(running_is_over, ("of a run that goes on",)),
    Mutant(no_epochs, ("of a newer execution", "latest")),
    Mutant(everything_goes, ("is no save",)),
    Mutant(manifests_stay, ("manifests without a save",)),
    Mutant(size_is_enough, ("mixed",), 0, {"upset": 0.1}),
    Mutant(not_looked_again, ("mixed", "latest", "is changed"), 0, {"upset": 0.1}),
    Mutant(chosen_twice, ("rank 1 follows",), 73, {"runs": (Run(1), Run(1, 1, follows=True)), "faults": 0.05}),
    Mutant(stranger, ("of another job",)),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.__name__)
def test_a_fault_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    def run(rng: random.Random) -> None:
        ground.run(replace(plan_of(rng), **mutant.shape))

    hunt(mutant, monkeypatch, run, runs=RUNS, troubles=DispatchError)
