"""``slurm_dispatch.publish``, ``latest`` and ``execution``: alone, outside a job, and beside ``dispatch-watch``."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import slurm_dispatch
from slurm_dispatch import api
from slurm_dispatch.errors import (
    BadDataError,
    ConfigurationError,
    NotAllowedError,
    NotResumedError,
    TransientError,
    UsageError,
)
from slurm_dispatch.store import keep as keeping
from slurm_dispatch.store.keep import keep, sweep_kept
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.transfer import transfer
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.watch import inside
from slurm_dispatch.watch.options import Options
from slurm_dispatch.watch.place import KEEP, find_place, keep_text, parse_keep
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.turn import claim_run, end_run, this_process
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = "job"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointRoot:
    """The root of a job, in whose execution :data:`NEW` the test is."""
    for name in [name for name in os.environ if name.startswith(("DISPATCH_", "SLURM_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "root").mkdir()
    become(monkeypatch, NEW, SECOND)
    monkeypatch.setenv("DISPATCH_CHECKPOINT", str(tmp_path / "root"))
    return open_root(str(tmp_path / "root"))


def become(monkeypatch: pytest.MonkeyPatch, attempt: str, epoch: int) -> None:
    """The test is in this execution from here on."""
    monkeypatch.setenv("DISPATCH_JOB", JOB)
    monkeypatch.setenv("DISPATCH_ATTEMPT", attempt)
    monkeypatch.setenv("DISPATCH_EPOCH", str(epoch))


def saved(step: int, name: str | None = None) -> str:
    """A whole save of this execution."""
    folder = Path(slurm_dispatch.execution().directory, name or f"checkpoint-{step}")
    folder.mkdir()
    (folder / "weights").write_bytes(BIG)
    (folder / "trainer_state.json").write_text(f'{{"step": {step}}}')
    return str(folder)


def names(root: CheckpointRoot) -> list[tuple[int, int, str]]:
    return [(one.epoch, one.step, os.fsdecode(one.path)) for one in root.listing()]


def helper(root: CheckpointRoot) -> Publisher:
    """The part of ``dispatch-watch`` that publishes, for the same execution."""
    options = Options(done=["trainer_state.json"])
    publisher = Publisher(root, find_place(os.environ, root=None), options, resumed_step=None)
    publisher.begin()
    return publisher


def test_a_save_is_kept_and_published_once(root: CheckpointRoot) -> None:
    publication = slurm_dispatch.publish(saved(5), 5)
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    latest = slurm_dispatch.latest()
    assert latest is not None
    assert latest.publication == publication
    assert os.stat(os.path.join(latest.path, "weights")).st_nlink == 2
    assert slurm_dispatch.publish(os.path.join(root.execution(NEW), "checkpoint-5"), 5) == publication
    assert len(names(root)) == 1
    assert os.readlink(os.path.join(root.path, "own", "0")) == JOB


def test_nothing_published_is_a_first_start(root: CheckpointRoot) -> None:
    assert slurm_dispatch.latest() is None
    assert slurm_dispatch.latest(root.path) is None
    this = slurm_dispatch.execution()
    assert (this.resume, this.resume_step, this.directory) == (None, None, root.execution(NEW))
    assert (this.epoch, this.attempt, this.root) == (SECOND, NEW, root.path)


def test_the_next_execution_resumes_from_it(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(5), 5)
    become(monkeypatch, NEW, SECOND)
    this = slurm_dispatch.execution()
    assert this.resume == os.path.join(root.execution(NEW), "resume", "checkpoint-5")
    assert this.resume_step == 5
    slurm_dispatch.publish(saved(10), 10)
    assert slurm_dispatch.execution() == this, "chosen once, whatever was published since"


def test_a_step_below_the_one_resumed_from_is_refused(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published, it would outrank all the work before it."""
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(50), 50)
    become(monkeypatch, NEW, SECOND)
    save = saved(5)
    with pytest.raises(NotResumedError, match="this execution resumes from step 50"):
        slurm_dispatch.publish(save, 5)
    assert [step for _, step, _ in names(root)] == [50]
    slurm_dispatch.publish(save, 5, allow_step_back=True)
    assert [step for _, step, _ in names(root)] == [5, 50]


@pytest.mark.parametrize("first", ["helper", "training"])
def test_what_the_helper_publishes_too_is_one_publication(root: CheckpointRoot, first: str) -> None:
    publisher, save = helper(root), saved(5)
    acts: list[Callable[[], object]] = [
        lambda: publisher.scan(assume=False).published, lambda: slurm_dispatch.publish(save, 5).step
    ]
    told = [act() for act in (acts if first == "helper" else acts[::-1])]
    assert told == ([[5], 5] if first == "helper" else [5, [5]])
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    slurm_dispatch.publish(saved(15), 15)
    saved(10)
    assert publisher.scan(assume=False).published == [10, 15], "no step is refused because another was first"


@pytest.mark.parametrize("meanwhile", ["helper", "sweep"])
def test_a_helper_that_keeps_or_sweeps_meanwhile(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Its rename, or its sweep, comes between what this one made and its own rename."""
    save = saved(5)
    done: list[str] = []

    def disturbed(*words: object, **more: object) -> object:
        given = more.pop("before")

        def before(seen: object) -> None:
            if not done:
                done.append(meanwhile)
                if meanwhile == "helper":
                    keep(root, NEW, save, proof=Proof.PROVED)
                else:
                    assert sweep_kept(root, NEW) == 1
            given(seen)  # type: ignore[operator]

        return transfer(*words, before=before, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping, "transfer", disturbed)
    slurm_dispatch.publish(save, 5)
    assert done == [meanwhile]
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    assert sorted(os.listdir(os.path.join(root.execution(NEW), "kept"))) == ["checkpoint-5"]
    assert sorted(os.listdir(os.path.join(root.execution(NEW), "kept", "checkpoint-5"))) == [
        "trainer_state.json", "weights",
    ]


def test_a_helper_whose_rename_comes_second_publishes_at_its_next_try(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, save = helper(root), saved(5)
    done: list[int] = []

    def disturbed(*words: object, **more: object) -> object:
        if not done:
            done.append(5)
            slurm_dispatch.publish(save, 5)
        return transfer(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping, "transfer", disturbed)
    assert publisher.scan(assume=False).published == [5]
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]


def test_what_cannot_be_published_says_why_and_leaves_nothing(root: CheckpointRoot, tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="outside"):
        slurm_dispatch.publish(tmp_path, 5)
    directory = slurm_dispatch.execution().directory
    with pytest.raises(BadDataError, match="not there"):
        slurm_dispatch.publish(os.path.join(directory, "checkpoint-5"), 5)
    torn = os.path.join(directory, "checkpoint-6.npz")
    np.savez(torn, weights=np.zeros(100))
    os.truncate(torn, os.path.getsize(torn) // 2)
    with pytest.raises(BadDataError, match="is cut"):
        slurm_dispatch.publish(torn, 6)
    with pytest.raises(BadDataError):
        slurm_dispatch.publish(saved(7), -7)
    assert names(root) == []


def test_a_name_that_is_rewritten_is_no_second_save(root: CheckpointRoot) -> None:
    """``last.ckpt``: what is kept under the name is the first one, and would pass as the second."""
    save = saved(5, "last")
    slurm_dispatch.publish(save, 5)
    Path(save, "weights").write_bytes(BIG + b"more")
    with pytest.raises(BadDataError, match="published as step 5 already, and now as step 10"):
        slurm_dispatch.publish(save, 10)
    assert [step for _, step, _ in names(root)] == [5]


def test_outside_a_job_everything_is_said(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    save = saved(5)
    for name in ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT", "DISPATCH_CHECKPOINT"):
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="no checkpoint root"):
        slurm_dispatch.publish(save, 5)
    with pytest.raises(UsageError, match="no checkpoint root"):
        slurm_dispatch.latest()
    with pytest.raises(UsageError, match="go together"):
        slurm_dispatch.publish(save, 5, root=root.path, epoch=FIRST)
    slurm_dispatch.publish(save, 5, root=root.path, epoch=FIRST, attempt=NEW)
    assert names(root) == [(FIRST, 5, f"exec/{NEW}/kept/checkpoint-5")]
    monkeypatch.setenv("DISPATCH_JOB", JOB)
    with pytest.raises(ConfigurationError):
        slurm_dispatch.publish(save, 5, root=root.path)


def test_a_training_of_a_helper_without_a_job_is_that_execution(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a workstation the attempt is known to nobody but the helper and what it started."""
    for name in ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_DISPATCH_ATTEMPT", OLD)
    monkeypatch.setenv("DISPATCH_DIR", root.execution(OLD))
    this = slurm_dispatch.execution()
    assert (this.attempt, this.epoch, this.directory) == (OLD, 0, root.execution(OLD))
    slurm_dispatch.publish(saved(5), 5)
    assert names(root) == [(0, 5, f"exec/{OLD}/kept/checkpoint-5")]


def test_a_shared_checkpoint_publishes_nothing(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_DISPATCH_SHARED", "1")
    this = slurm_dispatch.execution()
    assert (this.directory, this.resume, this.shared) == (root.path, None, True)
    for publish in (slurm_dispatch.publish, this.publish):
        with pytest.raises(NotAllowedError, match="shared checkpoint"):
            publish(root.path, 5)  # type: ignore[operator]


# Thinning.


@pytest.mark.parametrize(
    ("said", "left"), [(None, [15, 20]), ("2,3", [10, 15, 20]), ("1,1", [20]), ("all", [5, 10, 15, 20])]
)
def test_it_thins_as_the_helper_was_told(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch, said: str | None, left: list[int]
) -> None:
    if said is None:
        said = "2,2"
    monkeypatch.setenv(KEEP, said)
    for step in (5, 10, 15, 20):
        slurm_dispatch.publish(saved(step), step)
    kept = os.listdir(os.path.join(root.execution(NEW), "kept"))
    assert sorted(int(name.split("-")[1]) for name in kept) == left
    assert len(names(root)) == 4


def test_without_a_helper_it_thins_and_beside_one_it_does_not(root: CheckpointRoot) -> None:
    """A helper beside a training can have been told ``--no-thin``, and cannot tell."""
    kept = os.path.join(root.execution(NEW), "kept")
    for step in (5, 10, 15, 20):
        slurm_dispatch.publish(saved(step), step)
    assert len(os.listdir(kept)) == 3
    assert claim_run(root, NEW, 1, this_process(os.getpid(), beside=True))
    slurm_dispatch.publish(saved(25), 25)
    assert len(os.listdir(kept)) == 4
    end_run(root, NEW, 1, 0)
    slurm_dispatch.publish(saved(30), 30)
    assert len(os.listdir(kept)) == 3


def test_what_older_executions_left_goes_by_the_savers_pattern(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(5), 5)
    Path(root.execution(OLD), "train.log").write_text("a line")
    become(monkeypatch, NEW, SECOND)
    for step in (10, 15, 20):
        slurm_dispatch.publish(saved(step), step, pattern="checkpoint-{step}")
    assert set(os.listdir(root.execution(OLD))) == {".dispatch", "kept", "train.log"}
    assert set(os.listdir(root.execution(NEW))) - {"resume"} == {
        ".dispatch", "checkpoint-10", "checkpoint-15", "checkpoint-20", "kept",
    }


def test_a_store_that_stays_busy_is_an_error(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> bytes:
        raise TransientError("keeping: it is there")

    save = saved(5)
    monkeypatch.setattr(inside, "keep", busy)
    monkeypatch.setattr(inside, "KEEP_WAITS_S", (0.0, 0.0))
    with pytest.raises(TransientError, match="it is there"):
        slurm_dispatch.publish(save, 5)
    assert names(root) == []


def test_what_the_helper_says_of_keeping() -> None:
    assert parse_keep(keep_text(2, 3, thin=True)) == (2, 3)
    assert parse_keep(keep_text(2, 3, thin=False)) is None
    for text in ("", "2", "0,3", "2,x", "-1,3"):
        with pytest.raises(ConfigurationError, match=r"SLURM_DISPATCH_KEEP .* is wrong"):
            parse_keep(text)


def test_the_commands_of_a_helper_are_told_what_it_keeps(root: CheckpointRoot) -> None:
    run = "from slurm_dispatch.watch.main import run; run()"
    shown = f"import os; print(os.environ[{KEEP!r}])"
    for words, said in ([], "2,3"), (["--keep", "4,7"], "4,7"), (["--no-thin"], "all"):
        argv = [sys.executable, "-c", run, *words, "--interval", "0.1", "--", sys.executable, "-c", shown]
        environment = {**os.environ, KEEP: "9,9", "PYTHONPATH": os.path.dirname(os.path.dirname(api.__file__))}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr


# The package.


def loaded_by(line: str) -> set[str]:
    code = f"{line}\nimport sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(api.__file__))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_the_package_loads_its_interface_only_when_it_is_used() -> None:
    assert {name for name in loaded_by("import slurm_dispatch") if name.startswith("slurm_dispatch")} == {
        "slurm_dispatch"
    }
    assert "slurm_dispatch.api" in loaded_by("from slurm_dispatch import publish")


def test_it_loads_the_standard_library_only() -> None:
    """And not much more of it than the helper does, whose start is measured (``make bench``)."""
    with_site = loaded_by("from slurm_dispatch import publish, latest")
    tops = {name.split(".")[0] for name in with_site}
    assert tops - set(sys.stdlib_module_names) - {"__main__"} == {"slurm_dispatch"}
    helper = loaded_by(
        "import slurm_dispatch.watch.main, slurm_dispatch.watch.prepare, slurm_dispatch.watch.session"
    )
    assert not {name for name in with_site - helper if not name.startswith("slurm_dispatch")}


def test_every_public_name_is_there() -> None:
    for name in slurm_dispatch.__all__:
        found = getattr(slurm_dispatch, name)
        assert name == "__version__" or inspect.getdoc(found)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        slurm_dispatch.nothing  # noqa: B018
