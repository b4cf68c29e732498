#!/bin/bash
# Records data/osdmap-ranges.txt: a real monitor's OSD maps while networks are fenced and let in again.
# Usage: record-ranges.sh CEPH_CONF MON_STORE
# A cluster must be running whose monitor has its store at MON_STORE (.../store.db); a copy of that is read.
set -eu
export CEPH_CONF=$1
out=$(dirname "$0")/data/osdmap-ranges.txt
epoch() { ceph osd dump -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["epoch"])'; }

ceph osd blocklist clear
first=$(epoch)
ceph osd blocklist add 10.0.0.1:0/7
ceph osd blocklist range add 10.1.2.0/24
ceph osd blocklist range add 10.1.0.0/16 50
ceph osd blocklist range add fe80::/64
ceph osd blocklist range rm 10.1.2.0/24
last=$(epoch)
copy=$(mktemp -d)
cp -r "$2" "$copy/store"
ceph osd blocklist clear
get() { ceph-kvstore-tool rocksdb "$copy/store" get osdmap "$1" out "$copy/map" >/dev/null 2>&1 && xxd -p -c 0 "$copy/map"; }
{
    echo "# OSD maps with fenced networks: the first in full, each change, the last in full."
    echo "# Recorded from Ceph 16.2.15 by record-ranges.sh. Lines: label<TAB>hex"
    printf 'full %s\t%s\n' "$first" "$(get "full_$first")"
    for ((e = first + 1; e <= last; e++)); do printf 'inc %s\t%s\n' $e "$(get $e)"; done
    printf 'full %s\t%s\n' "$last" "$(get "full_$last")"
} >"$out"
rm -r "$copy"
