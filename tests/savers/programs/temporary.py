"""Temporary credentials of the role ``Training``, by boto3, as JSON on standard output."""

from __future__ import annotations

import json
import os

import boto3

client = boto3.client("sts", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
given = client.assume_role(RoleArn="arn:aws:iam::role/Training", RoleSessionName="tests")["Credentials"]
print(json.dumps({name: given[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")}))
