#!/usr/bin/env python3
"""What operators say to monitors and managers, and what these answer: command by command, plain and as JSON.

Argument: a pool. `testdata/commands.txt` is what it prints of a real Ceph. The commands go through the stock parser, as
those that are typed do, but all through one session: a process for each takes twenty times as long."""
import contextlib
import io
import json
import re
import sys
import time

import ceph_argparse
import rados

POOL = sys.argv[1]
cluster = rados.Rados(conffile="")
cluster.connect()


def ask(line, **more):
    """The code, the text for people, and the output."""
    known = ceph_argparse.parse_json_funcsigs(DESCRIPTIONS, "cli")
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        command = ceph_argparse.validate_command(known, line.split(), False)
    if not command:
        return -22, "invalid command", ""
    target = command.pop("target", ("mon", ""))
    code, output, said = ceph_argparse.json_command(cluster, target=target, argdict=dict(command, **more), timeout=60)
    return code, said, output.decode()


def ask_osd(osd, prefix, **more):
    code, output, said = ceph_argparse.json_command(cluster, target=("osd", str(osd)), prefix=prefix, argdict=more, timeout=60)
    return code, said, output.decode()


code, DESCRIPTIONS, said = ceph_argparse.json_command(cluster, target=("mon", ""), prefix="get_command_descriptions", timeout=60)
assert code == 0, said
DESCRIPTIONS = DESCRIPTIONS.decode()
NUMBER = {row["poolname"]: row["poolnum"] for row in json.loads(ask("osd lspools", format="json")[2])}[POOL]


def normal(text):
    """Without what differs from one cluster to the next."""
    text = re.sub(rf"\b{POOL}\b", "POOL", text)
    text = re.sub(rf'\bpool {NUMBER}\b|"pool_id": ?{NUMBER}\b', "pool N", text)
    return re.sub(rf'\b{NUMBER}\.(\d+)\b', r"N.\1", text)


def run(line):
    code, said, output = ask(line)
    print("$ " + normal(line) + (f"  -> {code}" if code else ""))
    for text in (said, output):
        lines = [part.rstrip() for part in normal(text).splitlines()]
        print("".join(f"  {part}\n" for part in lines if part), end="")


def sets():
    """Of all alternative weights, by what they are for: what items weigh in their host, at each position."""
    _, _, output = ask("osd crush tree", format="json")
    osds = [node for node in json.loads(output)["nodes"] if node["id"] >= 0]
    weights = {node["name"]: node["pool_weights"] for node in osds}
    own = {node["name"]: node["crush_weight"] for node in osds}
    for name, of in sorted(weights.items()):
        shown = {("POOL" if key == POOL else key): ["own" if x == own[name] else round(x, 4) for x in values]
                 for key, values in of.items()}
        print(f"  {name} {shown}")


# ---- groups that are lost ----
run(f"osd force-create-pg {NUMBER}.999")
run(f"osd force-create-pg {NUMBER}.999 --yes-i-really-mean-it")

# ---- long work ----
for line in ["on", "off", "off", "", "json", "clear", "on", "on"]:
    run(f"progress {line}".strip())

# ---- pools that will be large ----
for value in ["true", "3", "false", "1"]:
    run(f"osd pool set {POOL} bulk {value}")
run(f"osd pool get {POOL} bulk")
code, said, output = ask("osd pool ls detail", format="json")
print([pool["flags_names"] for pool in json.loads(output) if pool["pool_name"] == POOL])
run(f"osd pool create {POOL}-bulk 4 --bulk")
run(f"osd pool get {POOL}-bulk bulk")
run(f"osd pool get {POOL}-bulk all")
run(f"osd pool delete {POOL}-bulk {POOL}-bulk --yes-i-really-really-mean-it")
run(f"osd pool set {POOL} bulk 0")

# ---- classes ----
ask("osd crush rm-device-class all")  # it depends on the disks which there are
run("osd crush rm-device-class all")
run("osd crush class ls")
for line in ["create one", "create one", "rename one two", "rename one two", "rename nope other", "ls-osd two", "rm two",
             "rm two"]:
    run(f"osd crush class {line}")
run("osd crush set-device-class three 0 1")
run("osd crush set-device-class four 2")
run("osd crush class rename three four")
run("osd crush class rename three five")
run("osd crush class ls-osd five")
run("osd crush rule create-replicated of-five default osd five")
run("osd crush rule ls-by-class five")
run("osd crush class rm five")
run("osd crush rule rm of-five")
run("osd crush class rm five")
run("osd crush class ls")
run("osd crush class rm four")

# ---- other weights ----
for line in ["ls", "create-compat", "create-compat", f"create {POOL} positional", f"create {POOL} flat", "create nope flat", "ls",
             "reweight-compat osd.0 0.5", "reweight-compat nope 0.5",
             f"reweight {POOL} osd.1 0.25 0.5 0.75", f"reweight {POOL} osd.1 0.25", f"reweight {POOL} nope 1 1 1",
             "reweight nope osd.1 1"]:
    run(f"osd crush weight-set {line}")
sets()
for line in [f"rm {POOL}", f"rm {POOL}", "rm nope", f"reweight {POOL} osd.1 0.25", "ls", "rm-compat", "rm-compat",
             "reweight-compat osd.0 0.5", "ls"]:
    run(f"osd crush weight-set {line}")
sets()

# ---- networks that are fenced ----
def fences(line):
    code, said, output = ask(f"osd blocklist {line}")
    until = r" (until )?\d{4}-\S+"
    print(f"$ osd blocklist {line}" + (f"  -> {code}" if code else ""))
    if not code:
        for text in (said, output):
            print("".join(f"  {re.sub(until, ' UNTIL', part)}\n" for part in text.splitlines()), end="")


for line in ["range add 10.1.2.3/24", "range add 10.1.2.3/24", "range add 10.1.2.0/24 50.5", "range add fe80::/64", "ls",
             "range add 10.1.2.0", "range add 10.1.2.0/33", "range add fe80::/129", "range add 10.1.2.0/0",
             "range add 10.1.2.0:5/24", "other add 10.1.2.0/24", "range rm 10.1.2.0/25", "range rm 10.1.2.0/24",
             "range rm 10.1.2.0/24", "add 10.1.2.3:0/7", "ls", "clear", "ls"]:
    fences(line)

# ---- what has been reported ----
for osd in range(3):
    code, said, output = ask_osd(osd, "flush_pg_stats")
    for _ in range(120):
        if int(ask(f"osd last-stat-seq {osd}")[2]) >= int(output):
            print(f"  osd.{osd} {code} {said!r} was heard")
            break
        time.sleep(0.25)
run("osd last-stat-seq 99")

# ---- all requests held back ----
run("osd pause")
run("osd unpause")
