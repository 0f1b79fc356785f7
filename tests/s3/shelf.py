"""An S3 store in memory, in the place of the client: for the model, where every request is a step of its own.

It keeps what ``tests/store/test_conformance.py`` and ``tests/s3/test_shelf.py`` hold the real servers to. Each
request goes through :attr:`Shelf.gate`: a put, one part of an upload and its end, a look, a read, a page of a
listing, a delete. A page is what is there at that moment; a listing of several is a mixture of their moments.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import AlreadyExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

_T = TypeVar("_T")

CHANGES = frozenset({"put", "create", "complete", "delete"})
"""Requests after which something is different."""


@dataclass(frozen=True)
class Object:
    """An object: its content and what was said of it."""

    body: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        """The same for the same content, as that of Amazon S3 for an object that was not sent in parts."""
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass(frozen=True)
class Head:
    """The answer to a look that asks for attributes too."""

    meta: dict[str, Any]
    attributes: Mapping[str, str]


def straight(verb: str, key: str, act: Callable[[], _T]) -> _T:
    """No gate."""
    return act()


class Shelf:
    """The functions of the client that :class:`slurm_dispatch.s3.bucket.Bucket` calls; their first argument, which
    would be the connection, counts for nothing.

    :ivar page: keys in a page of a listing.
    :ivar gate: called with the verb, the key and the act itself, which it may do, or not.
    """

    def __init__(self, page: int = 1000) -> None:
        self.objects: dict[str, Object] = {}
        self.page = page
        self.gate: Callable[[str, str, Callable[[], Any]], Any] = straight

    def put(
        self,
        _: object,
        key: str,
        body: bytes | Path | Iterator[bytes],
        *,
        mode: str = "overwrite",
        attributes: Mapping[str, str] | None = None,
        chunk_size: int = 0,
        max_concurrency: int = 1,
    ) -> None:
        """One request; a file that is larger than ``chunk_size`` takes one for each part and two more."""
        if isinstance(body, Path):
            self._put_file(key, body, dict(attributes or {}), chunk_size)
            return
        if not isinstance(body, bytes):
            made = Object(b"".join(body), dict(attributes or {}))
            self.gate("put", key, lambda: self._store(key, made))
            return
        if mode == "create":
            self.gate("create", key, lambda: self._create(key, Object(body)))
        else:
            self.gate("put", key, lambda: self._store(key, Object(body)))

    def head(self, _: object, key: str) -> dict[str, Any]:
        """What is known of an object."""
        return self.gate("head", key, lambda: self._meta(key))

    def get(self, _: object, key: str, *, options: Mapping[str, Any]) -> Head:
        """The same with its attributes."""
        assert options == {"head": True}
        return self.gate("head", key, lambda: Head(self._meta(key), self.objects[key].attributes))

    def get_range(self, _: object, key: str, *, start: int, end: int) -> bytes:
        """A part of an object."""
        return self.gate("get", key, lambda: self._object(key).body[start:end])

    def copy(self, _: object, source: str, target: str, *, overwrite: bool) -> None:
        """Another object of the same bytes and attributes."""
        assert overwrite
        self.gate("copy", target, lambda: self._store(target, replace(self._object(source))))

    def delete(self, _: object, key: str) -> None:
        """What is not there can be removed."""
        self.gate("delete", key, lambda: self.objects.pop(key, None))

    def list(
        self, _: object, prefix: str, *, offset: str | None = None, chunk_size: int = 50
    ) -> Iterator[list[dict[str, Any]]]:
        """Pages of what is below a folder, each asked for when it is wanted."""
        after = offset or ""
        while True:
            verb = "page" if after else "list"
            found, more = self.gate(verb, prefix, lambda after=after: self._page(f"{prefix}/", after))
            yield found
            if not more:
                return
            after = found[-1]["path"]

    def _put_file(self, key: str, file: Path, attributes: dict[str, str], part: int) -> None:
        size = os.stat(file).st_size
        if size <= part:
            made = Object(file.read_bytes(), attributes)
            self.gate("put", key, lambda: self._store(key, made))
            return
        self.gate("begin", key, lambda: None)
        parts: list[bytes] = []
        with open(file, "rb") as stream:
            for start in range(0, size, part):
                stream.seek(start)
                content = stream.read(part)
                self.gate("part", key, lambda content=content: parts.append(content))
        self.gate("complete", key, lambda: self._store(key, Object(b"".join(parts), attributes)))

    def _store(self, key: str, made: Object) -> None:
        self.objects[key] = made

    def _create(self, key: str, made: Object) -> None:
        if key in self.objects:
            raise AlreadyExistsError(f"{key} is there")
        self.objects[key] = made

    def _object(self, key: str) -> Object:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def _meta(self, key: str) -> dict[str, Any]:
        found = self._object(key)
        return {"path": key, "size": len(found.body), "e_tag": found.tag}

    def _page(self, inside: str, after: str) -> tuple[list[dict[str, Any]], bool]:
        keys = sorted(key for key in self.objects if key > after and key.startswith(inside))
        return [self._meta(key) for key in keys[: self.page]], len(keys) > self.page


def put_in_place(patch: pytest.MonkeyPatch, shelf: Callable[[], Shelf]) -> None:
    """Let every root in S3 that is opened be on the shelf that there is then."""
    from slurm_dispatch.s3 import bucket

    patch.setattr(bucket.Bucket, "_library", property(lambda _: shelf()))
    patch.setattr(bucket, "_connect", lambda *_: object())


__all__ = ["CHANGES", "Head", "Object", "Shelf", "put_in_place"]
