"""fsck, du, gc and latest --verify: what they find, what they say, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.layout import Progress, size
from slurm_dispatch.cli.main import main
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.sound import Condition, Found, inspect
from slurm_dispatch.store.space import freed, space
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.watch.turn import claim_run, end_run, this_process
from tests.savers.views import safetensors
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, fresh, save

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointRoot:
    """An empty root on a host where dispatch is not set up."""
    for name in ("DISPATCH_CONFIG", "DISPATCH_CHECKPOINT"):
        monkeypatch.delenv(name, raising=False)
    return fresh(tmp_path)


def published(root: CheckpointRoot, attempt: str, epoch: int, *steps: int, content: bytes = b"weights") -> list[str]:
    """Saves of an execution, kept and published; their paths."""
    paths = []
    for step in steps:
        kept = keep(root, attempt, save(root, attempt, f"checkpoint-{step}", content), proof=Proof.PROVED)
        assert kept is not None
        root.publish(epoch, step, kept, attempt=attempt)
        paths.append(os.path.join(root.path, os.fsdecode(kept)))
    return paths


def ended(root: CheckpointRoot, *attempts: str) -> None:
    """Their helpers have ended."""
    for attempt in attempts:
        assert claim_run(root, attempt, 1, this_process(os.getpid()))
        end_run(root, attempt, 1, 0)


def torn(path: str) -> None:
    """A zip file without its end."""
    Path(path, "weights").write_bytes(b"PK\x03\x04" + b"x" * 100)


def changed(path: str) -> None:
    """A run that still lives has written into it (C169)."""
    Path(path, "weights").write_bytes(b"other bytes")


def rewritten(path: str) -> None:
    """The same size at another time."""
    os.utime(os.path.join(path, "weights"), ns=(1, 1))


@pytest.mark.parametrize(("harm", "condition", "why"), [
    (torn, Condition.TORN, "weights is cut off"),
    (changed, Condition.CHANGED, "it had 1 files with 7 bytes, and has 1 with 11"),
    (rewritten, Condition.CHANGED, "names or times are not what they were"),
    (shutil.rmtree, Condition.GONE, "it had 1 files with 7 bytes"),
    (lambda path: shutil.rmtree(os.path.dirname(os.path.dirname(path))), Condition.GONE,
     "and so is what was known of its execution"),
])  # fmt: skip
def test_what_is_wrong_with_a_save(
    root: CheckpointRoot, harm: object, condition: Condition, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = published(root, OLD, FIRST, 5)[0]
    published(root, NEW, SECOND, 7)
    assert inspect(root, root.listing()[1]).condition is Condition.WHOLE
    harm(path)  # type: ignore[operator]
    found = inspect(root, root.listing()[1])
    assert (found.condition, found.why) == (condition, why)
    assert main(["fsck", root.path]) == 65
    streams = capsys.readouterr()
    line = f"dispatch: exec/{OLD}/kept/checkpoint-5, step 5 of epoch {FIRST}, is {condition}: {why}\n"
    assert streams.err == f"{line}dispatch: 1 thing is wrong in {root.path}\n"
    assert f"published saves: 2: 1 whole, 1 {condition}\n" in streams.out
    assert main(["fsck", "--json", root.path]) == 65
    content = json.loads(capsys.readouterr().out)
    assert [one["save"] for one in content["publications"]] == ["whole", str(condition)]
    assert len(content["faults"]) == 1


def test_a_save_whose_own_index_names_what_is_not_there(root: CheckpointRoot) -> None:
    """C085, C102: published by hand or by a marker, and by its saver's layout it is not whole."""
    index = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    for step, files in (
        (1, {"trainer_state.json": b'{"global_step": 1}', "model.safetensors": safetensors()}),
        (2, {"trainer_state.json": b'{"global_step": 1}', "model.safetensors.index.json": index}),
        (3, {"trainer_state.json": b'{"global', "model.safetensors": safetensors()}),
        (4, {"pytorch_model.bin.index.json": b'{"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}'}),
    ):
        folder = save(root, OLD, f"checkpoint-{step}", b"weights")
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        root.publish(FIRST, step, folder, attempt=OLD)
    found = [inspect(root, publication) for publication in reversed(root.listing())]
    assert [one.condition.value for one in found] == ["unrecorded", "torn", "torn", "torn"]
    assert found[1].why.startswith("model-00001-of-00001.safetensors is missing: ")
    assert found[1].why.endswith(" (a save of transformers Trainer)")
    assert found[3].why == "pytorch_model-00001-of-00002.bin is missing: pytorch_model.bin.index.json names it"


def test_a_root_in_which_all_is_well(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """What was thinned is no fault, and neither is what has no publication."""
    root.claim("mine", 0)
    published(root, OLD, FIRST, 1, 2, 3)
    published(root, NEW, SECOND, 10, 20)
    assert thin(root, NEW, epoch=SECOND, keep_root=1).trouble == ()
    assert keep(root, NEW, save(root, NEW, "checkpoint-30"), proof=Proof.ASSUMED)
    os.mkdir(os.path.join(root.execution(NEW), "kept", ".tmp-0123456789abcdef"))
    assert main(["fsck", root.path]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    lines = streams.out.splitlines()
    assert lines[0] == f"checkpoint root {root.path}: generation 0 is job mine's"
    assert lines[1] == (
        f"latest: step 20 of epoch {SECOND}, exec/{NEW}/kept/checkpoint-20: whole, 1 files, 7 B "
        "(proved when it was published, and unchanged)"
    )
    assert lines[2] == "published saves: 5: 3 removed, 2 whole"
    assert lines[-3:] == [
        f"kept and not published: exec/{NEW}/kept/checkpoint-30",
        f"leftover: exec/{NEW}/kept/.tmp-0123456789abcdef",
        "nothing is wrong",
    ]
    assert main(["fsck", "--json", root.path]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["owners"] == {"0": "mine"}
    assert content["latest"] == root.listing()[0].name
    assert [(one["attempt"], one["published"], one["there"]) for one in content["executions"]] == [
        (NEW, 2, 2), (OLD, 3, 0)]  # fmt: skip


def test_an_empty_root(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", root.path]) == 0
    assert "latest: nothing is published\nnothing is wrong\n" in capsys.readouterr().out
    assert main(["fsck", root.path + "x"]) == 74
    assert main(["fsck"]) == 64
    assert main(["du", root.path]) == 0
    assert main(["gc", root.path, "--keep-last", "1"]) == 0
    assert "nothing is published here" in capsys.readouterr().out


def test_names_that_are_none(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """P4: all of them are named, and everything else is looked at all the same."""
    published(root, NEW, SECOND, 7)
    good = root.listing()[0]
    pub = os.path.join(root.path, "pub")
    for name in (b"README", b"\xff\x1b", os.fsencode(good.name.lower())):
        Path(pub, os.fsdecode(name)).touch()
    Path(pub, good.name).write_bytes(b"x")
    Path(pub, Publication(SECOND, 6, good.path).name).symlink_to("README")
    os.mkdir(os.path.join(root.path, "own"))
    Path(root.path, "own", "0").write_bytes(b"no link")
    assert main(["fsck", root.path]) == 65
    streams = capsys.readouterr()
    assert streams.err.count("is not the name of a publication") == 3
    assert streams.err.count("is not an empty file") == 2
    assert "own/0 is not a link" in streams.err
    assert "6 things are wrong" in streams.err
    assert "latest: step 7" in streams.out
    for command in (["gc", root.path, "--keep-last", "1"], ["du", root.path]):
        assert main(command) == 65


def test_a_latest_that_dispatch_removed_is_a_fault(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    published(root, NEW, SECOND, 7)
    assert root.remove(root.listing()[0].path)
    assert main(["fsck", root.path]) == 65
    assert "checkpoint-7, the latest, is removed: by dispatch" in capsys.readouterr().err


def test_what_a_run_publishes_and_removes_meanwhile_is_no_fault(root: CheckpointRoot) -> None:
    """It was the latest when the names were listed; by the time that it is looked at it is outranked, and removed."""
    published(root, NEW, FIRST, 5, 6)
    looks: list[int] = []

    def inspecting(publication: Publication) -> Found:
        looks.append(publication.step)
        if len(looks) == 1:
            published(root, NEW, FIRST, 7, 8, 9)
            thin(root, NEW, epoch=FIRST)
            return Found(Condition.UNKNOWN, "its index went while it was read")
        return inspect(root, publication)

    report = fsck(root, inspecting=inspecting)
    assert looks == [6, 5, 6]
    assert [found.condition for _, found in report.saves] == [Condition.REMOVED, Condition.REMOVED]
    assert (report.faults, report.troubles) == ([], [])


def test_latest_is_verified(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = published(root, NEW, SECOND, 1, 2, 3)
    assert main(["latest", "--verify", "--root", root.path]) == 0
    streams = capsys.readouterr()
    assert streams.out == third + "\n"
    assert streams.err == (
        f"dispatch: checked step 3, exec/{NEW}/kept/checkpoint-3: 1 files, 7 B, none cut off; proved when it was "
        "published, and unchanged\n"
    )
    torn(third)
    assert main(["latest", "--root", root.path]) == 0  # nothing was asked, and nothing is said
    assert main(["latest", "--verify", "--root", root.path]) == 65
    streams = capsys.readouterr()
    assert "is the latest of" in streams.err
    assert "checkpoint-3 is torn: weights is cut off; take the next one that passes" in streams.err
    changed(second)
    assert main(["latest", "--verify", "--fallback", "--root", root.path, "--json"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["path"] == first
    assert [word in streams.err for word in ("checkpoint-3 is torn", "checkpoint-2 is changed")] == [True, True]
    shutil.rmtree(first)
    assert main(["latest", "--verify", "--fallback", "--root", root.path]) == 65
    assert "none of the 3 published saves" in capsys.readouterr().err


def test_space_is_what_du_says(root: CheckpointRoot) -> None:
    """Links count once, whichever folder they are in; what only one execution has is what removing it gives back."""
    published(root, OLD, FIRST, 1, 2, content=BIG)
    published(root, NEW, SECOND, 10, content=BIG)
    os.makedirs(os.path.join(root.execution(NEW), "best"))
    shared = os.path.join(root.execution(NEW), "best", "weights")
    os.link(os.path.join(root.execution(OLD), "kept", "checkpoint-1", "weights"), shared)
    with open(os.path.join(root.execution(NEW), "hole"), "wb") as stream:
        stream.truncate(1 << 30)
    found = space(root)
    assert found.troubles == []
    assert [row.name for row in found.rows] == [NEW, OLD, "pub", "own"]
    tops = sum(os.lstat(os.path.join(root.path, name)).st_blocks * 512 for name in (".", "exec"))
    du = subprocess.run(["du", "--block-size=1", "-s", root.path], capture_output=True, text=True, check=True)
    assert sum(row.size for row in found.rows) == int(du.stdout.split()[0]) - tops
    new, old = found.rows[:2]
    assert new.content > 1 << 30 > new.size
    took = os.stat(shared).st_blocks * 512
    assert (new.parts["best"] >= took, new.size - new.alone, old.size - old.alone) == (True, took, 0)
    assert old.alone == freed(root, [b"exec/" + OLD.encode()])[0]


def test_space_of_what_cannot_be_listed(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    published(root, NEW, SECOND, 10)
    descriptor = os.open(root.execution(NEW), os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    assert main(["du", root.path]) == 74
    streams = capsys.readouterr()
    assert streams.err.count("\n") == 1
    assert "folders too deep" in streams.err
    assert NEW in streams.out


def test_gc_says_what_it_would_do_and_does_it(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    published(root, OLD, FIRST, 1, 2, content=BIG)
    published(root, NEW, SECOND, 10, 20)
    ended(root, OLD, NEW)
    assert main(["gc", root.path, "--keep-last", "1", "--dry-run"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    would = [line for line in streams.out.splitlines() if line.startswith("would remove ")]
    assert len(would) == 5
    assert "5 saves and leftovers would go, which gives back" in streams.out
    assert len(os.listdir(os.path.join(root.execution(OLD), "kept"))) == 2
    assert main(["gc", root.path, "--keep-last", "1"]) == 0
    streams = capsys.readouterr()
    assert "no record of a job of this root is here" in streams.err
    assert "removed 5 saves and leftovers\n1 published save stays; the latest is step 20" in streams.out
    assert os.listdir(os.path.join(root.execution(OLD), "kept")) == []
    assert main(["gc", root.path, "--keep-last", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["removed"], content["left"], content["stay"]) == ([], {}, [root.listing()[0].name])


def test_gc_leaves_what_it_does_not_know(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """P5; and a person may know."""
    published(root, OLD, FIRST, 1, 2)
    published(root, NEW, SECOND, 10)
    ended(root, NEW)
    assert main(["gc", root.path, "--keep-last", "1"]) == 0
    streams = capsys.readouterr()
    assert f"{OLD}" in streams.out
    assert "unknown: no record here has it, and no helper ran in it" in streams.out
    assert "--ended ATTEMPT says that it is over" in streams.out
    assert len(os.listdir(os.path.join(root.execution(OLD), "kept"))) == 2
    assert main(["gc", root.path, "--keep-last", "1", "--ended", OLD, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["removed"]) == 4
    assert main(["gc", root.path, "--keep-last", "1", "--ended", "nobody"]) == 64


def test_gc_leaves_what_runs_on_this_node(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that carries the attempt is believed, whatever the helper's mark or a person says."""
    published(root, OLD, FIRST, 1, 2)
    published(root, NEW, SECOND, 10)
    ended(root, OLD, NEW)
    carrier = subprocess.Popen(["sleep", "600"], env={**os.environ, "DISPATCH_ATTEMPT": OLD})
    environment = Path(f"/proc/{carrier.pid}/environ")
    try:
        while not environment.read_bytes():  # it is begun, and not loaded yet
            time.sleep(0.01)
        assert main(["gc", root.path, "--keep-last", "1", "--ended", OLD, "--json"]) == 0
    finally:
        carrier.kill()
        carrier.wait()
    content = json.loads(capsys.readouterr().out)
    assert (content["removed"], content["left"]) == (
        [], {OLD: {"standing": "running", "why": "it runs on this node"}})  # fmt: skip


def test_gc_of_what_is_named(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    path = published(root, OLD, FIRST, 900)[0]
    published(root, NEW, SECOND, 10, 20)
    ended(root, OLD, NEW)
    by = ["gc", root.path, "--keep-last", "1"]
    assert main([*by, "--drop", "exec/x/y"]) == 64
    assert main([*by, "--drop", root.listing()[0].name]) == 64
    assert "is the latest: its save is never removed" in capsys.readouterr().err
    assert main(by) == 0
    assert os.path.isdir(path)
    assert main([*by, "--drop", path]) == 0
    assert not os.path.exists(path)
    for bad in (["--keep-last", "0"], ["--keep-last", "x"], [], ["--keep-last", "1", "--keep-every", "0"]):
        assert main(["gc", root.path, *bad]) == 64


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (1 << 50, "1.0 PiB"),
])  # fmt: skip
def test_bytes_for_a_person(count: int, text: str) -> None:
    assert size(count) == text


def test_long_work_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, at most once in so long, and nothing at the end."""
    progress = Progress("removed", every_s=0.0)
    progress(1200, 10_000)
    progress(10_000, 10_000)
    Progress("removed", every_s=3600.0)(1, 10)
    streams = capsys.readouterr()
    assert (streams.out, streams.err) == ("", "dispatch: removed 1,200 of 10,000\n")
