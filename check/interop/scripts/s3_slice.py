"""Walks boto3 through a gateway: what a first program of a user does, and the keys that broke other servers.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import base64
import hashlib
import os
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from s3_client import client, code

s3 = client()


def keys(bucket, **arguments):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **arguments)
    return [line["Key"] for page in pages for line in page.get("Contents", [])]


def buckets():
    s3.create_bucket(Bucket="first")
    assert code(s3.create_bucket, Bucket="first") == "BucketAlreadyOwnedByYou"
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["first"]
    assert s3.get_bucket_location(Bucket="first")["LocationConstraint"] is None
    s3.head_bucket(Bucket="first")
    assert code(s3.list_objects_v2, Bucket="second") == "NoSuchBucket"
    s3.put_object(Bucket="first", Key="k", Body=b"v")
    assert code(s3.delete_bucket, Bucket="first") == "BucketNotEmpty"
    s3.delete_object(Bucket="first", Key="k")
    s3.delete_object(Bucket="first", Key="k")
    s3.delete_bucket(Bucket="first")
    assert code(s3.put_object, Bucket="first", Key="k", Body=b"v") == "NoSuchBucket"
    assert s3.list_buckets()["Buckets"] == []
    # A bucket of the same name is another one.
    s3.create_bucket(Bucket="first")
    assert keys("first") == []


def bodies():
    for size in [0, 1, 4096, 4097, 3 << 20, (9 << 20) + 5]:
        body = os.urandom(size)
        put = s3.put_object(
            Bucket="first", Key="body", Body=body, ContentType="text/x-test", Metadata={"Colour": "blue"}
        )
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        got = s3.get_object(Bucket="first", Key="body")
        assert got["Body"].read() == body and put["ETag"] == got["ETag"] == etag
        assert (got["ContentType"], got["Metadata"]) == ("text/x-test", {"colour": "blue"})
        head = s3.head_object(Bucket="first", Key="body")
        assert head["ContentLength"] == size and head["ETag"] == etag
        if size > 4:
            got = s3.get_object(Bucket="first", Key="body", Range="bytes=2-4")
            assert got["Body"].read() == body[2:5] and got["ContentRange"] == f"bytes 2-4/{size}"
            got = s3.get_object(Bucket="first", Key="body", Range=f"bytes={size - 3}-{size + 9}")
            assert got["Body"].read() == body[-3:]
            got = s3.get_object(Bucket="first", Key="body", Range="bytes=-2")
            assert got["Body"].read() == body[-2:]
        assert code(s3.get_object, Bucket="first", Key="body", Range=f"bytes={size}-") == "InvalidRange"
    assert code(s3.get_object, Bucket="first", Key="none") == "NoSuchKey"
    assert code(s3.head_object, Bucket="first", Key="none") == "404"
    md5 = "CY9rzUYh03PK3k6DJie09g=="
    assert code(s3.put_object, Bucket="first", Key="bad", Body=b"x", ContentMD5=md5) == "BadDigest"
    assert code(s3.head_object, Bucket="first", Key="bad") == "404"


def odd_keys():
    odd = [
        "a//", "a///b", "a/./b", "a/..", "/lead", "//..", "per%cent", "pl+us", "sp ace", "at@", "a%2Bb",
        "\ue000", "\U00010000", "obj+", "obj/", "obj1", "ä/ö", "quote'\"<&>",
    ]
    s3.create_bucket(Bucket="odd")
    for key in odd:
        s3.put_object(Bucket="odd", Key=key, Body=key.encode())
    assert keys("odd") == sorted(odd, key=lambda key: key.encode())
    for key in odd:
        assert s3.get_object(Bucket="odd", Key=key)["Body"].read() == key.encode()
        s3.copy_object(Bucket="odd", Key="copy of " + key, CopySource={"Bucket": "odd", "Key": key})
        assert s3.get_object(Bucket="odd", Key="copy of " + key)["Body"].read() == key.encode()
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "odd", "Key": "a///b"})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"a///b"
    head, signature = url.split("Signature=")
    wrong = head + "Signature=" + ("1" if signature[0] == "0" else "0") + signature[1:]
    try:
        urllib.request.urlopen(wrong)
        raise AssertionError("a wrong signature was taken")
    except urllib.error.HTTPError as e:
        assert e.code == 403
    # Behind a key that does not exist.
    page = s3.list_objects_v2(Bucket="odd", StartAfter="obj0")
    assert page["Contents"][0]["Key"] == "obj1"
    deleted = s3.delete_objects(
        Bucket="odd", Delete={"Objects": [{"Key": key} for key in keys("odd")] + [{"Key": "none"}]}
    )
    assert len(deleted["Deleted"]) == 2 * len(odd) + 1 and keys("odd") == []
    s3.delete_bucket(Bucket="odd")


def listings():
    s3.create_bucket(Bucket="lists")
    names = [f"{a}/{b}" for a in "abc" for b in range(40)] + ["root", "b"]
    for name in names:
        s3.put_object(Bucket="lists", Key=name, Body=b"")
    assert keys("lists", PaginationConfig={"PageSize": 7}) == sorted(names)
    for page_size in [1, 2, 1000]:
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket="lists", Delimiter="/", PaginationConfig={"PageSize": page_size}
        )
        pages = list(pages)
        prefixes = [line["Prefix"] for page in pages for line in page.get("CommonPrefixes", [])]
        found = [line["Key"] for page in pages for line in page.get("Contents", [])]
        assert (prefixes, found) == (["a/", "b/", "c/"], ["b", "root"])
    found = [o["Key"] for o in s3.list_objects(Bucket="lists", Prefix="b/3", MaxKeys=5)["Contents"]]
    assert found == ["b/3", "b/30", "b/31", "b/32", "b/33"]
    old = s3.list_objects(Bucket="lists", Delimiter="/", MaxKeys=1)
    assert old["IsTruncated"] and old["NextMarker"] == "a/"
    rest = s3.list_objects(Bucket="lists", Delimiter="/", Marker="a/")
    assert [p["Prefix"] for p in rest["CommonPrefixes"]] == ["b/", "c/"]


def uploads():
    part = os.urandom(5 << 20)
    begin = lambda key: s3.create_multipart_upload(Bucket="first", Key=key, ContentType="a/b")["UploadId"]
    put = lambda key, id, n, body: s3.upload_part(
        Bucket="first", Key=key, UploadId=id, PartNumber=n, Body=body
    )["ETag"]
    upload = begin("large")
    etags = {2: put("large", upload, 2, part), 7: put("large", upload, 7, b"tail")}
    put("large", upload, 7, b"not this")
    etags[7] = put("large", upload, 7, b"the tail")
    put("large", upload, 9, b"not used")
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket="first")["Uploads"]] == [upload]
    parts = s3.list_parts(Bucket="first", Key="large", UploadId=upload)["Parts"]
    assert [p["PartNumber"] for p in parts] == [2, 7, 9]
    listed = {"Parts": [{"PartNumber": n, "ETag": etags[n]} for n in [2, 7]]}
    finish = lambda: s3.complete_multipart_upload(
        Bucket="first", Key="large", UploadId=upload, MultipartUpload=listed
    )
    done = finish()
    digests = b"".join(hashlib.md5(b).digest() for b in [part, b"the tail"])
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-2"'
    # A client that lost the answer asks again.
    assert finish()["ETag"] == done["ETag"]
    got = s3.get_object(Bucket="first", Key="large")
    assert got["Body"].read() == part + b"the tail" and got["ContentType"] == "a/b"
    assert s3.get_object(Bucket="first", Key="large", PartNumber=2)["Body"].read() == b"the tail"
    assert s3.get_object(Bucket="first", Key="large", Range="bytes=5242879-5242881")["Body"].read() == (
        part[-1:] + b"th"
    )
    late = dict(Bucket="first", Key="large", UploadId=upload, PartNumber=1, Body=b"late")
    assert code(s3.upload_part, **late) == "NoSuchUpload"

    upload = begin("small parts")
    listed = [{"PartNumber": n, "ETag": put("small parts", upload, n, b"x")} for n in [1, 2]]
    arguments = dict(Bucket="first", Key="small parts", UploadId=upload)
    assert code(s3.complete_multipart_upload, MultipartUpload={"Parts": listed}, **arguments) == "EntityTooSmall"
    s3.abort_multipart_upload(**arguments)
    assert code(s3.list_parts, **arguments) == "NoSuchUpload"
    assert code(s3.abort_multipart_upload, **arguments) == "NoSuchUpload"
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="first")

    # The id is good for its bucket only.
    s3.create_bucket(Bucket="other")
    upload = begin("same")
    etag = put("same", upload, 1, b"1")
    there = dict(Bucket="other", Key="same", UploadId=upload)
    listed = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    assert code(s3.upload_part, PartNumber=1, Body=b"2", **there) == "NoSuchUpload"
    assert code(s3.list_parts, **there) == "NoSuchUpload"
    assert code(s3.complete_multipart_upload, MultipartUpload=listed, **there) == "NoSuchUpload"
    assert code(s3.abort_multipart_upload, **there) == "NoSuchUpload"
    put("same", upload, 2, b"still open")
    s3.abort_multipart_upload(Bucket="first", Key="same", UploadId=upload)
    s3.delete_bucket(Bucket="other")

    upload = begin("copied")
    copied = s3.upload_part_copy(
        Bucket="first", Key="copied", UploadId=upload, PartNumber=1,
        CopySource={"Bucket": "first", "Key": "large"}, CopySourceRange="bytes=1-9",
    )["CopyPartResult"]["ETag"]
    s3.complete_multipart_upload(
        Bucket="first", Key="copied", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": copied}]},
    )
    assert s3.get_object(Bucket="first", Key="copied")["Body"].read() == part[1:10]


def copies():
    body = os.urandom(6 << 20)
    s3.put_object(Bucket="first", Key="source", Body=body, Metadata={"a": "1"})
    source = {"Bucket": "first", "Key": "source"}
    assert code(s3.copy_object, Bucket="first", Key="source", CopySource=source) == "InvalidRequest"
    before = s3.head_object(Bucket="first", Key="source")
    s3.copy_object(
        Bucket="first", Key="source", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"}
    )
    after = s3.get_object(Bucket="first", Key="source")
    assert after["Body"].read() == body and after["Metadata"] == {"b": "2"}
    assert after["ETag"] == before["ETag"]
    s3.copy_object(Bucket="first", Key="target", CopySource=source)
    got = s3.get_object(Bucket="first", Key="target")
    assert got["Body"].read() == body and got["Metadata"] == {"b": "2"}


def preconditions():
    etag = s3.put_object(Bucket="first", Key="pre", Body=b"1")["ETag"]
    get = dict(Bucket="first", Key="pre")
    assert code(s3.get_object, IfNoneMatch=etag, **get) == "304"
    assert code(s3.get_object, IfMatch='"x"', **get) == "PreconditionFailed"
    assert s3.get_object(IfMatch=etag, **get)["Body"].read() == b"1"


def refusals():
    """What a client asks for must not be ignored."""
    body = dict(Bucket="first", Key="only", Body=b"1")
    s3.put_object(**body)
    only = dict(Bucket="first", Key="only")
    assert code(s3.delete_object, VersionId="abc", **only) == "NoSuchVersion"
    assert code(s3.get_object, VersionId="abc", **only) == "NoSuchVersion"
    assert code(s3.head_object, VersionId="abc", **only) == "404"
    keys = [{"Key": "only", "VersionId": "abc"}]
    failed = s3.delete_objects(Bucket="first", Delete={"Objects": keys})["Errors"]
    assert [(e["Key"], e["Code"]) for e in failed] == [("only", "NoSuchVersion")]
    assert s3.get_object(VersionId="null", **only)["Body"].read() == b"1"
    short = dict(SSECustomerKey=b"k" * 31, SSECustomerAlgorithm="AES256")
    assert code(s3.put_object, **short, **body) == "InvalidArgument"
    assert code(s3.put_object, ExpectedBucketOwner="another", **body) == "AccessDenied"
    s3.put_object(ExpectedBucketOwner="admin", **body)

    def status(request):
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as e:
            return e.code

    form = s3.generate_presigned_post("first", "form")
    boundary = "xyz"
    fields = {**form["fields"], "file": "x"}
    parts = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items()
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    sent = urllib.request.Request(form["url"], f"{parts}--{boundary}--\r\n".encode(), headers, method="POST")
    assert status(sent) == 204
    s3.delete_object(Bucket="first", Key="form")
    old = client(signature_version="s3")
    assert code(old.get_object, **only) == "InvalidRequest"
    assert status(s3.generate_presigned_url("get_object", Params=only, ExpiresIn=604800)) == 200
    assert status(s3.generate_presigned_url("get_object", Params=only, ExpiresIn=604801)) == 400


class Streaming(S3SigV4Auth):
    """Signs a body in chunks whose checksum comes behind it, as current SDKs send theirs."""

    def payload(self, request):
        return "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def trailers():
    """Status of a PUT with this checksum in its trailer, and what HEAD shows then."""
    keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])

    def send(method, target, auth, body=b"", **headers):
        url = f"{os.environ['AWS_ENDPOINT_URL']}/first/{target}"
        request = AWSRequest(method=method, url=url)
        for name, value in headers.items():
            request.headers[name.replace("_", "-")] = value
        auth(keys, "s3", "us-east-1").add_auth(request)
        request = urllib.request.Request(url, body or None, dict(request.headers), method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.headers
        except urllib.error.HTTPError as e:
            return e.code, e.headers

    def put(target, body, checksum):
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[at : at + 65536]), body[at : at + 65536])
                          for at in range(0, len(body), 65536))
        sent = chunks + b"0\r\nx-amz-checksum-crc32:" + checksum + b"\r\n\r\n"
        return send("PUT", target, Streaming, sent, x_amz_trailer="x-amz-checksum-crc32",
                    x_amz_sdk_checksum_algorithm="CRC32", content_encoding="aws-chunked",
                    x_amz_decoded_content_length=str(len(body)), content_length=str(len(sent)))

    body = os.urandom(150_000)
    right = base64.b64encode(zlib.crc32(body).to_bytes(4, "big"))
    assert put("trailer", body, right)[0] == 200
    status, headers = send("HEAD", "trailer", S3SigV4Auth, x_amz_checksum_mode="ENABLED")
    assert (status, headers["x-amz-checksum-crc32"]) == (200, right.decode()), headers
    assert s3.get_object(Bucket="first", Key="trailer")["Body"].read() == body
    assert put("wrong", body, b"AAAAAA==")[0] == 400
    assert code(s3.head_object, Bucket="first", Key="wrong") == "404"
    upload = s3.create_multipart_upload(Bucket="first", Key="parts")["UploadId"]
    assert put(f"parts?partNumber=1&uploadId={upload}", body, right)[0] == 200
    assert put(f"parts?partNumber=2&uploadId={upload}", body, b"AAAAAA==")[0] == 400
    s3.abort_multipart_upload(Bucket="first", Key="parts", UploadId=upload)


def disconnects():
    """Clients that hang up before they are answered. What is listed can be read."""
    address = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
    body = os.urandom(20000)
    for n in range(150):
        url = s3.generate_presigned_url("put_object", Params={"Bucket": "first", "Key": f"gone/{n}"})
        target = urllib.parse.urlsplit(url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            head = f"PUT {target.path}?{target.query} HTTP/1.1\r\nHost: {target.netloc}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            # At any time: before the data is written, or while the index is.
            time.sleep(n * 0.0002)
    time.sleep(1)
    there = keys("first", Prefix="gone/")
    assert there, "no write got through"
    for key in there:
        assert s3.get_object(Bucket="first", Key=key)["Body"].read() == body


steps = sys.argv[1:] or [
    "buckets", "bodies", "odd_keys", "listings", "uploads", "copies", "preconditions", "refusals", "trailers",
    "disconnects",
]
for step in steps:
    globals()[step]()
    print(step, "good")
