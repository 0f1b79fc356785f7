"""Temporary credentials, given by a real server: a session token is sent, and one that has expired is said so.

SeaweedFS gives them by ``AssumeRole`` (its wiki, "S3 Credentials" and ``weed s3 -iam.config``: ``sts``, ``roles``).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.main import main
from tests.s3.fixtures import no_aws_files
from tests.s3.servers import BUCKET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["no_aws_files"]

pytestmark = pytest.mark.savers
PROGRAM = Path(__file__).resolve().parent / "programs" / "temporary.py"
LIFE_S = 15
ANYTHING = {"Effect": "Allow", "Action": ["*"], "Resource": ["*"]}
WHOEVER = {"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]}
IAM = {
    "sts": {
        "tokenDuration": f"{LIFE_S}s", "maxSessionLength": "12h", "issuer": "tests",
        "signingKey": base64.b64encode(b"k" * 32).decode(),
    },
    "policy": {"defaultEffect": "Allow", "storeType": "memory"},
    "policies": [{"name": "All", "document": {"Version": "2012-10-17", "Statement": [ANYTHING]}}],
    "roles": [
        {
            "roleName": "Training", "roleArn": "arn:aws:iam::role/Training", "attachedPolicies": ["All"],
            "trustPolicy": {"Version": "2012-10-17", "Statement": [WHOEVER]},
        }
    ],
}  # fmt: skip


class WithRoles(Seaweed):
    """One that gives temporary credentials."""

    def argv(self) -> list[str]:
        path = self.folder / "iam.json"
        path.write_text(json.dumps(IAM))
        return [*super().argv(), f"-s3.iam.config={path}"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WithRoles]:
    made = WithRoles(tmp_path)
    made.start()
    yield made
    made.stop()


def test_temporary_credentials(
    server: WithRoles, libraries: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """They do as long as they live; then the cause is said, at once and not after the timeout."""
    environment = {**os.environ, **server.environment()}
    said = subprocess.run(
        [str(libraries), str(PROGRAM)], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    expire_at = time.monotonic() + LIFE_S
    given = json.loads(said.stdout)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", given["SessionToken"])
    assert main(["doctor", "--root", f"s3://{BUCKET}/run"]) == 0
    time.sleep(max(expire_at + 2 - time.monotonic(), 0))
    capsys.readouterr()
    begun = time.monotonic()
    assert main(["ls", "--root", f"s3://{BUCKET}/run"]) == 74
    assert time.monotonic() - begun < 5
    error = capsys.readouterr().err
    assert "temporary ones expire" in error
    assert error.count("\n") == 1
    assert given["SecretAccessKey"] not in error
