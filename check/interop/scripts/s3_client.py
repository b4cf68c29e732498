"""What the scripts for S3 have in common: a client, and a look at failures.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import os

import boto3
from botocore.client import Config
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
