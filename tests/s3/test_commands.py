"""The commands of a person on a root in S3, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.fetch import fetch
from tests.s3.scene import FIRST, OLD, names, published
from tests.s3.stub import BUCKET
from tests.savers.views import safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

ROOT = f"s3://{BUCKET}/run"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home without files of settings."""
    return tmp_path


def run(stub: Stub, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command line of ours."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home),
        "DISPATCH_CHECKPOINT": ROOT, "DISPATCH_EPOCH": str(FIRST), "DISPATCH_ATTEMPT": OLD,
        **stub.environment(), **more,
    }  # fmt: skip
    argv = [sys.executable, "-m", "slurm_dispatch.cli.main", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_latest_publish_and_ls(stub: Stub, home: Path) -> None:
    none = run(stub, home, "latest")
    assert (none.returncode, none.stdout) == (66, "")
    assert "no publication" in none.stderr
    stub.objects[f"run/exec/{OLD}/checkpoint-5/weights"] = b"x"
    done = run(stub, home, "publish", "--step", "5", f"{ROOT}/exec/{OLD}/checkpoint-5")
    assert (done.returncode, done.stderr) == (0, "")
    again = run(stub, home, "publish", "--step", "5", "--json", f"exec/{OLD}/checkpoint-5")
    assert json.loads(again.stdout)["name"] == done.stdout.strip()
    latest = run(stub, home, "latest")
    assert (latest.returncode, latest.stdout) == (0, f"{ROOT}/exec/{OLD}/checkpoint-5\n")
    listed = run(stub, home, "ls", "--json")
    assert [(one["step"], one["save"]) for one in json.loads(listed.stdout)] == [(5, "proved")]
    assert "checkpoint-5" in run(stub, home, "ls").stdout


def test_what_goes_wrong_has_its_code(stub: Stub, home: Path) -> None:
    """C091, C154: nothing of it looks like a first start."""
    wrong = run(stub, home, "publish", "--step", "5", f"exec/{OLD}/checkpoint-5")
    assert wrong.returncode == 65
    assert run(stub, home, "latest", "--root", "s3://b").returncode == 64
    assert run(stub, home, "latest", AWS_PROFILE="nobody").returncode == 78
    fault = stub.fault("answer", method="GET", status=503)
    away = run(stub, home, "latest", "--timeout", "3")
    assert away.returncode == 74
    assert stub.endpoint in away.stderr
    assert "503" in away.stderr
    fault.times = 0
    stub.objects[f"run/pub/{names(1)[0]}"] = b""
    gone = run(stub, home, "latest")
    assert gone.returncode == 65
    assert "checkpoint-0 is gone" in gone.stderr
    assert run(stub, home, "ls", "--json").stdout.count("gone") == 1


def test_doctor(stub: Stub, home: Path) -> None:
    """C143: what the store is proved to do, and nothing is left of the trial."""
    good = run(stub, home, "doctor", "--json")
    assert good.returncode == 0
    assert {one["answer"] for one in json.loads(good.stdout)} == {"proved"}
    assert not stub.objects
    stub.fault("ignore")
    bad = run(stub, home, "doctor")
    assert bad.returncode == 73
    assert "refused" in bad.stdout
    assert stub.endpoint in bad.stdout
    assert "one name once" in bad.stderr


def test_doctor_makes_no_bucket(stub: Stub, home: Path) -> None:
    """Some stores make one of any name that something is put into: a wrong name is seen by a listing only."""
    stub.fault("answer", method="GET", status=404, code="NoSuchBucket")
    bad = run(stub, home, "doctor")
    assert (bad.returncode, stub.of("PUT")) == (74, [])
    assert "there is no such bucket" in bad.stderr


def test_doctor_sees_writers_that_both_win(stub: Stub, home: Path) -> None:
    """C143: a store that looks and then writes refuses the second put and not the second writer."""
    stub.fault("ignore", key="/race-1")
    found = run(stub, home, "doctor", "--json")
    assert found.returncode == 73
    answers = {one["what"]: one["answer"] for one in json.loads(found.stdout)}
    assert answers["one name once"] == "proved"
    assert answers["one winner of many"] == "refused"


def test_doctor_on_a_folder(stub: Stub, home: Path) -> None:
    """C117: the same of a filesystem; nothing is left there either."""
    root = home / "root"
    root.mkdir()
    found = run(stub, home, "doctor", "--root", str(root), "--json")
    assert found.returncode == 0
    answers = {one["what"]: one["answer"] for one in json.loads(found.stdout)}
    assert answers["one name once"] == answers["hard links"] == "proved"
    assert list(root.iterdir()) == []
    assert run(stub, home, "doctor", "--root", str(root / "none")).returncode == 74


def test_fetch(stub: Stub, home: Path) -> None:
    """The save to resume from, in a local folder; another time it is there already."""
    none = run(stub, home, "fetch", "--to", str(home / "local"))
    assert none.returncode == 66
    assert not (home / "local").exists()
    stub.objects[f"run/exec/{OLD}/checkpoint-5/weights"] = b"x" * 100
    assert run(stub, home, "publish", "--step", "5", f"exec/{OLD}/checkpoint-5").returncode == 0
    done = run(stub, home, "fetch", "--to", str(home / "local"))
    assert (done.returncode, done.stdout) == (0, f"{home}/local/checkpoint-5\n")
    assert (home / "local" / "checkpoint-5" / "weights").read_bytes() == b"x" * 100
    assert "1 of 1 files" in done.stderr
    assert run(stub, home, "fetch", "--to", str(home / "local")).returncode == 73
    assert run(stub, home, "fetch", "--root", str(home)).returncode == 64


def test_fetch_asks_again_where_the_save_goes(stub: Stub, root: S3Root, tmp_path: Path) -> None:
    """C087: a save that was outranked and removed while it was fetched; the next latest is taken."""
    published(root, 1)
    published(root, 2)
    reads = iter([False])

    def latest(*, fallback: bool = False) -> object:
        save = type(root).latest(root, fallback=fallback)
        if next(reads, True) is False:
            stub.objects.pop(f"run/exec/{OLD}/checkpoint-2/weights")
            published(root, 3)
        return save

    root.latest = latest  # type: ignore[method-assign,assignment]
    publication, path = fetch(root, str(tmp_path / "local"))
    assert publication.step == 3
    assert path == str(tmp_path / "local" / "checkpoint-3")
    assert sorted(os.listdir(tmp_path / "local")) == ["checkpoint-3"]


def test_fetch_with_fallback_passes_over_a_save_that_has_lost_a_part(stub: Stub, home: Path, tmp_path: Path) -> None:
    """C085, C169: without it that is an error that says so, and nothing of it is left in the folder."""
    for step in (1, 2, 3):
        for name in ("a", "b"):
            stub.objects[f"run/exec/{OLD}/checkpoint-{step}/{name}"] = b"x" * step
        assert run(stub, home, "publish", "--step", str(step), f"exec/{OLD}/checkpoint-{step}").returncode == 0
    for step in (2, 3):
        stub.objects.pop(f"run/exec/{OLD}/checkpoint-{step}/b")
    local = tmp_path / "local"
    bad = run(stub, home, "fetch", "--to", str(local))
    assert (bad.returncode, bad.stdout) == (65, "")
    assert list(local.iterdir()) == []
    done = run(stub, home, "fetch", "--fallback", "--to", str(local))
    assert (done.returncode, done.stdout) == (0, f"{local}/checkpoint-1\n")
    assert [path.name for path in local.iterdir()] == ["checkpoint-1"]
    assert done.stderr.count("falling back") == 2
    stub.objects.pop(f"run/exec/{OLD}/checkpoint-1/b")
    none = run(stub, home, "fetch", "--fallback", "--to", str(tmp_path / "another"))
    assert (none.returncode, none.stdout) == (65, "")


def test_latest_that_is_verified(stub: Stub, home: Path) -> None:
    """C169: an object that was written over is seen; with --fallback the next one that passes is taken."""
    for step in (4, 5):
        stub.objects[f"run/exec/{OLD}/checkpoint-{step}/weights"] = b"x" * 100
        assert run(stub, home, "publish", "--step", str(step), f"exec/{OLD}/checkpoint-{step}").returncode == 0
    good = run(stub, home, "latest", "--verify", "--json")
    assert json.loads(good.stdout)["save"] == "whole"
    stub.objects[f"run/exec/{OLD}/checkpoint-5/weights"] = b"y" * 100
    bad = run(stub, home, "latest", "--verify")
    assert bad.returncode == 65
    assert "changed" in bad.stderr
    next_one = run(stub, home, "latest", "--verify", "--fallback")
    assert next_one.stdout == f"{ROOT}/exec/{OLD}/checkpoint-4\n"


def test_latest_that_is_verified_reads_what_its_saver_lists(stub: Stub, home: Path) -> None:
    """C085: published by hand, and the Trainer's own index names a shard that is not there."""
    index = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    where = f"run/exec/{OLD}/checkpoint-4"
    stub.objects[f"{where}/trainer_state.json"] = b'{"global_step": 4}'
    stub.objects[f"{where}/model.safetensors.index.json"] = index
    assert run(stub, home, "publish", "--step", "4", f"exec/{OLD}/checkpoint-4").returncode == 0
    bad = run(stub, home, "latest", "--verify")
    assert bad.returncode == 65
    assert "torn: model-00001-of-00001.safetensors is missing" in bad.stderr
    stub.objects[f"{where}/model-00001-of-00001.safetensors"] = safetensors()
    assert "changed" in run(stub, home, "latest", "--verify").stderr
