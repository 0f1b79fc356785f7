"""What another host has just made can be missing in a listing; no look may carry that on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.store.scene import FIRST, NEW, OLD, SECOND, fresh, save

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_look_that_missed_the_newest_spoils_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C112: each look opens ``pub/`` anew, so that a client asks its server; nothing is remembered from look to look.

    Where a listing is stale all the same, what its execution publishes has the greater epoch and is the newest.
    """
    root = fresh(tmp_path)
    root.publish(FIRST, 5, save(root, OLD, "checkpoint-5"), attempt=OLD)
    newest = root.publish(FIRST, 9, save(root, OLD, "checkpoint-9"), attempt=OLD)
    list_folder, open_file = os.listdir, os.open
    opened: list[object] = []
    stale = [True] * 3

    def list_stale(folder: int) -> list[str]:
        names = list_folder(folder)
        if newest.name not in names or not stale:
            return names  # where the save is, is listed too
        stale.pop()
        return [name for name in names if name != newest.name]

    def count(name: str | bytes, *words: Any, **more: Any) -> int:
        opened.extend([name] if name in {"pub", b"pub"} else [])
        return open_file(name, *words, **more)

    monkeypatch.setattr(os, "listdir", list_stale)
    monkeypatch.setattr(os, "open", count)
    seen = [root.latest() for _ in range(4)]
    assert [one and one.publication.step for one in seen] == [5, 5, 5, 9]
    assert len(opened) == 4
    replacement = root.publish(SECOND, 6, save(root, NEW, "checkpoint-6"), attempt=NEW)
    last = root.latest()
    assert last is not None
    assert last.publication == replacement
