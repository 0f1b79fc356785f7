"""Which credentials, region and endpoint count: variables before files, and no secret in any message."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import ConfigurationError, UsageError
from slurm_dispatch.s3.place import KEY_BYTES_MAX, PREFIX_BYTES_MAX, Place, parse_place
from slurm_dispatch.s3.settings import settings

if TYPE_CHECKING:
    from pathlib import Path

CREDENTIALS = """
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = DEFAULTSECRET
[team]
aws_access_key_id = TEAMKEY
aws_secret_access_key = TEAMSECRET
aws_session_token = TEAMTOKEN
"""
CONFIG = """
[default]
region = eu-north-1
[profile team]
region = eu-west-2
endpoint_url = https://team.example
[profile served]
region = eu-west-3
services = here
[profile signed-on]
sso_session = work
[profile half]
aws_access_key_id = HALFKEY
[services here]
s3 =
  addressing_style = path
  endpoint_url = http://s3.example:9000
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The variables that name the two files."""
    (tmp_path / "credentials").write_text(CREDENTIALS)
    (tmp_path / "config").write_text(CONFIG)
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_default_profile(files: dict[str, str]) -> None:
    found = settings(files)
    assert found.config["access_key_id"] == "DEFAULTKEY"
    assert found.config["secret_access_key"] == "DEFAULTSECRET"
    assert found.config["region"] == "eu-north-1"
    assert "endpoint" not in found.config
    assert "eu-north-1" in found.endpoint


def test_a_profile_by_name(files: dict[str, str]) -> None:
    found = settings({**files, "AWS_PROFILE": "team"})
    assert found.config["access_key_id"] == "TEAMKEY"
    assert found.config["session_token"] == "TEAMTOKEN"
    assert found.config["region"] == "eu-west-2"
    assert found.config["endpoint"] == found.endpoint == "https://team.example"
    assert found.client["allow_http"] is False


def test_a_service_of_a_profile(files: dict[str, str]) -> None:
    found = settings({**files, "AWS_PROFILE": "served"})
    assert found.config["endpoint"] == "http://s3.example:9000"
    assert found.client["allow_http"] is True


def test_variables_come_before_files(files: dict[str, str]) -> None:
    given = {
        **files,
        "AWS_PROFILE": "team",
        "AWS_ACCESS_KEY_ID": "VARIABLE",
        "AWS_SECRET_ACCESS_KEY": "SECRET",
        "AWS_DEFAULT_REGION": "us-west-1",
        "AWS_ENDPOINT_URL": "https://general.example",
    }
    found = settings(given)
    assert "access_key_id" not in found.config  # the client reads the variables itself
    assert found.config["region"] == "us-west-1"
    assert found.endpoint == "https://general.example"
    assert settings({**given, "AWS_REGION": "us-west-2"}).config["region"] == "us-west-2"
    assert settings({**given, "AWS_ENDPOINT_URL_S3": "https://s3.example"}).endpoint == "https://s3.example"
    assert "endpoint" not in settings({**given, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}).config


def test_a_role_of_the_machine_is_left_to_the_client(files: dict[str, str]) -> None:
    assert "access_key_id" not in settings({**files, "AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token"}).config


def test_a_profile_that_needs_a_sign_on(files: dict[str, str]) -> None:
    found = settings({**files, "AWS_PROFILE": "signed-on"})
    assert found.profile == "signed-on"
    assert "access_key_id" not in found.config


def test_no_files_at_all(tmp_path: Path) -> None:
    found = settings({"HOME": str(tmp_path)})
    assert found.config == {"conditional_put": "etag"}
    assert found.profile is None


def test_the_condition_cannot_be_turned_off(files: dict[str, str]) -> None:
    """C143: a variable of the client would."""
    assert settings({**files, "AWS_CONDITIONAL_PUT": "disabled"}).config["conditional_put"] == "etag"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"AWS_PROFILE": "nobody"}, "nobody"),
        ({"AWS_PROFILE": "half"}, "half"),
        ({"AWS_ACCESS_KEY_ID": "ONLY"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_CA_BUNDLE": "/nowhere/ca.pem"}, "AWS_CA_BUNDLE"),
        ({"AWS_ENDPOINT_URL": "store.example:9000"}, "store.example:9000 is no URL"),
    ],
)
def test_what_is_wrong_is_named(files: dict[str, str], more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        settings({**files, **more})
    assert "HALFKEY" not in caught.value.line()
    assert "ONLY" not in caught.value.line()


def test_a_file_that_does_not_parse_shows_no_line_of_it(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("aws_secret_access_key = VERYSECRET\n")
    with pytest.raises(ConfigurationError, match="credentials") as caught:
        settings(files)
    assert "VERYSECRET" not in caught.value.line()


def test_secrets_are_not_shown(files: dict[str, str]) -> None:
    assert "SECRET" not in repr(settings(files))


def test_places() -> None:
    assert parse_place("s3://runs/a/b") == parse_place("S3://runs/a/b/") == Place("runs", "a/b")
    assert str(Place("runs", "a/b")) == "s3://runs/a/b"
    assert parse_place("s3://runs") == parse_place("s3://runs/") == Place("runs", "")
    assert str(Place("runs", "")) == "s3://runs"
    assert Place("runs", "").key("pub", "x") == "pub/x"
    assert Place("runs", "a").key("pub", "x") == "a/pub/x"
    longest = parse_place("s3://runs/" + "p" * PREFIX_BYTES_MAX)
    assert len(longest.key("pub", "n" * 255)) <= KEY_BYTES_MAX


@pytest.mark.parametrize(
    "wrong",
    ["s3://", "s3:///x", "s3://b", "s3://bucket//a", "s3://bucket/../a", "s3://bucket/a/./b", "s3://bucket/a\nb",
     "s3://bu cket/a", "s3://-b/a", "s3://bucket/" + "ü" * 300, "s3://bucket/\udc80", "/s3", "gs://bucket/a"],
)  # fmt: skip
def test_what_is_no_place(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_place(wrong)


def test_without_the_extra() -> None:
    """A root in S3 names the extra; everything else works without it, and the package does not load it."""
    program = (
        "import sys\n"
        "sys.modules['obstore'] = None\n"
        "from slurm_dispatch.anyroot import open_store\n"
        "from slurm_dispatch.errors import ConfigurationError\n"
        "print(open_store('/').path)\n"
        "try:\n"
        "    open_store('s3://bucket/run')\n"
        "except ConfigurationError as error:\n"
        "    print(error.line())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == "/"
    assert "slurm-dispatch[s3]" in second


def test_the_client_is_loaded_when_a_root_is_in_s3_and_not_before() -> None:
    program = "import sys, slurm_dispatch.anyroot, slurm_dispatch.s3.root; print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_a_password_in_an_endpoint_is_not_shown(files: dict[str, str]) -> None:
    found = settings({**files, "AWS_ENDPOINT_URL": "http://me:hidden@s3.example:9000/x"})
    assert found.endpoint == "http://s3.example:9000/x"
    assert found.config["endpoint"] == "http://me:hidden@s3.example:9000/x"
    assert "hidden" not in repr(found)
