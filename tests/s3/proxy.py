"""A proxy on loopback before a real server: answers that come late, answers that are lost after the act, and a look
at the server, or an end, between any two requests.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

CHUNK = 1 << 16
METHODS = (b"PUT /", b"POST /", b"DELETE /", b"GET /", b"HEAD /")


class Cut(Exception):
    """This request never comes to the server."""


@dataclass
class Proxy:
    """Passes on what comes; a context manager.

    :ivar port: of the server behind it.
    :ivar delay_s: before each piece of an answer.
    :ivar cuts: so many of the next answers are received from the server and not passed on: the connection is closed.
    :ivar of: only answers to requests that begin with this are cut.
    :ivar gate: gets the first line of each request before the server does; where it raises :class:`Cut`, the server
        gets nothing and the connection is closed.
    """

    port: int
    delay_s: float = 0.0
    cuts: int = 0
    of: bytes = b"PUT "
    cut: int = 0
    gate: Callable[[bytes], None] = lambda _: None
    _alone: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Proxy:  # noqa: PYI034 - Python 3.10 has no Self
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        """One connection: requests one after the other, so the answer is to what came last."""
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self.port), timeout=60)
            except OSError:
                return
            with server:
                last = [b""]
                there = threading.Thread(target=self._requests, args=(client, server, last), daemon=True)
                there.start()
                try:
                    while answer := server.recv(CHUNK):
                        time.sleep(self.delay_s)
                        if last[0].startswith(self.of) and self._takes_one():
                            break
                        client.sendall(answer)
                except OSError:
                    pass
                for one in (client, server):
                    try:
                        one.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
                there.join(60)

    def _requests(self, client: socket.socket, server: socket.socket, last: list[bytes]) -> None:
        try:
            while request := client.recv(CHUNK):
                last[0] = request if request[:4].isupper() or request[:4] in {b"PUT ", b"GET "} else last[0]
                if request.startswith(METHODS):
                    self.gate(request.partition(b"\r\n")[0])
                server.sendall(request)
            server.shutdown(socket.SHUT_WR)
        except Cut:
            for one in (client, server):
                one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _takes_one(self) -> bool:
        with self._alone:
            if self.cuts <= 0:
                return False
            self.cuts -= 1
            self.cut += 1
            return True
