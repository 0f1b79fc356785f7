"""The site's settings: one table, from which loader, errors, sample file and reference come.

``/etc/slurm-dispatch/dispatch.toml``, or the file that ``DISPATCH_CONFIG`` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.rules.rule import Rule

DEFAULT_PATH = "/etc/slurm-dispatch/dispatch.toml"


@dataclass(frozen=True, slots=True)
class Site:
    """The settings as loaded; each is explained in :data:`~slurm_dispatch.config.settings.SETTINGS`.

    :param path: the file they came from, or empty if there is none and all are defaults.
    """

    path: str
    state: str
    cluster: str
    slurm_user: str
    user_mode: bool
    slurm_bin: str
    submit_timeout_s: float
    message_timeout_s: float | None
    query_timeout_s: float
    owner_timeout_s: float
    tick_interval_s: float
    max_submissions: int
    launch_failures: int
    accounting: bool | None
    rules: tuple[Rule, ...]


def load_site(path: str | None = None) -> Site:
    """The settings of ``path``, or of ``DISPATCH_CONFIG``, or of :data:`DEFAULT_PATH`.

    ``DISPATCH_CONFIG`` counts for root only if root owns the file: an environment that was handed on must
    not choose where root writes.

    :raises ConfigurationError: all that is wrong, in one line, each with file and key.
    """
    raise NotImplementedError
