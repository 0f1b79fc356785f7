"""What is written from the tables of settings: the sample ``site/dispatch.toml`` and ``docs/settings.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.config.kinds import REQUIRED, Setting, written
from slurm_dispatch.config.settings import JOB_SETTINGS, LIMIT_SETTINGS, SETTINGS
from slurm_dispatch.rules.options import RULE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence


def sample() -> str:
    """The sample ``dispatch.toml``: every setting with its text; those with a default are commented out."""
    lines = ["# The settings of slurm-dispatch, for /etc/slurm-dispatch/dispatch.toml."]
    for setting in SETTINGS:
        if setting.kind == "limits":
            continue
        lines += ["", *_commented(setting)]
        value = _value(setting)
        lines.append(f"{setting.name} = {value}" if setting.default is REQUIRED else f"# {setting.name} = {value}")
    lines += ["", "# Limits, which stand above what jobs and rules say. As many tables as are needed, at the end of"]
    lines += ["# the file; of those that name a job each counts, and of several bounds the lowest.", "# [[limit]]"]
    for setting in LIMIT_SETTINGS:
        lines += ["#", *_commented(setting), f"# {setting.name} = {_value(setting)}"]
    return "\n".join(lines) + "\n"


def _commented(setting: Setting) -> list[str]:
    lines = [f"# {line}" for line in wrap(setting.text)]
    if setting.bounds:
        lines.append(f"# {setting.bounds}.")
    return lines


def _value(setting: Setting) -> str:
    if setting.default is REQUIRED or setting.default is None:
        return setting.example
    return written(setting, setting.default)


def wrap(text: str, width: int = 96) -> list[str]:
    """``text`` in lines of at most ``width`` characters, where its words allow it."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def reference() -> str:
    """docs/settings.md."""
    options = [
        (f"`{it.example}`", ", ".join(sorted(map(str, it.actions))) if len(it.actions) < 4 else "all", it.text)
        for it in RULE_OPTIONS
    ]
    jobs = [
        (
            f"`{job.name}`",
            job.metavar or "true, false",
            f"`{job.site}`" if job.site else _default(job),
            job.bounds or "-",
            job.text
            + ("; not in a job file" if job.typed_only else "")
            + (f"; `--no-{job.name}` takes it away" if job.negatable else ""),
        )
        for job in JOB_SETTINGS
    ]
    return "\n".join([
        "# Settings",
        "",
        "This page is made from the code by `tools/doc_tables.py`, and so is the sample `site/dispatch.toml`.",
        "`dispatch config show` prints the settings that count here and where each comes from, and with a script",
        "or the words of a submission behind it those of that job.",
        "",
        "A time is a text such as `30s`, `10m`, `24h`, `3d`, in TOML files also a number of seconds; a size is",
        "`500M`, `64G`, `2T`.",
        "",
        "## The site's",
        "",
        "They are in `/etc/slurm-dispatch/dispatch.toml`, or in the file that `DISPATCH_CONFIG` names (for root",
        "only if it is root's alone). All that is wrong in it is said at once, each with its line, with exit code",
        "78.",
        "",
        _table(("setting", "kind", "default", "bounds", "what it is for"), [_row(it) for it in SETTINGS]),
        "",
        "## Limits",
        "",
        "Tables `[[limit]]` at the end of the same file stand above what jobs and rules say. A limit is about the",
        "jobs of the users, under the accounts and in the partitions that it names; until Slurm has said a job's",
        "account and partition, those that the job itself names count. Of several that are about a job each counts,",
        "and of several bounds the lowest. A submission that asks for more than they allow is refused with exit",
        "code 77 and the limit's number; what would come from elsewhere (a built-in rule, the site's own) becomes a",
        "hold.",
        "",
        _table(("setting", "kind", "default", "bounds", "what it is for"), [_row(it) for it in LIMIT_SETTINGS]),
        "",
        "## A job's",
        "",
        "Each is an option `--NAME` of `dispatch sbatch` and of `#DISPATCH` lines in the script, and a name in a",
        "job file (TOML; `on` is a list of rules there). The command line is strongest, then the script, then the",
        "job file, then the site's setting of the table. Rules add up in that order. `--no-NAME`, where the table",
        "has it, takes away what a weaker place says, on the command line or in a `#DISPATCH` line. The others need",
        "none: another value stands instead, an earlier rule matches first, and `dispatch plan` prints what",
        "`no-plan` leaves out.",
        "",
        _table(("setting", "value", "where not given", "bounds", "what it says"), jobs),
        "",
        "## Rules",
        "",
        "`OUTCOMES:ACTION[,OPTION...]`, such as `failed:resubmit,signals=SEGV,exclude-nodes,budget=3`. The outcomes",
        "are those of [states.md](states.md), the actions `resubmit`, `requeue`, `hold` and `stop`. The first rule",
        "that matches counts.",
        "",
        _table(("option", "goes with", "what it does"), options),
        "",
    ])  # fmt: skip


def _row(setting: Setting) -> tuple[str, ...]:
    return (f"`{setting.name}`", setting.kind, _default(setting), setting.bounds or "-", setting.text)


def _default(setting: Setting) -> str:
    if setting.default is REQUIRED:
        return "must be given"
    if setting.kind == "limits":
        return "none"
    return "-" if setting.default is None else f"`{written(setting, setting.default)}`"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
