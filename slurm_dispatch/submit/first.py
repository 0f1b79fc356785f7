"""The first submission of a job, as ``dispatch sbatch`` makes it: record, intent, sbatch, and what came of it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, OutcomeUnknownError, ServiceAwayError, TransientError, show
from slurm_dispatch.records.state import Phase
from slurm_dispatch.slurm.configuration import seconds_of
from slurm_dispatch.slurm.options import of_version
from slurm_dispatch.slurm.port import Accepted, Ambiguous, Present, Rejected, SbatchCall, Unknown
from slurm_dispatch.slurm.resubmit import comment_with
from slurm_dispatch.slurm.run import Setting, find, run
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.submit.environment import as_recorded, for_job
from slurm_dispatch.submit.lookup import Found, look_now
from slurm_dispatch.submit.open_jobs import check_open_jobs, dependency_notes
from slurm_dispatch.submit.plan import make_plan
from slurm_dispatch.submit.plan_text import short_plan
from slurm_dispatch.submit.root import prepare_root
from slurm_dispatch.submit.run import (
    LATE_STATUS,
    Intent,
    Overtaken,
    Superseded,
    append_while,
    submit_once,
    submitted_body,
    wait_s,
    write_answer,
)
from slurm_dispatch.submit.waiting import until_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.slurm.options import Option
    from slurm_dispatch.slurm.port import SlurmPort, SubmitAnswer
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.submit.request import Plain, Request

HELP_TIMEOUT_S = 30.0


def all_options(environment: Mapping[str, str]) -> Callable[[], Mapping[str, Option]]:
    """What asks the sbatch at hand for its version and its options, plugins' too. For a long option only that
    the table does not have."""

    def ask() -> Mapping[str, Option]:
        setting = Setting(environment)
        version = run(["sbatch", "--version"], setting, deadline_s=HELP_TIMEOUT_S).stdout.decode("utf-8", "replace")
        text = run(["sbatch", "--help"], setting, deadline_s=HELP_TIMEOUT_S).stdout.decode("utf-8", "replace")
        words = [word for word in version.split() if word[:2].isdigit()]
        return of_version(words[0] if words else "26.05", text)

    return ask


def replace_process(plain: Plain, asking: Mapping[str, str]) -> int:
    """Become sbatch; does not return.

    :param asking: where sbatch is found (its ``PATH``).
    :raises ServiceAwayError: it cannot be run.
    """
    try:
        os.execve(find("sbatch", asking), ["sbatch", *plain.argv], dict(plain.environment))
    except OSError as error:
        raise ServiceAwayError(f"sbatch cannot be run: {error.strerror}") from error


def submit_first(
    request: Request,
    *,
    environment: Mapping[str, str],
    site: Site,
    port: SlurmPort,
    say: Callable[[str], None],
) -> int:
    """Make the record and submit the job.

    :param environment: the user's, as inherited.
    :param say: prints one line on stderr.
    :returns: sbatch's own exit status.
    :raises ServiceAwayError: the state folder is full or away: nothing was submitted; names ``--unprotected``.
    :raises OutcomeUnknownError: nobody knows whether Slurm has the job; the tick will settle it.
    """
    by = f"user:{request.spec.user}@{socket.gethostname()}"
    try:
        folder = StateFolder(site.state)
    except (ServiceAwayError, TransientError) as error:
        raise _unprotected(error) from error
    check_open_jobs(folder, request.spec, site)
    for note in dependency_notes(request, site):
        say(f"note: {note}")
    spec, message_timeout_s, config = _asked(request.spec, site, port)
    spec = replace(spec, generation=prepare_root(spec.root, adopt=request.settings.flag("adopt-root")))
    record, call = _record(request, spec, environment, folder, by=by, deadline_s=site.submit_timeout_s)
    first = _First(request, spec, record, port, site, by, say, folder.last_tick, config)
    return first.came_of(first.submit(call, wait_s(site.submit_timeout_s, message_timeout_s)))


@dataclass(frozen=True, slots=True)
class _First:
    """Submission 1 of a job whose record is there."""

    request: Request
    spec: Spec
    record: Record
    port: SlurmPort
    site: Site
    by: str
    say: Callable[[str], None]
    last_tick: Callable[[], float | None]
    config: Mapping[str, str] = field(default_factory=dict)

    def submit(self, call: SbatchCall, settle_after_s: float) -> SubmitAnswer | Superseded | Overtaken:
        """Call sbatch, once; an interrupt while it runs makes its answer unknown."""
        try:
            return submit_once(
                self.record,
                self.port,
                Intent(self.spec.word(1)),
                call,
                seq=1,
                by=self.by,
                cluster=self.spec.cluster,
                settle_after_s=settle_after_s,
                accepted=self.accepted,
            )
        except KeyboardInterrupt:
            kinds = {fact.kind for fact in self.record.read()}
            if "intent" not in kinds or kinds & {"submitted", "rejected"}:
                raise  # sbatch was not called yet, or has answered: with --wait only the waiting ends
            return Ambiguous("interrupted")
        except (ServiceAwayError, TransientError) as error:
            raise _unprotected(error) from error

    def accepted(self, answer: Accepted) -> None:
        """Say which job it is, and the plan."""
        self.say(f"job {self.spec.job}, Slurm job {answer.slurm_job_id}, checkpoint root {self.spec.root}")
        here = self.spec.cluster
        if answer.cluster and here and answer.cluster != here:
            goes = " or ".join(show(name) for name in self.spec.clusters or (here,))
            self.say(
                f"note: it is on cluster {show(answer.cluster)}, which ticks ask through slurmdbd; what replaces it "
                f"goes to {goes}"
            )
        if not self.request.settings.flag("no-plan"):
            for line in short_plan(make_plan(self.request, self.site, self.config)):
                self.say(line)

    def came_of(self, answer: SubmitAnswer | Superseded | Overtaken) -> int:
        """What follows from the answer; the exit status."""
        if isinstance(answer, Accepted):
            return self._waited(answer) if self.request.waits else answer.status
        if isinstance(answer, Rejected):
            reason = f"sbatch refused it: {answer.message}"[:2000]
            body = {"why": "rejected", "reason": reason}
            # Otherwise a tick has closed it, which it does for the same reason.
            append_while(self.record, "closed", self.by, body, lambda state: state.phase is Phase.ENDED)
            if answer.status in {127, LATE_STATUS}:  # sbatch was not run, so that it could not say it itself
                self.say(answer.message)
            return answer.status
        if isinstance(answer, Superseded):
            raise OutcomeUnknownError(f"somebody else wrote into the new record of job {self.spec.job}")
        if isinstance(answer, Overtaken):
            raise self._overtaken(answer.why)
        return self._look(answer)

    def _look(self, answer: Ambiguous) -> int:
        """Find out whether Slurm has the job after all."""
        key, word = self.spec.job, self.spec.word(1)
        ports = {place: self._port_of(place) for place in self.spec.clusters or ("",)}
        found = look_now(ports, word, self.spec.uid, since=self.record.read()[1].at)
        if not isinstance(found, Found):
            raise OutcomeUnknownError(
                f"nobody knows whether Slurm has job {key}: {answer.why}; {found.why}",
                hint=f"do not submit it again; the next ticks find out, and dispatch show {key} tells",
            )
        named = Accepted(found.slurm_job_id, found.cluster or self.spec.cluster)
        why = write_answer(self.record, word, submitted_body(word, named, found.how), self.by, seq=2)
        if why is not None:
            raise self._overtaken(why)
        if not self.request.quiet:  # what sbatch would have said, for whoever reads the id from it
            number = named.slurm_job_id
            line = str(number) if self.request.parsable else f"Submitted batch job {number}"
            os.write(1, f"{line}\n".encode())
        self.accepted(named)
        return 0

    def _port_of(self, cluster: str) -> SlurmPort:
        """Who asks this cluster; empty: that of this host."""
        return self.port.at(cluster) if cluster else self.port

    def _overtaken(self, why: str) -> OutcomeUnknownError:
        key = self.spec.job
        return OutcomeUnknownError(
            f"the answer came too late for job {key}: {why}",
            hint=f"look at dispatch show {key} before you submit it again",
        )

    def _waited(self, answer: Accepted) -> int:
        """What became of the job in the end; where nobody goes on with it, what sbatch said of its first submission.

        sbatch --wait ends with 0 for a job that was cancelled in the queue (seen on 24.11): not success.
        """
        over = until_over(self.record, self.last_tick, self.say)
        if over is not None or answer.status != 0:
            return answer.status if over is None else over
        number = answer.slurm_job_id
        there = self._port_of(answer.cluster or "" if self.spec.clusters else "")
        found = there.detail([number])[number]
        if isinstance(found, Present) and "CANCELLED" in found.value.states:
            self.say(f"Slurm job {number} was cancelled, and sbatch --wait ended with 0: this ends with 1")
            return 1
        return 0


def _asked(spec: Spec, site: Site, port: SlurmPort) -> tuple[Spec, float | None, Mapping[str, str]]:
    """The specification with the cluster's name, Slurm's MessageTimeout, and Slurm's configuration as far as it was
    asked: it is where the site's settings do not say all that is needed."""
    message_timeout_s = site.message_timeout_s
    cluster = spec.clusters[0] if len(spec.clusters) == 1 else spec.cluster
    config: Mapping[str, str] = {}
    if message_timeout_s is None or not cluster or spec.suspect_s is not None or spec.shared:
        answer = port.config()
        config = {} if isinstance(answer, Unknown) else answer
        cluster = cluster or config.get("ClusterName", "")
        if message_timeout_s is None:
            message_timeout_s = seconds_of(config, "MessageTimeout")
    return replace(spec, cluster=cluster), message_timeout_s, config


def _record(
    request: Request,
    spec: Spec,
    environment: Mapping[str, str],
    folder: StateFolder,
    *,
    by: str,
    deadline_s: float,
) -> tuple[Record, SbatchCall]:
    """Make the record on disk, and the call that goes with it."""
    path = folder.record(spec.job).folder
    own = for_job(environment, spec, record=path)
    try:
        record = folder.create_job(spec, request.script.content, as_recorded(own), by=by)
    except (ServiceAwayError, TransientError) as error:
        raise _unprotected(error) from error
    argv = request.argv(comment_with(spec.comment, spec.word(1)))
    ours = request.script.path is None and not request.script.wrap
    from_stdin = ours and request.line.script is None
    call = SbatchCall(
        argv=argv,
        environment=own,
        deadline_s=deadline_s,
        script=request.script.content if ours else b"",
        script_at=len(argv) - len(request.line.arguments) if ours and not from_stdin else None,
        parsable=request.parsable,
        waits=request.waits,
        relay=True,
    )
    return record, call


def _unprotected(error: DispatchError) -> ServiceAwayError:
    return ServiceAwayError(
        f"nothing was submitted, the job's record cannot be made: {error}",
        hint="dispatch sbatch --unprotected submits it plainly, without any recovery",
    )
