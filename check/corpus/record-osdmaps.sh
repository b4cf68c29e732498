#!/bin/bash
# Records data/placement/: where Ceph's osdmaptool places every group of the maps that
# tests/placement.rs makes. Needs osdmaptool 16.2; our own encoder writes the maps that it judges,
# since it cannot set temporary placements or affinities itself.
cd "$(dirname "$0")/../.." && mkdir -p check/corpus/data/placement &&
    UPDATE=1 cargo test -p nacre-corpus --test placement every_map_places_as_ceph_recorded
