"""The options that say which root and which execution a command is about, with the environment behind them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.epoch import parse_epoch
from slurm_dispatch.model.identity import check_attempt

_F = TypeVar("_F", bound=Callable[..., Any])


def root_option(function: _F) -> _F:
    """``--root ROOT``."""
    return click.option("--root", metavar="ROOT", help="Default: DISPATCH_CHECKPOINT.")(function)


def root_argument(function: _F) -> _F:
    """``[ROOT]``."""
    return click.argument("root", metavar="[ROOT]", required=False)(function)


def json_option(function: _F) -> _F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def the_root(given: str | None) -> str:
    """The path of the root.

    :raises UsageError: neither the option nor the variable says one.
    """
    return _said(given, "--root", "DISPATCH_CHECKPOINT", "checkpoint root")


def the_epoch(given: str | None) -> int:
    """The epoch of this execution."""
    text = _said(given, "--epoch", "DISPATCH_EPOCH", "epoch")
    try:
        return parse_epoch(text)
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error


def the_attempt(given: str | None) -> str:
    """The attempt of this execution."""
    text = _said(given, "--attempt", "DISPATCH_ATTEMPT", "attempt")
    try:
        return check_attempt(text)
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error


def _said(given: str | None, option: str, variable: str, what: str) -> str:
    text = given if given is not None else os.environ.get(variable)
    if not text:
        raise UsageError(f"no {what}", hint=f"give {option} or set {variable}")
    return text
