"""``<record>/asked``: how often a cessation answer came again since the last fact about it.

Equal answers in a row are one fact with a count, and a fact is never changed: so the count is kept here until it
becomes a fact. The file can be lost at any time; then the count begins anew.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from slurm_dispatch.durable import read_regular, replace_whole
from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.records import forms as f
from slurm_dispatch.records.cessation import ANSWERS, Counted

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "asked"
SIZE_MAX = 1 << 20
_FORMS: dict[str, f.Form] = {
    "answer": f.one_of(*ANSWERS),
    "source": f.text,
    "detail": f.text,
    "count": f.integer(1, 10**9),
    "first": f.moment,
    "last": f.moment,
}


def read_asked(folder: str) -> dict[str, Counted]:
    """What the record's folder keeps, by attempt. With the owner's rights; anything wrong with it is nothing kept."""
    try:
        content = f.parse_object(read_regular(os.path.join(folder, NAME), SIZE_MAX), NAME, limit=SIZE_MAX)
        found: dict[str, Counted] = {}
        for attempt, kept in content.items():
            f.attempt(attempt)
            f.obj(kept)
            for name, form in _FORMS.items():
                form(kept.get(name))
            found[attempt] = Counted(**{name: kept[name] for name in _FORMS})
    except (StoreError, BadDataError):
        return {}
    return found


def write_asked(folder: str, kept: Mapping[str, Counted]) -> None:
    """Replace it, whole. Failing is harmless, and is not told."""
    content = {
        "v": f.VERSION,
        **{attempt: {name: getattr(it, name) for name in _FORMS} for attempt, it in kept.items()},
    }
    try:
        replace_whole(folder, NAME, json.dumps(content).encode("ascii") + b"\n")
    except OSError:
        pass  # the count begins anew


__all__ = ["NAME", "read_asked", "write_asked"]
