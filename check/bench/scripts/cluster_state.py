"""What the drills' scripts ask of a cluster."""
import json
import os
import random
import subprocess
import time

import rados


def command(words, timeout=60):
    line = ["ceph", *words, "--format", "json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, timeout=timeout).stdout)


def run_beside(line):
    """Goes on without us, in our session as those do that it joins: Linux shares out processors between sessions
    first (sched_autogroup_enabled), and one OSD alone would have half of them."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(line, shell=True, process_group=0, stdout=nowhere, stderr=nowhere)


def ask(cluster, prefix, timeout=60, **arguments):
    """A monitor's answer, over a session that is there: a process for each question would take a good part of a small machine
    from what is measured."""
    words = json.dumps({"prefix": prefix, "format": "json", **arguments})
    code, said, why = cluster.mon_command(words, b"", timeout=timeout)
    if code:
        raise rados.Error(why)
    return json.loads(said) if said else None


def fill_objects(io, count, size):
    """So many objects, written full, eight at a time."""
    full = random.randbytes(size)
    filling = []
    for n in range(count):
        if len(filling) == 8:
            filling.pop(0).wait_for_complete()
        filling.append(io.aio_write_full(f"object-{n}", full))
    for one in filling:
        one.wait_for_complete()


def is_clean(cluster):
    status = ask(cluster, "status")
    states = status["pgmap"]["pgs_by_state"]
    up = status["osdmap"]
    return up["num_up_osds"] == up["num_osds"] and all(s["state_name"] == "active+clean" for s in states)


def wait_clean(cluster, seconds):
    end = time.monotonic() + seconds
    while not is_clean(cluster):
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def osd_processes(folder):
    """Process ids of the OSDs whose command line names that folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().decode(errors="replace").split("\0")
        except OSError:
            continue
        is_osd = words[0].endswith("ceph-osd") or (words[0].endswith("nacre") and words[1:2] == ["osd"])
        if is_osd and any(word.startswith(folder) for word in words):
            found.append(int(pid))
    return found


def memory_mib(folder):
    """The largest OSD's resident memory: now, and the most that one of those alive ever had."""
    now = most = 0
    for pid in osd_processes(folder):
        try:
            lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
            now = max(now, int(lines["VmRSS"].split()[0]))
            most = max(most, int(lines["VmHWM"].split()[0]))
        except (OSError, KeyError):
            continue  # gone meanwhile
    return now / 1024, most / 1024
