#!/bin/sh
# Records in testdata/ what the scripts of transcripts say of a real Ceph (16.2).
# Run with CEPH_CONF naming the configuration of one that may be written to and may delete pools.
# `auth` expects that it knows nobody yet, as one with `auth_cluster_required = none` does.
set -eu
cd "$(dirname "$0")"
for script in librados librados_rest rados_tool python_rados python_rbd snaps rbd_snaps images images_more tasks commands config auth; do
    pool="record-$script"
    ceph osd pool create "$pool" 8
    ceph osd pool create "$pool-data" 8
    case $script in images|images_more|tasks|python_rbd) rbd pool init "$pool";; esac
    /usr/bin/python3 "scripts/$script.py" "$pool" --reference > "testdata/$script.txt"
    for each in "$pool" "$pool-data"; do
        ceph osd pool rm "$each" "$each" --yes-i-really-really-mean-it
    done
done
