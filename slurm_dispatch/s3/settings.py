"""Credentials, region and endpoint, by the variables and files that the AWS command line and boto3 read.

Which variable or file counts is said in the AWS SDKs and Tools Reference Guide ("Configuration and credential file
settings", "Service-specific endpoints") and, for the order, in botocore's ``session.py`` and ``credentials.py``: a
variable before a file, ``AWS_ENDPOINT_URL_S3`` before ``AWS_ENDPOINT_URL``, the shared credentials file before the
configuration file. obstore reads variables, roles of web identities, containers and instances by itself; it reads no
files, so that is done here. What needs a program or a sign-on (``credential_process``, ``sso_session``,
``role_arn``) is left to boto3 where it is installed.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.errors import ConfigurationError, show

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEEDS_BOTO3 = ("credential_process", "sso_session", "sso_start_url", "role_arn", "login_session")
_OTHERS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach a store.

    :ivar config: for ``obstore.store.S3Store``; secrets are in it, so it is never shown.
    :ivar client: for its ``client_options``, without timeouts.
    :ivar endpoint: for messages; without a user and a password.
    :ivar profile: whose credentials boto3 must find, or ``None``.
    """

    config: dict[str, str] = field(repr=False)
    client: dict[str, object]
    endpoint: str
    profile: str | None = None


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """What the environment and the files that it names say.

    :raises ConfigurationError: a file does not parse, a profile is not there, half of a pair of keys is, or the
        endpoint is no URL.
    """
    given = os.environ if environment is None else environment
    name = given.get("AWS_PROFILE") or given.get("AWS_DEFAULT_PROFILE")
    secrets, config = _files(given)
    profile = {**config.get(_section(name), {}), **secrets.get(name or "default", {})}
    if name and not profile:
        raise ConfigurationError(f"AWS profile {show(name)} is in neither file", hint="look at AWS_PROFILE")
    # The condition is what publishing rests on: no variable turns it off.
    found = {"conditional_put": "etag"}
    boto3_profile = None
    if not _from_variables(given):
        keys = _keys(profile, name)
        found.update(keys)
        if not keys and any(profile.get(word) for word in _NEEDS_BOTO3):
            boto3_profile = name or "default"
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or profile.get("region")
    if region:
        found["region"] = region
    endpoint = _endpoint(given, profile, config)
    client: dict[str, object] = {}
    if endpoint:
        if not endpoint.lower().startswith(("http://", "https://")):
            raise ConfigurationError(f"the endpoint {show(endpoint)} is no URL", hint="it is http(s)://HOST[:PORT]")
        found["endpoint"] = endpoint
        client["allow_http"] = endpoint.lower().startswith("http://")
    if given.get("AWS_CA_BUNDLE"):
        client["root_certificate"] = _read(given["AWS_CA_BUNDLE"], "AWS_CA_BUNDLE")
    shown = re.sub(r"//[^/]*@", "//", endpoint) if endpoint else f"Amazon S3 ({region or 'us-east-1'})"
    return Settings(found, client, shown, boto3_profile)


def _from_variables(given: Mapping[str, str]) -> bool:
    """Whether obstore finds credentials in the environment."""
    key, secret = given.get("AWS_ACCESS_KEY_ID"), given.get("AWS_SECRET_ACCESS_KEY")
    if bool(key) != bool(secret):
        raise ConfigurationError("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set")
    return bool(key) or any(given.get(name) for name in _OTHERS)


def _keys(profile: Mapping[str, str], name: str | None) -> dict[str, str]:
    words = ("access_key_id", "secret_access_key", "session_token")
    keys = {word: profile[f"aws_{word}"] for word in words if profile.get(f"aws_{word}")}
    if keys and len(keys.keys() & set(words[:2])) < 2:
        raise ConfigurationError(f"AWS profile {show(name or 'default')} has only one of its two keys")
    return keys


def _endpoint(
    given: Mapping[str, str], profile: Mapping[str, str], config: Mapping[str, Mapping[str, str]]
) -> str | None:
    if (given.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or "").lower() == "true":
        return None
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        if given.get(variable):
            return given[variable]
    services = config.get(f"services {profile['services']}", {}) if profile.get("services") else {}
    # Indented lines below `s3 =` are one value with newlines in it.
    for line in services.get("s3", "").splitlines():
        word, _, value = line.partition("=")
        if word.strip() == "endpoint_url" and value.strip():
            return value.strip()
    return profile.get("endpoint_url") or None


def _section(name: str | None) -> str:
    return f"profile {name}" if name and name != "default" else "default"


def _files(given: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    home = given.get("HOME") or os.path.expanduser("~")
    secrets = given.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials")
    config = given.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config")
    return _parse(os.path.expanduser(secrets)), _parse(os.path.expanduser(config))


def _parse(path: str) -> dict[str, dict[str, str]]:
    """The sections of a file; none where there is no file."""
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        # Only what kind of error: a line of such a file may be a secret.
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"AWS file {show(path)} cannot be read: {reason}") from error
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _read(path: str, variable: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"{variable} {show(path)} cannot be read: {error.strerror}") from error
