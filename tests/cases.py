"""The table of the failure cases, ``tests/CASES.md``: which test shows which.

``python -m tests.cases`` writes the tests that name a case in their docstring into the table; titles and remarks are
written by hand.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TABLE = TESTS / "CASES.md"
CASE = re.compile(r"\bC[0-9]{3}\b")
_ROW = re.compile(r"\| (?P<case>C[0-9]{3}) \| (?P<title>[^|]+) \| (?P<tests>[^|]*) \| (?P<remark>[^|]*) \|\Z")


@dataclass(frozen=True)
class Row:
    """One case of the table.

    :ivar tests: as ``folder/file.py::function``, below ``tests/``.
    :ivar remark: ``half: ...`` where only a part of the right behaviour is shown, ``refused: ...`` where what the
        case is about is not taken on, ``later: ...`` where nothing is shown.
    """

    case: str
    title: str
    tests: tuple[str, ...]
    remark: str

    def line(self) -> str:
        """The row as it stands in the table."""
        tests = ", ".join(f"`{test}`" for test in self.tests)
        return f"| {self.case} | {self.title} | {tests} | {self.remark} |"


def read_row(line: str) -> Row | None:
    """The row of a line of the page; ``None`` for a line that is no case's."""
    match = _ROW.match(line)
    if match is None:
        return None
    tests = tuple(test.strip("`") for test in match["tests"].split(", ") if test)
    return Row(match["case"], match["title"], tests, match["remark"])


def rows() -> list[Row]:
    """The rows of the table, in its order."""
    found = (read_row(line) for line in TABLE.read_text("utf-8").splitlines())
    return [row for row in found if row is not None]


def named() -> dict[str, tuple[str, ...]]:
    """The tests whose docstring names a case, for each case."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                for case in sorted(set(CASE.findall(ast.get_docstring(node) or ""))):
                    found.setdefault(case, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return {case: tuple(tests) for case, tests in found.items()}


def render() -> str:
    """The page with the tests as they are now."""
    tests = named()
    lines = []
    for line in TABLE.read_text("utf-8").splitlines():
        row = read_row(line)
        lines.append(line if row is None else Row(row.case, row.title, tests.get(row.case, ()), row.remark).line())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(render(), "utf-8")
