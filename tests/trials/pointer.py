"""The rival design with a pointer: separate folders, and a pointer file that is checked, then renamed into place.

``python pointer.py ROOT RUN -- command...``: says in ``ROOT/owner`` that ``RUN`` (a number) is the current run,
starts the command with its own folder and with the save that ``ROOT/latest`` points at, and for each new whole
save: looks whether ``owner`` is still this run, checks the save's files, writes a new pointer, renames it over
``latest``. This is how it is usually written, and it is written here as well as it can be: the pointer is never
torn, a save is only pointed at when it is whole, and the old run looks whether it has been replaced before
every rename.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

MARKER = "trainer_state.json"
CHECK_S = 0.03
"""What checking a save takes, at least; a save of some gigabytes takes far longer."""


def put(path: str, text: str) -> None:
    """Replace ``path`` by a file with ``text``, never seen half-written, durable."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def get(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def newest(folder: str) -> tuple[int, str] | None:
    """The whole save of the highest number."""
    found = []
    for name in os.listdir(folder):
        number = name.removeprefix("checkpoint-")
        if number.isdigit() and os.path.exists(os.path.join(folder, name, MARKER)):
            found.append((int(number), os.path.join(folder, name)))
    return max(found, default=None)


def check(save: str) -> bool:
    """Whether every file of the save can be read and its marker parses."""
    time.sleep(CHECK_S)
    try:
        for name in os.listdir(save):
            with open(os.path.join(save, name), "rb") as file:
                content = file.read()
            if name == MARKER:
                json.loads(content)
    except (OSError, ValueError):
        return False
    return True


def point(root: str, run: str, save: str) -> None:
    """Check that this run is the current one and the save is whole, then rename the pointer into place."""
    if get(os.path.join(root, "owner")) != run or not check(save):
        return
    if os.path.exists(os.path.join(root, f"stall-{run}")):  # the losing schedule, forced
        os.rename(os.path.join(root, f"stall-{run}"), os.path.join(root, f"stalled-{run}"))
        os.kill(os.getpid(), signal.SIGSTOP)
    put(os.path.join(root, "latest"), save)
    with open(os.path.join(root, f"pointed-{run}"), "a", encoding="utf-8") as file:
        file.write(save.rsplit("-", 1)[1] + "\n")


def main(argv: list[str]) -> int:
    root, run, _, *command = argv
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it lives as long as its training does
    folder = os.path.join(root, f"run-{run}")
    os.makedirs(folder, exist_ok=True)
    put(os.path.join(root, "owner"), run)
    save = get(os.path.join(root, "latest"))
    resume = [] if save is None else ["--resume_from_checkpoint", save]
    training = subprocess.Popen([*command, "--output_dir", folder, *resume])
    last = -1
    while training.poll() is None:
        time.sleep(0.02)
        found = newest(folder)
        if found and found[0] > last:
            last = found[0]
            point(root, run, found[1])
    return training.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
