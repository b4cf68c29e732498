#!/bin/sh
# Runs a program of another root, which sees this machine's devices, processes, network and temporary files.
#   in_root.sh ROOT PROGRAM [ARGUMENT...]
set -eu
exec unshare --mount sh -euc '
    root=$1
    shift
    for folder in /dev /proc "${TMPDIR:-/tmp}"; do
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
    done
    exec chroot "$root" "$@"
' sh "$@"
