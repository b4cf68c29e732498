#!/usr/bin/env python3
"""Watches that meet with trouble. Arguments: a pool, and how many watchers are many."""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import rados

from dead_host import lose_power, wait_until_lost

POOL = sys.argv[1]
LONG = 60


def connect():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    return cluster, cluster.open_ioctx(POOL)


def listed(name):
    done = subprocess.run(["rados", "-p", POOL, "listwatchers", name], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def until(what, holds):
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def many(io, count):
    """Every one of very many hears of every notify, and soon."""
    io.write_full("many", b"x")
    clients = [connect() for _ in range(4)]
    heard, lock = [], threading.Lock()

    def hear(notify_id, notifier_id, watch_id, data):
        with lock:
            heard.append(watch_id)

    watches = [clients[i % 4][1].watch("many", hear) for i in range(count)]
    assert len(listed("many")) == count
    start = time.monotonic()
    for turn in range(3):
        assert io.notify("many", f"turn {turn}", LONG * 1000)
    took = (time.monotonic() - start) / 3
    until("all to have heard", lambda: len(heard) == 3 * count)
    assert len(set(heard)) == count
    for watch in watches:
        watch.close()
    assert not listed("many")
    for client, _ in clients:
        client.shutdown()
    print(f"{count} watchers are notified in {took * 1000:.0f} ms")


def stopped(io):
    """A notify to one that hangs is over when its time is, and says who did not answer."""
    io.write_full("stopped", b"x")
    watcher = subprocess.Popen(["rados", "-p", POOL, "watch", "stopped"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        hangs_for_a_while(io, watcher)
    finally:
        watcher.kill()  # also one that is stopped: it would keep our caller waiting for its output
    said = watcher.communicate()[0].decode()
    assert said.count("NOTIFY") >= 3, said
    until("the dead watcher to be given up", lambda: not listed("stopped"))


def hangs_for_a_while(io, watcher):
    until("a watcher", lambda: len(listed("stopped")) == 1)
    told = subprocess.run(["rados", "-p", POOL, "notify", "stopped", "hello"], check=True, stdout=subprocess.PIPE)
    assert b"reply client." in told.stdout and b"timeout" not in told.stdout, told.stdout
    os.kill(watcher.pid, signal.SIGSTOP)
    # Its threads go on until one of them had a turn to see the signal.
    until("all of it to stop", lambda: all(state == "T" for state in states(watcher.pid)))
    try:
        io.notify("stopped", "hello?", 1500)
    except rados.Error as error:
        assert abs(error.errno) == 110, error  # ETIMEDOUT
    else:
        raise AssertionError("who hangs has answered")
    os.kill(watcher.pid, signal.SIGCONT)
    assert io.notify("stopped", "again", LONG * 1000)


def states(pid):
    """One letter for each thread of a process, as in /proc/PID/stat."""
    return [Path(task, "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]


def short_lived_host():
    """Another process that watches, for ten minutes if it is to, and is heard of no more."""
    _, io = connect()
    watch = io.watch("dead", lambda *_: None, timeout=600)
    assert watch.get_id()
    lose_power()


def host_died(io):
    """Who watched there is given up long before the watch's own time is over."""
    io.write_full("dead", b"x")
    other = subprocess.Popen([sys.executable, __file__, POOL, "short_lived_host"])
    try:
        wait_until_lost(other)
        assert len(listed("dead")) == 1
        until("the watcher on the dead host to be given up", lambda: not listed("dead"))
    finally:
        other.kill()


def blocklisted(cluster, io):
    """A client that is fenced off watches no longer."""
    io.write_full("fenced", b"x")
    other, other_io = connect()
    watch = other_io.watch("fenced", lambda *_: None)
    assert len(listed("fenced")) == 1
    command = {"prefix": "osd blocklist", "blocklistop": "add", "addr": other.get_addrs()}
    code, _, said = cluster.mon_command(json.dumps(command), b"")
    assert code == 0, said
    until("the fenced watcher to be gone", lambda: not listed("fenced"))
    del watch


def moved(cluster, io):
    """Watches go on under another primary."""
    io.write_full("moved", b"x")
    heard = []
    other, other_io = connect()
    watch = other_io.watch("moved", lambda *notify: heard.append(notify[3]))
    for turn in range(2):
        command = {"prefix": "osd map", "pool": POOL, "object": "moved", "format": "json"}
        primary = json.loads(cluster.mon_command(json.dumps(command), b"")[1])["acting_primary"]
        assert cluster.mon_command(json.dumps({"prefix": "osd down", "ids": [str(primary)]}), b"")[0] == 0
        io.write_full("moved", b"y")
        assert len(listed("moved")) == 1

        def notified():
            try:
                io.notify("moved", f"turn {turn}", 2000)
            except rados.Error:
                pass  # the watcher is on its way to the new primary
            return f"turn {turn}".encode() in heard

        until("a notify to arrive", notified)
        watch.check()  # raises if it is no longer one
    watch.close()
    other.shutdown()


def main():
    cluster, io = connect()
    many(io, int(sys.argv[2]))
    stopped(io)
    host_died(io)
    blocklisted(cluster, io)
    moved(cluster, io)
    print("all good", flush=True)
    os._exit(0)  # what is left of the fenced client would complain


if sys.argv[2] == "short_lived_host":
    short_lived_host()
else:
    main()
