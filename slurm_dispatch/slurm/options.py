"""The options of sbatch, from 22.05 to 26.05, and how ``getopt_long`` reads a command line with them.

Read off the option tables (``slurm_opt.c``) and the variable tables (``sbatch/opt.c``) of each version.
Nothing here decides whether an option is right: sbatch does. What is needed is where the options end and the
script begins, and what a few of them say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

NEWEST = "26.05"
# One option a word: `long`, `/s` its short letter, `=` takes a value, `[` an optional one, and `:first-last`
# the versions that have it where not all of them do.
_TABLE = """
account/A= acctg-freq= array/a= autocomplete=:23.02- batch= bb= bbf= begin/b= chdir/D= cluster=
cluster-constraint= clusters/M= comment= consolidate-segments:25.11- constraint/C= container=
container-id=:23.02- container-type=:26.05- context= contiguous core-spec/S= cores-per-socket= cpu-freq=
cpus-per-gpu= cpus-per-task/c= deadline= delay-boot= dependency/d= distribution/m= error/e= exclude/x=
exclusive[ export= export-file= external:25.05- extra= extra-node-info/B= get-user-env[ gid= gpu-bind=
gpu-freq= gpus/G= gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= help/h hint= hold/H
ignore-pbs input/i= job-name/J= kill-on-invalid-dep= licenses/L= mail-type= mail-user= mcs-label= mem=
mem-bind= mem-per-cpu= mem-per-gpu= mem-update=:26.05- mincpus= network= nice[ no-kill/k[ no-requeue
nodefile/F= nodelist/w= nodes/N= ntasks/n= ntasks-per-core= ntasks-per-gpu= ntasks-per-node=
ntasks-per-socket= ntasks-per-tres= oom-kill-step[:24.11- open-mode= output/o= overcommit/O oversubscribe/s
parsable partition/p= power=:-23.11 prefer= priority= profile= propagate[ qos/q= quiet/Q reboot requeue[
reservation= resources=:25.11- resv-ports[:24.05- segment=:24.05- signal= sockets-per-node= spread-job
spread-segments:25.11- stepmgr:24.05- switches= tasks-per-node= test-only thread-spec= threads-per-core=
time/t= time-min= tmp= tres-bind=:23.11- tres-per-task=:23.02- uid= usage use-min-nodes verbose/v version/V
wait/W wait-all-nodes= wckey= wrap=
"""
# Variables that stand for an option at submission. They beat directives and lose to the command line. A value
# of an option without one is not used by sbatch; SBATCH_EXCLUSIVE and the like take theirs as the option does.
_VARIABLES = """
SBATCH_ACCOUNT=account SBATCH_ACCTG_FREQ=acctg-freq SBATCH_ARRAY_INX=array SBATCH_BATCH=batch
SBATCH_BURST_BUFFER=bb SBATCH_CLUSTER_CONSTRAINT=cluster-constraint SBATCH_CLUSTERS=clusters
SLURM_CLUSTERS=clusters SBATCH_CONSOLIDATE_SEGMENTS=consolidate-segments SBATCH_CONTAINER=container
SBATCH_CONTAINER_ID=container-id SBATCH_CONTAINER_TYPE=container-type SBATCH_CONSTRAINT=constraint
SBATCH_CORE_SPEC=core-spec SBATCH_CPU_FREQ_REQ=cpu-freq SBATCH_CPUS_PER_GPU=cpus-per-gpu
SBATCH_DEBUG=verbose SBATCH_DELAY_BOOT=delay-boot SBATCH_DISTRIBUTION=distribution SBATCH_ERROR=error
SBATCH_EXCLUSIVE=exclusive SBATCH_EXPORT=export SBATCH_GET_USER_ENV=get-user-env SBATCH_GPUS=gpus
SBATCH_GPUS_PER_NODE=gpus-per-node SBATCH_GPUS_PER_SOCKET=gpus-per-socket SBATCH_GPUS_PER_TASK=gpus-per-task
SBATCH_GPU_BIND=gpu-bind SBATCH_GPU_FREQ=gpu-freq SBATCH_GRES=gres SBATCH_GRES_FLAGS=gres-flags
SLURM_HINT=hint SBATCH_HINT=hint SBATCH_IGNORE_PBS=ignore-pbs SBATCH_INPUT=input SBATCH_JOB_NAME=job-name
SBATCH_MEM_BIND=mem-bind SBATCH_MEM_PER_CPU=mem-per-cpu SBATCH_MEM_PER_GPU=mem-per-gpu
SBATCH_MEM_PER_NODE=mem SBATCH_NETWORK=network SBATCH_NO_KILL=no-kill SBATCH_NO_REQUEUE=no-requeue
SBATCH_OPEN_MODE=open-mode SBATCH_OUTPUT=output SBATCH_OVERCOMMIT=overcommit SBATCH_PARTITION=partition
SBATCH_POWER=power SBATCH_PROFILE=profile SBATCH_QOS=qos SBATCH_REQUEUE=requeue SBATCH_REQ_SWITCH=switches
SBATCH_RESERVATION=reservation SBATCH_SEGMENT_SIZE=segment SBATCH_SIGNAL=signal SBATCH_SPREAD_JOB=spread-job
SBATCH_SPREAD_SEGMENTS=spread-segments SBATCH_THREADS_PER_CORE=threads-per-core SBATCH_THREAD_SPEC=thread-spec
SBATCH_TIMELIMIT=time SBATCH_TRES_BIND=tres-bind SBATCH_TRES_PER_TASK=tres-per-task
SBATCH_USE_MIN_NODES=use-min-nodes SBATCH_WAIT=wait SBATCH_WAIT_ALL_NODES=wait-all-nodes SBATCH_WCKEY=wckey
"""

NO_VALUE = "no"
VALUE = "value"
OPTIONAL_VALUE = "optional"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of sbatch.

    :param takes: :data:`NO_VALUE`, :data:`VALUE` or :data:`OPTIONAL_VALUE` (only as ``--name=value``).
    :param first, last: the versions that have it, ``""`` for the ends of the range.
    """

    name: str
    short: str
    takes: str
    first: str = ""
    last: str = ""

    def in_version(self, version: str) -> bool:
        """Whether sbatch ``version`` (``24.11``) has it; versions are compared as numbers."""
        here = version_key(version)
        if self.first and here < version_key(self.first):
            return False
        return not (self.last and here > version_key(self.last))


def version_key(version: str) -> tuple[int, ...]:
    """``(24, 11)`` of ``24.11.5``."""
    return tuple(int(part) for part in version.split(".")[:2])


def _parse(word: str) -> Option:
    body, _, versions = word.partition(":")
    first, _, last = versions.partition("-")
    takes = {"=": VALUE, "[": OPTIONAL_VALUE}.get(body[-1], NO_VALUE)
    name, _, short = body.rstrip("=[").partition("/")
    return Option(name, short, takes, first, last)


OPTIONS: dict[str, Option] = {option.name: option for option in map(_parse, _TABLE.split())}
SHORT: dict[str, Option] = {option.short: option for option in OPTIONS.values() if option.short}
VARIABLES: dict[str, str] = dict(word.split("=") for word in _VARIABLES.split())

WAIT_FOR_SWITCHES = "SBATCH_WAIT4SWITCH"

SOMETIMES_VALUE = frozenset({"requeue", "get-user-env"})
"""Options whose value only some versions take: requeue from 25.11 on, get-user-env before 26.05."""

MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
"""Of these sbatch takes one."""

# Two spellings of one option.
SAME: dict[str, str] = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node", "core-spec": "core-spec"}


@dataclass(frozen=True, slots=True)
class Word:
    """One option as it stands on a command line.

    :param name: the option's whole name, or what was typed if sbatch has no such option.
    :param value: its value, or ``None``.
    :param first, last: the arguments that it stands in, ``first`` to ``last`` inclusive.
    """

    name: str
    value: str | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command line of sbatch, read as ``getopt_long`` reads it (options end at the first other word).

    :param options: in their order.
    :param end: index of the first argument that is no option and no value of one; ``len(argv)`` if none.
    :param dashes: whether ``--`` stands just before it.
    """

    options: tuple[Word, ...]
    end: int
    dashes: bool

    def last(self, name: str) -> Word | None:
        """The one that counts: sbatch takes the last."""
        for word in reversed(self.options):
            if SAME.get(word.name, word.name) == name:
                return word
        return None


def parse(
    argv: Sequence[str],
    more: Callable[[], Mapping[str, Option]] | None = None,
    own: Mapping[str, Option] | None = None,
) -> Parsed:
    """Read ``argv`` (without the program's name).

    :param more: gives every long option of the sbatch at hand, plugins' too (:func:`of_version`); asked at most
        once, and only when a long option is met that the table does not settle.
    :param own: options that are not sbatch's; they count only where they are spelled whole.
    """
    return _Reader(argv, more, own or {}).read()


def without_options(argv: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """The options of ``argv`` that are not in ``names``, in their order, as they were written.

    A bundle of short options with one of them in it (``-HQ``) is written out.
    """
    parsed = parse(argv)
    kept: list[str] = []
    done = -1
    for option in parsed.options:
        if option.first <= done:
            continue
        bundle = [other for other in parsed.options if other.first == option.first]
        done = max(other.last for other in bundle)
        if not any(SAME.get(other.name, other.name) in names for other in bundle):
            kept += argv[option.first : done + 1]
            continue
        for other in bundle:
            if SAME.get(other.name, other.name) not in names:
                kept.append(f"--{other.name}" if other.value is None else f"--{other.name}={other.value}")
    return tuple(kept)


class _Reader:
    """The walk of :func:`parse`."""

    def __init__(
        self, argv: Sequence[str], more: Callable[[], Mapping[str, Option]] | None, own: Mapping[str, Option]
    ) -> None:
        self.argv = argv
        self.more = more
        self.own = own
        self.known: dict[str, Option] = OPTIONS
        self.words: list[Word] = []

    def read(self) -> Parsed:
        """All options, and where they end."""
        at = 0
        while at < len(self.argv):
            text = self.argv[at]
            if text == "--":
                return Parsed(tuple(self.words), at + 1, dashes=True)
            if text == "-" or not text.startswith("-"):
                return Parsed(tuple(self.words), at, dashes=False)
            at = self._long(at) if text.startswith("--") else self._short(at)
        return Parsed(tuple(self.words), len(self.argv), dashes=False)

    def _long(self, at: int) -> int:
        typed, equals, value = self.argv[at][2:].partition("=")
        option = self._find(typed)
        if option is None:  # sbatch will refuse it; whatever we think of its value does not matter
            self.words.append(Word(typed, value if equals else None, at, at))
            return at + 1
        if option.takes == VALUE and not equals:
            last = min(at + 1, len(self.argv) - 1)
            given = self.argv[last] if last > at else None
            self.words.append(Word(option.name, given, at, last))
            return last + 1
        self.words.append(Word(option.name, value if equals else None, at, at))
        return at + 1

    def _short(self, at: int) -> int:
        letters = self.argv[at][1:]
        for index, letter in enumerate(letters):
            option = SHORT.get(letter)
            rest = letters[index + 1 :]
            if option is None:
                self.words.append(Word(letter, None, at, at))
            elif option.takes == NO_VALUE:
                self.words.append(Word(option.name, None, at, at))
            elif rest or option.takes == OPTIONAL_VALUE:
                self.words.append(Word(option.name, rest or None, at, at))
                return at + 1
            else:
                last = min(at + 1, len(self.argv) - 1)
                self.words.append(Word(option.name, self.argv[last] if last > at else None, at, last))
                return last + 1
        return at + 1

    def _find(self, typed: str) -> Option | None:
        """The option that ``typed`` is, or begins, the way glibc decides."""
        if typed in self.own:
            return self.own[typed]
        if typed in self.known:
            return self.known[typed]
        found = [option for name, option in self.known.items() if name.startswith(typed)]
        # One candidate, or several of which no two differ in what we need: no version and no plugin is asked.
        if found and len({(SAME.get(option.name, option.name), option.takes) for option in found}) == 1:
            return found[0]
        if self.more is not None:
            extra, self.more = self.more(), None
            self.known = dict(extra)
            return self._find(typed)
        return None


def plugin_options(help_text: str) -> dict[str, Option]:
    """The options that ``sbatch --help`` lists and the table does not have: those of plugins.

    A line of theirs is ``      --name=value     text``; one that shows no value takes none.
    """
    found: dict[str, Option] = {}
    for line in help_text.splitlines():
        words = line.split()
        # Sbatch's own lines begin with a short letter and a comma where there is one.
        if len(words) > 1 and len(words[0]) == 3 and words[0].endswith(","):
            words = words[1:]
        if not words or not words[0].startswith("--"):
            continue
        name, equals, _ = words[0][2:].partition("=")
        if name.endswith("["):
            found.setdefault(name[:-1], Option(name[:-1], "", OPTIONAL_VALUE))
        elif name and name not in OPTIONS:
            found.setdefault(name, Option(name, "", VALUE if equals else NO_VALUE))
    return {name: option for name, option in found.items() if name not in OPTIONS}


def of_version(version: str, help_text: str) -> dict[str, Option]:
    """Every long option of the sbatch that said ``version`` and ``help_text``: what abbreviations choose from."""
    table = {name: option for name, option in OPTIONS.items() if option.in_version(version)}
    return {**table, **plugin_options(help_text)}


def from_variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The options that the environment stands for, as (name, value), in sbatch's order of precedence.

    :returns: later ones win. ``SBATCH_`` variables come after ``SLURM_`` ones of the same option.
    """
    found = [(variable, VARIABLES[variable]) for variable in VARIABLES if variable in environment]
    found.sort(key=lambda pair: pair[0].startswith("SBATCH_"))
    options = [(name, environment[variable]) for variable, name in found]
    if WAIT_FOR_SWITCHES in environment:  # the second half of --switches
        options = [
            (name, f"{value}@{environment[WAIT_FOR_SWITCHES]}" if name == "switches" and "@" not in value else value)
            for name, value in options
        ]
    return tuple(options)


def as_argument(name: str, value: str) -> str | None:
    """A variable's value as an option on a command line; ``None`` where sbatch takes it for "not set".

    For an option without a value sbatch takes ``""``, ``yes`` and a number other than 0 for "set". So it is here
    for :data:`SOMETIMES_VALUE` too, whose value some versions refuse on a command line.
    """
    takes = OPTIONS[name].takes
    number = value.lstrip("+-")
    is_number = number.isascii() and number.isdigit()
    if not value or value.lower() == "yes" or (is_number and int(number) != 0):
        is_set: bool | None = True
    else:
        is_set = False if takes == NO_VALUE or is_number or value.lower() == "no" else None
    if takes == NO_VALUE or (name in SOMETIMES_VALUE and is_set is not None):
        return f"--{name}" if is_set else None
    if takes == OPTIONAL_VALUE and not value:
        return f"--{name}"
    return f"--{name}={value}"
