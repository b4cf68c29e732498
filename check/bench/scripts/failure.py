"""Small random overwrites while one OSD is away and comes back, through python3-rados.

Writes one CSV row per second to the file --csv, and says in one line of JSON how the phases compare."""
import argparse
import json
import random
import subprocess
import threading
import time

import rados

parser = argparse.ArgumentParser()
parser.add_argument("--pool", required=True)
parser.add_argument("--csv", required=True)
parser.add_argument("--objects", type=int, default=512)
parser.add_argument("--object-size", type=int, default=4 << 20)
parser.add_argument("--size", type=int, default=4096)
parser.add_argument("--rate", type=float, default=200, help="writes per second; 0: as fast as it goes")
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--healthy", type=float, default=20, help="seconds before the failure")
parser.add_argument("--away", type=float, default=30)
parser.add_argument("--after", type=float, default=10, help="seconds after all is clean again")
parser.add_argument("--clean-within", type=float, default=180)
parser.add_argument("--fail", required=True, help="shell command that takes the OSD away")
parser.add_argument("--back", required=True, help="shell command that brings it back")
options = parser.parse_args()

cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(options.pool)


def command(words):
    return json.loads(subprocess.run(["ceph", *words, "--format", "json"], check=True, capture_output=True).stdout)


def recovered():
    stat = command(["pg", "dump", "sum"])
    stat = stat.get("pg_map", stat)["pg_stats_sum"]["stat_sum"]
    return stat["num_bytes_recovered"]


def is_clean():
    status = command(["status"])
    states = status["pgmap"]["pgs_by_state"]
    up = status["osdmap"]
    return up["num_up_osds"] == up["num_osds"] and all(s["state_name"] == "active+clean" for s in states)


def wait_clean(seconds):
    end = time.monotonic() + seconds
    while not is_clean():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


full = random.randbytes(options.object_size)
filling = [io.aio_write_full(f"object-{n}", full) for n in range(min(8, options.objects))]
for n in range(8, options.objects):
    filling[n % 8].wait_for_complete()
    filling[n % 8] = io.aio_write_full(f"object-{n}", full)
for one in filling:
    one.wait_for_complete()
assert wait_clean(120)
bytes_before = recovered()

lock = threading.Lock()
slots = threading.Semaphore(options.depth)
done = []  # (when asked, when answered), in seconds since the start
asked = 0
over = threading.Event()
start = time.monotonic()


def write():
    global asked
    rng = random.Random(1)
    blocks = options.object_size // options.size
    while not over.is_set():
        slots.acquire()
        if options.rate:
            wait = start + asked / options.rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        data = rng.randbytes(options.size)
        begun = time.monotonic()
        asked += 1

        def answered(_, begun=begun):
            with lock:
                done.append((begun - start, time.monotonic() - start))
            slots.release()

        io.aio_write(f"object-{rng.randrange(options.objects)}", data, rng.randrange(blocks) * options.size, answered)


writer = threading.Thread(target=write)
writer.start()
events = {}


def note(name):
    events[name] = time.monotonic() - start


def shell(line):
    # What is started goes on without us.
    subprocess.Popen(line, shell=True, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


time.sleep(options.healthy)
note("fail")
shell(options.fail)
time.sleep(options.away)
note("back")
shell(options.back)
time.sleep(1)
became_clean = wait_clean(options.clean_within)
note("clean")
time.sleep(options.after)
over.set()
writer.join()
for _ in range(options.depth):
    slots.acquire()
end = time.monotonic() - start
bytes_recovered = recovered() - bytes_before
io.close()
cluster.shutdown()


def percentile(values, p):
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0


def summary(of):
    latencies = sorted((b - a) * 1000 for a, b in of)
    return {
        "writes": len(latencies),
        "mean_ms": round(sum(latencies) / max(1, len(latencies)), 2),
        "p99_ms": round(percentile(latencies, 0.99), 2),
        "p999_ms": round(percentile(latencies, 0.999), 2),
        "max_ms": round(latencies[-1], 1) if latencies else 0,
    }


def stall(since, until):
    """The longest time in which nothing was answered."""
    times = [since] + sorted(b for _, b in done if since <= b <= until) + [until]
    return round(max(b - a for a, b in zip(times, times[1:])), 3)


with open(options.csv, "w") as csv:
    csv.write("second,writes,mean_ms,p99_ms,max_ms,event\n")
    for second in range(int(end)):
        row = summary([(a, b) for a, b in done if second <= b < second + 1])
        event = " ".join(name for name, at in events.items() if second <= at < second + 1)
        csv.write(f"{second},{row['writes']},{row['mean_ms']},{row['p99_ms']},{row['max_ms']},{event}\n")

during = [(a, b) for a, b in done if events["fail"] <= a < events["back"]]
healthy = summary([(a, b) for a, b in done if 2 <= a < events["fail"] - 0.1])
back = summary([(a, b) for a, b in done if events["back"] <= a < events["clean"]])
written = len(during) * options.size
print(json.dumps({
    "healthy": healthy,
    "away": summary(during),
    "back": back,
    "stall_at_failure_s": stall(events["fail"], events["fail"] + min(options.away, 100)),
    "stall_at_return_s": stall(events["back"], events["clean"]),
    "seconds_to_clean": round(events["clean"] - events["back"], 1) if became_clean else None,
    "mean_ratio": round(back["mean_ms"] / max(0.001, healthy["mean_ms"]), 2),
    "p99_ratio": round(back["p99_ms"] / max(0.001, healthy["p99_ms"]), 2),
    "bytes_written_away": written,
    "bytes_recovered": bytes_recovered,
    "recovered_per_written": round(bytes_recovered / max(1, written), 2),
}))
