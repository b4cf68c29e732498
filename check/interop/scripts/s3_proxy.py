"""Names of buckets in hosts, of two domains, through a proxy: s3_proxy.py ENDPOINT. The gateway there was
started with `--domain one.test --domain two.test`. The environment has the keys of a user.

The proxy does what those do that end TLS: it passes on the `Host` header and says that the client used https.
"""

import http.client
import http.server
import socket
import sys
import threading
import urllib.parse
import urllib.request

from s3_client import client, code

gateway = urllib.parse.urlsplit(sys.argv[1])
seen = []


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        seen.append(self.headers["Host"])
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        onward = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=60)
        # The target and the headers as they came: both are signed.
        onward.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                onward.putheader(name, value)
        onward.putheader("X-Forwarded-Proto", "https")
        onward.endheaders(body)
        answer = onward.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)
        onward.close()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward

    def handle_expect_100(self):
        self.send_response_only(100)
        self.end_headers()
        return True

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=server.serve_forever, daemon=True).start()
port = server.server_address[1]

# The names are in no DNS.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **named: resolve(
    "127.0.0.1" if str(host).endswith(".test") else host, *rest, **named)

KEY = "ä b/+%2B"
for domain in ["one.test", "two.test"]:
    s3 = client(endpoint=f"http://{domain}:{port}", s3={"addressing_style": "virtual"})
    s3.create_bucket(Bucket="by-proxy")
    s3.put_object(Bucket="by-proxy", Key=KEY, Body=domain.encode())
    assert s3.get_object(Bucket="by-proxy", Key=KEY)["Body"].read() == domain.encode()
    assert [line["Key"] for line in s3.list_objects_v2(Bucket="by-proxy")["Contents"]] == [KEY]
    assert f"by-proxy.{domain}:{port}" in seen, seen
    at = {"Bucket": "by-proxy", "Key": KEY}
    url = s3.generate_presigned_url("get_object", Params=at)
    assert url.startswith(f"http://by-proxy.{domain}:{port}/"), url
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == domain.encode()
    put = urllib.request.Request(s3.generate_presigned_url("put_object", Params=at), b"again", method="PUT")
    urllib.request.urlopen(put).close()
    # By the path, at the same domain.
    flat = client(endpoint=f"http://{domain}:{port}", s3={"addressing_style": "path"})
    assert flat.get_object(**at)["Body"].read() == b"again"
    # A URL is good for its own host only.
    other = "two.test" if domain == "one.test" else "one.test"
    try:
        urllib.request.urlopen(url.replace(domain, other))
        raise AssertionError("a URL was good at another host")
    except urllib.error.HTTPError as e:
        assert e.code == 403, e
    # A client's own key needs an encrypted connection, which the proxy vouches for.
    own = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}
    s3.put_object(Bucket="by-proxy", Key="own", Body=b"own", **own)
    assert code(s3.get_object, Bucket="by-proxy", Key="own") == "InvalidRequest"
    for key in [KEY, "own"]:
        s3.delete_object(Bucket="by-proxy", Key=key)
    s3.delete_bucket(Bucket="by-proxy")
server.shutdown()
