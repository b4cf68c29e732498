#!/bin/sh
# Puts Debian's cloud kernel, which is not installed, into the folder given: `vmlinuz`, and its modules below
# `package`. A folder that has it stays as it is.
set -eu
folder=$1
test ! -e "$folder/vmlinuz" || exit 0
mkdir -p "$folder/package"
cd "$folder/package"
# A machine may have no package lists.
apt-cache show linux-image-cloud-amd64 > /dev/null 2>&1 || apt-get -q update
kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
apt-get -q download "$kernel"
dpkg-deb -x ./"$kernel"_*.deb .
rm ./*.deb
# Last: it shows that all is there.
cp boot/vmlinuz-* ../vmlinuz.new
mv ../vmlinuz.new ../vmlinuz
