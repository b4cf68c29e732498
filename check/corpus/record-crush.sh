#!/bin/bash
# Records what Ceph's crushtool answers for a set of maps, as check/corpus/data/crush/*.txt:
#   map HEX
#   test RULE SIZE POOL WEIGHTS     POOL -1: x is hashed as it is; WEIGHTS: dev=weight,... or -
#   X ITEM,ITEM,...                 one line per input
# Needs crushtool (Debian: ceph-base). The tests read only the recorded files.
set -euo pipefail
cd "$(dirname "$0")"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
out=${1:-data/crush}; mkdir -p "$out"

# build NAME OSDS LAYER...: a map by layers, to $tmp/NAME.txt
build() {
    local name=$1 osds=$2; shift 2
    crushtool -o "$tmp/b" --build --num_osds "$osds" "$@" >/dev/null 2>&1
    crushtool -d "$tmp/b" -o "$tmp/$name.txt"
}
# rule NAME ID TYPE STEP...: appends a rule
rule() {
    local name=$1 id=$2 type=$3; shift 3
    { echo "rule r$id {"; echo " id $id"; echo " type $type"; echo " min_size 1"; echo " max_size 20"
      printf ' step %s\n' "$@"; echo "}"; } >>"$tmp/$name.txt"
}
# compile NAME [CRUSHTOOL OPTION...]: to $tmp/NAME.map, and starts the record
compile() {
    local name=$1; shift
    crushtool -c "$tmp/$name.txt" -o "$tmp/$name.map" --enable-unsafe-tunables
    if [ $# -gt 0 ]; then crushtool -i "$tmp/$name.map" -o "$tmp/$name.map" --enable-unsafe-tunables "$@"; fi
    record "$name"
}
record() {
    local name=$1
    echo "map $(od -An -v -tx1 "$tmp/$name.map" | tr -d ' \n')" >"$out/$name.txt"
}
# ask NAME RULE SIZE POOL WEIGHTS XS
ask() {
    local name=$1 rule=$2 size=$3 pool=$4 weights=$5 xs=$6 w=()
    if [ "$weights" != - ]; then
        for pair in ${weights//,/ }; do w+=(--weight "${pair%=*}" "${pair#*=}"); done
    fi
    [ "$pool" = -1 ] || w+=(--pool-id "$pool")
    echo "test $rule $size $pool $weights" >>"$out/$name.txt"
    crushtool -i "$tmp/$name.map" --test --show-mappings --rule "$rule" --num-rep "$size" \
        --min-x 0 --max-x $((xs - 1)) "${w[@]}" 2>&1 |
        sed -n 's/^CRUSH rule [0-9]* x \([0-9]*\) \[\(.*\)\]$/\1 \2/p' >>"$out/$name.txt"
}
# the rules that every layered map gets, by what they search for
rules() {
    local name=$1 root=$2
    rule "$name" 1 replicated "take $root" "chooseleaf firstn 0 type host" emit
    rule "$name" 2 erasure "set_chooseleaf_tries 5" "set_choose_tries 100" "take $root" "chooseleaf indep 0 type host" emit
    rule "$name" 3 replicated "take $root" "choose firstn 0 type osd" emit
    rule "$name" 4 erasure "take $root" "choose indep 0 type osd" emit
}
asks() {
    local name=$1 xs=$2 weights=$3
    ask "$name" 1 3 -1 - "$xs"
    ask "$name" 1 4 5 "$weights" "$xs"
    ask "$name" 2 6 -1 "$weights" "$xs"
    ask "$name" 3 3 -1 "$weights" "$xs"
    ask "$name" 4 5 7 "$weights" "$xs"
}

build one 1 host straw2 1 root straw2 0
rules one root; compile one
ask one 1 3 -1 - 5; ask one 2 3 -1 - 5; ask one 1 1 -1 0=0.5 20

some=0=0,1=0.5,5=0.25,7=0.9
for alg in straw2 straw list tree uniform; do
    build "$alg" 24 host $alg 4 root $alg 0
    rules "$alg" root; compile "$alg"
    asks "$alg" 60 $some

    # The same hardware as a cluster of 2011 would have it: local retries, other recursion.
    cp "$tmp/$alg.txt" "$tmp/$alg-legacy.txt"
    compile "$alg-legacy" --set-choose-local-tries 2 --set-choose-local-fallback-tries 5 \
        --set-choose-total-tries 19 --set-chooseleaf-descend-once 0 --set-chooseleaf-vary-r 0 --set-chooseleaf-stable 0
    asks "$alg-legacy" 40 $some,8=0,9=0,10=0,11=0
done

build racks 120 host straw2 4 rack straw2 5 root straw2 0
rules racks root
rule racks 5 replicated "take root" "choose firstn 2 type rack" "chooseleaf firstn 2 type host" emit
rule racks 6 erasure "take root" "choose indep 3 type rack" "chooseleaf indep 2 type host" emit
rule racks 7 replicated "take rack0" "chooseleaf firstn 1 type host" emit "take rack1" "chooseleaf firstn -1 type host" emit
rule racks 8 erasure "take root" "chooseleaf indep 0 type rack" emit
rule racks 9 replicated "set_choose_local_tries 3" "set_choose_local_fallback_tries 2" "set_chooseleaf_vary_r 3" \
    "set_chooseleaf_stable 0" "set_chooseleaf_tries 2" "take root" "chooseleaf firstn 0 type rack" emit
compile racks
asks racks 40 0=0,1=0,2=0,3=0,10=0.5,11=0.1,60=0.3
for r in 5 6 7 8 9; do ask racks $r 6 -1 0=0,1=0,2=0,3=0,4=0.5,20=0.5,21=0,40=0.25 40; done

build uneven 40 host straw2 7 rack straw2 3 root straw2 0
awk '/item osd\./ { split($2, a, "."); $4 = sprintf("%.3f", (a[2] * 37 % 11) / 4) } { print }' "$tmp/uneven.txt" >"$tmp/u" && mv "$tmp/u" "$tmp/uneven.txt"
rules uneven root; compile uneven --reweight
asks uneven 50 3=0.5,4=0

build mixed 60 host straw 5 rack list 3 root uniform 0
rules mixed root; compile mixed
asks mixed 40 0=0,7=0.5

for vary in 0 1; do
    build "unstable-$vary" 30 host straw2 3 root straw2 0
    rules "unstable-$vary" root
    compile "unstable-$vary" --set-chooseleaf-stable 0 --set-chooseleaf-vary-r $vary --set-choose-total-tries 10
    asks "unstable-$vary" 40 0=0,1=0,2=0,3=0,4=0,5=0,9=0.3
done

build thousand 1000 host straw2 20 rack straw2 10 root straw2 0
rules thousand root; compile thousand
asks thousand 25 0=0,999=0.5,500=0.5

# Device classes, empty and absent places, and other weights and ids for some pools.
cat >"$tmp/classes.txt" <<'MAP'
tunable choose_local_tries 0
tunable choose_local_fallback_tries 0
tunable choose_total_tries 50
tunable chooseleaf_descend_once 1
tunable chooseleaf_vary_r 1
tunable chooseleaf_stable 1
tunable straw_calc_version 1
tunable allowed_bucket_algs 54
MAP
{
    for i in $(seq 0 15); do echo "device $i osd.$i class $([ $((i % 3)) = 0 ] && echo ssd || echo hdd)"; done
    echo "type 0 osd"; echo "type 1 host"; echo "type 2 root"
    for h in 0 1 2 3 4; do
        echo "host h$h {"; echo " id -$((h + 2))"; echo " alg straw2"; echo " hash 0"
        for i in 0 1 2 3; do [ $h = 4 ] || echo " item osd.$((h * 4 + i)) weight $((i + 1)).500"; done
        echo "}"
    done
    echo "root default {"; echo " id -1"; echo " alg straw2"; echo " hash 0"
    for h in 0 1 2 3 4; do echo " item h$h weight $([ $h = 4 ] && echo 0 || echo 12.000)"; done
    echo "}"
} >>"$tmp/classes.txt"
rule classes 1 replicated "take default class hdd" "chooseleaf firstn 0 type host" emit
rule classes 2 erasure "set_chooseleaf_tries 5" "set_choose_tries 100" "take default class ssd" "chooseleaf indep 0 type host" emit
rule classes 3 replicated "take default" "chooseleaf firstn 0 type host" emit
rule classes 4 replicated "take default class ssd" "chooseleaf firstn 1 type host" emit \
    "take default class hdd" "chooseleaf firstn -1 type host" emit
cp "$tmp/classes.txt" "$tmp/default-set.txt"
# crushtool asks for the set of pool 0, whatever pool it is told.
cat >>"$tmp/classes.txt" <<'MAP'
choose_args 0 {
  { bucket_id -1 weight_set [ [ 0 2 3 4 0 ] ] ids [ -20 -21 -22 -23 -24 ] }
}
choose_args 6 {
  { bucket_id -2 weight_set [ [ 1 0 0 0 ] ] }
}
MAP
compile classes
cat >>"$tmp/default-set.txt" <<'MAP'
choose_args 1234567 {
  { bucket_id -1 weight_set [ [ 1 2 3 4 0 ] [ 4 3 2 1 0 ] ] }
  { bucket_id -2 weight_set [ [ 3 0.5 1 1 ] ] }
}
choose_args 6 {
  { bucket_id -2 weight_set [ [ 1 0 0 0 ] ] }
}
MAP
# The text form cannot name the default set, -1: rename one in the map, and let crushtool sort them.
crushtool -c "$tmp/default-set.txt" -o "$tmp/c"
LC_ALL=C perl -0pe 's/\x87\xd6\x12\0{5}/"\xff" x 8/e' "$tmp/c" >"$tmp/default-set.map"
crushtool -i "$tmp/default-set.map" -o "$tmp/default-set.map" --set-choose-total-tries 50
record default-set
for name in classes default-set; do
    for r in 1 2 3 4; do
        ask $name $r 3 -1 - 40
        ask $name $r 4 6 1=0.5,3=0,4=0 40
    done
done
du -cb "$out"/*.txt | tail -1
