"""Tenants: their users have names of buckets of their own, over S3, over Swift and for administrators.

Arguments: the program, and the folder of the cluster. The environment has AWS_ENDPOINT_URL.
"""

import json
import os
import subprocess
import sys

import swiftclient
from botocore.handlers import validate_bucket_name

from s3_client import admin, client, code, commands, eventually

program, folder = sys.argv[1:]
endpoint = os.environ["AWS_ENDPOINT_URL"]
nacre = commands(program, folder)
keys = {}


def new(uid):
    """A user and its client, which sends names with a colon as they are."""
    made = nacre("user", "create", "--uid", uid, "--display-name", uid)
    keys[uid] = made["keys"][0]["access_key"], made["keys"][0]["secret_key"]
    s3 = client(*keys[uid])
    s3.meta.events.unregister("before-parameter-build.s3", validate_bucket_name)
    return s3


def body(s3, bucket, key="key"):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def names(s3):
    return [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]


plain, anna, bert = new("plain"), new("red$anna"), new("blue$bert")
owners = {"plain": (plain, ""), "red$anna": (anna, "red"), "blue$bert": (bert, "blue")}
for uid, (s3, _) in owners.items():
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="key", Body=uid.encode())
for uid, (s3, tenant) in owners.items():
    assert body(s3, "data") == uid.encode() and names(s3) == ["data"], uid
    assert body(s3, f"{tenant}:data") == uid.encode(), uid
    assert s3.list_objects_v2(Bucket="data")["Name"] == "data"
# Those of others are found by their tenant, and are the others'.
for s3, bucket in [(anna, "blue:data"), (anna, ":data"), (plain, "red:data"), (bert, "red:data")]:
    assert code(s3.get_object, Bucket=bucket, Key="key") == "AccessDenied", bucket
assert code(anna.get_object, Bucket="green:data", Key="key") == "NoSuchBucket"
assert code(anna.create_bucket, Bucket="blue:mine") == "AccessDenied"
assert code(anna.create_bucket, Bucket="red:data") == "BucketAlreadyOwnedByYou"
carl = new("red$carl")
assert code(carl.create_bucket, Bucket="data") == "BucketAlreadyExists"

# A policy lets a user of another tenant in; it may leave out the bucket's own.
for resource in ["arn:aws:s3:::data/*", "arn:aws:s3::red:data/*"]:
    allow = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::blue:user/bert"},
             "Action": "s3:GetObject", "Resource": resource}
    anna.put_bucket_policy(Bucket="data", Policy=json.dumps({"Version": "2012-10-17", "Statement": allow}))
    assert body(bert, "red:data") == b"red$anna" and body(bert, "data") == b"blue$bert", resource
allow["Resource"] = "arn:aws:s3::blue:data/*"
wrong = json.dumps({"Version": "2012-10-17", "Statement": allow})
assert code(anna.put_bucket_policy, Bucket="data", Policy=wrong) == "MalformedPolicy"
copied = {"Bucket": "data", "Key": "key"}
bert.copy_object(Bucket="data", Key="copy", CopySource=copied)
assert body(bert, "data", "copy") == b"blue$bert"
assert code(bert.copy_object, Bucket="data", Key="copy", CopySource="red:data/key") == "NotImplemented"
upload = bert.create_multipart_upload(Bucket="data", Key="parts")["UploadId"]
part = bert.upload_part(Bucket="data", Key="parts", UploadId=upload, PartNumber=1, Body=b"part")
parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
bert.complete_multipart_upload(Bucket="data", Key="parts", UploadId=upload, MultipartUpload=parts)
assert body(bert, "data", "parts") == b"part"
bert.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "parts"}, {"Key": "copy"}]})
form = anna.generate_presigned_post("data", "form")["fields"]
words = [word for field in form.items() for word in ["-F", "=".join(field)]]
posted = ["curl", "-sf", *words, "-F", "file=@-", f"{endpoint}/data"]
subprocess.run(posted, check=True, input=b"posted")
assert body(anna, "data", "form") == b"posted"
# Rules for pages of other sites are those of the sender's bucket.
rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["https://red.test"]}
anna.put_bucket_cors(Bucket="data", CORSConfiguration={"CORSRules": [rule]})
address = anna.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "key"})
head = subprocess.run(["curl", "-sfD-", "-o/dev/null", "-HOrigin: https://red.test", address], check=True,
                      stdout=subprocess.PIPE, text=True).stdout
assert "access-control-allow-origin: https://red.test" in head.lower(), head

# Users see their own usage without a capability, and that of no others.
status, used = admin("GET", "usage", keys["red$anna"], uid="red$anna")
assert status == 200 and [of["user"] for of in used["entries"]] == ["red$anna"], used
assert {of["bucket"] for of in used["entries"][0]["buckets"]} >= {"red/data"}, used
for wrong in [dict(uid="plain"), dict(uid="blue$bert"), dict(), dict(uid="anna", tenant="blue")]:
    assert admin("GET", "usage", keys["red$anna"], **wrong)[0] == 403, wrong
assert admin("GET", "usage", keys["plain"], uid="plain", tenant="red")[0] == 403
assert admin("DELETE", "usage", keys["plain"], uid="plain")[0] == 403

# Administration names both.
assert {"data", "red/data", "blue/data"} <= set(nacre("bucket", "list"))
assert nacre("bucket", "list", "--uid", "red$anna") == ["red/data"]
for words in [["--bucket", "red/data"], ["--bucket", "data", "--tenant", "red"]]:
    stats = nacre("bucket", "stats", *words)
    shown = stats["bucket"], stats["tenant"], stats["owner"], stats["usage"]["rgw.main"]["num_objects"]
    assert shown == ("data", "red", "red$anna", 2), stats
nacre("bucket", "link", "--bucket", "red/data", "--uid", "red$carl")
eventually(lambda: names(carl) == ["data"] and names(anna) == [])
nacre("bucket", "link", "--bucket", "red/data", "--uid", "red$anna")
eventually(lambda: names(anna) == ["data"])
# One without a tenant keeps its name, and users of its owner's tenant find it while that has no such name.
plain.create_bucket(Bucket="older")
nacre("bucket", "link", "--bucket", "older", "--uid", "red$anna")
eventually(lambda: names(anna) == ["data", "older"])
anna.put_object(Bucket="older", Key="key", Body=b"older")
for bucket in ["older", "red:older", ":older"]:
    assert body(anna, bucket) == b"older", bucket
assert code(bert.get_object, Bucket="older", Key="key") == "NoSuchBucket"
assert code(anna.create_bucket, Bucket="older") == "BucketAlreadyOwnedByYou"
for words in [["--bucket", ":data", "--uid", "red$anna"], ["--bucket", "red/data", "--uid", "blue$bert"]]:
    command = [program, "s3", "bucket", "link", *words, "--data", folder]
    assert subprocess.run(command, stderr=subprocess.PIPE).returncode != 0, words

# Swift: the account is the user with its tenant.
nacre("subuser", "create", "--uid", "red$anna", "--subuser", "main", "--access", "full")
nacre("key", "create", "--uid", "red$anna", "--subuser", "main", "--key-type", "swift", "--secret", "geheim")
swift = swiftclient.Connection(f"{endpoint}/auth/v1.0", "red$anna:main", "geheim", retries=0)
assert swift.get_auth()[0].endswith("/AUTH_red%24anna")
assert [line["name"] for line in swift.get_account()[1]] == ["data", "older"]
assert swift.get_object("data", "key")[1] == b"red$anna"
swift.put_object("data", "swift", b"both")
assert body(anna, "data", "swift") == b"both"
swift.put_container("box", {"X-Versions-Location": "old"})
swift.put_container("old")
for contents in [b"1", b"2"]:
    swift.put_object("box", "key", contents)
assert body(anna, "box") == b"2" and len(swift.get_container("old")[1]) == 1
swift.delete_object("box", "key")
assert swift.get_object("box", "key")[1] == b"1"

for uid, (s3, _) in owners.items():
    for bucket in names(s3):
        listed = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        for line in listed:
            s3.delete_object(Bucket=bucket, Key=line["Key"])
        s3.delete_bucket(Bucket=bucket)
    nacre("user", "rm", "--uid", uid)
nacre("user", "rm", "--uid", "red$carl")
