"""The small JSON objects that stand in a root: one line of text each, with a version."""

from __future__ import annotations

import json
from typing import Any

WRONG = (ValueError, TypeError, KeyError, AttributeError)
"""What reading one can raise that is not what it should be, :func:`read_body` and whoever takes fields of it."""


def render_body(version: int, **fields: object) -> bytes:
    """The text of an object."""
    return json.dumps({"v": version, **fields}).encode("ascii") + b"\n"


def read_body(content: bytes, version: int) -> dict[str, Any]:
    """The inverse of :func:`render_body`.

    :raises ValueError: it is none, or of another version.
    """
    try:
        body = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    found = body.get("v") if isinstance(body, dict) else None
    if found != version:
        raise ValueError(f"version {found!r} is not known")
    return dict(body)


__all__ = ["WRONG", "read_body", "render_body"]
