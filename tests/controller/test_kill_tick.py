"""kill -9 of a whole tick with its children, as root where the tests run as root: the site's own files too."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_dispatch.controller import hints
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase
from tests import forked
from tests.controller.fake_slurm import OVER
from tests.controller.rig import WAIT_S
from tests.controller.scene_end import whole
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kill import Point


def tick(site: Site) -> None:
    """A tick by a process that remembers nothing, to the end of what it started."""
    controller = site.controller()
    controller.tick(full=True)
    controller.stop()


def in_a_fork(site: Site) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            tick(site)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, site.log


@contextmanager
def copied(there: Path, name: str) -> Iterator[Site]:
    """The site as it is, with everybody's files, at another place."""
    place = there.with_name(f"{there.name}-{name}")
    subprocess.run(["cp", "-a", str(there), str(place)], check=True)
    try:
        yield Site(place)
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)


def wanted(point: Point) -> bool:
    """Of the records each is killed elsewhere: here the site's files, the notes, and processes that come and go."""
    text = point.text
    if "/slurm/" in text:
        return False
    return "/facts/" not in text or point.call in {"link", "linkat"}


def test_a_tick_that_is_killed_with_or_without_its_children_is_finished_by_the_next() -> None:
    for site in make_site():
        key, other = site.preempted(), site.rig.job()
        site.rig.start(other)
        site.hand_over()
        with copied(site.folder, "counted") as counted:
            found = forked.points(lambda: tick(counted), site.folder / "trace", counted.folder)
            _finished(counted, key, other)
        points = [point for point in found if wanted(point)]
        for number, point in enumerate(points):
            with copied(site.folder, str(number)) as killed:
                forked.kill(lambda: tick(killed), point, site.folder / "trace", exact=False)
                try:
                    _sound(killed)
                    in_a_fork(killed)
                    _finished(killed, key, other)
                except Exception as error:
                    raise AssertionError(f"killed at {point}: {error!r}") from error
        print(f"{len(points)} points of a whole tick")
        assert len(points) >= 20


def _sound(site: Site) -> None:
    for job in site.rig.folder.jobs():
        fold(site.rig.facts(job.key))
    whole(hints.tick_folder(site.rig.path))


def _finished(site: Site, key: str, other: str) -> None:
    """The next tick visited the job, whatever the index says of it, and the other job is left as it was."""
    rig = site.rig
    if rig.state(key).phase is Phase.SUBMITTING:  # sbatch may have been called: it is watched first
        assert "watched" in rig.kinds(key)
        for later_s in (0.0, WAIT_S + 60, 2 * (WAIT_S + 60), 86400.0, 86460.0):
            rig.later_s = later_s
            rig.tick()
    assert (rig.state(key).phase, rig.state(other).phase) == (Phase.QUEUED, Phase.RUNNING)
    alive = [number for number in rig.slurm.ids() if not OVER & set(rig.slurm.job(number)["states"])]
    assert alive == sorted([rig.object(key), rig.object(other)])
    assert len(rig.slurm.ids()) == 3
    decided = [fact for fact in rig.facts(key) if fact.kind == "decision"]
    assert (decided[0].body["outcome"], decided[0].body["action"]) == ("preempted", "resubmit")
    recent = hints.load(hints.tick_folder(rig.path)).recent
    assert len({(it.job, it.submission) for it in recent.resubmissions}) == len(recent.resubmissions) <= len(decided)
    assert [name for name in rig.notes() if not name.startswith(("start.", "refuse."))] == []


