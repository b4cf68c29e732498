"""What a gateway must bear of clients that are broken or hostile: floods of headers, XML that grows, bodies
that do not come or do not end, many connections that do nothing. Others are served meanwhile.

The environment has AWS_ENDPOINT_URL and the keys of a user.
"""

import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from s3_client import client

IDLE = 500
endpoint = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
s3 = client()
s3.create_bucket(Bucket="hostile")


def connect():
    return socket.create_connection((endpoint.hostname, endpoint.port), timeout=60)


def status(sent):
    """The status with which raw bytes are answered; none if the connection just ends."""
    with connect() as link:
        try:
            link.sendall(sent)
            answer = link.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return None
        return int(answer.split()[1]) if answer else None


def post(path, body):
    """The status of a signed POST."""
    request = AWSRequest(method="POST", url=f"{endpoint.geturl()}/{path}", data=body)
    request.headers["Content-Type"] = "application/xml"
    S3SigV4Auth(keys, "s3", "us-east-1").add_auth(request)
    request = urllib.request.Request(request.url, data=body, method="POST", headers=dict(request.headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code
    except (BrokenPipeError, ConnectionResetError, urllib.error.URLError):
        return None


def serves():
    """Whether another client is served."""
    s3.put_object(Bucket="hostile", Key="key", Body=b"x" * 9999)
    return s3.get_object(Bucket="hostile", Key="key")["Body"].read() == b"x" * 9999


# Headers without end, and many of them.
line = b"GET /hostile HTTP/1.1\r\nHost: a\r\n"
assert status(line + b"x: y\r\n" * 1000 + b"\r\n") in [400, 431]
assert status(line + b"x: " + b"y" * (1 << 20) + b"\r\n\r\n") in [400, 431, None]
assert status(b"\x16\x03\x01\x02\x00" + b"\x00" * 600) in [400, None]

# XML that would grow to gigabytes, that is too deep, and that is too long.
bomb = '<!DOCTYPE d [<!ENTITY a "' + "x" * 1000 + '">'
for before, name in zip("abcdefgh", "bcdefghi"):
    bomb += f'<!ENTITY {name} "{f"&{before};" * 10}">'
bomb += "]><Delete><Object><Key>&i;</Key></Object></Delete>"
begun = time.monotonic()
assert post("hostile?delete=", bomb.encode()) == 400
assert post("hostile?delete=", b"<Delete>" + b"<a>" * 300000) in [400, None]
assert post("hostile?delete=", b"<Delete>" + b" " * (5 << 20) + b"</Delete>") in [400, None]
assert time.monotonic() - begun < 30

# Connections that do nothing, requests whose rest does not come, and bodies that stop in the middle.
idle = [connect() for _ in range(IDLE)]
for at, link in enumerate(idle):
    if at % 3 == 0:
        link.sendall(b"GET /hostile HTTP/1.1\r\nHo")
    elif at % 3 == 1:
        link.sendall(b"PUT /hostile/k HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\nx")
assert serves()
for link in idle:
    link.close()
assert serves()

# A body that never ends is refused as soon as it is clear that it must be.
with connect() as link:
    link.sendall(b"PUT /hostile/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent, end = 0, time.monotonic() + 60
    try:
        while time.monotonic() < end and sent < 1 << 30:
            link.sendall(chunk)
            sent += len(chunk)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert sent < 1 << 30, "an anonymous client could send a gibibyte"
assert serves()
s3.delete_object(Bucket="hostile", Key="key")
s3.delete_bucket(Bucket="hostile")
