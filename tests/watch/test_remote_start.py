"""``--start-from`` with saves and roots in S3: brought to this host, given as ``s3://...``, or a path as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.watch.local import begin_below, follow_choice, read_local
from slurm_dispatch.watch.place import find_place
from slurm_dispatch.watch.prepare import choose_once
from tests.s3.fixtures import no_aws_files, stub
from tests.s3.stub import BUCKET
from tests.savers.views import safetensors
from tests.watch.remote import RemoteScene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3.stub import Stub
    from tests.watch.rig import Helper

__all__ = ["no_aws_files", "stub"]

OLD = f"s3://{BUCKET}/pretrained/llm"
SHOW = ("--", "sh", "-c", 'echo "${DISPATCH_RESUME-none} ${DISPATCH_RESUME_STEP-none}"')


@pytest.fixture
def remote(tmp_path: Path, stub: Stub, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteScene]:
    """A root on the stub, and beside it a save that was made before."""
    made = RemoteScene(tmp_path, stub.environment(), monkeypatch)
    stub.objects["pretrained/llm/model.safetensors"] = safetensors()
    stub.objects["pretrained/llm/part/config.json"] = b"{}"
    yield made
    made.close()


def told(helper: Helper) -> list[str]:
    """What the command printed."""
    assert helper.process.stdout is not None
    words = helper.process.stdout.read().split()
    assert helper.end() == 0, helper.said
    return words


def test_it_is_brought_to_the_hosts_folder(remote: RemoteScene, stub: Stub) -> None:
    """Whole; and only while the root has no publication."""
    words = ("--from", str(remote.disk), "--start-from", f"{OLD}/")
    path, step = told(remote.helper(*words, *SHOW))
    assert (Path(path).parent.parent, Path(path).name, step) == (remote.local() / "resume", "llm", "none")
    assert (Path(path) / "model.safetensors").read_bytes() == safetensors()
    assert (Path(path) / "part" / "config.json").read_bytes() == b"{}"
    assert json.loads(stub.objects["run/exec/attempt1/.dispatch/choice"])["resume"] == OLD
    assert remote.train("save 10 exit 0", number=2).end() == 0
    stub.requests.clear()
    path, step = told(remote.helper(*words, *SHOW, number=3))
    assert (Path(path).name, step) == ("checkpoint-10", "10")
    assert not stub.of("GET", "pretrained")


def test_without_a_folder_it_is_its_address(remote: RemoteScene) -> None:
    assert told(remote.helper("--start-from", OLD, *SHOW)) == [OLD, "none"]


def test_a_root_that_is_a_folder_has_it_too(remote: RemoteScene, tmp_path: Path) -> None:
    """Every host sees it there; nothing of another bucket or endpoint is needed but the variables."""
    environment = remote.environment(DISPATCH_CHECKPOINT=str(tmp_path / "root"))
    path, _ = told(remote.helper("--start-from", OLD, *SHOW, environment=environment))
    assert path.startswith(f"{tmp_path}/root/exec/attempt1/resume/")
    assert (Path(path) / "model.safetensors").read_bytes() == safetensors()


def test_a_path_of_this_host_is_given_as_it_is(remote: RemoteScene, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "weights").write_text("w")
    assert told(remote.helper("--from", str(remote.disk), "--start-from", str(old), *SHOW))[0] == str(old)
    assert told(remote.helper("--start-from", str(old), *SHOW, number=2))[0] == str(old)
    gone = remote.helper("--from", str(remote.disk), "--start-from", "/no/such/save", "--", "true", number=3)
    assert (gone.end(), gone.has_said("/no/such/save")) == (65, True)


def test_other_ranks_have_it_and_wait_for_it(remote: RemoteScene) -> None:
    """The first one of each host brings it."""
    first = find_place(remote.environment(), root=None, local=str(remote.disk), remote=True)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
    chosen = choose_once(first, start_from=OLD)
    root = remote.opened
    choice = read_choice(root, "attempt1")
    assert choice is not None
    assert (choice.resume, choice.source) == (OLD, None)
    for local_rank, disk, there in (("1", "disk", True), ("1", "other", False), ("0", "other", True)):
        environment = remote.environment(**slurm, SLURM_LOCALID=local_rank)
        place = find_place(environment, root=None, local=str(remote.folder / disk), remote=True)
        found = follow_choice(root, place, choice, lambda _: None)
        assert (found is not None) == there
        if found is not None and found.resume is not None:
            assert (Path(found.resume) / "model.safetensors").read_bytes() == safetensors()
    assert read_local(first, choice).resume == chosen.resume
    bare = find_place(remote.environment(**slurm), root=None, remote=True)
    assert follow_choice(root, bare, choice, lambda _: None) == choice


def test_what_is_no_save_is_refused_before_the_command_runs(remote: RemoteScene, stub: Stub, tmp_path: Path) -> None:
    """C091, C085: not there, empty, or torn: never a first start in its place."""
    for words in (["--from", str(remote.disk)], []):
        gone = remote.helper(*words, "--start-from", f"s3://{BUCKET}/nowhere/llm", "--", "touch", "ran")
        assert gone.end() == 65, gone.said
        assert gone.has_said("nowhere/llm is not there")
    stub.objects["pretrained/empty/x"] = b""
    stub.objects["pretrained/torn/model.safetensors"] = safetensors()[:-2]
    for name, why in (("empty", "is empty"), ("torn", r"is not whole: model\.safetensors")):
        with pytest.raises(BadDataError, match=why):
            begin_below(str(tmp_path / "here"), f"s3://{BUCKET}/pretrained/{name}")
    with pytest.raises(UsageError, match="names no save"):
        begin_below(str(tmp_path / "here"), f"s3://{BUCKET}")
    away = stub.fault("answer", method="GET", key="pretrained", status=403, code="AccessDenied")
    denied = remote.helper("--start-from", OLD, "--", "touch", "ran")
    assert (denied.end(), away.met > 0) == (74, True), denied.said
    assert not (tmp_path / "ran").exists()
    assert list((tmp_path / "here").rglob("*.tmp-*")) == []
