"""One pass over the jobs of a rig, as a process of its own: ``python -m tests.controller.one_pass FOLDER [RAN_S]``.

With ``RAN_S`` the site's clock shows that ticks ran for so long.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.siteview import SiteView
from tests.controller.rig import Rig


def one_pass(rig: Rig, ran_s: float | None = None) -> None:
    """The pass."""
    view = rig.view()
    if ran_s is not None:
        view.site = SiteView(known=True, hints=Hints(clock=Clock("k", ran_s, view.at)))
    rig.tick(view=view)


if __name__ == "__main__":
    one_pass(Rig(Path(sys.argv[1])), float(sys.argv[2]) if len(sys.argv) > 2 else None)
