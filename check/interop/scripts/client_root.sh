#!/bin/sh
# Unpacks Ceph's clients of another suite of Debian, with all that they need, into FOLDER/root. Packages are
# not configured, which programs that are only run do not need. A folder that has a root stays as it is.
#   client_root.sh SUITE FOLDER
# Exit status 3: apt uses no mirror of Debian, or one that does not serve the suite.
set -eu
suite=$1
folder=$2
test ! -e "$folder/made" || exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
cd "$folder"

mirror_of_apt() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        grep -v security | head -n 1
}
mirror=$(mirror_of_apt)
if test -z "$mirror"; then
    # A machine may have no package lists.
    apt-get -q -o APT::Update::Error-Mode=any update
    mirror=$(mirror_of_apt)
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
test -n "$mirror" || exit 3
echo "deb [signed-by=$keys] $mirror $suite main" > apt/sources.list
: > apt/status
# An apt of its own, on which nothing is installed.
apt_get() {
    apt-get -q -o Dir::Etc::sourcelist="$PWD/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State="$PWD/apt/state" -o Dir::State::status="$PWD/apt/status" \
        -o Dir::Cache="$PWD/apt/cache" \
        -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
if ! said=$(LC_ALL=C apt_get -o APT::Update::Error-Mode=any update 2>&1); then
    echo "$said" >&2
    # What apt says of a mirror that answers. One that cannot be reached is a failure.
    case $said in
        *"does not have a Release file"*) exit 3 ;;
        *) exit 1 ;;
    esac
fi
apt_get install --yes --download-only base-files coreutils ceph-common python3-rados python3-rbd

# First the one with the links from /bin to /usr/bin.
for package in apt/cache/archives/base-files_*.deb apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" root
done
rm -rf apt
touch made
