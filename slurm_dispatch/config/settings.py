"""The tables of settings: those of the site, those of its limits, and those of a job.

The loaders, their errors, ``dispatch config show``, the sample ``site/dispatch.toml`` and the reference
``docs/settings.md`` all come from these tables; a test holds the files to them.
"""

from __future__ import annotations

from slurm_dispatch.config.kinds import REQUIRED, Setting
from slurm_dispatch.model.epoch import SUBMISSION_MAX

DAY_S = 86400
YEAR_S = 365 * DAY_S
HOOKS = ("prolog-slurmctld", "epilog-slurmctld", "prolog", "task-prolog", "epilog")
BUILT_IN_CESSATION = "slurm-nodes"
"""The answer about cessation from what the hooks noted of the nodes, without a command of the site."""
NO_PROGRESS = 5
"""Executions in a row without new progress before a person is asked, where nobody says otherwise."""

_HOST: tuple[Setting, ...] = (
    Setting(
        "state",
        "path",
        REQUIRED,
        "The state folder: shared by the login hosts, the hosts that tick, and slurmctld's hosts. "
        "In user mode it may begin with ~.",
        example='"/shared/slurm-dispatch"',
    ),
    Setting(
        "cluster", "text", None, "The cluster's name. Not given: what Slurm's configuration says.", example='"alpha"'
    ),
    Setting("slurm_user", "text", "slurm", "SlurmUser of slurm.conf: who owns jobs/ and notes/ of the state folder."),
    Setting(
        "user_mode",
        "bool",
        False,
        "Everything belongs to one user: no hooks of the site, no root; the tick runs as that user.",
    ),
    Setting(
        "hooks",
        "names",
        HOOKS,
        "The hooks that are installed. The plan says which promises fall without one of them; in user mode there "
        "are none.",
        choices=HOOKS,
    ),
    Setting(
        "slurm_bin",
        "path",
        None,
        "The folder of Slurm's commands. Not given: they are found on the PATH.",
        example='"/usr/bin"',
    ),
    Setting(
        "submit_timeout_s",
        "seconds",
        150,
        "When a call of sbatch is ended. Slurm's commands try for a minute and a half when slurmctld is away.",
        5,
        3600,
    ),
    Setting(
        "message_timeout_s",
        "seconds",
        None,
        "Slurm's MessageTimeout. Not given: asked of Slurm. Others settle a submission after submit_timeout_s and "
        "twice this.",
        1,
        3600,
        example="10",
    ),
    Setting(
        "query_timeout_s", "seconds", 60, "When a question to Slurm (squeue, scontrol, sacct) is given up.", 1, 3600
    ),
    Setting(
        "owner_timeout_s",
        "seconds",
        20,
        "How long work on one user's records may take, beside two calls of sbatch, before they are put off.",
        1,
        3600,
    ),
    Setting(
        "tick_interval_s", "seconds", 30, "How often dispatch tick --loop looks even if nothing wakes it.", 1, 3600
    ),
    Setting(
        "accounting",
        "bool",
        None,
        "Whether sacct has this cluster's jobs. Not given: asked of Slurm.",
        example="true",
    ),
)

_JOBS: tuple[Setting, ...] = (
    Setting(
        "max_submissions",
        "int",
        100,
        "The cap on a job's submissions where the job names none.",
        1,
        SUBMISSION_MAX,
    ),
    Setting(
        "most_submissions",
        "int",
        10_000,
        "The highest cap on submissions that a job may name.",
        1,
        SUBMISSION_MAX,
    ),
    Setting(
        "max_node_hours",
        "number",
        None,
        "The cap on the node-hours of all executions of a job that names none. Not given: no cap.",
        0.01,
        1e9,
        example="5000",
    ),
    Setting(
        "no_progress",
        "int",
        NO_PROGRESS,
        "After so many executions in a row without new progress a job that names no number of its own is held.",
        1,
        1000,
    ),
    Setting(
        "stall_s",
        "seconds",
        None,
        "How long a job that does not say it may go without a publication. Not given: for ever.",
        60,
        30 * DAY_S,
        example='"6h"',
    ),
    Setting(
        "shared_hold_for_s",
        "seconds",
        DAY_S,
        "How long a job with a shared checkpoint waits for a person, or for its executions to have ceased, before "
        "it is closed.",
        60,
        YEAR_S,
    ),
    Setting(
        "longest_hold_s",
        "seconds",
        14 * DAY_S,
        "How long a hold lasts where no rule says it, and the longest that a rule or a person can ask for.",
        60,
        YEAR_S,
    ),
    Setting("launch_failures", "int", 5, "Submissions in a row that may fail to start their script.", 1, 100),
)

_CESSATION: tuple[Setting, ...] = (
    Setting(
        "cessation",
        "argv",
        (BUILT_IN_CESSATION,),
        "The command that is asked whether the processes of an execution are gone (docs/cessation.md). "
        f'["{BUILT_IN_CESSATION}"] is built in: it answers from what the hooks noted. []: nobody is asked, and a '
        "person decides.",
        choices=(BUILT_IN_CESSATION,),
    ),
    Setting(
        "cessation_user",
        "text",
        None,
        "The user as whom the command runs, where the tick is root. Not given: slurm_user.",
        example='"fence"',
    ),
    Setting("cessation_interval_s", "seconds", 60, "How often it is asked about one execution.", 5, 3600),
    Setting("cessation_timeout_s", "seconds", 30, "When a call of it is ended, and its answer is unknown.", 1, 600),
    Setting(
        "notify",
        "argv",
        (),
        "The command that tells a job's owner of a hold (at its start, at half of it and an hour before its end), of "
        "one in Slurm, and of dependents that could not be changed, by JSON on standard input. []: nobody is told.",
    ),
    Setting(
        "notify_user",
        "text",
        None,
        "The user as whom it runs, where the tick is root. Not given: slurm_user.",
        example='"mail"',
    ),
    Setting("notify_timeout_s", "seconds", 30, "When a call of it is ended.", 1, 600),
)

_NODES: tuple[Setting, ...] = (
    Setting(
        "suspicion",
        "bool",
        False,
        "Whether jobs may have --suspect: a replacement before Slurm has given a silent node up.",
    ),
    Setting(
        "suspect_share",
        "number",
        0.01,
        "No suspicion acts while more than this share of the nodes is silent, and more than suspect_count: it is the "
        "network then.",
        0,
        1,
    ),
    Setting(
        "suspect_count",
        "int",
        5,
        "No suspicion acts while more nodes than this are silent, and more than suspect_share of all.",
        1,
        100_000,
    ),
    Setting(
        "suspect_overlaps",
        "int",
        10,
        "How many jobs may at once have a replacement beside an execution that Slurm has not ended; others wait.",
        0,
        100_000,
    ),
    Setting(
        "memory_half_life_s",
        "seconds",
        6 * 3600,
        "What speaks against a node (it was there when an execution failed) counts half after this time.",
        60,
        YEAR_S,
    ),
    Setting("memory_expiry_s", "seconds", 7 * DAY_S, "It is forgotten after this time.", 60, YEAR_S),
    Setting(
        "memory_share",
        "number",
        0.1,
        "The greatest share of a partition's nodes that is excluded for it; 0: none.",
        0,
        1,
    ),
    Setting(
        "breaker_count",
        "int",
        500,
        "So many resubmissions within breaker_window_s hold what comes next, of all jobs.",
        1,
        SUBMISSION_MAX,
    ),
    Setting(
        "breaker_window_s",
        "seconds",
        600,
        "The time that breaker_count and breaker_store_errors are about.",
        60,
        DAY_S,
    ),
    Setting(
        "breaker_drained",
        "int",
        3,
        "So many executions in a row that failed and left a node drained hold what comes next.",
        1,
        1000,
    ),
    Setting(
        "breaker_store_errors",
        "int",
        20,
        "Store errors of so many jobs within breaker_window_s hold what comes next.",
        1,
        100_000,
    ),
    Setting(
        "maintenance_spread_s",
        "seconds",
        600,
        "Jobs that ended in a maintenance come back spread over this time after its end.",
        0,
        DAY_S,
    ),
)

LIMIT_SETTINGS: tuple[Setting, ...] = (
    Setting("user", "names", None, "Jobs of these users. Not given: of everybody.", example='["ada", "ben"]'),
    Setting("account", "names", None, "Jobs under these accounts. Not given: under any.", example='["physics"]'),
    Setting("partition", "names", None, "Jobs in these partitions. Not given: in any.", example='["gpu"]'),
    Setting(
        "per",
        "choice",
        "user",
        "Whose resubmissions are counted together: each user's own, or those of all whom the limit names.",
        choices=("user", "all"),
    ),
    Setting(
        "open_jobs",
        "int",
        None,
        "The most open jobs of each user; one more is refused when it is submitted or opened again.",
        0,
        1_000_000,
        example="1000",
    ),
    Setting(
        "resubmissions_per_hour",
        "int",
        None,
        "The most resubmissions within an hour; what comes next is held.",
        0,
        1_000_000,
        example="200",
    ),
    Setting(
        "actions",
        "names",
        None,
        "What rules may do to bring a job back; a hold and a stop are always allowed.",
        example='["resubmit"]',
        choices=("resubmit", "requeue"),
    ),
    Setting("longest_hold_s", "seconds", None, "The longest hold.", 60, YEAR_S, example='"7d"'),
    Setting(
        "overlap",
        "int",
        None,
        "How many of these jobs may at once have a replacement for --suspect; 0: none.",
        0,
        100_000,
        example="2",
    ),
)
"""What a ``[[limit]]`` table has. Each that names a job counts for it: of several bounds the lowest."""

SETTINGS: tuple[Setting, ...] = (
    *_HOST,
    *_JOBS,
    *_CESSATION,
    *_NODES,
    Setting(
        "rules",
        "rules",
        (),
        'Rules of the site, which come after those of the user: ["preempted:resubmit,budget=50", "failed:stop"].',
    ),
    Setting("limit", "limits", (), "Limits, which stand above what jobs and rules say; see below."),
)
"""Every setting of the site, in the order of the sample."""
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}

JOB_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "checkpoint",
        "text",
        None,
        "the checkpoint root of this job alone, a folder (its last component is made) or s3://BUCKET/PREFIX; needed",
        example='"/scratch/%u/%x"',
        field="root",
        metavar="ROOT",
    ),
    Setting(
        "on",
        "rules",
        (),
        "a rule; may stand more than once, the first that matches counts",
        field="rules",
        metavar="OUTCOMES:ACTION[,OPTION...]",
    ),
    Setting(
        "start-from",
        "text",
        None,
        "begin from this save while the root has no publication",
        example='"/scratch/me/pretrained"',
        field="start_from",
        metavar="PATH",
        negatable=True,
    ),
    Setting(
        "shared-checkpoint",
        "bool",
        False,
        "executions write into the root itself: whatever would bring the job back waits for a person, or for the "
        "executions before to have ceased",
        field="shared",
        negatable=True,
    ),
    Setting(
        "shared-hold-for",
        "seconds",
        DAY_S,
        "how long it waits for that before it is closed",
        60,
        YEAR_S,
        field="shared_hold_for_s",
        site="shared_hold_for_s",
        metavar="TIME",
    ),
    Setting(
        "stall",
        "seconds",
        None,
        "no publication for this long while the command runs: it is ended, outcome stalled",
        60,
        30 * DAY_S,
        example='"30m"',
        field="stall_s",
        site="stall_s",
        metavar="TIME",
        negatable=True,
    ),
    Setting(
        "suspect",
        "seconds",
        None,
        "a node of the execution does not respond for this long: outcome suspect, and the replacement starts "
        "before Slurm gives the node up. Only where the site allows it",
        10,
        3600,
        example='"30s"',
        field="suspect_s",
        metavar="TIME",
        negatable=True,
    ),
    Setting(
        "max-submissions",
        "int",
        100,
        "the most submissions of the job; then it is held",
        1,
        SUBMISSION_MAX,
        field="max_submissions",
        site="max_submissions",
        metavar="N",
    ),
    Setting(
        "max-node-hours",
        "number",
        None,
        "the most node-hours of all executions together; then it is held",
        0.01,
        1e9,
        example="5000",
        field="max_node_hours",
        site="max_node_hours",
        metavar="HOURS",
        negatable=True,
    ),
    Setting(
        "until",
        "date",
        None,
        "from this date or after this time the job is held instead of brought back (2027-01-31, 2027-01-31T18:00, "
        "30d)",
        example='"2027-01-31"',
        field="until",
        metavar="DATE|TIME",
        negatable=True,
    ),
    Setting(
        "no-progress-limit",
        "int",
        NO_PROGRESS,
        "after so many executions in a row without new progress it is held",
        1,
        1000,
        field="no_progress",
        site="no_progress",
        metavar="K",
    ),
    Setting(
        "adopt-root",
        "bool",
        False,
        "the root was another job's: start in a generation above everything in it",
        typed_only=True,
        negatable=True,
    ),
    Setting(
        "job-file",
        "text",
        None,
        "read the settings of this table from a TOML file too",
        metavar="FILE",
        typed_only=True,
        negatable=True,
    ),
    Setting("no-plan", "bool", False, "do not print the plan and the notes", typed_only=True),
    Setting(
        "unprotected",
        "bool",
        False,
        "call sbatch plainly: no record, no recovery",
        typed_only=True,
        negatable=True,
    ),
)
"""Every setting of a job: ``--NAME`` on the command line and in ``#DISPATCH`` lines, ``NAME`` in a job file."""
JOB_BY_NAME = {setting.name: setting for setting in JOB_SETTINGS}
