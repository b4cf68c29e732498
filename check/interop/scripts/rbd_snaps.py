#!/usr/bin/env python3
"""Snapshots, clones, differences, groups and migration with the stock `rbd`, with everything that
comes back printed but for ids and times. Argument: a new pool."""
import hashlib
import os
import re
import subprocess
import sys
import tempfile

from ids import without_ids

POOL = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="rbd-snaps-")
# Without what librbd logs: it comes between the lines, and into them, now here and now there.
ENVIRONMENT = dict(os.environ, CEPH_ARGS=os.environ.get("CEPH_ARGS", "") + " --log-to-stderr=false --err-to-stderr=false")


def plain(text):
    text = text.replace(FOLDER, "FOLDER").replace(POOL, "POOL")
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID", text)
    text = without_ids(text)
    text = re.sub(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ [0-9:]{8} \d{4}", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.]+(Z|\+\d+)?", "TIME", text)
    text = re.sub(r"\d+ +\.group\.\S+", "ID GROUP", text)
    return re.sub(r" +", " ", text)


def rbd(line, data=None):
    done = subprocess.run(["timeout", "100", "rbd", "--rbd-default-pool", POOL, *line.replace("@@", POOL + "/").split()],
                          env=ENVIRONMENT, capture_output=True, input=data)
    print("$ rbd", plain(line))
    for out in (done.stdout, done.stderr):
        for text in plain(out.decode("utf-8", "replace")).splitlines():
            # No progress.
            text = re.sub(r".*\d+% complete\.\.\.", "", text)
            if text.strip() and not text.startswith("TIME") and not re.fullmatch(r"[A-Z][A-Za-z -]+: *", text):
                print("  ", text.rstrip())
    print("   code", done.returncode, flush=True)
    return done.stdout


def digest(image):
    out = subprocess.run(["timeout", "100", "rbd", "--rbd-default-pool", POOL, "export", image, "-"],
                         capture_output=True)
    data = out.stdout
    print("  =", image, len(data), hashlib.sha256(data).hexdigest()[:12] if out.returncode == 0 else out.returncode,
          flush=True)
    return data


def write(image, offset, length, byte):
    code = f"write -P {byte} {offset} {length}"
    done = subprocess.run(["qemu-io", "-f", "raw", "-c", code, f"rbd:{POOL}/{image}:conf={os.environ['CEPH_CONF']}"],
                          capture_output=True, text=True)
    print(f"$ write {image} {offset} {length} {byte}:", done.returncode, flush=True)


def discard(image, offset, length):
    done = subprocess.run(["qemu-io", "-f", "raw", "-d", "unmap", "-c", f"discard {offset} {length}",
                           f"rbd:{POOL}/{image}:conf={os.environ['CEPH_CONF']}"], capture_output=True, text=True)
    print(f"$ discard {image} {offset} {length}:", done.returncode, flush=True)


def everyday():
    rbd("create --size 24M one")
    write("one", 0, 65536, 1)
    write("one", 5 << 20, 4096, 2)
    rbd("snap create one@a")
    rbd("snap create one@a")
    rbd("snap ls one --format json")
    write("one", 4096, 8192, 3)
    discard("one", 4 << 20, 4 << 20)
    write("one", 20 << 20, 1 << 20, 4)
    rbd("snap create one@b")
    rbd("resize --size 40M one")
    write("one", 39 << 20, 4096, 5)
    for spec in ("one", "one@a", "one@b"):
        digest(spec)
    rbd("info one@a")
    rbd("du one")
    rbd("du --exact one")
    for options in ("", "--whole-object"):
        for what in ("one", "--from-snap a one", "--from-snap b one", "--from-snap a one@b"):
            rbd(f"diff {options} {what} --format json")
    rbd("snap rename one@b @@one@c")
    rbd("snap protect one@a")
    rbd("snap protect one@a")
    rbd("snap rm one@a")
    rbd("snap unprotect one@c")
    rbd("snap limit set --limit 2 one")
    rbd("snap create one@d")
    rbd("snap limit clear one")
    rbd("snap create one@d")
    rbd("snap rollback one@a")
    digest("one")
    rbd("info one")
    rbd("snap rollback one@d")
    digest("one")
    rbd("object-map check one")
    rbd("object-map check one@a")


def clones():
    rbd("clone one@c @@early")
    rbd("clone one@a @@v1")
    digest("v1")
    write("v1", 0, 4096, 9)
    rbd("snap create v1@s")
    write("v1", 8192, 4096, 10)
    digest("v1")
    digest("v1@s")
    rbd("children one@a")
    rbd("children one")
    rbd("info v1")
    rbd("snap unprotect one@a")
    rbd("diff v1 --format json")
    rbd("clone --rbd-default-clone-format 2 one@c @@v2")
    write("v2", 1 << 20, 4096, 11)
    rbd("snap rm one@c")
    rbd("snap ls --all one")
    digest("v2")
    rbd("children --all one")
    rbd("flatten v2")
    rbd("snap ls --all one")
    digest("v2")
    rbd("deep cp v1 @@deep")
    digest("deep")
    digest("deep@s")
    rbd("snap ls deep")
    rbd("flatten v1")
    rbd("children one@a")
    rbd("snap unprotect one@a")
    digest("v1@s")
    rbd("cp one@a @@copy")
    digest("copy")


def differences():
    rbd("snap ls one")
    rbd(f"export-diff one@a {FOLDER}/base")
    rbd(f"export-diff --from-snap a one@d {FOLDER}/more")
    rbd(f"export-diff --from-snap d one {FOLDER}/last")
    rbd(f"merge-diff {FOLDER}/base {FOLDER}/more {FOLDER}/merged")
    rbd("create --size 24M import")
    rbd(f"import-diff {FOLDER}/base import")
    rbd(f"import-diff {FOLDER}/more import")
    rbd(f"import-diff {FOLDER}/last import")
    for spec in ("import", "import@a", "import@d"):
        digest(spec)
    rbd("create --size 24M other")
    rbd(f"import-diff {FOLDER}/more other")
    rbd(f"import-diff {FOLDER}/merged other")
    digest("other@d")
    rbd("export --export-format 2 one " + FOLDER + "/whole")
    rbd("import --export-format 2 " + FOLDER + "/whole @@again")
    digest("again@d")
    rbd("snap ls again")


def groups():
    rbd("group create g")
    rbd("group image add g one")
    rbd("group image add g import")
    rbd("group snap create g@s")
    rbd("group snap ls g")
    rbd("snap ls --all one")
    write("one", 0, 4096, 77)
    digest("one")
    rbd("group snap rollback g@s")
    digest("one")
    rbd("group snap rename @@g@s t")
    rbd("group snap rm g@t")
    rbd("snap ls --all one")
    rbd("group image rm g one")
    rbd("group rm g")


def ends():
    rbd("snap create early-not@x")
    rbd("rm one")
    rbd("snap rm v1@s")
    rbd("snap purge deep")
    rbd("snap purge import")
    for image in ("v1", "v2", "deep", "import", "copy"):
        rbd(f"rm {image}")
    rbd("snap create other@x")
    rbd("trash mv other")
    rbd("trash ls")
    rbd("trash purge")
    rbd("migration prepare one @@moved")
    rbd("migration execute moved")
    rbd("migration commit moved")
    digest("moved")
    digest("moved@d")
    rbd("snap ls moved")
    rbd("ls")
    rbd("snap purge moved")
    rbd("rm moved")
    rbd("ls -l")


everyday()
clones()
differences()
groups()
ends()
subprocess.run(["rm", "-rf", FOLDER], check=False)
