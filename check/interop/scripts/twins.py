#!/usr/bin/env python3
"""The same random operations on two clusters, and where their answers differ.

Arguments: the configuration files of both (a real Ceph first), a seed, how many episodes, and perhaps the number of the only
one to run. Each episode has an object of its own, so that what differs in one disturbs no other. Both may be written to: a pool
`twins` is made and deleted. With TWINS_POOL=erasure in the environment it is erasure-coded (2+1), with TWINS_POOL=overwrites it
takes overwrites as well.

What would abort a real OSD (a checksum or zeros of no bytes) is not asked for, nor what would abort librados."""
import ctypes as c
import os
import random
import re
import signal
import subprocess
import sys
import time

POOL = "twins"
KIND = os.environ.get("TWINS_POOL", "replicated")
STEPS = 10
SNAPPED = 0.15
RETURNVEC = 1 << 10
HEAD = (1 << 64) - 2
# The code of a comparison of attributes that holds, which a real OSD gives to some steps after it, too.
HOLDS = re.compile(r"(got: |=)1(?= |$)")
CLASSES_THAT_DIFFER = (("replay",), ("turn_it_to_11",), ("say_hello",))
# Who said hello to an object.
WHO = re.compile(r"client\.\d+ [\d.:/]+")


# ---- one cluster: runs the episodes and prints what came of them ----


class Episode:
    """One object and what happens to it. All that is random comes from the seed and from answers that both clusters give."""

    def __init__(self, base, seed, number):
        self.base, self.number = base, number
        self.rng = random.Random(f"{seed} {number}")
        self.size, self.version, self.snaps, self.context = 0, 0, [], []
        self.name = self.rng.choice(["o", "o", "a/b", "\u00e4 ", "n" * 2000, "n" * 2048, "x\n"]) + str(number)
        self.namespace = self.rng.choice([None, None, None, None, b"space", b"space", b"s" * 256, b"s" * 300])
        self.locator = self.rng.choice([None, None, None, b"place", b"\xff\xfe"])
        self.keys = [b"", b"a", b"ab", b"b", b"b\0c", b"k" * 300, b"\xff", b"_"]
        self.attrs = ["a", "b", "_", "snapset", "x" * 200, "lock.l", "user.v"]

    # -- values --

    def number_near(self, *centres):
        return max(0, self.rng.choice(centres) + self.rng.choice([-1, 0, 0, 1]))

    def offset(self):
        if self.rng.random() < 0.06:
            return self.rng.choice([100 << 20, (128 << 20) - 1, 128 << 20, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
        return self.number_near(0, 1, 7, 100, 4096, 8192, 65536, self.size, self.size // 2)

    def length(self):
        if self.rng.random() < 0.05:
            return self.rng.choice([1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1])
        return self.number_near(0, 1, 10, 4096, 65536, self.size)

    def data(self):
        length = self.rng.choice([0, 1, 3, 10, 100, 4095, 4096, 20_000])
        return self.rng.randbytes(1) * length if self.rng.random() < 0.4 else self.rng.randbytes(length)

    def value(self):
        return self.rng.choice([b"", b"1", b"2", b"10", b"x" * 50, b"\0", b"\0\0", b"4294967296", b"-1", b"18446744073709551616"])

    def key(self):
        return self.rng.choice(self.keys)

    def some_keys(self):
        return [self.key() for _ in range(self.rng.randrange(4))]

    # -- steps of vectors: (name, arguments) of functions in librados.py --

    def write_step(self):
        base, rng = self.base, self.rng
        return rng.choice([
            # A real OSD hangs in a read of what nothing, written far away, made longer than its checksum says.
            lambda: ("put", self.data() or b"x", self.offset()), lambda: ("put", self.data() or b"x", self.offset()),
            lambda: ("put_full", self.data()), lambda: ("append", self.data()), lambda: ("create", rng.choice([0, 1])),
            lambda: ("same", rng.choice([b"", b"a", b"ab", b"abc", bytes(4096)]), rng.choice([0, 1, 4, 6, 4096, 8192]), self.offset()),
            lambda: ("remove",), lambda: ("truncate", self.offset()), lambda: ("truncate", self.offset()),
            lambda: ("zero", self.offset(), max(1, self.length())), lambda: ("zero", self.offset(), max(1, self.length())),
            lambda: ("hint", rng.choice([0, 1, 4096, 1 << 40]), rng.choice([0, 512, 1 << 33]), rng.choice([0, 1, 255, 1 << 31])),
            lambda: ("setxattr", rng.choice(self.attrs), self.value()), lambda: ("setxattr", rng.choice(self.attrs), self.value()),
            lambda: ("rmxattr", rng.choice(self.attrs)),
            lambda: ("omap_set", {key: self.value() for key in self.some_keys()}),
            lambda: ("omap_set", {key: self.value() for key in self.some_keys()}),
            lambda: ("omap_rm", *self.some_keys()), lambda: ("omap_rm_range", self.key(), self.key()), lambda: ("omap_clear",),
            lambda: ("call", "hello", rng.choice(["record_hello", "turn_it_to_11"]), self.value()),
        ])()

    def guard(self):
        """What may be in vectors of both kinds."""
        rng = self.rng
        return rng.choice([
            lambda: ("assert_exists",), lambda: ("assert_version", self.version + rng.choice([0, 0, 0, -1, 1, 1000])),
            lambda: ("cmpext", self.offset(), rng.choice([b"", b"\0", bytes(100), self.data()])),
            lambda: ("cmpxattr", rng.choice(self.attrs), rng.randrange(8), self.value()),
            lambda: ("omap_cmp", self.key(), rng.randrange(8), self.value()),
        ])()

    def read_step(self):
        rng = self.rng
        return rng.choice([
            lambda: ("get", self.offset(), rng.choice([0, 1, 10, 4096, 70_000])), lambda: ("get_stat",), lambda: ("get_xattrs",),
            self.checksum, lambda: ("omap_vals", self.key_text(), self.key_text(), self.most()),
            lambda: ("omap_keys", self.key_text(), self.most()), lambda: ("omap_by_keys", self.key(), *self.some_keys()),
            lambda: ("call", "hello", rng.choice(["say_hello", "replay", "replay"]), self.value()),
            lambda: ("call", *rng.choice([("version", "read"), ("lock", "get_info"), ("lock", "list_locks"), ("refcount", "read")]), self.value()),
        ])()

    def key_text(self):
        return self.rng.choice([b"", b"", b"a", b"b", b"z", b"k" * 299])

    def most(self):
        return self.rng.choice([0, 1, 2, 3, 100, 1 << 32, (1 << 64) - 1])

    def checksum(self):
        """Of bytes that are there: see above."""
        if self.size == 0:
            return ("get_stat",)
        off = self.rng.randrange(self.size)
        most = min(self.size - off, 10_000)
        chunk = self.rng.choice([0, 1, 2, 3, 7, 4096])
        length = self.rng.choice([max(1, most // chunk) * chunk, most, 1]) if chunk else self.rng.choice([most, 1])
        kind = self.rng.choice([0, 1, 2])
        room = self.rng.choice([100, 100, 3, 100_000])
        if length > most:
            return ("get_stat",)
        init = self.rng.choice([bytes(8 if kind == 1 else 4), b"\xff" * (8 if kind == 1 else 4), b"", b"123"])
        return ("checksum", kind, init, off, length, chunk, room)

    def vector(self, kind):
        steps, one = [], self.write_step if kind == "write" else self.read_step
        for _ in range(self.rng.randrange(1, 6)):
            step = self.guard() if self.rng.random() < 0.2 else one()
            steps.append(step)
            if steps and self.rng.random() < 0.1:
                steps.append(("flags", self.rng.choice([1, 2, 2, 2, 3, 4, 8, 16, 32, 64])))
        return self.bearable(steps) or [("create", 0) if kind == "write" else ("get_stat",)]

    def bearable(self, steps):
        """Without what librados or a real OSD gets wrong."""
        # librados 16 does not survive an iterator behind a stat.
        steps.sort(key=lambda step: step[0] == "get_stat")
        # An OSD keeps pairs that were set at once with the removal of a range that they are in,
        if any(step[0] == "omap_set" for step in steps):
            steps = [step for step in steps if step[0] != "omap_rm_range"]
        # and what an object was that is removed, made and removed at once.
        steps = [step for number, step in enumerate(steps) if step[0] != "remove" or step not in steps[:number]]
        # Of an erasure-coded pool, one dies of comparing what it is about to write, refuses classes that read, and gives
        # the output of others once more for each time that the vector waits for bytes.
        if KIND != "replicated":
            steps = [step for step in steps if step[0] != "cmpext" and step[2:3] not in CLASSES_THAT_DIFFER]
            # It dies as well of a vector that sets an object's size and then makes it larger without data, be it by
            # appending nothing.
            sized = [step for step in steps if step[0] in ("truncate", "zero", "put_full")]
            steps = [step for step in steps if step not in sized[1:] and not (sized and step[:2] == ("append", b""))]
        # librados ends when there is nothing that flags could be about.
        while steps and steps[0][0] == "flags":
            steps = steps[1:]
        return steps

    # -- what is done --

    def show(self, value):
        if isinstance(value, bytes) and len(value) > 20:
            return f"<{len(value)} of {value[:6]!r}>"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.show(k)}: {self.show(v)}" for k, v in value.items()) + "}"
        return repr(value)

    def known(self, name, more):
        """Versions are not the same on both; their distances are."""
        return [more[0] - self.version] if name == "assert_version" and more[0] > 0 else more

    def run_vector(self, kind):
        steps = self.vector(kind)
        how = self.rng.choice([0] * 10 + [8, 64, 128, 1 << 10, 1 << 10, 2, 1, 4, 32 if kind == "read" else 16, 1 << 8])
        asked = ", ".join(f"{name}({', '.join(self.show(one) for one in self.known(name, more))})" for name, *more in steps)
        print(f"  {kind} how={how}: {asked}")
        self.operate(kind, [getattr(self.base, name)(*more) for name, *more in steps], how)

    def operate(self, kind, steps, how):
        base, vector = self.base, self.base.Vector(kind)
        for step in steps:
            step(vector)
        name, how = base.text(self.name), c.c_int(how)
        if kind == "write":
            got = base.L.rados_write_op_operate(vector.handle, base.io, name, None, how)
        else:
            got = base.L.rados_read_op_operate(vector.handle, base.io, name, how)
        # Codes of steps that nobody asked for are not kept with a write.
        if kind == "write" and got >= 0 and how.value != RETURNVEC:
            return base.say("    got", got)
        # librados does not survive a look through the iterator of a step that did not run.
        shows = [show for show in vector.after if got >= 0 or "iterator" not in show.__code__.co_freevars]
        return base.say("    got", got, *[show() for show in shows])

    def look(self):
        """Everything that there is to see of the object."""
        base = self.base
        size, mtime = c.c_uint64(), c.c_long()
        code = base.L.rados_stat(base.io, base.text(self.name), c.byref(size), c.byref(mtime))
        self.size = size.value if code == 0 else 0
        print("    is", base.code(code), self.size)
        if code == 0:
            version, before = base.L.rados_get_last_version(base.io), self.version
            print("    version", "newer" if version > before else "older" if version < before else "as before")
            self.version = version
        tail = max(0, self.size - 4096)
        self.operate("read", [base.get(0, 70_000, "start"), base.get(tail, 5000, "end"), base.get_xattrs(), base.omap_vals()], 0)

    def snapshot(self):
        """Makes one, gives some up, sets a context (an odd one at times), looks through one, rolls back to one."""
        base, rng = self.base, self.rng
        what = rng.choice(["create", "create", "context", "context", "read", "rollback", "remove", "odd"])
        if what == "create":
            made = c.c_uint64()
            base.say("    snap create", base.L.rados_ioctx_selfmanaged_snap_create(base.io, c.byref(made)))
            self.snaps.insert(0, made.value)
            self.context = list(self.snaps)
            return self.set_context("all")
        if not self.snaps:
            return None
        which = rng.randrange(len(self.snaps))
        if what == "context":
            self.context = [snap for snap in self.snaps if rng.random() < 0.7]
            return self.set_context(f"{[self.snaps.index(snap) for snap in self.context]}")
        if what == "odd":
            odd = list(self.snaps)
            rng.shuffle(odd)
            context = (c.c_uint64 * len(odd))(*odd)
            seq = rng.choice([0, odd[0], max(odd), max(odd) + 5])
            got = base.L.rados_ioctx_selfmanaged_snap_set_write_ctx(base.io, base.n(seq), context, c.c_int(len(odd)))
            return base.say("    an odd context", got)
        if what == "read":
            base.L.rados_ioctx_snap_set_read(base.io, base.n(self.snaps[which]))
            print(f"  at snapshot {which}")
            base.stat("    stat", self.name)
            self.operate("read", [base.get(0, 70_000), base.get_xattrs(), base.omap_vals(), base.get_stat()], 0)
            return base.L.rados_ioctx_snap_set_read(base.io, base.n(HEAD))
        if what == "rollback":
            got = base.L.rados_ioctx_selfmanaged_snap_rollback(base.io, base.text(self.name), base.n(self.snaps[which]))
            return base.say(f"  roll back to {which}", got)
        gone = self.snaps.pop(which)
        self.context = [snap for snap in self.context if snap != gone]
        base.say(f"  snap remove {which}", base.L.rados_ioctx_selfmanaged_snap_remove(base.io, base.n(gone)))
        return self.set_context("without")

    def set_context(self, label):
        base, seq = self.base, self.snaps[0] if self.snaps else 0
        context = (c.c_uint64 * max(1, len(self.context)))(*self.context)
        got = base.L.rados_ioctx_selfmanaged_snap_set_write_ctx(base.io, base.n(seq), context, c.c_int(len(self.context)))
        base.say(f"    context {label}", got)

    def plain_read(self):
        """One that is no vector, of any length."""
        off, length = self.offset(), self.length()
        room = c.create_string_buffer(100_000)
        # A reply longer than the room given would be written beyond it.
        if self.size > 90_000:
            length = min(length, 90_000)
        got = self.base.L.rados_read(self.base.io, self.base.text(self.name), room, self.base.size(length), self.base.n(off))
        self.base.say(f"  read {length} at {off}", got, self.base.short(room.raw[:got]) if got > 0 else "")

    def run(self):
        base = self.base
        print(f"=== {self.number} {self.name[:20]!r} in {self.namespace and self.namespace[:10]} by {self.locator}")
        base.L.rados_ioctx_set_namespace(base.io, self.namespace)
        base.L.rados_ioctx_locator_set_key(base.io, self.locator)
        snapped = self.rng.random() < SNAPPED
        for _ in range(STEPS):
            turn = self.rng.random()
            if snapped and turn < 0.4:
                self.snapshot()
            elif turn < 0.75:
                self.run_vector("write")
                self.look()
            elif turn < 0.95:
                self.run_vector("read")
            else:
                self.plain_read()
        base.L.rados_ioctx_selfmanaged_snap_set_write_ctx(base.io, base.n(0), None, c.c_int(0))
        base.L.rados_remove(base.io, base.text(self.name))


def work(seed, numbers):
    import librados as base
    base.must(base.L.rados_create(c.byref(base.cluster), None))
    base.must(base.L.rados_conf_read_file(base.cluster, None))
    # A daemon that died is told by ETIMEDOUT.
    base.must(base.L.rados_conf_set(base.cluster, b"rados_osd_op_timeout", b"10"))
    base.must(base.L.rados_connect(base.cluster))
    base.must(base.L.rados_ioctx_create(base.cluster, POOL.encode(), c.byref(base.io)))
    for number in numbers:
        Episode(base, seed, number).run()
    print("=== the end", flush=True)
    os._exit(0)


# ---- both: starts them and compares ----


def episodes(stream):
    lines = []
    for line in stream:
        if line.startswith("===") and lines:
            yield lines
            lines = []
        lines.append(HOLDS.sub(r"\g<1>0", WHO.sub("CLIENT", line.rstrip("\n"))))
    yield lines


def ceph(conf, *words):
    subprocess.run(["ceph", "--conf", conf, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start(conf, seed, numbers):
    if KIND == "replicated":
        ceph(conf, "osd", "pool", "create", POOL, "8")
    else:
        ceph(conf, "osd", "erasure-code-profile", "set", POOL, "k=2", "m=1", "crush-failure-domain=osd")
        ceph(conf, "osd", "pool", "create", POOL, "8", "8", "erasure", POOL)
    if KIND == "overwrites":
        ceph(conf, "osd", "pool", "set", POOL, "allow_ec_overwrites", "true")
    # Both take what is unsafe, or else both refuse it.
    ceph(conf, "osd", "pool", "application", "enable", POOL, "test")
    words = [sys.executable, __file__, "--work", str(seed), str(numbers.start), str(numbers.stop)]
    return subprocess.Popen(words, env=dict(os.environ, CEPH_CONF=conf), stdout=subprocess.PIPE, text=True, errors="backslashreplace")


def difference(one, other):
    """What both say, up to the first line that only one says."""
    out = []
    for a, b in zip(one + ["(the end)"], other + ["(the end)"]):
        if a != b:
            return "\n".join([*out, "first:  " + a, "second: " + b])
        out.append(a)
    return None


def main():
    confs, seed, count = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    only = [int(number) for number in sys.argv[5:]]
    numbers = range(only[0], only[0] + 1) if only else range(count)
    workers = [start(conf, seed, numbers) for conf in confs]
    found, compared, began = 0, 0, time.monotonic()
    try:
        for one, other in zip(*(episodes(worker.stdout) for worker in workers)):
            compared += one[0].startswith("=== ") and one[0] != "=== the end"
            said = difference(one, other)
            if said:
                found += 1
                print(said + "\n", flush=True)
            elif only:
                print("\n".join(one))
    finally:
        for conf, worker in zip(confs, workers):
            worker.kill()
            if worker.wait() not in (0, -signal.SIGKILL):
                print(f"the worker of {conf} died: {worker.returncode}")
        for conf in confs:
            ceph(conf, "osd", "pool", "rm", POOL, POOL, "--yes-i-really-really-mean-it")
    print(f"{compared} episodes of seed {seed} in {time.monotonic() - began:.0f} s: {found} differ")
    return 1 if found or compared < len(numbers) else 0


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(int(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4])))
    sys.exit(main())
