"""Basic I/O through python3-rados: results and error numbers as Ceph gives them.

Arguments: the pool, and `--reference` when the cluster is a real Ceph."""
import errno
import sys

import rados


def fails(number, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (rados.Error, OSError) as error:
        got = getattr(error, "errno", None)
        assert abs(got) == number, f"{call.__name__}{args}: errno {got}, expected {number} ({error})"
        return
    raise AssertionError(f"{call.__name__}{args} succeeded, expected errno {number}")


cluster = rados.Rados(conffile="")
cluster.connect()
assert sys.argv[1] in cluster.list_pools()
io = cluster.open_ioctx(sys.argv[1])

# data
io.write_full("a", b"hello")
assert io.read("a") == b"hello"
assert io.stat("a")[0] == 5
io.write("a", b"HE", 0)
io.write("a", b"!", 7)
assert io.read("a") == b"HEllo\0\0!"
assert io.read("a", 3, 1) == b"Ell"
assert io.read("a", 10, 100) == b""
io.append("a", b"tail")
assert io.read("a") == b"HEllo\0\0!tail"
io.trunc("a", 2)
assert io.read("a") == b"HE"
io.trunc("a", 4)
assert io.read("a") == b"HE\0\0"
io.write_full("a", b"")
assert io.stat("a")[0] == 0
big = bytes(range(256)) * 40000
io.write_full("big", big)
assert io.read("big", len(big)) == big
io.write("big", b"xyz", 4095)
assert io.read("big", 5, 4094) == big[4094:4095] + b"xyz" + big[4098:4099]
fails(errno.ENOENT, io.read, "missing")
fails(errno.ENOENT, io.stat, "missing")
fails(errno.ENOENT, io.remove_object, "missing")
io.trunc("missing", 5)
fails(errno.ENOENT, io.stat, "missing")

# attributes
io.set_xattr("a", "x", b"1")
io.set_xattr("a", "y", b"\0\xff")
assert io.get_xattr("a", "y") == b"\0\xff"
assert dict(io.get_xattrs("a")) == {"x": b"1", "y": b"\0\xff"}
io.rm_xattr("a", "x")
fails(errno.ENODATA, io.get_xattr, "a", "x")
fails(errno.ENOENT, io.get_xattr, "missing", "x")

# omap
with rados.WriteOpCtx() as op:
    io.set_omap(op, ("k1", "k2", "k3"), (b"v1", b"v2", b"v3"))
    io.operate_write_op(op, "o")


def omap(name, after="", prefix="", most=100):
    with rados.ReadOpCtx() as op:
        values, _ = io.get_omap_vals(op, after, prefix, most)
        io.operate_read_op(op, name)
        return list(values)


assert omap("o") == [("k1", b"v1"), ("k2", b"v2"), ("k3", b"v3")]
assert omap("o", after="k1", most=1) == [("k2", b"v2")]
assert omap("o", prefix="k3") == [("k3", b"v3")]
with rados.ReadOpCtx() as op:
    values, _ = io.get_omap_vals_by_keys(op, ("k2", "nokey"))
    io.operate_read_op(op, "o")
    assert list(values) == [("k2", b"v2")]
with rados.WriteOpCtx() as op:
    io.remove_omap_keys(op, ("k2", "nokey"))
    io.operate_write_op(op, "o")
assert [k for k, _ in omap("o")] == ["k1", "k3"]
with rados.WriteOpCtx() as op:
    io.clear_omap(op)
    io.operate_write_op(op, "o")
assert omap("o") == []
io.write_full("a", b"still")
fails(errno.ENOENT, omap, "missing")

# compound operations: all or nothing
with rados.WriteOpCtx() as op:
    op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    op.write_full(b"fresh")
    op.append(b"+")
    op.set_xattr("v", b"7")
    io.operate_write_op(op, "c")
assert io.read("c") == b"fresh+" and io.get_xattr("c", "v") == b"7"
with rados.WriteOpCtx() as op:
    op.write_full(b"never")
    op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    fails(errno.EEXIST, io.operate_write_op, op, "c")
assert io.read("c") == b"fresh+"
with rados.WriteOpCtx() as op:
    op.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
    op.truncate(3)
    op.zero(1, 1)
    io.operate_write_op(op, "c")
assert io.read("c") == b"f\0e"
if "--reference" not in sys.argv:  # it would abort a real OSD
    with rados.WriteOpCtx() as op:
        op.zero(0, 0)  # a zero-length zero is nothing
        io.operate_write_op(op, "c")
with rados.WriteOpCtx() as op:
    op.remove()
    io.operate_write_op(op, "c")
fails(errno.ENOENT, io.stat, "c")

# comparison, same data again, versions
assert io.cmpext("a", b"still", 0) == 0
try:
    differs = io.cmpext("a", b"stiLL", 0)
except rados.Error as error:
    differs = -error.errno
assert differs in (-4095 - 3, 4095 + 3), differs
io.writesame("ws", b"ab", 6, 1)
assert io.read("ws") == b"\0ababab"
io.write_full("v", b"1")
first = io.get_last_version()
io.write_full("v", b"2")
assert io.get_last_version() > first

# asynchronous
done = [io.aio_write_full(f"n{i}", b"%d" % i) for i in range(200)]
for completion in done:
    completion.wait_for_complete_and_cb()
    assert completion.get_return_value() == 0
reads = []
for i in range(200):
    reads.append(io.aio_read(f"n{i}", 10, 0, lambda completion, data, i=i: (
        None if data == b"%d" % i else sys.exit(f"n{i}: {data}"))))
for completion in reads:
    completion.wait_for_complete_and_cb()

# listing
names = sorted(o.key for o in io.list_objects())
assert names == sorted(["a", "big", "o", "ws", "v"] + [f"n{i}" for i in range(200)]), names
io.set_namespace("elsewhere")
io.write_full("inside", b"x")
assert [o.key for o in io.list_objects()] == ["inside"]
io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
assert len([o for o in io.list_objects()]) == 206
io.set_namespace("")
io.set_locator_key("place")
io.write_full("located", b"x")
assert [o.locator_key for o in io.list_objects() if o.key == "located"] == ["place"]
io.set_locator_key("")

# names at their limits
io.write_full("n" * 2048, b"x")
fails(errno.ENAMETOOLONG, io.write_full, "n" * 2049, b"x")
fails(errno.EFBIG, io.write, "far", b"x", 200 << 20)

# the pool and the cluster
stats = io.get_stats()
assert stats["num_objects"] >= 0
assert cluster.get_cluster_stats()["kb"] > 0
assert cluster.get_fsid()
ret, out, _ = cluster.mon_command('{"prefix": "osd pool ls", "format": "json"}', b"")
assert ret == 0 and sys.argv[1] in out.decode()
ret, _, why = cluster.mon_command("no json at all", b"")
assert ret == -errno.EINVAL, (ret, why)
cluster.create_pool("made-by-python")
assert cluster.pool_exists("made-by-python")
cluster.shutdown()
print("all good")
