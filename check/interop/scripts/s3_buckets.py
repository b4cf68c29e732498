"""Walks boto3 through what can be set on a bucket.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import base64
import datetime
import hashlib
import os
import urllib.error
import urllib.request

from s3_client import client, code, empty

s3 = client()
BUCKET = "settings"
MD5_OF_2 = base64.b64encode(hashlib.md5(b"2").digest()).decode()


def tags():
    tagging = {"TagSet": [{"Key": "team", "Value": "blue & red"}, {"Key": "é", "Value": ""}]}
    assert code(s3.get_bucket_tagging, Bucket=BUCKET) == "NoSuchTagSet"
    s3.put_bucket_tagging(Bucket=BUCKET, Tagging=tagging)
    assert s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"] == tagging["TagSet"]
    twice = {"TagSet": [tagging["TagSet"][0]] * 2}
    assert code(s3.put_bucket_tagging, Bucket=BUCKET, Tagging=twice) == "InvalidTag"
    s3.delete_bucket_tagging(Bucket=BUCKET)
    assert code(s3.get_bucket_tagging, Bucket=BUCKET) == "NoSuchTagSet"


def request(method, path, **headers):
    """The status and the headers of an answer."""
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{path}"
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as e:
        return e.code, e.headers


def cors():
    page = dict(Origin="https://a.example.com", Access_Control_Request_Method="PUT")
    assert code(s3.get_bucket_cors, Bucket=BUCKET) == "NoSuchCORSConfiguration"
    assert request("OPTIONS", f"{BUCKET}/k", **page)[0] == 403
    rule = {
        "AllowedOrigins": ["https://*.example.com"],
        "AllowedMethods": ["PUT", "GET"],
        "AllowedHeaders": ["x-amz-*"],
        "ExposeHeaders": ["ETag"],
        "MaxAgeSeconds": 60,
    }
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=BUCKET)["CORSRules"] == [rule]
    status, headers = request("OPTIONS", f"{BUCKET}/k", Access_Control_Request_Headers="X-Amz-Date", **page)
    assert status == 200 and headers["Access-Control-Allow-Origin"] == page["Origin"]
    assert headers["Access-Control-Allow-Headers"] == "x-amz-date"
    assert headers["Access-Control-Max-Age"] == "60" and "Origin" in headers["Vary"]
    assert request("OPTIONS", f"{BUCKET}/k", Access_Control_Request_Headers="x-other", **page)[0] == 403
    assert request("OPTIONS", "no-such-bucket/k", **page)[0] == 404
    # Also of an answer that is an error.
    status, headers = request("GET", f"{BUCKET}/k", Origin=page["Origin"])
    assert status == 403 and headers["Access-Control-Expose-Headers"] == "ETag"
    status, headers = request("GET", f"{BUCKET}/k", Origin="https://other.org")
    assert status == 403 and "Access-Control-Allow-Origin" not in headers
    wrong = {"CORSRules": [{**rule, "AllowedMethods": ["PATCH"]}]}
    assert code(s3.put_bucket_cors, Bucket=BUCKET, CORSConfiguration=wrong) == "InvalidRequest"
    s3.delete_bucket_cors(Bucket=BUCKET)
    assert code(s3.get_bucket_cors, Bucket=BUCKET) == "NoSuchCORSConfiguration"


def put(key, body, **arguments):
    """The version that a PUT made."""
    return s3.put_object(Bucket="versions", Key=key, Body=body, **arguments).get("VersionId")


def listed(**arguments):
    """Keys, versions and whether they are current; delete markers behind objects."""
    page = s3.list_object_versions(Bucket="versions", **arguments)
    lines = page.get("Versions", []) + page.get("DeleteMarkers", [])
    return [(line["Key"], line["VersionId"], line["IsLatest"]) for line in lines]


def versions():
    of = dict(Bucket="versions", Key="k")
    s3.create_bucket(Bucket="versions")
    assert "Status" not in s3.get_bucket_versioning(Bucket="versions")
    assert put("k", b"null") is None
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket="versions")["Status"] == "Enabled"
    one, two = put("k", b"one"), put("k", os.urandom(5000))
    assert s3.get_object(**of)["VersionId"] == two
    assert s3.get_object(VersionId=one, **of)["Body"].read() == b"one"
    assert s3.get_object(VersionId="null", **of)["Body"].read() == b"null"
    assert code(s3.get_object, VersionId=one[:-1] + "zz", **of) == "NoSuchVersion"

    # A delete marker, and what was before when it is gone.
    marker = s3.delete_object(**of)
    assert marker["DeleteMarker"] and listed()[-1] == ("k", marker["VersionId"], True)
    assert code(s3.get_object, **of) == "NoSuchKey" and code(s3.head_object, **of) == "404"
    assert code(s3.get_object, VersionId=marker["VersionId"], **of) == "MethodNotAllowed"
    assert "Contents" not in s3.list_objects_v2(Bucket="versions")
    assert s3.delete_object(VersionId=marker["VersionId"], **of)["DeleteMarker"]
    assert listed() == [("k", two, True), ("k", one, False), ("k", "null", False)]
    assert code(s3.delete_bucket, Bucket="versions") == "BucketNotEmpty"

    # Page by page, and behind the null version.
    pages = s3.get_paginator("list_object_versions").paginate(
        Bucket="versions", PaginationConfig={"PageSize": 1}
    )
    assert [line["VersionId"] for page in pages for line in page["Versions"]] == [two, one, "null"]
    assert listed(KeyMarker="k", VersionIdMarker="null") == []

    # Copies of a version, also onto its own key.
    source = {**of, "VersionId": one}
    copied = s3.copy_object(**of, CopySource=source)
    assert copied["CopySourceVersionId"] == one and s3.get_object(**of)["Body"].read() == b"one"
    replaced = dict(TaggingDirective="REPLACE", Tagging="a=b")
    s3.copy_object(Bucket="versions", Key="copy", CopySource=source, **replaced)
    assert s3.get_object_tagging(Bucket="versions", Key="copy")["TagSet"] == [{"Key": "a", "Value": "b"}]

    # Tags of one version.
    tagging = {"TagSet": [{"Key": "colour", "Value": "blue"}]}
    assert s3.put_object_tagging(VersionId=one, Tagging=tagging, **of)["VersionId"] == one
    assert s3.get_object_tagging(VersionId=one, **of)["TagSet"] == tagging["TagSet"]
    assert s3.get_object(VersionId=one, **of)["TagCount"] == 1
    assert s3.get_object_tagging(**of)["TagSet"] == []
    s3.delete_object_tagging(VersionId=one, **of)
    assert s3.get_object_tagging(VersionId=one, **of)["TagSet"] == []

    # An upload makes a version, too.
    upload = dict(Bucket="versions", Key="u")
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    etag = s3.upload_part(PartNumber=1, Body=b"part", **upload)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    made = s3.complete_multipart_upload(MultipartUpload=parts, **upload)["VersionId"]
    assert s3.head_object(Bucket="versions", Key="u")["VersionId"] == made

    # Suspended: the null version is replaced, the others stay.
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Suspended"})
    assert put("k", b"new") == "null" and put("k", b"newer") == "null"
    assert [line[1] for line in listed(Prefix="k")].count("null") == 1
    assert s3.delete_object(**of)["VersionId"] == "null"
    assert code(s3.get_object, VersionId="null", **of) == "MethodNotAllowed"
    assert s3.get_object(VersionId=two, **of)["ContentLength"] == 5000
    both = {"Objects": [{"Key": "k", "VersionId": two}, {"Key": "u"}]}
    deleted = s3.delete_objects(Bucket="versions", Delete=both)
    by_key = {line["Key"]: line for line in deleted["Deleted"]}
    assert by_key["k"]["VersionId"] == two and by_key["u"]["DeleteMarkerVersionId"] == "null"
    empty(s3, "versions")


def locks():
    s3.create_bucket(Bucket="locks", ObjectLockEnabledForBucket=True)
    assert s3.get_bucket_versioning(Bucket="locks")["Status"] == "Enabled"
    suspend = dict(Bucket="locks", VersioningConfiguration={"Status": "Suspended"})
    assert code(s3.put_bucket_versioning, **suspend) == "InvalidBucketState"
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    config = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.put_object_lock_configuration(Bucket="locks", ObjectLockConfiguration=config)
    assert s3.get_object_lock_configuration(Bucket="locks")["ObjectLockConfiguration"] == config

    # The default retention, which a delete marker does not need.
    one = s3.put_object(Bucket="locks", Key="k", Body=b"1")["VersionId"]
    head = s3.head_object(Bucket="locks", Key="k")
    left = head["ObjectLockRetainUntilDate"] - datetime.datetime.now(datetime.timezone.utc)
    assert head["ObjectLockMode"] == "GOVERNANCE" and 80000 < left.total_seconds() <= 86400
    s3.delete_object(Bucket="locks", Key="k")
    of = dict(Bucket="locks", Key="k", VersionId=one)
    assert code(s3.delete_object, **of) == "AccessDenied"

    s3.put_object_legal_hold(LegalHold={"Status": "ON"}, **of)
    assert s3.get_object_legal_hold(**of)["LegalHold"] == {"Status": "ON"}
    assert code(s3.delete_object, BypassGovernanceRetention=True, **of) == "AccessDenied"
    s3.put_object_legal_hold(LegalHold={"Status": "OFF"}, **of)
    s3.delete_object(BypassGovernanceRetention=True, **of)

    # Compliance, of one object: nothing but time ends it. The bucket stays.
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    until = until.replace(microsecond=0)
    two = s3.put_object(
        Bucket="locks", Key="c", Body=b"2", ContentMD5=MD5_OF_2,
        ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until,
    )["VersionId"]
    of = dict(Bucket="locks", Key="c", VersionId=two)
    assert s3.get_object_retention(**of)["Retention"]["RetainUntilDate"] == until
    assert code(s3.delete_object, BypassGovernanceRetention=True, **of) == "AccessDenied"
    earlier = {"Mode": "COMPLIANCE", "RetainUntilDate": until - datetime.timedelta(seconds=1)}
    assert code(s3.put_object_retention, Retention=earlier, **of) == "AccessDenied"
    later = {"Mode": "COMPLIANCE", "RetainUntilDate": until + datetime.timedelta(hours=1)}
    s3.put_object_retention(Retention=later, **of)
    assert s3.get_object_retention(**of)["Retention"] == later
    unlocked = dict(Bucket=BUCKET, Key="k", Body=b"1", ContentMD5=MD5_OF_2)
    lock = dict(ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until)
    assert code(s3.put_object, **unlocked, **lock) == "InvalidRequest"
    assert code(s3.delete_bucket, Bucket="locks") == "BucketNotEmpty"


def rules():
    assert code(s3.get_bucket_lifecycle_configuration, Bucket=BUCKET) == "NoSuchLifecycleConfiguration"
    rule = {
        "ID": "old logs",
        "Status": "Enabled",
        "Filter": {"And": {"Prefix": "logs/", "Tags": [{"Key": "a", "Value": "b"}]}},
        "Expiration": {"Days": 30},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1, "NewerNoncurrentVersions": 2},
    }
    put = dict(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    s3.put_bucket_lifecycle_configuration(**put)
    assert s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"] == [rule]
    rule["Transitions"] = [{"Days": 1, "StorageClass": "GLACIER"}]
    assert code(s3.put_bucket_lifecycle_configuration, **put) == "InvalidArgument"
    s3.delete_bucket_lifecycle(Bucket=BUCKET)
    assert code(s3.get_bucket_lifecycle_configuration, Bucket=BUCKET) == "NoSuchLifecycleConfiguration"


s3.create_bucket(Bucket=BUCKET)
tags()
cors()
rules()
versions()
locks()
s3.delete_bucket(Bucket=BUCKET)
