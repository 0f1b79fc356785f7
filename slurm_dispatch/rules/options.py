"""The options of a rule: how each is written, and what it is for a rule that has it.

Inside a value ``+`` parts items and ``..`` the ends of a range; a comma would end the option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, DispatchError, show
from slurm_dispatch.model.epoch import parse_count
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.model.quantity import duration, parse_duration, parse_size, size

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_MAX = 1_000_000
"""No job comes near it: N ends at 999,999."""
CODE_MAX = 255
"""A status has 8 bits; 0 is success, which no rule is about."""
SIGNAL_MAX = 64
BY_SIGNAL = 128
"""What a shell adds to a signal's number to say in a status that it ended a command."""
FACTOR_MAX = 100.0
# Not Python's own table: its versions differ, and a rule in a record must mean the same on every host.
_SIGNALS = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
)  # fmt: skip
"""Linux's, from 1 on, as they are on the architectures that Slurm runs on."""
_FACTOR = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)x\Z")
_RANGE = re.compile(r"([0-9]{1,3})-([0-9]{1,3})\Z")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long the next submission waits: ``first_s``, doubled each time, and never more than ``most_s``."""

    first_s: float
    most_s: float

    def wait_s(self, used: int, jitter: float) -> float:
        """The wait in whole seconds after ``used`` earlier resubmissions for this cause.

        :param jitter: 0 to 1. Of a range it takes up to a half away, so that jobs that ended together do not
            come back together; a constant wait stays as it is.
        """
        whole = min(self.first_s * 2.0 ** min(used, 40), self.most_s)
        if self.first_s < self.most_s:
            whole -= whole * 0.5 * min(max(jitter, 0.0), 1.0)
        return float(round(whole))

    def __str__(self) -> str:
        if self.first_s == self.most_s:
            return duration(self.first_s)
        return f"{duration(self.first_s)}..{duration(self.most_s)}"


@dataclass(frozen=True, slots=True)
class Growth:
    """A limit times ``factor``, up to ``ceiling`` (seconds of a time limit, MiB of memory)."""

    factor: float
    ceiling: float

    def grown(self, limit: float) -> float:
        """The limit of the next submission; ``limit`` itself where it is at the ceiling or over it."""
        return max(limit, min(limit * self.factor, self.ceiling))


@dataclass(frozen=True, slots=True)
class RuleOption:
    """One option.

    :param field: the field of a rule that it sets.
    :param read: the field's value from the text behind ``=``; ``None``: a flag.
    :param write: the text again.
    :param actions: what it goes with.
    :param example: how it is written, for messages and documents.
    """

    name: str
    field: str
    read: Callable[[str], Any] | None
    write: Callable[[Any], str]
    actions: frozenset[Action]
    example: str
    text: str


def _budget(text: str) -> int:
    return parse_count("budget", text, BUDGET_MAX)


def _backoff(text: str) -> Backoff:
    first, dots, most = text.partition("..")
    found = Backoff(parse_duration(first), parse_duration(most if dots else first))
    if not 0 < found.first_s <= found.most_s:
        raise BadDataError(f"backoff '{show(text)}' does not go from a wait to a longer one", hint="such as 30s..30m")
    return found


def _codes(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split("+"):
        match = _RANGE.match(part)
        least, most = (match[1], match[2]) if match else (part, part)
        numbers = range(_number("exit status", least, CODE_MAX), _number("exit status", most, CODE_MAX) + 1)
        if not numbers:
            raise BadDataError(f"'{show(part)}' has no exit status in it")
        found.update(numbers)
    return frozenset(found)


def _number(what: str, text: str, greatest: int) -> int:
    number = parse_count(what, text, greatest)
    if number == 0:
        raise BadDataError(f"{what} 0 is out of bounds", hint=f"it is 1 to {greatest}")
    return number


def _write_codes(codes: frozenset[int]) -> str:
    parts: list[list[int]] = []
    for code in sorted(codes):
        if parts and parts[-1][-1] == code - 1:
            parts[-1].append(code)
        else:
            parts.append([code])
    return "+".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _signals(text: str) -> frozenset[int]:
    return frozenset(_signal(part) for part in text.split("+"))


def _signal(text: str) -> int:
    if text.isdigit():
        return _number("signal", text, SIGNAL_MAX)
    name = text.upper().removeprefix("SIG")
    if name not in _SIGNALS:
        raise BadDataError(f"'{show(text)}' is not a signal", hint="it is a number, or a name such as SEGV")
    return _SIGNALS.index(name) + 1


def signal_name(number: int) -> str:
    """``SEGV`` for 11; the number itself where it has no name."""
    return _SIGNALS[number - 1] if 1 <= number <= len(_SIGNALS) else str(number)


def _write_signals(signals: frozenset[int]) -> str:
    return "+".join(signal_name(number) for number in sorted(signals))


def _growth(ceiling_of: Callable[[str], float], example: str) -> Callable[[str], Growth]:
    def read(text: str) -> Growth:
        factor, dots, ceiling = text.partition("..")
        match = _FACTOR.match(factor)
        if match is None or not dots:
            raise BadDataError(f"'{show(text)}' is not a factor with a ceiling", hint=f"such as {example}")
        found = Growth(float(match[1]), ceiling_of(ceiling))
        if not 1 < found.factor <= FACTOR_MAX:
            raise BadDataError(
                f"the factor {match[1]} is out of bounds", hint=f"it is more than 1, up to {FACTOR_MAX:g}"
            )
        if not found.ceiling:
            raise BadDataError("the ceiling is nothing")
        return found

    return read


def _write_growth(ceiling: Callable[[float], str]) -> Callable[[Growth], str]:
    return lambda growth: f"{growth.factor:g}x..{ceiling(growth.ceiling)}"


def _hold_for(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise BadDataError("a hold for no time is none")
    return seconds


_AGAIN = frozenset({Action.RESUBMIT, Action.REQUEUE})
_RESUBMIT = frozenset({Action.RESUBMIT})
_HOLD = frozenset({Action.HOLD})
_ALL = frozenset(Action)

RULE_OPTIONS: tuple[RuleOption, ...] = (
    RuleOption(
        "budget", "budget", _budget, str, _AGAIN, "budget=3",
        "how often each of the outcomes may bring the job back without new progress in between; then it is held",
    ),
    RuleOption(
        "backoff", "backoff", _backoff, str, _RESUBMIT, "backoff=30s..30m",
        "the next submission waits in Slurm (--begin): the first time, and the most; it doubles each time, with "
        "jitter. One duration: always that long",
    ),
    RuleOption(
        "codes", "codes", _codes, _write_codes, _ALL, "codes=1+3-7",
        "only if the command ended with one of these statuses",
    ),
    RuleOption(
        "signals", "signals", _signals, _write_signals, _ALL, "signals=SEGV+9",
        "only if one of these signals ended the command",
    ),
    RuleOption(
        "exclude-nodes", "exclude_nodes", None, str, _AGAIN, "exclude-nodes",
        "the next submission stays off the nodes of this execution, as far as enough others are there",
    ),
    RuleOption(
        "time", "time", _growth(parse_duration, "1.5x..3d"), _write_growth(duration), _RESUBMIT, "time=1.5x..3d",
        "the next submission's time limit is this many times the last one's, up to the ceiling",
    ),
    RuleOption(
        "mem", "mem", _growth(parse_size, "2x..512G"), _write_growth(size), _RESUBMIT, "mem=2x..512G",
        "the same for memory",
    ),
    RuleOption(
        "for", "hold_for_s", _hold_for, duration, _HOLD, "for=24h",
        "how long the hold waits for a person",
    ),
)  # fmt: skip
"""Every option, in the order in which a rule's text has them."""


def read_options(words: list[str], action: Action) -> dict[str, Any]:
    """The fields of a rule that ``words`` set.

    :param words: what stands behind the action, such as ``budget=3``.
    :raises BadDataError: a word that is no option, one twice, one that does not go with ``action``, or a value
        that does not parse.
    """
    known = {option.name: option for option in RULE_OPTIONS}
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        option = known.get(name)
        if option is None or bool(equals) != (option.read is not None):
            raise BadDataError(f"'{show(word)}' is not an option", hint=_known(option, action))
        if option.field in found:
            raise BadDataError(f"{name} stands twice")
        if action not in option.actions:
            goes = " and ".join(other.value for other in Action if other in option.actions)
            raise BadDataError(f"{name} goes with {goes} only")
        found[option.field] = True if option.read is None else _read(option, option.read, value)
    return found


def _read(option: RuleOption, read: Callable[[str], Any], value: str) -> Any:
    try:
        return read(value)
    except DispatchError as error:
        text = str(error) if str(error).startswith(option.name) else f"{option.name}: {error}"
        raise BadDataError(text, hint=error.hint) from error


def _known(option: RuleOption | None, action: Action) -> str:
    if option is not None:
        return f"write {option.example}"
    return "known are " + ", ".join(other.example for other in RULE_OPTIONS if action in other.actions)


def write_options(values: dict[str, Any]) -> str:
    """The text of the options, each with a comma before it."""
    text = ""
    for option in RULE_OPTIONS:
        value = values.get(option.field)
        if option.read is None:
            text += f",{option.name}" if value else ""
        elif value is not None:
            text += f",{option.name}={option.write(value)}"
    return text
