"""Replaces, deletes, aborts and completes, and leaves an empty cluster behind: all data becomes garbage."""

import os
import time

from botocore.exceptions import ClientError

from s3_client import client

s3 = client(retries={"max_attempts": 1})
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

# Lifecycle rules delete what is left. A day is a second here.
upload = s3.create_multipart_upload(Bucket="garbage", Key="old/upload")["UploadId"]
for key in ["old/a", "old/b", "new"]:
    s3.put_object(Bucket="garbage", Key=key, Body=body)
rule = {
    "ID": "old",
    "Status": "Enabled",
    "Filter": {"Prefix": "old/"},
    "Expiration": {"Days": 1},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
}
s3.put_bucket_lifecycle_configuration(Bucket="garbage", LifecycleConfiguration={"Rules": [rule]})
deadline = time.monotonic() + 60
while True:
    keys = [line["Key"] for line in s3.list_objects_v2(Bucket="garbage").get("Contents", [])]
    uploads = [line["Key"] for line in s3.list_multipart_uploads(Bucket="garbage").get("Uploads", [])]
    if keys == ["new"] and uploads == ["open"]:
        break
    assert time.monotonic() < deadline, f"rules were not carried out: {keys} {uploads}"
    time.sleep(0.2)
s3.delete_object(Bucket="garbage", Key="new")

# Storage classes: COLD has its data in a pool of its own.
cold = dict(Bucket="garbage", StorageClass="COLD")
for key, content in ("cold/large", body), ("cold/small", b"small"):
    s3.put_object(Key=key, Body=content, **cold)
    got = s3.get_object(Bucket="garbage", Key=key)
    assert got["StorageClass"] == "COLD" and got["Body"].read() == content, got
piece = s3.get_object(Bucket="garbage", Key="cold/large", Range="bytes=5000000-5000009")
assert piece["Body"].read() == body[5_000_000:5_000_010]
try:
    s3.put_object(Bucket="garbage", Key="cold/none", Body=b"", StorageClass="LUKEWARM")
    raise AssertionError("a storage class was taken that there is not")
except ClientError as e:
    assert e.response["Error"]["Code"] == "InvalidStorageClass", e
upload = s3.create_multipart_upload(Key="cold/upload", **cold)["UploadId"]
part = s3.upload_part(Bucket="garbage", Key="cold/upload", UploadId=upload, PartNumber=1, Body=body)
listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
s3.complete_multipart_upload(Bucket="garbage", Key="cold/upload", UploadId=upload, MultipartUpload=listed)
source = {"Bucket": "garbage", "Key": "cold/large"}
s3.copy_object(Bucket="garbage", Key="cold/large", CopySource=source, StorageClass="STANDARD")
assert "StorageClass" not in s3.head_object(Bucket="garbage", Key="cold/large")
assert s3.get_object(Bucket="garbage", Key="cold/large")["Body"].read() == body
s3.put_object(Bucket="garbage", Key="cold/sealed", Body=body, ServerSideEncryption="AES256")
before = s3.head_object(Bucket="garbage", Key="cold/large")
moves = {
    "ID": "cold",
    "Status": "Enabled",
    "Filter": {"Prefix": "cold/"},
    "Transitions": [{"Days": 1, "StorageClass": "COLD"}],
}
s3.put_bucket_lifecycle_configuration(Bucket="garbage", LifecycleConfiguration={"Rules": [moves]})
deadline = time.monotonic() + 60
while {line["StorageClass"] for line in s3.list_objects_v2(Bucket="garbage")["Contents"]} != {"COLD"}:
    assert time.monotonic() < deadline, "objects were not moved"
    time.sleep(0.2)
after = s3.head_object(Bucket="garbage", Key="cold/large")
assert after["ETag"] == before["ETag"] and after["LastModified"] == before["LastModified"], after
for key in "cold/large", "cold/sealed", "cold/upload":
    assert s3.get_object(Bucket="garbage", Key=key)["Body"].read() == body, key
s3.delete_bucket_lifecycle(Bucket="garbage")
for key in "cold/large", "cold/small", "cold/upload", "cold/sealed":
    s3.delete_object(Bucket="garbage", Key=key)



# An object that ends by itself, as over Swift: not only hidden, but deleted.
def add_end(request, **_):
    request.headers["X-Delete-At"] = str(int(time.time()) + 2)


s3.meta.events.register("before-sign.s3.PutObject", add_end)
s3.put_object(Bucket="garbage", Key="ends", Body=body)
while True:
    try:
        s3.delete_bucket(Bucket="garbage")
        break
    except ClientError as e:
        assert e.response["Error"]["Code"] == "BucketNotEmpty", e
    assert time.monotonic() < deadline + 60
    time.sleep(0.2)
