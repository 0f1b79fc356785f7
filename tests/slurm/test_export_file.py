"""How the job's environment is handed to sbatch, release by release."""

from __future__ import annotations

import pytest

from slurm_dispatch.slurm import commands
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.port import Accepted, SbatchCall
from tests.slurm.test_arrays import Said


@pytest.mark.parametrize(
    ("release", "options", "exports"),
    [
        ("22.05", ("-n1",), []),
        ("24.11", ("-n1",), []),
        ("26.05", ("-n1",), ["--export=ALL"]),
        ("26.05", ("--export=ALL,A=1",), ["--export=ALL", "--export=ALL,A=1"]),
    ],
)
def test_the_file_of_the_environment_is_read_by_each_release(
    monkeypatch: pytest.MonkeyPatch, release: str, options: tuple[str, ...], exports: list[str]
) -> None:
    """Slurm 26.05 drops what is in the file where no --export stands beside it: the job has no root then."""
    said = Said(stdout="Submitted batch job 7\n", release=release)
    monkeypatch.setattr(commands, "run", said)
    monkeypatch.setattr(commands, "find", lambda *_: "/usr/bin/sbatch")
    call = SbatchCall(
        argv=(*options, "--wrap", "true"), environment={}, deadline_s=9.0, script=b"", job_environment=b"A=1\0"
    )
    assert isinstance(SlurmCommands({}).submit(call), Accepted)
    argv = said.argvs[-1]
    assert any(word.startswith("--export-file=") for word in argv)
    assert [word for word in argv if word.startswith("--export=")] == exports
