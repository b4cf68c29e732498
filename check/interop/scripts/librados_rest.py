#!/usr/bin/env python3
"""What `librados.py` leaves out of librados's C interface: what is asynchronous, watches, snapshots, older kinds of
listings and lists, what a client asks of monitors and OSDs, quotas and the full flag. Arguments as there."""
import ctypes as c
import errno
import itertools
import json
import os
import re
import struct
import sys
import threading
import time

import librados as base
from librados import L, MISSING, cluster, io, must, n, read, say, short, show_pairs, size, stat, text, write_full, xattrs_of

CALLBACK = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)
WATCH = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_uint64, c.c_uint64, c.POINTER(c.c_char), c.c_size_t)
ERROR = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_int)
L.rados_aio_get_version.restype = c.c_uint64
POOL = sys.argv[1]


def until(holds):
    """At most a minute. What waits for a map that clients are told of late, waits here."""
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            return 0
        time.sleep(0.05)
    return 1


# ---- what is asynchronous ----


called_back = []  # kept: librados may call them after the last wait


def completion():
    made, called = c.c_void_p(), threading.Event()
    called_back.append(CALLBACK(lambda *_: called.set()))
    must(L.rados_aio_create_completion2(None, called_back[-1], c.byref(made)))
    return made, called


def aio(label, function, *arguments, show=lambda got: "", on=io):
    """Begins, waits, and tells what came of it."""
    made, called = completion()
    begun = getattr(L, f"rados_aio_{function}")(on, *arguments[:1], made, *arguments[1:])
    if begun < 0:
        return say(f"{label}, at once", begun)
    L.rados_aio_wait_for_complete_and_cb(made)
    got = L.rados_aio_get_return_value(made)
    states = [getattr(L, f"rados_aio_is_{state}")(made) for state in ("complete", "safe", "complete_and_cb", "safe_and_cb")]
    say(label, got, show(got), "over" if all(states) and called.wait(60) else f"not over: {states}")
    L.rados_aio_release(made)
    return got


def asynchronous():
    aio("write", "write", b"a", b"hello", size(5), n(0))
    aio("append", "append", b"a", b" there", size(6))
    aio("write_full", "write_full", b"b", b"whole", size(5))
    aio("writesame", "writesame", b"same", b"ab", size(2), size(10), n(1))
    aio("writesame uneven", "writesame", b"same", b"abc", size(3), size(10), n(0))
    aio("cmpext", "cmpext", b"same", b"ab", size(2), n(1))
    aio("cmpext different", "cmpext", b"same", b"ax", size(2), n(1))
    buffer = c.create_string_buffer(100)
    data = lambda got: short(buffer.raw[:max(got, 0)])
    aio("read", "read", b"a", buffer, size(100), n(0), show=data)
    aio("read part", "read", b"a", buffer, size(3), n(2), show=data)
    aio("read missing", "read", text(MISSING), buffer, size(100), n(0))
    found, dated = c.c_uint64(), c.c_long()
    aio("stat", "stat", b"a", c.byref(found), c.byref(dated), show=lambda _: f"size {found.value}")
    aio("stat missing", "stat", text(MISSING), c.byref(found), c.byref(dated))
    aio("setxattr", "setxattr", b"a", b"x", b"1", size(1))
    aio("getxattr", "getxattr", b"a", b"x", buffer, size(100), show=data)
    aio("getxattr absent", "getxattr", b"a", b"z", buffer, size(100))
    iterator = c.c_void_p()
    aio("getxattrs", "getxattrs", b"a", c.byref(iterator), show=lambda _: xattrs_of(iterator))
    L.rados_getxattrs_end(iterator)
    aio("rmxattr", "rmxattr", b"a", b"x")
    aio("getxattr removed", "getxattr", b"a", b"x", buffer, size(100))
    aio("exec", "exec", b"a", b"hello", b"say_hello", b"you", size(3), buffer, size(100), show=data)
    aio("exec, no class", "exec", b"a", b"nosuch", b"x", b"", size(0), buffer, size(100))
    must(L.rados_lock_exclusive(io, b"a", b"l", b"1", b"", None, c.c_uint8(0)))
    made, called = completion()
    must(L.rados_aio_unlock(io, b"a", b"l", b"1", made))
    L.rados_aio_wait_for_complete(made)
    say("unlock", L.rados_aio_get_return_value(made))
    aio("remove", "remove", b"b")
    aio("remove missing", "remove", b"b")
    vector = c.c_void_p(L.rados_create_write_op())
    L.rados_write_op_append(vector, b"!", size(1))
    made, called = completion()
    must(L.rados_aio_write_op_operate(vector, io, made, b"a", None, c.c_int(0)))
    L.rados_aio_wait_for_safe_and_cb(made)
    say("a vector", L.rados_aio_get_return_value(made))
    say("its version", int(L.rados_aio_get_version(made) > 0))
    L.rados_release_write_op(vector)
    vector, used, rval = c.c_void_p(L.rados_create_read_op()), c.c_size_t(), c.c_int(7)
    L.rados_read_op_read(vector, n(0), size(100), buffer, c.byref(used), c.byref(rval))
    made, called = completion()
    must(L.rados_aio_read_op_operate(vector, io, made, b"a", c.c_int(0)))
    L.rados_aio_wait_for_safe(made)
    say("a vector of reads", L.rados_aio_get_return_value(made), rval.value, short(buffer.raw[:used.value]))
    L.rados_release_read_op(vector)
    many = [completion() for _ in range(50)]
    for number, (made, _) in enumerate(many):
        must(L.rados_aio_write(io, f"many{number}".encode(), made, b"x", size(1), n(0)))
    say("flush", L.rados_aio_flush(io))
    say("all over", int(all(L.rados_aio_is_safe(made) for made, _ in many)))
    made, called = completion()
    say("flush, asynchronous", L.rados_aio_flush_async(io, made))
    L.rados_aio_wait_for_complete(made)
    say("flushed", L.rados_aio_get_return_value(made))
    made, called = completion()
    must(L.rados_aio_read(io, b"a", made, buffer, size(1), n(0)))
    L.rados_aio_wait_for_complete(made)
    say("cancel what is over", L.rados_aio_cancel(io, made))
    must(L.rados_write_op_operate2(c.c_void_p(L.rados_create_write_op()), io, b"dated", None, c.c_int(0)))
    vector, moment = c.c_void_p(L.rados_create_write_op()), (c.c_long * 2)(1_000_000_000, 5)
    L.rados_write_op_write_full(vector, b"old", size(3))
    say("a time of one's own", L.rados_write_op_operate2(vector, io, b"dated", moment, c.c_int(0)))
    found, dated = c.c_uint64(), c.c_long()
    got = L.rados_stat(io, b"dated", c.byref(found), c.byref(dated))
    say("which is kept", got, dated.value)


# ---- watches ----


class Watcher:
    """Hears notifies, and answers some."""

    def __init__(self, answers=True):
        self.heard, self.failed, self.answers = [], [], answers
        self.on_notify, self.on_error = WATCH(self.notified), ERROR(self.error)

    def notified(self, _arg, notify_id, handle, _notifier, data, length):
        self.heard.append(c.string_at(data, length) if length else b"")
        if self.answers:
            L.rados_notify_ack(io, b"w", n(notify_id), n(handle), b"heard", c.c_int(5))

    def error(self, _arg, _handle, code):
        self.failed.append(code)


def notify(label, name, timeout_ms, given=b"hey"):
    reply, length = c.c_void_p(), c.c_size_t()
    got = L.rados_notify2(io, text(name), given, c.c_int(len(given)), n(timeout_ms), c.byref(reply), c.byref(length))
    acks, silent, ack_count, silent_count = c.c_void_p(), c.c_void_p(), c.c_size_t(), c.c_size_t()
    decoded = L.rados_decode_notify_response(reply, length, c.byref(acks), c.byref(ack_count), c.byref(silent),
                                             c.byref(silent_count)) if length.value else "nothing to decode"
    say(label, got, f"decoded {decoded}, {ack_count.value} answered, {silent_count.value} did not")
    L.rados_free_notify_response(acks, ack_count, silent)
    L.rados_buffer_free(reply)


def watches():
    write_full("w", b"x")
    notify("notify nobody", "w", 5000)
    notify("notify on missing", MISSING, 5000)
    one, two, dumb = Watcher(), Watcher(), Watcher(answers=False)
    handles = []
    for watcher, function, more in ((one, "watch2", ()), (two, "watch3", (c.c_uint32(20),))):
        handle = c.c_uint64()
        got = getattr(L, f"rados_{function}")(io, b"w", c.byref(handle), watcher.on_notify, watcher.on_error, *more, None)
        say(function, got)
        handles.append(handle)
    handle = c.c_uint64()
    say("watch missing", L.rados_watch2(io, text(MISSING), c.byref(handle), one.on_notify, one.on_error, None))
    say("check", int(0 <= L.rados_watch_check(io, handles[0]) < 10_000))
    notify("notify two", "w", 20_000)
    notify("notify two with nothing", "w", 20_000, b"")
    print("they heard", one.heard, two.heard)
    made, called = completion()
    handle = c.c_uint64()
    must(L.rados_aio_watch(io, b"w", made, c.byref(handle), dumb.on_notify, dumb.on_error, None))
    L.rados_aio_wait_for_complete(made)
    say("aio_watch", L.rados_aio_get_return_value(made))
    notify("notify three, of whom one is silent", "w", 1500)
    made, called = completion()
    reply, length = c.c_void_p(), c.c_size_t()
    must(L.rados_aio_notify(io, b"w", made, b"?", c.c_int(1), n(1500), c.byref(reply), c.byref(length)))
    L.rados_aio_wait_for_complete(made)
    say("aio_notify", L.rados_aio_get_return_value(made))
    made, called = completion()
    must(L.rados_aio_unwatch(io, handle, made))
    L.rados_aio_wait_for_complete(made)
    say("aio_unwatch", L.rados_aio_get_return_value(made))
    notify("notify two again", "w", 20_000)
    say("notify as of old", L.rados_notify(io, b"w", n(0), b"old", c.c_int(3)))
    say("unwatch", L.rados_unwatch2(io, handles[0]))
    say("unwatch as of old", L.rados_unwatch(io, b"w", handles[1]))
    say("flush", L.rados_watch_flush(cluster))
    print("they heard", len(one.heard), len(two.heard), "and failed", one.failed, two.failed, dumb.failed)
    again = Watcher()
    handle = c.c_uint64()
    must(L.rados_watch2(io, b"w", c.byref(handle), again.on_notify, again.on_error, None))
    say("remove what is watched", L.rados_remove(io, b"w"))
    say("the watcher hears of it", until(lambda: again.failed), again.failed)
    say("check", L.rados_watch_check(io, handle))
    say("unwatch what is gone", L.rados_unwatch2(io, handle))


# ---- snapshots ----


def pool_snapshots():
    other = c.c_void_p()
    must(L.rados_pool_create(cluster, b"snapped"))
    must(L.rados_ioctx_create(cluster, b"snapped", c.byref(other)))
    put = lambda data: L.rados_write_full(other, b"o", data, size(len(data)))
    buffer = c.create_string_buffer(100)

    def look(label):
        got = L.rados_read(other, b"o", buffer, size(100), n(0))
        say(label, got, buffer.raw[:max(got, 0)])

    put(b"first")
    say("create", L.rados_ioctx_snap_create(other, b"s1"))
    say("create again", L.rados_ioctx_snap_create(other, b"s1"))
    put(b"second")
    ids, found = (c.c_uint64 * 10)(), c.c_uint64()
    say("list", L.rados_ioctx_snap_list(other, ids, c.c_int(10)), list(ids)[:2])
    say("list, no room", L.rados_ioctx_snap_list(other, ids, c.c_int(0)))
    say("lookup", L.rados_ioctx_snap_lookup(other, b"s1", c.byref(found)), found.value)
    say("lookup none", L.rados_ioctx_snap_lookup(other, b"none", c.byref(found)))
    say("name", L.rados_ioctx_snap_get_name(other, n(ids[0]), buffer, c.c_int(100)), buffer.value)
    say("name, no room", L.rados_ioctx_snap_get_name(other, n(ids[0]), buffer, c.c_int(1)))
    say("name of none", L.rados_ioctx_snap_get_name(other, n(77), buffer, c.c_int(100)))
    dated = c.c_long()
    say("stamp", L.rados_ioctx_snap_get_stamp(other, n(ids[0]), c.byref(dated)), int(dated.value > 1e9))
    L.rados_ioctx_snap_set_read(other, n(ids[0]))
    look("read then")
    say("write then", put(b"never"))
    L.rados_ioctx_snap_set_read(other, n((1 << 64) - 2))
    look("read now")
    say("rollback", L.rados_ioctx_snap_rollback(other, b"o", b"s1"))
    look("rolled back")
    put(b"third")
    say("rollback as of old", L.rados_rollback(other, b"o", b"s1"))
    look("rolled back again")
    say("rollback to none", L.rados_ioctx_snap_rollback(other, b"o", b"none"))
    say("rollback of missing", L.rados_ioctx_snap_rollback(other, text(MISSING), b"s1"))
    say("own snapshots in such a pool", L.rados_ioctx_selfmanaged_snap_create(other, c.byref(found)))
    say("remove", L.rados_ioctx_snap_remove(other, b"s1"))
    say("remove again", L.rados_ioctx_snap_remove(other, b"s1"))
    must(L.rados_pool_delete(cluster, b"snapped"))


def own_snapshots():
    ids = [c.c_uint64() for _ in range(2)]
    write_full("s", b"first")
    say("create", L.rados_ioctx_selfmanaged_snap_create(io, c.byref(ids[0])))
    made, called = completion()
    L.rados_aio_ioctx_selfmanaged_snap_create(io, c.byref(ids[1]), made)
    L.rados_aio_wait_for_complete(made)
    say("create, asynchronous", L.rados_aio_get_return_value(made), "later" if ids[1].value > ids[0].value else "not later")
    context = (c.c_uint64 * 2)(ids[1].value, ids[0].value)
    say("write context", L.rados_ioctx_selfmanaged_snap_set_write_ctx(io, ids[1], context, c.c_int(2)))
    backwards = (c.c_uint64 * 2)(ids[0].value, ids[1].value)
    say("write context backwards", L.rados_ioctx_selfmanaged_snap_set_write_ctx(io, ids[1], backwards, c.c_int(2)))
    write_full("s", b"second")
    L.rados_ioctx_snap_set_read(io, ids[0])
    read("read then", "s")
    stat("stat then", "s")
    L.rados_ioctx_snap_set_read(io, n((1 << 64) - 2))
    say("rollback", L.rados_ioctx_selfmanaged_snap_rollback(io, b"s", ids[0]))
    read("rolled back", "s")
    say("remove", L.rados_ioctx_selfmanaged_snap_remove(io, ids[0]))
    made, called = completion()
    L.rados_aio_ioctx_selfmanaged_snap_remove(io, ids[1], made)
    L.rados_aio_wait_for_complete(made)
    say("remove, asynchronous", L.rados_aio_get_return_value(made))
    say("a pool's snapshot in such a pool", L.rados_ioctx_snap_create(io, b"s"))
    must(L.rados_ioctx_selfmanaged_snap_set_write_ctx(io, n(0), None, c.c_int(0)))


# ---- listings and lists of older kinds ----


def older_kinds():
    for number in range(20):
        write_full(f"l{number}", b"x")
    names, context = [], c.c_void_p()
    say("open", L.rados_nobjects_list_open(io, c.byref(context)))
    parts = [c.c_char_p() for _ in range(3)]
    while (got := L.rados_nobjects_list_next(context, *map(c.byref, parts))) == 0:
        names.append(parts[0].value)
    say("the end", got, len(names), sorted(name for name in names if name.startswith(b"l"))[:3])
    say("back to the start", int(L.rados_nobjects_list_seek(context, c.c_uint32(0)) == 0))
    must(L.rados_nobjects_list_next(context, *map(c.byref, parts)))
    cursor = c.c_void_p()
    say("cursor", L.rados_nobjects_list_get_cursor(context, c.byref(cursor)))
    following = parts[0].value
    L.rados_nobjects_list_seek_cursor(context, cursor)
    lengths = [c.c_size_t() for _ in range(3)]
    refs = [part for pair in zip(parts) for part in map(c.byref, pair)] + [c.byref(length) for length in lengths]
    must(L.rados_nobjects_list_next2(context, *refs))
    say("there again", int(parts[0].value in names and following in names))
    L.rados_nobjects_list_close(context)
    say("as of old, open", L.rados_objects_list_open(io, c.byref(context)))
    count = 0
    while (got := L.rados_objects_list_next(context, c.byref(parts[0]), c.byref(parts[1]))) == 0:
        count += 1
    say("the end", got, int(count == len(names)))
    L.rados_objects_list_close(context)

    base.w("omap", "o", base.omap_set({"k1": b"v1", "k2": b"v2"}))
    for function, arguments in (("omap_get_vals", (b"", b"", n(10))), ("omap_get_keys", (b"", n(10)))):
        vector, iterator, rval = c.c_void_p(L.rados_create_read_op()), c.c_void_p(), c.c_int(7)
        getattr(L, f"rados_read_op_{function}")(vector, *arguments, c.byref(iterator), c.byref(rval))
        got = L.rados_read_op_operate(vector, io, b"o", c.c_int(0))
        say(function, got, L.rados_omap_iter_size(iterator), show_pairs(iterator))
        L.rados_omap_get_end(iterator)
    vector, rval = c.c_void_p(L.rados_create_write_op()), c.c_int(7)
    L.rados_write_op_omap_cmp(vector, b"k1", c.c_uint8(1), b"v1", size(2), c.byref(rval))
    keys, values, lengths, count = (c.c_char_p * 1)(b"k3"), (c.c_char_p * 1)(b"v3"), (c.c_size_t * 1)(2), size(1)
    L.rados_write_op_omap_set(vector, keys, values, lengths, count)
    L.rados_write_op_omap_rm_keys(vector, (c.c_char_p * 1)(b"k2"), size(1))
    L.rados_write_op_set_alloc_hint(vector, n(4096), n(4096))
    say("a vector of them", L.rados_write_op_operate(vector, io, b"o", None, c.c_int(0)), rval.value)
    base.r("then", "o", base.omap_keys())

    must(L.rados_lock_shared(io, b"o", b"l", b"cookie", b"tag", b"", None, c.c_uint8(0)))
    room = [c.c_size_t(100) for _ in range(4)]
    exclusive, texts = c.c_int(7), [c.create_string_buffer(100) for _ in range(4)]
    mixed = [part for pair in zip(texts, map(c.byref, room)) for part in pair]
    got = L.rados_list_lockers(io, b"o", b"l", c.byref(exclusive), *mixed)
    say("lockers", got, exclusive.value, texts[0].value, texts[2].value)
    out = c.create_string_buffer(8)
    say("checksum", L.rados_checksum(io, b"l1", c.c_int(2), b"\xff" * 4, size(4), size(1), n(0), size(0), out, size(8)),
        out.raw.hex())


# ---- maps of before there were omaps ----


def record(*parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def tmap(header, pairs):
    return record(header) + struct.pack("<I", len(pairs)) + b"".join(record(*pair) for pair in pairs)


def tmaps():
    def update(label, name, commands):
        say(label, L.rados_tmap_update(io, text(name), commands, size(len(commands))))

    def show(name):
        buffer = c.create_string_buffer(1000)
        got = L.rados_read(io, text(name), buffer, size(1000), n(0))
        print("  ", code(got), buffer.raw[:max(got, 0)].hex())

    code = base.code
    put = lambda key, value: b"s" + record(key, value)
    update("nothing to nothing", "t", b"")
    stat("made", "t")
    update("a pair to nothing", "t", put(b"b", b"2"))
    show("t")
    update("pairs around it", "t", put(b"a", b"1") + put(b"c", b"3"))
    show("t")
    update("another value", "t", put(b"b", b"22"))
    show("t")
    update("a header", "t", b"h" + record(b"head"))
    show("t")
    update("a header and pairs", "t", b"h" + record(b"HEAD") + put(b"d", b"4"))
    show("t")
    update("create", "t", b"c" + record(b"e", b"5"))
    update("create what is there", "t", b"c" + record(b"e", b"6"))
    update("remove", "t", b"r" + record(b"a"))
    update("remove again", "t", b"r" + record(b"a"))
    update("remove sloppily", "t", b"R" + record(b"a"))
    update("remove sloppily what is there", "t", b"R" + record(b"c"))
    show("t")
    update("out of order", "t", put(b"z", b"9") + put(b"a", b"0"))
    show("t")
    update("out of order, with a header last", "t", put(b"y", b"8") + put(b"b", b"1") + b"h" + record(b"late"))
    show("t")
    update("another", "t", put(b"k", b"1"))
    update("remove and put", "t", b"r" + record(b"k") + put(b"k", b"3"))
    show("t")
    update("create and fail", "t", put(b"n", b"1") + b"c" + record(b"z", b"1"))
    show("t")
    update("an unknown command", "t", b"x" + record(b"a", b"1"))
    update("cut off in a key", "t", b"s" + record(b"abc")[:5])
    update("cut off in a value", "t", b"s" + record(b"m") + b"\5\0\0\0x")
    update("no value", "t", b"s" + record(b"m"))
    update("a command alone", "t", b"s")
    update("an empty key", "t", put(b"", b"0"))
    update("an empty value", "t", put(b"m", b""))
    update("nothing", "t", b"")
    show("t")
    write_full("empty map", tmap(b"", []))
    update("an empty map", "empty map", b"r" + record(b"a"))
    update("an empty map, nothing", "empty map", b"")
    show("empty map")
    base.w("an omap beside it", "t", base.omap_set({"k": b"v"}))
    update("and a pair", "t", put(b"o", b"1"))
    buffer, length = c.create_string_buffer(1000), size(1000)
    got = L.rados_tmap_get(io, b"t", buffer, length)
    say("tmap_get", got, buffer.raw[:max(got, 0)].hex())
    say("tmap_get missing", L.rados_tmap_get(io, text(MISSING), buffer, length))
    given = tmap(b"h", [(b"b", b"1"), (b"a", b"2")])
    say("tmap_put", L.rados_tmap_put(io, b"p", given, size(len(given))))
    show("p")


# ---- a client and its cluster ----


def command(label, call, words, show=lambda out: ""):
    """One command line as JSON, for whom `call` names."""
    lines = (c.c_char_p * 1)(json.dumps(words).encode())
    out, out_len, said, said_len = c.c_void_p(), c.c_size_t(), c.c_void_p(), c.c_size_t()
    results = (c.byref(out), c.byref(out_len), c.byref(said), c.byref(said_len))
    got = call(lines, size(1), b"", size(0), *results)
    answer = c.string_at(out, out_len.value) if out_len.value else b""
    say(label, got, show(answer) if got >= 0 else "")


def commands():
    mon = lambda *arguments: L.rados_mon_command(cluster, *arguments)
    command("mon", mon, {"prefix": "osd pool ls"}, lambda out: int(POOL.encode() in out))
    command("mon, unknown", mon, {"prefix": "nosuch"})
    command("mon, none", mon, {})
    command("osd", lambda *a: L.rados_osd_command(cluster, c.c_int(0), *a), {"prefix": "version"},
            lambda out: int(b"version" in out))
    command("osd, none there", lambda *a: L.rados_osd_command(cluster, c.c_int(77), *a), {"prefix": "version"})
    pg = f"{L.rados_ioctx_get_id(io)}.0".encode()
    command("pg", lambda *a: L.rados_pg_command(cluster, pg, *a), {"prefix": "query", "pgid": pg.decode()},
            lambda out: json.loads(out)["state"])
    command("mgr", lambda *a: L.rados_mgr_command(cluster, *a), {"prefix": "pg dump", "format": "json"},
            lambda out: int(b"pg_map" in out))
    buffer, room = c.create_string_buffer(200), 200
    say("pool name", int(L.rados_ioctx_get_pool_name(io, buffer, c.c_uint(room)) == len(POOL)), int(buffer.value == POOL.encode()))
    say("pool name, no room", L.rados_ioctx_get_pool_name(io, buffer, c.c_uint(2)))
    L.rados_ioctx_get_id.restype = c.c_int64
    say("reverse lookup", int(L.rados_pool_reverse_lookup(cluster, n(L.rados_ioctx_get_id(io)), buffer, size(room)) == len(POOL)))
    say("reverse lookup of none", L.rados_pool_reverse_lookup(cluster, n(7777), buffer, size(room)))
    long = c.create_string_buffer(10_000)
    must(L.rados_pool_list(cluster, long, size(10_000)))
    say("pool list", int(POOL.encode() in long.raw.split(b"\0")))
    L.rados_ioctx_set_namespace(io, b"space")
    say("namespace", L.rados_ioctx_get_namespace(io, buffer, c.c_uint(room)), buffer.value)
    L.rados_ioctx_set_namespace(io, None)
    other = c.c_void_p()
    say("open by number", L.rados_ioctx_create2(cluster, c.c_int64(L.rados_ioctx_get_id(io)), c.byref(other)))
    say("open by no number", L.rados_ioctx_create2(cluster, c.c_int64(7777), c.byref(other)))
    addresses = c.c_char_p()
    say("addresses", L.rados_getaddrs(cluster, c.byref(addresses)), re.sub(rb"\d+", b"N", addresses.value))
    L.rados_get_instance_id.restype = c.c_uint64
    say("instance", int(L.rados_get_instance_id(cluster) > 0))
    # `rados_ping_monitor` is asked for through `ceph ping` instead: in librados 16 the thread of its connection may be
    # faster than the one that says what the connection is for, and then it ends the process, this one with it.
    space = (c.c_uint64 * 4)()
    say("cluster stat", L.rados_cluster_stat(cluster, space), int(space[0] > space[1] > 0 and space[0] > space[2] > 0))
    stats = (c.c_uint64 * 20)()
    write_full("counted", b"x" * 1000)
    say("pool stat counts", until(lambda: must(L.rados_ioctx_pool_stat(io, stats)) == 0 and stats[2] > 0 and stats[0] >= 1000))
    say("register a service", L.rados_service_register(cluster, b"nacre-test", b"x", b"k\0v\0\0"))
    say("its status", L.rados_service_update_status(cluster, b"k\0v2\0\0"))


def create_pools():
    for function, more in (("pool_create_with_crush_rule", (c.c_uint8(0),)), ("pool_create_with_auid", (n(5),)),
                           ("pool_create_with_all", (n(5), c.c_uint8(0)))):
        say(function, getattr(L, f"rados_{function}")(cluster, b"made", *more))
        L.rados_pool_delete(cluster, b"made")
    auid = n(77)
    say("auid", L.rados_ioctx_pool_get_auid(io, c.byref(auid)))
    say("set auid", L.rados_ioctx_pool_set_auid(io, n(5)))


def mon(**words):
    lines = (c.c_char_p * 1)(json.dumps(words).encode())
    nothing = (None, None, None, None)
    return L.rados_mon_command(cluster, lines, size(1), b"", size(0), *nothing)


def pool_flags():
    """What a pool that is full takes."""
    other = c.c_void_p()
    must(L.rados_pool_create(cluster, b"quota"))
    must(L.rados_ioctx_create(cluster, b"quota", c.byref(other)))
    put = lambda name, how=0: operate("write_full", name, how, b"x" * 1000, size(1000))

    def operate(function, name, how, *arguments):
        vector = c.c_void_p(L.rados_create_write_op())
        getattr(L, f"rados_write_op_{function}")(vector, *arguments)
        return L.rados_write_op_operate(vector, other, name, None, c.c_int(how))

    for number in range(3):
        must(put(b"q%d" % number))
    say("quota", mon(prefix="osd pool set-quota", pool="quota", field="max_objects", val="2"))

    more = itertools.count()

    def full():
        """FULL_TRY fails where others would wait."""
        return put(b"more%d" % next(more), base.FULL_TRY) == -errno.EDQUOT

    say("becomes full", until(full))
    say("full try, larger", operate("append", b"q0", base.FULL_TRY, b"x", size(1)))
    say("full try, remove", operate("remove", b"q2", base.FULL_TRY))
    say("full force, remove", operate("remove", b"q1", 128))
    buffer = c.create_string_buffer(10)
    say("read", L.rados_read(other, b"q0", buffer, size(1), n(0)), buffer.value)
    say("quota away", mon(prefix="osd pool set-quota", pool="quota", field="max_objects", val="0"))
    say("takes writes again", until(lambda: put(b"another", base.FULL_TRY) == 0))
    must(L.rados_pool_delete(cluster, b"quota"))


def fenced():
    """A client that is on the blocklist, by its own address."""
    other, its_io, addresses = c.c_void_p(), c.c_void_p(), c.c_char_p()
    must(L.rados_create2(c.byref(other), b"ceph", b"client.admin", n(0)))
    must(L.rados_conf_read_file(other, None))
    must(L.rados_conf_set(other, b"objecter_debug_inject_relock_delay", b"false"))
    value = c.create_string_buffer(20)
    say("conf get", L.rados_conf_get(other, b"rados_mon_op_timeout", value, size(20)), value.value)
    say("conf get, none", L.rados_conf_get(other, b"nosuch", value, size(20)))
    say("conf set, none", L.rados_conf_set(other, b"nosuch", b"1"))
    say("conf from the environment", L.rados_conf_parse_env(other, b"NOSUCH"))
    must(L.rados_connect(other))
    must(L.rados_ioctx_create(other, text(POOL), c.byref(its_io)))
    say("before", L.rados_write_full(its_io, b"f", b"x", size(1)))
    must(L.rados_getaddrs(other, c.byref(addresses)))
    address = re.search(rb"[\d.]+:\d+/\d+", addresses.value)[0]
    say("blocklist_add", L.rados_blocklist_add(cluster, address, c.c_uint32(600)))
    say("no address", L.rados_blocklist_add(cluster, b"nonsense", c.c_uint32(600)))
    must(L.rados_wait_for_latest_osdmap(cluster))
    # OSDs hear of it a little later.
    say("fenced", until(lambda: L.rados_write_full(its_io, b"f", b"y", size(1)) == -errno.ESHUTDOWN))
    L.rados_ioctx_destroy(its_io)
    L.rados_shutdown(other)


base.main(asynchronous, watches, pool_snapshots, own_snapshots, older_kinds, tmaps, commands, create_pools, pool_flags, fenced)
os._exit(0)
