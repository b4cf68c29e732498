#!/usr/bin/env python3
"""Methods of object classes through python3-rados. Argument: a pool."""
import errno
import struct
import sys

import rados


def string(text):
    return struct.pack("<I", len(text)) + text


def fails(code, call):
    try:
        call()
    except rados.Error as error:
        assert error.errno == code, error
    else:
        raise AssertionError("it should have failed")


def main():
    with rados.Rados(conffile="") as cluster, cluster.open_ioctx(sys.argv[1]) as io:
        io.write_full("greeter", b"x")
        _, out = io.execute("greeter", "hello", "say_hello", b"bob")
        assert out == b"Hello, bob!", out
        fails(errno.EPERM, lambda: io.execute("greeter", "nosuch", "m", b""))
        fails(errno.EOPNOTSUPP, lambda: io.execute("greeter", "hello", "m", b""))
        fails(errno.EIO, lambda: io.execute("greeter", "hello", "bad_writer", b"lost"))
        fails(errno.EEXIST, lambda: io.execute("greeter", "hello", "record_hello", b"you"))
        assert io.read("greeter") == b"x"

        io.execute("recorded", "hello", "record_hello", b"you")
        io.execute("recorded", "hello", "turn_it_to_11", b"")
        assert io.read("recorded") == b"HELLO, YOU!"

        for operand in (b"4", b"-1.5"):
            io.execute("numbers", "numops", "add", string(b"n") + string(operand))
        with rados.ReadOpCtx() as op:
            pairs, _ = io.get_omap_vals_by_keys(op, ("n",))
            io.operate_read_op(op, "numbers")
            assert list(pairs) == [("n", b"2.5")]

        # A request whose call fails changes nothing at all.
        with rados.WriteOpCtx() as op:
            op.write_full(b"y")
            op.execute("hello", "record_hello", b"you")
            fails(errno.EEXIST, lambda: io.operate_write_op(op, "greeter"))
        assert io.read("greeter") == b"x"

        io.lock_exclusive("locked", "l", "cookie", desc="mine")
        try:
            io.lock_exclusive("locked", "l", "other")
        except rados.ObjectBusy:
            pass
        else:
            raise AssertionError("a second holder")
        io.unlock("locked", "l", "cookie")
        io.lock_shared("locked", "l", "one", "tag")
        io.lock_shared("locked", "l", "two", "tag")


main()
