#!/usr/bin/python3
"""Asks two clusters all that only reads, in every format, and shows where the bytes of the answers differ.

Arguments: the configuration files of both, a real Ceph's first. With TWINS_POOL=erasure or =overwrites in the
environment both get an erasure-coded pool `coded`, of which the same is asked as of `rbd`. Numbers, times, sizes and
addresses may differ. Beside what `state_twins.py` compares, the line feeds at the end count, whether the output is one line,
and the paths of XML elements."""
import re
import sys

import state_twins
from state_twins import Twins, differences

# What each cluster has of its own, before numbers hide it.
state_twins.SHAPES[:0] = [
    (r"A[A-Za-z0-9+/]{37}==", "KEY"),
    (r"ceph version [^\n\"]*\(stable\)( nacre-[0-9.]+)?", "VERSION"),
    (r"\b(hdd|ssd)\b", "CLASS"),
]

FORMATS = (None, "plain", "json", "json-pretty", "xml", "xml-pretty", "yaml")
COMMANDS = """health; health detail; status; versions; version; features; fsid; service dump;
service status; node ls; node ls mon; node ls osd; node ls mgr; df; df detail; mon dump; mon stat;
mon versions; mon metadata; mon metadata a; mon feature ls; mon feature ls --with-value;
mon count-metadata hostname; mon ok-to-stop a; osd count-metadata hostname; quorum_status; mgr dump;
mgr stat; mgr module ls; mgr services; mgr versions; mgr metadata; mgr count-metadata hostname; fs ls;
fs dump; mds stat; mds versions; mds metadata; log last 5; log last 5 debug audit; osd stat; osd dump;
osd tree; osd tree up; osd tree-from default; osd ls; osd ls-tree default; osd getmaxosd; osd find 0;
osd info; osd info 0; osd metadata; osd metadata 0; osd versions; osd perf; osd df; osd df tree;
osd blocked-by; osd pool stats; osd pool stats rbd; osd pool ls; osd pool ls detail; osd lspools;
osd pool get rbd all; osd pool get rbd size; osd pool get-quota rbd; osd pool application get;
osd pool application get rbd; osd pool autoscale-status; osd crush tree; osd crush dump;
osd crush rule ls; osd crush rule dump; osd crush rule dump replicated_rule; osd crush class ls;
osd crush show-tunables; osd crush get-tunable straw_calc_version; osd crush ls default;
osd crush get-device-class 0; osd crush weight-set ls; osd crush weight-set dump;
osd erasure-code-profile ls; osd erasure-code-profile get default; osd get-require-min-compat-client;
osd blocklist ls; osd numa-status; osd utilization; osd map rbd foo; osd last-stat-seq 0;
osd safe-to-destroy 0; osd ok-to-stop 0; osd status; pg stat; pg dump; pg dump summary; pg dump sum;
pg dump osds; pg dump pools; pg dump pgs_brief; pg dump pgs; pg dump_json; pg dump_pools_json;
pg dump_stuck; pg ls; pg ls-by-pool rbd; pg ls-by-osd 0; pg ls-by-primary 0; pg map 1.0;
pg debug unfound_objects_exist; config dump; config get osd.0; config get osd.0 osd_max_backfills;
config ls; config log; config show osd.0; config show osd.0 osd_max_backfills;
config help osd_max_backfills; config generate-minimal-conf; config-key ls; config-key dump;
config-key exists foo; auth ls; auth export client.admin; auth get client.admin;
auth get-key client.admin; auth print-key client.admin; crash ls; crash ls-new; crash stat;
balancer status; balancer eval; balancer ls; progress; progress json; device ls;
osd test-reweight-by-utilization; osd test-reweight-by-pg; rbd task list; time-sync-status;
osd tier add rbd rbd"""


def form(text):
    """What `shape` and the comparison of values do not see."""
    found = [f"{len(text) - len(text.rstrip(chr(10)))} line feeds at the end" if text else "nothing"]
    found.append("one line" if text.rstrip("\n").count("\n") == 0 else "several lines")
    return ", ".join(found)


def xml_paths(text):
    """Element paths, with data in place of hosts and versions left out."""
    paths, open_ = set(), []
    for tag in re.findall(r"<(/?[^<>]+)>", text):
        if tag.startswith("/"):
            open_ = open_[:-1]
        else:
            open_.append(re.sub(r"ceph_version_.*|\d+", "N", tag))
            paths.add("/".join(open_))
    return paths


def compare(twins, line, format_):
    ceph, nacre = twins.both(lambda side: side.ask(line, format_))
    found = []
    if form(ceph[1]) != form(nacre[1]):
        found.append(f"  {form(ceph[1])} | {form(nacre[1])}")
    if format_ in ("xml", "xml-pretty") and ceph[1].startswith("<") and nacre[1].startswith("<"):
        one, other = xml_paths(ceph[1]), xml_paths(nacre[1])
        above = lambda path, of: path.rpartition("/")[0] in of
        found += [f"  - {path}" for path in sorted(one - other) if above(path, other)][:10]
        found += [f"  + {path}" for path in sorted(other - one) if above(path, one)][:10]
    else:
        found += differences(ceph, nacre)
    return found


if __name__ == "__main__":
    twins = Twins(*sys.argv[1:3])
    twins.make_coded()
    lines = [line for line in map(str.strip, COMMANDS.replace("\n", " ").split(";")) if line]
    if state_twins.KIND != "replicated":
        lines += [re.sub(r"\brbd\b", "coded", line) for line in lines if re.search(r"\brbd\b(?! task)", line)]
        lines += ["osd erasure-code-profile get coded", "osd crush rule dump coded"]
    asked = differed = 0
    for line in lines:
        seen = {}
        for format_ in FORMATS:
            asked += 1
            found = compare(twins, line, format_)
            if found:
                differed += 1
                seen.setdefault("\n".join(found), []).append(str(format_))
        for text, formats in seen.items():
            print(f"{line} ({', '.join(formats)})\n{text}", flush=True)
    print(f"{asked} answers, {differed} differ")
