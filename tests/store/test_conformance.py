"""What every store promises (P1 to P4), whatever it is made of."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_dispatch.anyroot import bring_again, check_there, publish_by_hand, states_of, taker
from slurm_dispatch.errors import BadDataError, CannotCreateError, CorruptError
from slurm_dispatch.model.publication import PATH_MAX, Publication
from slurm_dispatch.store.best import Best, best_of_all, carry_best, drop_outdone, keep_best, read_best
from slurm_dispatch.store.choice import choose_by, read_choice
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.keep import Taken
from slurm_dispatch.store.root import Highest
from slurm_dispatch.store.thin import thin
from slurm_dispatch.watch.turn import claim_run, end_run, last_run, read_end, this_process
from tests.store.scene import FIRST, NEW, OLD, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.choice import Choice
    from slurm_dispatch.store.roots import Root
    from tests.store.kinds import Store


def test_nothing_published_is_none_and_not_an_error(store: Store) -> None:
    """C091: no publication, or no ``pub/`` at all, is a first start."""
    assert store.root.latest() is None
    assert store.root.listing() == []
    assert store.root.highest() == Highest(-1, 0)


def test_published_is_found_by_everyone(store: Store) -> None:
    path = store.save(OLD, "checkpoint-5")
    publication = store.root.publish(FIRST, 5, path, attempt=OLD)
    assert publication == Publication(FIRST, 5, f"exec/{OLD}/checkpoint-5".encode())
    latest = store.again().latest()
    assert latest is not None
    assert (latest.publication, latest.path) == (publication, store.there(path))


def test_publishing_again_is_success_and_changes_nothing(store: Store) -> None:
    """C086, C108: many watchers may publish one save; the second finds it there, which is done."""
    path = store.save(OLD, "checkpoint-5")
    first = store.root.publish(FIRST, 5, path, attempt=OLD)
    assert store.again().publish(FIRST, 5, store.there(path), attempt=OLD) == first
    assert store.root.listing() == [first]


def test_epoch_counts_before_step(store: Store) -> None:
    """C089, C163: a late publication of the old run never outranks the replacement's, however high its step."""
    store.root.publish(FIRST, 5000, store.save(OLD, "checkpoint-5000"), attempt=OLD)
    new = store.root.publish(SECOND, 400, store.save(NEW, "checkpoint-400"), attempt=NEW)
    store.root.publish(FIRST, 6000, store.save(OLD, "checkpoint-6000"), attempt=OLD)
    latest = store.again().latest()
    assert latest is not None
    assert latest.publication == new
    assert [p.step for p in store.root.listing()] == [400, 6000, 5000]


@pytest.mark.parametrize("name", ["junk", ".hidden", "0-0-AA", "0" * 20 + "-" + "0" * 20 + "-aa", "latest.tmp"])
def test_a_name_that_does_not_parse_is_named(store: Store, name: str) -> None:
    """P4, C091: nothing is skipped, with --fallback neither."""
    store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    store.plant(name)
    for act in (store.root.latest, lambda: store.root.latest(fallback=True), store.root.listing, store.root.highest):
        with pytest.raises(BadDataError) as caught:
            act()
        assert name in str(caught.value)


def test_a_latest_whose_save_is_gone_names_both(store: Store) -> None:
    """C087, C154: going to the next one must be asked for."""
    older = store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    path = store.save(OLD, "checkpoint-9")
    gone = store.root.publish(FIRST, 9, path, attempt=OLD)
    store.remove(path)
    with pytest.raises(BadDataError) as caught:
        store.root.latest()
    assert gone.name in str(caught.value)
    assert "checkpoint-9" in str(caught.value)
    fallback = store.root.latest(fallback=True)
    assert fallback is not None
    assert fallback.publication == older


def test_a_save_that_is_no_save_any_more_is_gone(store: Store) -> None:
    """C087: a rotation that was cut short leaves an empty folder, which is no save to resume from."""
    older = store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    path = store.save(OLD, "checkpoint-9")
    store.root.publish(FIRST, 9, path, attempt=OLD)
    assert store.no_saves
    for now in store.no_saves:
        store.become(path, now)
        with pytest.raises(BadDataError, match="checkpoint-9 is gone"):
            store.root.latest()
        fallback = store.root.latest(fallback=True)
        assert fallback is not None
        assert fallback.publication == older


def test_all_gone_is_an_error_with_fallback_too(store: Store) -> None:
    path = store.save(OLD, "checkpoint-9")
    store.root.publish(FIRST, 9, path, attempt=OLD)
    store.remove(path)
    with pytest.raises(BadDataError, match="gone"):
        store.root.latest(fallback=True)


def test_only_what_an_execution_wrote_itself_is_published(store: Store) -> None:
    """P1: not another execution's save, nor the execution's folder or the helper's, nor what is outside the root."""
    path = store.save(OLD, "checkpoint-5")
    store.root.make_execution(NEW)
    elsewhere = store.root.path + "/elsewhere"
    above = store.root.execution(NEW) + "/../" + OLD + "/checkpoint-5"
    helpers = store.save(NEW, ".dispatch/choices")
    no_saves = (path, store.root.execution(NEW), store.root.path, elsewhere, above, helpers, "/", "", "exec", "../x")
    for wrong in no_saves:
        with pytest.raises(BadDataError):
            store.root.publish(SECOND, 5, wrong, attempt=NEW)
    assert store.root.listing() == []


def test_a_save_of_one_file(store: Store) -> None:
    path = store.save_file(OLD, "last.pt")
    publication = store.root.publish(FIRST, 5, path, attempt=OLD)
    latest = store.again().latest()
    assert latest is not None
    assert (latest.publication, latest.path) == (publication, store.there(path))
    store.root.publish(FIRST, 6, store.save(OLD, "last.pt.d"), attempt=OLD)
    assert [p.step for p in store.again().listing()] == [6, 5]


def test_a_missing_or_empty_save_is_not_published(store: Store) -> None:
    """C121: a job that "succeeded" with empty files has saved nothing."""
    store.root.make_execution(OLD)
    empty = store.save(OLD, "checkpoint-5", b"")
    for wrong in (empty, store.root.execution(OLD) + "/checkpoint-6"):
        with pytest.raises(BadDataError):
            store.root.publish(FIRST, 5, wrong, attempt=OLD)
    assert store.root.listing() == []


def test_a_path_over_the_limit_is_refused_before_anything_is_written(store: Store) -> None:
    inside = PATH_MAX - len(f"exec/{OLD}/")
    fits = store.save(OLD, "c" * inside)
    store.root.publish(FIRST, 1, fits, attempt=OLD)
    longer = store.save(OLD, "c" * (inside + 1))
    with pytest.raises(BadDataError) as caught:
        store.root.publish(FIRST, 2, longer, attempt=OLD)
    assert str(PATH_MAX) in caught.value.line()
    assert len(store.root.listing()) == 1


def test_a_root_has_one_job_a_generation(store: Store) -> None:
    """C130: whose root it is stands in the root, not in its path."""
    store.root.claim("mine", 0)
    store.again().claim("mine", 0)
    with pytest.raises(CannotCreateError) as caught:
        store.root.claim("yours", 0)
    assert "mine" in str(caught.value)
    for way in ("supersede", "another root", "--adopt-root"):
        assert way in caught.value.line()


def test_a_higher_generation_shuts_the_lower_out(store: Store) -> None:
    store.root.claim("mine", 0)
    store.root.claim("next", 1)
    with pytest.raises(CannotCreateError, match="generation 1 of job next"):
        store.root.claim("mine", 0)
    store.root.claim("next", 1)


def test_publications_that_nobody_claimed_are_somebodys(store: Store) -> None:
    store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    with pytest.raises(CannotCreateError, match="publications of generation 0"):
        store.root.claim("mine", 0)
    store.root.claim("mine", 1)


def test_highest_is_above_everything(store: Store) -> None:
    store.root.claim("mine", 3)
    store.root.publish(7 * 10**12 + FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    assert store.root.highest() == Highest(7, 7 * 10**12 + FIRST)
    store.root.claim("next", 9)
    assert store.root.highest().generation == 9


@pytest.mark.parametrize(
    ("name", "target"), [("01", "a"), ("x", "a"), ("0", "UPPER"), ("0", "a/b"), ("0", "a" * 300)]
)
def test_what_is_no_claim_is_named(store: Store, name: str, target: str) -> None:
    store.plant_owner(name, target)
    with pytest.raises(BadDataError, match="own"):
        store.root.claim("mine", 0)


steps = st.integers(0, 50)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([FIRST, SECOND, SECOND + 1]), steps), min_size=1, max_size=8))
def test_latest_is_the_greatest_whatever_the_order(store: Store, many: list[tuple[int, int]]) -> None:
    """C088, C112: the order of arrival does not count, and what was published stays."""
    before = {(p.epoch, p.step) for p in store.root.listing()}
    for epoch, step in many:
        attempt = f"e{epoch}"
        if (epoch, step) not in before:
            store.root.publish(epoch, step, store.save(attempt, f"checkpoint-{step}"), attempt=attempt)
            before.add((epoch, step))
        latest = store.again().latest()
        assert latest is not None
        assert (latest.publication.epoch, latest.publication.step) == max(before)
    assert {(p.epoch, p.step) for p in store.root.listing()} == before


def test_who_has_claimed_it(store: Store) -> None:
    assert store.root.owners() == {}
    store.root.claim("elder", 0)
    store.root.claim("heir", 3)
    assert store.again().owners() == {0: "elder", 3: "heir"}


def test_executions_and_what_is_in_them(store: Store) -> None:
    """Names as bytes, sorted; what is not there has none."""
    assert store.root.executions() == []
    assert store.root.entries(f"exec/{OLD}/kept".encode()) == []
    store.save(OLD, "checkpoint-5")
    store.save(NEW, "checkpoint-7")
    store.save(OLD, "checkpoint-10")
    assert store.again().executions() == sorted([OLD, NEW])
    assert store.root.entries(f"exec/{OLD}".encode())[-2:] == [b"checkpoint-10", b"checkpoint-5"]


def test_removing_takes_the_save_and_nothing_else(store: Store) -> None:
    """The publication stays; what is gone already is nobody's success."""
    first = store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    second = store.root.publish(FIRST, 50, store.save(OLD, "checkpoint-50"), attempt=OLD)
    assert store.root.remove(first.path)
    assert not store.again().remove(first.path)
    assert not store.root.remove(b"exec/nobody/kept/checkpoint-5")
    assert store.root.entries(f"exec/{OLD}".encode())[-1] == b"checkpoint-50"
    assert store.again().listing() == [second, first]
    latest = store.root.latest()
    assert latest is not None
    assert latest.publication == second


def test_the_names_of_publications_are_given_as_they_are(store: Store) -> None:
    """For who names all that do not parse, and not only the first."""
    assert store.root.names() == []
    made = store.root.publish(FIRST, 5, store.save(OLD, "checkpoint-5"), attempt=OLD)
    store.plant("junk")
    assert sorted(store.again().names()) == sorted([made.name, "junk"])
    store.root.check_published(made.name)


def test_a_note_is_made_once_and_read_by_everyone(store: Store) -> None:
    """C139: what was chosen, and which run publishes: of many who leave a note of one name one wins."""
    store.root.make_execution(OLD)
    with ThreadPoolExecutor(8) as writers:
        wins = list(writers.map(lambda n: store.again().notes(OLD).leave("choice", b"%d" % n), range(8)))
    assert wins.count(True) == 1
    notes = store.again().notes(OLD)
    assert notes.read("choice", 100) == b"%d" % wins.index(True)
    assert "choice" in notes.names()
    assert notes.read("choice-2", 100) is None
    with pytest.raises(CorruptError):
        notes.read("choice", 0)


def test_a_choice_and_the_runs_of_an_execution(store: Store) -> None:
    """The same on every kind: chosen once, whoever comes later, and one run after the other."""
    path = store.save(OLD, "checkpoint-5")
    store.root.publish(FIRST, 5, path, attempt=OLD)
    store.root.make_execution(NEW)

    def latest(root: Root) -> Callable[[], Taken | None]:
        def find() -> Taken | None:
            save = root.latest()
            return None if save is None else Taken(save, save.path)

        return find

    def there(choice: Choice | None) -> Choice:
        assert choice is not None
        assert choice.resume is not None
        return replace(choice, resume=store.there(choice.resume))

    made = choose_by(store.root, NEW, latest(store.root), epoch=SECOND, look=lambda _: True)
    assert (made.step, made.resume) == (5, path)
    store.root.publish(FIRST, 6, store.save(OLD, "checkpoint-6"), attempt=OLD)
    other = store.again()
    assert choose_by(other, NEW, latest(other), epoch=SECOND, look=lambda _: True) == there(made)
    assert read_choice(store.again(), NEW) == there(made)
    again = choose_by(other, NEW, latest(other), epoch=SECOND, again=True)
    assert (again.turn, again.step) == (2, 6)
    assert there(read_choice(store.root, NEW)) == again
    me = this_process(os.getpid())
    assert last_run(store.root, NEW) is None
    assert claim_run(store.root, NEW, 1, me)
    assert not claim_run(store.again(), NEW, 1, replace(me, pid=1))
    run = last_run(store.again(), NEW)
    assert run is not None
    assert (run.number, run.runner, run.over) == (1, me, False)
    end_run(store.root, NEW, 1, 3)
    assert read_end(store.again(), NEW, 1) == (True, 3)


def test_thinning_is_the_same_everywhere(store: Store) -> None:
    """Of an older execution every save goes but what stays of the root; what this one wrote itself is not ours."""
    for step in (1, 2):
        store.root.publish(FIRST, step, store.save(OLD, f"checkpoint-{step}"), attempt=OLD)
    for step in (3, 4):
        store.root.publish(SECOND, step, store.save(NEW, f"checkpoint-{step}"), attempt=NEW)
    done = thin(store.again(), NEW, epoch=SECOND, keep_own=1, keep_root=1)
    assert done.trouble == ()
    assert sorted(done.removed) == [b"exec/%s/checkpoint-%d" % (OLD.encode(), step) for step in (1, 2)]
    assert [one.step for one in store.again().listing()] == [4, 3, 2, 1]
    latest = store.again().latest()
    assert latest is not None
    assert latest.publication.step == 4


def test_a_note_is_replaced_as_a_whole(store: Store) -> None:
    store.root.make_execution(OLD)
    for content in (b"first", b"the second"):
        store.root.notes(OLD).replace("best", content)
        assert store.again().notes(OLD).read("best", 100) == content
    assert not store.root.notes(OLD).leave("best", b"third")


def test_what_is_in_the_root_has_a_path(store: Store) -> None:
    path = store.save(OLD, "checkpoint-5")
    assert store.root.path_of(f"exec/{OLD}/checkpoint-5".encode()) == path
    assert store.again().path_of(f"exec/{OLD}/checkpoint-5".encode()) == store.there(path)


def best_of(root: Root, attempt: str, path: str, step: int, score: float) -> Best:
    return keep_best(
        root, attempt, path, epoch=FIRST if attempt == OLD else SECOND, step=step, metric="loss", score=score,
        greater_is_better=False, take=taker(root, attempt),  # type: ignore[arg-type]
    )


def carried(root: Root, attempt: str, epoch: int) -> Best | None:
    take = taker(root, attempt)  # type: ignore[arg-type]
    return carry_best(root, attempt, epoch=epoch, metric="loss", greater_is_better=False, take=take)


def test_the_best_save_is_pinned_and_carried_on(store: Store) -> None:
    """Neither thinning nor gc takes it; the next execution does, and only then the old one goes."""
    first = best_of(store.root, OLD, store.save(OLD, "checkpoint-1"), 1, 2.0)
    assert first.path == store.root.path_of(f"exec/{OLD}/best/checkpoint-1".encode())
    path = store.save(OLD, "checkpoint-2", b"best")
    best = best_of(store.root, OLD, path, 2, 1.0)
    assert store.root.entries(f"exec/{OLD}/best".encode()) == [b"checkpoint-2"]
    assert best_of_all(store.root, "loss", greater_is_better=False) == best
    assert best_of_all(store.root, "loss", greater_is_better=True) is None
    store.root.publish(FIRST, 2, path, attempt=OLD)
    for step in (3, 4):
        store.root.publish(SECOND, step, store.save(NEW, f"checkpoint-{step}"), attempt=NEW)
    assert thin(store.again(), NEW, epoch=SECOND, keep_own=1, keep_root=1, is_save=lambda _: True).removed
    over = plan(store.again(), Rules(1), lambda _: Known(Standing.OVER, "said so"), lambda _: True)
    assert not [path for path in over.paths if b"best" in path]
    assert drop_outdone(store.root, NEW) == ()
    mine = carried(store.again(), NEW, SECOND)
    assert mine is not None
    assert (mine.step, mine.score, mine.epoch) == (2, 1.0, SECOND)
    assert read_best(store.again(), NEW) == mine
    assert drop_outdone(store.root, NEW) == (f"exec/{OLD}/best/checkpoint-2".encode(),)
    assert store.again().entries(f"exec/{OLD}/best".encode()) == []
    assert store.again().entries(f"exec/{NEW}/best".encode()) == [b"checkpoint-2"]
    assert carried(store.again(), NEW, SECOND) == mine


def test_a_best_save_of_the_name_of_the_one_before(store: Store) -> None:
    """A later turn saves a step again: what is named stays until the next one is named."""
    first = best_of(store.root, OLD, store.save(OLD, "checkpoint-2", b"one"), 2, 1.0)
    store.remove(store.root.path_of(f"exec/{OLD}/checkpoint-2".encode()))
    second = best_of(store.root, OLD, store.save(OLD, "checkpoint-2", b"other one"), 2, 0.5)
    assert (read_best(store.root, OLD), second.path != first.path) == (second, True)
    assert second.path == store.root.path_of(f"exec/{OLD}/best/2/checkpoint-2".encode())
    assert store.root.entries(f"exec/{OLD}/best".encode()) == [b"2"]


def test_a_best_save_that_is_called_by_a_number(store: Store) -> None:
    """Orbax calls saves by their step alone, as folders in best/ are called: nothing is put into what is named."""
    last: Best | None = None
    for score in (3.0, 2.0, 1.0):
        if last is not None:
            store.remove(store.root.path_of(f"exec/{OLD}/2".encode()))
        best = best_of(store.root, OLD, store.save(OLD, "2", b"%f" % score), 2, score)
        if last is not None:
            assert not f"{best.path}/".startswith(f"{last.path}/")
            assert not f"{last.path}/".startswith(f"{best.path}/")
        assert read_best(store.again(), OLD) == Best(
            "loss", score, False, FIRST, 2, store.there(best.path)
        )
        last = best


def test_a_save_is_adopted_as_one_of_its_own(store: Store) -> None:
    """Under a path that nobody knew, so that who found the old one outranked takes nothing of it."""
    ghost = store.save(OLD, "checkpoint-5", b"ghost")
    old = publish_by_hand(store.root, FIRST, 5, ghost, attempt=OLD, sync=False)  # type: ignore[arg-type]
    store.root.publish(SECOND, 4, store.save(NEW, "checkpoint-4"), attempt=NEW)
    root, last = store.again(), "last0000000000000000"
    check_there(root, old)  # type: ignore[arg-type]
    path = bring_again(root, old, last)  # type: ignore[arg-type]
    made = root.publish(SECOND + 10**6, 5, path, attempt=last)
    assert made.path == f"exec/{last}/kept/checkpoint-5".encode()
    (state,) = states_of(root, [made])  # type: ignore[arg-type]
    assert str(state) == "proved"
    assert root.remove(old.path)
    latest = store.again().latest()
    assert latest is not None
    assert latest.publication == made
    with pytest.raises(BadDataError, match="checkpoint-5 is not there"):
        check_there(root, old)  # type: ignore[arg-type]
