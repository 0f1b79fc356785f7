"""The helper while a job saves: its processor time beside eight ranks, and the way from a save to its publication.

With the helper's usual options, on a folder, and with ``--from`` on a SeaweedFS of its own.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench.eight import RANKS, SHARD
from bench.row import Row, medians
from bench.s3 import root_on
from bench.watched import ATTEMPT, Helper, used
from slurm_dispatch.watch.glance import GLANCE_S, LIVELY_S
from tests.s3.servers import BUCKET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_dispatch.s3.root import S3Root

MINUTE_S = 60.0
SHARE = 0.01
"""The most on a folder: so much of a core."""
SAVES = 12
SIZE = 4 << 20
DELAY_S = 1.0
"""The most between a save's last byte and its publication, the longest of all waits."""
SEED = 4


def rows() -> Iterator[Row]:
    """All figures of this part."""
    with tempfile.TemporaryDirectory(prefix="bench-saving-") as folder:
        here = Path(folder)
        yield from on_a_folder(here)
        server = Seaweed(here)
        server.start()
        try:
            yield from in_s3(server, here)
        finally:
            server.stop()


def on_a_folder(here: Path) -> Iterator[Row]:
    """Against the calls without which no save is kept and published, and no change is seen."""
    root = here / "eight"
    root.mkdir()
    saves, used_s = minute(str(root), {}, [])
    source = _save(here / "bare" / "checkpoint", [f"shard-{rank}" for rank in range(RANKS)], SHARD)
    begin_s = time.process_time()
    _glances(source)
    for number in range(saves):
        _bare(source, number)
    bare_s = time.process_time() - begin_s
    what = f"CPU beside {RANKS} ranks, {saves} saves in {MINUTE_S:g} s"
    yield Row(what, used_s, "link, copy, fsync, create; stats", bare_s, 10)
    yield Row("  the same, of a core", used_s, f"{SHARE:.0%} of a core", SHARE * MINUTE_S, 1)
    root = here / "delay"
    root.mkdir()
    taken = delays(str(root), root / "exec" / ATTEMPT, {}, [])
    numbers = iter(range(10**6, 2 * 10**6))
    (bare_s,) = medians(SAVES, lambda: _bare(source, next(numbers)))
    yield from _delays("a proved save to its publication", taken, bare_s, "link, copy, fsync, create")


def in_s3(server: Seaweed, here: Path) -> Iterator[Row]:
    """Against the library's own puts of the same files."""
    more = server.environment()
    local = here / "local"
    saves, used_s = minute(f"s3://{BUCKET}/eight", more, ["--from", str(local)])
    root = root_on(server, "bare")
    source = _save(here / "again" / "checkpoint", [f"shard-{rank}" for rank in range(RANKS)], SHARD)
    begin_s = time.process_time()
    for number in range(saves):
        _put(root, source, number)
    bare_s = time.process_time() - begin_s
    what = f"CPU beside {RANKS} ranks, {saves} saves in {MINUTE_S:g} s, --from"
    yield Row(what, used_s, "put of each file, put", bare_s, 4)
    other = here / "other"
    taken = delays(f"s3://{BUCKET}/delay", other / ATTEMPT, more, ["--from", str(other)])
    once = _save(here / "once" / "checkpoint", ["weights"], SIZE)
    numbers = iter(range(10**6, 2 * 10**6))
    (bare_s,) = medians(SAVES, lambda: _put(root, once, next(numbers)))
    yield from _delays("a proved save to its publication, --from", taken, bare_s, "put of each file, put")


def minute(root: str, more: Mapping[str, str], words: Sequence[str]) -> tuple[int, float]:
    """How many saves are published beside eight ranks, and the helper's seconds on a processor."""
    command = [sys.executable, "-m", "bench.eight", "{dir}", str(MINUTE_S)]
    with Helper(root, [*words, "--done", "done", "--", *command], more) as helper:
        pids = helper.pids()
        begun_s = used_s = used(pids)
        while helper.process.poll() is None:
            time.sleep(0.2)
            try:
                used_s = used(pids)
            except FileNotFoundError:  # it has ended: what it used in the last moment is not seen
                break
        helper.process.wait()
    if helper.process.returncode:
        raise AssertionError(helper.lines[-5:])
    return sum("published step" in line for _, line in helper.lines), used_s - begun_s


def delays(root: str, directory: Path, more: Mapping[str, str], words: Sequence[str]) -> list[float]:
    """Seconds from the marker of each save to the line that says that it is published."""
    drawn = random.Random(SEED)
    taken = []
    with Helper(root, [*words, "--done", "done", "--", "sleep", "3600"], more) as helper:
        for step in range(1, SAVES + 1):
            time.sleep(LIVELY_S + drawn.uniform(1.0, 2.0))  # so that no scan follows one of the save before
            save = _save(directory / f"checkpoint-{step}", ["weights"], SIZE)
            begin = time.perf_counter()
            (save / "done").touch()
            taken.append(helper.until(f"published step {step}:") - begin)
    return taken


def _delays(what: str, taken: list[float], bare_s: float, floor: str) -> Iterator[Row]:
    yield Row(f"{what}, longest of {SAVES}", max(taken), floor, bare_s, goal_s=DELAY_S)
    yield Row("  the same, median", statistics.median(taken), floor, bare_s)


def _save(path: Path, names: Sequence[str], size: int) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_bytes(os.urandom(size))
    return path


def _glances(source: Path) -> None:
    """A minute's looks at the folder and at the files of a save, at the pace of the helper."""
    for _ in range(int(MINUTE_S / GLANCE_S)):
        os.stat(source.parent)
        with os.scandir(source) as entries:
            for entry in entries:
                entry.stat()


def _bare(source: Path, number: int) -> None:
    """Keep and publish: a link to each file, a copy of the marker, and what makes them durable."""
    kept, pub = source.parent / "kept", source.parent / "pub"
    for folder in (kept, pub):
        folder.mkdir(exist_ok=True)
    temporary = kept / f".tmp-{number}"
    temporary.mkdir()
    for file in source.iterdir():
        os.link(file, temporary / file.name)
    with open(temporary / "done", "wb") as marker:
        os.fsync(marker.fileno())
    _sync(temporary)
    temporary.rename(kept / str(number))
    _sync(kept)
    (pub / f"{number:0110d}").touch(exist_ok=False)
    _sync(pub)
    _sync(source.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def _put(root: S3Root, source: Path, number: int) -> None:
    """Each file, several at once, then a publication."""
    import obstore

    store = root.bucket._store()  # noqa: SLF001 - the floor is the very same client
    with ThreadPoolExecutor(RANKS) as workers:
        list(workers.map(lambda file: obstore.put(store, f"bare/{number}/{file.name}", file), source.iterdir()))
    obstore.put(store, f"bare/pub/{number:0110d}", b"", mode="create")
