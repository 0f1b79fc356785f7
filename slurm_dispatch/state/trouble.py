"""What a failure of the disk below the state folder means to those who use it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    CorruptError,
    NothingThereError,
    ServiceAwayError,
    StoreError,
    store_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAY = "the state folder is full, read-only or away"


@contextmanager
def state_trouble(doing: str, path: str) -> Iterator[None]:
    """Turn errors of the disk into those of the state folder: not there 66, wrong 65, everything else 69."""
    try:
        try:
            yield
        except OSError as error:
            raise store_error(error, doing, path) from error
    except AbsentError as error:
        raise NothingThereError(str(error)) from error
    except CorruptError as error:
        raise BadDataError(str(error)) from error
    except StoreError as error:
        raise ServiceAwayError(str(error), hint=AWAY) from error
