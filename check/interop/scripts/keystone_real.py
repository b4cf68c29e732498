"""Keystone itself, of Debian's packages `python3-keystone`, `uwsgi-core` and `uwsgi-plugin-python3`, with the
users of `keystone.py`: keystone_real.py PORT MADE. It runs until it is killed.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

port, made = sys.argv[1:]
base = f"http://127.0.0.1:{port}"
folder = tempfile.mkdtemp(prefix="nacre-keystone-", dir=os.path.dirname(os.path.abspath(made)))
conf = os.path.join(folder, "keystone.conf")
with open(conf, "w") as file:
    file.write(
        f"""[database]
connection = sqlite:///{folder}/keystone.db
[fernet_tokens]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[cache]
enabled = false
"""
    )


def manage(*words):
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["keystone-manage", "--config-file", conf, *words], check=True, **silent)


def die_with_parent():
    ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


def ask(method, path, body=None, token=None):
    """The token in the headers of an answer, and the body."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["X-Auth-Token"] = token
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{base}/v3{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        read = answer.read()
        return answer.headers.get("X-Subject-Token"), json.loads(read) if read else None


def user(admin, domain, name, project, role):
    """Makes a user with a role in a project, which is made if it is missing; ids of both."""
    found = ask("GET", f"/projects?name={project}", token=admin)[1]["projects"]
    if not found:
        asked = {"project": {"name": project, "domain_id": domain}}
        found = [ask("POST", "/projects", asked, admin)[1]["project"]]
    asked = {"user": {"name": name, "password": f"{name}pw", "domain_id": domain}}
    user, project = ask("POST", "/users", asked, admin)[1]["user"]["id"], found[0]["id"]
    ask("PUT", f"/projects/{project}/users/{user}/roles/{role}", token=admin)
    return user, project


os.mkdir(f"{folder}/fernet", 0o700)
os.mkdir(f"{folder}/credential", 0o700)
manage("db_sync")
for kind in "fernet", "credential":
    manage(f"{kind}_setup", "--keystone-user", "root", "--keystone-group", "root")
urls = ["--bootstrap-admin-url", base, "--bootstrap-public-url", base]
manage("bootstrap", "--bootstrap-password", "adminpw", "--bootstrap-region-id", "R", *urls)
words = ["uwsgi", "--plugin", "python3", "--http-socket", f"127.0.0.1:{port}", "--disable-logging"]
words += ["--wsgi-file", "/usr/bin/keystone-wsgi-public", "--threads", "4"]
words += ["--env", f"OS_KEYSTONE_CONFIG_DIR={folder}"]
server = subprocess.Popen(words, preexec_fn=die_with_parent, stderr=subprocess.DEVNULL)
deadline = time.monotonic() + 120
while True:
    try:
        ask("GET", "")
        break
    except (urllib.error.URLError, ConnectionError):
        assert time.monotonic() < deadline and server.poll() is None, "Keystone does not start"
        time.sleep(0.2)
of = {"name": "Default"}
who = {"name": "admin", "password": "adminpw", "domain": of}
identity = {"methods": ["password"], "password": {"user": who}}
asked = {"auth": {"identity": identity, "scope": {"project": {"name": "admin", "domain": of}}}}
admin, token = ask("POST", "/auth/tokens", asked)
domain = token["token"]["project"]["domain"]["id"]
roles = {role["name"]: role["id"] for role in ask("GET", "/roles", token=admin)[1]["roles"]}
user(admin, domain, "swift", "service", roles["admin"])
demo, project = user(admin, domain, "demo", "demo", roles["member"])
user(admin, domain, "reader", "demo", roles["reader"])
key = ask("POST", f"/users/{demo}/credentials/OS-EC2", {"tenant_id": project}, admin)[1]["credential"]
with open(made, "w") as file:
    json.dump({"project": project, "access": key["access"], "secret": key["secret"]}, file)
server.wait()
