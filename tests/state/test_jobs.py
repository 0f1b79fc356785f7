"""Records on disk: one writer a fact, whole or not at all, and nothing hostile gets through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import BadDataError, CannotCreateError, DispatchError, NothingThereError, ServiceAwayError
from slurm_dispatch.records.facts import fact_name
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.forms import JSON_SIZE_MAX
from slurm_dispatch.state import jobs
from slurm_dispatch.state.folder import StateFolder, make_state
from tests.kill import Point, Run, kill_at_every_call
from tests.records.life import KEY, make_spec

if TYPE_CHECKING:
    from slurm_dispatch.state.jobs import Record

TOP = Path(__file__).resolve().parents[2]
BY = "user:ada@login"


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    make_state(str(tmp_path / "state"), slurm_uid=os.getuid(), slurm_gid=os.getgid())
    return StateFolder(str(tmp_path / "state"))


@pytest.fixture
def record(folder: StateFolder) -> Record:
    return folder.create_job(make_spec(), b"#!/bin/sh\n", b"A=1\0", by=BY)


def wish(record: Record, seq: int) -> bool:
    return record.append(seq, "request", BY, {"what": "cancel", "reason": str(seq)})


def test_a_new_job_is_its_specification_its_script_and_its_environment(record: Record) -> None:
    facts = record.read()
    assert [(fact.seq, fact.kind, fact.by) for fact in facts] == [(1, "spec", BY)]
    assert fold(facts).spec == make_spec()
    assert record.script() == b"#!/bin/sh\n"
    assert record.environment() == b"A=1\0"


def test_nobody_else_can_read_a_job_whatever_the_umask_is(folder: StateFolder) -> None:
    old = os.umask(0)
    try:
        record = folder.create_job(make_spec(), b"", b"", by=BY)
        wish(record, 2)
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path(record.folder).rglob("*")}
    assert modes == {"facts": 0o700, "script": 0o600, "environment": 0o600, fact_name(1): 0o600, fact_name(2): 0o600}
    assert Path(record.folder).stat().st_mode & 0o777 == 0o700


def test_a_fact_is_made_once(record: Record) -> None:
    assert wish(record, 2)
    assert not record.append(2, "closed", BY, {"why": "x", "reason": ""})
    assert [fact.kind for fact in record.read()] == ["spec", "request"]


def test_a_fact_that_would_leave_a_gap_is_refused(record: Record) -> None:
    with pytest.raises(BadDataError, match="would leave a gap"):
        wish(record, 3)
    assert len(record.read()) == 1


def test_a_job_is_made_once(folder: StateFolder, record: Record) -> None:
    with pytest.raises(CannotCreateError, match=KEY):
        folder.create_job(make_spec(), b"", b"", by=BY)


def test_a_script_over_the_limit_is_refused_before_anything_is_made(folder: StateFolder) -> None:
    with pytest.raises(BadDataError, match="the script has 4194305 bytes"):
        folder.create_job(make_spec(), b"x" * (jobs.SCRIPT_MAX + 1), b"", by=BY)
    assert folder.jobs() == []


RACER = """
import sys
from slurm_dispatch.state.jobs import Record
record, name = Record(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
won = []
while len(facts := record.read()) < 101:
    if record.append(len(facts) + 1, "request", name, {"what": "cancel", "reason": name}):
        won.append(len(facts) + 1)
print(*won)
"""


def test_of_eight_who_race_for_each_fact_exactly_one_gets_it(record: Record) -> None:
    """P7."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, record.folder, f"tick@host{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=TOP,
            text=True,
        )
        for number in range(8)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {}
    for number, racer in enumerate(racers):
        said, _ = racer.communicate(timeout=300)
        assert racer.returncode == 0
        for seq in said.split():
            assert int(seq) not in won, f"fact {seq} was made twice"
            won[int(seq)] = f"tick@host{number}"
    assert sorted(won) == list(range(2, 102))
    assert {fact.seq: fact.by for fact in record.read()[1:]} == won


# Hostile and broken records


def _facts(record: Record) -> Path:
    return Path(record.facts_folder)


def _link(record: Record) -> None:
    target = Path(record.folder).parent / "secret"
    target.write_text("{}")
    (_facts(record) / fact_name(2)).symlink_to(target)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda r: (_facts(r) / fact_name(3)).write_text("{}"), "0000000002 is missing, and later facts are there"),
        (lambda r: (_facts(r) / "notes").write_text(""), "'notes' is not the name of a fact"),
        (lambda r: (_facts(r) / "0000000000").write_text(""), "is not the name of a fact"),
        (lambda r: (_facts(r) / "9999999999").write_text(""), "over the limit of"),
        (lambda r: (_facts(r) / fact_name(2)).write_text(""), "0000000002: fact 2 is not JSON"),
        (lambda r: os.mkfifo(_facts(r) / fact_name(2)), "not a regular file"),
        (lambda r: (_facts(r) / fact_name(2)).mkdir(), "not a regular file"),
        (_link, "facts"),
        (
            lambda r: (_facts(r) / fact_name(2)).write_bytes(b" " * (JSON_SIZE_MAX + 1)),
            "more than the limit of 65536",
        ),
        (lambda r: os.truncate(_facts(r) / fact_name(1), 20), "fact 1 is not JSON"),
    ],
)
def test_a_record_that_is_not_as_it_must_be_is_bad_data_that_names_the_file(
    record: Record, spoil: Any, says: str
) -> None:
    spoil(record)
    with pytest.raises(BadDataError) as caught:
        record.read()
    assert says in str(caught.value)
    assert record.facts_folder in str(caught.value)


def test_a_record_is_bounded_in_bytes_and_entries(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    wish(record, 2)
    wish(record, 3)
    monkeypatch.setattr(jobs, "RECORD_SIZE_MAX", 300)
    with pytest.raises(BadDataError, match="larger than the limit of 300 bytes"):
        record.read()
    monkeypatch.setattr(jobs, "RECORD_SIZE_MAX", 100_000)
    monkeypatch.setattr(jobs, "FACTS_MAX", 2)
    with pytest.raises(BadDataError, match="more than 2 entries"):
        record.read()


def test_a_folder_that_is_a_link_is_not_followed(record: Record, folder: StateFolder) -> None:
    os.rename(record.facts_folder, record.folder + "/elsewhere")
    os.symlink("elsewhere", record.facts_folder)
    with pytest.raises(DispatchError):
        record.read()


def test_temporary_files_are_passed_over_and_swept(record: Record) -> None:
    temporary = _facts(record) / ".tmp-0123"
    temporary.write_text("half")
    assert len(record.read()) == 1
    assert record.sweep() == 0
    os.utime(temporary, (1, 1))
    assert record.sweep() == 1
    assert not temporary.exists()


def test_a_specification_of_another_job_is_refused(folder: StateFolder, record: Record) -> None:
    os.rename(record.folder, os.path.join(folder.jobs_folder, "other"))
    with pytest.raises(BadDataError, match="not the specification of job other"):
        folder.record("other").read()


def test_script_and_environment_are_regular_files_only(record: Record) -> None:
    script = Path(record.folder) / "script"
    script.unlink()
    script.symlink_to("/etc/passwd")
    with pytest.raises(BadDataError, match="script"):
        record.script()
    script.unlink()
    with pytest.raises(NothingThereError):
        record.script()


def test_no_job_and_a_job_in_the_making_look_different_from_a_folder_that_is_away(
    folder: StateFolder, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NothingThereError, match="there is no job nobody"):
        folder.record("nobody").read()
    (_facts(record) / fact_name(1)).unlink()
    with pytest.raises(NothingThereError, match="has no facts"):
        record.read()

    def away(*_: Any, **__: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "open", away)
    with pytest.raises(ServiceAwayError, match="Input/output error"):
        record.read()
    with pytest.raises(ServiceAwayError, match="Input/output error"):
        record.append(1, "request", BY, {"what": "cancel", "reason": ""})


# kill -9 at every call

MAKE = """
import json, sys
sys.path.insert(0, sys.argv[2])
from slurm_dispatch.errors import CannotCreateError
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.state.folder import StateFolder
spec = Spec.from_body(json.loads(sys.argv[3]))
StateFolder(sys.argv[1]).create_job(spec, b"script", b"A=1\\0", by="me", at=5.0)
"""
APPEND = """
import sys
sys.path.insert(0, sys.argv[2])
from slurm_dispatch.state.jobs import Record
record = Record(sys.argv[1])
facts = record.read()
if len(facts) == 1:
    record.append(2, "request", "me", {"what": "cancel", "reason": "r"}, at=5.0)
"""


def _state(place: Path) -> StateFolder:
    make_state(str(place / "state"), slurm_uid=os.getuid(), slurm_gid=os.getgid())
    return StateFolder(str(place / "state"))


def _make(place: Path, key: str) -> Run:
    body = json.dumps(make_spec(job=key).body())
    return Run([sys.executable, "-c", MAKE, str(place / "state"), str(TOP), body])


def test_a_kill_at_every_call_of_making_a_job(tmp_path: Path) -> None:
    """The job is there whole or it is none, and the next one can be made whatever was left."""

    def scene(place: Path) -> Run:
        _state(place)
        return _make(place, "first")

    def check(place: Path, point: Point) -> None:
        folder = StateFolder(str(place / "state"))
        try:
            facts = folder.record("first").read()
        except NothingThereError:
            folder.sweep_unfinished(os.getuid(), age_s=-3600)
            assert folder.jobs() == [], point
        else:
            assert fold(facts).spec.job == "first"
            assert folder.record("first").script() == b"script"
            assert folder.record("first").environment() == b"A=1\0"

    def finished(place: Path) -> None:
        folder = StateFolder(str(place / "state"))
        assert folder.jobs()
        for job in folder.jobs():
            assert len(folder.record(job.key).read()) == 1

    kill_at_every_call(tmp_path, scene, check=check, finished=finished, again=lambda place: _make(place, "second"))


def test_a_kill_at_every_call_of_adding_a_fact(tmp_path: Path) -> None:
    """The fact is there whole or not at all, and the next try adds it once."""

    def scene(place: Path) -> Run:
        record = _state(place).create_job(make_spec(), b"", b"", by=BY)
        return Run([sys.executable, "-c", APPEND, record.folder, str(TOP)])

    def check(place: Path, _: Point) -> None:
        facts = StateFolder(str(place / "state")).record(KEY).read()
        assert [fact.kind for fact in facts] in (["spec"], ["spec", "request"])

    def finished(place: Path) -> None:
        facts = StateFolder(str(place / "state")).record(KEY).read()
        assert [fact.kind for fact in facts] == ["spec", "request"]

    kill_at_every_call(tmp_path, scene, check=check, finished=finished)
