"""The host's side: one start of the second kernel with its server of NFS, and what came of it."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.uml.kernel import TOP, Kernel, make_image, warm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GUEST = "tests.nfs.guest"
TOOLS = TOP / ".make" / "nfs"
MEMORY = "640M"
SUITE = "tests/store/test_conformance.py"
TWO_MOUNTS = "tests/nfs/test_two_mounts.py"
OPTIONS = {
    "default": "",
    "actimeo=30": "actimeo=30",
    "actimeo=30,lookupcache=all": "actimeo=30,lookupcache=all",
    "actimeo=30,lookupcache=none": "actimeo=30,lookupcache=none",
}
"""The options of a client with which a publication is seen at once."""
LATE = "nocto"
"""The one with which it is not."""


@dataclass
class Result:
    """What the guest told.

    :ivar outcomes: of each test, by its name for pytest: the first that is not ``passed``, and why.
    :ivar window: what :func:`tests.nfs.window.measure` found; empty where nothing was measured.
    """

    clients: list[str] = field(default_factory=list)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    status: int | None = None
    window: dict[str, Any] = field(default_factory=dict)

    def bad(self) -> str:
        """Everything that did not pass, for people; empty if all did."""
        return "\n".join(f"{name}: {outcome}\n{why}" for name, (outcome, why) in self.outcomes.items()
                         if outcome != "passed")  # fmt: skip

    def passed(self) -> set[str]:
        """The tests that passed, by their names for pytest."""
        return {name for name, (outcome, _) in self.outcomes.items() if outcome == "passed"}


def boot(
    folder: Path, options: Sequence[str], tests: Sequence[str], publications: int = 0, *, mutant: bool = False
) -> Result:
    """Serve from an empty disk in ``folder``, mount twice with these options, run the tests, measure.

    :param mutant: with a product that looks at paths where it should list their folders.
    """
    warm(GUEST)
    disk, config = folder / "disk", folder / "config"
    make_image(disk)
    content = {"tools": str(TOOLS), "options": list(options), "tests": list(tests), "publications": publications,
               "mutant": mutant}  # fmt: skip
    config.write_text(json.dumps(content))
    result = Result()
    with Kernel(GUEST, config, [disk], MEMORY) as kernel:
        for said in kernel.statements():
            if said["kind"] == "mounted":
                result.clients = said["clients"]
            elif said["kind"] == "test" and result.outcomes.get(said["name"], ("passed", ""))[0] == "passed":
                result.outcomes[said["name"]] = said["outcome"], said["why"]
            elif said["kind"] == "pytest":
                result.status = said["status"]
            elif said["kind"] == "window":
                result.window = {name: value for name, value in said.items() if name != "kind"}
    return result


def row(options: str, window: dict[str, Any]) -> str:
    """One line of the table of windows."""
    taken = sorted(1000 * seconds for seconds in window["latest"])
    return (f"{options:28} {len(taken):5} {max(window['looks']):6} {statistics.median(taken):7.1f} {taken[-1]:8.1f} "
            f"{window['held']:10.2f} {window['stat']:10.2f}")  # fmt: skip


HEAD = f"{'options':28} {'publ.':>5} {'looks':>6} {'ms med':>7} {'ms max':>8} {'held, s':>10} {'stat, s':>10}"
