"""The table of the failure cases says what the tests say."""

from __future__ import annotations

import pytest

from tests.cases import TABLE, Row, named, render, rows

ROWS = rows()
NAMED = named()


def test_every_case_stands_in_the_table_once() -> None:
    cases = [row.case for row in ROWS]
    assert len(cases) == 117
    assert cases == sorted(set(cases))  # the areas follow each other, and so do their numbers


def test_every_case_that_a_docstring_names_is_a_row() -> None:
    assert set(NAMED) <= {row.case for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_a_row_names_the_tests_that_name_it(row: Row) -> None:
    assert row.tests == NAMED.get(row.case, ()), f"run python -m tests.cases, and read the row of {row.case}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_a_case_without_a_test_says_what_it_waits_for(row: Row) -> None:
    kind = row.remark.partition(":")[0]
    assert kind in {"", "half", "refused", "later"}, row.remark
    assert (kind == "later") == (not row.tests), f"{row.case}: {row.tests}, {row.remark!r}"


def test_the_page_is_as_it_is_made() -> None:
    assert TABLE.read_text("utf-8") == render()
