"""Whether a save is whole."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from slurm_dispatch.errors import StoreError
from slurm_dispatch.store.structure import structure
from slurm_dispatch.store.whole import Settling, final_name, look
from tests.store.scene import OLD, fresh, save


def _npz(path: Path) -> bytes:
    np.savez(path, weights=np.arange(1000.0), state=np.arange(10))
    return path.read_bytes()


def _safetensors(path: Path) -> bytes:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [25], "data_offsets": [0, 100]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"x" * 100)
    return path.read_bytes()


def _zip_with_comment(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"x" * 100)
        file.comment = b"PK\x05\x06 is not the end"
    return path.read_bytes()


@pytest.mark.parametrize(("make", "name"), [
    (_npz, "a.npz"), (_safetensors, "model.safetensors"), (_zip_with_comment, "a.pt"),
])  # fmt: skip
def test_every_cut_of_a_file_is_seen(tmp_path: Path, make: object, name: str) -> None:
    """C054, C102: a writer that was killed at any byte left a torn file, and it is never taken for whole."""
    path = tmp_path / name
    content: bytes = make(path)  # type: ignore[operator]
    assert structure(os.fsencode(path)) is True
    cuts = [*range(4, len(content), max(1, len(content) // 200)), len(content) - 1]
    for cut in cuts:
        path.write_bytes(content[:cut])
        assert structure(os.fsencode(path)) is False, cut


@pytest.mark.parametrize("content", [b"", b"plain text", b"\x80\x04pickle", b"PK"])
def test_a_format_that_does_not_say(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert structure(os.fsencode(path)) is None


@pytest.mark.parametrize(
    "header", [b"{}", b"[]", b"null", b"\xff", b'{"w": {}}', b'{"w": {"data_offsets": ["a", "b"]}}']
)
def test_a_safetensors_header_that_is_none(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    assert structure(os.fsencode(path)) is False


def test_a_marker_proves_and_its_absence_does_not(tmp_path: Path) -> None:
    """C085: the last file of a save is the marker; without it nothing is proved."""
    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    seen = look(path, ["trainer_state.json"])
    assert seen is not None
    assert not seen.proved
    Path(path, "trainer_state.json").write_text("{}")
    seen = look(path, ["trainer_state.json"])
    assert seen is not None
    assert seen.proved
    both = look(path, ["trainer_state.json", "rank*.done"])
    assert both is not None
    assert not both.proved


def test_a_marker_beside_the_save(tmp_path: Path) -> None:
    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    for expected in (False, True):
        seen = look(path, ["{name}.done"])
        assert seen is not None
        assert seen.proved is expected
        Path(path + ".done").touch()


def test_a_torn_file_beats_the_marker(tmp_path: Path) -> None:
    """C102: ``.metadata`` is there, a shard was cut after it."""
    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    content = _safetensors(Path(path, "shard.safetensors"))
    Path(path, ".metadata").touch()
    seen = look(path, [".metadata"])
    assert seen is not None
    assert seen.proved
    Path(path, "shard.safetensors").write_bytes(content[: len(content) // 2])
    seen = look(path, [".metadata"])
    assert seen is not None
    assert (seen.proved, seen.torn) == (False, b"shard.safetensors")


def test_one_file_proves_itself_and_a_folder_does_not(tmp_path: Path) -> None:
    """C109: an empty or half folder is no save, whatever its name."""
    _npz(tmp_path / "a.npz")
    single = look(str(tmp_path / "a.npz"))
    assert single is not None
    assert single.proved
    folder = tmp_path / "3"
    folder.mkdir()
    _npz(folder / "a.npz")
    seen = look(str(folder))
    assert seen is not None
    assert not seen.proved


def test_not_there(tmp_path: Path) -> None:
    assert look(str(tmp_path / "nothing")) is None


def test_could_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError):
        look(path)


def test_settled(tmp_path: Path) -> None:
    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    settling = Settling(60)

    def settled(now: float) -> bool:
        seen = look(path)
        assert seen is not None
        return settling.settled(path, seen, now)

    assert [settled(now) for now in (0, 30, 59)] == [False] * 3
    assert settled(60)
    Path(path, "late").write_bytes(b"x")
    assert [settled(now) for now in (61, 90, 120)] == [False] * 3
    assert settled(121)
    settling.forget(path)
    assert not settled(500)


def test_a_suspension_settles_nothing(tmp_path: Path) -> None:
    """The job is suspended in the middle of a save, this process with it: what it sees first is no evidence."""
    path = save(fresh(tmp_path), OLD, "checkpoint-5")
    settling = Settling(60)

    def settled(now: float) -> bool:
        seen = look(path)
        assert seen is not None
        return settling.settled(path, seen, now)

    assert [settled(now) for now in (0, 3600, 3610, 3620)] == [False] * 4
    Path(path, "weights").write_bytes(b"the rest of the save")
    assert [settled(now) for now in (3630, 3660, 3689)] == [False] * 3
    assert settled(3690)


@pytest.mark.parametrize("content", [b"", b'{"log_history": [{"step": 1}', b"[" * 100_000])
def test_a_marker_of_json_that_was_cut_is_none(tmp_path: Path, content: bytes) -> None:
    """C054: Hugging Face's trainer_state.json is written last, and a kill can come while it is written."""
    path = save(fresh(tmp_path), OLD, "checkpoint-5", **{"trainer_state.json": content})
    seen = look(path, ["trainer_state.json"])
    assert seen is not None
    assert not seen.proved
    Path(path, "trainer_state.json").write_bytes(b'{"log_history": [{"step": 1}]}\n')
    seen = look(path, ["trainer_state.json"])
    assert seen is not None
    assert seen.proved


def test_what_is_empty_or_torn_never_settles(tmp_path: Path) -> None:
    """C054, C109."""
    root = fresh(tmp_path)
    empty, torn = save(root, OLD, "checkpoint-4", b""), save(root, OLD, "checkpoint-5", b"PK\x03\x04 half a zip")
    settling = Settling(1)
    for path in (empty, torn):
        for now in (0, 100, 200):
            seen = look(path)
            assert seen is not None
            assert not settling.settled(path, seen, now)


@pytest.mark.parametrize(("name", "final"), [
    (b"tmp-checkpoint-50", b"checkpoint-50"),
    (b"0.orbax-checkpoint-tmp-1703334121930256", b"0"),
    (b"step=5.ckpt.tmp", b"step=5.ckpt"),
    (b"checkpoint-5.partial", b"checkpoint-5"),
    (b".tmp-0123456789abcdef", b"0123456789abcdef"),
    (b"checkpoint-50", None), (b"template-5", None), (b"0", None), (b"tmp", None), (b"run-temp-300", None),
])  # fmt: skip
def test_temporary_names(name: bytes, final: bytes | None) -> None:
    """C086, C100: the names of saves that are being written."""
    assert final_name(name) == final
