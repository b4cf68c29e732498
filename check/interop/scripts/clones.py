#!/usr/bin/env python3
"""Two clients write to one clone at once, into the same objects: each first write copies the parent's up, and none
may lose another's bytes. Arguments: a pool, a seed."""
import random
import sys
import threading

import rados
import rbd

POOL, SEED = sys.argv[1], sys.argv[2]
ORDER, OBJECTS, BLOCK = 16, 24, 512
SIZE = OBJECTS << ORDER
WRITERS = 2


def connect():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    return cluster.open_ioctx(POOL)


def make_parent(io):
    """With holes, and an object that ends early."""
    rng = random.Random(f"{SEED} parent")
    rbd.RBD().create(io, "parent", SIZE, order=ORDER, old_format=False, features=rbd.RBD_FEATURE_LAYERING)
    content = bytearray(SIZE)
    with rbd.Image(io, "parent") as image:
        for number in range(OBJECTS):
            if number % 3:
                length = (1 << ORDER) if number % 2 else 5000
                part = rng.randbytes(length)
                image.write(part, number << ORDER)
                content[number << ORDER:(number << ORDER) + length] = part
        image.create_snap("s")
        image.protect_snap("s")
        image.write(bytes(SIZE), 0)  # what the clone shows is the snapshot
    return content


def write_blocks(number, content, wrong):
    """Every other block is ours, in random order, several at a time."""
    rng = random.Random(f"{SEED} writer {number}")
    blocks = [block for block in range(SIZE // BLOCK) if block % WRITERS == number and rng.random() < 0.3]
    rng.shuffle(blocks)
    with rbd.Image(connect(), "clone") as image:
        done = threading.Semaphore(16)

        def finished(completion):
            if completion.get_return_value() < 0:
                wrong.append(completion.get_return_value())
            done.release()

        for block in blocks:
            data = rng.randbytes(BLOCK)
            content[block * BLOCK:(block + 1) * BLOCK] = data
            done.acquire()
            image.aio_write(data, block * BLOCK, finished)
        for _ in range(16):
            done.acquire()


def main():
    io = connect()
    parent = make_parent(io)
    rbd.RBD().clone(io, "parent", "s", io, "clone", features=rbd.RBD_FEATURE_LAYERING, order=ORDER)
    content, wrong = bytearray(parent), []
    writers = [threading.Thread(target=write_blocks, args=(number, content, wrong)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not wrong, wrong

    def same(image, expected, what):
        found = image.read(0, SIZE)
        first = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), None)
        assert first is None and len(found) == SIZE, f"{what}: byte {first} of {len(found)} differs"

    with rbd.Image(io, "clone") as image:
        same(image, content, "the clone")
        image.flatten()
        same(image, content, "the clone on its own")
    with rbd.Image(io, "parent", snapshot="s") as image:
        same(image, parent, "the parent's snapshot")
    with rbd.Image(io, "parent") as image:
        same(image, bytes(SIZE), "the parent")
        image.unprotect_snap("s")


main()
