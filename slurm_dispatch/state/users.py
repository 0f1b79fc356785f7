"""Who somebody is on this host: by the user and group databases, never by a record."""

from __future__ import annotations

import os
import pwd

from slurm_dispatch.errors import ConfigurationError, NotAllowedError
from slurm_dispatch.state.as_user import groups_of


def identity(uid: int) -> tuple[int, list[int]]:
    """The group and the supplementary groups that this user has now.

    From the group database, never from the record: an owner could write other groups there.

    :raises NotAllowedError: nobody has this uid here.
    """
    if uid == os.geteuid() and uid != 0:
        return os.getegid(), os.getgroups()
    try:
        user = pwd.getpwuid(uid)
    except KeyError as error:
        raise NotAllowedError(f"uid {uid} has no name on this host", hint="its jobs are not looked at") from error
    return user.pw_gid, groups_of(user.pw_name, user.pw_gid)


def identity_of(user: str, setting: str) -> tuple[int, int, list[int]]:
    """The uid, the group and the supplementary groups of a user that a setting names; where the caller is not root,
    his own.

    :param user: a name or a number.
    :raises ConfigurationError: there is no such user here; names the setting.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid(), os.getgroups()
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise ConfigurationError(f"there is no user {user} on this host", hint=f"{setting} must name one") from error
    return found.pw_uid, found.pw_gid, groups_of(found.pw_name, found.pw_gid)


def user_name(uid: int) -> str:
    """The name that this uid has here, or the uid as text."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_name() -> str:
    """The caller's name.

    :raises NotAllowedError: he has none here.
    """
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise NotAllowedError(f"uid {uid} has no name on this host") from error


__all__ = ["identity", "identity_of", "own_name", "user_name"]
