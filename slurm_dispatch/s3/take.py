"""Taking the latest save out of S3, which may go, be outranked or turn out damaged while it is brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, TransientError, show
from slurm_dispatch.store.keep import Taken
from slurm_dispatch.store.root import Save

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.s3.root import S3Root

TAKES = 5
"""How often the latest is asked for anew when it goes while it is brought."""


def take_latest(
    root: S3Root,
    take: Callable[[Save], str],
    *,
    wish: Callable[[Publication], bool] = lambda _: True,
    fallback: bool = False,
) -> Taken | None:
    """The latest save, once it is taken; asked for again as long as it goes or is outranked meanwhile.

    :param take: brings it and returns its path; ``AbsentError`` where it went, ``BadDataError`` where it is damaged.
    :param wish: says that it is about to be read; false if a newer one is there by now.
    :param fallback: go on to the next one where the latest is gone or damaged.
    :returns: ``None`` if there is no publication.
    :raises BadDataError: a part of it is gone, and it is the latest still; with ``fallback``, so are all.
    :raises TransientError: each save that was latest went while it was brought.
    """
    for _ in range(TAKES):
        save = root.latest(fallback=fallback)
        if save is None:
            return None
        if not wish(save.publication):
            continue
        try:
            return Taken(save, take(save))
        except AbsentError:
            root.say(
                f"the save of {save.publication.name} went while it was brought here; asking for the latest again"
            )
        except BadDataError as error:
            # The run that wrote it may live, and its saver remove it: then another one is the latest by now.
            now = root.latest(fallback=fallback)
            if now is not None and now.publication != save.publication:
                continue
            if not fallback:
                raise
            root.say(f"{error}; falling back")
            return _next(root, save.publication, take, error)
    raise TransientError(
        f"the latest save of {show(root.path)} went or was outranked each of {TAKES} times that it was taken"
    )


def _next(root: S3Root, damaged: Publication, take: Callable[[Save], str], error: BadDataError) -> Taken:
    """The first one before a damaged one that can be taken."""
    for publication in root.listing():
        if publication >= damaged:
            continue
        save = Save(publication, root.path_of(publication.path))
        try:
            return Taken(save, take(save))
        except (AbsentError, BadDataError) as another:
            root.say(f"{another}; falling back")
    raise error
