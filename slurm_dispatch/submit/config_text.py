"""The settings that count, and where each comes from: what ``dispatch config show`` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.kinds import written
from slurm_dispatch.config.limits import Limit
from slurm_dispatch.config.settings import JOB_SETTINGS, LIMIT_SETTINGS, SETTINGS
from slurm_dispatch.errors import show
from slurm_dispatch.model.quantity import moment
from slurm_dispatch.rules.rule import Rule
from slurm_dispatch.submit.limits import bounds_of
from slurm_dispatch.submit.settings import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.config.kinds import Setting
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.submit.request import Request

Row = tuple[str, str, str]
NOTHING = "-"
VALUE_WIDTH = 40


def site_rows(site: Site) -> list[Row]:
    """Each setting of the site, its value as the file would have it, and its origin; each limit after them."""
    rows = []
    for setting in SETTINGS:
        value, origin = getattr(site, setting.name), _line(site, setting.name)
        if setting.kind == "rules" and value:
            rows += [(f"{setting.name} ({number})", rule.text, origin) for number, rule in enumerate(value, 1)]
        elif setting.kind != "limits":
            rows.append((setting.name, _text(setting, value), origin))
    for limit in site.limit:
        for setting in LIMIT_SETTINGS:
            value = getattr(limit, setting.name)
            if value is not None and (setting.name != "per" or limit.resubmissions_per_hour is not None):
                origin = _line(site, f"limit.{limit.number}.{setting.name}")
                rows.append((f"limit {limit.number}: {setting.name}", _text(setting, value), origin))
    return rows


def _line(site: Site, name: str) -> str:
    line = site.given.get(name)
    return DEFAULT if line is None else f"line {line}" if line else "the file"


def job_rows(request: Request) -> list[Row]:
    """Each setting of a job, its value, and its origin; a row for each rule."""
    settings, spec = request.settings, request.spec
    rows = []
    for setting in JOB_SETTINGS:
        if setting.kind == "rules":
            rows += [
                (f"on ({number})", rule.text, settings.origins[f"on {number}"])
                for number, rule in enumerate(settings.rules, 1)
            ]
            continue
        # The specification has paths with everything put in, and what the site's limits leave.
        value = getattr(spec, setting.field) if setting.field else settings.values[setting.name]
        value = None if value == "" else value
        text = moment(value) if setting.kind == "date" and value is not None else _text(setting, value)
        rows.append((setting.name, text, settings.origins.get(setting.name, DEFAULT)))
    return rows


def limit_rows(request: Request, site: Site) -> list[Row]:
    """What the site's limits come to for the job, and which says each."""
    known = {setting.name: setting for setting in LIMIT_SETTINGS}
    return [(name, _text(known[name], value), place) for name, (value, place) in _limits(request, site).items()]


def _limits(request: Request, site: Site) -> dict[str, tuple[Any, str]]:
    """Each bound that there is: its value, and which limit says it."""
    bounded = bounds_of(request.spec, site)
    values: dict[str, Any] = {
        "actions": None if bounded.actions is None else tuple(sorted(map(str, bounded.actions))),
        "longest_hold_s": bounded.longest_hold_s,
        "overlap": bounded.overlap,
        "open_jobs": bounded.open_jobs,
        "resubmissions_per_hour": bounded.resubmissions_per_hour,
    }
    return {name: (value, bounded.place(name)) for name, value in values.items() if value is not None}


def _text(setting: Setting, value: Any) -> str:
    return NOTHING if value is None else show(written(setting, value))


def table(head: Row, rows: Sequence[Row]) -> str:
    """The rows in columns; nothing is cut, a long value pushes its own origin to the right."""
    width = max(len(row[0]) for row in (head, *rows))
    value = min(max(len(row[1]) for row in (head, *rows)), VALUE_WIDTH)
    return "\n".join(f"{row[0].ljust(width)}  {row[1].ljust(value)}  {row[2]}" for row in (head, *rows))


def as_json(site: Site, request: Request | None) -> str:
    """The same as one JSON object; times in seconds, dates in Unix seconds."""
    content: dict[str, Any] = {
        "file": site.path,
        "site": {
            setting.name: {"value": _plain(getattr(site, setting.name)), "from": site.place(setting.name)}
            for setting in SETTINGS
        },
    }
    if request is not None:
        content["job"] = {
            setting.name: {
                "value": _plain(
                    getattr(request.spec, setting.field) if setting.field else request.settings.values[setting.name]
                ),
                "from": request.settings.origins.get(setting.name, DEFAULT),
            }
            for setting in JOB_SETTINGS
            if setting.kind != "rules"
        }
        content["rules"] = [
            {"rule": rule.text, "from": request.settings.origins[f"on {number}"]}
            for number, rule in enumerate(request.settings.rules, 1)
        ]
        limits = _limits(request, site).items()
        content["limits"] = {name: {"value": _plain(value), "from": place} for name, (value, place) in limits}
    return json.dumps(content, indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Rule):
        return value.text
    if isinstance(value, Limit):
        return {setting.name: _plain(getattr(value, setting.name)) for setting in LIMIT_SETTINGS}
    return None if value == "" else value
