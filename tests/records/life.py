"""Makes records for tests: a specification, facts in their order, and whole lives of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import attempt_of
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.spec import Spec

if TYPE_CHECKING:
    from slurm_dispatch.records.state import State

KEY = "k3v9d0q2xw7a"
CLUSTER = "alpha"
UID = 1234


def make_spec(**changes: Any) -> Spec:
    """A specification with every field set; ``changes`` replace some."""
    values: dict[str, Any] = {
        "job": KEY,
        "generation": 0,
        "user": "ada",
        "uid": UID,
        "gid": UID,
        "groups": (UID, 100),
        "cluster": CLUSTER,
        "name": "train",
        "root": "/data/ckpt",
        "shared": False,
        "argv": ("--time=1:00:00",),
        "script_name": "train.sh",
        "script_args": (),
        "script_sha256": "0" * 64,
        "wrap": False,
        "workdir": "/home/ada",
        "umask": 0o022,
        "comment": "mine",
        "rules": (),
        "max_submissions": 100,
        "start_from": None,
        "host": "login",
    }
    return Spec(**{**values, **changes})


class Life:
    """A record that grows. Every fact goes through its bytes, as on disk."""

    def __init__(self, spec: Spec | None = None, at: float = 1000.0) -> None:
        self.spec = make_spec() if spec is None else spec
        self.at = at
        self.facts: list[Fact] = []
        self.add("spec", **self.spec.body())

    def add(self, kind: str, **body: Any) -> Life:
        """Append a fact one second after the last."""
        self.at += 1
        seq = len(self.facts) + 1
        self.facts.append(parse_fact(seq, render(Fact(seq, self.at, kind, "tick@ctl", body))))
        return self

    @property
    def state(self) -> State:
        """What the facts make."""
        return fold(self.facts)

    def intent(self, number: int, decision: int | None = None, wait_s: float = 170.0) -> Life:
        """sbatch is about to be called."""
        return self.add(
            "intent",
            submission=number,
            word=str(self.spec.word(number)),
            host="login",
            deadline=self.at + 150,
            wait_s=wait_s,
            changes=[],
            decision=decision,
        )

    def submitted(self, number: int, slurm_job_id: int | None = None) -> Life:
        """sbatch answered."""
        return self.add(
            "submitted",
            submission=number,
            cluster=CLUSTER,
            slurm_job_id=slurm_job_id or 100 + number,
            how="answer",
        )

    def started(self, number: int, restart: int = 0, slurm_job_id: int | None = None) -> Life:
        """An execution began."""
        return self.add("started", **start_body(self.spec, number, restart, slurm_job_id))

    def progress(self, number: int, step: int, resumed_from: int | None = None, restart: int = 0) -> Life:
        """The helper published."""
        body = start_body(self.spec, number, restart)
        return self.add(
            "progress", attempt=body["attempt"], epoch=body["epoch"], step=step, resumed_from=resumed_from
        )

    def end(
        self, number: int, outcome: str, *, final: bool = True, restart: int | None = 0, by_uid: int | None = None
    ) -> Life:
        """The object or its execution ended."""
        return self.add(
            "end",
            submission=number,
            slurm_job_id=100 + number,
            restart=restart,
            start_time=None,
            outcome=outcome,
            evidence={"state": outcome.upper(), "by_uid": by_uid},
            final=final,
        )

    def decided(self, action: str, outcome: str = "preempted", **more: Any) -> Life:
        """The decision about the last fact."""
        values = {
            "on": len(self.facts),
            "outcome": outcome,
            "action": action,
            "rule": f"{outcome}:{action}",
            "budget_used": 0,
            "budget": None,
            "reason": "the rule says so",
            "submission": None,
            "not_before": None,
            "close": outcome if action == "stop" else None,
        }
        return self.add("decision", **{**values, **more})

    def resubmit(self, number: int, outcome: str = "preempted", not_before: float | None = None) -> Life:
        """The decision that leads to submission ``number``."""
        return self.decided("resubmit", outcome, submission=number, not_before=not_before)

    def holds(self, number: int, outcome: str = "preempted", why: str = "rule", **more: Any) -> Life:
        """The decision that holds the job; submission ``number`` is next."""
        return self.decided("hold", outcome, submission=number, why=why, then="resubmit", **more)

    def release(self, how: str = "person") -> Life:
        """What holds the job is lifted."""
        holding = self.state.holding
        assert holding is not None
        return self.add("release", on=holding.seq, how=how, reason="")

    def suspected(self, number: int, nodes: tuple[str, ...] = ("c1",)) -> Life:
        """A node of the running execution is silent."""
        return self.add(
            "suspected",
            submission=number,
            slurm_job_id=100 + number,
            restart=0,
            nodes=list(nodes),
            since=self.at - 30,
        )

    def superseded(self, by_job: str = "new", keep: int | None = None) -> Life:
        """Another job goes on in its place."""
        return self.add("closed", why="superseded", reason="", by_job=by_job, keep=keep)

    def took_over(self, *attempts: str, complete: bool = True) -> Life:
        """It goes on in place of job ``old``, of which these executions may still run."""
        executions = [
            {"attempt": it, "slurm_job_id": 77, "cluster": CLUSTER, "nodes": "c9", "start_time": 900}
            for it in attempts
        ]
        return self.add(
            "took_over", elder="old", elder_seq=9, executions=executions, submission=1, complete=complete
        )

    def told(self, what: str) -> Life:
        """The owner was told of a hold."""
        return self.add("told", on=1, what=what, status=None)

    def answered(self, attempt: str, answer: str, source: str = "slurm-nodes") -> Life:
        """What cessation said."""
        return self.add(
            "cessation",
            attempt=attempt,
            answer=answer,
            source=source,
            detail="",
            count=1,
            first=self.at,
            last=self.at,
        )

    def run(self, number: int) -> Life:
        """From the intent to RUNNING; the decision before it is the last fact."""
        decision = len(self.facts) if number > 1 else None
        return self.intent(number, decision).submitted(number).started(number)

    def round(self, number: int, outcome: str = "preempted") -> Life:
        """Submission ``number`` runs, ends with ``outcome``, and the next one is decided."""
        return self.run(number).end(number, outcome).resubmit(number + 1, outcome)


def start_body(spec: Spec, number: int, restart: int = 0, slurm_job_id: int | None = None) -> dict[str, Any]:
    """The body of a ``started`` fact."""
    slurm_job_id = slurm_job_id or 100 + number
    return {
        "submission": number,
        "slurm_job_id": slurm_job_id,
        "restart": restart,
        "epoch": str(spec.generation * 10**12 + number * 10**6 + restart),
        "attempt": attempt_of(spec.cluster, slurm_job_id, spec.word(number), restart, 5000 + restart),
        "start_time": 5000 + restart,
        "nodes": "c[1-2]",
    }
