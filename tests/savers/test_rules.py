"""What the layouts of sharded savers say of saves that are bent: missing, cut, foreign, contradicting themselves.

DeepSpeed's, Megatron-LM's and Orbax's files are written here as their code writes them (``written.py``).
"""

from __future__ import annotations

import json
import pickle

import pytest

from slurm_dispatch.savers import dcp, deepspeed, lightning, megatron, orbax
from slurm_dispatch.savers.auto import recognise
from slurm_dispatch.savers.layout import State
from slurm_dispatch.savers.table import LAYOUTS
from slurm_dispatch.savers.torchfile import read_saved
from slurm_dispatch.watch.pattern import is_temporary, parse_pattern
from tests.savers import written
from tests.savers.written import Files, pickled, saved

WHOLE, TORN, UNSURE = State.WHOLE, State.TORN, State.UNSURE
GOOD = {
    "dcp": written.dcp(),
    **{
        f"deepspeed-{stage}": Files("global_step20", written.deepspeed_files(stage=stage, dp=3, mp=2))
        for stage in (0, 1, 2, 3)
    },
    "megatron-torch": Files("iter_0000020", written.megatron_files(tensor=2, pipeline=2)),
    "megatron-dist": Files("iter_0000020", written.megatron_dist_files()),
    "megatron-dist-0.20": Files("iter_0000020", written.megatron_dist_files(common=False)),
    "megatron-dcp": Files("iter_0000020", written.dcp_files()),
    "orbax": Files("20", written.orbax_files()),
    "orbax-zarr": Files("20", written.orbax_files(ocdbt=False)),
    "lightning-folder": Files(
        "epoch=0-step=20.ckpt", {**written.dcp_files(), "meta.pt": saved({"global_step": 20})}
    ),
    "lightning-deepspeed": Files(
        "epoch=0-step=20.ckpt",
        {f"checkpoint/{path}": data for path, data in written.deepspeed_files(global_step=20).items()},
    ),
    "lightning": Files(
        "epoch=0-step=20.ckpt", {"": saved({"global_step": 20, "pytorch-lightning_version": "2.6.6"})}
    ),
}  # fmt: skip


def said(files: Files) -> State:
    """What the layout says that recognises it."""
    layout = recognise(files)
    assert layout is not None
    return layout.check(files).state


@pytest.mark.parametrize("name", GOOD)
def test_a_whole_save_is_whole_and_is_what_it_is(name: str) -> None:
    layout = recognise(GOOD[name])
    assert layout is not None
    assert layout.name == name.partition("-")[0]
    assert layout.check(GOOD[name]).state is WHOLE, layout.check(GOOD[name])
    if layout.step_of is not None and name not in {"megatron-dist-0.20", "megatron-dcp"}:
        assert layout.step_of(GOOD[name]) == 20


OPTIONAL = {"state/commit_success.txt", "state/d/0123456789abcdef0123456789abcdef", "state/w/0"}
"""Not looked into, or listed in compressed form only."""


@pytest.mark.parametrize("name", GOOD)
def test_no_file_may_be_missing_or_cut(name: str) -> None:
    """C097, C102, C109: each file of each save; a cut of its last byte, of its second half, to nothing."""
    good = GOOD[name]
    layout = LAYOUTS[name.partition("-")[0]]
    for path in sorted(set(good.files) - OPTIONAL):
        if path and path != "_CHECKPOINT_METADATA":  # ``commit_success.txt`` stands in for it
            assert layout.check(good.but(path)).state is not WHOLE, path
        if path == "commit_success.txt":
            continue  # it has no meaning beyond being there
        for length in (0, 1, good.sizes[path] // 2, good.sizes[path] - 1):
            verdict = layout.check(good.cut(path, length))
            assert verdict.state is TORN, (path, length, verdict)
            assert "\n" not in verdict.why


def test_metadata_that_is_not_understood_proves_nothing() -> None:
    good = written.dcp()
    foreign = written.made_of(written.METADATA, "Metadata", storage_data={1: written.made_of("my.writer", "Place")})
    for data, state in {
        pickle.dumps({"storage_data": {}}): UNSURE,
        pickled(foreign): UNSURE,
        pickled(written.made_of(written.METADATA, "Metadata", storage_data=None)): UNSURE,
        pickled(written.made_of("my.fork", "Metadata", storage_data={})): UNSURE,
        written.metadata({"w": ("../other/__0_0.distcp", 0, 1)}): TORN,
        written.metadata({"w": ("/etc/passwd", 0, 1)}): TORN,
        written.metadata({"w": ("__9_0.distcp", 0, 1)}): TORN,
        written.metadata({"w": ("__0_0.distcp", 120, 9)}): TORN,
        written.metadata({"w": ("__0_0.distcp", 120, 8)}): WHOLE,
        b"I1\n.": UNSURE,
    }.items():
        verdict = dcp.check(Files("step-7", {**good.files, ".metadata": data}))
        assert verdict.state is state, (verdict, data)
    ranks = Files("step-7", {"__0.metadata": good.files[".metadata"], "__0_0.distcp": b"0" * 128})
    assert dcp.check(ranks).state is UNSURE
    # In S3 a rename is a copy and a removal.
    assert dcp.check(Files("step-7", {**good.files, ".metadata.tmp": good.files[".metadata"]})).state is TORN
    assert recognise(good.but("__0_0.distcp", ".metadata")) is LAYOUTS["dcp"]


def test_a_metadata_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "METADATA_MAX", 100)
    assert dcp.check(written.dcp()).state is UNSURE


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_metadata_of_any_protocol(protocol: int) -> None:
    data = written.metadata({"w": ("__0_0.distcp", 0, 128)}, protocol=protocol)
    assert dcp.check(Files("step-1", {".metadata": data, "__0_0.distcp": b"0" * 128})).state is WHOLE


def test_what_deepspeed_does_not_say_is_not_proved() -> None:
    """C095: a tracker in the folder changes nothing."""
    good = written.deepspeed_files()
    first = "mp_rank_00_model_states.pt"
    pipeline = {"layer_00-model_00-model_states.pt": saved({}), first: good[first]}
    old = {**good, first: pickle.dumps({"dp_world_size": 2, "mp_world_size": 1})}
    for files, state in (
        ({**good, "latest": b"global_step99"}, WHOLE),
        (pipeline, UNSURE),
        (old, UNSURE),
        (written.deepspeed_files(stage=0, optimizer=None), UNSURE),
        (written.deepspeed_files(stage=0, optimizer=None, num_experts=[2]), TORN),
        (written.deepspeed_files(dp_world_size="many"), UNSURE),
        (written.deepspeed_files(mp_world_size=2), TORN),
        ({path: data for path, data in good.items() if "mp_rank_00_model" not in path}, TORN),
        ({"zero/optimizer_state.pt": saved({}), "mp_rank_00_model_states.pt": saved({})}, UNSURE),
        ({"zero/optimizer_state.pt": saved({})}, TORN),
    ):
        verdict = deepspeed.check(Files("global_step20", files))
        assert verdict.state is state, (verdict, sorted(files))


def test_experts_of_deepspeed() -> None:
    experts = {f"layer_0_expert_{expert}_mp_rank_00_model_states.pt": saved({}) for expert in range(4)}
    good = {**written.deepspeed_files(num_experts=[4]), **experts}
    whole = Files("global_step20", good)
    assert deepspeed.check(whole).state is WHOLE
    assert deepspeed.check(whole.but("layer_0_expert_3_mp_rank_00_model_states.pt")).state is TORN
    unpartitioned = {**written.deepspeed_files(stage=0, num_experts=[4]), **experts}
    assert deepspeed.check(Files("global_step20", unpartitioned)).state is UNSURE


def test_a_step_that_contradicts_the_folder_is_told() -> None:
    """C098: the tracker may be ahead of the data, and the step in the data is the data's."""
    assert deepspeed.step_of(Files("global_step28", written.deepspeed_files(step=20))) == 20
    assert megatron.step_of(Files("iter_0000028", written.megatron_files(step=20))) == 20
    assert megatron.step_of(Files("iter_0000028", written.megatron_dist_files(step=20))) == 20
    assert megatron.step_of(Files("iter_0000028", written.megatron_dist_files(common=False))) is None


def test_ranks_of_megatron() -> None:
    for arguments in ({"pipeline": 1}, {"pipeline": 3}, {"tensor": 1, "pipeline": 2}):
        files = written.megatron_files(**{"tensor": 2, **arguments})
        assert megatron.check(Files("iter_0000020", files)).state is WHOLE
        last = max(files)
        assert megatron.check(Files("iter_0000020", files).but(last)).state is TORN
    experts = Files("iter_0000020", written.megatron_files(expert=2))
    assert megatron.check(experts).state is UNSURE
    assert megatron.check(experts.but("mp_rank_01_001/model_optim_rng.pt")).state is TORN
    layer_wise = {**written.megatron_files(), "mp_rank_00/layer_wise_optimizer_0.pt": saved({})}
    assert megatron.check(Files("iter_0000020", layer_wise)).state is UNSURE


def test_an_unknown_format_of_megatron_is_not_proved() -> None:
    files = {**written.megatron_dist_files(), "metadata.json": json.dumps({"sharded_backend": "zarr"}).encode()}
    assert megatron.check(Files("iter_0000020", files)).state is UNSURE
    assert megatron.check(Files("iter_0000020", {})).state is TORN


def test_what_orbax_has_not_committed() -> None:
    """C100, C109: a temporary item, an empty folder that is called like a step, half a step."""
    good = written.orbax_files()
    assert is_temporary("0.orbax-checkpoint-tmp-1703334121930256")
    for name in ("3.orbax-checkpoint-tmp", "3.orbax-checkpoint-tmp-17"):
        assert orbax.LAYOUT.is_temporary(name)
    for files, state in (
        ({}, TORN),
        ({"state/d/x": b"half"}, TORN),
        (written.orbax_files(committed=False), TORN),
        ({**written.orbax_files(committed=False), "commit_success.txt": b"yes"}, WHOLE),
        ({path: data for path, data in good.items() if "commit_success" not in path}, WHOLE),  # 0.7 to 0.12.2
        ({path: data for path, data in good.items() if path != "commit_success.txt"}, TORN),
        ({**good, "commit_success.txt": b""}, TORN),
        ({**good, "data.orbax-checkpoint-tmp/metadata": b"{}"}, TORN),
        ({**good, "state/manifest.ocdbt": written.manifest(200)[:199]}, TORN),
        ({path: data for path, data in good.items() if path in {"state/_METADATA", "state/manifest.ocdbt"}}, UNSURE),
    ):
        verdict = orbax.check(Files("3", files))
        assert verdict.state is state, (verdict, sorted(files))
    assert recognise(Files("3", {"a.txt": b"x"})) is None


def test_names_of_lightning() -> None:
    """C093: names without one clear step are no saves; a step that the save contradicts is told."""
    patterns = [parse_pattern(text) for text in lightning.LAYOUT.patterns if "/" not in text]

    def steps(name: str) -> set[int | None]:
        return {match.step for pattern in patterns if (match := pattern.components[0].match(name)) is not None}

    assert steps("epoch=3-step=120.ckpt") == {120}
    assert steps("epoch=3-step=120-val_loss=0.32.ckpt") == {120}
    assert steps("step=10-last.ckpt") == {10}
    assert steps("sample-epoch03-step120.ckpt") == {120}
    for name in ("last.ckpt", "last-v1.ckpt", "epoch=3.ckpt", "best.ckpt", "step=120-v1.ckpt", "step=5.ckpt.tmp"):
        assert steps(name) == set(), name
    state = {"": saved({"global_step": 120, "pytorch-lightning_version": "2.6.6"})}
    assert lightning.step_of(Files("epoch=3-step=120.ckpt", state)) == 120
    assert lightning.step_of(Files("epoch=3-step=120-best_step=5.ckpt", state)) == 120
    assert lightning.step_of(Files("epoch=3.ckpt", state)) is None
    assert lightning.check(Files("epoch=3-step=120-val=0.1-v2.ckpt", state)).state is TORN
    assert lightning.check(Files("epoch=3-step=120.ckpt", {"": b"other format"})).state is UNSURE
    assert recognise(Files("model.ckpt", {"": saved({"x": 1})})) is not LAYOUTS["lightning"]
    assert recognise(Files("epoch=3-step=120.ckpt", {"": state[""][:500]})) is LAYOUTS["lightning"]


def test_a_file_of_torch_save_is_read_as_data() -> None:
    whole = Files("x.pt", {"": saved({"step": 7})})
    assert read_saved(whole, "").get("step") == 7
    for length in range(0, whole.sizes[""], 97):
        assert read_saved(whole.cut("", length), "") is None
    assert read_saved(whole, "other") is None


def test_every_layout_can_be_explained() -> None:
    for name, layout in LAYOUTS.items():
        assert layout.name == name
        assert layout.source
        assert layout.proves
        for text in layout.patterns:
            parse_pattern(text)
