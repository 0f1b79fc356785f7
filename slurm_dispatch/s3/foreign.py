"""A save in S3 that a person names, in whatever bucket: looked at, and brought to this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, StoreError, show
from slurm_dispatch.s3.bucket import Bucket, check_installed
from slurm_dispatch.s3.place import parse_save
from slurm_dispatch.s3.root import TIMEOUT_S, objects_at
from slurm_dispatch.s3.settings import settings
from slurm_dispatch.s3.transfer import Meter, bring
from slurm_dispatch.s3.view import S3SaveView, sizes_of
from slurm_dispatch.store.sound import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.bucket import Meta


class Foreign:
    """A save at ``s3://bucket/key``. Made in the process that uses it, as a :class:`Bucket` is.

    Nobody has said that it stays, or that it is whole: what can be asked of it is asked before it is read.

    :ivar path: ``s3://bucket/key``.
    :raises UsageError: it names none.
    :raises ConfigurationError: the client is not installed, or variables and files are wrong.
    """

    def __init__(self, text: str, *, what: str = "save", timeout_s: float | None = None) -> None:
        place = parse_save(text, what)
        check_installed()
        self.path = str(place)
        self._what = what
        self._key = place.prefix
        self._bucket = Bucket(place, settings(), timeout_s=TIMEOUT_S if timeout_s is None else timeout_s)

    def check(self) -> list[Meta]:
        """Its objects.

        :raises BadDataError: it is not there, is empty, or says itself that it is not whole.
        :raises StoreError: it could not be looked.
        """
        objects = objects_at(self._bucket, self._key, self._bucket.deadline())
        if not any(meta.size for meta in objects):
            state = "is empty" if objects else "is not there"
            raise BadDataError(f"{self._what} {show(self.path)} {state}", hint="give the s3://BUCKET/KEY of a save")
        try:
            torn = judge(S3SaveView(self._bucket, self._key, sizes_of(objects, self._key)))
        except OSError as error:
            raise StoreError(f"reading in {self._what} {show(self.path)}: {error.strerror}") from error
        if torn is not None:
            raise BadDataError(f"{self._what} {show(self.path)} is not whole: {torn}")
        return objects

    def bring(
        self,
        target: str,
        *,
        say: Callable[[str], None] | None = None,
        moving: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Bring it to the local path ``target``, durable, whole or not at all.

        :raises BadDataError: as :meth:`check`; or it changed meanwhile.
        :raises CannotCreateError: something is at ``target``.
        :raises StoreError: the store, or the disk.
        """
        objects = self.check()

        def same() -> None:
            if objects_at(self._bucket, self._key, self._bucket.deadline()) != objects:
                raise BadDataError(f"{self._what} {show(self.path)} changed while it was downloaded")

        meter = Meter(f"downloading {show(self.path)}", say, moving=moving)
        bring(self._bucket, self._key, objects, target, meter=meter, check=same)


__all__ = ["Foreign"]
