"""Forms of JSON fields: what may stand in a fact or a note, with the bounds of each.

A form is a function that takes a value and raises :class:`BadDataError` if it is not of that form. The
messages say what it must be; :func:`check_form` puts the place before them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from slurm_dispatch.errors import BadDataError, show
from slurm_dispatch.model.epoch import GENERATION_MAX, RESTART_MAX, SUBMISSION_MAX, parse_epoch
from slurm_dispatch.model.identity import check_attempt, check_key
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.publication import STEP_MAX

VERSION = 1
"""Of facts and notes. Readers take this one and the one before it (there is none before 1)."""
JSON_SIZE_MAX = 64 * 1024
"""Bytes of one fact or note."""
JOB_ID_MAX = 2**32 - 1
TIME_MAX = 253_402_300_799
"""The end of the year 9999: what can be shown as a date."""
TEXT_MAX = 32 * 1024
LIST_MAX = 4096

Form = Callable[[Any], None]


def parse_object(data: bytes, where: str, *, limit: int = JSON_SIZE_MAX) -> dict[str, Any]:
    """The JSON object in ``data``, its version checked and taken out.

    :param limit: bytes that it may have.

    :raises BadDataError: too long, not UTF-8, not JSON, a name twice, NaN, nested too deep, not an object,
        or another version.
    """
    if len(data) > limit:
        raise BadDataError(f"{where} has {len(data)} bytes, more than the limit of {limit}")
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadDataError(f"{where} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadDataError(f"{where} is not a JSON object")
    version = content.pop("v", None)
    if isinstance(version, bool) or version != VERSION:
        raise BadDataError(
            f"{where} has version {show(version)}, and this slurm-dispatch reads {VERSION}",
            hint="use the newer slurm-dispatch that wrote it",
        )
    return content


def check_form(where: str, form: Form, value: Any) -> None:
    """Refuse ``value`` if it is not of ``form``; the message begins with ``where``."""
    try:
        form(value)
    except BadDataError as error:
        raise BadDataError(f"{where}: {error}") from error


def integer(least: int, greatest: int) -> Form:
    """A whole number within bounds."""

    def form(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise BadDataError(f"{show(value)!r} is not a whole number from {least} to {greatest}")

    return form


def moment(value: Any) -> None:
    """Unix seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= TIME_MAX:
        raise BadDataError(f"{show(value)!r} is not a time in Unix seconds")


def duration(value: Any) -> None:
    """Seconds, not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
        raise BadDataError(f"{show(value)!r} is not a number of seconds")


def text(value: Any) -> None:
    """Text of at most 32,768 characters."""
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise BadDataError(f"{show(value)!r} is not a text of at most {TEXT_MAX} characters")


def flag(value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise BadDataError(f"{show(value)!r} is not true or false")


def obj(value: Any) -> None:
    """A JSON object, whatever is in it."""
    if not isinstance(value, dict):
        raise BadDataError(f"{show(value)!r} is not an object")


def texts(value: Any) -> None:
    """A JSON object whose values are texts."""
    obj(value)
    for item in value.values():
        text(item)


def epoch(value: Any) -> None:
    """An epoch as decimal digits in a text, not that of an unmanaged run."""
    if not isinstance(value, str) or parse_epoch(value) == 0:
        raise BadDataError(f"{show(value)!r} is not an epoch in a text")


def null_or(form: Form) -> Form:
    """Null, or what ``form`` takes."""

    def either(value: Any) -> None:
        if value is not None:
            form(value)

    return either


def list_of(form: Form, longest: int = LIST_MAX) -> Form:
    """A list of at most ``longest`` values of ``form``."""

    def each(value: Any) -> None:
        if not isinstance(value, list) or len(value) > longest:
            raise BadDataError(f"{show(value)!r} is not a list of at most {longest}")
        for item in value:
            form(item)

    return each


def record(fields: dict[str, Form]) -> Form:
    """A JSON object with these fields; others are passed over."""

    def form(value: Any) -> None:
        obj(value)
        for name, inner in fields.items():
            if name not in value:
                raise BadDataError(f"{show(value)!r} has no field {name}")
            check_form(name, inner, value[name])

    return form


def one_of(*words: str) -> Form:
    """One of these texts."""

    def form(value: Any) -> None:
        if not isinstance(value, str) or value not in words:
            raise BadDataError(f"{show(value)!r} is not one of {', '.join(words)}")

    return form


def _parsed(parse: Callable[[str], object]) -> Form:
    def form(value: Any) -> None:
        if not isinstance(value, str):
            raise BadDataError(f"{show(value)!r} is not a text")
        parse(value)

    return form


key = _parsed(check_key)
attempt = _parsed(check_attempt)
outcome = one_of(*(word.value for word in Outcome))
action = one_of(*(word.value for word in Action))
generation = integer(0, GENERATION_MAX)
submission = integer(1, SUBMISSION_MAX)
restart = integer(0, RESTART_MAX)
step = integer(0, STEP_MAX)
job_id = integer(1, JOB_ID_MAX)
unsigned = integer(0, 2**32 - 1)
"""A user or group id."""
sequence = integer(1, 9_999_999_999)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name is in it twice")
    return content


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")
