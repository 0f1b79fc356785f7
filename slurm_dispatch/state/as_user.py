"""Work done as somebody else: in a child that gives its privileges up for good, with a deadline.

The law: *nothing of a user's is touched with more rights than the user has, and nothing of a user's can
hold the caller up.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULT_MAX = 80 * 1024 * 1024
"""Bytes of a child's answer: more than the largest record."""
OWNER_TIMEOUT_S = 20.0
"""How long one piece of work may take unless told otherwise."""


def in_child(
    uid: int, gid: int, groups: Sequence[int], work: Callable[[], bytes], deadline_s: float = OWNER_TIMEOUT_S
) -> bytes:
    """Run ``work`` in a forked child with exactly this uid, gid and supplementary groups, and return its result.

    The child has no privilege left and cannot regain one, umask 077, working directory ``/``, a session of
    its own, and no descriptor but 0 to 2 (``/dev/null`` and our stderr). Where the caller is not root, uid
    must be his own, and only the deadline and the isolation remain.

    :returns: what ``work`` returned; at most :data:`RESULT_MAX` bytes.
    :raises DispatchError: what ``work`` raised, with its class, message and hint.
    :raises NotAllowedError: uid 0 was asked for by root on behalf of a user, or another's uid by somebody
        who is not root.
    :raises ServiceAwayError: the deadline passed; the child was killed, or left alone if it cannot be.
    """
    raise NotImplementedError
