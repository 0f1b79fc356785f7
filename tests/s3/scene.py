"""Saves and publications for the tests of S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.model.publication import Publication
from tests.store.scene import FIRST, NEW, OLD, SECOND

if TYPE_CHECKING:
    from slurm_dispatch.s3.root import S3Root

__all__ = ["FIRST", "NEW", "OLD", "SECOND", "names", "published", "save"]



def save(root: S3Root, attempt: str, name: str, content: bytes = b"weights") -> str:
    """A save of one file in a folder. Returns its path relative to the root."""
    root.bucket.replace(root.place.key("exec", attempt, name, "weights"), content, root.bucket.deadline())
    return f"exec/{attempt}/{name}"


def published(root: S3Root, step: int, *, epoch: int = FIRST, attempt: str = OLD) -> Publication:
    """A save and its publication."""
    return root.publish(epoch, step, save(root, attempt, f"checkpoint-{step}"), attempt=attempt)


def names(count: int) -> list[str]:
    """Names of publications that sort with the steps."""
    return [Publication(FIRST, step, b"exec/%s/checkpoint-%d" % (OLD.encode(), step)).name for step in range(count)]
