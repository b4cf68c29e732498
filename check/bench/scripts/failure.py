"""Small random overwrites while something is away and comes back, through python3-rados or of an image by fio.

Writes one CSV row per second to the file --csv, and says in one line of JSON how the phases compare."""
import argparse
import glob
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import rados

from cluster_state import command, fill_objects, memory_mib, run_beside, wait_clean

parser = argparse.ArgumentParser()
parser.add_argument("--pool", required=True)
parser.add_argument("--csv", required=True)
parser.add_argument("--folder", required=True, help="the cluster's, to find its processes")
parser.add_argument("--objects", type=int, default=512)
parser.add_argument("--object-size", type=int, default=4 << 20)
parser.add_argument("--size", type=int, default=4096)
parser.add_argument("--rate", type=float, default=200, help="writes per second; 0: as fast as it goes")
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--healthy", type=float, default=20, help="seconds before the failure")
parser.add_argument("--away", type=float, default=30, help="0: nothing comes back, the failure is all")
parser.add_argument("--away-writes", type=int, help="away for so many writes, however long they take")
parser.add_argument("--after", type=float, default=10, help="seconds after all is clean again")
parser.add_argument("--clean-within", type=float, default=180)
parser.add_argument("--through", choices=("rados", "rbd"), default="rados", help="objects, or an image that fio writes")
parser.add_argument("--fail", required=True, help="shell command that takes something away")
parser.add_argument("--back", required=True, help="shell command that brings it back")
options = parser.parse_args()

cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(options.pool)


def recovered():
    stat = command(["pg", "dump", "sum"])
    stat = stat.get("pg_map", stat)["pg_stats_sum"]["stat_sum"]
    return stat["num_bytes_recovered"]


IMAGE = "image"


def fio(*how):
    size = options.objects * options.object_size
    return ["fio", "--name=failure", "--ioengine=rbd", "--clientname=admin", f"--pool={options.pool}", f"--rbdname={IMAGE}",
            f"--size={size}", *how]


def fill_image():
    subprocess.run(["rbd", "pool", "init", options.pool], check=True)
    sizes = ["--size", f"{options.objects * options.object_size}B", "--object-size", f"{options.object_size}B"]
    subprocess.run(["rbd", "create", *sizes, f"{options.pool}/{IMAGE}"], check=True)
    how = fio("--rw=write", f"--bs={options.object_size}", "--iodepth=8", "--refill_buffers")
    subprocess.run(how, check=True, cwd=scratch.name, stdout=subprocess.DEVNULL)


scratch = tempfile.TemporaryDirectory(prefix="nacre-failure-")  # fio leaves files where it runs
if options.through == "rbd":
    # librbd's own cache would answer before the cluster does.
    os.environ["CEPH_ARGS"] = "--rbd-cache=false"
    fill_image()
else:
    fill_objects(io, options.objects, options.object_size)
assert wait_clean(cluster, 120)
bytes_before = recovered()

lock = threading.Lock()
slots = threading.Semaphore(options.depth)
done = []  # (when asked, when answered), in seconds since the start
asked = 0
over = threading.Event()
memory = []  # of each second, in MiB: the largest OSD, and the most that one alive ever had
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


def write_image():
    """fio, which notes when each write was answered and how long it took; how many there were is known at the end."""
    rate = [f"--rate_iops={options.rate:g}"] if options.rate else []
    how = fio("--rw=randwrite", f"--bs={options.size}", f"--iodepth={options.depth}", "--randrepeat=0", "--refill_buffers",
              "--time_based", "--runtime=1d", "--write_lat_log=each", "--log_unix_epoch=1", *rate)
    with subprocess.Popen(how, cwd=scratch.name, stdout=subprocess.DEVNULL) as running:
        over.wait()
        running.send_signal(signal.SIGINT)
    began = time.time() - (time.monotonic() - start)
    (log,) = glob.glob(f"{scratch.name}/each_lat.*.log")
    with open(log, encoding="ascii") as lines:
        for line in lines:
            at, took = (int(field) for field in line.split(",")[:2])
            answered = at / 1000 - began
            done.append((answered - took / 1e9, answered))


def watch_memory():
    while not over.is_set():
        memory.append(memory_mib(options.folder))
        time.sleep(max(0, start + len(memory) - time.monotonic()))


threads = [threading.Thread(target=write_image if options.through == "rbd" else write), threading.Thread(target=watch_memory)]
for thread in threads:
    thread.start()
events = {}


def note(name):
    events[name] = time.monotonic() - start


time.sleep(options.healthy)
note("fail")
asked_before = asked
failing = run_beside(options.fail)
if not options.away:
    failing.wait()  # what follows is to be seen with it
if options.away_writes:
    while asked < asked_before + options.away_writes:
        time.sleep(0.1)
else:
    time.sleep(options.away)
note("back")
if options.back:
    run_beside(options.back)
time.sleep(2)
became_clean = wait_clean(cluster, options.clean_within)
note("clean")
time.sleep(options.after)
over.set()
for thread in threads:
    thread.join()
for _ in range(options.depth):
    slots.acquire()  # all are answered
end = time.monotonic() - start
bytes_recovered = recovered() - bytes_before
io.close()
cluster.shutdown()


def percentile(values, p):
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0


def summary(of, seconds=None):
    latencies = sorted((b - a) * 1000 for a, b in of)
    row = {
        "writes": len(latencies),
        "mean_ms": round(sum(latencies) / max(1, len(latencies)), 2),
        "p99_ms": round(percentile(latencies, 0.99), 2),
        "p999_ms": round(percentile(latencies, 0.999), 2),
        "max_ms": round(latencies[-1], 1) if latencies else 0,
    }
    if seconds:
        row["per_second"] = round(len(latencies) / seconds, 1)
    return row


def stall(since, until):
    """The longest time in which nothing was answered: when it began and ended."""
    times = [since] + sorted(b for _, b in done if since <= b <= until) + [until]
    return max(zip(times, times[1:]), key=lambda gap: gap[1] - gap[0])


def of_second(second):
    return [(a, b) for a, b in done if second <= b < second + 1]


by_second = {}
for one in done:
    by_second.setdefault(int(one[1]), []).append(one)
with open(options.csv, "w") as csv:
    csv.write("second,writes,mean_ms,p99_ms,max_ms,rss_mib,event\n")
    for second in range(int(end)):
        row = summary(by_second.get(second, []))
        event = " ".join(name for name, at in events.items() if second <= at < second + 1)
        rss = round(memory[min(second, len(memory) - 1)][0])
        csv.write(f"{second},{row['writes']},{row['mean_ms']},{row['p99_ms']},{row['max_ms']},{rss},{event}\n")

fail, back, clean = events["fail"], events["back"], events["clean"]
during = [(a, b) for a, b in done if fail <= a < back]
healthy = [(a, b) for a, b in done if 2 <= a < fail - 0.1]
returning = [(a, b) for a, b in done if back <= a < clean]
at_failure = stall(fail, min(max(back, fail + 10), fail + 100))
at_return = stall(back, clean)
# Those that a stall caught are counted by the stall.
free = [(a, b) for a, b in returning if b <= at_return[0] or a >= at_return[1]]
healthy, away, back_free = summary(healthy, fail - 2.1), summary(during, back - fail), summary(free)
written = len(during) * options.size


def ratio(name):
    return round(back_free[name] / max(0.001, healthy[name]), 2)


print(json.dumps({
    "healthy": healthy,
    "away": away,
    "back": summary(returning, clean - back),
    "back_without_stall": back_free,
    "after": summary([(a, b) for a, b in done if a >= clean], end - clean),
    "stall_at_failure_s": round(at_failure[1] - at_failure[0], 3),
    "stall_at_return_s": round(at_return[1] - at_return[0], 3),
    "seconds_to_clean": round(clean - back, 1) if became_clean else None,
    "mean_ratio": ratio("mean_ms"),
    "p99_ratio": ratio("p99_ms"),
    "p999_ratio": ratio("p999_ms"),
    "bytes_written_away": written,
    "bytes_recovered": bytes_recovered,
    "recovered_per_written": round(bytes_recovered / max(1, written), 2),
    "rss_mib_most": round(max(most for _, most in memory)),
    "rss_mib_healthy": round(max((now for now, _ in memory[:int(fail)]), default=0)),
}))
