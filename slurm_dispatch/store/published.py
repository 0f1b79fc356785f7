"""What is said of publications that cannot be used, and which is taken instead: the same of any kind of root."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import Save
    from slurm_dispatch.store.roots import Root


@contextmanager
def named(pub: str) -> Iterator[None]:
    """A name that does not parse is told with its place.

    :param pub: how ``pub/`` is called, as it is shown.
    """
    try:
        yield
    except BadDataError as error:
        raise BadDataError(
            f"in {pub}: {error}",
            hint="find out who put it there, and move it away if it is nobody's publication",
        ) from error


def latest_gone(root: Root, name: str, what: str) -> BadDataError:
    """The latest publication cannot be resumed from.

    :param what: what is not there of it, in words.
    """
    return BadDataError(
        f"publication {name} is the latest of {show(root.path)} and {what}",
        hint="bring it back, or take the next one with --fallback",
    )


def first_there(
    root: Root, publications: Sequence[Publication], find: Callable[[Publication], Save | None]
) -> Save:
    """The first whose save is there; if that is not the latest, it is said.

    :param publications: latest first, one at least.
    :param find: a publication's save, ``None`` where it is gone.
    :raises BadDataError: all are gone.
    """
    for publication in publications:
        save = find(publication)
        if save is not None:
            if publication is not publications[0]:
                root.say(f"the save of {publications[0].name} is gone; falling back to {publication.name}")
            return save
    raise BadDataError(
        f"the saves of all {len(publications)} publications of {show(root.path)} are gone",
        hint="bring one back, or start in another root",
    )


__all__ = ["first_there", "latest_gone", "named"]
