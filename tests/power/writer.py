"""What is written in the guest until the power goes: everything by the product's own code, each return told.

Which call comes next is drawn from a seed. A statement is made after the call that it names has returned.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.clock import content as clock_content
from slurm_dispatch.controller.hints import tick_folder
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.durable import make_folder
from slurm_dispatch.errors import DispatchError
from slurm_dispatch.model.identity import Word
from slurm_dispatch.records.cessation import Counted
from slurm_dispatch.records.facts import render
from slurm_dispatch.state.asked import write_asked
from slurm_dispatch.state.folder import StateFolder, make_state
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.root import open_root
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from tests.power import saves
from tests.power.site import Site
from tests.records.life import Life, make_spec
from tests.uml.channel import tell

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from slurm_dispatch.state.jobs import Record

JOB = "power"
SAVES_MAX = 120
"""Saves of one turn: then it writes facts only, so that the disk does not fill up."""
SAVES_AN_EXECUTION = 8
FACTS_A_JOB = 60
SHARE = {"save": 8, "fact": 6, "job": 2, "script": 1, "refuse": 1, "tick": 3, "hint": 2, "again": 1}
"""How often which call comes, against the others."""
TOLD_BY = {"claim": "again", "execution": "again", "choice": "again", "kept": "save", "published": "save",
           "thinned": "save", "note": "tick", "sbatch": "tick"}  # fmt: skip
"""Which call makes a statement of which kind, where they have not one name."""
HASTE = 24
"""What leads to the stop comes so much more often."""


CALLS_MAX = 5_000
"""A stop that does not come in so many calls never comes."""


class Stopped(BaseException):
    """The statement was made after which nothing more is to be called. No ``except Exception`` may hold it up."""


class Writer:
    """One disk's writer.

    :param folder: where the disk is mounted.
    :param turn: how often the power went before; names of different turns differ.
    :param stop: ``(kind, n)``: after the n-th statement of the kind nothing more is called; ``None``: it goes on.
    """

    def __init__(
        self, folder: str, lane: int, turn: int, rng: random.Random, stop: tuple[str, int] | None
    ) -> None:
        self._lane, self._turn, self._rng, self._stop = lane, turn, rng, stop
        self._told = 0
        self._root_path, state = os.path.join(folder, "root"), os.path.join(folder, "state")
        make_folder(self._root_path)
        make_state(state, slurm_uid=os.geteuid(), slurm_gid=os.getegid())
        self._root = open_root(self._root_path)
        self._state = StateFolder(state)
        self._own_files = tick_folder(state)
        self._jobs: list[tuple[Record, Life, Iterator[None]]] = []
        self._made = self._executions = self._saves = self._left = 0
        self._attempt, self._epoch, self._thins = "", 0, False
        self._kept: tuple[int, str, saves.Style] | None = None
        self._site = Site(os.path.join(folder, f"site{turn}"), f"s{turn}", self._tell)

    def fill(self, left: int) -> None:
        """Leave so many bytes."""
        with open(os.path.join(self._root.path, "ballast"), "wb") as stream:
            found = os.fstatvfs(stream.fileno())
            os.posix_fallocate(stream.fileno(), 0, found.f_bfree * found.f_bsize - left)

    def run_on(self, calls: int) -> None:
        """Write ``calls`` times, whatever fails; what was kept last is published first."""
        names, weights = zip(*SHARE.items(), strict=True)
        self._stop = None
        for name in ["publish_kept", *self._rng.choices(names, weights, k=calls)]:
            try:
                getattr(self, f"_{name}")()
            except Exception as error:
                ours = isinstance(error, DispatchError)
                tell("raised", lane=self._lane, error=f"{name}: {type(error).__name__}: {error}"[:200], ours=ours)

    def run(self) -> None:
        """Write until the statement comes at which to stop, or the power goes."""
        share = dict(SHARE)
        if self._stop is not None:
            share[TOLD_BY.get(self._stop[0], self._stop[0])] += HASTE
        names, weights = zip(*share.items(), strict=True)
        try:
            self._execution()
            for _ in range(CALLS_MAX):
                getattr(self, f"_{self._rng.choices(names, weights)[0]}")()
        except Stopped:
            return
        raise AssertionError(f"{CALLS_MAX} calls and not stopped: {self._stop}")

    def _tell(self, kind: str, **fields: Any) -> None:
        tell(kind, lane=self._lane, turn=self._turn, **fields)
        # Not after a save of which nothing is promised: it is no loss if it is lost.
        if self._stop is not None and kind == self._stop[0] and fields.get("whole", True):
            self._told += 1
            if self._told == self._stop[1]:
                raise Stopped

    # The checkpoint root

    def _execution(self) -> None:
        self._executions += 1
        self._left = SAVES_AN_EXECUTION
        self._thins = self._rng.random() < 0.6
        self._attempt = f"t{self._turn:04d}e{self._executions:04d}" + "0" * 10
        # A submission for each loss, a restart for each execution between two.
        self._epoch = (self._turn + 1) * 10**6 + self._executions
        self._root.claim(JOB, 0)
        self._tell("claim", job=JOB, generation=0)
        self._root.make_execution(self._attempt)
        self._tell("execution", attempt=self._attempt)
        self._choose(again=False)

    def _choose(self, *, again: bool) -> None:
        made = choose(self._root, self._attempt, epoch=self._epoch, again=again)
        resume = None if made.resume is None else os.path.relpath(made.resume, self._root.path)
        self._tell("choice", attempt=self._attempt, number=made.turn, epoch=made.epoch, resume=resume,
                   step=made.step, source=made.source)  # fmt: skip

    def _again(self) -> None:
        """A second turn of the command, or the next execution."""
        if self._attempt and self._rng.random() < 0.3:
            self._choose(again=True)
        else:
            self._execution()

    def _save(self) -> None:
        if self._saves >= SAVES_MAX:
            return
        if not self._left or not self._attempt:
            self._execution()
        self._saves += 1
        self._left -= 1
        style = self._rng.choice(list(saves.STYLES.values()))
        step = self._turn * 10_000 + self._saves
        source = os.path.join(self._root.execution(self._attempt), f"{style.name}-{step}")
        saves.write(source, style)
        if style.sync and self._rng.random() < 0.5:
            self._publish(step, source, kept=False, whole=True, style=style)
            return
        kept = keep(self._root, self._attempt, source, proof=Proof.PROVED, copy=style.copy)
        assert kept is not None
        self._kept = step, os.path.join(self._root.path, kept.decode("ascii")), style
        self._tell("kept", path=kept.decode("ascii"), style=style.name, whole=style.whole_when_kept)
        if self._rng.random() < 0.85:
            self._publish_kept()
            if self._rng.random() < 0.8:
                shutil.rmtree(source, ignore_errors=True) if os.path.isdir(source) else os.unlink(source)
            if self._thins:
                self._tell("thinning", attempt=self._attempt)
                thin(self._root, self._attempt, epoch=self._epoch)
                self._tell("thinned")

    def _publish_kept(self) -> None:
        if self._kept is not None:
            step, path, style = self._kept
            self._publish(step, path, kept=True, whole=style.whole_when_published, style=style)

    def _publish(self, step: int, path: str, *, kept: bool, whole: bool, style: saves.Style) -> None:
        made = self._root.publish(self._epoch, step, path, attempt=self._attempt, sync=style.sync)
        self._tell("published", name=made.name, kept=kept, whole=whole, style=style.name)

    # Records, notes and what ticks keep

    def _job(self) -> None:
        self._made += 1
        script = self._rng.randbytes(self._rng.randrange(100_000))
        environment = self._rng.randbytes(self._rng.randrange(300_000))
        life = Life(make_spec(job=f"t{self._turn}j{self._made}"))
        spec = life.facts[0]
        record = self._state.create_job(life.spec, script, environment, by=spec.by, at=spec.at)
        self._tell("job", key=life.spec.job, script=_digest(script), environment=_digest(environment),
                   fact=_digest(render(spec)))  # fmt: skip
        self._jobs = [*self._jobs[-2:], (record, life, _story(life))]

    def _fact(self) -> None:
        if not self._jobs or len(self._jobs[-1][1].facts) > FACTS_A_JOB:
            self._job()
        record, life, story = self._rng.choice(self._jobs)
        next(story)
        fact = life.facts[-1]
        assert record.append(fact.seq, fact.kind, fact.by, fact.body, at=fact.at)
        self._tell("fact", key=record.key, seq=fact.seq, fact=_digest(render(fact)))

    def _script(self) -> None:
        if not self._jobs:
            self._job()
        record = self._rng.choice(self._jobs)[0]
        self._tell("script", key=record.key, script=record.add_script(self._rng.randbytes(50_000)))

    def _refuse(self) -> None:
        word = Word(JOB, 0, self._turn * 1000 + self._rng.randrange(1000) + 1)
        self._state.notes().write_refuse(word)
        self._tell("refuse", name=f"refuse.{JOB}.0.{word.submission}")

    def _tick(self) -> None:
        self._site.step()

    def _hint(self) -> None:
        """What may be lost, and must never be read as something else."""
        at = float(self._rng.randrange(10**9))
        write_file(self._own_files, "clock", clock_content(Clock(_digest(str(at).encode())[:8], at, at, at)))
        pad = "x" * self._rng.randrange(50_000)
        write_file(self._own_files, "padded", {"pad": pad, "digest": _digest(pad.encode())})
        if self._jobs:
            record = self._rng.choice(self._jobs)[0]
            write_asked(record.folder, {"a": Counted("unknown", "s", "x" * 5000, int(at) + 1, at, at)})
        self._tell("hint")


def _story(life: Life) -> Iterator[None]:
    """A life fact by fact: executions that are preempted, one after the other."""
    number = 0
    while True:
        number += 1
        life.intent(number, len(life.facts) if number > 1 else None)
        yield
        life.submitted(number)
        yield
        life.started(number)
        yield
        for step in range(3):
            life.progress(number, number * 100 + step)
            yield
        life.end(number, "preempted")
        yield
        life.resubmit(number + 1)
        yield


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
