"""The ``#DISPATCH`` lines of a script: our options beside sbatch's.

They end where ``#SBATCH`` lines end, and are split into words as sbatch splits its own.
"""

from __future__ import annotations

from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.slurm.directives import lines_of
from slurm_dispatch.slurm.options import parse
from slurm_dispatch.submit.command_line import OWN, own_value

MAGIC = b"#DISPATCH"


def own_directives(script: bytes) -> tuple[tuple[str, str, str], ...]:
    """Our options of the script as (name, value, where it stands), in their order.

    :raises UsageError: a word that is not an option of ours, or an option with a wrong value; names the line.
    """
    found: list[tuple[str, str, str]] = []
    for line in lines_of(script, MAGIC):
        where = f"line {line.number} of the script"
        if line.bad:
            raise UsageError(f"{where}: a quote is not closed")
        parsed = parse(line.words, own=OWN)
        for word in parsed.options:
            if word.name not in OWN:
                raise UsageError(f"{where}: --{show(word.name)} is not an option of #DISPATCH lines", hint=_known())
            found.append((word.name, own_value(word.name, word.value, where), where))
        if parsed.end < len(line.words):
            raise UsageError(f"{where}: {show(line.words[parsed.end])!r} is not an option", hint=_known())
    return tuple(found)


def _known() -> str:
    return f"known are {', '.join('--' + name for name in OWN)}; sbatch's options stand in #SBATCH lines"
