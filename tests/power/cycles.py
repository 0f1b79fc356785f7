"""Write, lose power, look, again: the host's side, and the plan that a seed makes."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.uml.kernel import IMAGE_BYTES, Kernel, make_image, warm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

GUEST = "tests.power.guest"
CRUEL = "commit=300,noauto_da_alloc"
"""Names and sizes go to the disk only when they are synced, and renaming over a file syncs nothing."""
KINDS = ("job", "fact", "script", "refuse", "claim", "execution", "choice", "kept", "published", "thinned", "tick",
         "note", "sbatch")  # fmt: skip
"""The statements after which a disk's writer is stopped, so that the loss comes right after a return."""
MID_WRITE_S = 1.5
"""The longest time for which the last disk is written before its power goes."""
CYCLES_A_STORY = 10


@dataclass(frozen=True)
class Disk:
    """One filesystem of a story.

    :ivar features: as for ``mkfs.ext4 -O``.
    :ivar mutant: the product without the fsync of every ``file`` or every ``folder``, or ``deaf`` for what an fsync
        answers; empty: as it is.
    :ivar size: bytes.
    """

    options: str = CRUEL
    features: str = ""
    mutant: str = ""
    size: int = IMAGE_BYTES


DISKS = (Disk(), Disk(features="fast_commit"), Disk("commit=300"), Disk())
OTHER_DISKS = (
    Disk("commit=300,data=writeback"),
    Disk(),
    Disk("commit=300,data=journal"),
    Disk(features="fast_commit"),
)
"""Every second story's. The last disk of each is the one whose power goes in mid-write."""


@dataclass
class Result:
    """What came of it.

    :ivar kills: how often the power went; each takes it from every disk.
    :ivar returned: how many calls of each kind had returned.
    :ivar looks: how many of them were looked after, each again after every later loss.
    :ivar lost: disk, kind, what and why.
    :ivar raised: disk, error, and whether it is one of the product's; of disks with trouble.
    :ivar behind: disk and kind of what had returned after its writes began to fail.
    """

    kills: int = 0
    returned: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    lost: list[tuple[int, str, str, str]] = field(default_factory=list)
    raised: list[tuple[int, str, bool]] = field(default_factory=list)
    behind: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Result) -> None:
        """Take another one in."""
        self.kills += other.kills
        self.returned += other.returned
        self.looks += other.looks
        self.lost += other.lost
        self.raised += other.raised
        self.behind += other.behind


class Story:
    """The same disks through several losses."""

    def __init__(self, folder: Path, disks: Sequence[Disk], seed: str) -> None:
        self._folder = folder
        self._disks = disks
        self._seed = seed
        self._images = [folder / f"disk{number}" for number in range(len(disks))]
        self._told = [folder / f"told{number}" for number in range(len(disks))]
        warm(GUEST)
        for image, told, disk in zip(self._images, self._told, disks, strict=True):
            make_image(image, disk.features, disk.size)
            told.write_text("")
        self._turn = 0
        self.result = Result()

    def lose(self, stops: Sequence[tuple[str, int] | None], after_s: float = 0.0) -> None:
        """Look, write, and take the power away.

        :param stops: for each disk, the kind and number of the statement that is its last; only the last disk may
            have none, and is written on for ``after_s``.
        """
        with self._boot(stops) as kernel:
            last = len(self._disks) - 1
            for said in kernel.statements():
                self._hear(said)
                if said["kind"] == "stopped" or (
                    said["kind"] == "writing" and said["lane"] == last and stops[last] is None
                ):
                    break
            for said in kernel.statements(until=time.monotonic() + after_s):
                self._hear(said)
            for said in kernel.kill():
                self._hear(said)
        self._turn += 1
        self.result.kills += 1

    def fail(self, stops: Sequence[tuple[str, int] | None], calls: int) -> None:
        """Write ``calls`` times on each disk, whatever fails, and lose the power.

        :param stops: from behind this statement no write to the disk succeeds; ``None``: it is left alone.
        """
        armed = self._folder / "armed"
        with self._boot(stops, calls, armed) as kernel:
            for said in kernel.statements():
                if said["kind"] == "arm":
                    kernel.fail_writes()
                    armed.touch()
                self._hear(said)
                if "turn" in said and armed.exists():
                    self.result.behind.append((said["lane"], said["kind"]))
                if said["kind"] == "stopped":
                    break
        self._turn += 1
        self.result.kills += 1

    def look(self) -> Result:
        """Look once more, and say what came of all."""
        with self._boot(None) as kernel:
            for said in kernel.statements():
                self._hear(said)
        return self.result

    def _boot(
        self, stops: Sequence[tuple[str, int] | None] | None, calls: int = 0, armed: Path | None = None
    ) -> Kernel:
        config = self._folder / "config"
        lanes = [
            {"options": disk.options, "told": str(told), "mutant": disk.mutant, "stop": stop}
            for disk, told, stop in zip(self._disks, self._told, stops or [None] * len(self._disks), strict=True)
        ]
        content = {"turn": self._turn, "seed": self._seed, "lanes": lanes, "write": stops is not None,
                   "calls": calls, "armed": str(armed)}  # fmt: skip
        config.write_text(json.dumps(content))
        return Kernel(GUEST, config, self._images)

    def _hear(self, said: dict[str, Any]) -> None:
        if said["kind"] == "lost":
            self.result.lost.append((said["lane"], said["of"], said["what"], said["why"]))
        elif said["kind"] == "raised":
            self.result.raised.append((said["lane"], said["error"], said["ours"]))
        elif said["kind"] == "looked":
            self.result.looks += Counter(said["found"])
        elif "turn" in said:
            self.result.returned[said["kind"]] += 1
            with self._told[said["lane"]].open("a") as stream:
                stream.write(json.dumps(said) + "\n")


def run(folder: Path, cycles: int, seed: str, say: Callable[[str], None] = lambda _: None) -> Result:
    """``cycles`` losses, on fresh disks after every :data:`CYCLES_A_STORY`."""
    rng = random.Random(seed)
    kinds: list[str] = []
    total = Result()
    done = 0
    while done < cycles:
        place = folder / f"story{done}"
        place.mkdir()
        disks = OTHER_DISKS if done // CYCLES_A_STORY % 2 else DISKS
        story = Story(place, disks, f"{seed} {done}")
        for _ in range(min(CYCLES_A_STORY, cycles - done)):
            stops: list[tuple[str, int] | None] = []
            for _ in disks[:-1]:
                kinds = kinds or rng.sample(KINDS, len(KINDS))  # each has its turn before any comes again
                stops.append((kinds.pop(), rng.randrange(1, 4)))
            after_s = rng.uniform(0.0, MID_WRITE_S)
            story.lose([*stops, None], after_s)
            done += 1
            behind = ", ".join(f"{kind} {number}" for kind, number in filter(None, stops))
            say(f"loss {done} of {cycles}, right behind {behind}, and {after_s:.2f} s into writing: "
                f"{story.result.returned.total()} calls had returned, {len(story.result.lost)} lost")  # fmt: skip
        total.add(story.look())
        shutil.rmtree(place)
    return total


def table(result: Result, seed: str) -> str:
    """The result for people."""
    lost = Counter(kind for _, kind, _, _ in result.lost)
    kinds = sorted({*result.returned, *result.looks, *lost} - {"thinning"})
    lines = [f"power losses {result.kills}, seed {seed}", f"{'what':12}  returned  looked after  lost"]
    lines += [f"{kind:12} {result.returned[kind]:9} {result.looks[kind]:13} {lost[kind]:5}" for kind in kinds]
    lines += [f"LOST on disk {number}: {kind} {what}: {why}" for number, kind, what, why in result.lost]
    return "\n".join(lines)
