"""Keys of Vault: s3_vault.py PROGRAM FOLDER. What stands in for Vault answers as its transit engine does.

The environment has AWS_ENDPOINT_URL, a gateway without Vault, and the keys of a user.
"""

import base64
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

from s3_client import client, code, empty

program, folder = sys.argv[1:]
TOKEN = "s.of-the-gateway"
keys = {"blue": os.urandom(32)}
asked = []


class Transit(http.server.BaseHTTPRequestHandler):
    """Encrypts by adding a stream that follows from the key: it need not be safe."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb, name = self.path.removeprefix("/v1/secrets/").rsplit("/", 1)
        asked.append(verb)
        if self.headers["X-Vault-Token"] != TOKEN:
            return self.answer(403, {"errors": ["permission denied"]})
        if name not in keys:
            return self.answer(400, {"errors": ["encryption key not found"]})
        stream = hashlib.sha256(keys[name]).digest()
        turn = lambda data: bytes(a ^ b for a, b in zip(data, stream))
        if verb == "datakey/plaintext":
            assert body == {"bits": 256}, body
            plain = os.urandom(32)
            sealed = "vault:v1:" + base64.b64encode(turn(plain)).decode()
        else:
            assert verb == "decrypt", verb
            sealed = body["ciphertext"]
            plain = turn(base64.b64decode(sealed.removeprefix("vault:v1:")))
        self.answer(200, {"data": {"plaintext": base64.b64encode(plain).decode(), "ciphertext": sealed}})

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Transit)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(f"{folder}/vault-token", "w") as token:
    token.write("wrong\n")


def gateway():
    """One more gateway, and its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--conf", f"{folder}/ceph.conf", "--listen", f"127.0.0.1:{port}"]
    words += ["--first-user", f"{folder}/s3.env", "--kms-vault-mount", "secrets"]
    words += ["--kms-vault-url", f"http://127.0.0.1:{server.server_address[1]}"]
    words += ["--kms-vault-token-file", f"{folder}/vault-token"]
    process = subprocess.Popen([program, "s3", "serve", *words])
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, f"http://127.0.0.1:{port}"
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError("the gateway does not listen")


LARGE = os.urandom(300_000)
blue = dict(ServerSideEncryption="aws:kms", SSEKMSKeyId="blue")
first, endpoint = gateway()
second = None
try:
    with_vault, without = client(endpoint=endpoint), client()
    with_vault.create_bucket(Bucket="vault")
    at = dict(Bucket="vault", Key="large")
    assert code(with_vault.put_object, Body=LARGE, **at, **blue) == "AccessDenied"
    # The token is read again when it is needed.
    with open(f"{folder}/vault-token", "w") as token:
        token.write(TOKEN + "\n")
    answer = with_vault.put_object(Body=LARGE, **at, **blue)
    assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"]) == ("aws:kms", "blue"), answer
    asked.clear()
    for number in range(20):
        with_vault.put_object(Bucket="vault", Key=f"small/{number}", Body=b"%d" % number, **blue)
        assert with_vault.get_object(Bucket="vault", Key=f"small/{number}")["Body"].read() == b"%d" % number
    assert not asked, f"Vault was asked for keys that are known: {asked}"
    asked.clear()
    missing = dict(ServerSideEncryption="aws:kms", SSEKMSKeyId="green")
    assert code(with_vault.put_object, Body=b"", **at, **missing) == "KMS.NotFoundException"
    # Another gateway has the key from Vault; one without Vault has none.
    second, other = gateway()
    with_other = client(endpoint=other)
    got = with_other.get_object(**at, Range="bytes=70000-70009")
    assert (got["Body"].read(), got["SSEKMSKeyId"]) == (LARGE[70000:70010], "blue")
    assert asked == ["datakey/plaintext", "decrypt"], asked
    assert code(without.get_object, **at) == "KMS.NotFoundException"
    # The default of a bucket, and a copy within it.
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "blue"}}
    with_vault.put_bucket_encryption(Bucket="vault", ServerSideEncryptionConfiguration={"Rules": [rule]})
    with_vault.copy_object(Bucket="vault", Key="copy", CopySource="vault/large")
    assert with_other.get_object(Bucket="vault", Key="copy")["Body"].read() == LARGE
    # What Vault has forgotten cannot be read, by a gateway that has not read it before.
    keys.clear()
    first.kill()
    first.wait()
    first, endpoint = gateway()
    with_vault = client(endpoint=endpoint)
    assert code(with_vault.get_object, **at) == "KMS.NotFoundException"
    server.shutdown()
    server.server_close()
    assert code(with_vault.get_object, **at) == "ServiceUnavailable"
    empty(with_vault, "vault")
finally:
    for process in [first, second]:
        if process:
            process.kill()
            process.wait()
