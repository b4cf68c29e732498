#!/usr/bin/env python3
"""Watches and notifies through python3-rados. Argument: a pool."""
import sys
import threading

import rados

TIMEOUT = 10


def connect():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    return cluster, cluster.open_ioctx(sys.argv[1])


def main():
    watcher, watched = connect()
    notifier, io = connect()
    io.write_full("o", b"x")
    before = io.get_last_version()

    # Nobody watches: a notify is over at once.
    assert io.notify("o", "nobody", TIMEOUT * 1000)

    heard = []
    arrived = threading.Event()

    def on_notify(notify_id, notifier_id, watch_id, data):
        heard.append(data)
        arrived.set()

    watches = [watched.watch("o", on_notify) for _ in range(3)]
    assert all(watch.check() is not None for watch in watches)
    io.read("o")
    assert io.get_last_version() == before, "a watch is no change that clients see"
    assert io.notify("o", "hello", TIMEOUT * 1000)
    assert arrived.wait(TIMEOUT)
    assert len(heard) == 3 and set(heard) == {b"hello"}, heard

    watches[0].close()
    heard.clear()
    assert io.notify("o", "again", TIMEOUT * 1000)
    assert len(heard) == 2, heard

    # The object goes, and its watches with it.
    io.remove_object("o")
    try:
        watched.watch("o", on_notify)
    except rados.ObjectNotFound:
        pass
    else:
        raise AssertionError("nothing can be watched that is not there")
    watches[1].close()
    watches[2].close()
    for cluster in (watcher, notifier):
        cluster.shutdown()


main()
