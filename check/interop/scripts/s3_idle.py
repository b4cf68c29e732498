"""Thousands of connections that do nothing: s3_idle.py PID COUNT. The gateway at AWS_ENDPOINT_URL has that
PID. Its memory stays bounded, and others are served."""

import os
import resource
import socket
import sys
import time
import urllib.parse

from s3_client import client

pid, count = map(int, sys.argv[1:])
# More descriptors, if that is allowed; some are needed for other things.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
count = min(count, most - 200)
# What a connection may cost beyond what the system has for it.
EACH = 32 << 10
endpoint = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
s3 = client(connect_timeout=20)


def memory():
    """Resident bytes of the gateway."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def serves():
    s3.put_object(Bucket="idle", Key="key", Body=b"x" * 9999)
    assert s3.get_object(Bucket="idle", Key="key")["Body"].read() == b"x" * 9999


s3.create_bucket(Bucket="idle")
serves()
before = memory()
links = []
for at in range(count):
    link = socket.create_connection((endpoint.hostname, endpoint.port), timeout=60)
    links.append(link)
    if at % 3 == 0:
        link.sendall(b"GET /idle/key HTTP/1.1\r\nHost: a\r\nX-Half")
    elif at % 3 == 1:
        # Used once, and kept.
        link.sendall(b"GET /_console/ui.js HTTP/1.1\r\nHost: a\r\n\r\n")
for link in links[1::3]:
    assert link.recv(9) == b"HTTP/1.1 "
serves()
during = memory()
for link in links:
    link.close()
time.sleep(0.5)
serves()
grown = during - before
print(f"{count} connections: {before >> 20} MiB before, {during >> 20} MiB with them, "
      f"{memory() >> 20} MiB after; {grown // count} bytes each")
assert grown < count * EACH, f"{grown // count} bytes for each connection"
s3.delete_object(Bucket="idle", Key="key")
s3.delete_bucket(Bucket="idle")
