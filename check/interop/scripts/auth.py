#!/usr/bin/env python3
"""Users, their keys and what they may do: what operators say about them and what monitors answer, plain and as JSON.

Argument: a pool, as for all of these scripts; nothing is asked of it. `testdata/auth.txt` is what it prints of a real Ceph. Keys that the cluster made
are shown as KEY, and whom the cluster knows from its beginning is not shown. Commands go through one session, as in
`commands.py`."""
import contextlib
import io
import json
import re
import shlex

import ceph_argparse
import rados

cluster = rados.Rados(conffile="")
cluster.connect()

FIRST, SECOND = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==", "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
UUID = "11111111-2222-3333-4444-%012d"


def ask(line, inbuf=b"", **more):
    """The code, the text for people, and the output."""
    known = ceph_argparse.parse_json_funcsigs(DESCRIPTIONS, "cli")
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        command = ceph_argparse.validate_command(known, shlex.split(line), False)
    if not command:
        return -22, "invalid command", ""
    target = command.pop("target", ("mon", ""))
    code, output, said = ceph_argparse.json_command(
        cluster, target=target, argdict=dict(command, **more), inbuf=inbuf, timeout=60)
    return code, said, output.decode()


code, DESCRIPTIONS, said = ceph_argparse.json_command(cluster, target=("mon", ""), prefix="get_command_descriptions", timeout=60)
assert code == 0, said
DESCRIPTIONS = DESCRIPTIONS.decode()
KNOWN = {row["entity"] for row in json.loads(ask("auth ls", format="json")[2]).get("auth_dump", [])}


def normal(text):
    """Without what differs from one cluster to the next."""
    return re.sub(r"AQ[A-Za-z0-9+/]{36}==", lambda key: key[0] if key[0] in (FIRST, SECOND) else "KEY", text)


def show(said, output):
    for text in (said, output):
        lines = [part.rstrip() for part in normal(text).splitlines()]
        print("".join(f"  {part}\n" for part in lines if part), end="")


def run(line, inbuf=b"", **more):
    code, said, output = ask(line, inbuf, **more)
    form = f" --format {more['format']}" if "format" in more else ""
    print(f"$ {line}{form}" + (f"  -> {code}" if code else ""))
    if inbuf:
        print("".join(f"  < {part}\n" for part in inbuf.decode().splitlines()), end="")
    show(said, output)


def several(line):
    """The same, in each form."""
    run(line)
    for form in ("json", "json-pretty"):
        run(line, format=form)


def all_of(line, form=None):
    """A command that shows everybody, without those who were there before."""
    code, said, output = ask(line, **({"format": form} if form else {}))
    print(f"$ {line}" + (f" --format {form}" if form else "") + (f"  -> {code}" if code else ""))
    if form:
        rows = json.loads(output)
        names = list(rows) if isinstance(rows, dict) else ["(list)"]
        rows = rows.get("auth_dump", []) if isinstance(rows, dict) else rows
        output = f"{names}\n" + "".join(f"{row}\n" for row in rows if row["entity"] not in KNOWN)
    else:
        # Each begins with a name at the left.
        parts = re.split(r"^(?=\S)", output, flags=re.MULTILINE)
        output = "".join(part for part in parts if part.split("\n")[0].strip("[]") not in KNOWN)
    show(said, output)


def keyring(name, key=FIRST, **caps):
    lines = [f"[{name}]"] + ([f"\tkey = {key}"] if key else [])
    return "".join(f"{line}\n" for line in lines + [f'\tcaps {kind} = "{text}"' for kind, text in caps.items()]).encode()


NEW = "auth get-or-create client.a mon 'allow r' osd 'allow rw pool=data, allow x'"

# ---- made as they are needed ----
if not KNOWN:
    for line in ["ls", "export"]:
        several(f"auth {line}")
several(NEW)
several("auth get-or-create client.a")
for caps in ["mon 'allow r'", "mon 'allow rw'", "mon 'allow r' mgr 'allow r'", "mon 'allow  r'"]:
    run(f"auth get-or-create client.a {caps}")
run("auth get-or-create-key client.a mon 'allow r'")
several("auth get-or-create-key client.b")
run("auth get-or-create-key client.b osd 'allow r'")
run("auth get-or-create client.none")

# ---- shown ----
several("auth get client.a")
run("auth get client.none", format="json")
several("auth export client.a")
for name in ["get-key", "print-key", "print_key"]:
    several(f"auth {name} client.a")
    print(f"  ends a line: {ask(f'auth {name} client.a')[2].endswith(chr(10))}")
for line in ["get", "get-key", "print-key", "print_key", "export"]:
    run(f"auth {line} client.nobody")
    run(f"auth {line} nobody")
for line in ["ls", "list", "export"]:
    all_of(f"auth {line}")
    all_of(f"auth {line}", "json")
all_of("auth ls", "json-pretty")
run("auth get ''")

# ---- names ----
for name in ["nobody", "client", "client.", "osd.x", "osd.777", "foo.a", "client.a.b", "client.ä b", "mgr.y", "mds.z", "mon.a",
             "Client.a", "client.[x]", ".a"]:
    run(f"auth get-or-create-key '{name}' mon 'allow r'")
    run(f"auth get '{name}'")
    run(f"auth rm '{name}'")

# ---- capabilities ----
for caps in [
        "mon", "mon 'allow r' osd", "xyz 'allow r'", "'' ''", "mon ''", "osd ''", "mgr ''", "mds ''", "mon ' '", "osd ' '", "mgr ' '",
        "mds ' '", "mon allow", "mon 'allow q'", "mon 'profile rbd' osd 'profile rbd pool=x' mgr 'profile rbd'",
        "osd 'allow rwx pool=a b'", "osd 'deny'", "osd 'profile nope'", "mgr 'profile nope'", "mgr 'allow nope'",
        "mon 'allow r' osd 'nonsense'", "osd 'allow r network nope'", "mds 'allow'", "mds 'allow rw path=/a uid=1 gids=2,3'",
        "mds 'allow rwfps'", "mds 'allow rwfs'", "mds 'allow rwf'", "mds 'allow rf'", "mds 'allow w'", "mds 'profile osd'",
        "mds 'allow rw fsname=x path=/a root_squash'", "mds 'allow rw root_squash network 10.0.0.0/8'",
        "mds 'allow rw uid=1 network 10.0.0.0/8'", "mds 'allow rw uid=1 gids=2,x'", "mds 'allow rw path=\"\"'", "mds 'allow rw path='",
        "mds 'allow rw uid=4294967296'", "mds 'allow rw uid=-1'", "mds 'allow, allow r'", "mds 'allow r  ;  allow rw '",
        "mds 'allow rw\tpath=/a'"]:
    run(f"auth caps client.b {caps}")
run("auth caps client.nobody mon 'allow r'")
run("auth caps client.nobody mon 'allow q'")
run("auth caps client.nobody mon")
run("auth get-or-create client.c mon 'allow q'")
run("auth get-or-create client.c mon")
run("auth get client.c")
run("auth caps client.b mon 'allow command \"osd ls\" with a=\"b\"' osd 'allow rw pool=\"a b\"'")
several("auth get client.b")
all_of("auth ls")

# ---- added ----
for caps in ["mon 'allow r'", "mon 'allow r'", "mon 'allow rw'", "mon 'allow r' osd 'allow r'", "osd 'allow r'", "", "mon 'allow q'"]:
    run(f"auth add client.d {caps}".strip())
run("auth add client.e")
run("auth add client.f", keyring("client.f", mon="allow r"))
run("auth add client.f", keyring("client.f", mon="allow r"))
run("auth add client.f", keyring("client.f", SECOND, mon="allow r"))
run("auth add client.f mon 'allow r'", keyring("client.f"))
run("auth add client.f mon 'allow r'", keyring("client.f", mon="allow r"))
run("auth add client.f mon 'allow r'")
run("auth add client.f", keyring("client.f", mon="allow rw"))
run("auth add client.f", keyring("client.f"))
run("auth add client.g", keyring("client.f"))
run("auth add client.g", keyring("client.g"))
run("auth add client.h mon 'allow r'", keyring("client.h", SECOND))
run("auth add client.j", b"nonsense")
run("auth add client.j", keyring("client.j", "nonsense", mon="allow r"))
run("auth add client.j", keyring("client.k", FIRST) + keyring("client.j", SECOND, osd="allow r"))
for name in "defghj":
    run(f"auth export client.{name}")

# ---- taken in ----
run("auth import")
run("auth import", keyring("client.l"))
run("auth import", keyring("client.m", mon="allow r") + keyring("client.n", SECOND, osd="allow r", mon="allow r"))
run("auth import", keyring("client.m", SECOND, mon="allow *"))
run("auth import", b"# a comment\n[client.t]\nkey=" + FIRST.encode() + b"\ncaps mon = allow r\n")
run("auth import", b"[client.u]\n  key = " + FIRST.encode() + b"\n  caps_mon = 'allow r'\n  auid = 0\n")
run("auth import", b'[client.v]\n\tkey = "' + FIRST.encode() + b'" ; a comment\n\tcaps mon = "allow r" # another\n')
for name in "lmntuv":
    run(f"auth export client.{name}")
all_of("auth export")

# ---- removed ----
for name in ["client.a", "client.a", "client.nobody", "nobody", "''"]:
    run(f"auth rm {name}")
run("auth del client.b")
for name in ["d", "e", "f", "g", "h", "j", "m", "n", "none", "t", "u", "v"]:
    ask(f"auth rm client.{name}")
all_of("auth ls")
all_of("auth ls", "json")

# ---- OSDs ----
ONE, TWO = (json.dumps({"cephx_secret": secret}).encode() for secret in (FIRST, SECOND))
run(f"osd new {UUID % 1} 50", ONE)
run(f"osd new {UUID % 1} 50", ONE)
run(f"osd new {UUID % 1}", ONE)
run(f"osd new {UUID % 1} 50")
run(f"osd new {UUID % 1} 51", ONE)
run(f"osd new {UUID % 2} 50", ONE)
run(f"osd new {UUID % 1} 50", TWO)
run("auth get osd.50")
run("auth caps osd.50 mon 'allow r'")
run(f"osd new {UUID % 1} 50", ONE)
run(f"osd new {UUID % 3} 51", b"{}")
for text in ["nonsense", ""]:
    run(f"osd new {UUID % 3} 51", json.dumps({"cephx_secret": text}).encode())
run(f"osd new {UUID % 3} 51", json.dumps({"cephx_secret": FIRST, "other": "x"}).encode())
run("auth get osd.51")
run("osd destroy 50 --force")
run("auth get osd.50")
run("osd destroy 50 --force")
run(f"osd new {UUID % 4} 50", TWO)
run("auth get osd.50")
run("osd purge 50 --force")
run("auth get osd.50")
run("auth add osd.50 mon 'allow r'")
run(f"osd new {UUID % 5} 50", ONE)
run(f"osd new {UUID % 5} 50")
run("osd rm 50")
run("auth get osd.50")
run("auth rm osd.50")
run("osd purge-new 51 --yes-i-really-mean-it")
run("auth get osd.51")
