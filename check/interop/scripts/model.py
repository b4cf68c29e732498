#!/usr/bin/env python3
"""Random operations through stock librados against a model in memory, until told to stop on stdin.

Arguments: a pool, a seed, and one of `snaps` for half of the workers, `pool-snaps` for one worker that has the
pool to itself, `large` for objects of some MiB, `coded` for an erasure-coded pool, whose objects have no omap.
Each worker has objects of its own, so that it knows at any moment what they are, whatever happens to OSDs
meanwhile."""
import copy
import errno
import random
import subprocess
import sys
import threading
import traceback

import rados

WORKERS, OBJECTS, SIZE_MAX, SNAPS_MAX, LARGE = 8, 6, 200_000, 4, 20
stop = threading.Event()
failures = []


class Object:
    def __init__(self):
        self.data, self.attrs, self.omap = bytearray(), {}, {}


class Expected(Exception):
    """The model says that this operation fails, with this number."""

    def __init__(self, number):
        super().__init__(errno.errorcode[number])
        self.number = number


def overwrite(data, off, new):
    data.extend(bytes(max(0, off + len(new) - len(data))))
    data[off:off + len(new)] = new


class Player(threading.Thread):
    """Does one of its `actions` after the other, on things that only it uses."""

    def __init__(self, cluster, pool, seed, number):
        super().__init__(name=f"worker {number}", daemon=True)
        self.rng = random.Random(f"{seed} {number}")
        self.pool, self.io = pool, cluster.open_ioctx(pool)
        self.done, self.trail, self.names, self.actions = 0, [], [], []

    def run(self):
        try:
            while not stop.is_set():
                action = self.rng.choices(*zip(*self.actions))[0]
                name = self.rng.choice(self.names)
                self.trail = self.trail[-60:] + [f"{action.__name__} {name}"]
                action(name)
                self.done += 1
            self.check_all()
        except Exception:
            failures.append(f"{self.name}: {traceback.format_exc()}\nwhat it did: {', '.join(self.trail)}")
            stop.set()


class Worker(Player):
    snapped, scale, omap = False, 1, True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        number = arguments[-1]
        self.names = [f"w{number}-{i}" for i in range(OBJECTS)]
        self.head = {name: None for name in self.names}
        self.snaps = {}  # id -> what all objects were
        self.actions = [
            (self.write, 12), (self.write_full, 6), (self.append, 8), (self.truncate, 4), (self.zero, 4),
            (self.remove, 2), (self.create, 2), (self.set_attr, 5), (self.remove_attr, 2), (self.omap_set, 8),
            (self.omap_remove, 3), (self.omap_range, 2), (self.omap_clear, 1), (self.several, 6),
            (self.compare, 4), (self.check, 25), (self.check_part, 10), (self.watch, 1),
        ]
        if self.snapped:
            self.actions += [(self.snap_create, 2), (self.snap_remove, 2), (self.rollback, 3), (self.check_snap, 10)]
        else:
            self.actions += [(self.copy, 1)]
        if not self.omap:
            self.actions = [action for action in self.actions if not action[0].__name__.startswith("omap")]

    def check_all(self):
        for name in self.names:
            self.check(name)
            for snap in list(self.snaps):
                self.compare_with(name, self.snaps[snap][name], snap)

    # ---- what both, the cluster and the model, do ----

    def vector(self, name, fill, change, needs_object=False):
        """Runs a vector of writes and the same on a copy of the model's object."""
        before = self.head[name]
        after = copy.deepcopy(before) or Object()
        number = errno.ENOENT if needs_object and before is None else 0
        if not number:
            try:
                after = change(after)
            except Expected as expected:
                number = expected.number
        with rados.WriteOpCtx() as op:
            fill(op)
            try:
                self.io.operate_write_op(op, name)
                got = 0
            except rados.Error as error:
                got = abs(error.errno)
        assert got == number, f"{name}: errno {got}, expected {number}"
        if not number:
            self.head[name] = after

    def bytes(self):
        size = self.rng.choice([0, 1, 100, 4096, 5000, 40_000 * self.scale])
        return self.rng.randbytes(1) * size if self.rng.random() < 0.3 else self.rng.randbytes(size)

    def offset(self):
        return self.rng.choice([0, 4096, self.rng.randrange(SIZE_MAX * self.scale // 2)])

    def one(self, kind):
        """An operation for a vector: how it is asked for, and what it does."""
        data, off, key = self.bytes(), self.offset(), self.rng.choice("abcdefgh")

        def write(o):
            overwrite(o.data, off, data)

        def write_full(o):
            o.data[:] = data

        def append(o):
            o.data.extend(data)

        def truncate(o):
            o.data[off:] = bytes(max(0, off - len(o.data)))

        def zero(o):
            end = off + len(data)
            if end < len(o.data):
                o.data[off:end] = bytes(len(data))
            elif data:
                del o.data[off:]

        def set_attr(o):
            o.attrs[key] = data[:200]

        def omap_set(o):
            o.omap[key] = data[:5000]

        def omap_remove(o):
            o.omap.pop(key, None)

        def omap_clear(o):
            o.omap.clear()

        ask = {
            write: lambda op: op.write(data, off), write_full: lambda op: op.write_full(data),
            append: lambda op: op.append(data), truncate: lambda op: op.truncate(off),
            # The binding takes length and offset for each other.
            zero: lambda op: op.zero(len(data), off) if data else None,
            set_attr: lambda op: op.set_xattr(key, data[:200]),
            omap_set: lambda op: self.io.set_omap(op, (key,), (data[:5000],)),
            omap_remove: lambda op: self.io.remove_omap_keys(op, (key,)), omap_clear: self.io.clear_omap,
        }
        change = next(function for function in ask if function.__name__ == kind)
        self.trail.append(f"{kind} off {off} len {len(data)} key {key}")
        return ask[change], change

    def single(self, name, kind, needs_object=False):
        ask, change = self.one(kind)

        def changed(o):
            change(o)
            return o

        self.vector(name, ask, changed, needs_object)

    def write(self, name):
        self.single(name, "write")

    def write_full(self, name):
        self.single(name, "write_full")

    def append(self, name):
        if self.head[name] is None or len(self.head[name].data) < SIZE_MAX * self.scale:
            self.single(name, "append")

    def truncate(self, name):
        if self.head[name] is not None:  # nothing happens to what is not there
            self.single(name, "truncate")

    def zero(self, name):
        if self.head[name] is not None:
            self.single(name, "zero")

    def set_attr(self, name):
        self.single(name, "set_attr")

    def omap_set(self, name):
        self.single(name, "omap_set")

    def omap_remove(self, name):
        self.single(name, "omap_remove", needs_object=True)

    def omap_clear(self, name):
        self.single(name, "omap_clear", needs_object=True)

    def omap_range(self, name):
        begin, end = self.rng.choice("abcdefgh"), self.rng.choice("abcdefgh")

        def change(o):
            o.omap = {key: value for key, value in o.omap.items() if not begin <= key < end}
            return o

        self.vector(name, lambda op: self.io.remove_omap_range2(op, begin, end), change, needs_object=True)

    def remove_attr(self, name):
        def change(o):
            o.attrs.pop("a", None)
            return o

        self.vector(name, lambda op: op.rm_xattr("a"), change, needs_object=True)

    def remove(self, name):
        self.vector(name, lambda op: op.remove(), lambda _: None, needs_object=True)

    def create(self, name):
        def change(o):
            if self.head[name] is not None:
                raise Expected(errno.EEXIST)
            return o

        self.vector(name, lambda op: op.new(rados.LIBRADOS_CREATE_EXCLUSIVE), change)

    def several(self, name):
        """All of a vector or, where its last operation fails, nothing."""
        kinds = ["write", "write_full", "append", "truncate", "zero", "set_attr", "omap_set", "omap_clear"]
        if not self.omap:
            kinds = [kind for kind in kinds if not kind.startswith("omap")]
        parts = [self.one("set_attr")] + [self.one(kind) for kind in self.rng.sample(kinds, 3)]
        fails = self.rng.random() < 0.3

        def fill(op):
            for ask, _ in parts:
                ask(op)
            if fails:
                op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)

        def change(o):
            for _, part in parts:
                part(o)
            if fails:
                raise Expected(errno.EEXIST)
            return o

        self.vector(name, fill, change)

    def compare(self, name):
        """A write that happens only if the object is what it is taken for."""
        have = self.head[name]
        if have is None or not have.data:
            return
        start = self.rng.randrange(len(have.data))
        part = bytearray(have.data[start:start + 50])
        same = self.rng.random() < 0.5
        if not same:
            part[0] ^= 1
        with rados.WriteOpCtx() as op:
            op.cmpext(bytes(part), start)
            op.write_full(b"as compared")
            try:
                self.io.operate_write_op(op, name)
                got = 0
            except rados.Error as error:
                got = abs(error.errno)
        assert (got == 0) == same, f"{name}: comparing gave {got}, the same: {same}"
        if same:
            have = copy.deepcopy(have)
            have.data[:] = b"as compared"
            self.head[name] = have

    def copy(self, name):
        source = self.rng.choice(self.names)
        if source == name:
            return
        done = subprocess.run(["rados", "-p", self.pool, "cp", source, name], capture_output=True, check=False)
        if self.head[source] is None:
            assert done.returncode, f"{source} was copied, and is not there"
        else:
            assert not done.returncode, f"cp {source} {name}: {done.stderr}"
            self.head[name] = copy.deepcopy(self.head[source])

    def watch(self, name):
        if self.head[name] is None:
            return
        heard = threading.Event()
        watch = self.io.watch(name, lambda *_: heard.set())
        try:
            told = self.io.notify(name, "hello", 5000)
            assert not told or heard.wait(5), f"{name}: a notify was answered that nobody heard"
        except rados.Error as error:
            assert abs(error.errno) == errno.ETIMEDOUT, error  # the watcher was on its way
        try:
            watch.close()
        except rados.Error as error:
            assert abs(error.errno) in (errno.ENOTCONN, errno.ENOENT), error

    # ---- snapshots ----

    def write_context(self):
        self.io.set_self_managed_snap_write(sorted(self.snaps, reverse=True))

    def snap_create(self, _):
        if len(self.snaps) < SNAPS_MAX:
            snap = self.take_snap()
            self.snaps[snap] = copy.deepcopy(self.head)
            self.write_context()

    def snap_remove(self, _):
        if self.snaps:
            snap = self.rng.choice(list(self.snaps))
            del self.snaps[snap]
            self.write_context()
            self.drop_snap(snap)

    def take_snap(self):
        return self.io.create_self_managed_snap()

    def drop_snap(self, snap):
        self.io.remove_self_managed_snap(snap)

    def roll_back(self, name, snap):
        self.io.rollback_self_managed_snap(name, snap)

    def rollback(self, name):
        if not self.snaps:
            return
        snap = self.rng.choice(list(self.snaps))
        if self.head[name] is None and self.snaps[snap][name] is None:
            return
        self.roll_back(name, snap)
        self.head[name] = copy.deepcopy(self.snaps[snap][name])

    def check_snap(self, name):
        if self.snaps:
            snap = self.rng.choice(list(self.snaps))
            self.compare_with(name, self.snaps[snap][name], snap)

    # ---- looking ----

    def check(self, name):
        self.compare_with(name, self.head[name], None)

    def check_part(self, name):
        have = self.head[name]
        if have is not None:
            off, size = self.offset(), self.rng.choice([1, 100, 4096, 30_000])
            data, expected = self.io.read(name, size, off), have.data[off:off + size]
            first = next((i for i, (a, b) in enumerate(zip(data, expected)) if a != b), None)
            what = f"{name} of {len(have.data)} bytes: {len(data)} of {size} at {off} read, first different is {first}"
            assert data == expected, what

    def compare_with(self, name, model, snap):
        """The whole object with the model, now or at a snapshot."""
        self.io.set_read(snap if snap is not None else rados.LIBRADOS_SNAP_HEAD)
        where = name if snap is None else f"{name} at {snap} of {sorted(self.snaps)}"
        try:
            data = self.io.read(name, SIZE_MAX * self.scale * 4)
            attrs = {key: value or b"" for key, value in self.io.get_xattrs(name)}
            with rados.ReadOpCtx() as op:
                pairs, _ = self.io.get_omap_vals(op, "", "", 100)
                self.io.operate_read_op(op, name)
                omap = {key: value or b"" for key, value in pairs}
        except rados.ObjectNotFound:
            assert model is None, f"{where} is gone"
            return
        finally:
            self.io.set_read(rados.LIBRADOS_SNAP_HEAD)
        assert model is not None, f"{where} is there, and should not be"
        assert len(data) == len(model.data), f"{where}: {len(data)} bytes, expected {len(model.data)}"
        first = next((i for i, (a, b) in enumerate(zip(data, model.data)) if a != b), None)
        assert first is None, f"{where}: byte {first} of {len(data)} differs"
        assert attrs == model.attrs, f"{where}: attributes {attrs}, expected {model.attrs}"
        assert omap == model.omap, f"{where}: omap {sorted(omap)}, expected {sorted(model.omap)}"


class Snapped(Worker):
    snapped = True


class Large(Worker):
    scale = LARGE


class Coded(Worker):
    omap = False


class SnappedCoded(Snapped):
    omap = False


class PoolSnapped(Worker):
    """Snapshots of the whole pool, which has no other worker."""
    snapped = True

    def write_context(self):
        pass  # it is the pool's

    def take_snap(self):
        label = f"snap {self.done}"
        self.io.create_snap(label)
        return self.io.lookup_snap(label).snap_id

    def label(self, snap):
        return next(s.name for s in self.io.list_snaps() if s.snap_id == snap)

    def drop_snap(self, snap):
        self.io.remove_snap(self.label(snap))

    def roll_back(self, name, snap):
        self.io.snap_rollback(name, self.label(snap))


KINDS = {
    "": [Worker] * WORKERS, "snaps": [Snapped, Worker] * (WORKERS // 2), "pool-snaps": [PoolSnapped],
    "large": [Large, Large], "coded": [SnappedCoded, Coded] * (WORKERS // 2),
}


def play(kinds, pool, seed):
    """Has workers of these kinds work until somebody says so on stdin; 0 if all was as they expected."""
    cluster = rados.Rados(conffile="")
    cluster.connect()
    workers = [kind(cluster, pool, seed, number) for number, kind in enumerate(kinds)]
    for worker in workers:
        worker.start()
    print("working", flush=True)
    threading.Thread(target=lambda: sys.stdin.readline() and stop.set(), daemon=True).start()
    stop.wait()
    for worker in workers:
        worker.join(120)
        if worker.is_alive():
            failures.append(f"{worker.name} hangs in {worker.trail[-1]}")
    if failures:
        print(f"seed {seed}: " + "\n".join(failures), flush=True)
        return 1
    print(f"all good, {sum(worker.done for worker in workers)} operations", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(play(KINDS["".join(sys.argv[3:])], sys.argv[1], int(sys.argv[2])))
