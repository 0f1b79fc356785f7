"""What is looked at in the guest after each loss: what was told must be there, and nothing half may seem whole."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.hints import load, tick_folder
from slurm_dispatch.controller.tickfile import read_file
from slurm_dispatch.errors import BadDataError, DispatchError, NothingThereError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.state.asked import read_asked
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.keep import sweep_kept
from slurm_dispatch.store.manifest import manifest_of, read_manifest
from slurm_dispatch.store.root import open_root
from slurm_dispatch.store.thin import KEEP_OWN, KEEP_ROOT
from slurm_dispatch.store.whole import look
from tests.power import saves
from tests.power.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.state.jobs import Record

Told = list[dict[str, Any]]
NOTHING_TO_SEE = {"thinning", "thinned", "hint", "sbatch"}
"""What is no file, or one that may be lost; the intents of calls of sbatch are looked for where there is a record."""


class Checker:
    """One disk's.

    :param told: all statements about it, in their order.
    :ivar lost: what is not as it must be: the kind of statement, what, and why.
    :ivar found: how many statements of each kind were looked after.
    """

    def __init__(self, folder: str, told: Told) -> None:
        self.lost: list[tuple[str, str, str]] = []
        self.found: Counter[str] = Counter()
        self._folder = folder
        self._told = told
        self._root_path, self._state_path = os.path.join(folder, "root"), os.path.join(folder, "state")

    def run(self) -> None:
        """Look at everything."""
        if os.path.isdir(self._root_path):
            self._part("root", self._check_root)
        if os.path.isdir(self._state_path):
            self._part("state", self._check_state)
        for name in sorted(os.listdir(self._folder)):
            if name.startswith("site"):
                self._part(name, lambda name=name: self._check_site(name))
        for kind in sorted({told["kind"] for told in self._told} - NOTHING_TO_SEE):
            if self.found[kind] == 0:
                self._lose(kind, "everything", "what it would be in is not there")

    def _part(self, what: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            self._lose("looking", what, "".join(traceback.format_exception(error))[-600:])

    def _of(self, kind: str) -> Iterable[dict[str, Any]]:
        for statement in self._told:
            if statement["kind"] == kind:
                self.found[kind] += 1
                yield statement

    def _lose(self, kind: str, what: str, why: object) -> None:
        self.lost.append((kind, what, str(why)))

    # The checkpoint root

    def _check_root(self) -> None:
        self._root = open_root(self._root_path)
        for told in self._of("claim"):
            path = os.path.join(self._root_path, "own", str(told["generation"]))
            if not os.path.islink(path) or os.readlink(path) != told["job"]:
                self._lose("claim", path, "not there")
        for told in self._of("execution"):
            if not os.path.isdir(os.path.join(self._root.execution(told["attempt"]), ".dispatch")):
                self._lose("execution", told["attempt"], "not there")
        try:
            there = self._root.listing()
        except DispatchError as error:
            self._lose("published", "the listing", error)
            return
        gone = self._may_be_gone(there)
        self._check_publications(there, gone)
        self._check_kept(gone)
        self._check_choices()
        self._check_latest(there)

    def _may_be_gone(self, there: list[Publication]) -> set[str]:
        """Paths of saves that thinning was allowed to remove: :func:`~slurm_dispatch.store.thin.thin` says which."""
        attempts = [told["attempt"] for told in self._told if told["kind"] == "thinning"]
        if not attempts or not there:
            return set()
        newest = attempts[-1]
        own = [one for one in there if one.attempt == newest]
        stay = {one.path for one in (*there[:KEEP_ROOT], *own[:KEEP_OWN], max(there, key=lambda one: one.step))}
        gone = {one.path.decode() for one in there if one.path not in stay and (one.attempt or "") <= newest}
        return gone | {told["path"] for told in self._told
                       if told["kind"] == "kept" and told["path"].split("/")[1] < newest}  # fmt: skip

    def _check_publications(self, there: list[Publication], gone: set[str]) -> None:
        by_name = {one.name: one for one in there}
        for told in self._of("published"):
            one = by_name.get(told["name"])
            if one is None:
                self._lose("published", told["name"], "not there")
            elif told["whole"] and one.path.decode() not in gone:
                path = os.path.join(self._root_path, one.path.decode())
                # What is not kept is the training's to remove; here it does not.
                why = saves.broken(path, saves.STYLES[told["style"]])
                if why:
                    self._lose("published", one.path.decode(), why)

    def _check_kept(self, gone: set[str]) -> None:
        for told in self._of("kept"):
            path = os.path.join(self._root_path, told["path"])
            if told["path"] in gone:
                continue
            why = saves.broken(path, saves.STYLES[told["style"]])
            if not os.path.lexists(path) or (why and told["whole"]):
                self._lose("kept", told["path"], why)
            elif told["whole"] and read_manifest(self._root, told["path"].encode()) is None:
                self._lose("kept", told["path"], "it has no manifest")
        executions = os.path.join(self._root_path, "exec")
        for attempt in os.listdir(executions) if os.path.isdir(executions) else []:
            folder = os.path.join(executions, attempt, "kept")
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                if not name.startswith(".tmp-"):
                    self._seems_whole(f"exec/{attempt}/kept/{name}")
            sweep_kept(self._root, attempt)

    def _seems_whole(self, path: str) -> None:
        """What is as its manifest says is whole, whether anybody was told of it or not."""
        full = os.path.join(self._root_path, path)
        self.found["seen"] += 1
        try:
            seen, manifest = look(full, read=False), read_manifest(self._root, path.encode())
        except DispatchError as error:
            self._lose("seen", path, error)
            return
        if seen is None or manifest is None or manifest_of(seen, manifest.proof) != manifest:
            return
        why = saves.broken(full, saves.STYLES[path.rsplit("/", 1)[1].partition("-")[0]])
        if why:
            self._lose("seen", path, f"taken for whole, and {why}")

    def _check_choices(self) -> None:
        for told in self._of("choice"):
            try:
                made = read_choice(self._root, told["attempt"])
            except DispatchError as error:
                self._lose("choice", told["attempt"], error)
                continue
            if made is None or made.turn < told["number"]:
                self._lose("choice", f"{told['attempt']} {told['number']}", "not there")
            elif made.turn == told["number"]:
                resume = None if made.resume is None else os.path.relpath(made.resume, self._root_path)
                if (resume, made.step, made.source) != (told["resume"], told["step"], told["source"]):
                    self._lose("choice", told["attempt"], f"it is {made}")
        attempts = os.path.join(self._root_path, "exec")
        for attempt in os.listdir(attempts) if os.path.isdir(attempts) else []:
            try:
                read_choice(self._root, attempt)
            except DispatchError as error:
                self._lose("choice", attempt, error)

    def _check_latest(self, there: list[Publication]) -> None:
        """The next execution would resume from at least what was published last."""
        told = [told["name"] for told in self._told if told["kind"] == "published"]
        try:
            save = self._root.latest()
        except BadDataError as error:
            careless = there and there[0].path.decode().rsplit("/", 1)[-1].startswith("careless")
            if not careless:
                self._lose("latest", "latest", error)
            return
        if told and (save is None or save.publication.name < max(told)):
            self._lose("latest", max(told), f"latest is {save}")

    # Records, notes and what ticks keep

    def _read(self, kind: str, record: Record) -> list[Fact]:
        try:
            facts = record.read()
            fold(facts)
        except NothingThereError:
            return []
        except DispatchError as error:
            self._lose(kind, record.key, error)
            return []
        return facts

    def _check_state(self) -> None:
        state = StateFolder(self._state_path)
        records = {job.key: state.record(job.key) for job in state.jobs()}
        facts = {key: self._read("fact", record) for key, record in records.items()}
        raw = {key: [_digest(data) for data in record.read_bytes()] for key, record in records.items() if facts[key]}
        for told in self._of("job"):
            key = told["key"]
            try:
                record = records[key]
                same = (_digest(record.script()), _digest(record.environment()), raw[key][0])
                if same != (told["script"], told["environment"], told["fact"]):
                    self._lose("job", key, "its script, environment or first fact is another")
            except (KeyError, DispatchError) as error:
                self._lose("job", key, f"not there: {error!r}")
        for told in self._of("fact"):
            if raw.get(told["key"], [])[told["seq"] - 1 : told["seq"]] != [told["fact"]]:
                self._lose("fact", f"{told['key']} {told['seq']}", f"not there; {len(raw.get(told['key'], []))} are")
        for told in self._of("script"):
            path = os.path.join(state.jobs_folder, told["key"], f"script-{told['script']}")
            if not os.path.isfile(path) or _digest(records[told["key"]].script(told["script"])) != told["script"]:
                self._lose("script", path, "not there, or not whole")
        notes = state.notes()
        for told in self._of("refuse"):
            if told["name"] not in notes.names():
                self._lose("refuse", told["name"], "not there")
        if notes.read().bad:
            self._lose("refuse", "notes", notes.read().bad)
        self._check_hints(records)

    def _check_hints(self, records: dict[str, Record]) -> None:
        folder = tick_folder(self._state_path)
        hints, padded = load(folder), read_file(folder, "padded")
        if hints.clock is not None and hints.clock.id != _digest(str(hints.clock.ran_s).encode())[:8]:
            self._lose("hint", "clock", f"it is {hints.clock}")
        if padded is not None and _digest(str(padded.get("pad")).encode()) != padded.get("digest"):
            self._lose("hint", "padded", "it is another one")
        self.found["hint"] += 1
        for record in records.values():
            for counted in read_asked(record.folder).values():
                if (counted.detail, counted.count) != ("x" * 5000, int(counted.first) + 1):
                    self._lose("hint", f"{record.key} asked", f"it is {counted}")

    # Ticks

    def _check_site(self, name: str) -> None:
        """What a tick wrote is there, and the next one goes on without a second use of any number."""
        path = os.path.join(self._folder, name, "state")
        if not os.path.isdir(os.path.join(path, "notes")):
            return
        state = StateFolder(path)
        records = {job.key: state.record(job.key) for job in state.jobs()}
        facts = {key: self._read("tick", record) for key, record in records.items()}
        there = set(state.notes().names())
        for told in self._of("tick"):
            if told["site"] == name:
                raw = records[told["key"]].read_bytes()[: told["count"]] if facts.get(told["key"]) else []
                if len(raw) < told["count"] or _digest(b"".join(raw)) != told["facts"]:
                    self._lose("tick", f"{told['key']} {told['count']}", f"not there; {len(raw)} are")
        for told in self._of("note"):
            if told["site"] == name and told["name"] not in there:
                kind, key, _, number = told["name"].split(".")[:4]
                wanted = {"start": "started", "end": "end"}[kind]
                made = [fact.body["submission"] for fact in facts.get(key, []) if fact.kind == wanted]
                if int(number) not in made:
                    self._lose("note", told["name"], "neither it nor a fact of it is there")
        if state.notes().read().bad:
            self._lose("note", name, state.notes().read().bad)
        if name == f"site{max((told['turn'] for told in self._told), default=-1)}":
            self._check_numbers(name, facts)

    def _check_numbers(self, name: str, facts: dict[str, list[Fact]]) -> None:
        prefix = f"s{name.removeprefix('site')}j"
        used = [told["word"] for told in self._of("sbatch") if told["word"].split(":")[1].startswith(prefix)]
        intents = {fact.body["word"] for found in facts.values() for fact in found if fact.kind == "intent"}
        for word in used:
            if word not in intents:
                self._lose("sbatch", word, "sbatch was called, and its intent is not there")
        again: list[str] = []
        site = Site(os.path.join(self._folder, name), "x", lambda kind, **told: again.append(told.get("word", "")))
        reports = site.tick()
        broken = [line for report in reports.values() for line in report.lines if "Traceback" in line]
        if broken or set(again) & set(used):
            self._lose("sbatch", name, f"the next tick: {broken or again}")
        for record in map(site.folder.record, facts):
            self._read("tick", record)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
