"""The table of settings: name, kind, default, bounds, unit, and what each is for.

The loader, its errors, the sample ``site/dispatch.toml`` and the reference ``docs/settings.md`` all come
from this table (``tools/doc_tables.py``); a test holds the files to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurm_dispatch.model.epoch import SUBMISSION_MAX

REQUIRED = object()
"""The default of a setting that must be given."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    :param kind: ``path`` (absolute), ``text``, ``bool``, ``int``, ``seconds`` or ``rules``.
    :param default: what counts where the file does not have it; ``None`` means what ``text`` says.
    :param least: lower bound of a number, ``greatest`` the upper one, both inclusive.
    :param example: what the sample shows for a setting without a default.
    """

    name: str
    kind: str
    default: Any
    text: str
    least: float = 0
    greatest: float = 0
    example: str = ""

    @property
    def bounds(self) -> str:
        """The bounds of a number in words, or nothing."""
        return f"{self.least:g} to {self.greatest:g}" if self.greatest else ""


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "state",
        "path",
        REQUIRED,
        "The state folder: shared by the login hosts, the hosts that tick, and slurmctld's hosts. "
        "In user mode it may begin with ~.",
        example="/shared/slurm-dispatch",
    ),
    Setting("cluster", "text", None, "The cluster's name. Not given: what Slurm's configuration says."),
    Setting("slurm_user", "text", "slurm", "SlurmUser of slurm.conf: who owns jobs/ and notes/ of the state folder."),
    Setting(
        "user_mode",
        "bool",
        False,
        "Everything belongs to one user: no hooks of the site, no root; the tick runs as that user.",
    ),
    Setting("slurm_bin", "path", None, "The folder of Slurm's commands. Not given: they are found on the PATH."),
    Setting(
        "submit_timeout_s",
        "seconds",
        150,
        "When a call of sbatch is ended. Slurm's commands try for a minute and a half when slurmctld is away.",
        5,
        3600,
    ),
    Setting(
        "message_timeout_s",
        "seconds",
        None,
        "Slurm's MessageTimeout. Not given: asked of Slurm. Others settle a submission after submit_timeout_s and "
        "twice this.",
        1,
        3600,
    ),
    Setting(
        "query_timeout_s", "seconds", 60, "When a question to Slurm (squeue, scontrol, sacct) is given up.", 1, 3600
    ),
    Setting(
        "owner_timeout_s",
        "seconds",
        20,
        "How long work on one user's records may take, beside two calls of sbatch, before they are put off.",
        1,
        3600,
    ),
    Setting(
        "tick_interval_s", "seconds", 30, "How often dispatch tick --loop looks even if nothing wakes it.", 1, 3600
    ),
    Setting("max_submissions", "int", 100, "The most submissions that a job may have.", 1, SUBMISSION_MAX),
    Setting("launch_failures", "int", 5, "Submissions in a row that may fail to start their script.", 1, 100),
    Setting("accounting", "bool", None, "Whether sacct has this cluster's jobs. Not given: asked of Slurm."),
    Setting(
        "rules",
        "rules",
        (),
        'Rules of the site, which come after those of the user: ["preempted:resubmit,budget=50", "failed:stop"].',
    ),
)
"""Every setting, in the order of the sample."""


def sample() -> str:
    """The sample ``dispatch.toml``: every setting with its text; those with a default are commented out."""
    lines = ["# The settings of slurm-dispatch, for /etc/slurm-dispatch/dispatch.toml."]
    for setting in SETTINGS:
        lines.append("")
        lines += [f"# {line}" for line in _wrap(setting.text)]
        if setting.bounds:
            lines.append(f"# {setting.bounds}.")
        if setting.default is REQUIRED:
            lines.append(f'{setting.name} = "{setting.example}"')
        elif setting.default is None:
            lines.append(f"# {setting.name} = {_UNSET[setting.kind]}")
        else:
            lines.append(f"# {setting.name} = {toml(setting.default)}")
    return "\n".join(lines) + "\n"


_UNSET = {"text": '"alpha"', "path": '"/usr/bin"', "seconds": "10", "bool": "true", "int": "1"}


def toml(value: Any) -> str:
    """A default as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _wrap(text: str, width: int = 96) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines
