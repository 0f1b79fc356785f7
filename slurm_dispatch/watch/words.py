"""The words of the command: ``{dir}`` and ``{resume:--flag}``.

A shell would expand ``$DISPATCH_DIR`` before the helper has chosen anything, and libraries refuse an empty
``--resume_from_checkpoint``; so the helper itself puts the values in.
"""

from __future__ import annotations

from slurm_dispatch.errors import UsageError

DIR = "{dir}"
_RESUME = "{resume"


def fill(words: list[str], directory: str, resume: str | None) -> list[str]:
    """The command as it is run.

    * ``{dir}`` anywhere in a word becomes ``directory``.
    * ``{resume:--flag}``, a word of its own, becomes the two words ``--flag`` and the path; on a first start it
      is left out. ``{resume:--flag=}`` and ``{resume:key=}`` become one word. ``{resume}`` becomes the path alone.

    Other braces are left alone: commands have braces of their own.

    :raises UsageError: ``{resume...}`` is not a word of its own.
    """
    out: list[str] = []
    for word in words:
        flag = _flag_of(word)
        if flag is None:
            out.append(word.replace(DIR, directory))
        elif resume is None:
            continue
        elif not flag:
            out.append(resume)
        elif flag.endswith("="):
            out.append(flag + resume)
        else:
            out += [flag, resume]
    return out


def check(words: list[str]) -> None:
    """Refuse words that :func:`fill` would refuse, before anything is made or chosen."""
    fill(words, "/", None)


def _flag_of(word: str) -> str | None:
    """The flag of a ``{resume...}`` word, ``""`` if it has none, ``None`` for any other word."""
    if word == "{resume}":
        return ""
    if "{resume:" not in word and "{resume}" not in word:
        return None
    if not (word.startswith("{resume:") and word.endswith("}") and word.count(_RESUME) == 1 and len(word) > 9):
        raise UsageError(
            f"{word!r}: {{resume:--flag}} must be a word of its own",
            hint="for --flag=PATH write {resume:--flag=}",
        )
    return word[len("{resume:") : -1]
