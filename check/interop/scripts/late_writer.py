#!/usr/bin/env python3
"""A client that did not hear that a snapshot is gone writes and deletes. Argument: a pool.

Says "removed", and waits for a line before it goes on."""
import sys

import rados

cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(sys.argv[1])
io.write_full("late", b"old")
snap = io.create_self_managed_snap()
io.set_self_managed_snap_write([snap])
io.remove_self_managed_snap(snap)
print("removed", flush=True)
sys.stdin.readline()
io.write_full("late", b"new")
assert io.read("late") == b"new"
io.remove_object("late")
