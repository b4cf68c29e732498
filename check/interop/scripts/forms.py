"""Uploads by forms of browsers, of S3 and of Swift: forms.py ENDPOINT USER:SUBUSER SECRET. The environment
has the keys of the same user."""

import hashlib
import hmac
import os
import sys
import time
import urllib.parse

import requests
import swiftclient

import s3_client
from s3_client import code

endpoint, user, secret = sys.argv[1:]
s3 = s3_client.client()
BUCKET = "forms"
LARGE = os.urandom(9_000_001)


def send(form, content, name="C:\\pictures\\a b.txt", change=None):
    """Sends a form as a browser does."""
    fields = {**form["fields"], **(change or {})}
    fields = {name: value for name, value in fields.items() if value is not None}
    files = {"file": (name, content, "text/plain")}
    return requests.post(form["url"], data=fields, files=files, allow_redirects=False, timeout=60)


def presigned(key, fields=None, conditions=None, until=600):
    fields = fields or {}
    same = [{name: value} for name, value in fields.items()]
    return s3.generate_presigned_post(BUCKET, key, dict(fields), same + (conditions or []), until)


def failure(answer):
    text = answer.text
    return answer.status_code, text[text.index("<Code>") + 6 : text.index("</Code>")]


def s3_forms():
    s3.create_bucket(Bucket=BUCKET)
    plain = presigned("one")
    answer = send(plain, b"hello")
    etag = hashlib.md5(b"hello").hexdigest()
    assert answer.status_code == 204 and answer.headers["ETag"] == f'"{etag}"', answer
    assert answer.headers["Location"] == f"{endpoint}/{BUCKET}/one", answer.headers
    assert s3.get_object(Bucket=BUCKET, Key="one")["Body"].read() == b"hello"

    fields = {
        "acl": "public-read",
        "Content-Type": "text/x-form",
        "x-amz-meta-of": "form",
        "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1 2</Value></Tag></TagSet></Tagging>",
        "success_action_status": "201",
    }
    full = presigned("dir/${filename}", fields, [["content-length-range", 3, 10_000_000]])
    answer = send(full, LARGE)
    assert answer.status_code == 201 and "<Key>dir/a b.txt</Key>" in answer.text, answer.text
    got = s3.get_object(Bucket=BUCKET, Key="dir/a b.txt")
    assert got["Body"].read() == LARGE and got["Metadata"] == {"of": "form"}
    assert got["ContentType"] == "text/x-form", got
    tags = s3.get_object_tagging(Bucket=BUCKET, Key="dir/a b.txt")["TagSet"]
    assert tags == [{"Key": "a", "Value": "1 2"}], tags
    assert requests.get(f"{endpoint}/{BUCKET}/dir/a%20b.txt", timeout=60).content == LARGE
    assert failure(send(full, b"12")) == (400, "EntityTooSmall")
    assert failure(send(full, LARGE + LARGE)) == (400, "EntityTooLarge")

    to = {"success_action_redirect": "http://site.example/done?x=1"}
    answer = send(presigned("redirected", to), b"1")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(answer.headers["Location"]).query)
    assert answer.status_code == 303 and query["key"] == ["redirected"], answer.headers
    assert query["x"] == ["1"], answer.headers

    for change in (
        {"key": "other"},
        {"acl": "public-read"},
        {"x-amz-meta-more": "1"},
        {"policy": presigned("other")["fields"]["policy"]},
    ):
        status, why = failure(send(plain, b"1", change=change))
        assert status == 403 and why in ("AccessDenied", "SignatureDoesNotMatch"), (change, why)
    assert failure(send(presigned("late", until=-5), b"1")) == (403, "AccessDenied")
    old = {"AWSAccessKeyId": "a", "signature": "b"}
    assert failure(send(plain, b"1", change=old)) == (400, "InvalidRequest")
    assert failure(send(plain, b"1", change={"policy": None})) == (400, "InvalidArgument")
    unsigned = {"url": plain["url"], "fields": {"key": "unsigned"}}
    assert failure(send(unsigned, b"1")) == (403, "AccessDenied")
    elsewhere = {**plain, "url": f"{endpoint}/another"}
    assert send(elsewhere, b"1").status_code == 403
    assert code(s3.head_object, Bucket=BUCKET, Key="unsigned") == "404"
    s3.put_bucket_acl(Bucket=BUCKET, ACL="public-read-write")
    limit = time.time() + 60
    while send(unsigned, b"1").status_code != 204:
        assert time.time() < limit
        time.sleep(0.1)
    whole = b"--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\ncut\r\n--x\r\n"
    whole += b"Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nhalf"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    cut = requests.post(plain["url"], whole, headers=kind, timeout=60)
    assert cut.status_code == 400, cut.text
    keys = {line["Key"] for line in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert keys == {"one", "dir/a b.txt", "redirected", "unsigned"}, keys


def swift_forms():
    swift = swiftclient.Connection(f"{endpoint}/auth/v1.0", user, secret, retries=0)
    url, _ = swift.get_auth()
    swift.post_container(BUCKET, {"X-Container-Meta-Temp-URL-Key": "key"})
    path = urllib.parse.urlsplit(url).path + f"/{BUCKET}/swift/"

    def form(redirect="", size=1_000_000, count=2, until=None, key=b"key"):
        until = int(time.time()) + 60 if until is None else until
        text = f"{path}\n{redirect}\n{size}\n{count}\n{until}"
        fields = {"redirect": redirect, "max_file_size": size, "max_file_count": count, "expires": until}
        return {**fields, "signature": hmac.new(key, text.encode(), "sha256").hexdigest()}

    def post(fields, *contents):
        files = [(f"file{n}", (f"f{n}", content, "text/x-swift")) for n, content in enumerate(contents)]
        to = f"{endpoint}{path}"
        return requests.post(to, data=fields, files=files, allow_redirects=False, timeout=60)

    # The key is in use within two seconds.
    limit = time.time() + 60
    while (answer := post(form(), b"zero", b"one")).status_code == 401:
        assert time.time() < limit
        time.sleep(0.1)
    assert answer.status_code == 201, answer.text
    head, body = swift.get_object(BUCKET, "swift/f1")
    assert body == b"one" and head["content-type"] == "text/x-swift", head
    assert post(form(), b"0", b"1", b"2").status_code == 400
    assert post(form(size=3), b"long").status_code == 413
    assert post(form(until=1), b"0").status_code == 401
    assert post(form(key=b"other"), b"0").status_code == 401
    assert post({**form(), "max_file_size": 2_000_000}, b"0").status_code == 401
    answer = post(form("http://site.example/"), b"0")
    assert answer.headers["Location"] == "http://site.example/?status=201&message=", answer.headers
    answer = post(form("http://site.example/", count=0), b"0")
    told = answer.headers["Location"]
    assert told.startswith("http://site.example/?status=400&message=max%20"), told


s3_forms()
swift_forms()
s3_client.empty(s3, BUCKET)
