"""Real savers that write to S3 themselves, on a real server, looked at between any two of their requests.

A proxy stands before the server. At each request of a save that changes something the helper's own scan is made, of
what is there at that moment; then in further saves the program is killed at it, and the scan is made of what is left.
What is published is never less than the finished save, and the library loads it.

Orbax 0.12 is not among them: it refuses to save to ``s3://`` ("Checkpoint path should be absolute", for it makes
``s3:/bucket/...`` of the place; orbax/checkpoint/_src/serialization/tensorstore_utils.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.s3.bucket import Bucket
from slurm_dispatch.s3.place import parse_place
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.settings import settings
from slurm_dispatch.watch.keeping import Written
from slurm_dispatch.watch.objects import Objects
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.publish import Publisher
from tests.s3.fixtures import no_aws_files, seaweed
from tests.s3.proxy import Cut, Proxy
from tests.s3.servers import BUCKET, LOOPBACK
from tests.savers.matrix import Program
from tests.savers.scene import Now
from tests.store.scene import FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_dispatch.s3.bucket import Meta
    from tests.s3.servers import Seaweed

__all__ = ["no_aws_files", "seaweed"]

pytestmark = pytest.mark.savers
PROGRAM = Path(__file__).resolve().parent / "programs" / "save_to_s3.py"
LOAD_S = 600.0
CHANGES = (b"PUT ", b"POST ", b"DELETE ")


@dataclass(frozen=True)
class Case:
    """One saver.

    :ivar step: of its save; ``None`` where nothing in S3 proves it whole, so that it is never published.
    """

    kind: str
    step: int | None


CASES = [Case("dcp", 7), Case("lightning", 3), Case("boto3", 7), Case("copied", None)]
SAMPLE = CASES[:1]


@dataclass
class Watching:
    """One execution, and the helper's scans of it."""

    root: S3Root
    attempt: str
    clock: Now = field(default_factory=Now)

    def __post_init__(self) -> None:
        tree = Objects(self.root, self.attempt)
        place = Place(self.root.path, "k" * 12, FIRST, self.attempt)
        self.publisher = Publisher(
            self.root, place, parse(["--", "x"]), keeping=Written(self.root, self.attempt, tree), tree=tree,
            directory=self.root.execution(self.attempt), resumed_step=None, clock=self.clock,
        )  # fmt: skip
        self.publisher.begin()
        self.steps: list[int] = []
        self.objects: set[Meta] = set()

    def look(self) -> None:
        """Scans, with more than ``--settle`` between them; and what is there of what is published."""
        for _ in range(4):
            self.steps += self.publisher.scan(assume=True).published
            self.clock.seconds += 40
        if self.steps and not self.objects:
            self.objects = self.there()

    def there(self) -> set[Meta]:
        """The objects of the published save, as they are now."""
        (publication,) = [one for one in self.root.listing() if one.attempt == self.attempt]
        return set(self.root.save_objects(publication.path, self.root.bucket.deadline()))

    @property
    def place(self) -> str:
        """The published save."""
        (publication,) = [one for one in self.root.listing() if one.attempt == self.attempt]
        return f"{self.root.path}/{publication.path.decode()}"


class Requests:
    """What the proxy does with the requests of one save.

    :param kill_at: of those that change something, the one at which the program is killed; 0 for none.
    """

    def __init__(self, watching: Watching, kill_at: int = 0) -> None:
        self.lines: list[bytes] = []
        self.troubles: list[str] = []
        self.pid = 0
        self._watching = watching
        self._kill_at = kill_at
        self._alone = threading.Lock()

    def __call__(self, line: bytes) -> None:
        """See :attr:`Proxy.gate`."""
        if not line.startswith(CHANGES):
            return
        with self._alone:
            self.lines.append(line)
            if not self._kill_at:
                try:
                    self._watching.look()
                except Exception as error:  # this is a thread of the proxy's
                    self.troubles.append(repr(error))
            elif len(self.lines) >= self._kill_at:
                try:
                    os.killpg(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                raise Cut

    def began(self, pid: int) -> None:
        """The child is there, and its session will have its id."""
        self.pid = pid


@pytest.fixture
def server(seaweed: Seaweed, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server behind a proxy; the savers are told of the proxy, and the helper of the server."""
    with Proxy(seaweed.port) as proxy:
        for name, value in {**seaweed.environment(), "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        yield proxy


def run(
    case: Case, proxy: Proxy, tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch, *, kills: int
) -> None:
    """One save that is looked at throughout, and so many that are killed, evenly, or at each request."""
    for name, value in {"AWS_ENDPOINT_URL": proxy.endpoint, "ANYWHERE": f"s3://{BUCKET}"}.items():
        monkeypatch.setenv(name, value)
    places: list[str] = []
    with Program(libraries, PROGRAM, [case.kind], tmp_path) as program:
        root = S3Root(direct(f"s3://{BUCKET}/{tmp_path.name}", proxy))
        requests = looked_at(case, program, proxy, Watching(root, "lookedat"), places)
        for number in sorted({1 + requests * one // kills for one in range(kills)}):
            killed(program, proxy, Watching(root, f"killed{number}"), number, places)
    load(case, proxy, libraries, places)


def direct(root: str, proxy: Proxy) -> Bucket:
    """The helper's own way to the server."""
    given = settings()
    given.config["endpoint"] = f"http://{LOOPBACK}:{proxy.port}"
    return Bucket(parse_place(root), given, timeout_s=60.0)


def looked_at(case: Case, program: Program, proxy: Proxy, watching: Watching, places: list[str]) -> int:
    """How many requests of a save change something; where it is published is added to ``places``."""
    proxy.gate = requests = Requests(watching)
    status = program.plain(watching.root.execution(watching.attempt), requests.began)
    watching.look()
    assert (status, requests.troubles) == (0, [])
    assert requests.lines
    assert watching.steps == ([] if case.step is None else [case.step]), requests.lines
    if watching.steps:
        assert watching.objects == watching.there(), requests.lines
        places.append(watching.place)
    return len(requests.lines)


def killed(program: Program, proxy: Proxy, watching: Watching, number: int, places: list[str]) -> None:
    """A save that is killed at this request."""
    proxy.gate = requests = Requests(watching, number)
    status = program.plain(watching.root.execution(watching.attempt), requests.began)
    assert (status, requests.troubles) == (-signal.SIGKILL, []), number
    watching.look()
    if watching.steps:
        places.append(watching.place)


def load(case: Case, proxy: Proxy, libraries: Path, places: list[str]) -> None:
    """The library itself loads every save that was published; the program compares."""
    proxy.gate = lambda _: None
    if not places:
        return
    ended = subprocess.run(
        [str(libraries), str(PROGRAM), "load", case.kind, *places], capture_output=True, text=True, timeout=LOAD_S,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.sample
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.kind)
def test_a_save_looked_at_between_its_requests(
    case: Case, server: Proxy, tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And killed at one of them."""
    run(case, server, tmp_path, libraries, monkeypatch, kills=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_save_killed_at_each_of_its_requests(
    case: Case, server: Proxy, tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(case, server, tmp_path, libraries, monkeypatch, kills=100)
