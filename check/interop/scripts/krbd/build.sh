#!/bin/sh
# Makes initramfs.gz in the folder given, where guest/kernel.sh has put a kernel: busybox, the kernel's clients
# for images and files, and the network that they need.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
rm -rf initramfs
mkdir -p initramfs/bin initramfs/dev initramfs/proc initramfs/sys initramfs/mnt
cp /bin/busybox initramfs/bin/
# In the order of their dependencies.
modules="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover
    virtio_net libcrc32c gcm libceph rbd netfs fscache ceph"
for module in $modules; do
    find package/lib/modules -name "$module.ko" -exec cp {} initramfs/ \;
    echo "$module" >> initramfs/modules
done
cp "$here/init" initramfs/init
chmod +x initramfs/init
(cd initramfs && find . | cpio --quiet -o -H newc | gzip -1 > ../initramfs.gz)
