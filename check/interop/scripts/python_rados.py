#!/usr/bin/env python3
"""What python3-rados gives back, method by method, one line each: the same on every cluster.

Argument: a pool for that. `testdata/python_rados.txt` is what it says of a real Ceph. `python_rbd.py` goes on for images."""
import datetime
import json
import os
import re
import sys
import threading
import time

import rados
import rbd

from ids import without_ids

POOL = sys.argv[1]
MB = 1 << 20
cluster = rados.Rados(conffile="")
cluster.connect()
io = cluster.open_ioctx(POOL)


def plain(value):
    """Without what differs from one run to the next."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (datetime.datetime, time.struct_time)):
        return "TIME"
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    if isinstance(value, str):
        value = value.replace(POOL, "POOL")
        value = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "UUID", value)
        value = re.sub(r"client\.\d+", "client.ID", value)
        value = re.sub(r"127\.0\.0\.1:\d+/\d+", "ADDRESS", value)
        value = re.sub(r"(rbd_data)\.(\d{1,4}\.)?[0-9a-f]+", r"\1.ID", value)
        value = re.sub(r"\.(group|mirror)\.[\w.-]+", r".\1.NAME", value)
        return without_ids(value)
    return value


def say(label, value=""):
    print(f"{label}: {plain(value)}", flush=True)


def tell(label, call, *arguments, show=lambda got: got, **named):
    """What a call gives or raises."""
    try:
        got = call(*arguments, **named)
        if hasattr(got, "__iter__") and not isinstance(got, (str, bytes, list, tuple, dict, time.struct_time)):
            got = list(got)
        say(label, show(got))
        return got
    except (rados.Error, rbd.Error, ValueError, TypeError, OverflowError, AttributeError, IndexError, KeyError, AssertionError) as error:
        number = getattr(error, "errno", None)
        print(f"{label}: {type(error).__name__}" + (f" {abs(number)}" if isinstance(number, int) else ""), flush=True)
        return None


def a_cluster():
    tell("version", lambda: len(str(cluster.version())) > 0)
    tell("fsid", lambda: len(cluster.get_fsid()))
    tell("pool_exists", cluster.pool_exists, POOL)
    tell("pool_exists, none", cluster.pool_exists, "nosuch")
    tell("pool_lookup", lambda: cluster.pool_lookup(POOL) > 0)
    tell("pool_lookup, none", cluster.pool_lookup, "nosuch")
    tell("pool_reverse_lookup", lambda: cluster.pool_reverse_lookup(cluster.pool_lookup(POOL)))
    tell("pool_reverse_lookup, none", cluster.pool_reverse_lookup, 7777)
    tell("get_pool_base_tier", lambda: cluster.get_pool_base_tier(cluster.pool_lookup(POOL)) == cluster.pool_lookup(POOL))
    tell("get_pool_base_tier, none", cluster.get_pool_base_tier, 7777)
    tell("create_pool", cluster.create_pool, "python-api")
    tell("create_pool again", cluster.create_pool, "python-api")
    tell("create_pool with a rule", cluster.create_pool, "python-api2", 0)
    tell("create_pool with no rule", cluster.create_pool, "python-api3", 200)
    tell("delete_pool", cluster.delete_pool, "python-api")
    tell("delete_pool again", cluster.delete_pool, "python-api")
    tell("delete_pool 2", cluster.delete_pool, "python-api2")
    tell("open_ioctx, none", cluster.open_ioctx, "nosuch")
    tell("open_ioctx2", lambda: cluster.open_ioctx2(cluster.pool_lookup(POOL)).get_pool_name())
    tell("open_ioctx2, none", cluster.open_ioctx2, 7777)
    tell("list_pools", lambda: POOL in cluster.list_pools())
    tell("conf_get", cluster.conf_get, "rados_mon_op_timeout")
    tell("conf_get, none", cluster.conf_get, "nosuch")
    tell("conf_set, none", cluster.conf_set, "nosuch", "1")
    tell("get_addrs", lambda: re.sub(r"\d+", "N", cluster.get_addrs()))
    tell("get_instance_id", lambda: cluster.get_instance_id() > 0)
    tell("get_cluster_stats", lambda: sorted(cluster.get_cluster_stats()))
    tell("get_inconsistent_pgs", lambda: cluster.get_inconsistent_pgs(cluster.pool_lookup(POOL)))
    tell("get_inconsistent_pgs, none", cluster.get_inconsistent_pgs, 7777)
    tell("ping_monitor, none", cluster.ping_monitor, "nosuch")
    tell("wait_for_latest_osdmap", cluster.wait_for_latest_osdmap)
    tell("blocklist_add", cluster.blocklist_add, "127.0.0.1:7/7", 60)
    tell("blocklist_add, nonsense", cluster.blocklist_add, "nonsense", 60)
    command = lambda **words: json.dumps(words)
    code = lambda got: (got[0], len(got[1]) > 0)
    tell("mon_command", cluster.mon_command, command(prefix="osd pool ls"), b"", show=code)
    tell("mon_command, unknown", cluster.mon_command, command(prefix="nosuch"), b"", show=code)
    tell("mon_command, missing argument", cluster.mon_command, command(prefix="osd pool get", pool=POOL), b"", show=code)
    tell("mon_command to nobody", cluster.mon_command, command(prefix="version"), b"", target="nosuch", show=code)
    tell("osd_command", cluster.osd_command, 0, command(prefix="version"), b"", show=code)
    tell("osd_command, none", cluster.osd_command, 77, command(prefix="version"), b"", show=code)
    tell("osd_command, unknown", cluster.osd_command, 0, command(prefix="no such command"), b"", show=code)
    tell("mgr_command", cluster.mgr_command, command(prefix="pg stat"), b"", show=lambda got: (got[0],))
    tell("mgr_command, unknown", cluster.mgr_command, command(prefix="nosuch"), b"", show=lambda got: (got[0],))
    tell("pg_command, no group", cluster.pg_command, "999.0", command(prefix="query"), b"", show=code)
    tell("service_daemon_register", cluster.service_daemon_register, "nacre-test", "x", {"a": "b"})
    tell("service_daemon_register again", cluster.service_daemon_register, "nacre-test", "x", {"a": "b"})
    tell("service_daemon_update", cluster.service_daemon_update, {"status": "good"})


def an_ioctx():
    tell("pool name", io.get_pool_name)
    tell("pool id", lambda: io.get_pool_id() == cluster.pool_lookup(POOL))
    tell("alignment", io.alignment)
    tell("stats", lambda: sorted(io.get_stats()))
    for name, data in (("a", b"hello"), ("b", b""), ("c", b"\0" * 100), ("odd /\\%\u00e4\n", b"x"), ("", b"x")):
        tell(f"write_full {name!r}", io.write_full, name, data)
        tell(f"read {name!r}", io.read, name)
        tell(f"stat {name!r}", io.stat, name)
    for off, length in ((0, 0), (2, 2), (4, 100), (5, 1), (100, 1)):
        tell(f"read {off}~{length}", io.read, "a", length, off)
    tell("append", io.append, "a", b" there")
    tell("trunc", io.trunc, "a", 7)
    tell("trunc none", io.trunc, "none", 7)
    tell("trunc backwards", io.trunc, "a", -1)
    tell("read", io.read, "a")
    tell("cmpext", io.cmpext, "a", b"hello", 0)
    tell("cmpext, other", io.cmpext, "a", b"hellO", 0)
    tell("cmpext, none", io.cmpext, "none", b"h", 0)
    tell("writesame", io.writesame, "w", b"ab", 6, 2)
    tell("writesame, uneven", io.writesame, "w", b"abc", 7, 2)
    tell("writesame, nothing", io.writesame, "w", b"", 7, 2)
    tell("read", io.read, "w")
    tell("remove", io.remove_object, "w")
    tell("remove again", io.remove_object, "w")
    tell("execute", io.execute, "a", "hello", "say_hello", b"you")
    tell("execute, no class", io.execute, "a", "nosuch", "x", b"")
    tell("execute, no method", io.execute, "a", "hello", "x", b"")
    tell("execute, none", io.execute, "none", "hello", "say_hello", b"")
    tell("set_xattr", io.set_xattr, "a", "x", b"\0\1")
    tell("set_xattr empty", io.set_xattr, "a", "e", b"")
    tell("get_xattr", io.get_xattr, "a", "x")
    tell("get_xattr, none", io.get_xattr, "a", "none")
    tell("get_xattrs", lambda: sorted(io.get_xattrs("a")))
    tell("get_xattrs, none", lambda: sorted(io.get_xattrs("none")))
    tell("rm_xattr", io.rm_xattr, "a", "x")
    tell("rm_xattr again", io.rm_xattr, "a", "x")
    tell("lock_exclusive", io.lock_exclusive, "a", "l", "cookie", "about", None, 0)
    tell("lock_exclusive again", io.lock_exclusive, "a", "l", "cookie", "about", None, 0)
    tell("lock_shared", io.lock_shared, "a", "l", "cookie2", "tag", "about", None, 0)
    tell("unlock, other", io.unlock, "a", "l", "cookie2")
    tell("unlock", io.unlock, "a", "l", "cookie")
    tell("lock for a moment", io.lock_exclusive, "a", "short", "cookie", "about", 1, 0)
    time.sleep(1.5)
    tell("unlock what is over", io.unlock, "a", "short", "cookie")
    tell("lock_shared", io.lock_shared, "a", "l", "cookie2", "tag", "about", None, 0)
    tell("lock_shared, another", io.lock_shared, "a", "l", "cookie3", "tag", "about", None, 0)
    io.set_namespace("space")
    tell("namespace", io.get_namespace)
    tell("read there", io.read, "a")
    tell("write there", io.write_full, "a", b"in space")
    tell("list there", lambda: sorted(item.key for item in io.list_objects()))
    io.set_namespace("")
    io.set_locator_key("place")
    tell("locator key", io.get_locator_key)
    tell("write by key", io.write_full, "a", b"by key")
    tell("read by key", io.read, "a")
    io.set_locator_key("")
    tell("read without", io.read, "a")
    items = [(item.key, item.nspace, item.locator_key) for item in io.list_objects()]
    tell("list", lambda: sorted(items, key=str))
    tell("dup", lambda: io.dup().get_pool_name())
    tell("last version", lambda: io.get_last_version() > 0)
    tell("set_osdmap_full_try", io.set_osdmap_full_try)
    tell("unset_osdmap_full_try", io.unset_osdmap_full_try)
    tell("applications", io.application_list)
    tell("application_enable, second", io.application_enable, "other")
    tell("application_enable, forced", io.application_enable, "other", True)
    tell("application_metadata_set", io.application_metadata_set, "other", "k", "v")
    tell("application_metadata_set, none", io.application_metadata_set, "none", "k", "v")
    tell("application_metadata_get", io.application_metadata_get, "other", "k")
    tell("application_metadata_get, none", io.application_metadata_get, "other", "none")
    tell("application_metadata_list", io.application_metadata_list, "other")
    tell("application_metadata_remove", io.application_metadata_remove, "other", "k")
    tell("application_metadata_remove, none", io.application_metadata_remove, "other", "k")


def an_object():
    io.write_full("object", b"0123456789")
    thing = rados.Object(io, "object")
    tell("read", thing.read, 4)
    tell("read on", thing.read, 100)
    tell("seek", thing.seek, 5)
    tell("write", thing.write, b"abc")
    tell("stat", thing.stat)
    tell("set_xattr", thing.set_xattr, "x", b"1")
    tell("get_xattr", thing.get_xattr, "x")
    tell("get_xattrs", lambda: list(thing.get_xattrs()))
    tell("rm_xattr", thing.rm_xattr, "x")
    tell("remove", thing.remove)
    tell("read what is removed", thing.read, 4)


def asynchronous():
    over = threading.Event()
    heard = []

    def wait(label, begin, *arguments, **named):
        over.clear()
        heard.clear()

        def done(completion, *got):
            heard.append(got)
            over.set()

        try:
            completion = begin(*arguments, oncomplete=done, **named)
        except (rados.Error, TypeError) as error:
            print(f"{label}: {type(error).__name__}")
            return
        completion.wait_for_complete_and_cb()
        over.wait(30)
        say(label, (completion.get_return_value(), *[tuple(plain(part) for part in got) for got in heard]))

    wait("aio_write", io.aio_write, "async", b"hello", 2)
    wait("aio_append", io.aio_append, "async", b"!")
    wait("aio_write_full", io.aio_write_full, "async2", b"whole")
    wait("aio_writesame", io.aio_writesame, "async3", b"xy", 4, 0)
    wait("aio_read", io.aio_read, "async", 100, 0)
    wait("aio_read, none", io.aio_read, "none", 100, 0)
    wait("aio_stat", io.aio_stat, "async")
    wait("aio_stat, none", io.aio_stat, "none")
    wait("aio_cmpext", io.aio_cmpext, "async2", b"who", 0)
    wait("aio_cmpext, other", io.aio_cmpext, "async2", b"wha", 0)
    wait("aio_setxattr", io.aio_setxattr, "async", "x", b"1")
    wait("aio_rmxattr", io.aio_rmxattr, "async", "x")
    wait("aio_rmxattr again", io.aio_rmxattr, "async", "x")
    wait("aio_execute", io.aio_execute, "async", "hello", "say_hello", b"you")
    wait("aio_execute, none", io.aio_execute, "async", "nosuch", "x", b"")
    wait("aio_remove", io.aio_remove, "async3")
    wait("aio_remove again", io.aio_remove, "async3")
    wait("aio_notify", io.aio_notify, "async", msg="x", timeout_ms=3000)
    wait("aio_notify, none", io.aio_notify, "none", msg="x", timeout_ms=3000)
    tell("aio_flush", io.aio_flush)
    with rados.WriteOpCtx() as op:
        io.set_omap(op, ("k", "l"), (b"1", b"2"))
        wait("operate_aio_write_op", io.operate_aio_write_op, op, "async-omap")
    with rados.ReadOpCtx() as op:
        keys, _ = io.get_omap_keys(op, "", 10)
        wait("operate_aio_read_op", io.operate_aio_read_op, op, "async-omap")
        tell("keys", lambda: list(keys))


def vectors():
    def write(label, *steps, name="v", **named):
        def run():
            with rados.WriteOpCtx() as op:
                for step in steps:
                    step(op)
                io.operate_write_op(op, name, **named)
        tell(label, run)

    write("new", lambda op: op.new(rados.LIBRADOS_CREATE_EXCLUSIVE))
    write("new again", lambda op: op.new(rados.LIBRADOS_CREATE_EXCLUSIVE))
    write("a failure that may be", lambda op: op.new(rados.LIBRADOS_CREATE_EXCLUSIVE),
          lambda op: op.set_flags(rados.LIBRADOS_OP_FLAG_FAILOK), lambda op: op.append(b"x"))
    for flag in ("EXCL", "FADVISE_DONTNEED", "FADVISE_NOCACHE", "FADVISE_RANDOM", "FADVISE_SEQUENTIAL", "FADVISE_WILLNEED"):
        write(f"with {flag}", lambda op: op.write(b"y", 1), lambda op, flag=flag: op.set_flags(getattr(rados, "LIBRADOS_OP_FLAG_" + flag)))
    write("all of it", lambda op: op.write_full(b"0123456789"), lambda op: op.zero(2, 3), lambda op: op.truncate(8),
          lambda op: op.append(b"end"), lambda op: op.writesame(b"ab", 4, 20), lambda op: op.set_xattr("x", b"1"))
    tell("read", io.read, "v")
    write("cmpext", lambda op: op.cmpext(b"01", 0), lambda op: op.write(b"AB", 0))
    write("cmpext, other", lambda op: op.cmpext(b"01", 0), lambda op: op.write(b"CD", 0))
    write("omap_cmp of none", lambda op: op.omap_cmp("k", "v"), lambda op: op.write(b"CD", 0))
    write("rm_xattr", lambda op: op.rm_xattr("x"))
    write("execute", lambda op: op.execute("hello", "record_hello", b"me"), name="hello")
    write("execute, none", lambda op: op.execute("hello", "none", b"me"))
    write("assert_version of long ago", lambda op: op.assert_version(1), lambda op: op.append(b"x"))
    write("in the past", lambda op: op.append(b"x"), mtime=1_000_000_000)
    tell("stat", lambda: int(time.mktime(io.stat("v")[1]) < 1_100_000_000))
    for flag in ("BALANCE_READS", "LOCALIZE_READS", "ORDER_READS_WRITES", "IGNORE_CACHE", "SKIPRWLOCKS", "IGNORE_OVERLAY"):
        write(f"with {flag}", lambda op: op.append(b"z"), flags=getattr(rados, "LIBRADOS_OPERATION_" + flag))
    write("remove", lambda op: op.remove())
    write("remove again", lambda op: op.remove())
    write("omap", lambda op: io.set_omap(op, ("a", "b", "\u00e4"), (b"1", b"", b"\0")), name="o")
    write("omap, uneven", lambda op: io.set_omap(op, ("a", "b"), (b"1",)), name="o")
    write("remove_omap_range2", lambda op: io.remove_omap_range2(op, "b", "c"), name="o")

    def look(label, begin, name="o"):
        def run():
            with rados.ReadOpCtx() as op:
                found, code = begin(op)
                io.operate_read_op(op, name)
                return list(found)
        tell(label, run)

    look("vals", lambda op: io.get_omap_vals(op, "", "", 10))
    look("vals after", lambda op: io.get_omap_vals(op, "a", "", 10))
    look("keys", lambda op: io.get_omap_keys(op, "", 1))
    look("by keys", lambda op: io.get_omap_vals_by_keys(op, ("a", "none")))
    look("none", lambda op: io.get_omap_vals(op, "", "", 10), name="none")

    def compare(data):
        with rados.ReadOpCtx() as op:
            op.cmpext(data, 0)
            io.operate_read_op(op, "a")

    tell("cmpext in a read", compare, b"hello")
    tell("cmpext in a read, other", compare, b"hullo")


def watching():
    heard, failed, there = [], [], threading.Event()

    def on_notify(notify_id, notifier, watch_id, data):
        heard.append(data)
        there.set()

    io.write_full("watched", b"x")
    watch = io.watch("watched", on_notify, failed.append, timeout=20)
    tell("check", lambda: watch.check() >= datetime.timedelta())
    tell("id", lambda: watch.get_id() != 0)
    tell("notify", io.notify, "watched", "news", 5000)
    there.wait(10)
    say("heard", heard)
    tell("notify none", io.notify, "none", "news", 5000)
    tell("watch none", io.watch, "none", on_notify)
    tell("close", watch.close)
    tell("close again", watch.close)
    tell("check what is closed", watch.check)


def snapshots():
    cluster.create_pool("python-snaps")
    with cluster.open_ioctx("python-snaps") as there:
        there.write_full("o", b"first")
        tell("create_snap", there.create_snap, "s")
        tell("create_snap again", there.create_snap, "s")
        there.write_full("o", b"second")
        tell("list_snaps", lambda: [snap.name for snap in there.list_snaps()])
        snap = there.lookup_snap("s")
        tell("timestamp", snap.get_timestamp)
        there.set_read(snap.snap_id)
        tell("read", there.read, "o")
        tell("write", there.write_full, "o", b"third")
        there.set_read(rados.LIBRADOS_SNAP_HEAD)
        tell("snap_rollback", there.snap_rollback, "o", "s")
        tell("read", there.read, "o")
        tell("snap_rollback, none", there.snap_rollback, "o", "none")
        tell("lookup_snap, none", there.lookup_snap, "none")
        tell("create_self_managed_snap", there.create_self_managed_snap)
        tell("remove_snap", there.remove_snap, "s")
        tell("remove_snap again", there.remove_snap, "s")
    cluster.delete_pool("python-snaps")
    own = io.create_self_managed_snap()
    io.set_self_managed_snap_write([own])
    io.write_full("own", b"after")
    tell("rollback_self_managed_snap", io.rollback_self_managed_snap, "own", own)
    tell("read", io.read, "own")
    io.set_self_managed_snap_write([])
    tell("remove_self_managed_snap", io.remove_self_managed_snap, own)
    tell("create_snap", io.create_snap, "mixed")


def main(*parts):
    wanted = [part for part in sys.argv[2:] if not part.startswith("--")]
    for part in parts:
        if not wanted or part.__name__ in wanted:
            print(f"--- {part.__name__}", flush=True)
            part()


if __name__ == "__main__":
    main(a_cluster, an_ioctx, an_object, asynchronous, vectors, watching, snapshots)
    sys.stdout.flush()
    os._exit(0)  # what is still open shall not be waited for
