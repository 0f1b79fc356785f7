"""``fsck`` and ``latest --verify`` on a root in S3 ask the layouts: a save without a shard, or with a short one."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import inspect, open_store, publish_by_hand
from slurm_dispatch.cli.latest import verified
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.root import Save
from slurm_dispatch.store.sound import Condition
from tests.s3.scene import FIRST, OLD
from tests.s3.servers import BUCKET
from tests.s3.test_commands import run
from tests.savers.views import safetensors, zipped
from tests.savers.written import dcp_files, deepspeed_files, megatron_files, orbax_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurm_dispatch.model.publication import Publication
    from tests.s3.servers import Seaweed

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode()
TRAINER = {
    "trainer_state.json": b'{"global_step": 5}', "training_args.bin": zipped(), "model.safetensors.index.json": INDEX,
    **dict.fromkeys(SHARDS, safetensors()),
}  # fmt: skip
SAVES: dict[str, tuple[Mapping[str, bytes], str, str]] = {
    "transformers": (TRAINER, SHARDS[1], SHARDS[0]),
    "plain": ({"model.safetensors.index.json": INDEX, **dict.fromkeys(SHARDS, safetensors())}, SHARDS[1], SHARDS[0]),
    "dcp": (dcp_files(), "__1_0.distcp", "__0_0.distcp"),
    "deepspeed": (
        deepspeed_files(), "zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt",
    ),
    "megatron": (megatron_files(), "mp_rank_01/distrib_optim.pt", "mp_rank_00/model_optim_rng.pt"),
    "orbax": (orbax_files(), "state/manifest.ocdbt", "state/manifest.ocdbt"),
}  # fmt: skip
"""By saver: the files of a whole save, one that is left out, and one that is cut."""


@pytest.fixture
def real(seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> S3Root:
    """A root of the test's own on a real server."""
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    root = open_store(f"s3://{BUCKET}/{tmp_path.name}")
    assert isinstance(root, S3Root)
    return root


def published(root: S3Root, step: int, files: Mapping[str, bytes]) -> Publication:
    """A save as it is, published by somebody who did not look."""
    path = f"exec/{OLD}/step-{step}"
    for name, body in files.items():
        root.bucket.replace(root.place.key(path, name), body, root.bucket.deadline())
    return publish_by_hand(root, FIRST, step, path, attempt=OLD, sync=False)


@pytest.mark.parametrize("saver", SAVES)
def test_a_torn_save_is_found(real: S3Root, saver: str) -> None:
    """C085, C100: named with the object that tells it; and one that is whole is not called torn."""
    files, missing, cut = SAVES[saver]
    published(real, 1, files)
    published(real, 2, {name: body for name, body in files.items() if name != missing})
    latest = published(real, 3, {**files, cut: files[cut][:-1]})
    report = fsck(real, inspecting=functools.partial(inspect, real))
    found = {publication.step: one for publication, one in report.saves}
    assert [found[step].condition for step in (1, 2, 3)] == [Condition.WHOLE, Condition.TORN, Condition.TORN]
    assert missing.rpartition("/")[2] in found[2].why
    assert cut.rpartition("/")[2] in found[3].why
    assert (len(report.faults), report.troubles) == (2, [])
    save = Save(latest, real.path_of(latest.path))
    with pytest.raises(BadDataError, match="is torn: "):
        verified(real, save, fallback=False)
    assert verified(real, save, fallback=True)[0].publication.step == 1


def test_the_commands_say_it(real: S3Root, seaweed: Seaweed, tmp_path: Path) -> None:
    files, missing, _ = SAVES["transformers"]
    published(real, 1, files)
    published(real, 2, {name: body for name, body in files.items() if name != missing})
    root = {"DISPATCH_CHECKPOINT": real.path, **seaweed.environment()}
    checked = run(seaweed, tmp_path, "fsck", **root)
    assert checked.returncode == 65
    assert f"is torn: {missing} is missing" in checked.stderr
    bad = run(seaweed, tmp_path, "latest", "--verify", **root)
    assert (bad.returncode, bad.stdout) == (65, "")
    good = run(seaweed, tmp_path, "latest", "--verify", "--fallback", **root)
    assert good.stdout == f"{real.path}/exec/{OLD}/step-1\n"


def test_a_shard_that_goes_after_it_was_published(real: S3Root) -> None:
    """C087, C169: the layout says it, and where none does, the manifest."""
    files, missing, cut = SAVES["transformers"]
    publication = published(real, 1, {**files, "notes.txt": b"x" * 10})
    key = real.place.key(publication.path.decode())
    real.bucket.replace(f"{key}/notes.txt", b"x" * 9, real.bucket.deadline())
    assert inspect(real, publication).condition is Condition.CHANGED
    real.bucket.replace(f"{key}/{cut}", files[cut][:-4], real.bucket.deadline())
    assert inspect(real, publication).condition is Condition.TORN
    real.bucket.remove(f"{key}/{missing}", real.bucket.deadline())
    assert inspect(real, publication).condition is Condition.TORN
