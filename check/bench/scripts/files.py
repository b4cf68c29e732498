"""Durable metadata operations of a file system through python3-cephfs, on whichever cluster CEPH_CONF names.

files.py FILE_SYSTEM [PROCESSES [SECONDS]]: each process creates files and fsyncs each. Prints as JSON how
many there were, operations per second, and percentiles of the latencies in milliseconds.

files.py FILE_SYSTEM failover PID: creates and fsyncs files all the time, kills the metadata server with that
process id after 2 s, and prints as JSON for how many seconds no operation finished.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import cephfs


def mounted(name):
    fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
    fs.mount(filesystem_name=name.encode())
    return fs


def create(fs, path):
    fd = fs.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    fs.fsync(fd, 0)
    fs.close(fd)


def worker(name, number, seconds, start, results):
    fs = mounted(name)
    folder = f"/bench-{os.getpid()}-{number}"
    fs.mkdir(folder, 0o755)
    start.wait()
    latencies = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        create(fs, f"{folder}/{len(latencies)}")
        latencies.append(time.monotonic() - now)
    results.put(latencies)
    fs.unmount()
    fs.shutdown()


def load(name, processes, seconds):
    start, results = multiprocessing.Barrier(processes), multiprocessing.Queue()
    args = [(name, number, seconds, start, results) for number in range(processes)]
    workers = [multiprocessing.Process(target=worker, args=a) for a in args]
    for process in workers:
        process.start()
    latencies = sorted(latency for _ in workers for latency in results.get())
    for process in workers:
        process.join()
    at = lambda part: 1000 * latencies[int(part * (len(latencies) - 1))]
    ops = len(latencies)
    print(json.dumps({"ops": ops, "ops_per_second": ops / seconds, "p50": at(0.5), "p99": at(0.99)}))


def failover(name, pid):
    fs = mounted(name)
    folder = f"/failover-{os.getpid()}"
    fs.mkdir(folder, 0o755)
    threading.Timer(2, lambda: os.kill(pid, signal.SIGKILL)).start()
    longest, end, count = 0.0, time.monotonic() + 90, 0
    while time.monotonic() < end and longest < 1:
        before = time.monotonic()
        create(fs, f"{folder}/{count}")
        count += 1
        longest = max(longest, time.monotonic() - before)
    print(json.dumps({"seconds": longest, "files": count}))
    fs.unmount()
    fs.shutdown()


if __name__ == "__main__":
    if sys.argv[2:3] == ["failover"]:
        failover(sys.argv[1], int(sys.argv[3]))
    else:
        load(sys.argv[1], int((sys.argv[2:] or ["1"])[0]), float((sys.argv[3:] or ["10"])[0]))
