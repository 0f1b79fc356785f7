"""Whether a store creates one name once: asked before an execution publishes for the first time.

The proof is an object of the execution's own, ``exec/<attempt>/.dispatch/proved``, which is created twice. A store
that honours the condition refuses the second (or, where the proof was given before, already the first). One that
takes both, as several servers and gateways do, would let two runs believe that they published; one that answers 501
does not know the condition. Nobody looks first and puts then: that is a race. Stores with a condition of their own
instead (Google Cloud Storage's generations in its S3 mode, Aliyun's and Tencent's headers) are refused alike.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from slurm_dispatch.errors import CannotCreateError, CorruptError, StoreError, show
from slurm_dispatch.s3.bucket import Made
from slurm_dispatch.s3.trouble import NotImplementedHere
from slurm_dispatch.store.roots import Answer, Finding

if TYPE_CHECKING:
    from slurm_dispatch.s3.bucket import Bucket
    from slurm_dispatch.s3.deadline import Deadline

RACERS = 8
ROUNDS = 3
_OTHER = "use another store: on this one two runs could both believe that they published"


def prove(bucket: Bucket, key: str, deadline: Deadline, *, root: str) -> None:
    """Return if the store has refused to create ``key`` a second time, and keeps an empty object empty.

    :param root: for messages.
    :raises CannotCreateError: it does not; names the endpoint.
    :raises StoreError: it could not be tried.
    """
    try:
        for _ in range(2):
            if bucket.create(key, b"", deadline) is Made.FOUND:
                return
    except NotImplementedHere as error:
        raise CannotCreateError(
            f"checkpoint root {show(root)}: the store at {show(bucket.endpoint)} does not know the condition "
            "'If-None-Match: *' (501)",
            hint=_OTHER,
        ) from error
    except CorruptError as error:
        raise CannotCreateError(
            f"checkpoint root {show(root)}: the store at {show(bucket.endpoint)} does not keep an empty object empty",
            hint="use another store, or a client without AWS_CHECKSUM_ALGORITHM",
        ) from error
    raise CannotCreateError(
        f"checkpoint root {show(root)}: the store at {show(bucket.endpoint)} makes one name twice "
        "(it ignores 'If-None-Match: *')",
        hint=_OTHER,
    )


def race(bucket: Bucket, folder: str) -> int:
    """The greatest number of winners where :data:`RACERS` create one name at once, in :data:`ROUNDS` rounds.

    A store that checks first and writes then honours the condition for one writer and not for two.
    """
    most = 0
    for number in range(ROUNDS):
        key = f"{folder}/race-{number}"
        deadline = bucket.deadline()
        with ThreadPoolExecutor(RACERS) as racers:
            made = list(racers.map(lambda _, key=key, until=deadline: bucket.create(key, b"", until), range(RACERS)))
        most = max(most, made.count(Made.NEW))
    return most


def findings(bucket: Bucket, folder: str, *, root: str) -> list[Finding]:
    """What the store is proved to do; everything is tried below ``folder`` and taken away again.

    :raises StoreError: it could not be tried.
    """
    found: list[Finding] = []
    tag = secrets.token_hex(4)
    here = f"{folder}/try-{tag}"
    bucket.below(here, bucket.deadline(), first=1)  # some stores make a bucket of whatever name they are given
    try:
        found.append(_once(bucket, f"{here}/once", root))
        if found[0].answer is Answer.PROVED:
            winners = race(bucket, here)
            text = f"{ROUNDS} rounds of {RACERS} writers, {winners} winner{'s' if winners != 1 else ''} at most"
            found.append(Finding("one winner of many", Answer.PROVED if winners <= 1 else Answer.REFUSED, text))
        found.append(_listed(bucket, here))
        found.append(_read(bucket, f"{here}/body"))
    finally:
        removed = _clear(bucket, here)
    found.append(removed)
    return found


def _once(bucket: Bucket, key: str, root: str) -> Finding:
    what = "one name once"
    try:
        prove(bucket, key, bucket.deadline(), root=root)
    except CannotCreateError as error:
        return Finding(what, Answer.REFUSED, str(error))
    return Finding(what, Answer.PROVED, "the second put of a name was refused, and the object is empty")


def _listed(bucket: Bucket, folder: str) -> Finding:
    what = "listed at once"
    keys = {meta.key for meta in bucket.below(folder, bucket.deadline())}
    if f"{folder}/once" in keys:
        return Finding(what, Answer.PROVED, "what was put was in the next listing")
    return Finding(what, Answer.LACKING, "what was put was not in the next listing: latest may be late")


def _read(bucket: Bucket, key: str) -> Finding:
    what = "bytes come back"
    body = secrets.token_bytes(64)
    bucket.replace(key, body, bucket.deadline())
    if bucket.read(key, bucket.deadline(), length=len(body) + 1) != body:
        return Finding(what, Answer.REFUSED, "what was read is not what was put")
    if bucket.read(key, bucket.deadline(), offset=8, length=8) != body[8:16]:
        return Finding(what, Answer.REFUSED, "a range that was read is not that of what was put")
    return Finding(what, Answer.PROVED, "whole and in ranges")


def _clear(bucket: Bucket, folder: str) -> Finding:
    what = "objects go"
    try:
        deadline = bucket.deadline()
        for meta in bucket.below(folder, deadline):
            bucket.remove(meta.key, deadline)
    except StoreError as error:
        return Finding(what, Answer.LACKING, f"{error}; old saves cannot be removed, and {show(folder)}/ is left")
    return Finding(what, Answer.PROVED, "what was made for this is removed")
