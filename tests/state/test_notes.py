"""Notes: each kind as the formats say, names and fields that must agree, and hostile files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError, DispatchError
from slurm_dispatch.model.identity import Word
from slurm_dispatch.records.facts import KINDS
from slurm_dispatch.state import notes
from slurm_dispatch.state.notes import FIELDS, NotesFolder, parse_note

TOP = Path(__file__).resolve().parents[2]
COMMON = {
    "v": 1,
    "job": "abc",
    "generation": 0,
    "submission": 3,
    "shared": False,
    "cluster": "alpha",
    "slurm_job_id": 77,
    "at": 1000.5,
}
NOTES: dict[str, tuple[str, dict[str, Any]]] = {
    "start": (
        "start.abc.0.3.77.1",
        {
            "restart": 1,
            "start_time": 999,
            "attempt": "a" * 20,
            "epoch": "3000001",
            "nodes": "c[1-2]",
            "uid": 1000,
            "user": "ada",
            "partition": "low",
            "account": "",
            "array": None,
            "het_leader": None,
            "sluid": None,
        },
    ),
    "refused": ("refused.abc.0.3.77.1.999", {"restart": 1, "start_time": 999, "why": "double_start"}),
    "end": (
        "end.abc.0.3.77.0.1700000000000000000",
        {"start_time": None, "restart_seen": None, "exit_code": "0:0", "nodes": "c1", "uid": 1000},
    ),
    "handed": (
        "handed.abc.0.3.77.aaaa.c1.example.org.1700000000000000000",
        {
            "attempt": "aaaa",
            "epoch": "3000001",
            "node": "c1.example.org",
            "uid": 1000,
            "start_time": 999,
            "verified": True,
            "progress": 40,
            "resumed_from": None,
            "ended": True,
            "status": 85,
            "signal": None,
            "outcome": "unfinished",
            "last": 40,
        },
    ),
    "node": (
        "node.abc.0.3.77.aaaa.c1.example.org.1700000000000000000",
        {
            "attempt": "aaaa",
            "epoch": "3000001",
            "node": "c1.example.org",
            "boot": "b",
            "clean": None,
            "left": [1, 2],
            "start_time": 999,
            "verified": True,
        },
    ),
}


def note(kind: str, **changes: Any) -> tuple[str, bytes]:
    name, fields = NOTES[kind]
    return name, json.dumps({**COMMON, **fields, **changes}).encode() + b"\n"


@pytest.mark.parametrize("kind", NOTES)
def test_a_note_parses(kind: str) -> None:
    parsed = parse_note(*note(kind))
    assert (parsed.kind, parsed.word, parsed.slurm_job_id, parsed.at) == (kind, Word("abc", 0, 3), 77, 1000.5)
    assert dict(parsed.body) == NOTES[kind][1]


def test_a_shared_word_is_told_by_the_fields() -> None:
    assert str(parse_note(*note("start", shared=True)).word) == "dispatch:abc:0:3:s"


def test_of_a_refuse_note_the_name_is_all() -> None:
    parsed = parse_note("refuse.abc.0.3", b"\xff anything")
    assert (parsed.kind, parsed.word) == ("refuse", Word("abc", 0, 3))


@pytest.mark.parametrize(("kind", "field"), [(k, field) for k, (_, fields) in NOTES.items() for field in fields])
def test_every_field_must_be_there_and_of_its_form(kind: str, field: str) -> None:
    name, data = note(kind)
    content = json.loads(data)
    del content[field]
    with pytest.raises(BadDataError, match=f"no field {field}"):
        parse_note(name, json.dumps(content).encode())
    with pytest.raises(BadDataError, match=re.escape(f"note {name}: {field}")):
        parse_note(*note(kind, **{field: {"x": 1}}))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("start.abc.0.3.77", "the name is not that of a note"),
        ("start.abc.0.3.077.1", "the name is not that of a note"),
        ("start.ABC.0.3.77.1", "the name is not that of a note"),
        ("stop.abc.0.3.77.1", "the name is not that of a note"),
        ("start.abc.0.0.77.1", "out of bounds"),
        ("start.abc.9999999.3.77.1", "out of bounds"),
        ("start.abc.0.3.77.1\n", "the name is not that of a note"),
        ("start.abd.0.3.77.1", "job is abc, and the name says abd"),
        ("start.abc.0.3.78.1", "slurm_job_id is 77, and the name says 78"),
        ("start.abc.0.3.77.2", "restart is 1, and the name says 2"),
    ],
)
def test_a_name_that_does_not_agree_is_refused(name: str, says: str) -> None:
    with pytest.raises(BadDataError) as caught:
        parse_note(name, note("start")[1])
    assert says in str(caught.value)


def test_another_version_is_refused_and_not_lost(tmp_path: Path) -> None:
    name, data = note("start", v=2)
    (tmp_path / name).write_bytes(data)
    read = NotesFolder(str(tmp_path)).read()
    assert read.notes == ()
    assert [bad for bad, _ in read.bad] == [name]
    assert "version 2" in read.bad[0][1]
    assert (tmp_path / name).exists()


def test_hostile_files_are_told_and_never_stop_the_others(tmp_path: Path) -> None:
    good, data = note("end")
    (tmp_path / good).write_bytes(data)
    (tmp_path / "start.abc.0.3.1.0").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "start.abc.0.3.2.0")
    (tmp_path / "start.abc.0.3.3.0").mkdir()
    (tmp_path / "start.abc.0.3.4.0").write_bytes(b" " * 70_000)
    (tmp_path / "start.abc.0.3.5.0").write_bytes(b"[" * 60_000)
    (tmp_path / ".tmp-half").write_bytes(b"")
    (tmp_path / os.fsdecode(b"start.\xff")).write_bytes(b"")
    read = NotesFolder(str(tmp_path)).read()
    assert [it.name for it in read.notes] == [good]
    assert len(read.bad) == 6
    assert not read.more
    for name, why in read.bad:
        assert why.isprintable(), name


@given(st.text(max_size=60), st.binary(max_size=60))
def test_any_name_and_bytes_are_a_note_or_bad_data(name: str, data: bytes) -> None:
    refusal: DispatchError | None = None
    try:
        parse_note(name, data)
    except BadDataError as error:
        refusal = error
    assert refusal is None or (refusal.line().isprintable())


def test_reading_is_bounded_and_says_that_there_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = NotesFolder(str(tmp_path))
    for number in range(1, 6):
        folder.write_refuse(Word("abc", 0, number))
    monkeypatch.setattr(notes, "NOTES_MAX", 3)
    read = folder.read()
    assert (len(read.notes), read.more) == (3, True)
    folder.remove(it.name for it in read.notes)
    read = folder.read()
    assert (len(read.notes), read.more) == (2, False)


def test_removing_is_done_once_or_twice(tmp_path: Path) -> None:
    folder = NotesFolder(str(tmp_path))
    assert folder.write_refuse(Word("abc", 0, 1))
    assert not folder.write_refuse(Word("abc", 0, 1))
    folder.remove(["refuse.abc.0.1", "refuse.abc.0.1"])
    assert os.listdir(tmp_path) == []


def test_removing_stays_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "mine").write_text("")
    NotesFolder(str(tmp_path / "notes")).remove(["../mine"])
    assert (tmp_path / "mine").exists()


def test_the_table_of_formats_has_the_same_notes_and_fields() -> None:
    text = (TOP / "ARCHITECTURE.md").read_text("utf-8")
    part = text.split("### Notes", 1)[1].split("### Facts", 1)[0]
    rows = {
        row.split(".", 1)[0]: re.sub(r"\([^)]*\)", "", fields)
        for row, fields in re.findall(r"^\| `([a-z]+\..*?)` \| (.*) \| .* \|$", part, re.MULTILINE)
    }
    for kind, fields in FIELDS.items():
        assert set(re.findall(r"`(\w+)`", rows[kind])) - {"true", "false"} >= set(fields), kind
    assert list(KINDS["node"]) == list(FIELDS["node"])


def test_one_jobs_notes_hold_up_no_other_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array leaves a note for each task; those of refusal are the tick's own, and no reason to wait."""
    monkeypatch.setattr(notes, "NOTES_MAX", 6)
    body = NOTES["start"][1]
    for key, count in (("aaa", 50), ("mine", 2), ("zzz", 1)):
        for number in range(1, count + 1):
            content = {**COMMON, **body, "job": key, "slurm_job_id": number}
            (tmp_path / f"start.{key}.0.3.{number}.1").write_text(json.dumps(content))
    for number in range(1, 20):
        (tmp_path / f"refuse.mine.0.{number}").write_text("{}")
    read = NotesFolder(str(tmp_path)).read(first={"mine"})
    found = [note.word.job for note in read.notes]
    assert (found[:2], found.count("zzz"), len(found)) == (["mine", "mine"], 1, 6)
    assert (read.more, read.unread) == (True, frozenset({"aaa"}))
