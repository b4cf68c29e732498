#!/bin/sh
# Makes a small Linux in the folder given: kernel, initramfs (which finds the disk) and disk.img, the
# disk that it boots from. Of Debian's packages: the cloud kernel, which is not installed, and busybox.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
mkdir -p "$folder/initramfs/bin" "$folder/initramfs/dev" "$folder/initramfs/proc" \
    "$folder/initramfs/root" "$folder/root/bin" "$folder/root/sbin" "$folder/root/dev" "$folder/root/proc" \
    "$folder/root/data"
cd "$folder"
"$here/kernel.sh" .
modules="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk"
for module in $modules; do
    find package/lib/modules -name "$module.ko" -exec cp {} initramfs/ \;
done
cp /bin/busybox initramfs/bin/
cp /bin/busybox root/bin/
cat > initramfs/init <<END
#!/bin/busybox sh
for module in $modules; do /bin/busybox insmod /\$module.ko; done
/bin/busybox mount -t devtmpfs none /dev
while ! /bin/busybox test -b /dev/vda; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /sbin/init
END
chmod +x initramfs/init
cp "$here/init" root/sbin/init
chmod +x root/sbin/init
(cd initramfs && find . | cpio --quiet -o -H newc | gzip -1 > ../initramfs.gz)
mkfs.ext4 -q -d root disk.img 64M
