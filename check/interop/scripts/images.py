#!/usr/bin/env python3
"""The stock `rbd` command, line by line: what it prints of images, the same on every cluster.

Argument: a pool without images, in which there is not much room needed.
`testdata/images.txt` is what it prints of a real Ceph."""
import os
import random
import re
import subprocess
import sys
import tempfile

from ids import without_ids

POOL = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="nacre-images-")
# Without what librbd logs: it comes between the lines, now here and now there.
ENVIRONMENT = dict(os.environ, CEPH_ARGS=os.environ.get("CEPH_ARGS", "")
                   + f" --rbd-default-pool={POOL} --log-to-stderr=false --err-to-stderr=false")
QUIET = ("bench", "import", "export", "watch", "journal export", "journal import")  # their progress depends on time


def normal(text):
    """Without what differs from one run to the next."""
    text = re.sub(rf"\b{POOL}\b(?!\.)", "POOL", text).replace(FOLDER + "/", "@@")
    text = re.sub(r"\r[^\n]*\r", "", text)  # progress
    text = re.sub(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d \d{4}", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.]+(\+\d{4})?", "TIME", text)
    text = re.sub(r"client\.\d+", "client.ID", text)
    text = re.sub(r"(rbd|journal)_data\.\d{1,4}\.", r"\1_data.POOLID.", text)
    # How many snapshots there were before is a matter of races between librbd's own steps.
    text = re.sub(r"(?m)^ +\d+ {2}(?=\S)", "       N  ", text)
    text = re.sub(r'"id":\d+', '"id":N', text)
    text = re.sub(r"\.group\.\w+", ".group.NAME", text)
    text = re.sub(r"watcher=\S+", "watcher=WHO", text)
    text = re.sub(r"127\.0\.0\.1:\d+/\d+", "ADDRESS", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "UUID", text)
    # One word for the ids of images and the cookies of locks: an id may happen to be all decimal digits.
    text = without_ids(re.sub(r"\bauto \d{12,}\b", "ID", text))
    # How wide a column is depends on the longest id in it, and ids are of several lengths.
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def run(words, given=None, limit=60):
    command = ["timeout", str(limit), *words]
    return subprocess.run(command, env=ENVIRONMENT, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def rbd(line, given=None):
    line = line.replace("@@", FOLDER + "/")
    done = run(["rbd", *line.split()], given)
    print(normal("$ rbd " + line))
    text = normal(done.stdout.decode(errors="replace"))
    if not line.startswith(QUIET):
        lines = [part.rstrip() for part in text.splitlines()]
        print("\n".join("  " + part for part in lines if part))
    if done.returncode:
        print(f"  exit {done.returncode}")
        if line.startswith(QUIET):
            print("  " + text.splitlines()[-1] if text else "")
    sys.stdout.flush()
    return done.stdout.decode(errors="replace")


def rados(line):
    print("$ rados " + line)
    names = normal(run(["rados", "--pool", POOL, *line.split()]).stdout.decode()).splitlines()
    print("\n".join("  " + name for name in sorted(names)))


def same(one, other):
    if not os.path.exists(f"{FOLDER}/{other}"):
        print("no", other)
        return
    with open(f"{FOLDER}/{one}", "rb") as a, open(f"{FOLDER}/{other}", "rb") as b:
        print(f"{one} and {other} are", "the same" if a.read() == b.read() else "DIFFERENT")


def make_file(name, size):
    """Data with holes."""
    rng = random.Random(name)
    with open(f"{FOLDER}/{name}", "wb") as file:
        for at in range(0, size, 1 << 20):
            if rng.random() < 0.4:
                file.seek(at)
                file.write(rng.randbytes(200_000))
        file.truncate(size)


def everyday():
    rbd("create one --size 64M")
    rbd("create one --size 64M")
    rbd("create --size 0 empty")
    rbd("create nosize")
    rbd("ls")
    rbd("ls -l")
    rbd("ls --format json")
    rbd("info one")
    rbd("info one --format json")
    rbd("info none")
    rbd("status one")
    rbd("du one")
    rbd("resize one --size 100M --no-progress")
    rbd("resize one --size 10M --no-progress")
    rbd("resize one --size 10M --allow-shrink --no-progress")
    rbd("resize one --size 10M --allow-shrink --no-progress")
    rbd("rename one two")
    rbd("rename one three")
    rbd("rename two empty")
    rbd("image-meta set two key value")
    rbd("image-meta set two other longer")
    rbd("image-meta ls two")
    rbd("image-meta get two key")
    rbd("image-meta get two none")
    rbd("image-meta rm two key")
    rbd("image-meta rm two key")
    rbd("image-meta list two --format json")
    rbd("config image set two rbd_cache false")
    rbd("config image set two rbd_nonsense false")
    rbd("config image get two rbd_cache")
    rbd("config image rm two rbd_cache")
    rbd(f"config pool set {POOL} rbd_cache false")
    rbd(f"config pool get {POOL} rbd_cache")
    rbd(f"config pool rm {POOL} rbd_cache")
    rbd("pool stats " + POOL)
    rbd("rm two --no-progress")
    rbd("rm two --no-progress")
    rbd("rm empty --no-progress")


def contents():
    make_file("in", 30_000_000)
    rbd("import --no-progress @@in imported")
    rbd("info imported")
    rbd("du imported")
    rbd("export --no-progress imported @@out")
    same("in", "out")
    rbd("export --no-progress --export-format 2 imported @@v2")
    rbd("import --no-progress --export-format 2 @@v2 imported2")
    rbd("export --no-progress imported2 @@out2")
    same("in", "out2")
    rbd("cp --no-progress imported copy")
    rbd("export --no-progress copy @@out3")
    same("in", "out3")
    rbd("diff imported")
    rbd("diff --whole-object imported")
    rbd("export-diff --no-progress imported @@diff")
    rbd("create --size 30000000B patched")
    rbd("import-diff --no-progress @@diff patched")
    rbd("export --no-progress patched @@out4")
    same("in", "out4")
    rbd("import --no-progress - piped", given=b"x" * 5000)
    rbd("info piped")
    rbd("bench --io-type write --io-size 4K --io-total 256K --io-threads 4 --io-pattern rand copy")
    rbd("bench --io-type read --io-size 4K --io-total 256K --io-threads 4 copy")
    rbd("bench --io-type rw --io-size 16K --io-total 512K --io-threads 2 copy")
    rbd("sparsify --no-progress imported")
    rbd("du imported")
    rbd("object-map check imported --no-progress")
    rbd("object-map rebuild imported --no-progress")
    for image in ("imported", "imported2", "copy", "patched", "piped"):
        rbd(f"rm --no-progress {image}")


def layouts():
    make_file("small", 3_000_000)
    for options in (
        "--object-size 4K", "--object-size 32M", "--object-size 2K", "--object-size 64M", "--order 20",
        "--object-size 1M --stripe-unit 64K --stripe-count 4", "--stripe-unit 64K",
        "--object-size 1M --stripe-unit 4M --stripe-count 2", "--data-pool " + POOL + "-data", "--data-pool none",
        "--image-format 1", "--image-feature layering", "--image-feature exclusive-lock,journaling",
        "--image-feature object-map", "--image-shared",
    ):
        rbd(f"import --no-progress {options} @@small image")
        rbd("info image")
        rbd("export --no-progress image @@back")
        if os.path.exists(f"{FOLDER}/back"):
            same("small", "back")
            os.unlink(f"{FOLDER}/back")
        rbd("rm --no-progress image")
    rbd("create --size 16T huge")
    rbd("info huge")
    rbd("du huge")
    rbd("bench --io-type write --io-size 4K --io-total 64K --io-threads 1 --io-pattern rand huge")
    rbd("diff --whole-object --format json --from-snap none huge")
    rbd("rm --no-progress huge")
    rbd("create --size 20P toohuge")
    rbd("rm --no-progress toohuge")


def features():
    rbd("create --size 20M --image-feature layering f")
    for line in (
        "feature enable f object-map", "feature enable f exclusive-lock", "feature enable f exclusive-lock",
        "feature enable f object-map fast-diff", "info f", "feature enable f journaling", "feature disable f layering",
        "feature disable f exclusive-lock", "feature disable f object-map fast-diff", "feature disable f deep-flatten",
        "feature enable f nonsense", "info f --format json",
        "bench --io-type write --io-size 4K --io-total 64K --io-threads 1 f",
        "journal info --image f", "journal status --image f", "journal inspect --image f",
        "journal reset --image f", "feature disable f journaling", "journal info --image f", "info f",
    ):
        rbd(line)
    rbd("lock add f mine")
    rbd("lock ls f")
    rbd("lock ls f --format json")
    rbd("lock add f mine")
    rbd("lock add f other")
    locker = rbd("lock ls f").split("\n")[2].split()
    rbd("lock rm f mine client.1")
    rbd(f"lock rm f mine {locker[0]}")
    rbd("lock ls f")
    rbd("lock add f a --shared tag")
    rbd("lock add f b --shared tag")
    rbd("lock add f c --shared other")
    rbd("lock ls f")
    for line in rbd("lock ls f").split("\n")[3:]:
        if line:
            rbd(f"lock rm f {line.split()[1]} {line.split()[0]}")
    rbd("rm --no-progress f")


def trash_and_groups():
    def trash_id():
        return run(["rbd", "trash", "ls"]).stdout.split()[0].decode()

    rbd("create --size 20M t")
    rbd("trash mv t")
    rbd("ls")
    rbd("trash ls")
    rbd("trash ls -l")
    rbd(f"trash restore {trash_id()} --image back")
    rbd("ls")
    rbd("trash mv back --expires-at tomorrow")
    rbd(f"trash rm {trash_id()} --no-progress")
    rbd("trash purge --no-progress")
    rbd("trash ls")
    rbd(f"trash rm --force {trash_id()} --no-progress")
    rbd("trash ls")
    rbd("trash rm none")
    rbd("create --size 20M t2")
    rbd("trash mv t2")
    rbd("trash purge --no-progress")
    rbd("trash ls")

    rbd("create --size 20M g1")
    rbd("create --size 20M g2")
    for line in (
        "group create g", "group create g", "group ls", "group image add g g1", "group image add g g2",
        "group image add g g1", "group image ls g", "info g1", "rm --no-progress g1", "group rename g h", "group ls",
        "group image rm h g1", "group image rm h g1", "group image ls h", "group rm h", "group rm h", "group ls",
        "rm --no-progress g1", "rm --no-progress g2",
        "namespace create --namespace ns", "namespace create --namespace ns", "namespace ls",
        "create --size 10M --namespace ns inside", "ls", "ls --namespace ns", "info --namespace ns inside",
        "namespace rm --namespace ns", "rm --no-progress --namespace ns inside", "namespace rm --namespace ns",
        "namespace ls", "ls --namespace ns",
        "mirror pool info " + POOL, "mirror pool enable " + POOL + " image", "mirror pool info " + POOL,
        "mirror pool disable " + POOL,
    ):
        rbd(line)


def deep():
    make_file("deep", 10_000_000)
    rbd("import --no-progress @@deep d")
    rbd("deep cp --no-progress d e")
    rbd("deep cp --no-progress --object-size 1M d f")
    for image in ("e", "f"):
        rbd(f"export --no-progress {image} @@{image}")
        same("deep", image)
    for line in (
        "migration prepare d m --object-size 1M", "info d", "status m", "ls", "migration execute m --no-progress",
        "status m", "migration commit m --no-progress", "ls", "info m", "export --no-progress m @@m",
    ):
        rbd(line)
    same("deep", "m")
    rbd("migration prepare m n")
    rbd("migration abort n --no-progress")
    rbd("ls")
    for image in ("e", "f", "m"):
        rbd(f"rm --no-progress {image}")


def snapshots():
    make_file("s0", 10_000_000)
    make_file("s1", 10_000_000)
    rbd("import --no-progress @@s0 s")
    for line in (
        "snap create s@a", "snap create s@a", "snap ls s", "snap ls s --format json", "info s@a",
        "bench --io-type write --io-size 64K --io-total 1M --io-threads 1 s",
        "export --no-progress s@a @@a", "diff s@a", "diff --from-snap a s", "du s", "snap create s@b --no-progress",
        "du s", "diff --from-snap a s@b", "export-diff --no-progress --from-snap a s@b @@ab",
        "export --no-progress s@b @@b", "snap rename s@b s@c", "snap ls s",
        "snap limit set s --limit 2", "snap create s@d", "snap limit clear s",
        "snap rollback s@a --no-progress", "export --no-progress s @@rolled",
        "snap protect s@a", "snap protect s@a", "snap rm s@a --no-progress", "clone s@a kid", "info kid",
        "children s@a", "children s", "snap unprotect s@a", "export --no-progress kid @@kid",
        "bench --io-type write --io-size 4K --io-total 1M --io-threads 1 --io-pattern rand kid", "du kid",
        "flatten kid --no-progress", "info kid", "children s@a", "snap unprotect s@a", "snap rm s@a --no-progress",
        "clone s@c kid2", "clone s@c kid2 --rbd-default-clone-format 2", "info kid2", "children s", "snap rm s@c",
        "snap ls s --all", "flatten kid2 --no-progress", "snap ls s --all",
        "snap create s@x", "snap create s@y", "rm --no-progress s", "snap purge s --no-progress", "snap ls s",
    ):
        rbd(line)
    same("s0", "a")
    same("s0", "rolled")
    same("s0", "kid")
    rbd("import --no-progress @@s0 p")
    rbd("snap create p@a")
    rbd("import-diff --no-progress @@ab p")
    rbd("snap ls p")
    rbd("export --no-progress p@b @@pb")
    same("b", "pb")
    rbd("export --no-progress --export-format 2 p @@p2")
    rbd("import --no-progress --export-format 2 @@p2 q")
    rbd("snap ls q")
    rbd("deep cp --no-progress p r")
    rbd("snap ls r")
    rbd("export --no-progress r@a @@ra")
    same("s0", "ra")
    rbd("merge-diff --no-progress @@ab @@ab @@bad")
    for line in (
        "group create g", "group image add g p", "group image add g q", "group snap create g@one", "group snap ls g",
        "snap ls p", "snap ls p --all", "group snap rename g@one two", "group snap rollback g@two --no-progress",
        "group snap rm g@two", "group snap ls g", "group rm g",
    ):
        rbd(line)
    for image in ("kid", "kid2", "s", "p", "q", "r"):
        rbd(f"snap purge {image} --no-progress")
        rbd(f"rm --no-progress {image}")


def encryption():
    for kind in ("luks1", "luks2"):
        rbd("create --size 64M secret")
        with open(f"{FOLDER}/phrase", "w", encoding="ascii") as file:
            file.write("open sesame")
        rbd(f"encryption format secret {kind} @@phrase")
        rbd("info secret")
        rbd("rm --no-progress secret")


def settings():
    rbd("pool init " + POOL)
    rbd("config global set client rbd_cache_size 1048576")
    rbd("config global get client rbd_cache_size")
    rbd("config global get client rbd_nonsense")
    rbd("create --size 8M c")
    rbd("config image set c rbd_cache_size 1048576")
    rbd(f"config pool set {POOL} rbd_cache false")
    # Of a hundred lines, those that are not the defaults.
    for line in ("config image ls c", f"config pool ls {POOL}", "config global ls client"):
        listed = run(["rbd", *line.split()]).stdout.decode().splitlines()
        print(f"$ rbd {line}".replace(POOL, "POOL"))
        print("\n".join("  " + " ".join(row.split()) for row in listed if row.split()[-1:] in (["image"], ["pool"], ["client"])))
    rbd("config global rm client rbd_cache_size")
    rbd("config global rm client rbd_cache_size")
    rbd("config global get client rbd_cache_size")
    rbd("config image rm c rbd_cache_size")
    rbd(f"config pool rm {POOL} rbd_cache")
    rbd("image-meta set c key value")
    rbd("image-meta remove c key")
    rbd("persistent-cache flush c")
    rbd("persistent-cache invalidate c")
    rbd("trash move c")
    rbd("trash list")
    rbd("trash purge --no-progress")
    for line in ("device ls", "device map none", "device unmap none", "watch none"):
        rbd(line)


def journals():
    make_file("j", 3_000_000)
    rbd("import --no-progress --image-feature exclusive-lock,journaling @@j jo")
    rbd("bench --io-type write --io-size 4K --io-total 64K --io-threads 1 jo")
    rbd("journal export --image jo --path @@journal")  # without entries: all of them are in the image
    rbd("create --size 3000000B --image-feature exclusive-lock,journaling jp")
    rbd("journal import --path @@journal --dest jp")
    rbd("journal client disconnect --image jo")
    rbd("journal client disconnect --image jo --client-id none")
    rbd("rm --no-progress jo")
    rbd("rm --no-progress jp")


def mirroring():
    """As far as one cluster goes: nobody is there to mirror to."""
    rbd(f"mirror pool enable {POOL} image --site-name here")
    rbd(f"mirror pool info {POOL} --format json")
    rbd("create --size 8M m")
    rbd("create --size 8M --image-feature exclusive-lock,journaling mj")
    for line in (
        "mirror image enable m snapshot", "info m", "mirror image snapshot m", "snap ls m --all", "mirror image enable mj journal",
        "info mj", f"mirror pool status {POOL}", "mirror image demote m", "info m", "mirror image promote m", "mirror image promote m",
        "mirror image demote mj", "mirror image promote --force mj", "mirror image resync mj", "mirror image disable m",
        "mirror image disable m", f"mirror pool peer add {POOL} client.x@there", f"mirror pool peer add {POOL} client.x@there",
        f"mirror pool peer remove {POOL} nonsense", f"mirror pool demote {POOL}",
        f"mirror pool promote {POOL}", "mirror image disable mj",
    ):
        rbd(line)
    import_id = re.search(rb'"uuid":"([^"]+)"', run(["rbd", "mirror", "pool", "info", POOL, "--format", "json"]).stdout)
    if import_id:
        rbd(f"mirror pool peer set {POOL} {import_id[1].decode()} client client.y")
        rbd(f"mirror pool info {POOL}")
        rbd(f"mirror pool peer remove {POOL} {import_id[1].decode()}")
    rbd(f"mirror pool peer bootstrap import {POOL} @@none")
    rbd("rm --no-progress m")
    rbd("rm --no-progress mj")
    rbd(f"mirror pool disable {POOL}")


def main(*parts):
    wanted = [part for part in sys.argv[2:] if not part.startswith("--")]
    try:
        for part in parts:
            if not wanted or part.__name__ in wanted:
                print(f"--- {part.__name__}")
                part()
        rbd("ls")
        rados("ls")
    finally:
        subprocess.run(["rm", "-rf", FOLDER], check=True)


if __name__ == "__main__":
    main(everyday, contents, layouts, features, trash_and_groups, deep, snapshots, encryption, settings, journals, mirroring)
