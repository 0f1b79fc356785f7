"""The stand-in Slurm with its folder in memory: the same statements, many thousand calls a second.

It can do what a folder that others look into need not: tell of accounting that lags behind, give ids away a second
time, and be called back at every step.
"""

from __future__ import annotations

from typing import Any

from tests.controller.fake_slurm import FIRST_ID, FakeSlurm


class MemorySlurm(FakeSlurm):
    """:class:`FakeSlurm` without a disk.

    :param uid: whose objects are those that are submitted.
    """

    def __init__(self, uid: int | None = None) -> None:
        self._bodies: dict[str, Any] = {}
        self._made: list[str] = []
        self._frozen: dict[int, list[dict[str, Any]]] | None = None
        self._uid = uid
        self._first = FIRST_ID
        super().__init__("")

    def prepare(self) -> None:
        """Nothing is on a disk."""

    def at(self, cluster: str) -> FakeSlurm:
        raise AssertionError(f"there is no cluster {cluster}")

    def caller(self) -> int:
        return super().caller() if self._uid is None else self._uid

    def plain(self, *, comment: str, uid: int | None = None, slurm_job_id: int | None = None) -> int:
        first = self._first if slurm_job_id is None else slurm_job_id
        if slurm_job_id is None:
            while not self.free(first):
                first += 1
            self._first = first + 1
        return super().plain(comment=comment, uid=uid, slurm_job_id=first)

    def free(self, slurm_job_id: int) -> bool:
        """No object that slurmctld remembers has this id."""
        body = self._bodies.get(f"jobs/{slurm_job_id}.json")
        return body is None or not body["in_memory"]

    def begin_ids_again(self) -> None:
        """slurmctld lost its state: the next object has the first id that it does not remember."""
        self._first = FIRST_ID

    def lag(self, *, on: bool) -> None:
        """Accounting hears nothing more from now on, and tells what it has; or it has everything again."""
        self._frozen = {number: super(MemorySlurm, self)._rows(number) for number in self.ids()} if on else None

    def ids(self) -> list[int]:
        return sorted(int(name[5:-5]) for name in self._bodies if name.startswith("jobs/"))

    def calls(self, verb: str | None = None) -> list[str]:
        return [line for line in self._made if verb is None or line == verb]

    def _rows(self, number: int) -> list[dict[str, Any]]:
        return super()._rows(number) if self._frozen is None else self._frozen.get(number, [])

    def _called(self, verb: str) -> None:
        self._made.append(verb)

    def _new(self, number: int, body: dict[str, Any]) -> bool:
        name = f"jobs/{number}.json"
        if not self.free(number):
            return False
        old = self._bodies.get(name)
        # Accounting keeps the rows of the id's former owner beside those of the new one.
        self._bodies[name] = body if old is None else {**body, "rows": [*old.get("rows", []), {**old, "rows": []}]}
        return True

    def _put(self, name: str, body: Any) -> None:
        self._bodies[name] = body

    def _get(self, name: str, default: Any) -> Any:
        return self._bodies.get(name, default)


__all__ = ["MemorySlurm"]
