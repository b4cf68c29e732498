#!/bin/bash
# Records what Ceph says of erasure code profiles: `record-erasure.sh > core/erasure/testdata/profiles.txt`.
# Needs ceph-erasure-code-tool (Debian: ceph-base). For each profile a line with the profile, then either
# `error: LINE|LINE`, or the counts of all and of data chunks and, for objects of 1 byte, 4096 bytes times k,
# and 1,000,000 bytes, the size of a chunk.
set -u
quiet=$(mktemp) && trap 'rm -f "$quiet"' EXIT
tool() {
    timeout 5 ceph-erasure-code-tool --conf /dev/null --log-file /dev/null --crash-dir /nonexistent "$@" \
        2>"$quiet"
}
ask() {
    echo "profile: $1"
    counts=$(tool validate-profile "$1" 2>/dev/null | sed -n 's/^[a-z_]*chunk_count: \([0-9][0-9]*\)$/\1/p')
    error=$(sed -n '/^invalid profile: /,$p' "$quiet" |
        sed '/^usage:/,$d; /^$/d; s/^invalid profile: \(load: [a-z]* \)*//' | paste -sd'|')
    set -- "$1" $counts
    if [ $# -lt 3 ]; then
        echo "error: $error"
        return
    fi
    sizes=
    for size in 1 $(($3 * 4096)) 1000000; do
        sizes="$sizes $(tool calc-chunk-size "$1" "$size" 2>/dev/null | tail -1)"
    done
    echo "chunks: $2 $3 sizes:$sizes"
}
each() {
    while read -r profile; do
        [ -z "$profile" ] || ask "$profile"
    done
}
{
    for technique in reed_sol_van reed_sol_r6_op cauchy_orig cauchy_good liberation blaum_roth liber8tion; do
        for rest in "" k=2,m=1 k=2,m=2 k=4,m=2 k=5,m=3 k=8,m=3 k=10,m=4 k=1,m=1 k=0,m=1 k=2,m=0 k=-3,m=2 \
            k=x k=2,m=y \
            k=200,m=100 k=4,m=2,w=4 k=4,m=2,w=5 k=4,m=2,w=6 k=4,m=2,w=7 k=4,m=2,w=8 k=4,m=2,w=16 \
            k=4,m=2,w=32 \
            k=4,m=2,w=11 k=9,m=2 k=7,m=2,packetsize=0 k=4,m=2,packetsize=1000 k=4,m=2,packetsize=1001 \
            k=4,m=2,packetsize=32 k=4,m=2,jerasure-per-chunk-alignment=true k=4,m=2,mapping=DD_DD_ \
            k=4,m=2,mapping=DD_; do
            echo "plugin=jerasure,technique=$technique${rest:+,$rest}"
        done
    done
    for technique in "" reed_sol_van cauchy; do
        for rest in "" k=2,m=1 k=2,m=2 k=4,m=2 k=5,m=3 k=8,m=3 k=4,m=4 k=4,m=5 k=21,m=4 k=22,m=4 k=32,m=3 \
            k=33,m=2 k=1,m=1 k=0,m=1 k=2,m=0 k=x k=4,m=2,w=9 k=100,m=10 k=4,m=2,mapping=DDDD_; do
            echo "plugin=isa${technique:+,technique=$technique}${rest:+,$rest}"
        done
    done
    for rest in k=4,m=2,l=3 k=8,m=4,l=3 k=8,m=4,l=6 k=2,m=2,l=2 k=4,m=2,l=4 k=4,m=2 k=4,l=3 m=2,l=3 \
            k=4,m=2,l=0 \
        k=5,m=4,l=3 k=4,m=5,l=3 k=6,m=3,l=9 k=4,m=2,l=3,mapping=DDDD____ k=4,m=2,l=x k=1,m=1,l=1 k=0,m=0,l=1 \
        k=-1,m=-1,l=-1 ""; do
        echo "plugin=lrc${rest:+,$rest}"
    done
    for rest in "" k=4,m=2 k=8,m=3,d=10 k=8,m=3 k=8,m=4,d=11 k=8,m=4,d=9 k=4,m=2,d=7 k=4,m=2,d=3 \
            k=4,m=2,d=4 k=2,m=1 \
        k=2,m=2 k=1,m=1 k=4,m=2,scalar_mds=isa k=4,m=2,scalar_mds=shec k=4,m=2,scalar_mds=foo \
        k=4,m=2,technique=cauchy_good k=4,m=2,technique=foo k=4,m=2,scalar_mds=isa,technique=cauchy \
        k=4,m=2,scalar_mds=isa,technique=cauchy_good k=4,m=2,scalar_mds=shec,technique=single k=200,m=60 \
            k=x; do
        echo "plugin=clay${rest:+,$rest}"
    done
    for technique in foo ""; do
        echo "plugin=jerasure,technique=$technique"
        echo "plugin=isa,technique=$technique,k=2,m=1"
    done
} | each
