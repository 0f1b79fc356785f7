"""``--layout auto``: which saver made this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.savers.table import LAYOUTS

if TYPE_CHECKING:
    from slurm_dispatch.savers.layout import Layout
    from slurm_dispatch.savers.view import SaveView


def recognise(view: SaveView) -> Layout | None:
    """The first layout of the table that recognises the save by what is in it, ``None`` if none does.

    Half a save is enough: it is recognised by a file that only this saver writes.

    :raises OSError: of the view's reader.
    """
    return next((layout for layout in LAYOUTS.values() if layout.recognises(view)), None)
