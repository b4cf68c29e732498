"""What clients notice while a snapshot of many objects is removed, through python3-rados.

Fills a pool with small objects, takes a snapshot, overwrites all of them, so that each has a clone, and removes the
snapshot while clients overwrite other objects. Trimming is held up and let go on in turns (`nosnaptrim`), so that
whatever else the machine does disturbs both alike. Says in one line of JSON how long clients waited with and without."""
import argparse
import json
import random
import subprocess
import threading
import time

import rados

parser = argparse.ArgumentParser()
parser.add_argument("--pool", required=True)
parser.add_argument("--objects", type=int, default=100_000)
parser.add_argument("--object-size", type=int, default=4096)
parser.add_argument("--rate", type=float, default=200, help="writes per second while it is measured")
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--turn", type=float, default=5, help="seconds of each turn with and without trimming")
parser.add_argument("--within", type=float, default=600, help="seconds that the removal may take")
options = parser.parse_args()

cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(options.pool)
slots = threading.Semaphore(64)
data = random.randbytes(options.object_size)


def fill():
    for number in range(options.objects):
        slots.acquire()
        io.aio_write_full(f"o{number}", data, oncomplete=lambda _: slots.release())
    for _ in range(64):
        slots.acquire()
    for _ in range(64):
        slots.release()


def clones():
    out = subprocess.run(["ceph", "df", "detail", "--format", "json"], check=True, capture_output=True).stdout
    pools = {pool["name"]: pool["stats"] for pool in json.loads(out)["pools"]}
    return pools[options.pool]["objects"]


fill()
cluster.mon_command(json.dumps({"prefix": "osd pool mksnap", "pool": options.pool, "snap": "s"}), b"")
io.close()
io = cluster.open_ioctx(options.pool)
fill()
hot = [f"hot{number}" for number in range(256)]
for name in hot:
    io.write_full(name, data)

phase = "still"
waits = {"still": [], "trimming": [], "between": []}
running = True
lock = threading.Lock()
free = threading.Semaphore(options.depth)


def load():
    due = time.monotonic()
    while running:
        due += 1 / options.rate
        time.sleep(max(0, due - time.monotonic()))
        free.acquire()
        begun, during = time.monotonic(), phase

        def done(_, begun=begun, during=during):
            with lock:
                waits[during].append(time.monotonic() - begun)
            free.release()

        io.aio_write_full(random.choice(hot), data, oncomplete=done)


loader = threading.Thread(target=load)
loader.start()


def flag(word):
    subprocess.run(["ceph", "osd", word, "nosnaptrim"], check=True, capture_output=True)


def left():
    return clones() - options.objects - len(hot)


time.sleep(2)
held = clones()
flag("set")
cluster.mon_command(json.dumps({"prefix": "osd pool rmsnap", "pool": options.pool, "snap": "s"}), b"")
trimmed = 0.0
while left() > 10 and trimmed < options.within:
    time.sleep(1)  # what is under way ends
    phase = "still"
    time.sleep(options.turn)
    flag("unset")
    begun, phase = time.monotonic(), "trimming"
    while time.monotonic() < begun + options.turn and left() > 10:
        time.sleep(0.5)
    trimmed += time.monotonic() - begun
    flag("set")
    phase = "between"
flag("unset")
running = False
loader.join()
for _ in range(options.depth):
    free.acquire()


def summary(values):
    values = sorted(values)
    at = lambda part: round(values[min(len(values) - 1, int(len(values) * part))] * 1000, 2)
    return {"writes": len(values), "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": at(1)}


print(json.dumps({"objects held": held, "seconds of trimming": round(trimmed, 1), "left": left(),
                  **{name: summary(waits[name]) for name in ("still", "trimming")}}))
io.close()
cluster.shutdown()
