"""How fast a pool of two copies gets a third one while no client is there. Says so in one line of JSON."""
import argparse
import json
import time

import rados

from cluster_state import ask, fill_objects, is_clean, memory_mib, wait_clean

parser = argparse.ArgumentParser()
parser.add_argument("--pool", required=True)
parser.add_argument("--folder", required=True, help="the cluster's, to find its processes")
parser.add_argument("--objects", type=int, default=512)
parser.add_argument("--object-size", type=int, default=4 << 20)
parser.add_argument("--within", type=float, default=600, help="seconds")
options = parser.parse_args()

cluster = rados.Rados(conffile="")
cluster.connect()


def degraded():
    return ask(cluster, "status")["pgmap"].get("degraded_objects", 0)


def recovered():
    """MiB, as the OSDs count them now: the monitors hear of it some time later."""
    total = 0
    for osd in osds:
        errno, said, why = cluster.osd_command(osd, json.dumps({"prefix": "perf dump"}), b"", timeout=60)
        assert errno == 0, why
        total += json.loads(said)["osd"]["recovery_bytes"]
    return total / 2**20


ask(cluster, "osd pool set", pool=options.pool, var="size", val="2")
with cluster.open_ioctx(options.pool) as io:
    fill_objects(io, options.objects, options.object_size)
assert wait_clean(cluster, 120), "a pool of two copies does not become clean"

osds = [one["osd"] for one in ask(cluster, "osd dump")["osds"]]
before = recovered()
begun = time.monotonic()
ask(cluster, "osd pool set", pool=options.pool, var="size", val="3")
total = options.objects * options.object_size / 2**20
done = []  # (seconds, MiB)
while not done or done[-1][1] < total or not is_clean(cluster):
    assert time.monotonic() - begun < options.within, f"{degraded()} objects lack a copy after {options.within} s"
    done.append((time.monotonic() - begun, recovered() - before))
    time.sleep(0.4)  # to count takes the OSDs time, too
seconds = time.monotonic() - begun
# Without its beginning, when groups agree on who has them, and its end, when some have done.
first = next(one for one in done if one[1] >= total * 0.1)
last = next(one for one in done if one[1] >= total * 0.9)
print(json.dumps({
    "mib_copied": round(total),
    "seconds_to_clean": round(seconds, 2),
    "mib_per_second": round((last[1] - first[1]) / max(0.1, last[0] - first[0]), 1),
    "rss_mib_most": round(memory_mib(options.folder)[1]),
}))
