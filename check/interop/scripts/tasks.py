#!/usr/bin/env python3
"""Work on images that the manager does in the background: `ceph rbd task ...`, line by line.

Argument: a pool for images. `testdata/tasks.txt` is what it prints of a real Ceph."""
import json
import os
import re
import subprocess
import sys
import time

from ids import without_ids

POOL = sys.argv[1]
ENVIRONMENT = dict(os.environ, CEPH_ARGS=os.environ.get("CEPH_ARGS", "")
                   + f" --rbd-default-pool={POOL} --log-to-stderr=false --err-to-stderr=false")


def normal(text):
    """Without what differs from one run to the next."""
    text = re.sub(rf"\b{POOL}\b", "POOL", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "UUID", text)
    text = re.sub(r'"(in_progress|progress)": [^,\n]*,\s*', "", text)
    text = re.sub(r'"(sequence|retry_attempts)": \d+', r'"\1": N', text)
    text = re.sub(r'"retry_(time|message)": "[^"]*"', r'"retry_\1": "SOME"', text)
    text = re.sub(r'"image_id": "\w+"', '"image_id": "ID"', text)
    return re.sub(r"image \S*\bID from trash", "image ID from trash", without_ids(text))


def run(line, secret=None):
    """Prints the command and what it said, with `secret` (an id) hidden; gives its standard output."""
    done = subprocess.run(["timeout", "60", *line.split()], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    shown = (lambda text: normal(text.replace(secret, "SECRET"))) if secret else normal
    print(shown("$ " + line))
    for said in (done.stdout, done.stderr if done.returncode else ""):
        lines = [part.rstrip() for part in shown(said).splitlines()]
        print("".join(f"  {part}\n" for part in lines if part), end="")
    if done.returncode:
        print(f"  exit {done.returncode}")
    sys.stdout.flush()
    return done.stdout


def quiet(line):
    command = ["timeout", "60", *line.split()]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def tasks():
    return json.loads(quiet("ceph rbd task list"))


def idle():
    """Waits until everything is done."""
    for _ in range(600):
        if not tasks():
            return print("idle")
        time.sleep(0.1)
    raise SystemExit(f"not done in a minute: {tasks()}")


def stuck(task):
    """Waits until a task was tried and has failed."""
    for _ in range(600):
        if any(one["id"] == task and "retry_message" in one for one in tasks()):
            return
        time.sleep(0.1)
    raise SystemExit(f"not tried in a minute: {tasks()}")


def image_id(name):
    return json.loads(quiet(f"rbd info --format json {name}"))["id"]


def flattening():
    quiet("rbd create --size 16M base")
    quiet("rbd bench --io-type write --io-size 64K --io-total 16M --io-threads 4 base")
    quiet("rbd snap create base@s")
    quiet("rbd snap protect base@s")
    quiet("rbd clone base@s kid")
    quiet("rbd clone base@s busy")
    run("ceph rbd task list")
    run(f"ceph rbd task add flatten {POOL}/kid")
    idle()
    run(f"ceph rbd task add flatten {POOL}/kid")
    run("rbd children base@s")
    run(f"ceph rbd task add flatten {POOL}/base")
    run(f"ceph rbd task add flatten {POOL}/none")
    run(f"ceph rbd task add flatten none/{POOL}")
    run("ceph rbd task add flatten a@b")
    run(f"ceph rbd task add flatten {POOL}/busy")
    idle()
    run("rbd children base@s")
    quiet("rbd snap unprotect base@s")


def removing():
    run(f"ceph rbd task add remove {POOL}/base")
    quiet("rbd snap purge base")
    run(f"ceph rbd task add remove {POOL}/base --format json")
    idle()
    run(f"ceph rbd task add remove {POOL}/base")
    run(f"ceph rbd task add remove {POOL}/none")
    secret = image_id("busy")
    quiet("rbd trash mv busy")
    run(f"ceph rbd task add trash remove {POOL}/{secret}", secret)
    idle()
    run(f"ceph rbd task add trash remove {POOL}/{secret}", secret)
    run(f"ceph rbd task add trash remove {POOL}/abcdef")
    run("rbd trash ls")
    secret = image_id("kid")
    quiet("rbd trash mv --expires-at tomorrow kid")
    task = json.loads(run(f"ceph rbd task add trash remove {POOL}/{secret}", secret))["id"]
    stuck(task)
    run(f"ceph rbd task list {task}", secret)
    run("ceph rbd task list", secret)
    run(f"ceph rbd task cancel {task}")
    run(f"ceph rbd task cancel {task}")
    run(f"ceph rbd task list {task}")
    run("ceph rbd task list")
    quiet(f"rbd trash rm --force {secret}")


def namespaces():
    quiet("rbd namespace create --namespace ns")
    quiet("rbd create --size 8M --namespace ns inside")
    run(f"ceph rbd task add remove {POOL}/ns/inside")
    idle()
    run("rbd ls --namespace ns")
    run(f"ceph rbd task add remove {POOL}/none/inside")
    quiet("rbd namespace rm --namespace ns")


def migrating():
    quiet("rbd create --size 8M old")
    quiet("rbd bench --io-type write --io-size 64K --io-total 1M --io-threads 4 old")
    run(f"ceph rbd task add migration execute {POOL}/old")
    quiet("rbd migration prepare old new")
    run(f"ceph rbd task add migration commit {POOL}/new")
    run(f"ceph rbd task add migration execute {POOL}/new")
    idle()
    run(f"ceph rbd task add migration execute {POOL}/new")
    run(f"ceph rbd task add migration commit {POOL}/new")
    idle()
    run("rbd ls")
    quiet("rbd migration prepare new newer")
    run(f"ceph rbd task add migration abort {POOL}/newer")
    idle()
    run(f"ceph rbd task add migration abort {POOL}/none")
    run("rbd ls")
    quiet("rbd rm --no-progress new")


for part in (flattening, removing, namespaces, migrating):
    print(f"--- {part.__name__}")
    part()
