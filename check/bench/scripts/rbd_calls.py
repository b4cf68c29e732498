"""How long librbd's calls around snapshots and clones take on an image. Arguments: pool, image.

Prints medians of ten in milliseconds, as JSON."""
import json
import sys
import time

import rados
import rbd

pool, name = sys.argv[1:]
cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(pool)
api = rbd.RBD()
took = {}


def timed(what, call):
    start = time.monotonic()
    call()
    took.setdefault(what, []).append((time.monotonic() - start) * 1000)


for turn in range(10):
    with rbd.Image(io, name) as image:
        snap, clone = f"s{turn}", f"clone{turn}"
        timed("snap create", lambda: image.create_snap(snap))
        timed("protect", lambda: image.protect_snap(snap))
        timed("clone", lambda: api.clone(io, name, snap, io, clone))
        api.remove(io, clone)
        timed("unprotect", lambda: image.unprotect_snap(snap))
        timed("snap remove", lambda: image.remove_snap(snap))
print(json.dumps({what: round(sorted(values)[5], 1) for what, values in took.items()}))
io.close()
cluster.shutdown()
