"""Facts: every kind both ways, every field checked, hostile bytes refused; the formats' table says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError, DispatchError
from slurm_dispatch.records.facts import KINDS, OPTIONAL, Fact, fact_name, parse_fact, render
from slurm_dispatch.records.spec import Spec
from tests.records.life import Life, make_spec

TOP = Path(__file__).resolve().parents[2]
WHOLE = (
    Life()
    .round(1)
    .run(2)
    .add("watched", submission=2, host="ctl", first_seen=1.5)
    .progress(2, 10)
    .add("ended", attempt="a1", epoch="2000000", status=None, signal=9, outcome=None, step=10)
    .add("refused", submission=2, slurm_job_id=102, restart=1, start_time=None, why="double_start")
    .add(
        "node",
        attempt="a1",
        epoch="2000000",
        node="c1",
        boot=None,
        clean=None,
        left=[17],
        start_time=1.25,
        verified=False,
    )
    .add("request", what="cancel", reason="")
    .add("stray", submission=1, slurm_job_id=101, cluster="alpha")
    .add("removed", how="gc", count=2, paths=["exec/a1/kept/checkpoint-5"])
    .add("slurm_hold", submission=1, slurm_job_id=101, reason=None)
    .add("dependents", jobs=[103])
    .add("repointed", slurm_job_id=101, moved=[103], left=[{"slurm_job_id": 104, "why": "it is an array"}])
    .end(2, "failed")
    .add("closed", why="cancelled", reason="")
    .facts
    + Life().intent(1).add("rejected", submission=1, status=1, message="no").facts
    + Life()
    .add("hold", reason="look at it", for_s=None)
    .add("release", on=2, how="person", reason="")
    .add("held", on=2, clock="c1", ran_s=1.5, counted_s=0)
    .add("told", on=2, what="start", status=None)
    .answered("a1", "ceased")
    .add("requeued", submission=1, slurm_job_id=101, restart=1)
    .add("requeue_failed", submission=1, slurm_job_id=101, why="no such job")
    .suspected(1)
    .add("cleared", submission=1, reason="")
    .add(
        "updated",
        argv=None,
        script_sha256=None,
        script_name=None,
        script_args=None,
        rules=["failed:stop"],
        settings={"until": None},
        reason="",
    )
    .add("adopted", submission=2, publication="old", name="new", reason="better")
    .took_over("a9")
    .add("reopened", reason="", submission=3)
    .facts
    + Life().intent(1).add("burnt", submission=1, evidence="nowhere").facts
)
ONE_OF_EACH = {fact.kind: fact for fact in WHOLE}


def _with(fact: Fact, **fields: Any) -> bytes:
    content = json.loads(render(fact))
    content.update(fields)
    return json.dumps(content).encode()


def test_there_is_one_of_each_kind() -> None:
    assert set(ONE_OF_EACH) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fact_is_the_same_after_its_bytes(kind: str) -> None:
    fact = ONE_OF_EACH[kind]
    data = render(fact)
    assert parse_fact(fact.seq, data) == fact
    assert render(parse_fact(fact.seq, data)) == data
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in KINDS.items() for field in fields])
def test_every_field_must_be_there_and_of_its_form(kind: str, field: str) -> None:
    fact = ONE_OF_EACH[kind]
    content = json.loads(render(fact))
    del content[field]
    with pytest.raises(BadDataError, match=rf"fact {fact.seq} \({kind}\): no field {field}"):
        parse_fact(fact.seq, json.dumps(content).encode())
    # No field takes each of these: a number that is none, and an object in a list.
    for wrong in ([{}], 1e400, -(10**9)):
        with pytest.raises(BadDataError):
            parse_fact(fact.seq, _with(fact, **{field: wrong}))


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, fields in OPTIONAL.items() for field in fields]
)
def test_an_optional_field_has_its_default_and_is_of_its_form(kind: str, field: str) -> None:
    """Records that were made before there was such a field read as they did."""
    fact = ONE_OF_EACH[kind]
    content = json.loads(render(fact))
    del content[field]
    data = json.dumps(content).encode()
    default = OPTIONAL[kind][field][1]
    assert parse_fact(fact.seq, data).body[field] == default
    if isinstance(default, list | dict):
        assert parse_fact(fact.seq, data).body[field] is not default, "one reader's change would be everybody's"
    for wrong in ([[]], 1e400, -(10**9)):
        with pytest.raises(BadDataError):
            parse_fact(fact.seq, _with(fact, **{field: wrong}))


def test_a_specification_is_the_same_after_its_fact() -> None:
    spec = make_spec(stall_s=1800.0, suspect_s=30.0, until=9e8, no_progress=5, origins={"until": "job file"}, keep=7)
    assert Spec.from_fact(Life(spec).facts[0]) == spec


def test_unknown_fields_are_kept_and_passed_over() -> None:
    fact = parse_fact(1, _with(ONE_OF_EACH["spec"], colour="blue"))
    assert fact.body["colour"] == "blue"
    assert Spec.from_fact(fact) == make_spec()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"\xff{}", "is not JSON"),
        (b'{"v":1,"v":1}', "a name is in it twice"),
        (b'{"v":NaN}', "NaN is not a number"),
        (b"[" * 60_000, "is not JSON"),
        (b" " * 65_537, "more than the limit of 65536"),
        (b'{"v":2,"seq":1}', "has version 2"),
        (b'{"v":true,"seq":1}', "has version True"),
        (b'{"seq":1}', "has version None"),
        (b'{"v":1,"seq":2,"kind":"spec"}', "not that of its name"),
        (b'{"v":1,"seq":1,"kind":"wish"}', "'wish' is not a kind of fact"),
        (b'{"v":1,"seq":1,"kind":[]}', "is not a kind of fact"),
    ],
)
def test_bytes_that_are_no_fact_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(BadDataError) as caught:
        parse_fact(1, data)
    assert says in str(caught.value)
    assert "fact 1" in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_fact_or_bad_data(data: bytes) -> None:
    refusal: DispatchError | None = None
    try:
        parse_fact(1, data)
    except BadDataError as error:
        refusal = error
    assert refusal is None or (refusal.line().isprintable())


@pytest.mark.parametrize("kind", ["failed\n", "at", 7])
def test_what_a_reader_would_refuse_is_never_written(kind: Any) -> None:
    with pytest.raises(BadDataError):
        render(Fact(1, 1.0, kind, "me", {}))


def test_a_fact_that_is_too_large_is_never_written() -> None:
    body = {"submission": 1, "status": 1, "message": "é" * 20_000}
    with pytest.raises(BadDataError, match="more than the limit of 65536"):
        render(Fact(2, 1.0, "rejected", "me", body))


def test_a_body_cannot_change_the_envelope() -> None:
    with pytest.raises(BadDataError, match="a field cannot be called seq"):
        render(Fact(2, 1.0, "closed", "me", {"why": "", "reason": "", "seq": 9}))


def test_names_of_facts_sort_as_numbers() -> None:
    assert fact_name(1) == "0000000001"
    assert sorted(map(fact_name, (10, 9, 100))) == [fact_name(9), fact_name(10), fact_name(100)]
    for wrong in (0, -1, 10**10):
        with pytest.raises(BadDataError):
            fact_name(wrong)


def test_the_table_of_formats_has_the_same_kinds_and_fields() -> None:
    """The contract between the parts is what the code reads and writes."""
    text = (TOP / "ARCHITECTURE.md").read_text("utf-8")
    part = text.split("### Facts", 1)[1].split("\n## ", 1)[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE))
    assert set(rows) == set(KINDS)
    for kind, fields in KINDS.items():
        if kind == "node":
            continue  # "the node note's fields"; tests/state holds those to the notes' table
        plain = re.sub(r"\([^)]*\)", "", rows[kind])
        assert re.findall(r"`(\w+)`", plain) == [*fields, *OPTIONAL.get(kind, {})], kind
