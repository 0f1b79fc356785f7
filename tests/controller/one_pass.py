"""One pass over the jobs of a rig, as a process of its own: ``python -m tests.controller.one_pass FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.controller.rig import Rig

if __name__ == "__main__":
    Rig(Path(sys.argv[1])).tick()
