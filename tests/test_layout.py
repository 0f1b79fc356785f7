"""What the house rules say of the tree's shape, checked on the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
MODULE_LINES = 500
FUNCTION_LINES = 70
TOP_LEVEL = {
    *(".ci", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml"),
    *("slurm_dispatch", "hooks", "site", "docs", "tests", "docker", "demo", "bench", "tools"),
}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base"}


def tracked(*patterns: str) -> list[Path]:
    """The files of the tree below the patterns: what git knows, or everything in a copy without git."""
    found = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns], cwd=TOP, capture_output=True, check=False
    )
    if found.returncode == 0:
        return [TOP / name for name in found.stdout.decode().split("\n") if name and (TOP / name).is_file()]
    return [path for pattern in patterns for path in TOP.glob(pattern) if path.is_file()]


PYTHON = [path for path in tracked("*.py") if path.suffix == ".py"]
SHIPPED = [p for p in PYTHON if p.relative_to(TOP).parts[0] in {"slurm_dispatch", "hooks"}]


def test_there_is_something_to_check() -> None:
    assert len(SHIPPED) > 30
    assert len(PYTHON) > len(SHIPPED)


def test_the_top_level_holds_what_it_is_said_to_hold() -> None:
    # A test that takes `s3://bucket` for a path leaves a folder `s3:` here, and it was committed once.
    assert {path.relative_to(TOP).parts[0] for path in tracked("*")} <= TOP_LEVEL


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(TOP)))
def test_a_module_is_short_and_named(path: Path) -> None:
    source = path.read_text("utf-8")
    assert source.count("\n") < MODULE_LINES, f"{path} has {source.count(chr(10))} lines"
    assert path.stem not in FORBIDDEN_NAMES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length < FUNCTION_LINES, f"{path}:{node.lineno} {node.name} has {length} lines"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(TOP)))
def test_no_lock_of_any_kind(path: Path) -> None:
    source = path.read_text("utf-8")
    for word in ("flock", "lockf", "F_SETLK", "F_OFD", "filelock", "fasteners", "portalocker"):
        assert not re.search(rf"(?<![a-z_]){word}\b", source), f"{path} speaks of {word}"


def test_public_definitions_of_the_package_have_docstrings() -> None:
    missing = []
    for path in SHIPPED:
        tree = ast.parse(path.read_text("utf-8"))
        if path.name != "__init__.py" and ast.get_docstring(tree) is None:
            missing.append(f"{path}: module")
        for node in tree.body:
            named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if named and ast.get_docstring(node) is None:
                missing.append(f"{path}:{node.lineno} {node.name}")
    assert not missing, "\n".join(missing)


def test_site_holds_no_python() -> None:
    assert not [p for p in tracked("site") if p.suffix == ".py"]


def test_shell_files_start_with_an_interpreter_and_are_executable() -> None:
    for path in tracked("hooks", "docker", "tools", ".ci"):
        first = path.read_bytes()[:2]
        if first == b"#!" and "assets" not in path.parts:
            assert path.stat().st_mode & 0o111, f"{path} is not executable"


def test_no_text_names_a_machine_or_a_registry() -> None:
    # Written in pieces so that this file does not find itself.
    words = ["pypi" + ".org", "registry" + ".npmjs", "deb" + ".debian" + ".org"]
    # A path from the top, not a folder of the tree that has that name.
    own_path = re.compile(r"(?<![A-Za-z0-9_.-])/wo" + "rk/")
    for path in tracked("*"):
        try:
            text = path.read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        for word in words:
            assert word not in text, f"{path} names {word}"
        assert not own_path.search(text), f"{path} names a path of one machine"
