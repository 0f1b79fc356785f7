"""The protocol on real servers: SeaweedFS, which keeps the condition of a put, and JuiceFS's gateway, which does not.

Both run in this process's own folders, on loopback.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import findings, open_store
from slurm_dispatch.errors import AmbiguousError, CannotCreateError, StoreError, TransientError
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.s3.bucket import Made
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.store.roots import Answer
from tests.s3.proxy import Proxy
from tests.s3.scene import FIRST, OLD, names, published, save
from tests.s3.servers import BUCKET, Seaweed, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.s3.servers import Juice, Server

WRITERS = 8
ROUNDS = 3
MANY = 2500
PATIENCE_S = 120.0
"""More than anything here takes on a machine that does other things too."""

PUBLISH_ONCE = """
import sys
from slurm_dispatch.anyroot import open_store
root = open_store(sys.argv[1], timeout_s=120)
print("ready", flush=True)
sys.stdin.readline()
print(root.publish(1000000, int(sys.argv[2]), sys.argv[3], attempt=sys.argv[4]).name, flush=True)
"""


def test_ports_that_somebody_else_has_got_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of a server that ran once stay, since its clients know them."""
    drawn: list[list[int]] = []
    with socket.socket() as somebody:

        def ports(count: int, host: str) -> list[int]:
            drawn.append(free_ports(count, host))
            if len(drawn) == 1:
                somebody.bind(("127.0.0.1", drawn[0][1]))
                somebody.listen()
            return drawn[-1]

        monkeypatch.setattr("tests.s3.servers.free_ports", ports)
        server = Seaweed(tmp_path)
        try:
            server.start()
            server.stop()
            server.start()
        finally:
            server.stop()
    assert server.ports == drawn[-1]
    assert len(drawn) == 2


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, no_aws_files: None, tmp_path: Path) -> Callable[..., S3Root]:
    """Opens a root of the test's own on a server, perhaps through something that stands before it."""

    def opened(server: Server, endpoint: str | None = None, timeout_s: float = PATIENCE_S) -> S3Root:
        for name, value in server.environment(endpoint).items():
            monkeypatch.setenv(name, value)
        root = open_store(f"s3://{BUCKET}/{tmp_path.name}", timeout_s=timeout_s)
        assert isinstance(root, S3Root)
        return root

    return opened


def test_writers_race_for_one_name(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C086, C143: of many who create one name at once exactly one does, round after round."""
    root = use(seaweed)
    for number in range(ROUNDS):
        start = threading.Barrier(WRITERS)

        def write(_: int, key: str = f"race-{number}", start: threading.Barrier = start) -> Made:
            start.wait(PATIENCE_S)
            return root.bucket.create(root.place.key("own-races", key), b"", root.bucket.deadline())

        with ThreadPoolExecutor(WRITERS) as writers:
            made = Counter(writers.map(write, range(WRITERS)))
        assert made == {Made.NEW: 1, Made.FOUND: WRITERS - 1}


def test_processes_publish_one_save(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C108: each of them is told that it is published, and there is one publication."""
    root = use(seaweed)
    path = save(root, OLD, "checkpoint-7")
    argv = [sys.executable, "-c", PUBLISH_ONCE, root.path, "7", path, OLD]
    several = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(4)
    ]
    for one in several:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    answers = [one.communicate("\n", timeout=PATIENCE_S)[0].strip() for one in several]
    assert {one.returncode for one in several} == {0}
    assert set(answers) == {root.listing()[0].name}
    assert len(root.listing()) == 1


def test_2500_publications(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C151: three pages, none is left out, and latest is the last of them."""
    root = use(seaweed)
    many = names(MANY)
    save(root, OLD, f"checkpoint-{MANY - 1}")

    def publish(name: str) -> Made:
        return root.bucket.create(root.place.key("pub", name), b"", root.bucket.deadline())

    with ThreadPoolExecutor(16) as publishers:
        made = Counter(publishers.map(publish, many))
    assert made == {Made.NEW: MANY}
    found = use(seaweed)
    latest = found.latest()
    assert latest is not None
    assert latest.publication.step == MANY - 1
    assert [one.name for one in found.listing()] == many[::-1]


def test_a_server_that_is_stopped_and_started(
    tmp_path_factory: pytest.TempPathFactory, use: Callable[..., S3Root]
) -> None:
    """What was acknowledged outlives a kill; while nobody answers it is a store error; later it goes on."""
    server = Seaweed(tmp_path_factory.mktemp("killed"))
    server.start()
    try:
        root = use(server)
        root.claim("mine", 0)
        first = published(root, 1)
        server.stop(signal.SIGKILL)
        away = use(server, timeout_s=1.0)
        with pytest.raises(TransientError):
            away.latest()
        with pytest.raises((AmbiguousError, TransientError)):
            away.publish(FIRST, 2, first.path, attempt=OLD)
        again = threading.Timer(0.5, server.start)
        again.start()
        second = root.publish(FIRST, 2, first.path, attempt=OLD)
        again.join(PATIENCE_S)
        latest = use(server).latest()
        assert latest is not None
        assert latest.publication == second
        assert use(server).listing() == [second, first]
        use(server).claim("mine", 0)
    finally:
        server.stop(signal.SIGKILL)


def test_answers_that_come_late(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """In time they are waited for; past the timeout it is not known, and the same again is success."""
    with Proxy(seaweed.port, delay_s=0.1) as proxy:
        slow = use(seaweed, proxy.endpoint)
        first = published(slow, 1)
        latest = slow.latest()
        assert latest is not None
        assert latest.publication == first
        proxy.delay_s = 5.0
        begun = time.monotonic()
        with pytest.raises(StoreError):
            use(seaweed, proxy.endpoint, timeout_s=1.0).publish(FIRST, 2, first.path, attempt=OLD)
        assert time.monotonic() - begun < PATIENCE_S
    second = use(seaweed).publish(FIRST, 2, first.path, attempt=OLD)
    assert use(seaweed).listing() == [second, first]


def test_answers_that_are_lost_after_the_act(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C139: on a real server: the put is done, nobody is told, and the next try finds it."""
    with Proxy(seaweed.port) as proxy:
        root = use(seaweed, proxy.endpoint)
        path = save(root, OLD, "checkpoint-1")
        root.publish(FIRST, 1, path, attempt=OLD)
        proxy.cuts = 2
        publication = root.publish(FIRST, 2, path, attempt=OLD)
        assert proxy.cut == 2
        proxy.cuts = 1
        root.claim("mine", 1)
        assert proxy.cut == 3
        proxy.of, proxy.cuts = b"GET ", 1
        assert root.listing()[0] == publication
        assert proxy.cut == 4
    assert [one.step for one in use(seaweed).listing()] == [2, 1]


def test_what_a_good_store_is_proved_to_do(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C117, C143: everything is, and nothing is left of the trial."""
    root = use(seaweed)
    found = findings(root, "doctor")
    assert {one.answer for one in found} == {Answer.PROVED}
    assert root.bucket.below(root.place.key("exec"), root.bucket.deadline()) == []


def test_a_gateway_that_ignores_the_condition(juice: Juice, use: Callable[..., S3Root]) -> None:
    """C135, C143: JuiceFS's takes both puts of a name; nothing is published there, and doctor says why."""
    root = use(juice)
    path = save(root, OLD, "checkpoint-1")
    with pytest.raises(CannotCreateError, match="makes one name twice") as caught:
        root.publish(FIRST, 1, path, attempt=OLD)
    assert juice.endpoint in str(caught.value)
    assert root.listing() == []
    found = {one.what: one for one in findings(root, "doctor")}
    assert found["one name once"].answer is Answer.REFUSED
    assert "one winner of many" not in found


def test_names_that_a_saver_may_choose(seaweed: Seaweed, use: Callable[..., S3Root]) -> None:
    """C129: spaces, signs and other letters come back as they were put."""
    root = use(seaweed)
    for name in ("epoch=3-step=40.ckpt", "a b+c%20d", "größe #1 *?&", "日本"):
        path = save(root, OLD, name)
        publication = root.publish(FIRST, 1, path, attempt=OLD)
        assert publication == Publication(FIRST, 1, path.encode())
        assert root.save_objects(publication.path, root.bucket.deadline())[0].key.endswith(f"{name}/weights")
    assert len(root.listing()) == 4
