"""The built-in answer, the question, and the counting: all pure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.cessation import (
    ANSWERS,
    CEASED,
    RUNNING,
    UNKNOWN,
    Counted,
    NodeWord,
    answered,
    parse_question,
    question,
    tally,
    words_of,
)
from slurm_dispatch.records.facts import Fact
from slurm_dispatch.records.state import Cessation
from slurm_dispatch.slurm.cessation import judge, parse_reasons, unproved
from slurm_dispatch.slurm.port import Unknown
from tests.cessation.made import ATTEMPT, clean, execution

FINE = {"c1": "none", "c2": "none", "c3": "none"}
AT = 5000.0


def says(*words: NodeWord, reasons: dict[str, str] | Unknown = FINE) -> str:
    asked = execution(*words)
    answer = judge(asked, reasons, AT)
    assert (answer.answer == CEASED) == (unproved(asked, reasons) == [])
    assert (answer.source, answer.at) == ("slurm-nodes", AT)
    return answer.answer


def test_every_node_clean_is_ceased() -> None:
    assert says(clean("c1"), clean("c2")) == CEASED
    assert says(clean("c1"), clean("c2", how="boot")) == CEASED


@pytest.mark.parametrize(
    "other",
    [
        None,
        clean("c3"),
        clean("c2", verified=False),
        clean("c2", clean=None),
        clean("c2", verified=False, how="boot"),
        clean("c2", clean=None, how="boot"),
    ],
)
def test_one_node_without_proof_is_unknown(other: NodeWord | None) -> None:
    """Not listed, COMPLETING gone, DOWN, NODE_FAIL and time passed are not asked for at all: they prove nothing."""
    words = [clean("c1"), *([other] if other else [])]
    assert says(*words) == UNKNOWN
    assert says(*reversed(words)) == UNKNOWN
    assert unproved(execution(*words), FINE) == ["c2"]


def test_processes_that_were_left_are_running_whatever_is_known_of_others() -> None:
    assert says(clean("c1"), clean("c2", clean=False)) == RUNNING
    assert says(clean("c2", clean=False)) == RUNNING


def test_the_latest_word_of_a_node_counts() -> None:
    assert says(clean("c1"), clean("c2", clean=False), clean("c2")) == CEASED
    assert says(clean("c1"), clean("c2"), clean("c2", clean=False)) == RUNNING
    assert says(clean("c1"), clean("c2"), clean("c2", clean=None)) == UNKNOWN
    assert says(clean("c1"), clean("c2", how="boot"), clean("c2", clean=False)) == RUNNING
    assert says(clean("c1"), clean("c2"), clean("c2", verified=False, clean=False)) == CEASED


@pytest.mark.parametrize(
    "reason", ["Kill task failed", "Kill task failed [root@x]", "Not responding\nKILL TASK FAILED"]
)
def test_a_node_on_which_slurm_gave_up_on_a_process_is_unknown(reason: str) -> None:
    """C160."""
    assert says(clean("c1"), clean("c2"), reasons={**FINE, "c2": reason}) == UNKNOWN
    assert says(clean("c1"), clean("c2"), reasons={**FINE, "c3": reason}) == CEASED
    # A process that could not be killed does not outlive the boot.
    assert says(clean("c1"), clean("c2", how="boot"), reasons={**FINE, "c2": reason}) == CEASED


def test_without_an_answer_of_slurm_a_scan_is_no_proof_and_a_boot_is() -> None:
    assert says(clean("c1"), clean("c2"), reasons=Unknown("away")) == UNKNOWN
    assert says(clean("c1"), clean("c2"), reasons={"c1": "none"}) == UNKNOWN
    assert says(clean("c1", how="boot"), clean("c2", how="boot"), reasons=Unknown("away")) == CEASED


WORDS = st.builds(
    NodeWord,
    st.sampled_from(["c1", "c2", "c3"]),
    st.sampled_from([True, False, None]),
    st.booleans(),
    st.sampled_from(["scan", "boot"]),
)


@given(st.lists(WORDS, max_size=8), st.sampled_from(["none", "Kill task failed"]))
def test_ceased_needs_a_proof_of_each_node(words: list[NodeWord], reason: str) -> None:
    if says(*words, reasons={**FINE, "c2": reason}) != CEASED:
        return
    for node in ("c1", "c2"):
        last = [word for word in words if word.node == node and word.verified][-1]
        assert last.clean is True
        assert last.how == "boot" or node != "c2" or reason == "none"


@given(st.lists(WORDS, max_size=8))
def test_a_question_reads_as_it_was_written(words: list[NodeWord]) -> None:
    asked = execution(*words, user='a"\n\x00\u2028é', start=None)
    data = question(asked)
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert parse_question(data) == asked


def test_the_question_is_what_the_site_was_told() -> None:
    assert json.loads(question(execution(clean("c1", seen=3.0)))) == {
        "v": 1,
        "cluster": "lab",
        "object": 7,
        "attempt": ATTEMPT,
        "nodes": ["c1", "c2"],
        "start": 1000.0,
        "end": 2000.0,
        "owner": "ada",
        "uid": 54321,
        "evidence": [{"node": "c1", "clean": True, "verified": True, "how": "scan", "seen": 3.0}],
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempt", "a b"),
        ("attempt", "$(x)"),
        ("object", 0),
        ("object", "7"),
        ("object", True),
        ("uid", -1),
        ("nodes", []),
        ("nodes", ["c1", "-oProxyCommand=x"]),
        ("nodes", ["c1 c2"]),
        ("nodes", ["c1\nc2"]),
        ("nodes", ["c1;id"]),
        ("nodes", "c1"),
        ("nodes", [1]),
        ("start", "now"),
        ("evidence", {}),
        ("evidence", [{"node": "c1", "clean": "true", "verified": True, "how": "scan"}]),
        ("evidence", [{"node": "c1", "clean": True, "verified": True, "how": "hearsay"}]),
        ("evidence", [{"node": "c1", "clean": True}]),
        ("v", 2),
    ],
)
def test_what_is_no_question_is_refused(field: str, value: object) -> None:
    content = json.loads(question(execution()))
    content[field] = value
    with pytest.raises(BadDataError):
        parse_question(json.dumps(content).encode())


@pytest.mark.parametrize("missing", ["cluster", "object", "attempt", "nodes", "start", "end", "owner", "uid"])
def test_a_question_without_a_field_is_refused(missing: str) -> None:
    content = json.loads(question(execution()))
    del content[missing]
    with pytest.raises(BadDataError, match=missing):
        parse_question(json.dumps(content).encode())


def test_a_question_without_evidence_is_one_of_which_nothing_is_known() -> None:
    content = json.loads(question(execution(clean("c1"))))
    del content["evidence"]
    assert parse_question(json.dumps(content).encode()) == execution()


def node_fact(seq: int, node: str, clean: bool | None, *, seen: float | None = None, attempt: str = ATTEMPT) -> Fact:
    body = {"attempt": attempt, "node": node, "clean": clean, "verified": True, "how": "scan", "seen": seen}
    return Fact(seq, 0.0, "node", "tick@ctl", body)


def test_the_words_of_an_execution_are_in_the_order_in_which_they_were_said() -> None:
    late = [node_fact(2, "c1", True, seen=9.0), node_fact(3, "c1", False, seen=8.0)]
    late.append(node_fact(4, "c1", None, attempt="x"))
    assert [(word.clean, word.seen) for word in words_of(late, ATTEMPT)] == [(False, 8.0), (True, 9.0)]
    untold = [node_fact(2, "c1", True, seen=9.0), node_fact(3, "c1", False)]
    assert [word.clean for word in words_of(untold, ATTEMPT)] == [True, False]


def test_an_answer_is_one_short_line() -> None:
    answer = answered(UNKNOWN, "x", "a\nb\x1b[0m" + "c" * 1000, AT)
    assert answer.detail.isprintable()
    assert len(answer.detail) == 500
    with pytest.raises(BadDataError):
        answered("maybe", "x", "", AT)


def fact_of(answer: str, last: float, count: int = 1) -> Cessation:
    return Cessation(3, answer, "x", "why", count, last, last)


def test_equal_answers_are_counted_and_another_one_brings_the_count() -> None:
    told, kept = fact_of(UNKNOWN, 10.0), None
    for number in range(1, 6):
        answer, kept = tally(told, kept, answered(UNKNOWN, "x", f"why {number}", 10.0 + number))
        assert (answer.count, answer.first, answer.before) == (number, 11.0, None)
        assert kept == Counted(UNKNOWN, "x", f"why {number}", number, 11.0, 10.0 + number)
    answer, nothing = tally(told, kept, answered(CEASED, "x", "", 16.0))
    assert nothing is None
    assert (answer.count, answer.answer) == (1, CEASED)
    before = answer.before
    assert before is not None
    assert (before.answer, before.count, before.first, before.at) == (UNKNOWN, 5, 11.0, 15.0)


def test_the_first_answer_is_a_fact_at_once() -> None:
    answer = answered(UNKNOWN, "x", "", 1.0)
    assert tally(None, Counted(UNKNOWN, "x", "", 7, 0.0, 0.5), answer) == (answer, None)


def test_a_count_that_a_fact_has_already_is_not_counted_again() -> None:
    kept = Counted(UNKNOWN, "x", "", 7, 1.0, 9.0)
    answer, _ = tally(fact_of(UNKNOWN, 9.0, 7), kept, answered(UNKNOWN, "x", "", 12.0))
    assert answer.count == 1


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=30))
def test_every_answer_is_in_one_fact(given_answers: list[str]) -> None:
    """What decide makes facts of: the first, and each that is another one, with the count before it."""
    told: Cessation | None = None
    kept: Counted | None = None
    total = 0
    for at, word in enumerate(given_answers, 1):
        answer, kept = tally(told, kept, answered(word, "x", "", float(at)))
        for it in (answer.before, answer):
            if it is not None and (it is answer.before or told is None or told.answer != it.answer):
                told = Cessation(at, it.answer, it.source, it.detail, it.count, it.first or it.at, it.at)
                total += it.count
    assert total + (kept.count if kept else 0) == len(given_answers)


def test_what_sinfo_says_is_read_by_its_mark() -> None:
    text = "m|c1|none\nm|c2|Kill task failed [root@2026|x]\nm|c3|first\nm|c1|forged? no: a line goes on\nm|c1|none\n"
    text = text.replace("m|c1|forged", "x|c1|forged")
    found = parse_reasons(text, "m")
    assert found == {
        "c1": "none\nnone",
        "c2": "Kill task failed [root@2026|x]",
        "c3": "first\nx|c1|forged? no: a line goes on",
    }
    assert isinstance(parse_reasons("slurm_load_node: error\n", "m"), Unknown)
    assert parse_reasons("", "m") == {}


def test_a_node_list_must_be_names() -> None:
    with pytest.raises(BadDataError, match="not the name of a node"):
        replace(execution(), nodes=("c1", "c2$(id)"))
