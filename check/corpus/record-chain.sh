#!/bin/bash
# Records data/osdmap-chain.txt: a real monitor's OSD map history, while everything that an
# incremental can say is said. Usage: record-chain.sh CEPH_CONF MON_STORE
# A cluster of at least 6 OSDs must be running; it is changed, and its monitor must run on this
# machine with its store at MON_STORE (.../store.db). The monitor is stopped at the end.
set -u
export CEPH_CONF=$1
store=$2
out=$(dirname "$0")/data/osdmap-chain.txt

# Snapshots of single objects, before OSDs are disturbed: these commands do I/O.
ceph osd pool create images 8 8
timeout 60 rbd pool init images
timeout 60 rbd create images/disk --size 16M
for snap in 1 2 3 4; do timeout 60 rbd snap create --no-progress images/disk@$snap; done
for snap in 1 2 4; do timeout 60 rbd snap rm --no-progress images/disk@$snap; done

# One command after the other, each in an epoch of its own.
while read -r line; do
    [ -n "$line" ] && { ceph $line || echo "failed: ceph $line" >&2; }
done <<'COMMANDS'
osd pool create upmapped 32 32
osd pool application enable upmapped rados
osd set-require-min-compat-client luminous
osd erasure-code-profile set k2m1 k=2 m=1 crush-failure-domain=osd
osd pool create ec 16 16 erasure k2m1
osd pool set ec allow_ec_overwrites true
osd pool mksnap rbd first
osd pool mksnap rbd second
osd pool rmsnap rbd first
osd pool set rbd min_size 1
osd pool set rbd recovery_priority 5
osd pool set rbd target_size_ratio 0.25
osd pool set rbd compression_algorithm zstd
osd pool set-quota upmapped max_bytes 1000000000
osd pool application set upmapped rados key value
osd pool rename upmapped renamed
osd pool set renamed pg_num 40
osd pool set renamed nodelete true
osd set noout
osd set pause
osd unset pause
osd set-nearfull-ratio 0.8
osd set-full-ratio 0.96
osd set-backfillfull-ratio 0.91
osd set-group noout 5
osd unset-group noout 5
osd crush add-bucket rack1 rack
osd crush move rack1 root=default
osd crush add-bucket host-a host
osd crush move host-a rack=rack1
osd set-group noin,nodown host-a
osd unset-group noin host-a
osd crush rm-device-class 3 4
osd crush set-device-class slow 3 4
osd set-group noup slow
osd unset-group noup slow
osd crush rule create-replicated slow-rule default osd slow
osd crush reweight osd.2 0.5
osd reweight 1 0.75
osd primary-affinity 0 0.5
osd primary-affinity 1 0
osd out 2
osd in 2
osd blocklist add 10.1.2.3:0/77
osd blocklist add 10.1.2.4
osd blocklist add 10.1.2.5:6800/1 3600
osd blocklist add [fd00::1]:0/9
osd blocklist rm 10.1.2.4
osd blocklist rm 10.1.2.5:6800/1
osd down 4
osd pool create gone 8 8
osd pool delete gone gone --yes-i-really-really-mean-it
osd unset noout
osd setmaxosd 9
osd new 11111111-2222-3333-4444-555555555555 8
osd destroy 8 --yes-i-really-mean-it
osd purge 8 --yes-i-really-mean-it
osd setmaxosd 7
osd erasure-code-profile set gone k=2 m=2
osd erasure-code-profile rm gone
osd require-osd-release pacific
COMMANDS
id=$(ceph osd pool ls detail -f json | python3 -c 'import json,sys; print([p["pool_id"] for p in json.load(sys.stdin) if p["pool_name"]=="renamed"][0])')
ceph osd pg-upmap-items $id.1 0 1 2 3
ceph osd pg-upmap-items $id.2 0 5
ceph osd pg-upmap $id.3 3 4 5
ceph osd pg-upmap $id.4 5 4 0
ceph osd rm-pg-upmap $id.3
ceph osd rm-pg-upmap-items $id.2
ceph osd pg-temp $id.5 1 2 3
ceph osd primary-temp $id.6 5
ceph osd pool set renamed pg_num 36
sleep 5

last=$(ceph osd dump -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["epoch"])')
mgr=$(ceph mgr dump -f json | python3 -c 'import json,sys; print(json.load(sys.stdin)["epoch"])')
ceph mon getmap -o /tmp/monmap.$$ 2>/dev/null
kill "$(cat "$(ceph-conf -c "$CEPH_CONF" --name mon.a --show-config-value pid_file)")"
sleep 3
get() { ceph-kvstore-tool rocksdb "$store" get "$1" "$2" out /tmp/chain.$$ >/dev/null 2>&1 && xxd -p -c 0 /tmp/chain.$$; }
{
    echo "# A monitor's OSD maps: the first in full, each change, the last in full."
    echo "# Recorded from Ceph 16.2.15 by record-chain.sh. Lines: label<TAB>hex"
    printf 'full 1\t%s\n' "$(get osdmap full_1)"
    for ((e = 2; e <= last; e++)); do printf 'inc %s\t%s\n' $e "$(get osdmap $e)"; done
    printf 'full %s\t%s\n' "$last" "$(get osdmap full_$last)"
} >"$out"
printf '# A real cluster'"'"'s MonMap and its last MgrMap. Lines: label<TAB>hex\nmonmap\t%s\nmgrmap\t%s\n' \
    "$(xxd -p -c 0 /tmp/monmap.$$)" "$(get mgr "$mgr")" >"$(dirname "$0")/data/monmap-mgrmap.txt"
rm -f /tmp/chain.$$ /tmp/monmap.$$
