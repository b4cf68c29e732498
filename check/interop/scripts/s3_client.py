"""What the scripts for S3 have in common: a client, a look at failures, and administration.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError


def client(access_key=None, secret_key=None, token=None, endpoint=None, **config):
    """A client, by default with the keys and the endpoint of the environment."""
    settings = {"signature_version": "s3v4", "retries": {"max_attempts": 2}, **config}
    # Debian's boto3 does not know AWS_ENDPOINT_URL.
    return boto3.client(
        "s3",
        endpoint_url=endpoint or os.environ["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        aws_session_token=token,
        config=Config(**settings),
    )


def code(call, **arguments):
    """The code with which a call fails."""
    try:
        call(**arguments)
    except ClientError as e:
        return e.response["Error"]["Code"]
    raise AssertionError(f"{call} did not fail")


def empty(s3, bucket):
    """Removes all versions of all objects, and the bucket."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for line in page.get("Versions", []) + page.get("DeleteMarkers", []):
            s3.delete_object(Bucket=bucket, Key=line["Key"], VersionId=line["VersionId"])
    s3.delete_bucket(Bucket=bucket)


def commands(program, folder):
    """What carries out a command: the JSON that `nacre s3` prints; none if it prints nothing."""

    def nacre(*words):
        command = [program, "s3", *words, "--data", folder]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(out) if out else None

    return nacre


def admin(method, path, by, endpoint=None, **parameters):
    """Status and JSON of a request of the Admin Ops API, with an access key and its secret."""
    parameters = {name.replace("_", "-"): value for name, value in parameters.items()}
    # Signatures know a space as %20 only.
    query = urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)
    endpoint = endpoint or os.environ["AWS_ENDPOINT_URL"]
    request = AWSRequest(method=method, url=f"{endpoint}/admin/{path}?{query}")
    S3SigV4Auth(Credentials(*by), "s3", "us-east-1").add_auth(request)
    request = urllib.request.Request(request.url, method=method, headers=dict(request.headers))
    try:
        with urllib.request.urlopen(request) as answer:
            body = answer.read()
            return answer.status, json.loads(body) if body else None
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def eventually(check):
    """Gateways use what they know of users and buckets for some seconds."""
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
