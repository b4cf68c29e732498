"""What python3-cephfs can do beside plain files: quotas, snapshots, layouts, recursive statistics, sizes."""

import errno
import itertools
import os
import sys
import time

import cephfs
import rados

SOON = 60


def until(what, done):
    end = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < end, f"waited {SOON} s for {what}"
        time.sleep(0.1)


def write(fs, path, data):
    fd = fs.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    fs.write(fd, data, 0)
    fs.fsync(fd, 0)
    fs.close(fd)


def read(fs, path):
    fd = fs.open(path, os.O_RDONLY, 0)
    data = fs.read(fd, 0, 1 << 20)
    fs.close(fd)
    return data


def quotas(fs):
    fs.mkdir("/quota", 0o755)
    fs.setxattr("/quota", "ceph.quota.max_files", b"3", 0)
    numbers = itertools.count()

    def is_full():
        # A client hears a moment later how many files there are.
        try:
            write(fs, f"/quota/{next(numbers)}", b"x")
        except cephfs.Error as error:
            assert error.errno == errno.EDQUOT, error
            return True
        return False

    until("the quota to be reached", is_full)
    assert next(numbers) > 2


def snapshots(fs):
    fs.mkdir("/snap", 0o755)
    write(fs, "/snap/file", b"before")
    for name in ("one", "two"):
        fs.mkdir(f"/snap/.snap/{name}", 0o755)
        write(fs, "/snap/file", name.encode())
    assert read(fs, "/snap/.snap/one/file") == b"before"
    assert read(fs, "/snap/.snap/two/file") == b"one"
    fs.rmdir("/snap/.snap/one")
    assert read(fs, "/snap/.snap/two/file") == b"one"
    assert read(fs, "/snap/file") == b"two"


def layouts(fs, cluster, pool):
    fs.mkdir("/layout", 0o755)
    fs.setxattr("/layout", "ceph.dir.layout.pool", pool.encode(), 0)
    write(fs, "/layout/file", b"there")
    ino = fs.stat("/layout/file").st_ino
    ioctx = cluster.open_ioctx(pool)
    assert ioctx.read(f"{ino:x}.00000000") == b"there"
    ioctx.close()


def sizes(fs):
    write(fs, "/size", b"0123456789")
    # Over more than one object, down and up again: what was cut off reads as zeros.
    for size in (9 << 20, 4, 6 << 20, 0, 3):
        fs.truncate("/size", size)
        assert fs.stat("/size").st_size == size
        if size == 6 << 20:
            assert read(fs, "/size") == b"0123" + bytes((1 << 20) - 4)
    assert read(fs, "/size") == bytes(3)


def statistics(fs):
    fs.mkdirs("/stat/below", 0o755)
    write(fs, "/stat/below/file", b"x" * 1000)
    until("recursive statistics", lambda: fs.getxattr("/stat", "ceph.dir.rbytes") == b"1000")


def main(name, pool):
    cluster = rados.Rados(conffile=os.environ["CEPH_CONF"], name="client.admin")
    cluster.connect()
    fs = cephfs.LibCephFS(rados_inst=cluster)
    fs.mount(filesystem_name=name.encode())
    quotas(fs)
    layouts(fs, cluster, pool)
    statistics(fs)
    sizes(fs)
    snapshots(fs)
    fs.unmount()
    fs.shutdown()
    print("all good")


main(*sys.argv[1:])
