#!/usr/bin/env python3
"""The stock `rados` command, line by line: what it prints, the same on every cluster.

Argument: an empty pool. `testdata/rados_tool.txt` is what it prints of a real Ceph."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

POOL = sys.argv[1]
OTHER = POOL + "-other"
FOLDER = tempfile.mkdtemp(prefix="nacre-rados-")
ENVIRONMENT = dict(os.environ, CEPH_ARGS=os.environ.get("CEPH_ARGS", "") + " --log-to-stderr=false --err-to-stderr=false")


def normal(text):
    """Without what differs from one run to the next."""
    text = re.sub(rf"\b{POOL}-other\b", "OTHER", text)
    text = re.sub(rf"\b{POOL}\b", "POOL", text).replace(FOLDER + "/", "@@")
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.]+(\+\d{4})?", "TIME", text)
    text = re.sub(r"\b\d{4}\.\d\d\.\d\d \d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"(client|osd)\.\d+", r"\1.ID", text)
    text = re.sub(r"cookie[ =:]+\d+", "cookie COOKIE", text)
    text = re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):\d+/\d+", "ADDRESS", text)
    text = re.sub(r"benchmark_data_\S+?_\d+_", "benchmark_data_HOST_PID_", text)
    return text


def run(words, given=None, limit=60):
    command = ["timeout", str(limit), *words]
    return subprocess.run(command, env=ENVIRONMENT, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


# While the stock client ends, another of its threads may still look at its configuration, which is gone (with --striper that
# thread ends the cluster's handle, too): what it did is done, it says that it succeeded, and in the middle of that how it died,
# which begins behind what it printed, in the same line if that has no end.
DIES_ENDING = re.compile(r"(\*\*\* Caught signal |terminate called after throwing .*bad_get).*\n?|^(  what\(\):  boost::bad_get| in thread \w+ thread_name:"
                         r"| ceph version | \d+: | NOTE: a copy of the executable).*\n?", re.MULTILINE)


def rados(line, given=None, ordered=True, quiet=False):
    """Lines of what has no order are sorted."""
    words = [word.replace("@@", FOLDER + "/") for word in line.split(" ")]
    words = [POOL if word == "POOL" else OTHER if word == "OTHER" else word for word in words]
    done = run(["rados", "-p", POOL, *words], given)
    print("$ rados " + line)
    text = normal(done.stdout.decode(errors="backslashreplace"))
    if not done.returncode and "*** Caught signal" in text:
        text = DIES_ENDING.sub("", text)
    lines = [part.rstrip() for part in text.splitlines()]
    if "usage: rados [options] [commands]" in lines:
        lines = [*lines[:lines.index("usage: rados [options] [commands]")], "and how it is used"]
    if not ordered:
        lines.sort()
    if not quiet:
        print("".join("  " + part + "\n" for part in lines if part), end="")
    if done.returncode:
        print(f"  exit {done.returncode}")
    sys.stdout.flush()
    return done.stdout


def show(name):
    path = f"{FOLDER}/{name}"
    if not os.path.exists(path):
        return print(name, "is not there")
    with open(path, "rb") as file:
        data = file.read()
    print(name, len(data), data[:40])
    os.unlink(path)


def make(name, data):
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(data)


def contents():
    make("in", b"hello there")
    make("none", b"")
    make("large", bytes(range(256)) * 40000)
    for line in ("put a @@in", "stat a", "get a @@out", "append a @@in", "get a -", "put a @@in --offset 20", "stat a",
                 "put empty @@none", "stat empty", "get empty @@out2", "get none @@out3", "stat none", "rm none", "rm a none",
                 "rm", "put", "put a", "put a @@nosuch", "get a", "create c", "create c", "stat c", "truncate c 100", "stat c",
                 "truncate c x", "truncate none 5", "truncate c -5", "touch c", "touch c 1000000000", "stat c", "touch t", "stat t",
                 "cp c d", "stat d", "cp none d", "cp c", "cp c c", "mapext c", "mapext none",
                 "put big @@large", "put big @@large -b 100000", "get big @@large2", "set-alloc-hint c 4096 4096",
                 "set-alloc-hint c x y", "set-alloc-hint new 4096 4096", "ls", "nosuch", "stat2 none"):
        rados(line, ordered=line != "ls")
    rados("put piped -", b"from a pipe")
    rados("get piped -")
    rados("append piped -", b"!" * 100)
    rados("stat piped")
    for name in ("out", "out2", "out3"):
        show(name)
    with open(f"{FOLDER}/large", "rb") as one, open(f"{FOLDER}/large2", "rb") as two:
        print("the same" if one.read() == two.read() else "DIFFERENT")
    rados("ls", ordered=False)
    rados("ls @@names")
    rados("put a @@in -N space")
    rados("put a @@in --object-locator key")
    rados("stat a -N space")
    rados("stat a --object-locator key")
    rados("ls -N space")
    rados("ls --all", ordered=False)
    rados("ls --all --format json", quiet=True)
    rados("ls --default -N space")
    rados("cp a e --target-nspace space --target-locator place")
    rados("ls --all", ordered=False)
    rados("rm a -N space")
    rados("rm a -N none")
    rados("ls -N none")
    rados("ls -p none")
    rados("rm a --force-full")


def attributes():
    make("value", b"from\0file")
    for line in ("listxattr x", "create x", "listxattr x", "setxattr x a 1", "setxattr x b", "getxattr x a", "getxattr x none",
                 "getxattr none a", "rmxattr x a", "rmxattr x a", "rmxattr none a", "setxattr x " + "n" * 100 + " v",
                 "setxattr x " + "n" * 101 + " v", "listxattr x", "setxattr y a v", "stat y"):
        rados(line)
    rados("setxattr x big", b"v" * 70000)
    rados("setxattr x piped", b"v" * 1000)
    rados("getxattr x piped")
    for line in ("listomapkeys o", "setomapval o k v", "setomapval o k2 --input-file @@value", "setomapval o", "setomapval o k3",
                 "listomapkeys o", "listomapvals o", "getomapval o k", "getomapval o k2 @@got", "getomapval o none", "getomapval none k",
                 "rmomapkey o k", "rmomapkey o k", "rmomapkey none k", "listomapkeys o", "getomapheader o", "setomapheader o header",
                 "getomapheader o", "getomapheader o @@head", "getomapheader none", "clearomap o none", "clearomap none", "clearomap o",
                 "listomapvals o", "listomapvals none", "listomapkeys none", "getomapheader o"):
        rados(line)
    show("got")
    show("head")
    make("key", b"bin\0ary\xff key")
    for line in ("setomapval o --omap-key-file @@key value", "listomapvals o", "getomapval o --omap-key-file @@key",
                 "rmomapkey o --omap-key-file @@key", "listomapvals o"):
        rados(line)
    rados("setomapval o piped", b"through a pipe")
    rados("listomapvals o")


def snapshots():
    make("one", b"first")
    make("two", b"second, longer")
    for line in ("lssnap", "put s @@one", "mksnap a", "mksnap a", "mksnap", "lssnap", "put s @@two", "listsnaps s", "get s - -s a",
                 "get s - --snap none", "stat s -s a", "mksnap b", "put t @@one", "get t - -s b", "rollback s a", "get s -", "rollback t a",
                 "get t -", "rollback s none", "rollback none a", "listsnaps s", "listsnaps s --format json", "listsnaps none",
                 "rm s", "listsnaps s", "ls", "get s - -s a", "put s @@two -s a", "rmsnap a", "rmsnap a", "rmsnap none", "rmsnap b",
                 "lssnap"):
        rados(line, ordered=line != "ls")


def locks():
    for line in ("lock list l", "lock get l mine", "lock list l", "create l", "lock list l", "lock get l mine --lock-cookie c --lock-tag t",
                 "lock info l mine", "lock get l mine --lock-cookie c --lock-type exclusive", "lock get l mine --lock-type nonsense",
                 "lock get l shared --lock-type shared --lock-tag tag --lock-cookie one --lock-description about --lock-duration 600",
                 "lock get l shared --lock-type shared --lock-tag tag --lock-cookie two", "lock get l shared --lock-type shared --lock-tag no",
                 "lock info l shared", "lock info l none", "lock info none none", "lock list l", "lock break l mine client.1",
                 "lock break l mine nonsense", "lock break l none client.1"):
        rados(line, ordered=False)
    for held in json.loads(run(["rados", "-p", POOL, "lock", "info", "l", "shared", "--format", "json"]).stdout or "{}").get("lockers", []):
        run(["rados", "-p", POOL, "lock", "break", "l", "shared", held["name"], "--lock-cookie", held["cookie"]])
    rados("lock info l shared")


def whole_pools():
    make("in", b"data")
    for line in ("put p @@in", "setxattr p x 1", "setomapval p k v", "setomapheader p h", "put q @@in -N space",
                 "put r @@in --object-locator loc", "export @@dump", "export --workers 2 @@dump2", "purge POOL",
                 "purge POOL --yes-i-really-really-mean-it", "ls --all"):
        rados(line, ordered=False)
    for line in ("import --dry-run @@dump", "ls --all", "import @@dump", "ls --all", "get p -", "listxattr p", "listomapvals p",
                 "getomapheader p", "get q - -N space", "get r - --object-locator loc", "import --no-overwrite @@dump", "import @@none",
                 "import @@in", "ls --all"):
        rados(line, ordered=False)
    rados("import -", b"not a dump at all, but longer than its header")
    run(["ceph", "osd", "pool", "create", OTHER, "8"])
    for line in ("cppool POOL OTHER", "cppool POOL OTHER --yes-i-really-mean-it", "ls --all -p OTHER", "cppool POOL none", "cppool POOL POOL",
                 "get p - -p OTHER", "listomapvals p -p OTHER", "purge none --yes-i-really-really-mean-it"):
        rados(line, ordered=False)
    run(["ceph", "osd", "pool", "rm", OTHER, OTHER, "--yes-i-really-really-mean-it"])
    # Figures arrive late.
    for _ in range(100):
        found = json.loads(run(["rados", "df", "--format", "json"]).stdout)
        row = [pool for pool in found["pools"] if pool["name"] == POOL][0]
        if int(row["num_objects"]) > 0:
            break
        time.sleep(0.5)
    print(sorted(found), sorted(row))
    head = run(["rados", "df", "-p", POOL]).stdout.decode().splitlines()
    print(" ".join(head[0].split()), "|", head[1].split()[0] == POOL, len(head[1].split()))
    print([line.split()[0] for line in run(["rados", "df"]).stdout.decode().splitlines()[-5:] if line])
    lspools = run(["rados", "lspools"]).stdout.decode().split()
    print("in lspools:", POOL in lspools)


def bench_lines(done):
    """The lines of a bench's summary that are the same each time."""
    lines = done.stdout.decode(errors="replace").splitlines()
    names = [line.split(":")[0] for line in lines if re.match(r"[A-Z][A-Za-z/() ]*: ", line)]
    print("  " + ", ".join(names))
    if done.returncode:
        print("  exit", done.returncode, lines[-1:])


def bench():
    for line in ("bench 1 write -t 4 -b 4096 --no-cleanup", "bench 1 seq -t 4", "bench 1 rand -t 4", "cleanup",
                 "bench 1 write -t 2 -b 4096 -O 65536 --run-name mine --no-cleanup", "bench 1 seq --run-name mine",
                 "bench 1 write -b 4096 --max-objects 8 --no-cleanup --run-name few", "bench 1 write --write-omap -b 1024 -t 2",
                 "bench 1 write --write-xattr -b 1024 -t 2", "bench 1 write -b 4096 --show-time --no-hints",
                 "bench 1 write -b 8192 -t 1 --reuse-bench --no-cleanup --run-name mine"):
        done = run(["rados", "-p", POOL, *line.split()])
        print("$ rados " + line)
        bench_lines(done)
    for line in ("bench 1 seq --run-name none", "bench 1 nosuch", "bench", "bench 0 write"):
        rados(line, quiet=line == "bench 0 write")
    run(["rados", "-p", POOL, "cleanup", "--run-name", "mine"])
    run(["rados", "-p", POOL, "cleanup", "--prefix", "benchmark_data"])
    rados("cleanup --prefix nosuchprefix")
    rados("cleanup --run-name nosuchrun")
    left = run(["rados", "-p", POOL, "ls"]).stdout.decode().split()
    print("left:", sorted(name for name in left if "bench" in name))
    done = run(["rados", "-p", POOL, "load-gen", "--num-objects", "10", "--min-object-size", "4096", "--max-object-size", "65536",
                "--min-op-len", "1024", "--max-op-len", "4096", "--run-length", "2", "--read-percent", "50", "--max-ops", "4"])
    print("load-gen", done.returncode)


def others():
    make("in", b"data")
    for line in ("listwatchers w", "create w", "listwatchers w", "notify w hello", "notify none hello", "notify w",
                 "list-inconsistent-pg POOL", "list-inconsistent-pg none", "list-inconsistent-snapset nonsense",
                 "cache-flush w", "cache-try-flush w", "cache-evict w", "cache-flush-evict-all", "cache-try-flush-evict-all",
                 "put striped @@in --striper", "stat striped --striper", "get striped - --striper",
                 "truncate striped 2 --striper", "get striped - --striper", "setxattr striped a 1 --striper", "listxattr striped --striper",
                 "getxattr striped a --striper", "rmxattr striped a --striper", "ls --striper", "rm striped --striper", "stat striped --striper",
                 "rm none --striper"):
        rados(line, ordered=False)
    print("by no group:", run(["rados", "--pgid", "nonsense", "ls"]).returncode)
    print("no pool given:", normal(run(["rados", "ls"]).stdout.decode()).strip())


def main():
    parts = [contents, attributes, snapshots, locks, whole_pools, bench, others]
    wanted = [part for part in sys.argv[2:] if not part.startswith("--")]
    for part in parts:
        if not wanted or part.__name__ in wanted:
            print(f"--- {part.__name__}")
            part()
            # Each part begins with an empty pool.
            run(["rados", "purge", POOL, "--yes-i-really-really-mean-it"])


try:
    main()
finally:
    subprocess.run(["rm", "-rf", FOLDER], check=True)
