"""slurm-dispatch: replace a Slurm job at once, and make the overlap with its old processes harmless.

``publish``, ``latest``, ``execution`` and ``best`` are those of :mod:`slurm_dispatch.api`, loaded when they are first
used: the package itself imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.api import best, execution, latest, publish

__version__ = "0.1.0"
__all__ = ["__version__", "best", "execution", "latest", "publish"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("slurm_dispatch.api"), name)
