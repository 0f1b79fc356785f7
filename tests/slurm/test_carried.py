"""Which attempts the processes of this node carry."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.processes import EXEC_S, carried

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STAT = b"7 (sleep) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n"


def test_a_process_that_begins_a_program_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its exec and the first instruction of the program it shows no environment."""
    process = tmp_path / "7"
    process.mkdir()
    (process / "stat").write_bytes(STAT)
    (process / "environ").write_bytes(b"")
    waited = []

    def loaded(seconds: float) -> None:
        waited.append(seconds)
        (process / "environ").write_bytes(b"HOME=/\0DISPATCH_ATTEMPT=abc\0")

    monkeypatch.setattr(time, "sleep", loaded)
    assert carried(str(tmp_path)) == {"abc"}
    assert carried(str(tmp_path)) == {"abc"}
    assert waited == [EXEC_S], "only where there is such a process"
