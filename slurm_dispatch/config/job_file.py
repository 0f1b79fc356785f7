"""A job file: the settings of a job as TOML, for those who keep them beside the script.

The names are those of the options (``docs/settings.md``), and ``on`` is a list of rules::

    checkpoint = "/scratch/%u/%x"
    on = ["preempted:resubmit,budget=50", "out_of_memory:resubmit,mem=2x..512G"]
    stall = "30m"
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from slurm_dispatch.config.settings import JOB_BY_NAME
from slurm_dispatch.config.site import SIZE_MAX, line_numbers, parse_toml
from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import DispatchError, UsageError, show
from slurm_dispatch.rules.rule import RULES_MAX


@dataclass(frozen=True, slots=True)
class Said:
    """A setting of a job as it stands somewhere.

    :param value: a text as it was typed, or a value of TOML.
    :param place: where, in words.
    :param typed: it is a text, whatever the setting's kind.
    """

    name: str
    value: Any
    place: str
    typed: bool = True


def read_job_file(path: str, shown: str) -> tuple[list[Said], list[UsageError]]:
    """What a job file says, rules one by one, and what is wrong with its names.

    :param path: absolute; through a link too, since it is read with the user's own rights.
    :param shown: its name in messages and origins, as it was typed.
    :raises UsageError: it cannot be read, or is not TOML.
    """
    try:
        content, text = parse_toml(path, read_regular(os.path.realpath(path), SIZE_MAX))
    except DispatchError as error:
        raise UsageError(f"job file: {error}", hint=error.hint) from error
    lines = line_numbers(text)
    said: list[Said] = []
    wrong: list[UsageError] = []
    for name, value in content.items():
        place = f"{show(shown)}, line {lines[name]}" if name in lines else show(shown)
        setting = JOB_BY_NAME.get(name)
        if setting is None or setting.typed_only:
            known = ", ".join(it.name for it in JOB_BY_NAME.values() if not it.typed_only)
            hint = "it belongs on the command line" if setting is not None else f"known are {known}"
            wrong.append(UsageError(f"{place}: {show(name)} is not a setting of a job file", hint=hint))
        elif setting.kind == "rules" and isinstance(value, list) and len(value) <= RULES_MAX:
            said += [Said(name, [rule], f"{place}, rule {number}", False) for number, rule in enumerate(value, 1)]
        else:
            said.append(Said(name, value, place, False))
    return said, wrong
