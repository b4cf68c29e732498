"""Replaces, deletes, aborts and completes, and leaves an empty cluster behind: all data becomes garbage."""

import os

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

s3 = boto3.client(
    "s3",
    endpoint_url=os.environ["AWS_ENDPOINT_URL"],
    region_name="us-east-1",
    config=Config(signature_version="s3v4", retries={"max_attempts": 1}),
)
body = os.urandom(6 << 20)
s3.create_bucket(Bucket="garbage")
for _ in range(3):
    s3.put_object(Bucket="garbage", Key="replaced", Body=body)
assert s3.get_object(Bucket="garbage", Key="replaced")["Body"].read() == body

# A part uploaded five times, an abort, and one that comes too late.
upload = s3.create_multipart_upload(Bucket="garbage", Key="aborted")["UploadId"]
part = dict(Bucket="garbage", Key="aborted", UploadId=upload, PartNumber=1, Body=body)
for _ in range(5):
    s3.upload_part(**part)
s3.abort_multipart_upload(Bucket="garbage", Key="aborted", UploadId=upload)
try:
    s3.upload_part(**part)
    raise AssertionError("a part was taken after the abort")
except ClientError as e:
    assert e.response["Error"]["Code"] == "NoSuchUpload", e

upload = s3.create_multipart_upload(Bucket="garbage", Key="completed")["UploadId"]
part = dict(Bucket="garbage", Key="completed", UploadId=upload, Body=body)
etag = [s3.upload_part(PartNumber=n, **part)["ETag"] for n in [1, 1, 2]][1]
listed = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
s3.complete_multipart_upload(Bucket="garbage", Key="completed", UploadId=upload, MultipartUpload=listed)
assert s3.get_object(Bucket="garbage", Key="completed")["Body"].read() == body

# One that is open when its bucket is deleted.
upload = s3.create_multipart_upload(Bucket="garbage", Key="open")["UploadId"]
s3.upload_part(Bucket="garbage", Key="open", UploadId=upload, PartNumber=1, Body=body)

for key in ["replaced", "completed"]:
    s3.delete_object(Bucket="garbage", Key=key)
s3.delete_bucket(Bucket="garbage")
