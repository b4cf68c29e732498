#!/usr/bin/env python3
"""What librados's C interface gives back, call by call, one line each: the same on every cluster.

Arguments: an empty pool, and `--reference` when the cluster is a real Ceph. `testdata/librados.txt`
is what that says."""
import ctypes as c
import errno
import sys
import zlib

L = c.CDLL("librados.so.2")
cluster, io = c.c_void_p(), c.c_void_p()
MISSING = "missing"
REFERENCE = "--reference" in sys.argv
EQ, NE, GT, GE, LT, LE = 1, 2, 3, 4, 5, 6
EXCLUSIVE, IDEMPOTENT = 1, 0
OP_EXCL, OP_FAILOK = 1, 2
BALANCE_READS, LOCALIZE_READS, ORDER_READS_WRITES, IGNORE_CACHE, RETURNVEC = 1, 2, 4, 8, 1 << 10
FULL_TRY = 64


def must(code):
    assert code >= 0, code
    return code


def short(data):
    """Bytes as text; long ones by length and checksum."""
    return repr(data) if len(data) <= 64 else f"{len(data)} bytes, crc {zlib.crc32(data):08x}"


def code(number):
    if number >= 0:
        return str(number)
    if -4095 >= number:
        return f"differs at {-number - 4095}"
    return errno.errorcode.get(-number, str(number))


def say(label, number, *more):
    if label:
        print(label + ":", code(number), *more, flush=True)
    return number


def text(value):
    return value if value is None or isinstance(value, bytes) else value.encode()


def n(value):
    return c.c_uint64(value)


def size(value):
    return c.c_size_t(value)


# ---- single calls ----


def write(name, data, off=0):
    return L.rados_write(io, text(name), data, size(len(data)), n(off))


def write_full(name, data):
    return L.rados_write_full(io, text(name), data, size(len(data)))


def read(label, name, length=1000, off=0):
    buffer = c.create_string_buffer(max(length, 1))
    got = L.rados_read(io, text(name), buffer, size(length), n(off))
    return say(label, got, short(buffer.raw[:got]) if got > 0 else "")


def stat(label, name):
    found, mtime = c.c_uint64(), c.c_long()
    got = L.rados_stat(io, text(name), c.byref(found), c.byref(mtime))
    say(label, got, f"size {found.value}" if got == 0 else "", "dated" if mtime.value > 1e9 else "")


def execute(label, name, cls, method, given=b"", room=200):
    buffer = c.create_string_buffer(max(room, 1))
    got = L.rados_exec(io, text(name), text(cls), text(method), given, size(len(given)), buffer, size(room))
    say(label, got, short(buffer.raw[:got]) if got > 0 else "")


def pairs_of(iterator):
    found = []
    while True:
        key, value, key_len, value_len = c.c_char_p(), c.c_void_p(), c.c_size_t(), c.c_size_t()
        must(L.rados_omap_get_next2(iterator, c.byref(key), c.byref(value), c.byref(key_len), c.byref(value_len)))
        if not key:
            return found
        found.append((c.string_at(key, key_len.value), c.string_at(value, value_len.value) if value_len.value else b""))


def xattrs_of(iterator):
    found = []
    while True:
        key, value, length = c.c_char_p(), c.c_void_p(), c.c_size_t()
        must(L.rados_getxattrs_next(iterator, c.byref(key), c.byref(value), c.byref(length)))
        if not key:
            return sorted(found)
        found.append((key.value.decode(), short(c.string_at(value, length.value) if length.value else b"")))


# ---- vectors of operations: each step takes the vector and gives what to print of it, later ----


class Vector:
    def __init__(self, kind):
        self.kind = kind
        self.handle = c.c_void_p(getattr(L, f"rados_create_{kind}_op")())
        self.after = []

    def call(self, function, *arguments):
        getattr(L, f"rados_{self.kind}_op_{function}")(self.handle, *arguments)

    def later(self, show):
        self.after.append(show)

    def rval(self, name):
        rval = c.c_int(12345)
        self.later(lambda: f"{name}={'untouched' if rval.value == 12345 else code(rval.value)}")
        return c.byref(rval)


L.rados_get_last_version.restype = c.c_uint64
for function in ("rados_create_write_op", "rados_create_read_op"):
    getattr(L, function).restype = c.c_void_p


def step(function):
    return lambda *arguments, **named: lambda vector: function(vector, *arguments, **named)


@step
def flags(v, which):
    v.call("set_flags", c.c_int(which))


@step
def assert_exists(v):
    v.call("assert_exists")


@step
def assert_version(v, version):
    v.call("assert_version", n(version))


@step
def cmpext(v, off, data):
    v.call("cmpext", data, size(len(data)), n(off), v.rval("cmpext"))


@step
def cmpxattr(v, name, op, value):
    v.call("cmpxattr", text(name), c.c_uint8(op), value, size(len(value)))


@step
def omap_cmp(v, key, op, value):
    key = text(key)
    v.call("omap_cmp2", key, c.c_uint8(op), value, size(len(key)), size(len(value)), v.rval("omap_cmp"))


@step
def setxattr(v, name, value):
    v.call("setxattr", text(name), value, size(len(value)))


@step
def rmxattr(v, name):
    v.call("rmxattr", text(name))


@step
def create(v, exclusive):
    v.call("create", c.c_int(exclusive), None)


@step
def put(v, data, off=0):
    v.call("write", data, size(len(data)), n(off))


@step
def put_full(v, data):
    v.call("write_full", data, size(len(data)))


@step
def same(v, data, length, off=0):
    v.call("writesame", data, size(len(data)), size(length), n(off))


@step
def append(v, data):
    v.call("append", data, size(len(data)))


@step
def remove(v):
    v.call("remove")


@step
def truncate(v, length):
    v.call("truncate", n(length))


@step
def zero(v, off, length):
    v.call("zero", n(off), n(length))


@step
def hint(v, object_size, write_size, which=0):
    v.call("set_alloc_hint2", n(object_size), n(write_size), c.c_uint32(which))


def arrays(items):
    items = [text(item) for item in items]
    return (c.c_char_p * len(items))(*items), (c.c_size_t * len(items))(*map(len, items)), size(len(items))


@step
def omap_set(v, pairs):
    keys, key_lens, count = arrays(pairs)
    values, value_lens, _ = arrays(pairs.values())
    v.call("omap_set2", keys, values, key_lens, value_lens, count)


@step
def omap_rm(v, *names):
    keys, lens, count = arrays(names)
    v.call("omap_rm_keys2", keys, lens, count)


@step
def omap_rm_range(v, begin, end):
    begin, end = text(begin), text(end)
    v.call("omap_rm_range2", begin, size(len(begin)), end, size(len(end)))


@step
def omap_clear(v):
    v.call("omap_clear")


@step
def call(v, cls, method, given=b"", name="exec"):
    if v.kind == "write":
        v.call("exec", text(cls), text(method), given, size(len(given)), v.rval(name))
    else:
        buffer, used = c.create_string_buffer(500), c.c_size_t()
        v.call("exec_user_buf", text(cls), text(method), given, size(len(given)), buffer, size(500), c.byref(used),
               v.rval(name))
        v.later(lambda: short(buffer.raw[:used.value]))


@step
def get(v, off=0, length=500, name="read"):
    buffer, used = c.create_string_buffer(max(length, 1)), c.c_size_t()
    v.call("read", n(off), size(length), buffer, c.byref(used), v.rval(name))
    v.later(lambda: short(buffer.raw[:used.value]))


@step
def get_stat(v):
    found, mtime = c.c_uint64(), c.c_long()
    v.call("stat", c.byref(found), c.byref(mtime), v.rval("stat"))
    v.later(lambda: f"size {found.value}")


@step
def checksum(v, kind, init, off, length, chunk, room=100):
    buffer = c.create_string_buffer(room)
    v.call("checksum", c.c_int(kind), init, size(len(init)), n(off), size(length), size(chunk), buffer, size(room),
           v.rval("checksum"))
    v.later(lambda: buffer.raw[:40].hex())


@step
def get_xattrs(v):
    iterator = c.c_void_p()
    v.call("getxattrs", c.byref(iterator), v.rval("xattrs"))
    v.later(lambda: xattrs_of(iterator) if iterator else "none")


@step
def omap_vals(v, after="", prefix="", most=100):
    iterator, more = c.c_void_p(), c.c_ubyte(77)
    v.call("omap_get_vals2", text(after), text(prefix), n(most), c.byref(iterator), c.byref(more), v.rval("vals"))
    v.later(lambda: (f"more={more.value}", show_pairs(iterator)))


@step
def omap_keys(v, after="", most=100):
    iterator, more = c.c_void_p(), c.c_ubyte(77)
    v.call("omap_get_keys2", text(after), n(most), c.byref(iterator), c.byref(more), v.rval("keys"))
    v.later(lambda: (f"more={more.value}", show_pairs(iterator)))


@step
def omap_by_keys(v, *names):
    iterator = c.c_void_p()
    keys, lens, count = arrays(names)
    v.call("omap_get_vals_by_keys2", keys, count, lens, c.byref(iterator), v.rval("by_keys"))
    v.later(lambda: show_pairs(iterator))


def show_pairs(iterator):
    if not iterator:
        return "none"
    pairs = pairs_of(iterator)
    return pairs if len(pairs) <= 12 else f"{len(pairs)} pairs, first {pairs[0]}, last {pairs[-1]}"


def run(label, kind, name, steps, how):
    vector = Vector(kind)
    for one in steps:
        one(vector)
    if kind == "write":
        got = L.rados_write_op_operate(vector.handle, io, text(name), None, c.c_int(how))
    else:
        got = L.rados_read_op_operate(vector.handle, io, text(name), c.c_int(how))
    say(label, got, *[show() for show in vector.after])
    return got


def w(label, name, *steps, how=0):
    return run(label, "write", name, steps, how)


def r(label, name, *steps, how=0):
    return run(label, "read", name, steps, how)


# ---- what is tried ----


def bytes_of_objects():
    say("write", write("a", b"hello"))
    read("read all", "a")
    read("read part", "a", 3, 1)
    read("read beyond", "a", 10, 100)
    read("read nothing", "a", 0)
    read("read missing", MISSING)
    say("write with a gap", write("a", b"!", 8))
    read("gap reads as zeros", "a")
    say("write nothing to nothing", write("empty", b""))
    stat("exists", "empty")
    say("write nothing far away", write("empty", b"", 5000))
    stat("grew", "empty")
    say("write nothing far away to nothing", write("empty too", b"", 5000))
    stat("made that large", "empty too")
    say("write_full", write_full("a", b"0123456789"))
    say("write_full with nothing", write_full("b", b""))
    stat("is empty", "b")
    say("append", L.rados_append(io, b"a", b"tail", size(4)))
    say("append creates", L.rados_append(io, b"new", b"x", size(1)))
    read("appended", "a")
    say("truncate", L.rados_trunc(io, b"a", n(3)))
    say("truncate grows", L.rados_trunc(io, b"a", n(6)))
    read("truncated", "a")
    say("truncate missing", L.rados_trunc(io, text(MISSING), n(6)))
    stat("stat missing", MISSING)
    say("remove missing", L.rados_remove(io, text(MISSING)))
    say("remove", L.rados_remove(io, b"new"))
    say("writesame", L.rados_writesame(io, b"same", b"ab", size(2), size(10), n(1)))
    read("writesame wrote", "same")
    say("writesame uneven", L.rados_writesame(io, b"same", b"abc", size(3), size(10), n(0)))
    say("writesame of nothing", L.rados_writesame(io, b"same", b"ab", size(2), size(0), n(0)))
    say("cmpext equal", L.rados_cmpext(io, b"same", b"aba", size(3), n(1)))
    say("cmpext different", L.rados_cmpext(io, b"same", b"abx", size(3), n(1)))
    say("cmpext beyond the end, zeros", L.rados_cmpext(io, b"same", b"ab\0\0", size(4), n(9)))
    say("cmpext beyond the end, others", L.rados_cmpext(io, b"same", b"ab\0x", size(4), n(9)))
    say("cmpext missing", L.rados_cmpext(io, text(MISSING), b"\0", size(1), n(0)))
    say("cmpext missing, other", L.rados_cmpext(io, text(MISSING), b"x", size(1), n(0)))
    say("alloc hint", L.rados_set_alloc_hint(io, b"hinted", n(4096), n(512)))
    stat("the hint made it", "hinted")
    say("cache pin", L.rados_cache_pin(io, b"a"))
    say("cache unpin", L.rados_cache_unpin(io, b"a"))
    w("alloc hint with flags", "hinted", hint(1 << 20, 1 << 12, 0xff))
    w("zero in the middle", "a", put_full(b"0123456789"), zero(2, 3))
    w("zero over the end", "a", zero(8, 100))
    w("zero beyond the end", "a", zero(50, 100))
    w("zero missing", MISSING, zero(0, 10))
    read("zeroed", "a")
    stat("zeros make nothing", MISSING)
    w("zero all", "same", zero(0, 100))
    stat("zeroed all", "same")
    w("truncate and write", "a", truncate(2), put(b"z", 4))
    read("truncated and written", "a")
    w("write into the future of a removed one", "a", remove(), put(b"again", 1))
    read("as new", "a")


def limits():
    for off in (128 << 20, (128 << 20) - 1, (1 << 63) - 1, (1 << 64) - 1):
        say(f"write one byte at {off}", write("far", b"x", off))
        say(f"truncate to {off}", L.rados_trunc(io, b"far", n(off)))
        stat("then", "far")
        w(f"zero at {off}", "far", zero(off, 1))
        r(f"read at {off}", "far", get(off, 10))
        w(f"cmpext at {off}", "far", cmpext(off, b"\0"))
    L.rados_remove(io, b"far")
    w("zero much", "near", put_full(b"abc"), zero(0, 1 << 40))
    w("writesame too much", "near", same(b"ab" * (1 << 19), 1 << 28))
    w("writesame of nothing too far away", "near", same(b"ab", 0, 1 << 40))
    w("writesame uneven too far away", "near", same(b"abc", 4, 1 << 40))
    w("zero beyond the end, over the limit", "near", put_full(b"0123456789"), zero((128 << 20) - 1, 11))
    w("zero over the end and the limit", "near", zero(4, 128 << 20))
    read("what is left of it", "near")
    say("truncate to the limit", L.rados_trunc(io, b"near", n(128 << 20)))
    w("write nothing at the limit", "near", put(b"", 128 << 20))
    say("truncate what is missing, too far", L.rados_trunc(io, text(MISSING), n(1 << 40)))
    L.rados_remove(io, b"near")
    r("checksum beyond the end", "near", checksum(2, b"\0\0\0\0", 10, 10, 0))
    say("name of 2048", write("n" * 2048, b"x"))
    say("name of 2049", write("n" * 2049, b"x"))
    read("read name of 2049", "n" * 2049)
    say("name empty", write("", b"x"))
    read("read name empty", "")
    say("remove name empty", L.rados_remove(io, b""))
    say("name with all sorts", write("a/b\\c\u00e4 \n%", b"x"))
    read("read name with all sorts", "a/b\\c\u00e4 \n%")
    for length in (100, 101, 256):
        w(f"xattr name of {length}", "a", setxattr("x" * length, b"1"))
    for length in (255, 256, 257):
        L.rados_ioctx_locator_set_key(io, b"k" * (length * 8))
        say(f"key of {length * 8}", write("keyed", b"x"))
        L.rados_ioctx_locator_set_key(io, None)
        L.rados_ioctx_set_namespace(io, b"s" * length)
        say(f"namespace of {length}", write("spaced", b"x"))
        L.rados_ioctx_set_namespace(io, None)
    for length in (1 << 10, 64 << 10, (64 << 10) + 1, 1 << 20):
        w(f"xattr of {length}", "big", setxattr("x", b"v" * length))
        r(f"xattr of {length} comes back", "big", get_xattrs())
    w("a hundred xattrs", "many", *[setxattr(f"x{i}", b"1") for i in range(100)])
    for length in (1 << 10, 64 << 10, 1 << 20):
        w(f"omap key of {length}", "big", omap_set({"k" * length: b"1"}), omap_clear())
    w("omap value of 8M", "big", omap_set({"k": b"v" * (8 << 20)}))
    r("omap value of 8M comes back", "big", omap_vals())
    say("write of 90M and a byte", write("big", b"w" * ((90 << 20) + 1)))


def attributes():
    def getxattr(label, name, attr, room=100):
        buffer = c.create_string_buffer(100)
        got = L.rados_getxattr(io, text(name), text(attr), buffer, size(room))
        say(label, got, short(buffer.raw[:got]) if got > 0 else "")

    def listed(label, name):
        iterator = c.c_void_p()
        got = L.rados_getxattrs(io, text(name), c.byref(iterator))
        say(label, got, xattrs_of(iterator) if got == 0 else "")

    def setx(name, attr, value):
        return L.rados_setxattr(io, text(name), text(attr), value, size(len(value)))

    say("setxattr creates", setx("x", "a", b"1"))
    stat("created", "x")
    say("setxattr empty value", setx("x", "b", b""))
    say("setxattr binary", setx("x", "c", b"\0\xff"))
    say("setxattr again", setx("x", "a", b"22"))
    say("setxattr like a stored name", setx("x", "_", b"1"))
    getxattr("getxattr", "x", "a")
    getxattr("getxattr empty", "x", "b")
    getxattr("getxattr no room", "x", "a", 1)
    getxattr("getxattr absent", "x", "z")
    getxattr("getxattr missing", MISSING, "a")
    listed("getxattrs", "x")
    listed("getxattrs missing", MISSING)
    say("rmxattr", L.rados_rmxattr(io, b"x", b"c"))
    say("rmxattr absent", L.rados_rmxattr(io, b"x", b"c"))
    say("rmxattr missing", L.rados_rmxattr(io, text(MISSING), b"c"))
    listed("getxattrs after", "x")
    w("rmxattr and setxattr at once", "x", rmxattr("a"), setxattr("d", b"4"), setxattr("a", b"5"))
    r("all in a vector", "x", get_xattrs(), get_stat())
    for op in (0, EQ, NE, GT, GE, LT, LE, 7):
        for value in (b"4", b"5", b"6"):
            r(f"cmpxattr {op} {value}", "x", cmpxattr("a", op, value))
    w("cmpxattr in a write holds", "x", cmpxattr("a", EQ, b"5"), put_full(b"done"))
    w("cmpxattr in a write fails", "x", cmpxattr("a", EQ, b"6"), put_full(b"never"))
    r("cmpxattr absent against nothing", "x", cmpxattr("absent", EQ, b""))
    r("cmpxattr absent against something", "x", cmpxattr("absent", EQ, b"1"))
    r("cmpxattr missing", MISSING, cmpxattr("a", EQ, b"1"))
    w("cmpxattr on what is not there, in a write", MISSING, cmpxattr("a", EQ, b"1"), put(b"x"))
    read("written once", "x")


def omaps():
    w("omap_set creates", "o", omap_set({"k1": b"v1", "k2": b"", "k3": b"v3", "l": b"v4", "": b"unnamed"}))
    stat("created", "o")
    r("vals", "o", omap_vals())
    r("vals after", "o", omap_vals(after="k2"))
    r("vals after what is not there", "o", omap_vals(after="k25"))
    r("vals prefix", "o", omap_vals(prefix="k"))
    r("vals prefix after", "o", omap_vals(after="k1", prefix="k"))
    r("vals prefix after all", "o", omap_vals(after="l", prefix="k"))
    r("vals few", "o", omap_vals(most=2))
    r("vals prefix few", "o", omap_vals(prefix="k", most=2))
    r("vals prefix just enough", "o", omap_vals(prefix="k", most=3))
    r("vals none", "o", omap_vals(most=0))
    r("keys", "o", omap_keys())
    r("keys few", "o", omap_keys(after="k1", most=2))
    r("keys just enough", "o", omap_keys(most=5))
    r("by keys", "o", omap_by_keys("k3", "nokey", "k1", ""))
    r("by no keys", "o", omap_by_keys())
    r("omap of missing", MISSING, omap_vals(), omap_keys(), omap_by_keys("k"))
    r("omap of none", "a", omap_vals(), omap_keys(), omap_by_keys("k"))
    for op in (0, EQ, NE, GT, GE, LT, LE):
        for value in (b"v", b"v1", b"v2"):
            r(f"omap_cmp {op} {value}", "o", omap_cmp("k1", op, value))
    r("omap_cmp absent against nothing", "o", omap_cmp("absent", EQ, b""))
    r("omap_cmp absent", "o", omap_cmp("absent", EQ, b"1"))
    r("omap_cmp missing", MISSING, omap_cmp("k1", EQ, b""))
    w("omap_cmp in a write holds", "o", omap_cmp("k1", EQ, b"v1"), omap_set({"k1": b"new"}))
    w("omap_cmp in a write fails", "o", omap_cmp("k1", EQ, b"v1"), omap_set({"k1": b"never"}))
    w("omap_cmp missing in a write", MISSING, omap_cmp("k1", EQ, b""), omap_set({"k1": b"never"}))
    w("rm keys", "o", omap_rm("k1", "nokey"))
    w("rm keys missing", MISSING, omap_rm("k1"))
    w("rm no keys", "o", omap_rm())
    r("after rm", "o", omap_keys())
    w("more keys", "o", omap_set({f"r{i}": b"x" for i in range(5)}))
    w("rm range", "o", omap_rm_range("r1", "r4"))
    w("rm range reversed", "o", omap_rm_range("r4", "r0"))
    w("rm range missing", MISSING, omap_rm_range("a", "b"))
    r("after rm range", "o", omap_keys())
    w("clear missing", MISSING, omap_clear())
    w("clear", "o", omap_clear())
    version = L.rados_get_last_version(io)
    w("clear again", "o", omap_clear())
    say("is no change", int(L.rados_get_last_version(io) == version))
    r("after clear", "o", omap_keys())
    w("set nothing", "o2", omap_set({}))
    stat("set nothing creates", "o2")
    if not REFERENCE:
        assert w(None, "a", zero(0, 0)) == 0
    w("2000 pairs", "o", omap_set({f"{i:05}": b"%d" % i for i in range(2000)}))
    r("2000 pairs, a part", "o", omap_vals(most=5000))
    r("2000 keys, the rest", "o", omap_keys(after="01023", most=5000))
    w("set, clear and set", "o", omap_set({"a": b"1"}), omap_clear(), omap_set({"b": b"2"}))
    r("only the last", "o", omap_vals())
    w("a key with a zero", "o", omap_set({b"a\0b": b"z"}))
    r("a key with a zero comes back", "o", omap_vals())


def vectors():
    w("create exclusive", "c", create(EXCLUSIVE))
    w("create exclusive again", "c", create(EXCLUSIVE))
    w("create idempotent", "c", create(IDEMPOTENT))
    w("all or nothing", "c", put_full(b"never"), setxattr("x", b"1"), create(EXCLUSIVE))
    r("nothing", "c", get(), get_xattrs())
    w("a failure that is allowed", "c", create(EXCLUSIVE), flags(OP_FAILOK), put_full(b"done"))
    r("allowed", "c", get())
    w("exclusive by flag", "c", create(IDEMPOTENT), flags(OP_EXCL))
    w("assert exists", "c", assert_exists(), put_full(b"there"))
    w("assert exists, missing", MISSING, assert_exists(), put_full(b"there"))
    r("assert exists, read", "c", assert_exists(), get())
    r("assert exists, read missing", MISSING, assert_exists(), get())
    w("vector of nothing", "c")
    r("reading nothing", "c")
    r("reading nothing of missing", MISSING)
    w("remove and assert", "c", remove(), assert_exists())
    w("remove twice", "c", remove(), remove())
    w("remove, create exclusive", "c", remove(), create(EXCLUSIVE), append(b"1"), append(b"2"))
    r("two reads and a stat", "c", get(), get(1, 1, "second"), get_stat())
    r("a read that fails stops the vector", "c", get(), cmpext(0, b"no"), get(0, 1, "third"))
    r("reads of a missing object", MISSING, get(), get_stat(), get_xattrs())
    w("cmpext then write", "c", cmpext(0, b"12"), put(b"3", 2))
    w("cmpext fails, no write", "c", cmpext(0, b"13"), put(b"4", 3))
    r("as compared", "c", get())
    write_full("v", b"1")
    first = L.rados_get_last_version(io)
    w("assert the version", "v", assert_version(first), put_full(b"2"))
    second = L.rados_get_last_version(io)
    say("versions grow", int(second > first))
    w("assert an old version", "v", assert_version(first), put_full(b"3"))
    w("assert a future version", "v", assert_version(second + 1000), put_full(b"3"))
    w("assert version zero", "v", assert_version(0), put_full(b"3"))
    r("assert version, read", "v", assert_version(second), get())
    r("assert old version, read", "v", assert_version(first), get())
    r("assert version of missing", MISSING, assert_version(1))
    for kind, init in ((0, bytes(4)), (1, bytes(8)), (2, b"\xff" * 4)):
        r(f"checksum {kind}", "c", checksum(kind, init, 0, 0, 0))
        r(f"checksum {kind} in chunks", "c", checksum(kind, init, 0, 2, 1))
        r(f"checksum {kind} uneven", "c", checksum(kind, init, 0, 3, 2))
        if not REFERENCE:  # it would abort a real OSD
            assert r(None, "empty", checksum(kind, init, 0, 0, 0)) == 0
        r(f"checksum {kind} missing", MISSING, checksum(kind, init, 0, 0, 0))
    for how in (BALANCE_READS, LOCALIZE_READS, ORDER_READS_WRITES, IGNORE_CACHE):
        r(f"read with {how}", "c", get(), how=how)
    w("write with returned codes", "c", put(b"x"), create(EXCLUSIVE), how=RETURNVEC)
    w("write with full try", "c", put(b"x"), how=FULL_TRY)


def classes():
    execute("say_hello", "c", "hello", "say_hello")
    execute("say_hello to", "c", "hello", "say_hello", b"you")
    execute("say_hello to too long", "c", "hello", "say_hello", b"y" * 101)
    execute("say_hello of missing", MISSING, "hello", "say_hello")
    execute("no room", "c", "hello", "say_hello", b"you", room=3)
    execute("record_hello", "hello", "hello", "record_hello", b"me")
    execute("record_hello again", "hello", "hello", "record_hello", b"me")
    execute("replay", "hello", "hello", "replay")
    execute("write_return_data", "hello", "hello", "write_return_data")
    execute("write_return_data with too much", "hello", "hello", "write_return_data", b"x")
    execute("turn_it_to_11", "hello", "hello", "turn_it_to_11")
    execute("bad_reader", "hello", "hello", "bad_reader")
    execute("bad_writer", "hello", "hello", "bad_writer")
    execute("no class", "hello", "nosuch", "method")
    execute("no method", "hello", "hello", "nosuch")
    execute("no method of a name too long", "n" * 2049, "hello", "nosuch")
    execute("assert_snapc_seq of missing", MISSING, "rbd", "assert_snapc_seq", bytes(9))
    execute("snap_list of what is no image", "hello", "rbd", "snap_list")
    r("in a read", "hello", get(), call("hello", "replay"))
    r("in a read of missing", MISSING, call("hello", "say_hello"))
    w("in a write", "hello2", call("hello", "record_hello", b"x"), setxattr("a", b"1"))
    w("in a write, no class", "hello2", call("nosuch", "x"))
    w("in a write, codes", "hello2", call("hello", "write_return_data"), how=RETURNVEC)
    w("in a write, too much", "hello2", call("hello", "write_too_much_return_data"), how=RETURNVEC)
    # A code that nobody asked for is not kept with the write, so it is not compared.
    assert w(None, "hello2", call("hello", "write_too_much_return_data")) == 0
    execute("numops add", "num", "numops", "add", b"\1\0\0\0k\1\0\0\0" + b"5")
    r("numops added", "num", omap_vals())

    def lock(label, kind, name, cookie, *more):
        got = getattr(L, f"rados_lock_{kind}")(io, text(name), b"l", text(cookie), *more)
        say(label, got)

    lock("lock", "exclusive", "locked", "1", b"about", None, 0)
    lock("lock again", "exclusive", "locked", "1", b"about", None, 0)
    lock("lock again, renewing", "exclusive", "locked", "1", b"about", None, 1)
    lock("lock by another", "exclusive", "locked", "2", b"about", None, 0)
    lock("lock shared", "shared", "locked", "2", b"tag", b"about", None, 0)
    say("unlock other", L.rados_unlock(io, b"locked", b"l", b"2"))
    say("unlock", L.rados_unlock(io, b"locked", b"l", b"1"))
    say("unlock again", L.rados_unlock(io, b"locked", b"l", b"1"))
    lock("lock shared now", "shared", "locked", "2", b"tag", b"about", None, 0)
    lock("lock shared by another", "shared", "locked", "3", b"tag", b"about", None, 0)
    lock("lock shared, other tag", "shared", "locked", "4", b"other", b"about", None, 0)
    say("break nobody's", L.rados_break_lock(io, b"locked", b"l", b"client.77", b"2"))
    say("unlock missing", L.rados_unlock(io, text(MISSING), b"l", b"1"))


def names(label, *more):
    """All names of a listing by cursor, in parts of 7."""
    found = []
    L.rados_object_list_begin.restype = L.rados_object_list_end.restype = c.c_void_p
    at, end = c.c_void_p(L.rados_object_list_begin(io)), c.c_void_p(L.rados_object_list_end(io))

    class Item(c.Structure):
        _fields_ = [(f, t) for name in ("oid", "nspace", "locator")
                    for f, t in ((name + "_length", c.c_size_t), (name, c.c_void_p))]

        def __getitem__(self, name):
            at = getattr(self, name)
            return c.string_at(at, getattr(self, name + "_length")).decode()[:20] if at else ""

    while not L.rados_object_list_is_end(io, at):
        items, following = (Item * 7)(), c.c_void_p(L.rados_object_list_begin(io))
        got = must(L.rados_object_list(io, at, end, size(7), None, size(0), items, c.byref(following)))
        found += [(i["nspace"], i["locator"], i["oid"]) for i in items[:got]]
        L.rados_object_list_free(size(7), items)
        L.rados_object_list_cursor_free(io, at)
        at = following
    say(label, len(found), sorted(found))


def listings():
    names("listing of all")
    L.rados_ioctx_set_namespace(io, b"space")
    say("write in a namespace", write("a", b"in space"))
    L.rados_ioctx_locator_set_key(io, b"key")
    say("write with a key", write("a", b"by key"))
    read("by key", "a")
    L.rados_ioctx_locator_set_key(io, None)
    read("without", "a")
    names("listing of the namespace")
    L.rados_ioctx_set_namespace(io, b"none")
    names("listing of an empty namespace")
    read("not in that namespace", "a")
    L.rados_ioctx_set_namespace(io, b"\1")
    names("listing of all namespaces")
    L.rados_ioctx_set_namespace(io, None)
    # Four slices are the whole, whatever each has.
    begin, end = c.c_void_p(L.rados_object_list_begin(io)), c.c_void_p(L.rados_object_list_end(io))
    edges = []
    for i in range(4):
        first, last = (c.c_void_p(L.rados_object_list_begin(io)) for _ in range(2))
        L.rados_object_list_slice(io, begin, end, size(i), size(4), c.byref(first), c.byref(last))
        edges.append((first, last))
    compare = L.rados_object_list_cursor_cmp
    meet = all(compare(io, edges[i][1], edges[i + 1][0]) == 0 for i in range(3))
    say("slices meet", int(meet and compare(io, edges[0][0], begin) == 0 and compare(io, edges[3][1], end) == 0))
    say("slices are in order", int(all(compare(io, first, last) <= 0 for first, last in edges)))


def pools():
    say("pool lookup", int(L.rados_pool_lookup(cluster, text(sys.argv[1])) > 0))
    say("pool lookup, none", L.rados_pool_lookup(cluster, b"nosuch"))
    other = c.c_void_p()
    say("open no pool", L.rados_ioctx_create(cluster, b"nosuch", c.byref(other)))
    say("create an existing pool", L.rados_pool_create(cluster, text(sys.argv[1])))
    say("create a pool", L.rados_pool_create(cluster, b"second"))
    say("open it", L.rados_ioctx_create(cluster, b"second", c.byref(other)))
    say("write to it", L.rados_write_full(other, b"x", b"1", size(1)))
    say("application", L.rados_application_enable(io, b"test", c.c_int(1)))
    say("application again", L.rados_application_enable(io, b"test", c.c_int(1)))
    say("another application", L.rados_application_enable(io, b"other", c.c_int(0)))
    say("application metadata", L.rados_application_metadata_set(io, b"test", b"k", b"v"))
    say("application metadata, unknown", L.rados_application_metadata_set(io, b"nosuch", b"k", b"v"))
    buffer, used = c.create_string_buffer(100), c.c_size_t(100)
    got = L.rados_application_metadata_get(io, b"test", b"k", buffer, c.byref(used))
    say("application metadata comes back", got, buffer.value)
    got = L.rados_application_metadata_get(io, b"test", b"absent", buffer, c.byref(used))
    say("application metadata, absent", got)
    say("application metadata removed", L.rados_application_metadata_remove(io, b"test", b"k"))
    used = c.c_size_t(100)
    got = L.rados_application_list(io, buffer, c.byref(used))
    say("applications", got, buffer.raw[:used.value])
    required, alignment = c.c_int(7), c.c_uint64(7)
    got = L.rados_ioctx_pool_requires_alignment2(io, c.byref(required))
    say("requires alignment", got, required.value)
    got = L.rados_ioctx_pool_required_alignment2(io, c.byref(alignment))
    say("required alignment", got, alignment.value)
    base = c.c_int64()
    say("base tier is itself", int(L.rados_pool_get_base_tier(cluster, L.rados_ioctx_get_id(io), c.byref(base)) == 0
                                   and base.value == L.rados_ioctx_get_id(io)))
    say("delete it", L.rados_pool_delete(cluster, b"second"))
    say("delete it again", L.rados_pool_delete(cluster, b"second"))
    say("write to the deleted", L.rados_write_full(other, b"x", b"1", size(1)))
    fsid = c.create_string_buffer(37)
    say("fsid", L.rados_cluster_fsid(cluster, fsid, size(37)), len(fsid.value))
    say("fsid, no room", L.rados_cluster_fsid(cluster, fsid, size(10)))
    say("latest map", L.rados_wait_for_latest_osdmap(cluster))
    for least in (L.rados_get_min_compatible_client, L.rados_get_min_compatible_osd):
        minimum, required = c.c_int8(), c.c_int8()
        args = (c.byref(minimum), c.byref(required)) if "client" in least.__name__ else (c.byref(required),)
        say(least.__name__, least(cluster, *args))


def main(*parts):
    must(L.rados_create(c.byref(cluster), None))
    must(L.rados_conf_read_file(cluster, None))
    must(L.rados_connect(cluster))
    must(L.rados_ioctx_create(cluster, text(sys.argv[1]), c.byref(io)))
    for part in parts:
        print(f"--- {part.__name__}")
        part()


if __name__ == "__main__":
    main(bytes_of_objects, limits, attributes, omaps, vectors, classes, listings, pools)
