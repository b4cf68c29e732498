"""The model of a client's tree of files: what it has, and what of that has to outlive the client."""
BLOCK = 4096
# Around the border of the first two objects, too.
BLOCKS = [*range(6), *range(1022, 1026)]



class File:
    """What a file has, and what of it has to outlive its client."""

    def __init__(self, size=0, blocks=None, xattrs=None):
        self.size, self.blocks, self.xattrs = size, blocks or {}, xattrs or {}
        self.made_durable()

    def made_durable(self):
        self.durable = (self.size, dict(self.blocks), dict(self.xattrs))
        self.changed, self.is_cut = set(), False

    def write(self, block, number):
        self.blocks[block] = number
        self.size = max(self.size, (block + 1) * BLOCK)
        self.changed.add(block)

    def truncate(self, size):
        self.size, self.is_cut = size, True
        self.blocks = {block: number for block, number in self.blocks.items() if block * BLOCK < size}

    def xattr(self, name, value):
        self.xattrs[name] = value
        self.changed.add(name)

    def is_exactly(self, found):
        return (found["size"], found["blocks"], found["xattrs"]) == (self.size, self.blocks, self.xattrs)

    def has_survived(self, found):
        size, blocks, xattrs = self.durable
        if not self.changed and not self.is_cut:
            return (found["size"], found["blocks"], found["xattrs"]) == (size, blocks, xattrs)
        same = lambda kept, now: all(now.get(key) == value for key, value in kept.items() if key not in self.changed)
        return same(xattrs, found["xattrs"]) and (
            self.is_cut or found["size"] >= size and same(blocks, found["blocks"]))


def above(path):
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(3, len(parts) + 1)]


class Tree:
    """Names, and what of them has to outlive the client."""

    def __init__(self, top):
        self.top, self.paths = top, {}
        self.made_durable()

    def made_durable(self):
        self.durable, self.touched = dict(self.paths), {}
        for node in self.paths.values():
            if isinstance(node, File):
                node.made_durable()

    def touch(self, path, how):
        self.touched[path] = "moved" if self.touched.get(path) == "moved" else how

    def fsynced(self, path):
        self.paths[path].made_durable()
        # With a file that was created, the directories that were created for it. Names that something else was done
        # to wait for a sync.
        if all(self.touched.get(part, "created") == "created" for part in above(path)):
            for part in above(path):
                self.touched.pop(part, None)
                self.durable[part] = self.paths[part]

    def is_touched(self, path):
        return any(part in self.touched for part in above(path))

    def check_exactly(self, found):
        assert found.keys() == self.paths.keys(), f"{found.keys() ^ self.paths.keys()} differ"
        links = [id(node) for node in self.paths.values()]
        for path, node in self.paths.items():
            kind, *rest = found[path]
            if isinstance(node, File):
                assert kind == "file" and node.is_exactly(rest[0]), f"{path}: {vars(node)}, found {found[path]}"
                assert links.count(id(node)) == rest[0]["links"], f"{path}: links, found {found[path]}"
            else:
                assert [kind, *rest] == node, f"{path}: {node}, found {found[path]}"

    def check_durable(self, found):
        for path, node in self.durable.items():
            if self.is_touched(path):
                continue
            assert path in found, f"{path} is lost"
            kind, *rest = found[path]
            if isinstance(node, File):
                assert kind == "file" and node.has_survived(rest[0]), f"{path}: {vars(node)}, found {found[path]}"
            else:
                assert [kind, *rest] == node, f"{path}: {node}, found {found[path]}"
        for path in found.keys() - self.durable.keys():
            assert self.is_touched(path), f"{path} was not there"

    def adopt(self, found):
        files = {}
        for kind, *rest in found.values():
            if kind == "file":
                files[rest[0]["ino"]] = File(rest[0]["size"], rest[0]["blocks"], rest[0]["xattrs"])
        node = lambda entry: files[entry[1]["ino"]] if entry[0] == "file" else entry
        self.paths = {path: node(entry) for path, entry in found.items()}
        self.made_durable()

    def linked(self):
        """Files with several names. Ceph 16.2's clients lose a name for a moment when another is removed (which
        they do with Ceph's own OSDs, too), so these stay."""
        files = [node for node in self.paths.values() if isinstance(node, File)]
        return [node for node in files if sum(other is node for other in files) > 1]

    def of(self, kind):
        wanted = lambda node: isinstance(node, File) if kind == "file" else node == ["dir"]
        return sorted(path for path, node in self.paths.items() if wanted(node))
