"""The loop over the jobs of a site, as a process: ``python -m tests.controller.one_loop FOLDER INTERVAL``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from slurm_dispatch.controller.kick import Kick
from slurm_dispatch.controller.loop import Loop
from tests.controller.sites import Site

if __name__ == "__main__":
    site = Site(Path(sys.argv[1]))
    controller = site.controller()

    def tick(full: bool) -> float | None:
        again = controller.tick(full=full, patience_s=5.0)
        for line in site.log:
            sys.stdout.write(line + "\n")
        sys.stdout.write("full\n" if full else "quick\n")
        sys.stdout.flush()
        site.log.clear()
        return again

    kick = Kick(os.path.join(site.rig.path, "notes"), controller.as_slurm_user)
    Loop(tick, kick, float(sys.argv[2])).run()
    controller.stop()
    sys.stdout.write("ended\n")
