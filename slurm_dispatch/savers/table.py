"""All layouts, in the order in which ``auto`` asks them: those with surer marks first, plain files last."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError
from slurm_dispatch.savers import accelerate, dcp, deepspeed, lightning, megatron, orbax, plain, transformers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.savers.layout import Layout

_ROWS = (
    transformers.LAYOUT,
    accelerate.LAYOUT,
    lightning.LAYOUT,
    deepspeed.LAYOUT,
    megatron.LAYOUT,
    orbax.LAYOUT,
    dcp.LAYOUT,
    plain.LAYOUT,
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType({row.name: row for row in _ROWS})
"""By name."""


def layout_named(name: str) -> Layout:
    """The layout that ``--layout`` calls ``name``.

    :raises UsageError: there is none; the names are listed.
    """
    found = LAYOUTS.get(name)
    if found is None:
        raise UsageError(f"there is no layout {name!r}", hint=f"it is one of auto, {', '.join(LAYOUTS)}")
    return found
