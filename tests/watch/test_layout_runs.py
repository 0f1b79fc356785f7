"""``--layout`` and ``--single`` with real processes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from slurm_dispatch.errors import UsageError
from tests.watch.rig import Scene, until

REWRITES = """
import os, signal, sys, time, zipfile
gates, folder, *resumed = sys.argv[1:]
def save(text):
    with zipfile.ZipFile(os.path.join(folder, "last.pt"), "w") as file:
        file.writestr("data", f"{text} in {folder}")
def term(*_):
    save("at the end")
    os._exit(0)
signal.signal(signal.SIGTERM, term)
open(os.path.join(gates, "resumed"), "w").write("".join(resumed))
save("first")
open(os.path.join(gates, "ready"), "w").close()
time.sleep(120)
"""
TRAINS = """
import json, os, sys
folder = os.path.join(sys.argv[1], "checkpoint-10")
os.mkdir(folder)
state = json.dumps({"global_step": 10})
for name, text in {"model": "x", "training_args.bin": "x", "trainer_state.json": state}.items():
    open(os.path.join(folder, name), "w").write(text)
os.mkdir(os.path.join(sys.argv[1], "checkpoint-20"))
open(os.path.join(sys.argv[1], "checkpoint-20", "optimizer.pt"), "w").write("x")
os._exit(int(sys.argv[2]))
"""


def test_one_file_through_two_executions(scene: Scene) -> None:
    """What is written at SIGTERM is published by the last scan, and is what the next execution is given."""
    command = [sys.executable, "-c", REWRITES, str(scene.gates), "{dir}", "{resume}"]
    for number, steps in ((1, [(1, 2), (1, 1)]), (2, [(2, 4), (2, 3), (1, 2), (1, 1)])):
        helper = scene.helper("--single", "last.pt", "--", *command, number=number)
        helper.until_said("published step")
        until(lambda: scene.passed("ready"), "the program")
        helper.process.send_signal(signal.SIGTERM)
        assert helper.end() == 0
        assert scene.published() == steps, helper.said
        (scene.gates / "ready").unlink()
    resumed = Path((scene.gates / "resumed").read_text())
    assert resumed == scene.execution(2) / "resume" / "last-2.pt"
    assert b"at the end" in scene.latest().read_bytes()


def test_a_save_of_the_trainer_needs_no_option(scene: Scene) -> None:
    """C085: published without --done at once, whatever the command's status; the torn one is not."""
    helper = scene.helper("--", sys.executable, "-c", TRAINS, "{dir}", "3")
    assert helper.end() == 3
    assert scene.published() == [(1, 10)]
    assert helper.has_said("--layout auto: checkpoint-10 is a save of transformers Trainer")


def test_the_last_scan_does_not_wait_for_what_is_torn(scene: Scene) -> None:
    """Nobody can write to it any more; a minute of the job would be lost."""
    helper = scene.helper("--settle", "1h", "--", sys.executable, "-c", TRAINS, "{dir}", "0")
    assert helper.end() == 0
    assert scene.published() == [(1, 10)]


def test_an_unknown_layout_starts_nothing(scene: Scene) -> None:
    helper = scene.helper("--layout", "torch", "--", "touch", str(scene.gates / "ran"))
    assert helper.end() == UsageError.exit_code
    assert helper.has_said("there is no layout 'torch'")
    assert not scene.passed("ran")
