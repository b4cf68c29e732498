#!/usr/bin/env python3
"""Random operations on images through stock librbd against a model in memory, until told to stop on stdin.

Arguments: a pool, a seed, and perhaps a pool for data. Each worker has images of its own: one that it made, and
clones of their snapshots."""
import sys

import rbd

from model import Player, play

DATA_POOL = sys.argv[3] if len(sys.argv) > 3 else None

WORKERS, IMAGES_MAX, SNAPS_MAX, ORDER, MIB = 3, 4, 3, 20, 1 << 20
WRITES = [1, 512, 4096, 70_000, 1 << 20, 3 << 20]


class Image:
    """What an image is, and the (image, snapshot) that it is a clone of as long as it is one."""

    def __init__(self, data, parent=None):
        self.data, self.parent, self.snaps = data, parent, {}

    def depends_on(self, source):
        return source == self.parent or any(parent == source for _, parent in self.snaps.values())


class Worker(Player):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.number = arguments[-1]
        self.images, self.made, self.names = {}, 0, [None]
        self.actions = [
            (self.write, 20), (self.discard, 5), (self.zeroes, 3), (self.resize, 2), (self.snap, 3),
            (self.snap_remove, 2), (self.rollback, 1), (self.clone, 2), (self.flatten, 1), (self.remove, 1),
            (self.create, 1), (self.rename, 1), (self.trash, 1), (self.check, 10), (self.check_snap, 6),
        ]
        self.create(None)

    def check_all(self):
        for name, model in self.images.items():
            self.check(name)
            for snap in model.snaps:
                self.compare(name, model.snaps[snap][0], snap)
        mine = [name for name in rbd.RBD().list(self.io) if name.startswith(f"w{self.number}-")]
        assert sorted(mine) == sorted(self.images), f"images {mine}, expected {list(self.images)}"

    def open(self, name, **options):
        return rbd.Image(self.io, name, **options)

    def new_name(self):
        self.made += 1
        return f"w{self.number}-{self.made}"

    def changed(self):
        self.names = list(self.images)

    def range(self, name):
        size = len(self.images[name].data)
        length = min(self.rng.choice(WRITES), size)
        offset = self.rng.choice([0, 4096 * self.rng.randrange(1 + size // 4096), self.rng.randrange(1 + size)])
        return min(offset, size - length), length

    def data(self, length):
        return self.rng.randbytes(1) * length if self.rng.random() < 0.3 else self.rng.randbytes(length)

    def snap_of(self, name):
        return self.rng.choice(list(self.images[name].snaps) or [None])

    def is_needed(self, name, snap):
        return any(image.depends_on((name, snap)) for image in self.images.values())

    # ---- what both, the cluster and the model, do ----

    def create(self, _):
        if len(self.images) < IMAGES_MAX:
            name, size = self.new_name(), self.rng.randrange(1, 12) * MIB
            rbd.RBD().create(self.io, name, size, order=ORDER, data_pool=DATA_POOL)
            self.images[name] = Image(bytearray(size))
            self.changed()

    def write(self, name):
        offset, length = self.range(name)
        data = self.data(length)
        with self.open(name) as image:
            assert image.write(data, offset) == length
        self.images[name].data[offset:offset + length] = data

    def discard(self, name):
        # Less than whole blocks may stay, says librbd.
        offset, length = (part // 65536 * 65536 for part in self.range(name))
        if length:
            with self.open(name) as image:
                image.discard(offset, length)
            self.images[name].data[offset:offset + length] = bytes(length)

    def zeroes(self, name):
        offset, length = self.range(name)
        if length:
            with self.open(name) as image:
                image.write_zeroes(offset, length)
            self.images[name].data[offset:offset + length] = bytes(length)

    def resize(self, name):
        size, data = self.rng.randrange(1, 14) * MIB, self.images[name].data
        with self.open(name) as image:
            image.resize(size)
        data[size:] = bytes(max(0, size - len(data)))

    def snap(self, name):
        model = self.images[name]
        if len(model.snaps) < SNAPS_MAX:
            snap = f"s{self.done}"
            with self.open(name) as image:
                image.create_snap(snap)
                image.protect_snap(snap)
            model.snaps[snap] = bytes(model.data), model.parent

    def snap_remove(self, name):
        snap = self.snap_of(name)
        if snap and not self.is_needed(name, snap):
            with self.open(name) as image:
                image.unprotect_snap(snap)
                image.remove_snap(snap)
            del self.images[name].snaps[snap]

    def rollback(self, name):
        snap = self.snap_of(name)
        # What a flattened image was a clone of, it may be again: leave that alone.
        if snap and self.images[name].snaps[snap][1] == self.images[name].parent:
            with self.open(name) as image:
                image.rollback_to_snap(snap)
            self.images[name].data[:] = self.images[name].snaps[snap][0]

    def clone(self, name):
        snap = self.snap_of(name)
        if snap and len(self.images) < IMAGES_MAX:
            child = self.new_name()
            rbd.RBD().clone(self.io, name, snap, self.io, child, order=ORDER, data_pool=DATA_POOL)
            self.images[child] = Image(bytearray(self.images[name].snaps[snap][0]), (name, snap))
            self.changed()

    def flatten(self, name):
        model = self.images[name]
        if model.parent and not any(parent != model.parent for _, parent in model.snaps.values()):
            with self.open(name) as image:
                image.flatten()
            model.parent = None
            model.snaps = {snap: (data, None) for snap, (data, _) in model.snaps.items()}

    def remove(self, name):
        if len(self.images) > 1 and not self.images[name].snaps:
            rbd.RBD().remove(self.io, name)
            del self.images[name]
            self.changed()

    def rename(self, name):
        if not any(self.is_needed(name, snap) for snap in self.images[name].snaps):
            new = self.new_name()
            rbd.RBD().rename(self.io, name, new)
            self.images[new] = self.images.pop(name)
            self.changed()

    def trash(self, name):
        with self.open(name) as image:
            number = image.id()
        rbd.RBD().trash_move(self.io, name)
        assert name in [entry["name"] for entry in rbd.RBD().trash_list(self.io)]
        rbd.RBD().trash_restore(self.io, number, name)

    # ---- looking ----

    def check(self, name):
        self.compare(name, self.images[name].data, None)

    def check_snap(self, name):
        snap = self.snap_of(name)
        if snap:
            self.compare(name, self.images[name].snaps[snap][0], snap)

    def compare(self, name, expected, snap):
        where = f"{name}@{snap}" if snap else name
        with self.open(name, snapshot=snap, read_only=True) as image:
            size = image.size()
            assert size == len(expected), f"{where}: {size} bytes, expected {len(expected)}"
            rest = bytearray(expected)  # what the image says that it does not have
            image.diff_iterate(0, size, None, lambda at, length, _: rest.__setitem__(slice(at, at + length), bytes(length)))
            assert not any(rest), f"{where}: its list of changes leaves some out"
            for offset in range(0, size, 4 * MIB):
                data, want = image.read(offset, min(4 * MIB, size - offset)), expected[offset:offset + 4 * MIB]
                if data != want:
                    first = next(i for i, (a, b) in enumerate(zip(data, want)) if a != b)
                    raise AssertionError(f"{where}: byte {offset + first} of {size} differs")
            if not snap:
                named = [s["name"] for s in image.list_snaps()]
                assert sorted(named) == sorted(self.images[name].snaps), f"{where} has snapshots {named}"


if __name__ == "__main__":
    sys.exit(play([Worker] * WORKERS, sys.argv[1], int(sys.argv[2])))
