"""Publishing from a callback: a storage that fails for a while does not end the training."""

from __future__ import annotations

import pytest

from slurm_dispatch.errors import BadDataError, TransientError
from slurm_dispatch.integrations.patience import Publishing


class Store:
    """An execution whose storage fails while it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.published: list[int] = []
        self.best: list[int] = []

    def publish(self, path: str, step: int, **options: object) -> None:
        assert options == {"pattern": "checkpoint-{step}", "sync": True, "allow_step_back": False}
        if self.error is not None:
            raise self.error
        self.published.append(step)

    def keep_best(self, path: str, step: int, **about: object) -> None:
        if self.error is not None:
            raise self.error
        self.best.append(step)


def publishing(store: Store) -> Publishing:
    return Publishing(store, "checkpoint-{step}", sync=True, allow_step_back=False)  # type: ignore[arg-type]


def test_the_next_save_is_published(capfd: pytest.CaptureFixture[str]) -> None:
    store = Store()
    work = publishing(store)
    store.error = TransientError("publishing x: no space", hint="wait")
    work.publish("a", 5)
    work.keep_best("a", 5, metric="loss", score=1.0, greater_is_better=False)
    assert capfd.readouterr().err == (
        "dispatch: step 5 is not published: publishing x: no space; wait\n"
        "dispatch: the best save, of step 5, is not kept: publishing x: no space; wait\n"
    )
    store.error = None
    work.publish("b", 10)
    work.end()
    assert store.published == [10]
    assert store.best == []


def test_a_last_save_that_is_left_is_tried_at_the_end() -> None:
    store = Store()
    work = publishing(store)
    store.error = TransientError("no space")
    work.publish("a", 5)
    with pytest.raises(TransientError):
        work.end()
    store.error = None
    work.end()
    work.end()
    assert store.published == [5]


def test_what_will_never_be_better_is_an_error_at_once() -> None:
    store = Store()
    store.error = BadDataError("outside")
    with pytest.raises(BadDataError):
        publishing(store).publish("a", 5)
