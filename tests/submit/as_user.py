"""Runs ``dispatch ARGV`` as the user of a scene, in a process of its own: for tests that trace and kill it."""

from __future__ import annotations

import os
import sys

from tests.submit import scene


def main() -> int:
    """Drop root's rights, if there are any, and run the command."""
    uid, gid, _ = scene.person()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    from slurm_dispatch.cli.main import main as dispatch

    return dispatch(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
