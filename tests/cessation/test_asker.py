"""Asking side by side, as the configured user, with nobody who can hold the tick up; and what is kept of it."""

from __future__ import annotations

import os
import pwd
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller.cessation import Asker
from slurm_dispatch.errors import ConfigurationError
from slurm_dispatch.records.cessation import CEASED, RUNNING, UNKNOWN, Counted, answered
from slurm_dispatch.slurm.cessation import SiteCommand
from slurm_dispatch.state.asked import NAME, read_asked, write_asked
from tests.cessation.made import execution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from slurm_dispatch.controller.cessation import Question
    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.observation import CessationAnswer

PATH = "/usr/bin:/bin"
NOBODY = "nobody"
LONG_S = 60.0


def command(folder: Path, script: str) -> SiteCommand:
    path = folder / "ask"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return SiteCommand([str(path)], {"PATH": PATH})


def many(count: int) -> list[AskedExecution]:
    return [execution(attempt=f"a{number}") for number in range(count)]


def test_all_are_asked_and_each_gets_its_own_answer(open_tmp: Path) -> None:
    asker = Asker(command(open_tmp, "grep -q '\"a[02468]\"'"), user=NOBODY)
    found = asker.ask("job", many(10), LONG_S)
    assert {attempt: answer.answer for attempt, answer in found.items()} == {
        f"a{number}": (RUNNING if number % 2 else CEASED) for number in range(10)
    }


def test_they_are_asked_side_by_side_and_no_more_than_the_bound(open_tmp: Path) -> None:
    """Each waits until three of them are there, which they never would be one after the other."""
    there = open_tmp / "there"
    there.mkdir(mode=0o777)
    there.chmod(0o777)
    script = f"cd {there}; touch $$; until [ $(ls | wc -l) -ge 3 ]; do sleep 0.01; done; exit 0"
    asker = Asker(command(open_tmp, script), user=NOBODY, at_once=3)
    found = asker.ask("job", many(3), LONG_S)
    assert [answer.answer for answer in found.values()] == [CEASED] * 3
    for path in there.iterdir():
        path.unlink()
    asker = Asker(command(open_tmp, script), user=NOBODY, at_once=2, timeout_s=1.0)
    assert {answer.answer for answer in asker.ask("job", many(2), LONG_S).values()} == {UNKNOWN}
    asker.stop()


def test_each_owner_has_his_turn(open_tmp: Path) -> None:
    """One who asks about many, each of which may hang for the whole deadline, holds up nobody else's."""
    log = open_tmp / "log"
    log.touch()
    log.chmod(0o666)
    asker = Asker(command(open_tmp, f"grep -o '\"uid\": [0-9]*' >>{log}; exit 1"), user=NOBODY, at_once=1)
    asker.start("many", [execution(attempt=f"a{number}", uid=1) for number in range(4)])
    asker.start("one", [execution(attempt="b", uid=2)])
    asker.start("two", [execution(attempt=f"c{number}", uid=3) for number in range(2)])
    assert len(asker.collect(LONG_S)) == 7
    assert [int(line.split()[1]) for line in log.read_text().splitlines()] == [1, 2, 3, 1, 3, 1, 1]


def test_it_runs_as_the_configured_user_with_no_more_groups(open_tmp: Path) -> None:
    assert os.geteuid() == 0, "run it as root"
    asker = Asker(command(open_tmp, "id -un; id -G >&2; test $(id -u) != 0"), user=NOBODY)
    (answer,) = asker.ask("job", many(1), LONG_S).values()
    assert (answer.answer, answer.detail) == (CEASED, NOBODY)
    asker = Asker(command(open_tmp, "id -un"), user=str(pwd.getpwnam(NOBODY).pw_uid))
    assert asker.ask("job", many(1), LONG_S)["a0"].detail == NOBODY


def test_a_user_who_is_not_there_is_said_at_once(open_tmp: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-such-user"):
        Asker(command(open_tmp, "exit 0"), user="no-such-user")


def test_one_that_hangs_holds_nobody_up(open_tmp: Path) -> None:
    asker = Asker(command(open_tmp, "grep -q '\"a0\"' && sleep 1000; exit 0"), user=NOBODY, timeout_s=LONG_S)
    asker.start("job", many(3))
    found: dict[str, CessationAnswer] = {}
    deadline = time.monotonic() + LONG_S
    while len(found) < 2:
        assert time.monotonic() < deadline
        found.update(by_attempt(asker.collect(0.05)))
    assert {attempt: answer.answer for attempt, answer in found.items()} == {"a1": CEASED, "a2": CEASED}
    # While it hangs it is not asked again; the others are.
    asker.start("job", many(3))
    again: dict[str, CessationAnswer] = {}
    while len(again) < 2:
        assert time.monotonic() < deadline
        again.update(by_attempt(asker.collect(0.05)))
    assert sorted(again) == ["a1", "a2"]
    asker.stop()


def test_a_command_that_its_deadline_ends_is_unknown(open_tmp: Path) -> None:
    asker = Asker(command(open_tmp, "sleep 1000; exit 0"), user=NOBODY, timeout_s=1.0)
    found = asker.ask("job", many(2), LONG_S)
    assert {attempt: answer.answer for attempt, answer in found.items()} == {"a0": UNKNOWN, "a1": UNKNOWN}


def by_attempt(answers: Mapping[Question, CessationAnswer]) -> dict[str, CessationAnswer]:
    return {attempt: answer for (_, attempt), answer in answers.items()}


class Together:
    """A signal that answers about all at once."""

    source = "together"
    together = True

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> Sequence[CessationAnswer]:
        if self.trouble == "raises":
            raise ValueError("broken")
        if self.trouble == "dies":
            os._exit(0)
        missing = 1 if self.trouble == "misses one" else 0
        text = f"one of {len(executions)}"
        return [answered(CEASED, self.source, f"{text}, {it.user}", 1.0) for it in executions[missing:]]


def test_a_signal_that_answers_together_is_asked_once() -> None:
    found = Asker(Together(), user=NOBODY).ask("job", [*many(4), *many(4)], LONG_S)
    assert len(found) == 4
    assert {answer.detail for answer in found.values()} == {"one of 4, ada"}


@pytest.mark.parametrize("together", [True, False])
def test_two_jobs_that_ask_about_one_attempt_get_an_answer_each(open_tmp: Path, together: bool) -> None:
    """An owner who names another's attempt, with words that his nodes never said, answers for himself only."""
    signal = Together() if together else command(open_tmp, "grep -q '\"forged\"'")
    asker = Asker(signal, user=NOBODY)
    asker.start("evil", [execution(attempt="a0", user="forged")])
    asker.start("mine", [execution(attempt="a0")])
    found = asker.collect(LONG_S)
    if together:
        assert {key: answer.detail for (key, _), answer in found.items()} == {
            "evil": "one of 2, forged",
            "mine": "one of 2, ada",
        }
    else:
        assert {key: answer.answer for (key, _), answer in found.items()} == {"evil": CEASED, "mine": RUNNING}


def test_those_of_many_jobs_wait_for_one_call() -> None:
    asker = Asker(Together(), user=NOBODY)
    for number in range(50):
        asker.start(f"job{number}", many(2))
        assert asker.busy()
    found = asker.collect(LONG_S)
    assert {answer.detail for answer in found.values()} == {"one of 100, ada"}
    assert not asker.busy()


@pytest.mark.parametrize("trouble", ["raises", "dies", "misses one"])
def test_a_child_that_goes_wrong_is_unknown(trouble: str) -> None:
    found = Asker(Together(trouble), user=NOBODY).ask("job", many(2), LONG_S)
    assert {attempt: answer.answer for attempt, answer in found.items()} == {"a0": UNKNOWN, "a1": UNKNOWN}
    assert all(answer.detail for answer in found.values())


def test_without_a_signal_nobody_answers() -> None:
    asker = Asker(None, user="no-such-user")
    assert not asker.answers
    assert asker.ask("job", many(1), LONG_S) == {}
    assert Asker(Together(), user=NOBODY).answers


KEPT = {"a0": Counted(UNKNOWN, "ssh-nodes", "c1: away\n", 59, 1.0, 3600.5)}


def test_the_count_is_kept_beside_the_facts_and_can_be_lost(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert read_asked(folder) == {}
    write_asked(folder, KEPT)
    assert read_asked(folder) == KEPT
    write_asked(folder, {})
    assert read_asked(folder) == {}
    assert os.listdir(folder) == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"v":1,"a0":3}',
        '{"v":1,"a0":{"answer":"ceased"}}',
        '{"v":1,"a b":{}}',
        '{"v":1,"a0":{"answer":"maybe","source":"","detail":"","count":1,"first":1,"last":1}}',
        "x" * (1 << 21),
    ],
)
def test_a_cache_that_is_broken_counts_from_the_beginning(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert read_asked(str(tmp_path)) == {}


def test_a_link_or_a_fifo_in_its_place_is_neither_read_nor_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / NAME).symlink_to(other)
    assert read_asked(str(tmp_path)) == {}
    write_asked(str(tmp_path), KEPT)
    assert (other.read_text(), read_asked(str(tmp_path))) == ("mine", KEPT)
    (tmp_path / NAME).unlink()
    os.mkfifo(tmp_path / NAME)
    assert read_asked(str(tmp_path)) == {}


def test_a_folder_that_cannot_be_written_costs_the_count_only(tmp_path: Path) -> None:
    write_asked(str(tmp_path / "away"), KEPT)
    (tmp_path / NAME).mkdir()
    write_asked(str(tmp_path), KEPT)
    assert os.listdir(tmp_path) == [NAME]
