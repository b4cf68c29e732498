"""Walks boto3 and radosgw-admin through a stock radosgw on a Nacre cluster.

The environment has AWS_ENDPOINT_URL, the keys of the user "u", and CEPH_CONF.
"""

import base64
import hashlib
import hmac
import json
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from s3_client import client, code, empty

s3 = client(s3={"addressing_style": "path"})


def admin(line):
    """Runs radosgw-admin, whose answer is JSON if there is one."""
    command = ["timeout", "60", "radosgw-admin", *line.split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout[:1] in (b"{", b"[") else done.stdout.decode()


def keys(**arguments):
    pages = s3.get_paginator("list_objects_v2").paginate(**arguments)
    return [line["Key"] for page in pages for line in page.get("Contents", [])]


def objects():
    """Many objects in several shards of an index, in pages; statistics; more shards."""
    s3.create_bucket(Bucket="many")
    names = sorted(f"d{at % 3}/k{at:05}" for at in range(1050)) + ["Ünder"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: s3.put_object(Bucket="many", Key=name, Body=b"hello"), names))
    assert keys(Bucket="many") == names
    reply = s3.list_objects_v2(Bucket="many", Delimiter="/")
    assert [line["Prefix"] for line in reply["CommonPrefixes"]] == ["d0/", "d1/", "d2/"], reply
    assert s3.get_object(Bucket="many", Key="d1/k00001")["Body"].read() == b"hello"
    s3.delete_object(Bucket="many", Key="d1/k00001")
    usage = admin("bucket stats --bucket=many")["usage"]["rgw.main"]
    assert (usage["num_objects"], usage["size"]) == (1050, 5250), usage
    admin("bucket reshard --bucket=many --num-shards=13")
    stats = admin("bucket stats --bucket=many")
    assert (stats["num_shards"], stats["usage"]["rgw.main"]["num_objects"]) == (13, 1050), stats
    names.remove("d1/k00001")
    assert keys(Bucket="many") == names
    check = admin("bucket check --bucket=many")["check_result"]
    sizes = [check[header]["usage"]["rgw.main"] for header in ("existing_header", "calculated_header")]
    assert sizes[0] == sizes[1], sizes
    assert admin("user stats --uid=u --sync-stats")["stats"]["num_objects"] == 1050


def uploads():
    """An upload in parts, one that is aborted, and the removal of what both leave."""
    s3.create_bucket(Bucket="parts")
    upload = {"Bucket": "parts", "Key": "dir/big"}
    upload["UploadId"] = s3.create_multipart_upload(Bucket="parts", Key="dir/big")["UploadId"]
    bodies = [b"a" * (5 << 20), b"b" * 1000]
    parts = [
        {"PartNumber": at, "ETag": s3.upload_part(PartNumber=at, Body=body, **upload)["ETag"]}
        for at, body in enumerate(bodies, 1)
    ]
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    assert s3.get_object(Bucket="parts", Key="dir/big")["Body"].read() == b"".join(bodies)
    s3.delete_object(Bucket="parts", Key="dir/big")
    upload["UploadId"] = s3.create_multipart_upload(Bucket="parts", Key="dir/big")["UploadId"]
    s3.upload_part(PartNumber=1, Body=bodies[0], **upload)
    assert len(s3.list_multipart_uploads(Bucket="parts")["Uploads"]) == 1
    s3.abort_multipart_upload(**upload)
    assert len(admin("gc list --include-all")) == 2
    admin("gc process --include-all")
    assert admin("gc list --include-all") == []
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket="parts", LifecycleConfiguration={"Rules": [rule]})
    assert [line["bucket"].split(":")[1] for line in admin("lc list")] == ["parts"]
    s3.delete_bucket(Bucket="parts")


def versions():
    """The versions of an object: from before, with and without an id, and delete markers."""
    k = {"Bucket": "old", "Key": "k"}
    s3.create_bucket(Bucket="old")
    s3.put_object(Body=b"0", **k)
    settings = {"Status": "Enabled"}
    s3.put_bucket_versioning(Bucket="old", VersioningConfiguration=settings)
    ids = [s3.put_object(Body=body, **k)["VersionId"] for body in (b"1", b"2")]

    def listed():
        reply = s3.list_object_versions(Bucket="old")
        lines = reply.get("Versions", []) + reply.get("DeleteMarkers", [])
        return {line["VersionId"]: line["IsLatest"] for line in lines}

    assert listed() == {ids[1]: True, ids[0]: False, "null": False}, listed()
    assert s3.get_object(VersionId="null", **k)["Body"].read() == b"0"
    marker = s3.delete_object(**k)["VersionId"]
    assert code(s3.get_object, **k) == "NoSuchKey"
    assert keys(Bucket="old") == []
    s3.delete_object(VersionId=marker, **k)
    s3.delete_object(VersionId=ids[1], **k)
    assert s3.get_object(**k)["Body"].read() == b"1"
    settings["Status"] = "Suspended"
    s3.put_bucket_versioning(Bucket="old", VersioningConfiguration=settings)
    s3.put_object(Body=b"null", **k)
    assert listed() == {"null": True, ids[0]: False}, listed()
    s3.delete_object(**k)
    assert code(s3.get_object, **k) == "NoSuchKey"
    assert listed() == {"null": True, ids[0]: False}, listed()
    empty(s3, "old")


def passwords():
    """One-time passwords: one counts once."""
    seed = "MZXW6YTBOI"
    device = "--uid=u --totp-serial=d"
    admin(f"mfa create {device} --totp-seed={seed} --totp-seed-type=base32")
    key = base64.b32decode(seed + "=" * (-len(seed) % 8))
    digest = hmac.new(key, struct.pack(">Q", int(time.time()) // 30), hashlib.sha1).digest()
    at = digest[-1] & 15
    pin = (struct.unpack(">I", digest[at : at + 4])[0] & 0x7FFFFFFF) % 10**6
    check = ["radosgw-admin", "mfa", "check", *device.split(), f"--totp-pin={pin:06}"]
    codes = [subprocess.run(check, capture_output=True, check=False).returncode for _ in range(2)]
    assert codes[0] == 0 and codes[1] != 0, codes


with ThreadPoolExecutor(4) as beside:
    for part in [beside.submit(part) for part in (objects, uploads, versions, passwords)]:
        part.result()
