#!/usr/bin/env python3
"""Clients that keep snapshots beside clients that make and remove theirs, all in one pool: what is kept stays as it was.
Arguments: the pool, and for how many seconds."""
import json
import sys
import threading
import time

import rados

POOL, SECONDS = sys.argv[1], float(sys.argv[2])
# From where `CEPH_CONF` says.
CLUSTER = rados.Rados(conffile="")
CLUSTER.connect()
END = time.monotonic() + SECONDS
errors = []


def connected():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    return cluster, cluster.open_ioctx(POOL)


def remove():
    cluster, ioctx = connected()
    while time.monotonic() < END:
        ioctx.remove_self_managed_snap(ioctx.create_self_managed_snap())


def keep(name, kept):
    cluster, ioctx = connected()
    content = b"first"
    ioctx.write_full(name, content)
    while time.monotonic() < END:
        snap = ioctx.create_self_managed_snap()
        kept.append((snap, content))
        ioctx.set_self_managed_snap_write([snap for snap, _ in reversed(kept)])
        content = b"after %d" % snap
        ioctx.write_full(name, content)


def guarded(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        errors.append(error)


def is_trimmed():
    command = json.dumps({"prefix": "osd dump", "format": "json"})
    result, out, status = CLUSTER.mon_command(command, b"")
    assert result == 0, status
    return not json.loads(out)["removed_snaps_queue"]


kept = {f"object {n}": [] for n in range(2)}
threads = [threading.Thread(target=guarded, args=(remove,)) for _ in range(2)]
threads += [threading.Thread(target=guarded, args=(keep, name, snaps)) for name, snaps in kept.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
# A snapshot that counts as removed goes when those that were removed go, and a while later at the latest.
time.sleep(4)
deadline = time.monotonic() + 60
while not is_trimmed():
    assert time.monotonic() < deadline, "removed snapshots are not trimmed"
    time.sleep(0.5)
ioctx = CLUSTER.open_ioctx(POOL)
for name, snaps in kept.items():
    assert len(snaps) > 5, len(snaps)
    for snap, content in snaps:
        ioctx.set_read(snap)
        assert ioctx.read(name) == content, f"{name} in snapshot {snap}"
