#!/usr/bin/env python3
"""Two clients and one image: whose it is, and how it changes hands. Arguments: a pool, and what to try."""
import errno
import os
import signal
import subprocess
import sys
import time

import rados
import rbd

from dead_host import lose_power, wait_until_lost

POOL = sys.argv[1]
IMAGE = "shared"
SIZE = 64 << 20


def connect():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    return cluster, cluster.open_ioctx(POOL)


def owner():
    """Another process that writes, tells so, and goes on until it is stopped."""
    _, io = connect()
    image = rbd.Image(io, IMAGE)
    count = 0
    while True:
        image.write(count.to_bytes(8, "big") * 512, 0)
        image.flush()
        print(count, flush=True)
        count += 1
        time.sleep(0.01)


def start_owner():
    other = subprocess.Popen([sys.executable, __file__, POOL, "owner"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "0\n"
    return other


def said_last(other):
    """The last write that the other was told to be done, if it got further than the first, of which was read already."""
    return int((["0"] + other.stdout.read().split())[-1])


def hand_over():
    """As in a VM's live migration: each gets the image by writing to it, and sees all of it."""
    (one, one_io), (two, two_io) = connect(), connect()
    rbd.RBD().create(one_io, IMAGE, SIZE, old_format=False, features=rbd.RBD_FEATURE_LAYERING
                     | rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_OBJECT_MAP)
    a, b = rbd.Image(one_io, IMAGE), rbd.Image(two_io, IMAGE)
    for turn in range(10):
        writer, reader = (a, b) if turn % 2 == 0 else (b, a)
        data = b"%4d" % turn * 1024
        writer.write(data, turn * 4096)
        writer.flush()
        assert writer.is_exclusive_lock_owner() and not reader.is_exclusive_lock_owner(), turn
        assert reader.read(turn * 4096, 4096) == data, turn
    # What the one asks for, the other does who has the image; and what it changes, the one hears.
    a.resize(SIZE * 2)
    deadline = time.monotonic() + 30
    while b.size() != SIZE * 2:
        assert time.monotonic() < deadline, b.size()
        time.sleep(0.05)
    # One that keeps what it has gives it to nobody.
    a.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    try:
        b.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    except rbd.Error as error:
        assert error.errno == errno.EROFS, error
    else:
        raise AssertionError("two have an image for themselves")
    assert len(list(a.lock_get_owners())) == 1
    a.lock_release()
    b.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    b.write(b"b", 0)
    a.close()
    b.close()
    for cluster in (one, two):
        cluster.shutdown()


def a_dead_owner():
    """Its successor gets the image without anybody's help, and all that it was told to be written."""
    other = start_owner()
    time.sleep(0.3)
    other.send_signal(signal.SIGKILL)
    other.wait()
    last = said_last(other)
    _, io = connect()
    start = time.monotonic()
    image = rbd.Image(io, IMAGE)
    found = int.from_bytes(image.read(0, 8), "big")
    assert found in (last, last + 1), (found, last)
    image.write(b"mine", 4096)
    image.flush()
    took = time.monotonic() - start
    assert image.read(4096, 4) == b"mine"
    image.close()
    print(f"took over after {took:.1f} s")


def short_lived_host():
    """Another process that writes and is heard of no more."""
    _, io = connect()
    image = rbd.Image(io, IMAGE)
    image.write(b"last", 8192)
    image.flush()
    lose_power()


def a_dead_host():
    """Nothing was closed, and yet the image changes hands by itself."""
    other = subprocess.Popen([sys.executable, __file__, POOL, "short_lived_host"])
    try:
        wait_until_lost(other)
        _, io = connect()
        start = time.monotonic()
        image = rbd.Image(io, IMAGE)
        image.write(b"mine", 4096)
        image.flush()
        took = time.monotonic() - start
        assert image.read(8192, 4) == b"last"
        image.close()
    finally:
        other.kill()
    print(f"took over from a dead host after {took:.1f} s")


def a_broken_lock():
    """Who has the image is cut off at once and for good: none of its writes comes later."""
    other = start_owner()
    time.sleep(0.3)
    os.kill(other.pid, signal.SIGSTOP)  # hangs, as a host does that lost its network
    _, io = connect()
    start = time.monotonic()
    image = rbd.Image(io, IMAGE)
    owners = list(image.lock_get_owners())
    assert len(owners) == 1, owners
    image.lock_break(rbd.RBD_LOCK_MODE_EXCLUSIVE, owners[0]["owner"])
    image.write(b"fenced off", 0)
    image.flush()
    print(f"broken after {time.monotonic() - start:.1f} s")
    os.kill(other.pid, signal.SIGCONT)
    assert other.wait(timeout=60) != 0, "it goes on writing"
    assert image.read(0, 10) == b"fenced off"
    image.close()


TASKS = (owner, short_lived_host, hand_over, a_dead_owner, a_dead_host, a_broken_lock)
{what.__name__: what for what in TASKS}[sys.argv[2]]()
