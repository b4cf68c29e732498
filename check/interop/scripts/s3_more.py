"""Encryption at rest, TLS and web sites, with boto3.

Arguments: the program, the folder of the cluster, the endpoint of a gateway with TLS, and its certificate.
The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import http.client
import json
import os
import ssl
import subprocess
import sys
import urllib.parse

import boto3
import rados
from botocore.client import Config

from s3_client import client, code, empty

program, folder, endpoint, certificate = sys.argv[1:]
s3 = client()
tls = boto3.client(
    "s3",
    endpoint_url=endpoint,
    region_name="us-east-1",
    verify=certificate,
    config=Config(signature_version="s3v4", retries={"max_attempts": 2}),
)
BUCKET = "sealed"
KEY = os.urandom(32)
LARGE = os.urandom(5_400_001)


def nacre(*words):
    subprocess.run([program, "s3", *words, "--data", folder], check=True, stdout=subprocess.DEVNULL)


def body(answer):
    return answer["Body"].read()


def in_pool(text):
    """Whether some object of the data pool has these bytes near its beginning."""
    with rados.Rados(conffile=os.path.join(folder, "ceph.conf")) as cluster:
        with cluster.open_ioctx("s3.data") as pool:
            for found in pool.list_objects():
                try:
                    if text in pool.read(found.key, 8192):
                        return True
                except rados.ObjectNotFound:
                    pass  # Data of requests that were not finished is removed at any time.
    return False


def encryption(s3, told, **how):
    """Small and large objects, ranges, copies and uploads with one kind of encryption."""
    read = how if "SSECustomerKey" in how else {}
    of_source = {"CopySource" + name: value for name, value in read.items()}
    for name, content in ("small", b"small"), ("empty", b""), ("large", LARGE):
        of = dict(Bucket=BUCKET, Key=name)
        told(s3.put_object(Body=content, **of, **how))
        got = s3.get_object(**of, **read)
        told(got)
        assert body(got) == content and got["ContentLength"] == len(content), name
        head = s3.head_object(**of, **read)
        told(head)
        assert head["ContentLength"] == len(content)
        told(s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=of, **how, **of_source))
        assert body(s3.get_object(Bucket=BUCKET, Key="copy", **read)) == content, name
    for start, end in (0, 0), (65535, 65536), (4194300, 4194310), (5_399_990, 5_400_000), (70_000, 5_000_000):
        part = s3.get_object(Bucket=BUCKET, Key="large", Range=f"bytes={start}-{end}", **read)
        assert body(part) == LARGE[start : end + 1], (start, end)
    of = dict(Bucket=BUCKET, Key="upload")
    upload = dict(of, UploadId=s3.create_multipart_upload(**of, **how)["UploadId"])
    one = s3.upload_part(PartNumber=1, Body=LARGE[:5_300_000], **upload, **read)
    source = dict(Bucket=BUCKET, Key="large")
    two = s3.upload_part_copy(
        PartNumber=2, CopySource=source, CopySourceRange="bytes=5300000-5400000", **upload, **read, **of_source
    )
    parts = [
        {"PartNumber": 1, "ETag": one["ETag"]},
        {"PartNumber": 2, "ETag": two["CopyPartResult"]["ETag"]},
    ]
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    assert body(s3.get_object(**of, **read)) == LARGE
    assert body(s3.get_object(PartNumber=2, **of, **read)) == LARGE[5_300_000:]


def of_gateways(answer):
    assert answer["ServerSideEncryption"] == "AES256", answer


def of_key(answer):
    assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"]) == ("aws:kms", "blue"), answer


def of_client(answer):
    assert answer["SSECustomerAlgorithm"] == "AES256", answer


def plain(answer):
    assert "ServerSideEncryption" not in answer and "SSECustomerAlgorithm" not in answer, answer


def defaults():
    of = dict(Bucket=BUCKET)
    assert code(s3.get_bucket_encryption, **of) == "ServerSideEncryptionConfigurationNotFoundError"
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "blue"}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": by_default}]}
    s3.put_bucket_encryption(ServerSideEncryptionConfiguration=rules, **of)
    rule = s3.get_bucket_encryption(**of)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"] == by_default
    of_key(s3.put_object(Key="default", Body=b"1", **of))
    of_key(s3.get_object(Key="default", **of))
    by_default["KMSMasterKeyID"] = "missing"
    put = dict(of, ServerSideEncryptionConfiguration=rules)
    assert code(s3.put_bucket_encryption, **put) == "KMS.NotFoundException"
    s3.delete_bucket_encryption(**of)
    plain(s3.put_object(Key="default", Body=b"1", **of))
    # A copy onto itself changes how an object is encrypted.
    copy = dict(of, Key="default", CopySource=dict(of, Key="default"))
    of_gateways(s3.copy_object(ServerSideEncryption="AES256", **copy))
    of_gateways(s3.head_object(Key="default", **of))
    s3.copy_object(MetadataDirective="REPLACE", Metadata={"a": "b"}, ServerSideEncryption="AES256", **copy)
    assert body(s3.get_object(Key="default", **of)) == b"1"


s3.create_bucket(Bucket=BUCKET)
nacre("kms", "create", "--key-id", "blue")
encryption(s3, of_gateways, ServerSideEncryption="AES256")
assert not in_pool(LARGE[1000:1100]), "the pool has the plain body"
encryption(s3, of_key, ServerSideEncryption="aws:kms", SSEKMSKeyId="blue")
encryption(tls, of_client, SSECustomerAlgorithm="AES256", SSECustomerKey=KEY)
large = dict(Bucket=BUCKET, Key="large")
assert code(s3.get_object, **large) == "InvalidRequest"
other = dict(SSECustomerAlgorithm="AES256", SSECustomerKey=os.urandom(32))
assert code(tls.get_object, **large, **other) == "AccessDenied"
with_vault = dict(ServerSideEncryption="aws:kms", SSEKMSKeyId="transit/blue")
assert code(s3.put_object, Body=b"", **large, **with_vault) == "KMS.NotFoundException"
defaults()
assert code(s3.get_object, Bucket=BUCKET, Key="default", **other) == "InvalidRequest"
empty(s3, BUCKET)


def visit(path, method="GET"):
    """Status, headers and body of a page of a web site."""
    address = urllib.parse.urlsplit(endpoint)
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(address.hostname, address.port, context=context, timeout=60)
    connection.request(method, path, headers={"Host": "site.web.test"})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def website():
    s3.create_bucket(Bucket="site")
    resources = ["arn:aws:s3:::site", "arn:aws:s3:::site/*"]
    anybody = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
    policy = {"Version": "2012-10-17", "Statement": [{**anybody, "Resource": resources}]}
    s3.put_bucket_policy(Bucket="site", Policy=json.dumps(policy))
    assert code(s3.get_bucket_website, Bucket="site") == "NoSuchWebsiteConfiguration"
    for key in "index.html", "docs/ä/index.html", "error.html", "page":
        s3.put_object(Bucket="site", Key=key, Body=key.encode(), ContentType="text/html")
    s3.put_object(Bucket="site", Key="moved", WebsiteRedirectLocation="/page")
    old = {"Condition": {"KeyPrefixEquals": "old/"}, "Redirect": {"ReplaceKeyPrefixWith": "new/"}}
    sites = {
        "IndexDocument": {"Suffix": "index.html"},
        "ErrorDocument": {"Key": "error.html"},
        "RoutingRules": [old],
    }
    s3.put_bucket_website(Bucket="site", WebsiteConfiguration=sites)
    assert s3.get_bucket_website(Bucket="site")["IndexDocument"] == sites["IndexDocument"]
    assert visit("/")[::2] == (200, b"index.html")
    assert visit("/docs/%C3%A4/")[::2] == (200, "docs/ä/index.html".encode())
    assert visit("/page", "HEAD")[::2] == (200, b"")
    status, headers, _ = visit("/docs/%C3%A4")
    assert (status, headers["Location"]) == (302, "/docs/%C3%A4/")
    assert visit("/nothing")[::2] == (404, b"error.html")
    status, headers, _ = visit("/moved")
    assert (status, headers["Location"]) == (301, "/page")
    status, headers, _ = visit("/old/a")
    assert (status, headers["Location"]) == (301, "https://site.web.test/new/a")
    assert visit("/page", "PUT")[0] == 405
    empty(s3, "site")


website()
