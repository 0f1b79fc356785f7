"""What the helper does to a root, in one process: prepare, then one scan that keeps and publishes step 10.

For the test that kills it at every call; the helper itself does the two in processes of its own.
"""

from __future__ import annotations

import os
import sys

from slurm_dispatch.watch.judge import Judge
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import find_place
from slurm_dispatch.watch.prepare import prepare
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.turn import end_run, this_process


def main() -> int:
    options = parse(["--done", "done", "--", "x"])
    place = find_place(os.environ, root=None)
    prepared = prepare(place, start_from=None, copy=False, runner=this_process(os.getpid()), judge=Judge(options))
    assert prepared.run is not None, prepared.other
    from slurm_dispatch.store.root import open_root

    root = open_root(place.root)
    publisher = Publisher(
        root, place, options, resumed_step=prepared.step, known=prepared.known, links=prepared.links
    )
    publisher.begin()
    publisher.scan(assume=False)
    end_run(root, place.attempt, prepared.run, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
