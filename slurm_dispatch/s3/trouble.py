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


_HINTS = {
    "AccessDenied": "these credentials may not do this",
    "ExpiredToken": "the session token is too old: get new credentials",
    # SeaweedFS says it of temporary credentials that have expired.
    "InvalidAccessKeyId": "the store does not know this access key, or no longer: temporary ones expire",
    "InvalidToken": "the store does not know this session token",
    "NoSuchBucket": "there is no such bucket",
    "RequestTimeTooSkewed": "the clock of this host, or of the store's, is wrong",
    "SignatureDoesNotMatch": "the secret key is not that of the access key, or something on the way changes requests",
}
"""By the code of an S3 error (API reference, "Error responses")."""
_CREDENTIALS = "look at the credentials and at what they may do"
_SERVICES = ("http://169.254.169.254", "http://169.254.170.", "http://[fd00:ec2:")
"""Where instances and containers of a cloud get credentials: asked by the client where nobody gives any."""
_NONE_GIVEN = "there are no credentials in variables or files, and nothing on this host gives any"
_CAUSES = (
    (re.compile(r'message: "([^"]{1,200})"'), "{}"),
    (re.compile(r'error: "([^"]{1,200})"'), "{}"),
    (re.compile(r"InvalidCertificate\((?:Other\(OtherError\()?([A-Za-z]+)"), "its certificate is not trusted ({})"),
    (re.compile(r"(?:kind: |\()(Timeout|TimedOut)\b"), "no answer in time"),
    (re.compile(r"(IncompleteMessage|UnexpectedEof)"), "the connection was closed before an answer"),
    (re.compile(r"(InvalidContentType)"), "what answers there does not speak https"),
    (re.compile(r"(UnexpectedMessage|\bParse\()"), "what answers there does not speak http"),
)
"""What the client's own words say of the cause, in Rust's ``Debug`` of the chain of errors; and what it means."""


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
    if isinstance(error, _FAULTS) or type(error).__name__ in _NEVER:
        return False
    status = status_of(error)
    if status is None:
        return True
    return status in _AGAIN or (status >= 500 and status != 501)


# A fault of ours stays one.
_FAULTS = (FileNotFoundError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
_NEVER = frozenset({"PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError"})


def classed(error: Exception, doing: str, what: str, where: str) -> StoreError:
    """The error to raise ``from`` the client's.

    :param doing: what failed, as a gerund.
    :param what: on which object, as ``s3://...``.
    :param where: the endpoint.
    """
    status, code = status_of(error), code_of(error)
    message = f"{doing} {show(what)} at {show(where)}: {said(error)}"
    if status in {401, 403} or type(error).__name__ in {"PermissionDeniedError", "UnauthenticatedError"}:
        return DeniedError(message, hint=None if _asks_for_credentials(error) else _HINTS.get(code, _CREDENTIALS))
    if status == 404 or isinstance(error, FileNotFoundError):
        return AbsentError(message, hint=_HINTS.get(code, "look at bucket and endpoint"))
    if status == 501:
        return NotImplementedHere(message)
    if status is not None and 300 <= status < 400:
        return StoreError(message, hint="the bucket is in another region: set AWS_REGION")
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidPathError":
        return CorruptError(message)
    if passes(error):
        return TransientError(message)
    return StoreError(message, hint=_HINTS.get(code))


def said(error: Exception) -> str:
    """What the store said, or what came between: a few words, printable, without the request."""
    if _asks_for_credentials(error):
        return _NONE_GIVEN
    status = status_of(error)
    return show(f"{status} {code_of(error)}".strip() if status is not None else _reason(error))


def _asks_for_credentials(error: Exception) -> bool:
    line = str(error).split("\n", 1)[0]
    return any(service in line for service in _SERVICES)


def _reason(error: Exception) -> str:
    """The first line of what the client says, without the request that it repeats; or the cause, if it is told."""
    line, _, rest = str(error).partition("\n")
    _, found, last = line.rpartition(" - ")
    if not found:
        return line
    for pattern, meaning in _CAUSES:
        match = pattern.search(rest)
        if match is not None:
            return meaning.format(match[1])
    return last
