"""The ``#DISPATCH`` lines of a script: our options beside sbatch's.

They end where ``#SBATCH`` lines end, and are split into words as sbatch splits its own.
"""

from __future__ import annotations

from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.slurm.directives import lines_of
from slurm_dispatch.slurm.options import parse
from slurm_dispatch.submit.command_line import OWN, own_value

MAGIC = b"#DISPATCH"


def own_directives(script: bytes) -> tuple[tuple[tuple[str, str, str], ...], tuple[UsageError, ...]]:
    """Our options of the script as (name, value, where it stands), in their order, and what is wrong with them.

    :returns: one error for each word that is not an option of ours, or is one with a wrong value; it names the line.
    """
    found: list[tuple[str, str, str]] = []
    wrong: list[UsageError] = []
    for line in lines_of(script, MAGIC):
        where = f"line {line.number} of the script"
        if line.bad:
            wrong.append(UsageError(f"{where}: a quote is not closed"))
            continue
        parsed = parse(line.words, own=OWN)
        unknown = [word.name for word in parsed.options if word.name not in OWN]
        for word in parsed.options:
            if word.name not in OWN:
                text = f"{where}: --{show(word.name)} is not an option of #DISPATCH lines"
                wrong.append(UsageError(text, hint=_known()))
                continue
            try:
                found.append((word.name, own_value(word.name, word.value, where), where))
            except UsageError as error:
                wrong.append(error)
        if parsed.end < len(line.words) and not unknown:  # otherwise it may be the unknown one's value
            wrong.append(UsageError(f"{where}: {show(line.words[parsed.end])!r} is not an option", hint=_known()))
    return tuple(found), tuple(wrong)


def _known() -> str:
    return f"known are {', '.join('--' + name for name in OWN)}; sbatch's options stand in #SBATCH lines"
