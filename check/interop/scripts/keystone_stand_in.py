"""A stand-in for Keystone, OpenStack's identity service, which itself takes half a minute to start: what a
gateway asks is answered in the words of Keystone 22. keystone_stand_in.py PORT MADE writes a project and an
access key into the file MADE.
"""

import base64
import hashlib
import hmac
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROJECTS = {"service": "7678fd555057439195a5ecba095144e8", "demo": "f11123ccd3e3495eac36250c2d2525b5"}
USERS = {
    "swift": ("swiftpw", "8e7a2ccafd3e4e8b93af72c1808a3458", "service", ["admin", "reader", "member"]),
    "demo": ("demopw", "913c5c2ab26245c5a81d61c1548e506b", "demo", ["reader", "member"]),
    "reader": ("readerpw", "2a9d5731fe5643da88ae9befe88a65df", "demo", ["reader"]),
}
ACCESS, SECRET = "4f5f2026985f4b0697267cd55ea17ee8", "ede80e9086d44787984b4cc09368a9e7"
CREDENTIAL = hashlib.sha256(ACCESS.encode()).hexdigest()
tokens = {}


def described(name):
    """What Keystone says of a token of this user."""
    _, user, project, roles = USERS[name]
    domain = {"id": "default", "name": "Default"}
    return {
        "token": {
            "methods": ["password"],
            "user": {"domain": domain, "id": user, "name": name, "password_expires_at": None},
            "audit_ids": ["qtVgoZsvRn6IhME0RO39QA"],
            "expires_at": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + 3600)),
            "project": {"domain": domain, "id": PROJECTS[project], "name": project},
            "is_domain": False,
            "roles": [{"id": hashlib.md5(role.encode()).hexdigest(), "name": role} for role in roles],
        }
    }


def is_signed(credentials):
    """Whether a text was signed with the secret, as for a request of S3."""
    text = base64.urlsafe_b64decode(credentials["token"])
    key = f"AWS4{SECRET}".encode()
    for part in text.split(b"\n")[2].split(b"/"):
        key = hmac.new(key, part, "sha256").digest()
    return hmac.new(key, text, "sha256").hexdigest() == credentials["signature"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, token=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if token:
            self.send_header("X-Subject-Token", token)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fails(self, status, title):
        self.answer(status, {"error": {"code": status, "message": title, "title": title}})

    def is_admin(self):
        name = tokens.get(self.headers.get("X-Auth-Token"))
        if name is None:
            self.fails(401, "Unauthorized")
        elif "admin" not in USERS[name][3]:
            self.fails(403, "Forbidden")
        else:
            return True
        return False

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.split("?")[0]
        if path == "/v3/auth/tokens":
            user = asked["auth"]["identity"]["password"]["user"]
            password, _, project, _ = USERS.get(user["name"], (None, None, None, None))
            scope = asked["auth"]["scope"]["project"]["name"]
            if password != user["password"] or project != scope:
                return self.fails(401, "Unauthorized")
            token = "gAAAAA" + secrets.token_urlsafe(120)
            tokens[token] = user["name"]
            return self.answer(201, described(user["name"]), token)
        if path == "/v3/s3tokens" and self.is_admin():
            credentials = asked["credentials"]
            if credentials["access"] != ACCESS or not is_signed(credentials):
                return self.fails(401, "Unauthorized")
            return self.answer(200, described("demo"))

    def do_GET(self):
        path = self.path.split("?")[0]
        if not self.is_admin():
            return
        if path == "/v3/auth/tokens":
            name = tokens.get(self.headers.get("X-Subject-Token"))
            return self.answer(200, described(name)) if name else self.fails(404, "Not Found")
        if path == f"/v3/credentials/{CREDENTIAL}":
            blob = json.dumps({"access": ACCESS, "secret": SECRET, "trust_id": None})
            of = {"user_id": USERS["demo"][1], "project_id": PROJECTS["demo"]}
            return self.answer(200, {"credential": {"id": CREDENTIAL, "type": "ec2", "blob": blob, **of}})
        self.fails(404, "Not Found")

    do_HEAD = do_GET


with open(sys.argv[2], "w") as file:
    json.dump({"project": PROJECTS["demo"], "access": ACCESS, "secret": SECRET}, file)
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.serve_forever()
