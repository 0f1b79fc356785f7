"""The few verbs of an object store that a root needs: create, look, read, list, and leaving what may be replaced.

The law of this module: *every call ends by its deadline; a request that may work is sent again, the same key with the
same body; "it exists" is believed only after a look; nothing that failed is taken for something that is not there.*

Creating is one put with ``If-None-Match: *`` (Amazon S3 User Guide, "How to prevent object overwrites with
conditional writes": 412 where the object is there, 409 ``ConditionalRequestConflict`` where another request for it is
under way, to be sent again). A put that was lost on the way may still arrive later: sent again it meets the first or
is the first, and either is the same object, since whoever creates a key here always gives it the same body.
No ``If-Match`` is ever sent, and no checksum unless ``AWS_CHECKSUM_ALGORITHM`` asks for one: some stores refuse the
headers, and some have stored the trailers of a chunked body as its content.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurm_dispatch import __version__
from slurm_dispatch.errors import (
    AbsentError,
    AmbiguousError,
    BadDataError,
    ConfigurationError,
    CorruptError,
    DispatchError,
    LateError,
    StoreError,
    TransientError,
    show,
)
from slurm_dispatch.s3.deadline import Deadline, Late
from slurm_dispatch.s3.trouble import classed, code_of, passes, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.s3.place import Place
    from slurm_dispatch.s3.settings import Settings

_T = TypeVar("_T")

REQUEST_TIMEOUT_S = 30.0
"""For one request: a list of 1,000 keys or a small body; a server that needs longer is taken for one that hangs."""
LARGE_REQUEST_TIMEOUT_S = 300.0
"""For one request that carries a part of a file: 32 parts share the line, so slower than 2 MB a second is no line."""
CONNECT_TIMEOUT_S = 5.0
PART_BYTES = 16 << 20
"""Of a file that is sent in parts; S3 takes no less than 5 MiB but for the last (API reference, UploadPart)."""
PARTS_MAX = 9_000
"""S3 takes 10,000."""
COPY_BYTES_MAX = 2 << 30
"""Of one object that the store copies itself, in one request, which ends in :data:`LARGE_REQUEST_TIMEOUT_S`."""
PARTS_AT_ONCE = 4
"""Of one file."""
SENDING_BYTES = 64 << 20
"""Of one file at once, since they are in memory: of a file with larger parts fewer are under way."""
TOKEN = "dispatch-source"
"""The name of the metadata that says which file an object was."""
PAGE = 1000
"""Keys in a page, the most that S3 gives (API reference, ListObjectsV2)."""


class Made(Enum):
    """What came of creating an object."""

    NEW = "new"
    FOUND = "found"
    """It was there with the very same body: somebody else's work or our own, whose answer was lost."""


@dataclass(frozen=True, slots=True)
class Meta:
    """An object as a listing or a look tells of it. ``tag`` changes with its content."""

    key: str
    size: int
    tag: str


class Bucket:
    """The objects of one place. Keys are whole keys of the bucket.

    Made in the process that uses it: the client has threads, which a fork does not take along.
    """

    def __init__(self, place: Place, given: Settings, *, timeout_s: float) -> None:
        self.place = place
        self.endpoint = given.endpoint
        self.timeout_s = timeout_s
        self._settings = given
        self._clients: dict[float, Any] = {}
        self.unanswered: set[str] = set()
        """Keys of which a put got no answer once: that put may be done later, after others of the same key."""

    def deadline(self) -> Deadline:
        """What one call from outside may take."""
        return Deadline(self.timeout_s)

    # The verbs

    def create(self, key: str, body: bytes, deadline: Deadline) -> Made:
        """Make the object, if it is not there.

        :raises CorruptError: it is there with another body.
        :raises AmbiguousError: it may be there or may come to be there; creating the same again is safe.
        """
        why = ""
        for _ in deadline.tries():
            try:
                self._call(deadline, lambda: self._library.put(self._store(), key, body, mode="create"))
            except Late:
                break
            except DispatchError:
                raise
            except Exception as error:
                if type(error).__name__ != "AlreadyExistsError":
                    if passes(error):
                        why = f": {said(error)}"
                        continue
                    raise self._classed(error, "creating", key) from error
                # 412 or 409: the client does not say which. Absent is a conflict, and is tried again.
                if self._same(key, body, deadline):
                    return Made.FOUND
                why = ": the store says that it is there, and then that it is not"
            else:
                return Made.NEW
        raise AmbiguousError(
            f"creating {self._shown(key)} at {show(self.endpoint)}: not done in {deadline.seconds:g} s{why}",
            hint="it may be there or not; the same again is safe",
        )

    def look(self, key: str, deadline: Deadline) -> Meta | None:
        """What is known of the object, or ``None`` if the store says that it is not there."""

        def head() -> Meta | None:
            try:
                return _meta(self._library.head(self._store(), key))
            except FileNotFoundError:
                return None

        return self._again(deadline, "looking at", key, head)

    def read(self, key: str, deadline: Deadline, *, offset: int = 0, length: int) -> bytes | None:
        """At most ``length`` bytes from ``offset`` on, or ``None`` if it is not there.

        Nothing after the end is an empty answer, and no error.
        """
        meta = self.look(key, deadline)
        return None if meta is None else self.part(key, offset, min(length, meta.size - offset), deadline)

    def part(
        self, key: str, offset: int, length: int, deadline: Deadline, *, large: bool = False
    ) -> bytes | None:
        """``length`` bytes that are known to be in the object, or ``None`` if it is not there.

        :param large: give the request the longer time.
        """
        if length <= 0:
            return b""

        def get() -> bytes | None:
            store = self._store(large=large)
            try:
                return bytes(self._library.get_range(store, key, start=offset, end=offset + length))
            except FileNotFoundError:
                return None

        return self._again(deadline, "reading", key, get)

    def replace(self, key: str, body: bytes, deadline: Deadline) -> None:
        """Leave an object; one that is there is replaced. Never in ``pub/``.

        :raises TransientError: an earlier put of the key, which had got no answer, was done after this one.
        """
        put = functools.partial(self._library.put, self._store(), key, body)
        self._again(deadline, "writing", key, put, writes=True)
        if key in self.unanswered and self.read(key, deadline, length=len(body) + 1) != body:
            raise TransientError(f"writing {self._shown(key)} at {show(self.endpoint)}: an earlier put came later")

    def remove(self, key: str, deadline: Deadline) -> None:
        """Take an object away; one that is not there is no error. Never in ``pub/``."""
        self._again(deadline, "removing", key, lambda: self._library.delete(self._store(), key))

    def below(self, folder: str, deadline: Deadline, *, first: int | None = None) -> list[Meta]:
        """The objects whose keys begin with ``folder`` and a slash, in the order of their keys.

        All pages are read. Since servers have called a page the last that was not, it is asked once more for what
        comes after the greatest key, until nothing does; that also finds what a listing left out at its end.

        :param first: stop after so many, for who asks only whether there are any.
        :raises StoreError: it could not be listed to the end; never the same as nothing.
        """
        found: dict[str, Meta] = {}
        after: str | None = None
        while True:
            pages = functools.partial(self._pages, folder, after, first, deadline)
            new = [meta for meta in self._again(deadline, "listing", folder, pages) if meta.key not in found]
            found.update((meta.key, meta) for meta in new)
            if not new or (first is not None and len(found) >= first):
                break
            after = max(found)
        ordered = sorted(found)
        return [found[key] for key in ordered[:first]]

    # Files

    def send(self, key: str, file: str, size: int, token: str, deadline: Deadline) -> None:
        """Store a file, in parts if it is large; an object that is there is replaced by it.

        Whatever goes wrong, the object is accepted if it has our token and the size, and only then: the last answer
        of an upload in parts can be lost, and asked again the store says that it knows no such upload.

        After the first try that failed it is tried for as long as one call may take, and not to the end of the
        deadline, which is as long as a large file may need: that the store is away must be said.

        :param token: says which file it was (:meth:`sent`).
        :raises StoreError: it is not known to be there whole; the same again is safe.
        """
        part = max(PART_BYTES, -(-size // PARTS_MAX))
        failing: Deadline | None = None
        why = ""
        for _ in deadline.tries():
            try:
                return self._call(deadline, functools.partial(self._put_file, key, file, token, part))
            except Late:
                self.unanswered.add(key)
                break
            except DispatchError:
                raise
            except Exception as error:
                self.unanswered.add(key)
                if not os.path.lexists(file):
                    raise BadDataError(f"file {show(file)} went while it was uploaded") from error
                if self.sent(key, self.deadline()) == (size, token):
                    return None
                late = failing is not None and not failing.left_s()
                failing = failing or self.deadline()
                if late or (not passes(error) and code_of(error) != "NoSuchUpload"):
                    raise self._classed(error, "uploading", key) from error
                why = f": {said(error)}"
        raise AmbiguousError(
            f"uploading {self._shown(key)} at {show(self.endpoint)}: not done in {deadline.seconds:g} s{why}",
            hint="the same again goes on with what is not there yet",
        )

    def sent(self, key: str, deadline: Deadline) -> tuple[int, str] | None:
        """Size and token of an object that :meth:`send` stored (an empty token for others'), or ``None``."""

        def ask() -> tuple[int, str] | None:
            try:
                found = self._library.get(self._store(), key, options={"head": True})
            except FileNotFoundError:
                return None
            return found.meta["size"], found.attributes.get(TOKEN, "")

        return self._again(deadline, "looking at", key, ask)

    def copy(self, source: str, target: str, size: int, deadline: Deadline) -> None:
        """Make an object of another one of the bucket, with its metadata; one that is there is replaced by it.

        The store copies up to :data:`COPY_BYTES_MAX` itself (API reference, CopyObject: at most 5 GB); a larger one
        goes through here.

        :raises AbsentError: the source is not there.
        """
        if size <= COPY_BYTES_MAX:
            large = self._store(large=True)
            self._again(
                deadline, "copying", source, lambda: self._library.copy(large, source, target, overwrite=True)
            )
            return
        token = (self.sent(source, deadline) or (0, ""))[1]
        part = max(PART_BYTES, -(-size // PARTS_MAX))
        more = {"attributes": {TOKEN: token}, "chunk_size": part, "max_concurrency": PARTS_AT_ONCE}

        def body() -> Iterator[bytes]:
            for start in range(0, size, part):
                found = self.part(source, start, min(part, size - start), deadline, large=True)
                if found is None:
                    raise AbsentError(f"object {self._shown(source)} is gone")
                yield found

        self._again(
            deadline, "copying", source, lambda: self._library.put(self._store(large=True), target, body(), **more)
        )

    def _put_file(self, key: str, file: str, token: str, part: int) -> None:
        more = {"attributes": {TOKEN: token}, "chunk_size": part, "max_concurrency": _at_once(part)}
        self._library.put(self._store(large=True), key, Path(file), **more)

    # The way there

    def _pages(self, folder: str, after: str | None, first: int | None, deadline: Deadline) -> list[Meta]:
        metas: list[Meta] = []
        for chunk in self._library.list(self._store(), folder, offset=after, chunk_size=first or PAGE):
            # A key that is the folder itself with a slash is what some programs leave as its placeholder.
            metas += [_meta(one) for one in chunk if one["path"] != folder]
            if not deadline.left_s():
                raise Late  # what there is so far is no listing
            if first is not None and len(metas) >= first:
                break
        return metas

    def _same(self, key: str, body: bytes, deadline: Deadline) -> bool:
        """Whether the object is there with this body.

        :raises CorruptError: it is there with another one.
        """
        meta = self.look(key, deadline)
        if meta is None:
            return False
        if meta.size == len(body) and (not body or self.read(key, deadline, length=len(body)) == body):
            return True
        raise CorruptError(f"object {self._shown(key)} is there with another content, of {meta.size} bytes")

    def _again(
        self, deadline: Deadline, doing: str, key: str, act: Callable[[], _T], *, writes: bool = False
    ) -> _T:
        """What a request gives that changes nothing by being repeated.

        :param writes: it is a put.
        """
        last: Exception | None = None
        for _ in deadline.tries():
            try:
                return self._call(deadline, act)
            except Late:
                self.unanswered |= {key} if writes else set()
                break
            except DispatchError:
                raise
            except Exception as error:
                self.unanswered |= {key} if writes else set()
                if not passes(error):
                    raise self._classed(error, doing, key) from error
                last = error
        late = f"{doing} {self._shown(key)} at {show(self.endpoint)}: not done in {deadline.seconds:g} s"
        if last is None:
            raise LateError(late)
        raise LateError(f"{late}: {said(last)}") from last

    def _call(self, deadline: Deadline, act: Callable[[], _T]) -> _T:
        try:
            return deadline.call(act)
        except BaseException as error:
            # A fault inside the client is a Rust panic, which is no Exception.
            if type(error).__name__ == "PanicException":
                raise StoreError(f"the S3 client broke at {show(self.endpoint)}: {show(error)}") from error
            raise

    def _classed(self, error: Exception, doing: str, key: str) -> StoreError:
        return classed(error, doing, self.place.address(key), self.endpoint)

    def _shown(self, key: str) -> str:
        return show(self.place.address(key))

    @property
    def _library(self) -> Any:
        import obstore

        return obstore

    def _store(self, *, large: bool = False) -> Any:
        timeout_s = LARGE_REQUEST_TIMEOUT_S if large else REQUEST_TIMEOUT_S
        if timeout_s not in self._clients:
            self._clients[timeout_s] = _connect(self.place.bucket, self._settings, timeout_s)
        return self._clients[timeout_s]


def check_installed() -> None:
    """Refuse to go on without the client.

    :raises ConfigurationError: naming the extra that brings it.
    """
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "a checkpoint root in S3 needs a package that is not installed",
            hint="pip install 'slurm-dispatch[s3]'",
        ) from error


def _connect(bucket: str, given: Settings, timeout_s: float) -> Any:
    from obstore import store

    client: Any = store.S3Store
    options = {
        **given.client,
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "user_agent": f"slurm-dispatch/{__version__}",
    }
    more: dict[str, Any] = {}
    if given.profile is not None:
        more["credential_provider"] = _from_boto3(given.profile)
    # Tries and waits are ours: the client's own would go on behind a deadline, and take a conflict for "exists".
    retry = {"max_retries": 0, "retry_timeout": timedelta(seconds=0)}
    # One object a request: of a request for many, stores ask for checksums of different kinds, and some answer oddly.
    config = {**given.config, "disable_bulk_delete": "true"}
    try:
        try:
            return client(bucket, config=config, client_options=options, retry_config=retry, **more)
        except Exception as error:
            if type(error).__name__ != "UnknownConfigurationKeyError":
                raise
            # An older client does not know the word.
            return client(bucket, config=given.config, client_options=options, retry_config=retry, **more)
    except Exception as error:
        # The words of the client may repeat what it was given.
        raise ConfigurationError(f"the S3 client does not take its settings: {type(error).__name__}") from error


def _from_boto3(profile: str) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise ConfigurationError(
            f"AWS profile {show(profile)} gets its credentials from elsewhere, which needs boto3",
            hint="pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except Exception as error:
        raise ConfigurationError(f"AWS profile {show(profile)}: {type(error).__name__}: {error}") from error


def _at_once(part: int) -> int:
    return max(1, min(PARTS_AT_ONCE, SENDING_BYTES // part))


def _meta(found: Any) -> Meta:
    return Meta(found["path"], found["size"], found["e_tag"] or "")
