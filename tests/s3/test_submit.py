"""What is looked at in S3 when a job is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import CannotCreateError, StoreError
from slurm_dispatch.submit.root import prepare_root
from tests.s3.scene import published
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

PLACE = f"s3://{BUCKET}/run"


def test_a_new_place_is_generation_0_and_nothing_is_left_in_it(root: S3Root, stub: Stub) -> None:
    assert prepare_root(PLACE, adopt=False) == 0
    assert stub.objects == {}
    assert [request.key.rpartition("/")[2] for request in stub.of("PUT")] == ["proved", "proved"]


def test_anothers_place_is_refused_or_adopted(root: S3Root, stub: Stub) -> None:
    root.claim("elder", 0)
    with pytest.raises(CannotCreateError, match="job elder") as caught:
        prepare_root(PLACE, adopt=False)
    assert "--adopt-root" in caught.value.line()
    assert prepare_root(PLACE, adopt=True) == 1


def test_a_place_without_a_job(root: S3Root) -> None:
    published(root, 5)
    with pytest.raises(CannotCreateError, match="runs without a job"):
        prepare_root(PLACE, adopt=False)
    assert prepare_root(PLACE, adopt=True) == 1


def test_a_store_that_makes_one_name_twice_is_refused(root: S3Root, stub: Stub) -> None:
    """C143: at the submission already."""
    stub.fault("ignore")
    with pytest.raises(CannotCreateError, match="makes one name twice"):
        prepare_root(PLACE, adopt=False)
    assert stub.objects == {}


def test_a_store_that_does_not_answer_is_no_new_place(root: S3Root, stub: Stub) -> None:
    """C091: it is never the same as nothing there."""
    stub.fault("answer", method="GET", status=403, code="AccessDenied")
    with pytest.raises(StoreError, match="AccessDenied"):
        prepare_root(PLACE, adopt=False)
