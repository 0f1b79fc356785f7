"""What an actual run of a hook loads: a few modules of the standard library, and nothing of any site."""

from __future__ import annotations

import pytest

from tests.hooks.lab import HOOKS, PYTHON_HOOKS, PYTHONS, Lab, run

ALLOWED = {
    *(
        "_sha2",
        "_sha256",
        "errno",
        "os",
        "posixpath",
        "genericpath",
        "pwd",
        "select",
        "stat",
        "_stat",
        "sys",
        "syslog",
    ),
    *("time", "_collections_abc", "posix"),
}
"""Beyond what ``python3 -IS -c pass`` has loaded already."""


def loaded(python: str, code: str, argv: list[str], environment: dict[str, str]) -> set[str]:
    ended = run([python, "-IS", "-c", code + "\nimport sys; print(' '.join(sys.modules))", *argv], environment)
    assert (ended.status, ended.stderr) == (0, b"")
    return set(ended.stdout.decode().split())


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
def test_a_run_loads_little(lab: Lab, hook: str) -> None:
    lab.run("prolog")
    argv = [f"{HOOKS}/python/start.py", hook, str(lab.conf), str(lab.run_folder)]
    code = (
        f"import os, sys; sys.argv = {argv!r}\n"
        "end, me, statuses = os._exit, os.getpid(), []\n"
        "os._exit = lambda status: end(status) if os.getpid() != me else statuses.append(status)\n"
        "with open(sys.argv[0], 'rb') as file:\n    code = compile(file.read(), sys.argv[0], 'exec')\n"
        "exec(code)\nassert statuses == [0]\n"
    )
    bare = loaded(lab.python, "pass", [], {})
    names = {name for name in loaded(lab.python, code, [], lab.environment()) - bare if "." not in name}
    assert names - ALLOWED <= {"dispatch_hooks"}, names - ALLOWED
    assert "dispatch_hooks" in names


@pytest.mark.parametrize("name", list(PYTHONS))
def test_every_module_compiles(name: str) -> None:
    code = (
        "import os, sys\n"
        f"for folder, _, files in os.walk({str(HOOKS / 'python')!r}):\n"
        "    for file in files:\n"
        "        if file.endswith('.py'):\n"
        "            path = os.path.join(folder, file)\n"
        "            with open(path, 'rb') as source:\n"
        "                compile(source.read(), path, 'exec', dont_inherit=True)\n"
    )
    ended = run([PYTHONS[name], "-W", "error", "-IS", "-c", code], {})
    assert (ended.status, ended.stderr) == (0, b"")


def test_nothing_is_written_beside_the_hooks(system_lab: Lab) -> None:
    before = sorted(path for path in HOOKS.rglob("*") if "__pycache__" not in path.parts)
    for hook in PYTHON_HOOKS:
        system_lab.run(hook)
    assert sorted(path for path in HOOKS.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
def test_what_stands_in_the_working_folder_is_not_loaded(
    system_lab: Lab, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("os", "errno", "select", "time", "dispatch_hooks", "sitecustomize", "usercustomize"):
        (system_lab.folder / f"{name}.py").write_text("import sys\nsys.exit(77)\n")
    monkeypatch.chdir(system_lab.folder)
    environment = {
        "PYTHONPATH": str(system_lab.folder),
        "PYTHONHOME": "/nonexistent",
        "PYTHONSTARTUP": "/nonexistent",
    }
    assert system_lab.run("prolog", **environment).status == 0
    ended = system_lab.run(hook, **environment)
    assert (ended.status, ended.stderr) == (0, b"")
    assert system_lab.names() or system_lab.files()
