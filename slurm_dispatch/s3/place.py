"""``s3://bucket/prefix``: where a root is, and which keys are below it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_dispatch.errors import UsageError, show

SCHEME = "s3://"
KEY_BYTES_MAX = 1024
"""The longest key of an object, in bytes of UTF-8 (Amazon S3 User Guide, "Naming Amazon S3 objects")."""
PREFIX_BYTES_MAX = 512
"""The longest prefix of a root: what stands below it needs the rest of a key."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")
"""More than the rules for new buckets allow, since old ones and those of other stores have such names."""


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and the keys' common prefix, without a slash at either end; an empty prefix is the whole bucket."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}" if self.prefix else f"{SCHEME}{self.bucket}"

    def key(self, *parts: str) -> str:
        """The key of what stands at these components below the prefix."""
        return "/".join([self.prefix, *parts] if self.prefix else parts)

    def address(self, key: str) -> str:
        """``s3://bucket/key`` of a whole key, as people and savers write it."""
        return f"{SCHEME}{self.bucket}/{key}"


def is_place(root: str) -> bool:
    """Whether a root is said to be in S3."""
    return root[: len(SCHEME)].lower() == SCHEME


def parse_place(root: str) -> Place:
    """The place that ``s3://bucket/prefix`` says; one slash at the end makes no difference.

    :raises UsageError: naming what is wrong with it.
    """
    bucket, _, prefix = root[len(SCHEME) :].partition("/") if is_place(root) else ("", "", "")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.match(bucket):
        raise UsageError(f"checkpoint root {show(root)} names no bucket", hint="it is s3://BUCKET/PREFIX")
    if prefix and not is_plain(prefix):
        raise UsageError(
            f"checkpoint root {show(root)} has a prefix that is not plain",
            hint="no '', '.', '..' between its slashes, no control characters",
        )
    if len(prefix.encode("utf-8")) > PREFIX_BYTES_MAX:
        limit = f"{PREFIX_BYTES_MAX} bytes of prefix at most"
        raise UsageError(f"checkpoint root {show(root)} is too long", hint=limit)
    return Place(bucket, prefix)


def parse_save(text: str, what: str) -> Place:
    """The place of a save, ``s3://bucket/key``: its prefix is the save's key. One slash at the end is left out.

    :param what: how it was given, for messages.
    :raises UsageError: naming what is wrong with it.
    """
    bucket, _, key = text[len(SCHEME) :].partition("/") if is_place(text) else ("", "", "")
    key = key.removesuffix("/")
    if not _BUCKET.match(bucket) or not is_plain(key) or len(key.encode("utf-8")) > KEY_BYTES_MAX:
        raise UsageError(f"{what} {show(text)} names no save in S3", hint="it is s3://BUCKET/KEY")
    return Place(bucket, key)


def is_plain(key: str) -> bool:
    """Whether a key can be written in one way only and by every client: no empty component, ``.`` or ``..``."""
    if not key.isprintable():  # control characters and lone surrogates
        return False
    return not {"", ".", ".."} & set(key.split("/"))
