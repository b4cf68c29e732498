#!/usr/bin/env python3
"""What `images.py` leaves out of the stock `rbd` command: names, errors, forms of output, differences merged, imports in
parts, purging by age, schedules, watching, devices. Arguments as there."""
import json
import re
import signal
import subprocess
import time

from images import ENVIRONMENT, FOLDER, POOL, main, make_file, rbd, run, same


def each(*lines):
    for line in lines:
        rbd(line)


def names():
    """Where an image is, said in all ways, and names that are none."""
    each(f"create {POOL}/a --size 1M", "create --pool none --image b --size 1M", f"create --pool {POOL} --image b --size 1M",
         "create c@s --size 1M", "create c/d/e/f --size 1M", "create --size 1M", "create d --size -1", "create d --size 1X", "create d --size 1.5M",
         "create d --size 0", "create e --size 1G --thick-provision --no-progress --object-size 4M --size 8M", "create f --size 1T --order 12",
         "create g --size 1M --image-feature nosuch", "create g --size 1M --image-feature layering --image-feature exclusive-lock",
         "create g --size 1M --order 5", "create h/i --size 1M", "create --namespace none j --size 1M", "create \u00e4 --size 1M",
         f"info {POOL}//a", f"info {POOL}/a@none", "info --image a", f"info {POOL}/none/a", "info --image-id nosuch", "info",
         "info a b", "info a --nosuch", "nosuch", "info a --format xml", "info a --format json --pretty-format", "info a --format nosuch",
         "ls --format xml", "ls -l --format json", "ls none", f"ls {POOL}/none", "ls --pool none -l", "status none", "status a --format json",
         "du none", "du --pool none", "du a@none", "resize none --size 1M", "resize a", "resize a --size 1M --no-progress",
         "rm none", "rm a@s", "mv a", "mv a a", f"mv a {POOL}/z", f"mv {POOL}/z none/z", "rename z a", "cp a a", "cp none x", "cp a none/x", "cp a@none x",
         "cp --no-progress a x", "deep cp --no-progress a x", "deep cp --no-progress none y", "deep cp --no-progress a@none y", "rm --no-progress x")
    for image in ("a", "b", "d", "e", "f", "g", "\u00e4"):
        rbd(f"rm --no-progress {image}")
    rbd("ls")


def features():
    each("create --size 8M f --image-feature layering,exclusive-lock,object-map,fast-diff,deep-flatten",
         "feature disable f exclusive-lock,object-map,fast-diff", "feature disable f exclusive-lock object-map fast-diff", "info f",
         "feature enable f object-map,exclusive-lock", "feature enable f striping", "feature enable f data-pool", "feature enable f migrating",
         "feature enable f journaling --journal-splay-width 8 --journal-object-size 1M", "journal info f", "journal info f --format json",
         "journal status f", "feature enable f deep-flatten", "feature enable none journaling", "feature enable f", "feature disable none layering",
         "image-meta set f a 1", "image-meta set f \u00e4 \u00f6", "image-meta ls f", "image-meta get none a", "image-meta set none a 1", "image-meta rm none a",
         "image-meta set f conf_rbd_cache false", "image-meta ls f", "config image get f rbd_cache", "config image ls none",
         "object-map rebuild f@none", "object-map rebuild f --no-progress", "object-map check f --no-progress", "object-map check none",
         "snap create f@s --no-progress", "object-map rebuild f@s --no-progress", "object-map check f@s --no-progress", "feature disable f journaling",
         "feature disable f object-map", "object-map rebuild f", "object-map check f", "snap rm f@s --no-progress", "rm --no-progress f")


def parts():
    """Contents in parts: exports and imports of all kinds, differences put together."""
    make_file("m", 12_000_000)
    make_file("n", 12_000_000)
    each("import --no-progress @@m p", "snap create p@one --no-progress",
         "bench --io-type write --io-size 32K --io-total 1M --io-threads 1 --io-pattern full-seq p", "snap create p@two --no-progress",
         "bench --io-type write --io-size 8K --io-total 128K --io-threads 1 p", "resize p --size 16M --no-progress",
         "export-diff --no-progress p@one @@0-1", "export-diff --no-progress --from-snap one p@two @@1-2", "export-diff --no-progress --from-snap two p @@2-h",
         "export-diff --no-progress p @@0-h", "export-diff --no-progress --whole-object --from-snap one p@two @@1-2w",
         "export-diff --from-snap none p @@x", "export-diff --from-snap two p@one @@x", "export-diff none @@x", "export-diff p@two /nosuch/x",
         "merge-diff --no-progress @@0-1 @@1-2 @@0-2", "merge-diff --no-progress @@0-2 @@2-h @@0-hm", "merge-diff --no-progress @@1-2 @@0-1 @@x",
         "merge-diff --no-progress @@none @@0-1 @@x", "merge-diff --no-progress @@m @@0-1 @@x", "merge-diff",
         "create --size 1M q", "import-diff --no-progress @@1-2 q", "import-diff --no-progress @@0-2 q", "snap ls q", "import-diff --no-progress @@0-2 q",
         "import-diff --no-progress @@2-h q", "info q", "export --no-progress q @@qh", "export --no-progress p @@ph", "export --no-progress q@two @@q2",
         "export --no-progress p@two @@p2", "import-diff @@none q", "import-diff @@m q", "import-diff @@0-1 none",
         "create --size 1M r", "import-diff --no-progress @@0-hm r", "export --no-progress r @@rh",
         "create --size 1M s", "import-diff --no-progress --sparse-size 64K @@0-1 s", "import-diff --no-progress @@1-2w s", "export --no-progress s@two @@s2")
    for one, other in (("ph", "qh"), ("p2", "q2"), ("ph", "rh"), ("p2", "s2")):
        same(one, other)
    each("export p - --export-format 3", "export p /nosuch/x", "export none @@x", "export p@none @@x", "export --no-progress p@one @@one.v2 --export-format 2",
         "export --no-progress p @@all.v2 --export-format 2", "import --no-progress @@one.v2 t --export-format 2", "snap ls t", "info t",
         "import --no-progress @@all.v2 u --export-format 2", "snap ls u", "export --no-progress u@one @@u1", "export --no-progress p@one @@p1",
         "import --no-progress @@m v --export-format 2", "import @@none v", "import --no-progress @@m p", "import @@m", "import /nosuch/x", "import --no-progress @@m",
         "rm --no-progress m", "import --no-progress @@m w --sparse-size 4K --object-size 1M", "export --no-progress w @@w", "du w", "du --format json w",
         "import --no-progress @@m x --sparse-size 3000", "import --no-progress @@m y --stripe-unit 64K --stripe-count 3", "export --no-progress y @@y",
         "sparsify y --sparse-size 64K --no-progress", "sparsify y --sparse-size 5 --no-progress", "sparsify none", "export --no-progress y @@y2")
    for one, other in (("p1", "u1"), ("m", "w"), ("m", "y"), ("m", "y2")):
        same(one, other)
    rbd("import --no-progress - z --export-format 2", given=b"not of that form, and long enough to be read as its head")
    rbd("import --no-progress - zz", given=b"")
    for image in ("p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "zz"):
        run(["rbd", "snap", "purge", "--no-progress", image])
        rbd(f"rm --no-progress {image}")


def bench():
    rbd("create --size 8M b")
    for kind in ("write", "read", "readwrite", "rw"):
        for pattern in ("seq", "rand", "full-seq"):
            rbd(f"bench --io-type {kind} --io-pattern {pattern} --io-size 16K --io-total 256K --io-threads 2 b")
    each("bench --io-type rw --rw-mix-read 30 --io-size 4K --io-total 64K b", "bench --io-type rw --rw-mix-read 200 b", "bench --io-type nosuch b",
         "bench b", "bench --io-type write --io-size 0 b", "bench --io-type write --io-size 1G --io-total 1M b", "bench --io-type write --io-pattern nosuch b",
         "bench --io-type write none", "bench --io-type read --io-size 4K --io-total 16K --io-threads 0 b", "bench-write b --io-size 4K --io-total 16K",
         "rm --no-progress b")


def snapshots():
    each("create --size 8M s", "snap create s", "snap create s@", "snap create none@a", "snap create s@a/b", "snap create s@\u00e4 --no-progress",
         "snap create s@a --skip-quiesce --no-progress", "snap create s@b --ignore-quiesce-error --no-progress", "snap ls none", "snap ls s@a", "snap ls s",
         "snap ls s --format xml", "snap rename s@a s@b", "snap rename s@none s@c", "snap rename s@a t@c", "snap rename s@a s@c", "snap rollback s",
         "snap rollback s@none", "snap protect s@none", "snap unprotect s@c", "snap protect s@c", "snap purge s --no-progress", "snap rm s@c --no-progress",
         "snap rm s@c --force --no-progress", "snap ls s", "snap rm s@none --no-progress", "snap rm s@b --snap-id 77", "snap rm s --snap-id 7777",
         "snap unprotect s@c", "snap limit set s", "snap limit set s --limit -1", "snap limit set s --limit 1", "snap limit set none --limit 1",
         "snap limit clear s", "snap limit clear none", "snap purge s --no-progress", "snap purge none", "snap purge s --no-progress",
         "snap create s@p --no-progress", "clone s@p k", "snap protect s@p", "clone s@p k", "clone s@p k", "clone s@none k2", "clone s k2", "clone none@p k2",
         "clone s@p none/k2", "clone s@p k2 --object-size 64K --stripe-unit 16K --stripe-count 2", "info k2", "clone s@p k3 --image-feature layering",
         "info k3", "children s@p", "children s@p --format json", "children s --all", "children s@none", "children none", "children --snap-id 7777 s",
         "clone k@none k4", "snap create k@q --no-progress", "clone --rbd-default-clone-format 2 k@q k4", "info k4 --format json", "children s --descendants",
         "children s@p --descendants --format json", "snap rm k@q --no-progress", "children k --all", "trash mv k", "trash mv k4", "children s@p", "children s@p --all",
         "trash ls", "flatten s", "flatten none", "flatten s@p", "flatten k2 --no-progress", "flatten k3 --no-progress", "flatten k3 --no-progress",
         "trash ls --all", "trash ls --all --long", "trash purge --no-progress", "trash ls", "trash purge --no-progress", "trash ls",
         "snap unprotect s@p", "snap rm s@p --no-progress")
    for image in ("k2", "k3", "s"):
        rbd(f"rm --no-progress {image}")


def trash():
    def ids():
        listed = run(["rbd", "trash", "ls", "--format", "json"]).stdout
        return {row["name"]: row["id"] for row in json.loads(listed)}

    for name in ("a", "b", "c", "d"):
        rbd(f"create --size 1M {name}")
    each("trash mv none", "trash mv a --expires-at nonsense", "trash mv a --expires-at 2001-01-01", "trash mv a --expires-at now",
         "trash mv b --expires-at 2090-01-01", "trash mv c --expires-at 1_week", "trash ls --format json", "trash ls --long --format json")
    for name, identity in sorted(ids().items()):
        rbd(f"trash restore {identity} --image d")
        rbd(f"trash restore --image-id {identity} --image back-{name}")
        rbd(f"trash mv back-{name} --expires-at tomorrow")
        rbd(f"trash rm {identity} --no-progress")
    each("trash restore none", "trash restore", "trash rm", "trash purge --expired-before 2001-01-01 --no-progress", "trash ls",
         "trash purge --expired-before nonsense --no-progress", "trash purge --threshold 0.5 --no-progress", "trash purge --threshold 2 --no-progress",
         "trash purge --expired-before 2100-01-01 --no-progress", "trash ls", "trash purge --pool none", f"trash purge {POOL} --no-progress", "trash ls none",
         "rm --no-progress d")
    for identity in ids().values():
        run(["rbd", "trash", "rm", "--force", identity])


def groups():
    each("namespace create ns", f"namespace create {POOL}/ns", f"namespace create --pool {POOL} --namespace n2", "namespace create", "namespace create none/ns", "namespace ls --format json",
         f"namespace ls {POOL}", "namespace ls none", "namespace rm none", "create --size 1M one", "create --size 1M --namespace ns one", "create --size 1M two",
         "group create", "group create a/b/c/d", "group create g", "group create --namespace ns g", "group ls --format json", "group ls --namespace ns", "group ls none",
         "group image add g none", "group image add none one", "group image add g one", f"group image add --group-namespace ns --group g --image one --image-namespace ns",
         "group image add g one", f"group image add {POOL}/g {POOL}/two", "group image ls g --format json", "group image ls none", f"group image ls {POOL}/ns/g",
         "group snap create g", "group snap create none@s", "group snap create g@s --skip-quiesce", "group snap create g@s", "group snap ls g --format json",
         "group snap ls none", "group snap rename g@s none", "group snap rename g@none t", "group snap create g@t", "group snap rename g@s t", "group snap rollback g@nosuch",
         "group snap rollback g@t --no-progress", "group snap rm g@nosuch", "group snap rm g@none", "group snap ls g", "snap ls one --all", "snap rm one@none",
         "group image rm g nosuch", "group image rm g one", "group image ls g", "group snap ls g", "group rename g none/g", "group rename none h", "group rename g h",
         "group rm h", "group rm none", f"group rm {POOL}/ns/g", "rm --no-progress one", "rm --no-progress two", f"namespace rm {POOL}/ns", f"rm --no-progress {POOL}/ns/one",
         f"group rm {POOL}/ns/g", f"namespace rm {POOL}/ns", f"namespace rm {POOL}/n2", "namespace ls", "snap ls one --all")


def settings():
    each("config global get global rbd_cache", "config global set global rbd_cache_size 2097152", "config global get global rbd_cache_size",
         "config global ls nosuch", "config global set nosuch rbd_cache 1", "config global set global debug_ms 1", "config global set global nosuch 1",
         "config global rm global rbd_cache_size", "config global rm client.nosuch rbd_cache_size", "config pool get none rbd_cache", "config pool set none rbd_cache 1",
         f"config pool get {POOL} rbd_cache", f"config pool set {POOL} nosuch 1", f"config pool set {POOL} rbd_cache nonsense",
         f"config pool set {POOL} rbd_qos_iops_limit 1000", f"config pool get {POOL} rbd_qos_iops_limit", f"config pool rm {POOL} rbd_qos_iops_limit",
         f"config pool rm {POOL} rbd_qos_iops_limit", "create --size 1M c", "config image set c rbd_qos_bps_limit 1M", "config image get c rbd_qos_bps_limit",
         "config image rm c nosuch", "config image get c nosuch", "config image get none rbd_cache", "image-meta ls c", "config image rm c rbd_qos_bps_limit",
         "pool init none", f"pool init {POOL} --force", "pool init", "pool stats none", f"pool stats {POOL} --format json", "rm --no-progress c")


def locks():
    each("create --size 1M l", "lock add l", "lock add none x", "lock ls none", "lock rm none x client.1", "lock rm l x nonsense", "lock add l \u00e4_x",
         "lock ls l --format json")
    row = json.loads(run(["rbd", "lock", "ls", "l", "--format", "json"]).stdout)
    for lock in row if isinstance(row, list) else row.values():
        rbd(f"lock rm l {lock['id']} {lock['locker']}")
    each("lock ls l --format json", "rm --no-progress l", "lock ls l")


def watched():
    """`rbd watch` and `rbd status` of each other."""
    rbd("create --size 1M w")
    watcher = subprocess.Popen(["rbd", "watch", "w"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while b"watcher=" not in run(["rbd", "status", "w"]).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
    each("status w", "rm --no-progress w", "snap create w@a --no-progress", "resize w --size 2M --no-progress")
    time.sleep(1)
    watcher.send_signal(signal.SIGINT)
    time.sleep(1)
    watcher.kill()
    said = watcher.communicate()[0].decode(errors="replace")
    print("heard of:", sorted(set(re.findall(r"notify_op=(\w+)", said))))
    each("snap rm w@a --no-progress", "watch none", "watch")
    deadline = time.monotonic() + 60
    while b"watcher=" in run(["rbd", "status", "w"]).stdout and time.monotonic() < deadline:
        time.sleep(0.5)
    rbd("rm --no-progress w")


def migration():
    each("create --size 8M m", "bench --io-type write --io-size 64K --io-total 1M --io-threads 1 m", "snap create m@s --no-progress", "migration status m",
         "migration prepare none n", "migration prepare m none/n", "migration execute m", "migration commit m", "migration abort m",
         "migration prepare m n --object-size 1M --image-feature layering,exclusive-lock", "migration prepare m o", "status n", "status m", "trash ls --all", "trash mv n",
         "snap create n@t --no-progress", "snap ls n", "bench --io-type write --io-size 64K --io-total 1M --io-threads 1 n", "migration commit n --no-progress",
         "migration execute n --no-progress", "migration execute n --no-progress", "status n --format json", "migration abort n --no-progress", "ls", "info n", "info m",
         "snap purge m --no-progress", "snap ls m", f"namespace create {POOL}/ns")
    each(f"migration prepare m {POOL}/ns/m", f"migration execute {POOL}/ns/m --no-progress", f"migration commit {POOL}/ns/m --no-progress", "ls", "ls --namespace ns",
         f"info {POOL}/ns/m", f"rm --no-progress {POOL}/ns/m", f"namespace rm {POOL}/ns")
    make_file("raw", 3_000_000)
    spec = json.dumps({"type": "raw", "stream": {"type": "file", "file_path": f"{FOLDER}/raw"}}, separators=(",", ":"))
    with open(f"{FOLDER}/spec", "w", encoding="ascii") as file:
        file.write(spec)
    each("migration prepare --import-only --source-spec-path @@spec i", "info i", "status i", "export --no-progress i @@i", "migration execute i --no-progress",
         "migration commit i --no-progress", "export --no-progress i @@i2", "migration prepare --import-only --source-spec-path @@none i2",
         "migration prepare --import-only --source-spec nonsense i2", "migration prepare --import-only i2", "rm --no-progress i")
    same("raw", "i")
    same("raw", "i2")


def encryption():
    for name in ("phrase", "other"):
        with open(f"{FOLDER}/{name}", "w", encoding="ascii") as file:
            file.write(name)
    each("create --size 64M e", "encryption format e", "encryption format e nosuch @@phrase", "encryption format e luks2", "encryption format e luks2 @@none",
         "encryption format none luks2 @@phrase", "encryption format e luks1 @@phrase --cipher-alg aes-128", "encryption format e luks2 @@phrase --cipher-alg aes-256",
         "encryption format e luks2 @@phrase --cipher-alg nosuch", "create --size 1M tiny", "encryption format tiny luks2 @@phrase", "encryption format tiny luks1 @@phrase",
         "snap create e@s --no-progress", "encryption format e@s luks2 @@phrase", "snap purge e --no-progress", "rm --no-progress e", "rm --no-progress tiny")


def devices():
    each("device ls --device-type nbd", "device ls --device-type nosuch", "device map none --device-type nbd", "device map none --device-type krbd", "device unmap /dev/nosuch",
         "device unmap --device-type nbd /dev/nosuch", "showmapped", "map none", "unmap none", "device attach none --device /dev/nbd9 --device-type nbd",
         "device detach none --device-type nbd")


def mirroring():
    each("mirror pool info", "mirror pool info none", f"mirror pool enable {POOL} nosuch", "mirror pool enable none image", f"mirror pool status {POOL}", f"mirror pool disable {POOL}",
         f"mirror pool enable {POOL} pool", f"mirror pool enable {POOL} pool", "create --size 8M m --image-feature exclusive-lock,journaling", "create --size 8M n",
         "info m", "mirror image status m", "mirror image status n", "mirror image status none", f"mirror pool status {POOL}", f"mirror pool status {POOL} --verbose",
         f"mirror pool status {POOL} --format json", "mirror image enable m", "mirror image disable m", "mirror image demote m", "mirror image promote m", f"mirror pool info {POOL} --all",
         f"mirror pool enable {POOL} image", f"mirror pool info {POOL}", "mirror image enable n snapshot", "mirror image enable n journal", "mirror image snapshot n", "mirror image snapshot none",
         "mirror image snapshot m", "snap ls n --all", "mirror image enable none snapshot", "mirror image enable n nosuch", "mirror image demote none", "mirror image promote none",
         "mirror image resync none", "mirror image resync n", "mirror image disable none", "mirror image disable --force n", "mirror image disable m", f"mirror pool disable {POOL}",
         f"mirror pool disable {POOL}", "mirror pool disable none", f"mirror pool peer add {POOL} client.x@there", "mirror pool promote none", "mirror pool demote none",
         f"mirror pool peer bootstrap create {POOL}", "rm --no-progress m", "rm --no-progress n")


def schedules():
    each("trash purge schedule ls", "trash purge schedule add 1d", "trash purge schedule add 2h 2021-01-01T00:30", "trash purge schedule ls", "trash purge schedule ls --format json",
         "trash purge schedule ls --recursive", "trash purge schedule rm 1d", "trash purge schedule ls", "trash purge schedule rm", "trash purge schedule ls", "trash purge schedule rm",
         f"trash purge schedule add --pool {POOL} nonsense", f"trash purge schedule add --pool {POOL} 90x",
         "trash purge schedule add --pool none 1d", "trash purge schedule add --namespace none 1d", "trash purge schedule add", "trash purge schedule status",
         "trash purge schedule add 7m", "trash purge schedule add 7m", "trash purge schedule rm 8m", "trash purge schedule rm 7m",
         "mirror snapshot schedule ls", "mirror snapshot schedule add 1d", f"mirror snapshot schedule add --pool {POOL} 3h", "mirror snapshot schedule ls --recursive",
         f"mirror snapshot schedule ls --pool {POOL} --format json", f"mirror snapshot schedule rm --pool {POOL} 3h", f"mirror snapshot schedule add --pool {POOL} --image none 3h",
         "create --size 1M x", f"namespace create {POOL}/ns", f"mirror snapshot schedule add --pool {POOL} --image x 3h",
         f"mirror snapshot schedule add --pool {POOL} --namespace ns 3h", f"mirror snapshot schedule add --pool {POOL} --namespace nosuch 3h",
         f"mirror snapshot schedule ls --pool {POOL} --image x", f"mirror pool enable {POOL} image", f"mirror snapshot schedule add --pool {POOL} --image x 3h",
         f"mirror pool disable {POOL}", f"namespace rm {POOL}/ns", "rm --no-progress x",
         "mirror snapshot schedule add --pool none 3h", "mirror snapshot schedule status", "mirror snapshot schedule rm", "mirror snapshot schedule ls --recursive")


def figures():
    each("perf image iostat --iterations 1 --sort-by nosuch")


if __name__ == "__main__":
    main(names, features, parts, bench, snapshots, trash, groups, settings, locks, watched, migration, encryption, devices, mirroring, schedules, figures)
