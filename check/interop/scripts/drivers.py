#!/usr/bin/env python3
"""The calls that Cinder, Glance, Nova, Proxmox and ceph-csi make of librbd and of the commands, in
the order in which a volume's life brings them. Argument: a pool for images."""
import errno
import json
import os
import subprocess
import sys
import tempfile
import time

import rados
import rbd

POOL = sys.argv[1]
GIB = 1 << 30


def command(line, fails=False):
    done = subprocess.run(["timeout", "60", *line.split()], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, f"{line}: {done.returncode} {done.stdout} {done.stderr}"
    return done.stderr if fails else done.stdout


def parsed(line):
    return json.loads(command(line + " --format json"))


def glance(io):
    """An image is stored, and kept as a protected snapshot that volumes are clones of."""
    features = rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
    rbd.RBD().create(io, "image", 0, 23, old_format=False, features=features)
    content = os.urandom(1 << 20)
    with rbd.Image(io, "image") as image:
        for turn in range(8):  # it does not know the size before
            image.resize((turn + 1) << 20)
            image.write(content, turn << 20)
        image.create_snap("snap")
        image.protect_snap("snap")
    with rbd.Image(io, "image", snapshot="snap", read_only=True) as image:
        assert image.size() == 8 << 20 and image.stat()["obj_size"] == 8 << 20
        assert image.read(3 << 20, 1 << 20) == content
    return content


def cinder(cluster, io, content):
    """A volume out of an image, grown, renamed, snapshot, cloned, flattened, backed up and deleted."""
    stats = cluster.get_cluster_stats()
    assert stats["kb_avail"] > 0
    code, out, _ = cluster.mon_command(json.dumps({"prefix": "df", "format": "json"}), b"")
    pools = {pool["name"]: pool["stats"] for pool in json.loads(out)["pools"]}
    assert code == 0 and pools[POOL]["max_avail"] > GIB and "stored" in pools[POOL]
    code, out, _ = cluster.mon_command(json.dumps(
        {"prefix": "osd pool get-quota", "pool": POOL, "format": "json"}), b"")
    assert code == 0 and json.loads(out)["quota_max_bytes"] == 0
    assert len(cluster.get_fsid()) == 36
    addresses = parsed("ceph mon dump")["mons"]
    assert all(mon["public_addrs"]["addrvec"][0]["addr"] for mon in addresses)

    api = rbd.RBD()
    assert "rbd" in io.application_list() and io.get_pool_name() == POOL
    api.clone(io, "image", "snap", io, "volume-1", features=rbd.RBD_FEATURE_LAYERING)
    with rbd.Image(io, "volume-1") as volume:
        volume.resize(GIB)
        assert volume.parent_info()[1:] == ("image", "snap")
        assert volume.read(0, 1 << 20) == content
        volume.write(b"mine", 512)
        volume.create_snap("snapshot-1")
        volume.protect_snap("snapshot-1")
        assert volume.is_protected_snap("snapshot-1")
        assert [snap["name"] for snap in volume.list_snaps()] == ["snapshot-1"]
    api.clone(io, "volume-1", "snapshot-1", io, "volume-2", features=rbd.RBD_FEATURE_LAYERING)
    with rbd.Image(io, "volume-1") as volume:
        volume.set_snap("snapshot-1")
        assert list(volume.list_children()) == [(POOL, "volume-2")]
        volume.set_snap(None)
        try:
            volume.unprotect_snap("snapshot-1")
        except rbd.ImageBusy:
            pass
        else:
            raise AssertionError("a snapshot with a clone was unprotected")
    with rbd.Image(io, "volume-2") as volume:
        volume.flatten()
        assert volume.read(512, 4) == b"mine" and volume.read(1 << 20, 1 << 20) == content
        try:
            volume.parent_info()
        except rbd.ImageNotFound:
            pass
        else:
            raise AssertionError("what is flat has no parent")
    with rbd.Image(io, "volume-1") as volume:
        volume.write(b"newer", 512)
        volume.rollback_to_snap("snapshot-1")
        assert volume.read(512, 5)[:4] == b"mine"
        used = 0

        def count(_offset, length, exists):
            nonlocal used
            used += length if exists else 0

        volume.diff_iterate(0, volume.size(), None, count)
        assert 0 < used < GIB
        volume.unprotect_snap("snapshot-1")
        volume.remove_snap("snapshot-1")
    api.rename(io, "volume-1", "volume-1.deleted")
    api.remove(io, "volume-1.deleted")
    # A backup: a full one, and then what changed.
    with tempfile.TemporaryDirectory(prefix="nacre-drivers-") as folder:
        command(f"rbd snap create {POOL}/volume-2@backup.1")
        command(f"rbd export-diff --no-progress {POOL}/volume-2@backup.1 {folder}/full")
        with rbd.Image(io, "volume-2") as volume:
            volume.write(b"changed", 700 << 20)
        command(f"rbd snap create {POOL}/volume-2@backup.2")
        command(f"rbd export-diff --no-progress --from-snap backup.1 {POOL}/volume-2@backup.2 {folder}/more")
        assert os.path.getsize(f"{folder}/more") < 5 << 20
        command(f"rbd create --size 1G {POOL}/backup")
        command(f"rbd import-diff --no-progress {folder}/full {POOL}/backup")
        command(f"rbd import-diff --no-progress {folder}/more {POOL}/backup")
    with rbd.Image(io, "backup") as one, rbd.Image(io, "volume-2") as other:
        for at in (0, 1 << 20, 700 << 20):
            assert one.read(at, 4096) == other.read(at, 4096)
    for name in ("backup", "volume-2"):
        command(f"rbd snap purge --no-progress {POOL}/{name}")
        api.remove(io, name)


def nova(io):
    """A root disk: a clone that is grown, its statistics, a snapshot of the instance, rescue and removal."""
    command(f"rbd clone {POOL}/image@snap {POOL}/instance_disk")
    command(f"rbd resize --no-progress --size 2G {POOL}/instance_disk")
    assert parsed(f"rbd info {POOL}/instance_disk")["size"] == 2 * GIB
    assert parsed(f"rbd status {POOL}/instance_disk") == {"watchers": []}
    with rbd.Image(io, "instance_disk") as image:
        watchers = list(image.watchers_list())
        assert len(watchers) == 1, watchers  # ourselves
        image.create_snap("nova-snap")
        image.protect_snap("nova-snap")
    rbd.RBD().clone(io, "instance_disk", "nova-snap", io, "copy", features=rbd.RBD_FEATURE_LAYERING)
    with rbd.Image(io, "copy") as image:
        image.flatten()
    with rbd.Image(io, "instance_disk") as image:
        image.unprotect_snap("nova-snap")
        image.remove_snap("nova-snap")
    for name in ("copy", "instance_disk"):
        rbd.RBD().remove(io, name)


def proxmox():
    """Everything by the command line, parsed as JSON."""
    listed = parsed(f"rbd ls -l {POOL}")
    assert {"image": "image", "size": 8 << 20, "format": 2} in [
        {key: row[key] for key in ("image", "size", "format")} for row in listed], listed
    command(f"rbd create {POOL}/vm-100-disk-0 --size 1024 --image-format 2")
    command(f"qemu-img info rbd:{POOL}/vm-100-disk-0:conf={os.environ['CEPH_CONF']}")
    command(f"rbd snap create {POOL}/vm-100-disk-0@before")
    assert parsed(f"rbd snap ls {POOL}/vm-100-disk-0")[0]["name"] == "before"
    command(f"rbd snap rollback --no-progress {POOL}/vm-100-disk-0@before")
    command(f"rbd snap protect {POOL}/vm-100-disk-0@before")
    command(f"rbd clone {POOL}/vm-100-disk-0@before {POOL}/vm-101-disk-0")
    assert parsed(f"rbd children {POOL}/vm-100-disk-0@before")[0]["image"] == "vm-101-disk-0"
    command(f"rbd flatten --no-progress {POOL}/vm-101-disk-0")
    command(f"rbd snap unprotect {POOL}/vm-100-disk-0@before")
    command(f"rbd snap purge --no-progress {POOL}/vm-100-disk-0")
    command(f"rbd resize --no-progress --size 2048 {POOL}/vm-100-disk-0")
    assert parsed("ceph df")["pools"] and parsed("ceph osd pool ls detail")
    for name in ("vm-100-disk-0", "vm-101-disk-0"):
        command(f"rbd rm --no-progress {POOL}/{name}")


def task(cluster, what, **arguments):
    """Has the manager do it, and waits until it is done."""
    given = json.dumps({"prefix": f"rbd task add {what}", **arguments})
    code, out, said = cluster.mgr_command(given, b"")
    assert code == 0, (code, said)
    identity = json.loads(out)["id"]
    for _ in range(300):
        code, _, said = cluster.mgr_command(json.dumps({"prefix": "rbd task list", "task_id": identity}), b"")
        if code:
            assert code == -errno.ENOENT, (code, said)
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} {arguments} is not done")


def csi(cluster, io):
    """A volume, its journal in omaps, its metadata; snapshots as clones; deletion through the trash."""
    with rados.WriteOpCtx() as op:
        io.set_omap(op, ("csi.volume.pvc-1",), (b"0001",))
        io.operate_write_op(op, "csi.volumes.default")
    api = rbd.RBD()
    api.create(io, "csi-vol-1", GIB, old_format=False, features=rbd.RBD_FEATURE_LAYERING)
    with rbd.Image(io, "csi-vol-1") as image:
        image.metadata_set("csi.storage.k8s.io/pv/name", "pvc-1")
        assert image.metadata_get("csi.storage.k8s.io/pv/name") == "pvc-1"
        image.write(b"volume", 0)
        image.create_snap("csi-snap-1")
    options = "--rbd-default-clone-format 2 --image-feature layering,deep-flatten"
    command(f"rbd clone {options} {POOL}/csi-vol-1@csi-snap-1 {POOL}/csi-snap-1")
    command(f"rbd snap rm --no-progress {POOL}/csi-vol-1@csi-snap-1")
    with rbd.Image(io, "csi-snap-1") as image:
        assert image.read(0, 6) == b"volume"
        image.create_snap("csi-snap-1")
    command(f"rbd clone {options} {POOL}/csi-snap-1@csi-snap-1 {POOL}/csi-vol-2")
    task(cluster, "flatten", image_spec=f"{POOL}/csi-vol-2")
    with rbd.Image(io, "csi-vol-2") as image:
        assert image.read(0, 6) == b"volume"
    command(f"rbd snap rm --no-progress {POOL}/csi-snap-1@csi-snap-1")
    for name in ("csi-vol-2", "csi-snap-1", "csi-vol-1"):
        command(f"rbd trash mv {POOL}/{name}")
    ids = {entry["name"]: entry["id"] for entry in parsed(f"rbd trash ls {POOL}")}
    for name in ("csi-vol-2", "csi-snap-1", "csi-vol-1"):  # a clone before its parent
        task(cluster, "trash remove", image_id_spec=f"{POOL}/{ids[name]}")
    assert parsed(f"rbd trash ls {POOL}") == []
    # A node that is gone is fenced by its address.
    command("ceph osd blocklist add 127.0.0.9:0/0 60")
    assert "127.0.0.9:0/0" in command("ceph osd blocklist ls")
    command("ceph osd blocklist rm 127.0.0.9:0/0")
    io.remove_object("csi.volumes.default")


def main():
    cluster = rados.Rados(conffile="")
    cluster.connect()
    io = cluster.open_ioctx(POOL)
    content = glance(io)
    cinder(cluster, io, content)
    nova(io)
    proxmox()
    csi(cluster, io)
    with rbd.Image(io, "image") as image:
        image.unprotect_snap("snap")
        image.remove_snap("snap")
    rbd.RBD().remove(io, "image")
    assert rbd.RBD().list(io) == []


main()
