"""Writes objects as fast as acknowledgements come until told to stop, then checks that each holds
the last acknowledged value (or one that was being written). A line `count` is answered with how many
writes were acknowledged."""
import os
import sys
import threading

import rados

_, _, pool = sys.argv
OBJECTS = 64
cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(pool)
acknowledged = [0] * OBJECTS
stop = threading.Event()
errors = []


def value(number, round_):
    return (b"%d:%d;" % (number, round_)) * 500


def write(number):
    round_ = 0
    try:
        while not stop.is_set():
            round_ += 1
            io.write_full(f"o{number}", value(number, round_))
            acknowledged[number] = round_
    except Exception as error:
        errors.append(f"o{number}, round {round_}: {error!r}")


threads = [threading.Thread(target=write, args=(n,)) for n in range(OBJECTS)]
for thread in threads:
    thread.start()
print("writing", flush=True)
while sys.stdin.readline().strip() == "count":
    print(sum(acknowledged), flush=True)
stop.set()
for thread in threads:
    thread.join(100)
    if thread.is_alive():
        print("a write waits for ever", flush=True)
        os._exit(1)
for number, round_ in enumerate(acknowledged):
    data = io.read(f"o{number}", 1 << 20)
    if data != value(number, round_):
        errors.append(f"o{number}: {data[:20]!r}, acknowledged was round {round_}")
if errors:
    print("; ".join(errors[:5]))
    sys.exit(1)
print(f"all good, {sum(acknowledged)} writes in {OBJECTS} objects")
