"""The site's limits when a job is submitted: what it asks for and may not have is refused, with both places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.config.limits import Bounds, bounds
from slurm_dispatch.errors import NotAllowedError, one_line
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.model.quantity import duration
from slurm_dispatch.rules.applied import RECOVERING

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.submit.settings import Settings


def bounds_of(spec: Spec, site: Site) -> Bounds:
    """The limits of a job, as far as it says who and where it is."""
    return bounds(site.limit, spec.user, spec.account, spec.partition)


def longest_hold_s(bounded: Bounds, site: Site) -> float:
    """The longest hold that a job can have."""
    return min(site.longest_hold_s, site.longest_hold_s if bounded.longest_hold_s is None else bounded.longest_hold_s)


def check_hold(spec: Spec, for_s: float | None, site: Site) -> None:
    """Refuse a person's hold that is longer than the site lets one of this job last.

    :raises NotAllowedError: names the limit.
    """
    bounded = bounds_of(spec, site)
    longest = longest_hold_s(bounded, site)
    if for_s is not None and for_s > longest:
        limit = _longest_of(bounded, site)
        most = duration(longest)
        raise NotAllowedError(f"a hold of {duration(for_s)} is longer than the {most} that {limit} allows")


def check_limits(settings: Settings, site: Site, bounded: Bounds) -> None:
    """Refuse what the job itself says and the site does not allow. What comes from the site's own defaults is
    bounded without a word here; the plan shows it.

    :raises NotAllowedError: all of it, in one line, each with its place and with the limit.
    """
    wrong = [*_rules(settings, site, bounded), *_suspicion(settings, site, bounded)]
    longest, limit = longest_hold_s(bounded, site), _longest_of(bounded, site)
    said = settings.values["shared-hold-for"]
    if settings.said("shared-hold-for") and said > longest:
        wrong.append(
            f"{settings.origins['shared-hold-for']}: --shared-hold-for {duration(said)} is longer than the "
            f"{duration(longest)} that {limit} allows"
        )
    most = settings.values["max-submissions"]
    if settings.said("max-submissions") and most > site.most_submissions:
        wrong.append(
            f"{settings.origins['max-submissions']}: --max-submissions {most} is more than the "
            f"{site.most_submissions} that the site's most_submissions allows"
        )
    if wrong:
        raise NotAllowedError(" | ".join(map(one_line, wrong)))


def _longest_of(bounded: Bounds, site: Site) -> str:
    if bounded.longest_hold_s is not None and bounded.longest_hold_s <= site.longest_hold_s:
        return bounded.place("longest_hold_s")
    return "the site's longest_hold_s"


def _rules(settings: Settings, site: Site, bounded: Bounds) -> list[str]:
    wrong = []
    longest = longest_hold_s(bounded, site)
    for number, rule in enumerate(settings.rules, 1):
        where = f"{settings.origins[f'on {number}']}: rule '{rule.text}'"
        action = Action.RESUBMIT if settings.flag("shared-checkpoint") else rule.action
        if rule.action in RECOVERING and bounded.actions is not None and action not in bounded.actions:
            wrong.append(f"{where}: {bounded.place('actions')} does not allow {action}")
        if rule.hold_for_s is not None and rule.hold_for_s > longest:
            wrong.append(
                f"{where}: a hold of more than {duration(longest)} is not allowed ({_longest_of(bounded, site)})"
            )
    return wrong


def _suspicion(settings: Settings, site: Site, bounded: Bounds) -> list[str]:
    if settings.values["suspect"] is None:
        return []
    where = settings.origins["suspect"]
    if not site.suspicion:
        return [f"{where}: this site does not allow --suspect (its setting suspicion)"]
    if bounded.overlap == 0 or site.suspect_overlaps == 0:
        limit = bounded.place("overlap") if bounded.overlap == 0 else "the site's suspect_overlaps"
        return [f"{where}: {limit} does not allow --suspect"]
    return []
