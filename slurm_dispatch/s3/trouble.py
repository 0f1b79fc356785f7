"""What an S3 client raises, classed: each becomes a :class:`StoreError` that says which store, which key and why.

obstore hands on the text of the Rust crate ``object_store`` (``src/client/retry.rs``, "Server returned non-2xx status
code: ..."); the status in it is read where there is one. A 404 and a 409 of a put with a condition have exceptions of
their own, which say less: 409 comes as "already exists" (``RetryError::error``), so nobody here believes that word
without a look.
"""

from __future__ import annotations

import re

from slurm_dispatch.errors import AbsentError, CorruptError, DeniedError, StoreError, TransientError, show

_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CODE = re.compile(r"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 that ask for another try."""


class NotImplementedHere(StoreError):
    """The server says 501: it does not know what it was asked for."""


def status_of(error: BaseException) -> int | None:
    """The status of the answer that an exception of the client is about, or ``None`` if it had none."""
    text = str(error)
    match = _STATUS.search(text)
    if match is None and "Received redirect" in text:
        return 301  # of one that does not say where to, the client tells no status
    return int(match[1]) if match else None


def code_of(error: BaseException) -> str:
    """The code of an S3 error (``NoSuchBucket``, ``SlowDown``), or nothing."""
    match = _CODE.search(str(error))
    return match[1] if match else ""


def passes(error: Exception) -> bool:
    """Whether the same request may work a moment later: a full server, a cut connection, a timeout."""
    if isinstance(error, (FileNotFoundError, ValueError, TypeError)) or type(error).__name__ in _NEVER:
        return False
    status = status_of(error)
    if status is None:
        return True
    return status in _AGAIN or (status >= 500 and status != 501)


_NEVER = frozenset({"PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError"})


def classed(error: Exception, doing: str, what: str, where: str) -> StoreError:
    """The error to raise ``from`` the client's.

    :param doing: what failed, as a gerund.
    :param what: on which object, as ``s3://...``.
    :param where: the endpoint.
    """
    status, code = status_of(error), code_of(error)
    said = f"{status} {code}".strip() if status is not None else _reason(error)
    message = f"{doing} {show(what)} at {show(where)}: {show(said)}"
    if status in {401, 403} or type(error).__name__ in {"PermissionDeniedError", "UnauthenticatedError"}:
        return DeniedError(message, hint="look at the credentials and at what they may do")
    if status == 404 or isinstance(error, FileNotFoundError):
        hint = "there is no such bucket" if code == "NoSuchBucket" else "look at bucket and endpoint"
        return AbsentError(message, hint=hint)
    if status == 501:
        return NotImplementedHere(message)
    if status is not None and 300 <= status < 400:
        return StoreError(message, hint="the bucket is in another region: set AWS_REGION")
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidPathError":
        return CorruptError(message)
    if passes(error):
        return TransientError(message)
    return StoreError(message)


def _reason(error: Exception) -> str:
    """The first line of what the client says, without the request that it repeats."""
    line = str(error).split("\n", 1)[0]
    _, found, rest = line.rpartition(" - ")
    return rest if found else line
