"""Users of Keystone: keystone.py GATEWAY KEYSTONE MADE, with a file that has a project of the user `demo`,
which has the role `member` there, and an access key with its secret; the user `reader` has another role.
"""

import json
import sys
import urllib.request

import swiftclient

import s3_client
from s3_client import code
from swift_client import status

gateway, keystone, made = sys.argv[1:]
with open(made) as file:
    made = json.load(file)
account = f"{gateway}/swift/v1/AUTH_{made['project']}"


def token(user, password):
    """A token of Keystone, for the project."""
    domain = {"name": "Default"}
    who = {"name": user, "password": password, "domain": domain}
    auth = {
        "identity": {"methods": ["password"], "password": {"user": who}},
        "scope": {"project": {"name": "demo", "domain": domain}},
    }
    body = json.dumps({"auth": auth}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{keystone}/v3/auth/tokens", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["X-Subject-Token"]


def swift(token):
    return swiftclient.Connection(preauthurl=account, preauthtoken=token, retries=0)


demo = swift(token("demo", "demopw"))
demo.put_container("box")
demo.put_object("box", "a", b"hello")
assert demo.get_object("box", "a")[1] == b"hello"
assert status(swift(token("reader", "readerpw")).get_container, "box") == 401
for wrong in "gAAAAABwrong", "x" * 9000:
    assert status(swift(wrong).get_container, "box") == 401

keys = {"access_key": made["access"], "secret_key": made["secret"], "endpoint": gateway}
s3 = s3_client.client(**keys)
assert s3.get_object(Bucket="box", Key="a")["Body"].read() == b"hello"
# In chunks with signatures of their own, and in a URL.
s3.put_object(Bucket="box", Key="b", Body=b"over s3")
url = s3.generate_presigned_url("get_object", {"Bucket": "box", "Key": "b"})
with urllib.request.urlopen(url, timeout=60) as answer:
    assert answer.read() == b"over s3"
assert s3.list_buckets()["Owner"]["ID"] == made["project"]
assert code(s3_client.client(**{**keys, "secret_key": "x"}).list_buckets) == "SignatureDoesNotMatch"
assert code(s3_client.client(**{**keys, "access_key": "x" * 32}).list_buckets) == "InvalidAccessKeyId"
for name in "a", "b":
    demo.delete_object("box", name)
demo.delete_container("box")
