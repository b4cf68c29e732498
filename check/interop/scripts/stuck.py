"""Many writes to a pool that does not serve, from several clients: they are all done, in order, once it does.

Says "queued" when all are under way, and waits for a line. Then it waits for all of them and looks at what is there."""
import sys
import threading

import rados

_, pool = sys.argv
CLIENTS = 3
OBJECTS = 500
WORDS = 300
SIZE = 64 << 10
LIMIT = 100


def connect():
    cluster = rados.Rados(conffile="")
    # Its own limit would stop us before the OSD is in trouble.
    cluster.conf_set("objecter_inflight_ops", "100000")
    cluster.conf_set("objecter_inflight_op_bytes", str(1 << 30))
    cluster.connect()
    return cluster.open_ioctx(pool)


def value(client, number):
    return (b"%d:%d;" % (client, number)).ljust(SIZE, b".")


clients = [connect() for _ in range(CLIENTS)]
left = threading.Semaphore(0)
asked = []
for client, io in enumerate(clients):
    for word in range(WORDS):
        asked.append(io.aio_append(f"words{client}", b"%d " % word, oncomplete=lambda _: left.release()))
    for number in range(OBJECTS):
        data = value(client, number)
        asked.append(io.aio_write_full(f"o{client}.{number}", data, oncomplete=lambda _: left.release()))
print("queued", flush=True)
sys.stdin.readline()

missing = sum(not left.acquire(timeout=LIMIT) for _ in asked)
assert missing == 0, f"{missing} of {len(asked)} writes were not answered"
errors = [done.get_return_value() for done in asked if done.get_return_value() < 0]
assert not errors, errors[:5]
for client, io in enumerate(clients):
    words = io.read(f"words{client}", 1 << 20)
    assert words == b"".join(b"%d " % word for word in range(WORDS)), words[:80]
    wrong = [n for n in range(OBJECTS) if io.read(f"o{client}.{n}", SIZE + 1) != value(client, n)]
    assert not wrong, wrong[:5]
print(f"all {len(asked)} done")
