"""A client of a file system, which does what it is told: one operation a line, as JSON, and so its answers.

Arguments: the file system's name."""
import errno
import json
import os
import sys

import cephfs

sys.dont_write_bytecode = True
from files_model import BLOCK, BLOCKS



class Worker:
    def __init__(self, name):
        self.fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
        self.fs.mount(filesystem_name=name.encode())

    def serve(self):
        print(json.dumps(self.fs.get_instance_id()), flush=True)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            try:
                answer = [0, getattr(self, name)(*arguments)]
            except cephfs.Error as error:
                answer = [abs(error.errno or errno.EIO), f"{name} {arguments}: {error}"]
            print(json.dumps(answer), flush=True)

    def opened(self, path, flags, work, mode=0o644):
        fd = self.fs.open(path, flags, mode)
        try:
            return work(fd)
        finally:
            self.fs.close(fd)

    def create(self, path):
        self.opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, lambda fd: None)

    def write(self, path, block, number, sync):
        def work(fd):
            self.fs.write(fd, number.to_bytes(8, "little") * (BLOCK // 8), block * BLOCK)
            if sync:
                self.fs.fsync(fd, 0)

        self.opened(path, os.O_WRONLY, work)

    def fsync(self, path):
        self.opened(path, os.O_WRONLY, lambda fd: self.fs.fsync(fd, 0))

    def sync(self):
        self.fs.sync_fs()

    def truncate(self, path, size):
        self.fs.truncate(path, size)

    def mkdir(self, path):
        self.fs.mkdir(path, 0o755)

    def pin(self, path, rank):
        self.fs.setxattr(path, "ceph.dir.pin", str(rank).encode(), 0)

    def rmdir(self, path):
        self.fs.rmdir(path)

    def unlink(self, path):
        self.fs.unlink(path)

    def rename(self, old, new):
        self.fs.rename(old, new)

    def link(self, old, new):
        self.fs.link(old, new)

    def symlink(self, target, path):
        self.fs.symlink(target, path)

    def xattr(self, path, name, value):
        self.fs.setxattr(path, f"user.{name}", value.encode(), 0)

    def walk(self, top):
        """Everything below: path -> kind, and what belongs to it."""
        found, open_ = {}, [top]
        while open_:
            folder = open_.pop()
            with self.fs.opendir(folder) as handle:
                entries = []
                while entry := self.fs.readdir(handle):
                    entries.append(entry)
            for entry in entries:
                name = entry.d_name.decode()
                if name in (".", ".."):
                    continue
                path = f"{folder}/{name}"
                if entry.is_dir():
                    found[path] = ["dir"]
                    open_.append(path)
                elif entry.is_symbol_file():
                    found[path] = ["symlink", self.fs.readlink(path, 256).decode()]
                else:
                    found[path] = ["file", self.file(path)]
        return found

    def file(self, path):
        stat = self.fs.stat(path)
        blocks = {}

        def work(fd):
            for block in BLOCKS:
                if block * BLOCK < stat.st_size:
                    data = self.fs.read(fd, block * BLOCK, BLOCK)
                    first = data[:8]
                    number = int.from_bytes(first, "little") if data == first * (BLOCK // 8) else data.hex()[:64]
                    if number:
                        blocks[block] = number

        self.opened(path, os.O_RDONLY, work)
        _, names = self.fs.listxattr(path, 4096)
        names = [name.decode() for name in names.split(b"\0") if name.startswith(b"user.")]
        xattrs = {name[5:]: self.fs.getxattr(path, name).decode() for name in names}
        return {"ino": stat.st_ino, "links": stat.st_nlink, "size": stat.st_size, "blocks": blocks, "xattrs": xattrs}


Worker(sys.argv[1]).serve()
