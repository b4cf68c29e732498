"""OpenStack's object storage API with its own client: swift.py ENDPOINT USER:SUBUSER SECRET. The same objects
are read over S3 with the keys of the environment."""

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import swiftclient
from swiftclient.service import SwiftError, SwiftService, SwiftUploadObject

import s3_client
from swift_client import status

endpoint, user, secret = sys.argv[1:]
auth = f"{endpoint}/auth/v1.0"
swift = swiftclient.Connection(auth, user, secret, retries=0)
url, token = swift.get_auth()
assert url == f"{endpoint}/swift/v1/AUTH_{user.split(':')[0]}", url


def fetch(address, method="GET", body=None, **headers):
    """Status, headers and body of a plain request."""
    request = urllib.request.Request(address, body, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def sign_in():
    wrong = swiftclient.Connection(auth, user, "wrong", retries=0)
    assert status(wrong.get_auth) == 401
    assert fetch(url)[0] == 401
    assert fetch(url, **{"X-Auth-Token": "AUTH_tkAAAA"})[0] == 401
    assert fetch(f"{endpoint}/swift/v1", **{"X-Auth-Token": token})[0] in (200, 204)
    info = json.loads(fetch(f"{endpoint}/swift/info")[2])
    assert info["swift"] and "x-history-location" in info["versioned_writes"]["allowed_flags"], info
    assert fetch(f"{endpoint}/swift/v1/AUTH_nobody", **{"X-Auth-Token": token})[0] == 403


def containers():
    swift.put_container("First Box", {"X-Container-Meta-Color": "blue"})
    swift.put_container("First Box")
    head = swift.head_container("First Box")
    assert head["x-container-meta-color"] == "blue" and head["x-container-object-count"] == "0", head
    swift.post_container("First Box", {"X-Container-Meta-Size": "1", "X-Remove-Container-Meta-Color": "x"})
    head = swift.head_container("First Box")
    assert head["x-container-meta-size"] == "1" and "x-container-meta-color" not in head, head
    assert status(swift.get_container, "none") == 404
    swift.put_object("First Box", "a", b"1")
    assert status(swift.delete_container, "First Box") == 409
    swift.delete_object("First Box", "a")
    swift.delete_container("First Box")
    assert status(swift.head_container, "First Box") == 404


def objects():
    swift.put_container("walk")
    body = os.urandom(100_000)
    kind = {"X-Object-Meta-Kind": "test"}
    etag = swift.put_object("walk", "dir/ä b", body, content_type="image/x", headers=kind)
    assert etag == hashlib.md5(body).hexdigest()
    head, read = swift.get_object("walk", "dir/ä b")
    assert read == body and head["etag"] == etag and head["content-type"] == "image/x", head
    assert head["x-object-meta-kind"] == "test" and float(head["x-timestamp"]) > 1e9, head
    head, read = swift.get_object("walk", "dir/ä b", headers={"Range": "bytes=10-19"})
    assert read == body[10:20] and head["content-range"] == "bytes 10-19/100000", head
    assert status(swift.get_object, "walk", "dir/ä b", headers={"If-None-Match": etag}) == 304
    assert status(swift.put_object, "walk", "bad", b"1", etag="0" * 32) == 422
    assert status(swift.head_object, "walk", "bad") == 404
    assert status(swift.put_object, "walk", "dir/ä b", b"1", headers={"If-None-Match": "*"}) == 412
    swift.post_object("walk", "dir/ä b", {"X-Object-Meta-Kind": "new", "X-Object-Meta-More": "1"})
    head = swift.head_object("walk", "dir/ä b")
    assert head["x-object-meta-kind"] == "new" and head["content-type"] == "image/x", head
    swift.copy_object("walk", "dir/ä b", "/walk/copy", {"X-Object-Meta-Of": "it"})
    head, read = swift.get_object("walk", "copy")
    assert read == body and head["x-object-meta-of"] == "it" and head["x-object-meta-more"] == "1", head
    # Over S3 it is the same object.
    s3 = s3_client.client()
    seen = s3.get_object(Bucket="walk", Key="copy")
    assert seen["Body"].read() == body and seen["Metadata"]["of"] == "it", seen
    s3.put_object(Bucket="walk", Key="dir/s3", Body=b"s3", Metadata={"a": "b"})
    head, read = swift.get_object("walk", "dir/s3")
    assert read == b"s3" and head["x-object-meta-a"] == "b"

    head, listed = swift.get_container("walk", delimiter="/")
    assert [line.get("name", line.get("subdir")) for line in listed] == ["copy", "dir/"], listed
    assert head["x-container-object-count"] == "3" and head["x-container-bytes-used"] == "200002", head
    _, listed = swift.get_container("walk", prefix="dir/", limit=1)
    assert [line["name"] for line in listed] == ["dir/s3"], listed
    _, listed = swift.get_container("walk", marker="dir/s3")
    lines = [(line["name"], line["bytes"], line["hash"]) for line in listed]
    assert lines == [("dir/ä b", 100_000, etag)], listed
    plain = fetch(f"{url}/walk?end_marker=dir", **{"X-Auth-Token": token})
    assert plain[2] == b"copy\n", plain
    xml = fetch(f"{url}/walk?format=xml&path=dir", **{"X-Auth-Token": token})[2].decode()
    assert xml.count("<object>") == 2 and "<subdir" not in xml, xml
    head, listed = swift.get_account()
    assert {"name": "walk", "count": 3, "bytes": 200_002}.items() <= listed[-1].items(), listed
    assert swift.head_account()["x-account-bytes-used"] == "200002"
    swift.delete_object("walk", "dir/s3")
    assert status(swift.delete_object, "walk", "dir/s3") == 404


def large():
    parts = [os.urandom(70_000) for _ in range(3)]
    for number, part in enumerate(parts):
        swift.put_object("walk", f"parts/{number}", part)
    whole = b"".join(parts)
    swift.put_object("walk", "dynamic", b"", headers={"X-Object-Manifest": "walk/parts/"})
    head, read = swift.get_object("walk", "dynamic")
    assert read == whole and head["x-object-manifest"] == "walk/parts/", head
    etags = [hashlib.md5(part).hexdigest() for part in parts]
    rows = [{"path": f"/walk/parts/{n}", "size_bytes": 70_000, "etag": etags[n]} for n in range(3)]
    rows[1]["range"] = "100-199"
    swift.put_object("walk", "static", json.dumps(rows), query_string="multipart-manifest=put")
    short = parts[0] + parts[1][100:200] + parts[2]
    head, read = swift.get_object("walk", "static")
    assert read == short and head["x-static-large-object"] == "True", head
    assert head["content-length"] == str(len(short)), head
    assert swift.head_object("walk", "static")["etag"] == head["etag"]
    _, read = swift.get_object("walk", "static", headers={"Range": "bytes=69990-70110"})
    assert read == short[69_990:70_111]
    _, read = swift.get_object("walk", "static", query_string="multipart-manifest=get")
    assert [row["name"] for row in json.loads(read)] == [row["path"] for row in rows], read
    wrong = json.dumps([{"path": "/walk/parts/0", "etag": "0"}, {"path": "/walk/none"}])
    assert status(swift.put_object, "walk", "wrong", wrong, query_string="multipart-manifest=put") == 400
    swift.delete_object("walk", "static", query_string="multipart-manifest=delete")
    assert status(swift.head_object, "walk", "parts/0") == 404
    assert swift.get_object("walk", "dynamic")[1] == b""

    # The command cuts files itself.
    path = os.path.join(os.environ["HOME"], "large")
    with open(path, "wb") as file:
        file.write(whole)
    options = {"auth": auth, "user": user, "key": secret, "auth_version": "1.0", "segment_size": 50_000}
    for use_slo in (False, True):
        with SwiftService({**options, "use_slo": use_slo}) as service:
            for done in service.upload("walk", [SwiftUploadObject(path, f"cut{use_slo}")]):
                assert done["success"], done
        assert swift.get_object("walk", f"cut{use_slo}")[1] == whole


def lists():
    swift.put_container("open")
    swift.put_object("open", "page", b"hello")
    assert fetch(f"{url}/open/page")[0] == 401
    swift.post_container("open", {"X-Container-Read": ".r:*"})
    assert swift.head_container("open")["x-container-read"] == ".r:*"
    wait(lambda: fetch(f"{url}/open/page")[2] == b"hello")
    assert fetch(f"{url}/open")[0] == 401 and fetch(f"{endpoint}/open/page")[2] == b"hello"
    swift.post_container("open", {"X-Container-Read": ".r:*,.rlistings"})
    wait(lambda: fetch(f"{url}/open")[2] == b"page\n")
    assert fetch(f"{url}/open/new", "PUT", b"1")[0] == 401
    assert status(swift.post_container, "open", {"X-Container-Write": ".r:*"}) == 400
    swift.post_container("open", {"X-Container-Read": ""})
    wait(lambda: fetch(f"{url}/open/page")[0] == 401)


def temporary():
    swift.post_account({"X-Account-Meta-Temp-URL-Key": "key"})

    def signed(method, path, until=None, digest="sha256", key=b"key"):
        until = int(time.time()) + 60 if until is None else until
        full = urllib.parse.urlsplit(url).path + path
        signature = hmac.new(key, f"{method}\n{until}\n{full}".encode(), digest).hexdigest()
        return f"{endpoint}{full}?temp_url_sig={signature}&temp_url_expires={until}"

    code, head, body = fetch(signed("GET", "/open/page"))
    assert (code, body, head["content-disposition"]) == (200, b"hello", 'attachment; filename="page"'), head
    assert fetch(signed("GET", "/open/page", digest="sha1"), "HEAD")[0] == 200
    assert fetch(signed("GET", "/open/page"), "PUT", b"1")[0] == 401
    assert fetch(signed("GET", "/open/page", until=1))[0] == 401
    assert fetch(signed("GET", "/open/page", key=b"other"))[0] == 401
    assert fetch(signed("PUT", "/open/put"), "PUT", b"new")[0] == 201
    assert swift.get_object("open", "put")[1] == b"new"
    assert fetch(signed("PUT", "/open/spy"), "PUT", b"", **{"X-Object-Manifest": "walk/"})[0] == 400


def expiring():
    swift.put_container("short")
    assert status(swift.put_object, "short", "a", b"1", headers={"X-Delete-At": "1"}) == 400
    assert status(swift.put_object, "short", "a", b"1", headers={"X-Delete-After": "soon"}) == 400
    swift.put_object("short", "stays", b"1", headers={"X-Delete-After": "3600"})
    until = swift.head_object("short", "stays")["x-delete-at"]
    assert abs(int(until) - time.time() - 3600) < 600, until
    swift.copy_object("short", "stays", "/short/copy")
    assert swift.head_object("short", "copy")["x-delete-at"] == until
    swift.post_object("short", "copy", {})
    assert "x-delete-at" not in swift.head_object("short", "copy")
    swift.put_object("short", "goes", b"1", headers={"X-Delete-At": str(int(time.time()) + 2)})
    swift.post_object("short", "stays", {"X-Delete-After": "2"})
    limit = time.time() + 60
    while [line["name"] for line in swift.get_container("short")[1]] != ["copy"]:
        assert time.time() < limit
        time.sleep(0.1)
    assert status(swift.get_object, "short", "goes") == 404
    # They are deleted in their turn: not waited for here.
    s3_client.empty(s3_client.client(), "short")


def archived():
    swift.put_container("archive")
    for header, after in ("X-Versions-Location", b"one"), ("X-History-Location", None):
        swift.put_container("kept", {header: "archive"})
        assert swift.head_container("kept")[header.lower()] == "archive"
        assert status(swift.post_container, "kept", {"X-Versions-Enabled": "true"}) == 400
        swift.put_object("kept", "o", b"one")
        swift.put_object("kept", "o", b"two", headers={"X-Object-Meta-A": "b"})
        copies = swift.get_container("archive", prefix="001o/")[1]
        assert len(copies) == 1 and swift.get_object("archive", copies[0]["name"])[1] == b"one", copies
        swift.delete_object("kept", "o")
        if after:
            assert swift.get_object("kept", "o")[1] == after
            swift.delete_object("kept", "o")
        assert status(swift.head_object, "kept", "o") == 404
        copies = [line["name"] for line in swift.get_container("archive")[1]]
        assert len(copies) == (0 if after else 3), copies
        swift.post_container("kept", {f"X-Remove-{header[2:]}": "x"})
        assert header.lower() not in swift.head_container("kept")
    assert swift.get_object("archive", copies[1])[1] == b"two"
    assert swift.head_object("archive", copies[2])["content-type"].startswith("application/x-deleted")
    for name in copies:
        swift.delete_object("archive", name)
    swift.delete_container("archive")
    swift.delete_container("kept")


def versions():
    swift.put_container("versions", {"X-Versions-Enabled": "true"})
    swift.put_object("versions", "o", b"one")
    swift.put_object("versions", "o", b"two")
    swift.delete_object("versions", "o")
    lines = swift.get_container("versions", query_string="versions")[1]
    kinds = [(line["is_latest"], line["bytes"], "deleted" in line["content_type"]) for line in lines]
    assert kinds == [(True, 0, True), (False, 3, False), (False, 3, False)], lines
    oldest = f"version-id={lines[2]['version_id']}"
    assert swift.get_object("versions", "o", query_string=oldest)[1] == b"one"
    page = f"versions&marker=o&version_marker={lines[1]['version_id']}"
    assert swift.get_container("versions", query_string=page)[1] == lines[2:]
    for line in lines:
        swift.delete_object("versions", "o", query_string=f"version-id={line['version_id']}")
    swift.delete_container("versions")


def end():
    names = [f"walk/{line['name']}" for line in swift.get_container("walk", full_listing=True)[1]]
    segments = swift.get_container("walk_segments", full_listing=True)[1]
    names += [f"walk_segments/{line['name']}" for line in segments]
    names += ["open/page", "open/put", "open/none", "open", "walk", "walk_segments"]
    text = "\n".join(urllib.parse.quote(name) for name in names).encode()
    address = f"{url}?bulk-delete"
    headers = {"X-Auth-Token": token, "Content-Type": "text/plain", "Accept": "application/json"}
    done = json.loads(fetch(address, "POST", text, **headers)[2])
    assert done["Number Deleted"] == len(names) - 1 and done["Number Not Found"] == 1, done
    assert not done["Errors"], done
    assert swift.get_account()[1] == []


def wait(done):
    """Settings of a container are in use within two seconds."""
    limit = time.time() + 60
    while not done():
        assert time.time() < limit
        time.sleep(0.1)


sign_in()
containers()
objects()
large()
lists()
temporary()
expiring()
archived()
versions()
end()
