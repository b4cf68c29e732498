"""Small puts through python3-rados. Prints: operations, seconds, mean latency in milliseconds."""
import sys
import threading
import time

import rados

pool, how, seconds, size, depth = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
data = b"x" * size
cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(pool)
start = time.monotonic()
end = start + seconds
ops = 0
waited = 0.0

if how == "sync":
    while (now := time.monotonic()) < end:
        io.write_full(f"{how}-{ops}", data)
        waited += time.monotonic() - now
        ops += 1
else:
    slots = threading.Semaphore(depth)
    lock = threading.Lock()

    def put(number):
        global ops, waited
        begun = time.monotonic()

        def done(_):
            global ops, waited
            with lock:
                ops += 1
                waited += time.monotonic() - begun
            slots.release()

        io.aio_write_full(f"{how}-{number}", data, oncomplete=done)

    number = 0
    while time.monotonic() < end:
        slots.acquire()
        put(number)
        number += 1
    for _ in range(depth):
        slots.acquire()

elapsed = time.monotonic() - start
# Before the interpreter goes: librados' threads still hold callbacks into it.
io.close()
cluster.shutdown()
print(ops, elapsed, waited / ops * 1000)
