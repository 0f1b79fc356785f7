"""A small training program for the tests of the helper: it saves, waits to be told to go on, and ends as it is told.

Its words are done in order::

    save N          write checkpoint-N: ``weights`` in two pieces, then ``done`` (what --done looks for)
    torn N          write checkpoint-N, and die by SIGKILL after half of ``weights``
    half N          write half of checkpoint-N and go on
    bare N          write checkpoint-N without ``done``
    drop N          remove checkpoint-N, as a rotation does
    rewrite N       write the ``weights`` of checkpoint-N again, in place
    wait NAME       until the file NAME is in the folder given first
    touch NAME      make it
    trap SIG        from now on write NAME ``got-SIG`` there instead of dying
    exit N          end with this status
    kill SIG        end by this signal
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

HALF = 100_000
DEADLINE_S = 120.0


def write(directory: str, step: str, *, whole: bool, done: bool, die: bool = False) -> None:
    folder = os.path.join(directory, f"checkpoint-{step}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights"), "wb") as file:
        file.write(step.encode() + b"a" * HALF)
        file.flush()
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        if whole:
            file.write(b"b" * HALF)
    if done:
        with open(os.path.join(folder, "done"), "w", encoding="ascii") as file:
            file.write("1")


def main(words: list[str]) -> int:
    gates, directory, *rest = words
    script = iter(rest)
    for verb in script:
        name = next(script)
        if verb in {"save", "bare", "half", "torn"}:
            write(directory, name, whole=verb in {"save", "bare"}, done=verb == "save", die=verb == "torn")
        elif verb == "drop":
            shutil.rmtree(os.path.join(directory, f"checkpoint-{name}"))
        elif verb == "rewrite":
            with open(os.path.join(directory, f"checkpoint-{name}", "weights"), "r+b") as file:
                file.write(b"torn")
        elif verb == "wait":
            ends_at = time.monotonic() + DEADLINE_S
            while not os.path.exists(os.path.join(gates, name)):
                if time.monotonic() > ends_at:
                    return 99
                time.sleep(0.01)
        elif verb == "touch":
            with open(os.path.join(gates, name), "w", encoding="ascii"):
                pass
        elif verb == "trap":
            marker = os.path.join(gates, f"got-{name}")
            signal.signal(signal.Signals[f"SIG{name}"], lambda *_, m=marker: open(m, "w", encoding="ascii").close())
        elif verb == "exit":
            os._exit(int(name))  # at once: an interpreter that ends slowly would leave time for another scan
        elif verb == "kill":
            os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
