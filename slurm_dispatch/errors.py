"""Every error that slurm-dispatch raises on purpose, with its exit code and a hint.

::

    DispatchError                 70  our own bug, if it is raised bare
    |-- UsageError                64  the command line is wrong
    |-- BadDataError              65  a name that does not parse, a broken record
    |-- NothingThereError         66  asked for something that is not there
    |-- ServiceAwayError          69  Slurm or the state folder does not answer
    |-- CannotCreateError         73  it exists already, or the root is another job's
    |-- StoreError                74  the checkpoint root or a disk failed
    |   |-- AbsentError               ... it is not there
    |   |-- DeniedError               ... no permission
    |   |-- TransientError            ... may work if tried again
    |   |-- CorruptError              ... it is there and is wrong
    |   `-- AmbiguousError            ... it may or may not have happened
    |-- OutcomeUnknownError       75  look before you try again
    |-- NotAllowedError           77
    |-- ConfigurationError        78
    |-- StalledError              79
    `-- NotResumedError           80

The numbers are those of ``sysexits.h`` where it has one, and section 9 of the design elsewhere.
A message is one line: what failed, on what, why. The hint says what to do about it.
"""

from __future__ import annotations

import errno


class DispatchError(Exception):
    """Root of the tree. ``str()`` is one line; :attr:`hint` is what the person can do."""

    exit_code = 70
    hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(one_line(message))
        if hint is not None:
            self.hint = one_line(hint)

    def line(self) -> str:
        """Message and hint as the one line that is shown."""
        return f"{self}; {self.hint}" if self.hint else str(self)


class UsageError(DispatchError):
    """The command line is wrong."""

    exit_code = 64


class BadDataError(DispatchError):
    """Something that was read does not have the form that it must have."""

    exit_code = 65


class NothingThereError(DispatchError):
    """What was asked for is not there, and that is known."""

    exit_code = 66


class ServiceAwayError(DispatchError):
    """Slurm or the state folder does not answer."""

    exit_code = 69


class CannotCreateError(DispatchError):
    """It exists already, or the root belongs to another job."""

    exit_code = 73


class StoreError(DispatchError):
    """The checkpoint root or a disk failed."""

    exit_code = 74


class AbsentError(StoreError):
    """A path of the store is not there (``ENOENT``, ``ENOTDIR``, ``ESTALE``)."""


class DeniedError(StoreError):
    """No permission (``EACCES``, ``EPERM``, ``EROFS``)."""


class TransientError(StoreError):
    """May work if it is tried again (``EAGAIN``, ``EINTR``, ``ETIMEDOUT``, ``ENOSPC``, ``EDQUOT``, ...)."""


class LateError(TransientError):
    """It was tried again and again until its time was over: at once is too soon to try it once more."""


class CorruptError(StoreError):
    """It is there, and it is not what it must be."""


class AmbiguousError(StoreError):
    """It may or may not have happened (``EIO`` of an fsync, an answer that was lost)."""


class OutcomeUnknownError(DispatchError):
    """Nobody knows whether it happened: look before you try again."""

    exit_code = 75


class NotAllowedError(DispatchError):
    """The person or the site's limits do not allow it."""

    exit_code = 77


class ConfigurationError(DispatchError):
    """The site's configuration is wrong."""

    exit_code = 78


class StalledError(DispatchError):
    """No publication for longer than the job allows."""

    exit_code = 79


class NotResumedError(DispatchError):
    """The training was given a save and started from nothing."""

    exit_code = 80


_CLASSES: dict[int, type[StoreError]] = {
    errno.ENOENT: AbsentError,
    errno.ENOTDIR: AbsentError,
    errno.ESTALE: AbsentError,
    errno.EACCES: DeniedError,
    errno.EPERM: DeniedError,
    errno.EROFS: DeniedError,
    errno.EIO: AmbiguousError,
    errno.ELOOP: CorruptError,
    errno.EISDIR: CorruptError,
}


def store_error(error: OSError, doing: str, path: object) -> StoreError:
    """Class an ``OSError`` of the store.

    :param doing: what failed, as a gerund (``"creating"``).
    :param path: on what; bytes or text.
    :returns: an error to raise ``from`` the one given; an errno that is not in the table is transient.
    """
    kind = _CLASSES.get(error.errno or 0, TransientError)
    reason = error.strerror or type(error).__name__
    return kind(f"{doing} {show(path)}: {reason}")


def show(value: object) -> str:
    """A path or a word as it may stand in a message: one line, no control characters, at most 300 characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = one_line(text)
    return text if len(text) <= 300 else text[:297] + "..."


def one_line(text: str) -> str:
    """``text`` with each control character and lone surrogate written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
