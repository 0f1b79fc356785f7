"""The store on real NFS, from the host: every test of the suite passed in the second kernel, and so did those of two
mounts; and nothing is to be waited for between a publication and ``latest`` on another host.

These need ``user-mode-linux`` and the programs of NFS (``make kernel``); where they do not run they fail and say why.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.nfs.boot import LATE, OPTIONS, SUITE, TWO_MOUNTS, Result, boot
from tests.store.kinds import ON_NFS
from tests.uml.kernel import TOP

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nfs
WORST = "actimeo=30,lookupcache=all"
"""The options with which a client remembers most."""


def functions(file: str) -> set[str]:
    """The tests of a file."""
    tree = ast.parse((TOP / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def check(result: Result, file: str, kinds: tuple[str, ...] = ("",)) -> None:
    """Every test of the file passed, over each kind of store."""
    assert result.status == 0, result.bad()
    assert not result.bad()
    passed = [name.removeprefix(f"{file}::") for name in result.passed() if name.startswith(f"{file}::")]
    for kind in kinds:
        of = {name.partition("[")[0] for name in passed if not kind or kind in name.partition("[")[2].split("]")[0]}
        assert of == functions(file)


@pytest.mark.sample
def test_the_suite_and_two_mounts(tmp_path: Path) -> None:
    """C110, C111, C112: through two clients that the server knows apart, one of which forgets nothing for 30 s."""
    result = boot(tmp_path, ["", WORST], ["-k", "two", SUITE, TWO_MOUNTS])
    check(result, TWO_MOUNTS)
    check(result, SUITE, ("nfs-two-mounts",))
    assert len(set(result.clients)) == 2, result.clients


def test_a_product_that_looks_without_listing_is_found(tmp_path: Path) -> None:
    """C110, C111: it believes what its client remembers, of what is not there yet and of what is there no more."""
    result = boot(tmp_path, ["", WORST], [TWO_MOUNTS], mutant=True)
    failed = {name.partition("::")[2].partition("[")[0] for name, (outcome, _) in result.outcomes.items()
              if outcome == "failed"}  # fmt: skip
    assert failed >= {
        "test_what_helpers_say_to_each_other_is_read_at_once",
        "test_what_was_chosen_is_there_at_once",
        "test_a_marker_beside_a_save_is_seen_at_once",
        "test_a_save_that_another_host_renames_is_gone",
    }, result.bad()
    assert result.passed()


def test_the_window_is_seen_where_there_is_one(tmp_path: Path) -> None:
    """C112: a client that is told not to ask its server shows a publication late, and the measurement says so."""
    window = boot(tmp_path, [LATE] * 2, [], publications=2).window
    # The first makes ``pub/``, and a folder that was not there is not remembered.
    assert window["looks"][1] > 1
    # Half of the least time for which a client remembers a folder.
    assert window["latest"][1] > 15


@pytest.mark.parametrize("options", OPTIONS)
def test_all_of_it(tmp_path: Path, options: str) -> None:
    """C110, C111, C112: with each of the options of a client."""
    result = boot(tmp_path, [OPTIONS[options]] * 2, [SUITE, TWO_MOUNTS])
    check(result, TWO_MOUNTS)
    check(result, SUITE, tuple(ON_NFS))
