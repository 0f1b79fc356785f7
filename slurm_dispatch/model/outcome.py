"""How an execution can end, and the few words that go with it (section 2 of the design)."""

from __future__ import annotations

from enum import Enum


class Outcome(str, Enum):
    """How an execution ended. The value is the word that rules, facts and messages use."""

    COMPLETED = "completed"
    UNFINISHED = "unfinished"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAIL = "node_fail"
    BOOT_FAIL = "boot_fail"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    LAUNCH_FAILED = "launch_failed"
    STALLED = "stalled"
    NOT_RESUMED = "not_resumed"
    STORE_ERROR = "store_error"
    SUSPECT = "suspect"
    LOST = "lost"

    def __str__(self) -> str:
        return self.value


class Action(str, Enum):
    """What a rule does about an outcome."""

    RESUBMIT = "resubmit"
    REQUEUE = "requeue"
    HOLD = "hold"
    STOP = "stop"

    def __str__(self) -> str:
        return self.value


UNFINISHED_STATUS = 85
"""A command that ends with this status has saved and wants to go on."""
