"""A small S3 server in this process, for the faults that no real server shows on demand.

It keeps the protocol that ``tests/store/test_conformance.py`` holds every store to, until it is told a fault: which
request it meets, what happens instead, and how often. A fault has a direction: before the act, or after it with the
answer lost. Each request is remembered with its headers. Signatures are not checked.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from types import TracebackType

BUCKET = "bucket"
DEADLINE_S = 60.0
CHECKSUMS = ("x-amz-checksum", "x-amz-sdk-checksum-algorithm", "x-amz-trailer")
FAULTS = frozenset(
    ["answer", "act-then-answer", "drop", "act-then-drop", "act-late", "wait", "dribble", "ignore", "spoil"]
)


@dataclass
class Fault:
    """What happens to a request instead.

    :ivar kind: ``answer`` (with the status, nothing is done), ``act-then-answer`` (done, and then that status),
        ``drop`` (the connection is closed, nothing is done), ``act-then-drop`` (done, and the answer is lost),
        ``act-late`` (the connection is closed, and it is done ``seconds`` later), ``wait`` (``seconds``, or for
        ``until``, then as always), ``dribble`` (the answer comes one byte a time with ``seconds`` between),
        ``ignore`` (the condition is), ``spoil`` (more is stored than was sent).
    :ivar method: of the request.
    :ivar key: a part of its key; for a listing, of its prefix.
    :ivar query: a word of its query, if it must have one (``uploads`` begins an upload in parts, ``uploadId`` is in
        each of its requests).
    :ivar times: how often; -1 for always.
    """

    kind: str
    method: str = "PUT"
    key: str = ""
    query: str = ""
    times: int = -1
    status: int = 500
    code: str = "InternalError"
    seconds: float = 0.0
    until: threading.Event | None = None
    met: int = 0

    def __post_init__(self) -> None:
        assert self.kind in FAULTS, self.kind


@dataclass(frozen=True)
class Request:
    """What came in. Names of headers are in lower case."""

    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    length: int


@dataclass
class Stub:
    """The server; a context manager.

    :ivar page: keys in a page of a listing.
    :ivar ends: what a listing says at the end of a page that is not the last: ``token``, or ``nothing`` for a server
        that calls every page the last.
    :ivar ghosts: keys that are listed and not there.
    :ivar omits: by key, how many of the next listings leave it out; -1 for all.
    :ivar conditions: false for a server that answers 501 to a condition.
    :ivar checksums: false for a server that answers 400 to any checksum or chunked body.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    page: int = 1000
    ends: str = "token"
    ghosts: set[str] = field(default_factory=set)
    omits: dict[str, int] = field(default_factory=dict)
    conditions: bool = True
    checksums: bool = True

    def __post_init__(self) -> None:
        self._alone = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stub = self
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Stub:  # noqa: PYI034 - Python 3.10 has no Self
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self) -> dict[str, str]:
        """The variables by which a client finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def fault(self, kind: str, **more: Any) -> Fault:
        """Tell it a fault; the first one that a request meets happens."""
        fault = Fault(kind, **more)
        self.faults.append(fault)
        return fault

    def of(self, method: str, key: str = "") -> list[Request]:
        """The requests of a method whose key has this part."""
        return [request for request in self.requests if request.method == method and key in request.key]

    # What the handler asks

    def meet(self, request: Request) -> Fault | None:
        """The fault that this request meets, counted."""
        with self._alone:
            self.requests.append(request)
            for fault in self.faults:
                about = request.key or request.query.get("prefix", [""])[0]
                if fault.method == request.method and fault.key in about and fault.times != 0 and (
                    not fault.query or fault.query in request.query
                ):
                    fault.times -= fault.times > 0
                    fault.met += 1
                    return fault
        return None

    def put(self, key: str, body: bytes, *, exclusive: bool) -> bool:
        """Store it; false if it is there and must not be."""
        with self._alone:
            if exclusive and key in self.objects:
                return False
            self.objects[key] = body
            return True

    def listed(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """The keys of a page, and whether there are more."""
        with self._alone:
            keys = sorted(key for key in {*self.objects, *self.ghosts} if key.startswith(prefix) and key > after)
            for key in [key for key in keys if self.omits.get(key)]:
                self.omits[key] -= self.omits[key] > 0
                keys.remove(key)
        return keys[: self.page], len(keys) > self.page


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    stub: Stub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the framework's
        pass

    def do_PUT(self) -> None:
        stub = self.server.stub
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        query = parse_qs(url.query, keep_blank_values=True)
        fault = stub.meet(Request(self.command, key, query, headers, len(body)))
        kind = fault.kind if fault is not None else ""
        seconds = fault.seconds if fault is not None else 0.0
        if kind == "act-late":
            threading.Timer(seconds, self._act, (bucket, key, query, headers, body, kind)).start()
        if kind in {"act-late", "drop"}:
            self._close()
            return
        if fault is not None and kind == "answer":
            self._refuse(fault.status, fault.code)
            return
        if fault is not None and kind == "wait":
            (fault.until or threading.Event()).wait(DEADLINE_S if fault.until else seconds)
        status, code, content, more = self._act(bucket, key, query, headers, body, kind)
        if kind == "act-then-drop":
            self._close()
        elif fault is not None and kind == "act-then-answer":
            self._refuse(fault.status, fault.code)
        elif code:
            self._refuse(status, code)
        else:
            self._answer(status, content, more, slowly_s=seconds if kind == "dribble" else 0.0)

    do_GET = do_HEAD = do_DELETE = do_POST = do_PUT  # noqa: N815 - the names are the framework's

    def _act(
        self, bucket: str, key: str, query: dict[str, list[str]], headers: dict[str, str], body: bytes, kind: str
    ) -> tuple[int, str, bytes, dict[str, str]]:
        """Status, code of an error, body and headers of the answer."""
        stub = self.server.stub
        if bucket != BUCKET:
            return 404, "NoSuchBucket", b"", {}
        chunked = "aws-chunked" in headers.get("content-encoding", "") or "STREAMING" in headers.get(
            "x-amz-content-sha256", ""
        )
        if not stub.checksums and (chunked or any(name.startswith(CHECKSUMS) for name in headers)):
            return 400, "InvalidRequest", b"", {}
        if "uploadId" in query or "uploads" in query:
            return self._in_parts(key, query, headers, body)
        if self.command == "PUT":
            if "x-amz-copy-source" in headers:
                return self._copy(key, unquote(headers["x-amz-copy-source"]))
            exclusive = headers.get("if-none-match") == "*"
            if exclusive and not stub.conditions:
                return 501, "NotImplemented", b"", {}
            if kind == "spoil":
                body += b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n"
            if not stub.put(key, body, exclusive=exclusive and kind != "ignore"):
                return 412, "PreconditionFailed", b"", {}
            stub.metadata[key] = _metadata(headers)
            return 200, "", b"", {"ETag": _tag(body)}
        if self.command == "DELETE":
            stub.objects.pop(key, None)
            return 204, "", b"", {}
        if self.command == "POST":
            return self._remove(body)
        if not key:
            return 200, "", self._listing(query), {"Content-Type": "application/xml"}
        return self._get(key, headers)

    def _in_parts(
        self, key: str, query: dict[str, list[str]], headers: dict[str, str], body: bytes
    ) -> tuple[int, str, bytes, dict[str, str]]:
        """The requests of an upload in parts."""
        uploads = self.server.stub.uploads
        if "uploads" in query:
            name = f"upload{len(self.server.stub.requests)}"
            uploads[name] = (_metadata(headers), {})
            answer = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return 200, "", answer.encode(), {}
        name = query["uploadId"][0]
        if name not in uploads:
            return 404, "NoSuchUpload", b"", {}
        if self.command == "PUT":
            uploads[name][1][int(query["partNumber"][0])] = body
            return 200, "", b"", {"ETag": _tag(body)}
        metadata, parts = uploads.pop(name)
        if self.command == "DELETE":
            return 204, "", b"", {}
        whole = b"".join(parts[number] for number in sorted(parts))
        self.server.stub.objects[key], self.server.stub.metadata[key] = whole, metadata
        answer = f"<CompleteMultipartUploadResult><ETag>{escape(_tag(whole))}</ETag></CompleteMultipartUploadResult>"
        return 200, "", answer.encode(), {}

    def _copy(self, key: str, source: str) -> tuple[int, str, bytes, dict[str, str]]:
        """CopyObject within the bucket; metadata goes along."""
        stub = self.server.stub
        other = source.lstrip("/").partition("/")[2]
        body = stub.objects.get(other)
        if body is None:
            return 404, "NoSuchKey", b"", {}
        stub.put(key, body, exclusive=False)
        stub.metadata[key] = dict(stub.metadata.get(other, {}))
        return 200, "", f"<CopyObjectResult><ETag>{escape(_tag(body))}</ETag></CopyObjectResult>".encode(), {}

    def _get(self, key: str, headers: dict[str, str]) -> tuple[int, str, bytes, dict[str, str]]:
        body = self.server.stub.objects.get(key)
        if body is None:
            return 404, "NoSuchKey", b"", {}
        more = {"ETag": _tag(body), "Last-Modified": formatdate(0, usegmt=True)}
        more.update(self.server.stub.metadata.get(key, {}))
        if not headers.get("range"):
            return 200, "", body, more
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        part = body[int(first) : int(last) + 1 if last else None]
        return 206, "", part, {**more, "Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"}

    def _remove(self, body: bytes) -> tuple[int, str, bytes, dict[str, str]]:
        """DeleteObjects, one key."""
        key = body.decode().partition("<Key>")[2].partition("</Key>")[0]
        self.server.stub.objects.pop(key, None)
        return 200, "", f"<DeleteResult><Deleted><Key>{escape(key)}</Key></Deleted></DeleteResult>".encode(), {}

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        stub = self.server.stub
        token = query.get("continuation-token", query.get("start-after", [""]))[0]
        keys, more = stub.listed(query.get("prefix", [""])[0], token)
        lines = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(_tag(stub.objects.get(key, b'')))}</ETag><Size>{len(stub.objects.get(key, b''))}</Size>"
            "</Contents>"
            for key in keys
        ]
        end = "<IsTruncated>false</IsTruncated>"
        if more and stub.ends == "token":
            end = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>"
        inside = "".join(lines)
        return f"<?xml version='1.0'?><ListBucketResult>{end}{inside}</ListBucketResult>".encode()

    # Answering

    def _refuse(self, status: int, code: str) -> None:
        body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        self._answer(status, body, {"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes, more: dict[str, str], *, slowly_s: float = 0.0) -> None:
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if not slowly_s:
            self.wfile.write(body)
            return
        for at in range(len(body)):
            self.wfile.write(body[at : at + 1])
            self.wfile.flush()
            time.sleep(slowly_s)

    def _close(self) -> None:
        self.close_connection = True
        self.connection.close()


def _metadata(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
