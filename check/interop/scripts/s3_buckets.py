"""Walks boto3 through what can be set on a bucket.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import os
import urllib.error
import urllib.request

from s3_client import client, code

s3 = client()
BUCKET = "settings"


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


s3.create_bucket(Bucket=BUCKET)
tags()
cors()
s3.delete_bucket(Bucket=BUCKET)
