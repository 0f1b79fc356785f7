"""Who somebody is on this host."""

from __future__ import annotations

import os
import pwd

import pytest

from slurm_dispatch.errors import ConfigurationError, NotAllowedError
from slurm_dispatch.state import users

NOBODY = 2**31 - 5
"""A uid that has no name."""


def test_the_group_of_an_owner_comes_from_the_database() -> None:
    user = pwd.getpwnam("nobody")
    if os.geteuid() == 0:
        assert users.identity(user.pw_uid)[0] == user.pw_gid
    else:
        assert users.identity(os.geteuid())[0] == os.getegid()
    with pytest.raises(NotAllowedError):
        users.identity(NOBODY)


def test_a_user_that_a_setting_names(monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("nobody", str(user.pw_uid)):
        assert users.identity_of(name, "notify_user")[:2] == (user.pw_uid, user.pw_gid)
    for name in ("no-such-user", str(NOBODY), "9" * 30):
        with pytest.raises(ConfigurationError, match=f"no user {name} on this host") as error:
            users.identity_of(name, "notify_user")
        assert error.value.hint == "notify_user must name one"


def test_who_is_not_root_is_himself_whatever_a_setting_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert users.identity_of("no-such-user", "notify_user")[0] == 1234


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (users.user_name(0), users.user_name(NOBODY)) == ("root", str(NOBODY))
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(NotAllowedError, match=f"uid {NOBODY} has no name on this host"):
        users.own_name()
