"""How the guest tells the host: one line of JSON a statement, on the console.

A line is on its way out of the guest when the call that wrote it returns, so a kill of the guest cannot take it back.
"""

from __future__ import annotations

import json
import os
from typing import Any

MARK = "@guest "


def tell(kind: str, **fields: Any) -> None:
    """Say it."""
    line = MARK + json.dumps({"kind": kind, **fields}) + "\n"
    view = memoryview(line.encode("ascii"))
    while view:
        view = view[os.write(1, view) :]


def heard(line: str) -> dict[str, Any] | None:
    """What a whole line said, or ``None`` if it is another one."""
    line = line.rstrip("\r\n")
    if not line.startswith(MARK):
        return None
    found = json.loads(line[len(MARK) :])
    return found if isinstance(found, dict) else None
