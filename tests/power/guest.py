"""``python -m tests.power.guest CONFIG``, in the second kernel: look at each disk, then write on each.

CONFIG is a JSON file: ``turn``, ``seed``, ``lanes`` (list of objects: ``options`` for mount, ``told`` (path of a file
with one statement a line), ``stop`` ([kind, n] or null), ``mutant`` ("", "file", "folder" or "deaf")), ``write``
(bool), ``calls``, ``armed``. A lane with a stop is written on until its statement, the last one until the power goes.
With ``calls`` each is written on so often then, whatever fails: those without a stop are nearly full, those with one
come once the file ``armed`` is there, from when on no write succeeds.
"""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.power.checker import Checker
from tests.power.writer import Writer
from tests.uml.channel import tell

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 600.0
"""Nobody took the power away: then whoever should have is dead, and the guest ends by itself."""
LEFT_BYTES = 3 << 19
"""On a disk that gets full: two saves."""
LOST_MAX = 5
"""Of each disk and kind, so many are told one by one."""


def main(path: str) -> None:
    """All of it; trouble of its own is told as ``failed``."""
    try:
        with open(path, encoding="utf-8") as stream:
            config = json.load(stream)
        _hold_back()
        lanes = [_mount(number, lane) for number, lane in enumerate(config["lanes"])]
        tell("up")
        for number, lane in enumerate(config["lanes"]):
            _look(number, lanes[number], lane)
        if config["write"]:
            writers = [_writer(number, lanes[number], lane, config) for number, lane in enumerate(config["lanes"])]
            for number, (writer, lane) in enumerate(zip(writers, config["lanes"], strict=True)):
                tell("writing", lane=number)
                _as_mutant(lane, writer.run if lane["stop"] or not config["calls"] else _nothing)
            if config["calls"]:
                _trouble(writers, config)
            tell("stopped")
            time.sleep(WAIT_S)  # for the power to go
        else:
            tell("end")
    except Exception:
        tell("failed", why=traceback.format_exc())


def _hold_back() -> None:
    """Nothing gets to a disk but by what the product itself asks for."""
    for name, value in (("dirty_writeback_centisecs", 0), ("dirty_expire_centisecs", 360_000), ("dirty_ratio", 90),
                        ("dirty_background_ratio", 80)):  # fmt: skip
        with open(f"/proc/sys/vm/{name}", "w", encoding="ascii") as stream:
            stream.write(str(value))


def _mount(number: int, lane: dict[str, Any]) -> str:
    folder = f"/dev/lanes/{number}"
    os.makedirs(folder)
    device = f"/dev/ubd{chr(ord('a') + number)}"
    options = ["-o", lane["options"]] if lane["options"] else []
    subprocess.run(["mount", "-t", "ext4", *options, device, folder], check=True)
    return folder


def _look(number: int, folder: str, lane: dict[str, Any]) -> None:
    with open(lane["told"], encoding="utf-8") as stream:
        told = [json.loads(line) for line in stream]
    checker = Checker(folder, told)
    checker.run()
    of: Counter[str] = Counter()
    for kind, what, why in checker.lost:
        of[kind] += 1
        if of[kind] <= LOST_MAX:
            tell("lost", lane=number, of=kind, what=what, why=why[-600:])
    tell("looked", lane=number, lost=len(checker.lost), found=checker.found)


def _writer(number: int, folder: str, lane: dict[str, Any], config: dict[str, Any]) -> Writer:
    rng = random.Random(f"{config['seed']} {config['turn']} {number}")
    stop = None if lane["stop"] is None else (lane["stop"][0], lane["stop"][1])
    return Writer(folder, number, config["turn"], rng, stop)


def _trouble(writers: list[Writer], config: dict[str, Any]) -> None:
    """Write on where writing fails, and says so."""
    lanes = config["lanes"]
    for writer, lane in zip(writers, lanes, strict=True):
        if lane["stop"] is None:
            writer.fill(LEFT_BYTES)
            _as_mutant(lane, lambda writer=writer: writer.run_on(config["calls"]))
    tell("arm")
    end = time.monotonic() + WAIT_S
    while not os.path.exists(config["armed"]):
        if time.monotonic() > end:
            raise AssertionError(f"nobody made {config['armed']}")
        time.sleep(0.01)
    for writer, lane in zip(writers, lanes, strict=True):
        if lane["stop"] is not None:
            _as_mutant(lane, lambda writer=writer: writer.run_on(config["calls"]))


def _nothing() -> None:
    """Its turn comes later."""


def _as_mutant(lane: dict[str, Any], write: Callable[[], None]) -> None:
    fsync = os.fsync
    if lane["mutant"] == "deaf":
        os.fsync = _deaf
    elif lane["mutant"]:
        os.fsync = _without(stat.S_ISDIR if lane["mutant"] == "folder" else stat.S_ISREG)
    try:
        write()
    finally:
        os.fsync = fsync


def _deaf(file: Any, fsync: Any = os.fsync) -> None:
    """``os.fsync`` for a product that does not hear what it says."""
    try:
        fsync(file)
    except OSError:
        pass


def _without(what: Any) -> Any:
    """``os.fsync`` for a product that forgot it for this type of file."""
    fsync = os.fsync

    def forgetful(file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        if not what(os.fstat(descriptor).st_mode):
            fsync(descriptor)

    return forgetful


if __name__ == "__main__":
    main(sys.argv[1])
