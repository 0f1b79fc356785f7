"""The command line of ``dispatch-watch``: one table, from which parsing, help and the documentation come.

``argparse`` is not used: it costs a fifth of the start, and it takes shortened names, which would make every
new option a change of what old scripts mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import UsageError
from slurm_dispatch.watch.pattern import DEFAULT, RESERVED, Pattern, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

AUTO = "auto"
INTERVAL_S = 10.0
SETTLE_S = 60.0
TIMEOUT_S = 900.0
GRACE_S = 30.0
SECONDS_MAX = 30 * 86400.0
"""A month: a greater wait is a typing error."""
INTERVAL_S_MIN = 0.05
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18}
"""Signals that --before-end takes: those that srun passes on, and TERM, which goes by scancel."""

USAGE = "usage: dispatch-watch [options] -- command [words]  |  dispatch-watch --beside &  |  dispatch-watch --finish"


@dataclass(slots=True)
class Options:
    """What the command line said. Times are seconds."""

    root: str | None = None
    from_dir: str | None = None
    """For a root in S3: the folder of this host below which the command saves."""
    pattern: Pattern = field(default_factory=lambda: parse_pattern(DEFAULT))
    own_pattern: bool = False
    """--pattern was given: it stands for the patterns of a layout too."""
    layout: str | None = None
    """The name of a layout, or ``auto``; ``None``: --pattern and --done alone say what a save is."""
    single: str | None = None
    """The one file that the command writes again and again, relative to ``DISPATCH_DIR``."""
    done: list[str] = field(default_factory=list)
    settle_s: float = SETTLE_S
    interval_s: float = INTERVAL_S
    timeout_s: float = TIMEOUT_S
    grace_s: float = GRACE_S
    start_from: str | None = None
    copy: bool = False
    sync: bool = False
    keep_own: int = 2
    keep_root: int = 3
    thin: bool = True
    stall_s: float | None = None
    """``None``: the command line does not say; 0: never."""
    before_end: tuple[float, int] | None = None
    """How long before the time limit, and the number of the signal."""
    allow_step_back: bool = False
    end_on_error: bool = False
    require_managed: bool = False
    steps: bool = False
    beside: bool = False
    finish: bool = False
    status: int | None = None
    help: bool = False
    version: bool = False
    command: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """One option: its name, what its value is called (empty for a flag), its line in the help, how it is set."""

    name: str
    value: str
    text: str
    put: Callable[[Options, str], None]


def seconds(name: str, text: str, least: float = 0.0) -> float:
    """A time: ``90``, ``90s``, ``1.5``, ``10m``, ``2h``, ``1d``; at most :data:`SECONDS_MAX`."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)", text)
    if match is None:
        raise UsageError(f"{name} {text!r} is not a time", hint="examples: 90, 90s, 10m, 2h")
    number = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    if not least <= number <= SECONDS_MAX:
        raise UsageError(f"{name} {text!r} is out of bounds", hint=f"it is {least:g} s to {SECONDS_MAX:g} s")
    return number


def _whole(name: str, text: str, least: int, greatest: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and least <= int(text) <= greatest):
        raise UsageError(f"{name} {text!r} is not a number from {least} to {greatest}")
    return int(text)


def _put_keep(options: Options, text: str) -> None:
    own, _, root = text.partition(",")
    options.keep_own = _whole("--keep", own, 1, 10_000)
    if root:
        options.keep_root = _whole("--keep", root, 1, 10_000)


def _put_before_end(options: Options, text: str) -> None:
    time_text, _, name = text.partition(":")
    number = SIGNALS.get(name.upper().removeprefix("SIG") if name else "TERM")
    if number is None or (":" in text and not name):
        raise UsageError(f"--before-end {text!r} has an unknown signal", hint=f"it is one of {', '.join(SIGNALS)}")
    options.before_end = (seconds("--before-end", time_text, 1.0), number)


def _put_on_error(options: Options, text: str) -> None:
    if text not in {"end", "continue"}:
        raise UsageError(f"--on-error {text!r} is neither 'end' nor 'continue'")
    options.end_on_error = text == "end"


def _put_done(options: Options, text: str) -> None:
    if not text or text.startswith("/") or any(part in {"", ".", ".."} for part in text.split("/")):
        raise UsageError(f"--done {text!r} is not the name of a file inside the save")
    options.done.append(text)


def _put_layout(options: Options, text: str) -> None:
    from slurm_dispatch.savers.table import layout_named  # only who names one pays for the table

    if text != AUTO:
        layout_named(text)
    options.layout = text


def _put_single(options: Options, text: str) -> None:
    parts = text.split("/")
    if "\0" in text or any(part in {"", ".", ".."} for part in parts) or parts[0] in RESERVED:
        raise UsageError(f"--single {text!r} is not the name of a file in the execution's folder")
    options.single = text


def _put_path(name: str, option: str = "") -> Callable[[Options, str], None]:
    def put(options: Options, text: str) -> None:
        if not text or "\0" in text:
            raise UsageError(f"{option or '--' + name.replace('_', '-')} has no path")
        setattr(options, name, text)

    return put


def _put_seconds(name: str, least: float) -> Callable[[Options, str], None]:
    def put(options: Options, text: str) -> None:
        setattr(options, f"{name}_s", seconds(f"--{name}", text, least))

    return put


def _flag(name: str, value: bool = True) -> Callable[[Options, str], None]:
    def put(options: Options, _: str) -> None:
        setattr(options, name, value)

    return put


def _set(name: str, parse: Callable[[str], Any]) -> Callable[[Options, str], None]:
    def put(options: Options, text: str) -> None:
        setattr(options, name, parse(text))

    return put


OPTIONS: tuple[Row, ...] = (
    Row("--root", "PATH", "the checkpoint root; otherwise DISPATCH_CHECKPOINT", _put_path("root")),
    Row(
        "--from",
        "DIR",
        "for a root in S3: the command saves below DIR, on this host's disk, and whole saves are uploaded",
        _put_path("from_dir", "--from"),
    ),
    Row(
        "--layout",
        "NAME|auto",
        "the library that saves: what its saves are called and what proves one whole (default auto, without "
        "--pattern, --done and --single)",
        _put_layout,
    ),
    Row(
        "--pattern",
        "GLOB",
        f"which names are saves, with one {{step}} (default the layout's, or {DEFAULT})",
        _set("pattern", parse_pattern),
    ),
    Row(
        "--done",
        "MARKER",
        "a file that the saver writes last into a save; a name or a glob; may be repeated",
        _put_done,
    ),
    Row("--single", "FILE", "the one file that the command writes again and again; its step is a count", _put_single),
    Row(
        "--settle",
        "TIME",
        f"a save that did not change for so long is assumed whole (default {SETTLE_S:g}s)",
        _put_seconds("settle", 0.0),
    ),
    Row(
        "--interval",
        "TIME",
        f"between two scans, where nothing is seen to change (default {INTERVAL_S:g}s)",
        _put_seconds("interval", INTERVAL_S_MIN),
    ),
    Row(
        "--timeout",
        "TIME",
        "for one scan, and for the root to answer at the start (default 15m)",
        _put_seconds("timeout", 1.0),
    ),
    Row("--grace", "TIME", f"between a stop signal and the kill (default {GRACE_S:g}s)", _put_seconds("grace", 0.0)),
    Row(
        "--before-end",
        "TIME[:SIG]",
        "ask for a save so long before the time limit, with SIG (default TERM)",
        _put_before_end,
    ),
    Row(
        "--stall",
        "TIME",
        "end the command after so long without a publication; 0 for never (default SLURM_DISPATCH_STALL, or never)",
        _put_seconds("stall", 0.0),
    ),
    Row(
        "--start-from",
        "PATH",
        "a save, s3://BUCKET/KEY too, to begin from while the root has no publication",
        _put_path("start_from"),
    ),
    Row("--copy", "", "copy every file of a save, for savers that rewrite large files in place", _flag("copy")),
    Row("--sync", "", "fsync the save's files too before it is published", _flag("sync")),
    Row(
        "--keep", "OWN[,ROOT]", "how many saves of this execution and of the whole root stay (default 2,3)", _put_keep
    ),
    Row("--no-thin", "", "remove nothing", _flag("thin", False)),
    Row(
        "--allow-step-back",
        "",
        "publish although the first save is of a smaller step than the one resumed from",
        _flag("allow_step_back"),
    ),
    Row("--on-error", "end|continue", "end the command when the store fails (default continue)", _put_on_error),
    Row("--require-managed", "", "refuse to run without the identity of a job", _flag("require_managed")),
    Row(
        "--steps",
        "",
        "the command starts Slurm steps though it is not srun: stop those, not the command",
        _flag("steps"),
    ),
    Row("--beside", "", "no command: publish beside a training that was started otherwise", _flag("beside")),
    Row("--finish", "", "end the helper beside, after a last scan, and give back its status", _flag("finish")),
    Row(
        "--status",
        "N",
        "with --finish: how the training ended; 0 lets the last scan count settled saves",
        _set("status", lambda text: _whole("--status", text, 0, 255)),
    ),
    Row("--help", "", "show this", _flag("help")),
    Row("--version", "", "show the version", _flag("version")),
)
_BY_NAME = {row.name: row for row in OPTIONS}


def parse(words: list[str]) -> Options:
    """Parse the command line.

    :raises UsageError: one line that names the option, what is wrong, and what to do.
    """
    options = Options()
    at = 0
    seen: set[str] = set()
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            options.command = words[at:]
            if not options.command:
                raise UsageError("there is no command after --", hint=USAGE)
            break
        if not word.startswith("-") or word == "-":
            raise UsageError(f"{word!r} stands before --", hint=USAGE)
        name, equals, value = word.partition("=")
        row = _BY_NAME.get("--help" if name == "-h" else name)
        if row is None:
            raise UsageError(f"there is no option {name!r}", hint="see dispatch-watch --help")
        if row.name in seen and row.name != "--done":
            raise UsageError(f"{row.name} is given twice")
        seen.add(row.name)
        if not row.value and equals:
            raise UsageError(f"{row.name} takes no value")
        if row.value and not equals:
            if at >= len(words) or words[at] == "--":
                raise UsageError(f"{row.name} needs a value: {row.value}")
            value = words[at]
            at += 1
        row.put(options, value)
    options.own_pattern = "--pattern" in seen
    _check_together(options)
    if not options.own_pattern and not options.done and options.single is None and options.layout is None:
        options.layout = AUTO
    return options


def _check_together(options: Options) -> None:
    if options.help or options.version:
        return
    if options.beside and options.finish:
        raise UsageError("--beside and --finish exclude each other")
    if options.command and (options.beside or options.finish):
        raise UsageError("--beside and --finish take no command", hint=USAGE)
    if not (options.command or options.beside or options.finish):
        raise UsageError("there is no command", hint=USAGE)
    if options.single is not None and (options.own_pattern or options.done or options.layout is not None):
        raise UsageError(
            "--single goes without --layout, --pattern and --done",
            hint="the file's own structure says whether it is whole",
        )
    if options.status is not None and not options.finish:
        raise UsageError("--status goes with --finish only")


def help_text() -> str:
    """The help: usage, an example, every option, the exit codes."""
    lines = [
        USAGE,
        "",
        "Run a training command and publish its whole saves, so that a replacement of the job resumes from them.",
        "In the command {dir} becomes the folder to save into and {resume:--flag} becomes '--flag PATH' or nothing.",
        "",
        "example:",
        "  exec dispatch-watch --layout transformers -- srun python train.py --output_dir {dir} \\",
        "      {resume:--resume_from_checkpoint}",
        "",
        "options:",
    ]
    lines += [f"  {(row.name + ' ' + row.value).strip():<24} {row.text}" for row in OPTIONS]
    lines += [
        "",
        "exit codes: the command's own (128 and the number for a signal); 64 usage, 65 bad data, 66 nothing there,",
        "  69 a service is away, 70 a bug of ours, 73 the root is another job's, 74 store error, 77 and 78 no or",
        "  broken identity, 79 stalled, 80 the command did not resume; 126 and 127 as shells do.",
    ]
    return "\n".join(lines) + "\n"
