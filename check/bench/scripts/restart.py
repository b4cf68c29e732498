"""How long a cluster, and then one OSD of it, takes from the start of its processes until it serves.

Says in one line of JSON how many seconds."""
import argparse
import json
import os
import random
import signal
import subprocess
import threading
import time

import rados

from cluster_state import ask, memory_mib, osd_processes, run_beside

parser = argparse.ArgumentParser()
parser.add_argument("--pool", required=True)
parser.add_argument("--folder", required=True, help="the cluster's, to find its processes")
parser.add_argument("--objects", type=int, default=512)
parser.add_argument("--writes", type=int, default=100_000, help="of 4 KiB, so that logs are full")
parser.add_argument("--kill", required=True, help="shell command that ends every daemon at once")
parser.add_argument("--start", required=True, help="shell command that starts every daemon")
parser.add_argument("--start-one", required=True, help="shell command that starts one OSD")
parser.add_argument("--one", type=int, required=True, help="which")
options = parser.parse_args()

cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(options.pool)
names = [f"object-{n}" for n in range(options.objects)]


def fill(writes):
    slots = threading.Semaphore(64)
    rng = random.Random(1)
    data = rng.randbytes(4096)
    for _ in range(writes):
        slots.acquire()
        at = rng.randrange(1024) * 4096
        io.aio_write(rng.choice(names), data, at, lambda _: slots.release())
    for _ in range(64):
        slots.acquire()


class Writes:
    """One write to each of these objects."""

    def __init__(self, names):
        self.waiting = set(names)
        for name in names:
            io.aio_write(name, b"again", 0, lambda _, name=name: self.waiting.discard(name))

    def all_answered(self):
        return not self.waiting


def states():
    status = ask(cluster, "status", timeout=5)
    everybody = status["osdmap"]["num_up_osds"] == status["osdmap"]["num_osds"]
    return [s["state_name"] for s in status["pgmap"]["pgs_by_state"]] if everybody else []


def all_active():
    found = states()
    return bool(found) and all("active" in state.split("+") for state in found)


def all_clean():
    found = states()
    return bool(found) and all(state == "active+clean" for state in found)


def wait_for(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{holds.__name__} does not hold within {seconds} s"
        time.sleep(0.2)


def start_until(line, **conditions):
    """Seconds from the start until each holds."""
    begun = time.monotonic()
    run_beside(line)
    took = {}
    while len(took) < len(conditions) and time.monotonic() - begun < 180:
        for name, holds in conditions.items():
            try:
                if name not in took and holds():
                    took[name] = round(time.monotonic() - begun, 2)
            except rados.Error:
                pass  # nobody there yet
        time.sleep(0.01)
    return took


fill(options.writes)
wait_for(all_clean)
said = {"rss_mib_before": round(memory_mib(options.folder)[0])}

subprocess.run(options.kill, shell=True, check=True)
while osd_processes(options.folder):
    time.sleep(0.01)
# Asked while nobody is there; answered when every group serves.
everywhere = Writes(names)

# What the monitors say of groups before those serve is what they knew before.
said["all"] = start_until(
    options.start,
    every_object_written_s=everywhere.all_answered,
    all_active_s=lambda: everywhere.all_answered() and all_active(),
    all_clean_s=lambda: everywhere.all_answered() and all_clean(),
)
said["all"]["rss_mib_most"] = round(memory_mib(options.folder)[1])

fill(options.writes)
wait_for(all_clean)


def primary_of(name):
    return ask(cluster, "osd map", timeout=5, pool=options.pool, object=name)["acting_primary"]


theirs = [name for name in names[:200] if primary_of(name) == options.one]
for pid in osd_processes(options.folder):
    words = open(f"/proc/{pid}/cmdline", "rb").read().decode().split("\0")
    if any(flag in ("-i", "--id") and number == str(options.one) for flag, number in zip(words, words[1:])):
        os.kill(pid, signal.SIGKILL)


def is_up():
    osds = ask(cluster, "osd dump", timeout=5)["osds"]
    return all(osd["up"] for osd in osds)


wait_for(lambda: not is_up())
fill(options.writes // 10)
serving = []


def serves_its_groups():
    if not serving and primary_of(theirs[0]) == options.one:
        serving.append(Writes(theirs))
    return bool(serving) and serving[0].all_answered()


said["one"] = start_until(
    options.start_one,
    up_s=is_up,
    serves_its_groups_s=serves_its_groups,
    clean_s=lambda: serves_its_groups() and all_clean(),
)
io.close()
cluster.shutdown()
print(json.dumps(said))
