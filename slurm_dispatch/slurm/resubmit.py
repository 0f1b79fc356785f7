"""The argv of a job's next submission, from its recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.slurm.port import SbatchCall


def resubmission(
    spec: Spec,
    word: Word,
    *,
    script_path: str,
    environment: bytes,
    site_environment: dict[str, str],
    deadline_s: float,
    changes: Sequence[str] = (),
) -> SbatchCall:
    """The call of sbatch for submission ``word.submission`` (2 and later) of a job, as its owner.

    :param script_path: the recorded copy of the script (``Record.script_path``).
    :param environment: the recorded environment, NUL-separated ``NAME=value``.
    :param site_environment: what the commands need on this host (``SLURM_CONF``, ``PATH``), from the site's config.
    :param changes: sbatch options that the rule adds (``--exclude=c1``, ``--begin=now+60``).
    """
    raise NotImplementedError
