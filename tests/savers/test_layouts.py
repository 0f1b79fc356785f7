"""The rows of the table, on saves in memory."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from slurm_dispatch.errors import UsageError
from slurm_dispatch.savers.auto import recognise
from slurm_dispatch.savers.layout import State
from slurm_dispatch.savers.structure import structure
from slurm_dispatch.savers.table import LAYOUTS, layout_named
from slurm_dispatch.watch.pattern import is_temporary, parse_pattern
from tests.savers.views import Save, safetensors, zipped
from tests.savers.written import deepspeed_files

TRAINER = {
    "config.json": b"{}",
    "model.safetensors": safetensors(),
    "training_args.bin": zipped(),
    "optimizer.pt": zipped(),
    "scheduler.pt": zipped(),
    "rng_state.pth": zipped(),
    "trainer_state.json": json.dumps({"global_step": 10}).encode(),
}
STATES = {"model.safetensors": safetensors(), "optimizer.bin": zipped(), "random_states_0.pkl": zipped()}


def state(name: str, files: dict[str, bytes], save: str = "checkpoint-10") -> State:
    return LAYOUTS[name].check(Save(files, save)).state


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_is_complete(name: str) -> None:
    row = LAYOUTS[name]
    assert row.name == name
    assert row.title
    assert row.proves
    assert row.source
    for pattern in row.patterns:
        parse_pattern(pattern)
    assert set(row.counted) <= set(row.patterns)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no layout 'x'") as caught:
        layout_named("x")
    assert "transformers" in str(caught.value.hint)


def test_the_trainer_s_save_is_proved_by_its_state() -> None:
    """C085: a save that lacks trainer_state.json, or anything that is cut, is not whole."""
    assert state("transformers", TRAINER) is State.WHOLE
    for name in ("model.safetensors", "optimizer.pt", "training_args.bin", "rng_state.pth", "trainer_state.json"):
        cut = {**TRAINER, name: TRAINER[name][:-1]}
        assert state("transformers", cut) is State.TORN, name
    assert state("transformers", {**TRAINER, "trainer_state.json": b""}) is State.TORN
    without = {name: content for name, content in TRAINER.items() if name != "trainer_state.json"}
    assert state("transformers", without) is State.TORN
    assert state("transformers", {"": b"x"}) is State.TORN


def test_the_trainer_s_save_while_it_answers_sigterm() -> None:
    assert state("transformers", {**TRAINER, "checkpoint-is-incomplete.txt": b"..."}) is State.TORN


def test_the_trainer_s_staging_folder_is_no_save() -> None:
    """C086: what a Trainer of 4.36 has not renamed yet."""
    row = LAYOUTS["transformers"]
    assert row.is_temporary("tmp-checkpoint-10")
    assert is_temporary("tmp-checkpoint-10")
    assert not row.is_temporary("checkpoint-10")


def test_shards_are_those_that_the_index_names() -> None:
    shards = {"model-00001-of-00002.safetensors": safetensors(), "model-00002-of-00002.safetensors": safetensors()}
    index = {"metadata": {"total_size": 16}, "weight_map": {"a": next(iter(shards)), "b": list(shards)[1]}}
    rest = {name: content for name, content in TRAINER.items() if name != "model.safetensors"}
    whole = {**rest, **shards, "model.safetensors.index.json": json.dumps(index).encode()}
    assert state("transformers", whole) is State.WHOLE
    for name in shards:
        verdict = LAYOUTS["transformers"].check(Save({path: body for path, body in whole.items() if path != name}))
        assert verdict.state is State.TORN
        assert name in verdict.why
    assert state("transformers", {**whole, "model.safetensors.index.json": b'{"weight_map": {'}) is State.TORN
    index["metadata"] = {"total_size": 10_000}
    assert state("transformers", {**whole, "model.safetensors.index.json": json.dumps(index).encode()}) is State.TORN


def test_the_trainer_with_fsdp_and_with_deepspeed() -> None:
    part = {"optimizer_0/__0_0.distcp": b"x", "pytorch_model_fsdp_0/__0_0.distcp": b"x"}
    marks = {"optimizer_0/.metadata": b"x", "pytorch_model_fsdp_0/.metadata": b"x"}
    assert state("transformers", {**TRAINER, **part, **marks}) is State.WHOLE
    assert state("transformers", {**TRAINER, **part, "optimizer_0/.metadata": b"x"}) is State.TORN
    ranks = {f"global_step10/{name}": content for name, content in deepspeed_files(dp=2).items()}
    assert state("transformers", {**TRAINER, **ranks, "latest": b"global_step10"}) is State.WHOLE
    for name in ranks:
        fewer = {path: content for path, content in ranks.items() if path != name}
        assert state("transformers", {**TRAINER, **fewer, "latest": b"global_step10"}) is State.TORN, name
    deep = {"global_step10/mp_rank_00_model_states.pt": zipped()}
    assert state("transformers", {**TRAINER, **deep}) is State.TORN
    assert state("transformers", {**TRAINER, **deep, "latest": b"global_step9"}) is State.TORN
    assert state("transformers", {**TRAINER, **deep, "latest": b"global_step10"}) is State.UNSURE


def test_the_trainer_s_step() -> None:
    """C098: the step that stands in the save."""
    step_of = LAYOUTS["transformers"].step_of
    assert step_of is not None
    assert step_of(Save(TRAINER)) == 10
    assert step_of(Save({**TRAINER, "trainer_state.json": b'{"global_step": "10"}'})) is None
    assert step_of(Save({**TRAINER, "trainer_state.json": b"[]"})) is None


@pytest.mark.parametrize(("pickled", "rewrites"), [
    (b"X\x15\x00\x00\x00enable_jit_checkpointq_\x88X", True),
    (b"X\x15\x00\x00\x00enable_jit_checkpointr\x00\x01\x00\x00\x88X", True),
    (b"\x8c\x15enable_jit_checkpoint\x94\x88\x8c", True),
    (b"X\x15\x00\x00\x00enable_jit_checkpointq_\x89X", False),
    (b"", False),
])  # fmt: skip
def test_a_trainer_that_writes_a_save_again(pickled: bytes, rewrites: bool) -> None:
    copied = LAYOUTS["transformers"].copied(Save({**TRAINER, "training_args.bin": zipped(pickled)}))
    assert copied("model.safetensors") is rewrites


def test_a_save_of_accelerate_is_never_proved() -> None:
    """C109: how many ranks and objects there are stands nowhere in it."""
    assert state("accelerate", STATES) is State.UNSURE
    assert state("accelerate", {**STATES, "random_states_1.pkl": zipped()}) is State.UNSURE
    assert state("accelerate", {**STATES, "random_states_2.pkl": zipped()}) is State.TORN
    assert state("accelerate", {**STATES, "random_states_0.pkl": b""}) is State.TORN
    assert state("accelerate", {**STATES, "random_states_0.pkl": zipped()[:-1]}) is State.TORN
    assert state("accelerate", {**STATES, "custom_checkpoint_0.pkl": b""}) is State.TORN
    assert state("accelerate", {**STATES, "custom_checkpoint_1.pkl": zipped()}) is State.TORN
    assert state("accelerate", {"model.safetensors": safetensors()}) is State.TORN


def test_plain_files() -> None:
    """C104: a file that was cut, by a full disk or a kill, is not whole."""
    for name, content in {"step_1.pt": zipped(), "step_1.safetensors": safetensors()}.items():
        assert state("plain", {"": content}, name) is State.WHOLE
        for cut in range(len(content)):
            # Three bytes of a zip file are no zip file yet: then nothing says that it is torn, and nothing proves it.
            assert state("plain", {"": content[:cut]}, name) is not State.WHOLE
    assert state("plain", {"": b"pickle"}, "step_1.pt") is State.UNSURE
    assert state("plain", {"": safetensors()}, "model-step1-00001-of-00002.safetensors") is State.TORN


def test_a_folder_of_plain_files_is_never_proved() -> None:
    """C109: an empty folder is nothing, and one with whole files may lack another."""
    assert state("plain", {}) is State.TORN
    assert state("plain", {"a.pt": b""}) is State.TORN
    assert state("plain", {"a.pt": zipped(), "b.safetensors": safetensors()}) is State.UNSURE
    assert state("plain", {"a.pt": zipped(), "b.safetensors": safetensors()[:-1]}) is State.TORN


@pytest.mark.parametrize("array", [
    np.arange(6.0).reshape(2, 3), np.array(1), np.zeros((0, 4)), np.array(["ab", "c"]),
    np.array([True]), np.asfortranarray(np.ones((3, 2), dtype=">i2")), np.array(["2020-01-01"], "M8[D]"),
])  # fmt: skip
def test_an_array_says_how_long_it_is(array: np.ndarray) -> None:
    out = io.BytesIO()
    np.save(out, array)
    whole = out.getvalue()
    assert structure("a.npy", len(whole), lambda at, length: whole[at : at + length]) is True
    for cut in range(6, len(whole)):
        part = whole[:cut]
        assert structure("a.npy", cut, lambda at, length, part=part: part[at : at + length]) is False, cut  # type: ignore[misc]


def test_an_array_of_another_kind_does_not_say() -> None:
    for array in (np.array([{}], dtype=object), np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])):
        out = io.BytesIO()
        np.save(out, array)
        whole = out.getvalue()
        assert structure("a.npy", len(whole), lambda at, length, whole=whole: whole[at : at + length]) is None  # type: ignore[misc]


def test_auto() -> None:
    named = {
        "transformers": Save({"training_args.bin": zipped()}),
        "accelerate": Save(STATES, "checkpoint_0"),
        "plain": Save({"": zipped()}, "step_1.pt"),
    }
    for name, save in named.items():
        found = recognise(save)
        assert found is not None
        assert found.name == name
    for files in ({}, {"weights": b"x"}, {"": b"x"}, {"model.safetensors": b"x"}):
        save = Save(files, "step_1.txt")
        assert recognise(save) is None
