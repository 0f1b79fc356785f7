"""All jobs of one owner in one pass, in the owner's child; and the report that the child hands back.

What comes back is data from a process of the owner's: :func:`unpack` checks each field and drops what names
another's job.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.job import REFUSE_MAX, Job, Means, Report
from slurm_dispatch.controller.siteview import Tally
from slurm_dispatch.controller.view import Details, View
from slurm_dispatch.durable import open_folder
from slurm_dispatch.errors import BadDataError, DispatchError, one_line
from slurm_dispatch.model.identity import parse_word
from slurm_dispatch.state.jobs import FACTS, Record
from slurm_dispatch.state.trouble import state_trouble
from slurm_dispatch.state.users import user_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurm_dispatch.controller.index import Entry

LINES_MAX = 64
"""Lines of the log from one job in one pass."""
LINE_MAX = 500


def work(
    jobs_folder: str,
    uid: int,
    keys: Sequence[str],
    view: View,
    means: Means,
    *,
    before: Mapping[str, Entry] = MappingProxyType({}),
    most_overlaps: int | None = None,
) -> bytes:
    """Take every step of these jobs that can be taken now; one that is broken never stops the others.

    :param uid: the owner; a record that says otherwise is bad data.
    :param before: what the index says of them.
    :param most_overlaps: so many executions of theirs may be suspected; see :class:`Tally`.
    :returns: a JSON list of reports for :func:`unpack`.
    """
    details = Details(means.port, accounting=view.accounting)
    reports: list[Report] = []
    jobs: list[Job] = []
    user, tally = user_name(uid), Tally(most_overlaps=most_overlaps)
    for key in keys:
        record = Record(os.path.join(jobs_folder, key))
        job = Job(record, view, details, means, user=user, tally=tally, before=before.get(key))
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


def moved(jobs_folder: str, stamps: Mapping[str, int]) -> bytes:
    """Which of these jobs have a folder of facts with another time stamp: one look at each, and nothing is opened.

    :param stamps: by key, as :meth:`~slurm_dispatch.state.jobs.Record.stamp` read it.
    :returns: a JSON list of keys for :func:`unpack_moved`.
    """
    found: list[str] = []
    with state_trouble("reading records", jobs_folder):
        descriptor = open_folder(jobs_folder)
    try:
        for key, stamp in stamps.items():
            try:
                if os.stat(f"{key}/{FACTS}", dir_fd=descriptor, follow_symlinks=False).st_mtime_ns == stamp:
                    continue
            except OSError:
                pass  # whatever it is, the job's own pass says it
            found.append(key)
    finally:
        os.close(descriptor)
    return json.dumps(found).encode("ascii")


def unpack_moved(data: bytes, stamps: Mapping[str, int]) -> list[str]:
    """What :func:`moved` answered, in the order of ``stamps``.

    :raises BadDataError: it is no list of texts; what is none of the asked keys is passed over.
    """
    try:
        content = json.loads(data)
        told = {key for key in content if isinstance(key, str)}
    except (ValueError, TypeError, RecursionError) as error:
        raise BadDataError(f"the owner's child answered nonsense: {error}") from error
    return [key for key in stamps if key in told]


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
    report = Report(**{field.name: item[field.name] for field in fields(Report) if field.name in item})
    kinds = {"key": str, "seq": int, "closed": bool, "soon": bool, "trouble": str, "rest": str}
    for name, kind in kinds.items():
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


__all__ = ["LINES_MAX", "LINE_MAX", "moved", "unpack", "unpack_moved", "work"]
