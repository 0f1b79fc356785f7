"""All jobs of one owner in one pass, in the owner's child; and the report that the child hands back.

What comes back is data from a process of the owner's: :func:`unpack` checks each field and drops what names
another's job.
"""

from __future__ import annotations

import json
import math
import os
import pwd
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.job import REFUSE_MAX, Job, Means, Report
from slurm_dispatch.controller.settle import KEEP_START_S
from slurm_dispatch.controller.siteview import Tally
from slurm_dispatch.controller.view import Details, View
from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import BadDataError, DispatchError, StoreError, one_line
from slurm_dispatch.model.identity import parse_word
from slurm_dispatch.records.facts import parse_fact
from slurm_dispatch.records.forms import JSON_SIZE_MAX
from slurm_dispatch.state.jobs import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LINES_MAX = 64
"""Lines of the log from one job in one pass."""
LINE_MAX = 500


def work(jobs_folder: str, uid: int, keys: Sequence[str], view: View, means: Means) -> bytes:
    """Take every step of these jobs that can be taken now; one that is broken never stops the others.

    :param uid: the owner; a record that says otherwise is bad data.
    :returns: a JSON list of reports for :func:`unpack`.
    """
    details = Details(means.port, accounting=view.accounting)
    reports: list[Report] = []
    jobs: list[Job] = []
    user, tally = user_name(uid), Tally()
    for key in keys:
        record = Record(os.path.join(jobs_folder, key))
        if _quiet(view, key) and not view.of_key(key) and is_closed(record):
            reports.append(Report(key, closed=True))
            continue
        job = Job(record, view, details, means, user=user, tally=tally)
        with _Trouble(job.report):
            spec = job.want().spec
            if spec.uid != uid:
                raise BadDataError(f"the record of job {key} names uid {spec.uid}, and its folder is of uid {uid}")
            jobs.append(job)
        if job.report.trouble:
            reports.append(job.report)
    for job in jobs:
        if time.monotonic() > means.stop_at:
            job.report.soon = True
        else:
            with _Trouble(job.report):
                job.work()
        reports.append(job.report)
    return json.dumps([asdict(report) for report in reports]).encode("ascii")


def user_name(uid: int) -> str:
    """The name that this uid has here, or the uid as text."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _quiet(view: View, key: str) -> bool:
    """No note of a closed job waits to become a fact, and none is old enough to go."""
    notes = view.notes_of(key)
    starts = [note for note in notes if note.kind == "start"]
    if any(note.kind not in {"start", "refuse"} for note in notes) or (notes and not starts):
        return False
    return all(view.at - note.at <= KEEP_START_S for note in starts)


class _Trouble:
    """Keeps what goes wrong with one job in its report."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        del kind, trace
        if isinstance(error, DispatchError):
            self._report.trouble = error.line()
            return True
        if isinstance(error, Exception):
            # The outermost frame of one job: a bug that one record brings out must not stop the owner's others.
            self._report.trouble = one_line(f"bug: {type(error).__name__}: {error}")
            return not os.environ.get("DISPATCH_TRACEBACK")
        return False


def is_closed(record: Record) -> bool:
    """The last fact closes the job. Reads one name list and one file, so that old jobs cost next to nothing.

    False wherever it is not sure; the whole record tells then.
    """
    try:
        names = [name for name in os.listdir(record.facts_folder) if name.isdigit()]
        if not names:
            return False
        last = max(names)
        data = read_regular(os.path.join(record.facts_folder, last), JSON_SIZE_MAX)
        return parse_fact(int(last), data).kind == "closed"
    except (OSError, StoreError, DispatchError):
        return False


def unpack(data: bytes, keys: Sequence[str], notes: Collection[str]) -> list[Report]:
    """The reports of a child that worked on ``keys``.

    :param notes: the names that the child was given: it can have none but these removed.

    :raises BadDataError: not a list of reports about these keys.
    """
    try:
        content = json.loads(data)
        reports = [_report(item) for item in content]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadDataError(f"the owner's child answered nonsense: {error}") from error
    known = set(keys)
    for report in reports:
        if report.key not in known:
            raise BadDataError("the owner's child answered about another's job")
        report.done_notes = [name for name in report.done_notes if name in notes and _is_note_of(name, report.key)]
        refuse = [text for text in report.refuse if (word := parse_word(text)) and word.job == report.key]
        report.refuse = refuse[-REFUSE_MAX:]
    return reports


def _report(item: dict[str, Any]) -> Report:
    report = Report(**{field.name: item[field.name] for field in fields(Report)})
    for name, kind in (("key", str), ("seq", int), ("closed", bool), ("soon", bool), ("trouble", str)):
        if not isinstance(getattr(report, name), kind):
            raise TypeError(f"{name} is of the wrong type")
    for name in ("lines", "done_notes", "refuse"):
        if not all(isinstance(text, str) for text in getattr(report, name)):
            raise TypeError(f"{name} is of the wrong type")
    report.due = None if report.due is None or not math.isfinite(report.due) else float(report.due)
    report.lines = [one_line(line)[:LINE_MAX] for line in report.lines[:LINES_MAX]]
    report.trouble = one_line(report.trouble)[:LINE_MAX]
    return report


def _is_note_of(name: str, key: str) -> bool:
    parts = name.split(".")
    return (
        "/" not in name
        and len(parts) >= 4
        and parts[0] in {"start", "refused", "end", "node", "handed", "refuse"}
        and parts[1] == key
    )


__all__ = ["LINES_MAX", "LINE_MAX", "is_closed", "unpack", "user_name", "work"]
