#!/usr/bin/env python3
"""Snapshots through python3-rados and the `rados` command, with everything that comes back printed
line by line. Argument: a new pool, for snapshots that clients manage; one for snapshots of its own
is made beside it. `SEED` in the environment draws other changes."""
import json
import os
import random
import subprocess
import sys
import time

import rados

SELF, NAMED, SEED = sys.argv[1], sys.argv[1] + "-named", int(os.environ.get("SEED", "1"))
HEAD = 0xfffffffffffffffe
SIZE = 4096


def say(*words):
    print(*words, flush=True)


def attempt(call):
    """What a call gives, or its errno."""
    try:
        return call()
    except rados.Error as error:
        return f"errno {getattr(error, 'errno', error)}"


def short(value):
    if isinstance(value, bytes):
        runs, last, start = [], None, 0
        for at, byte in enumerate(value + b"\x00" if value else b""):
            if byte != last or at == len(value):
                if last is not None:
                    runs.append(f"{at - start}x{last}")
                last, start = byte, at
        return "[" + " ".join(runs) + "]"
    return value


def rados_command(pool, *words):
    done = subprocess.run(["rados", "-p", pool, *words], capture_output=True, text=True, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def listed(pool, name):
    code, out, _ = rados_command(pool, "listsnaps", name, "--format", "json")
    if code:
        return f"code {code}"
    found = []
    for clone in json.loads(out)["clones"]:
        overlaps = [(overlap["start"], overlap["length"]) for overlap in clone.get("overlaps", [])]
        found.append((clone["id"], [snap["id"] for snap in clone["snapshots"]], clone["size"], overlaps))
    return found


def trimmed(pool, name, alive):
    """The object's clones, once those of removed snapshots are gone."""
    for _ in range(100):
        clones = listed(pool, name)
        if isinstance(clones, str) or all(c[0] == "head" or set(c[1]) <= alive for c in clones):
            return clones
        time.sleep(0.2)
    return f"not trimmed: {clones}"


def omap(io, name):
    with rados.ReadOpCtx() as op:
        pairs, _ = io.get_omap_vals(op, "", "", 100)
        io.operate_read_op(op, name)
        return sorted(pairs)


def look(io, name):
    """All that there is to see of an object."""
    data = attempt(lambda: short(io.read(name, 2 * SIZE)))
    size = attempt(lambda: io.stat(name)[0])
    attrs = attempt(lambda: sorted((key, value) for key, value in io.get_xattrs(name)))
    return data, size, attrs, attempt(lambda: omap(io, name))


def change(rng, io, name, n):
    """One random change of an object, as words and a result."""
    byte = bytes([1 + n % 250])
    offset, length = rng.randrange(SIZE), 1 + rng.randrange(SIZE // 2)
    kind = rng.choice(["write", "full", "append", "truncate", "zero", "remove", "attr", "omap", "both", "create"])
    if kind == "write":
        return (kind, offset, length), attempt(lambda: io.write(name, byte * length, offset))
    if kind == "full":
        return (kind, length), attempt(lambda: io.write_full(name, byte * length))
    if kind == "append":
        return (kind, length), attempt(lambda: io.append(name, byte * length))
    if kind == "truncate":
        return (kind, offset), attempt(lambda: io.trunc(name, offset))
    if kind == "remove":
        return (kind,), attempt(lambda: io.remove_object(name))
    if kind == "attr":
        return (kind,), attempt(lambda: io.set_xattr(name, f"a{n % 3}", byte))
    with rados.WriteOpCtx() as op:
        if kind == "zero":
            op.zero(offset, length)
        elif kind == "omap":
            io.set_omap(op, (f"k{n % 5}",), (byte,))
        elif kind == "create":
            op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        else:
            op.write(byte * length, offset)
            op.truncate(length)
        return (kind, offset, length), attempt(lambda: io.operate_write_op(op, name))


def self_managed(cluster):
    rng = random.Random(SEED)
    with cluster.open_ioctx(SELF) as io:
        say("mixing", attempt(lambda: io.create_self_managed_snap()))
        say("mixing", attempt(lambda: io.create_snap("named")))
        say("mixing", rados_command(SELF, "mksnap", "named")[0])
        snaps = []
        names = ["a", "b", "c"]
        for n in range(140):
            what = rng.randrange(12)
            name = rng.choice(names)
            if what == 0:
                snap = io.create_self_managed_snap()
                snaps.insert(0, snap)
                say(n, "snap", snap)
                io.set_self_managed_snap_write(snaps)
            elif what == 1 and len(snaps) > 3:
                snap = snaps.pop(rng.randrange(len(snaps)))
                say(n, "remove", snap, attempt(lambda: io.remove_self_managed_snap(snap)))
                io.set_self_managed_snap_write(snaps)
            elif what == 2 and snaps:
                snap = rng.choice(snaps)
                say(n, "rollback", name, snap, attempt(lambda: io.rollback_self_managed_snap(name, snap)))
            else:
                say(n, name, *change(rng, io, name, n))
            say(n, "now", name, look(io, name))
            for snap in snaps:
                io.set_read(snap)
                say(n, "at", snap, look(io, name))
            io.set_read(HEAD)
            if n % 4 == 0:
                say(n, "clones", trimmed(SELF, name, set(snaps)))
        say("write to a snapshot", attempt(lambda: (io.set_read(snaps[0]), io.write_full("a", b"x"))))
        io.set_read(HEAD)
        say("remove twice", attempt(lambda: io.remove_self_managed_snap(snaps[0])),
            attempt(lambda: io.remove_self_managed_snap(snaps[0])))
        say("remove what was never there", attempt(lambda: io.remove_self_managed_snap(1 << 40)))
        io.set_self_managed_snap_write([])
        say("names", sorted(o.key for o in io.list_objects()))


def named(cluster):
    rng = random.Random(SEED + 1)
    with cluster.open_ioctx(NAMED) as io:
        snaps = []
        for n in range(80):
            what = rng.randrange(10)
            name = rng.choice(["a", "b"])
            if what == 0:
                snaps.append(f"s{n}")
                say(n, "create", attempt(lambda: io.create_snap(snaps[-1])))
            elif what == 1 and len(snaps) > 2:
                gone = snaps.pop(rng.randrange(len(snaps)))
                say(n, "remove", gone, attempt(lambda: io.remove_snap(gone)))
            elif what == 2 and snaps:
                snap = rng.choice(snaps)
                say(n, "rollback", name, snap, attempt(lambda: io.snap_rollback(name, snap)))
            else:
                say(n, name, *change(rng, io, name, n))
            say(n, "now", look(io, name))
            for snap in snaps:
                io.set_read(io.lookup_snap(snap).snap_id)
                say(n, "at", snap, look(io, name))
            io.set_read(HEAD)
        say("snapshots", [(s.snap_id, s.name) for s in io.list_snaps()])
        say("again", attempt(lambda: io.create_snap(snaps[0])))
        say("no such", attempt(lambda: io.remove_snap("none")), attempt(lambda: io.snap_rollback("a", "none")))
        say("mixing", attempt(lambda: io.create_self_managed_snap()))
        say("mixing", attempt(lambda: io.remove_self_managed_snap(1)))
        say("lssnap", [line.split("\t")[1:2] for line in rados_command(NAMED, "lssnap")[1].splitlines()])
        say("get", rados_command(NAMED, "-s", snaps[0], "stat", "nothing")[0])
        say("ls", sorted(rados_command(NAMED, "ls")[1].split()))
        for snap in list(snaps):
            say("rmsnap", rados_command(NAMED, "rmsnap", snap)[0])


with rados.Rados(conffile="") as connected:
    connected.create_pool(NAMED)
    self_managed(connected)
    named(connected)
    attempt(lambda: connected.delete_pool(NAMED))
