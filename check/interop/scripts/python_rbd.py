#!/usr/bin/env python3
"""What python3-rbd gives back, as `python_rados.py` says it of python3-rados. `testdata/python_rbd.txt` is what it says of a
real Ceph."""
import datetime
import json
import os
import sys
import threading

import rados
import rbd

from python_rados import MB, cluster, io, main, say, tell

images = rbd.RBD()


def without(*names):
    """Dictionaries without what is only a number that this cluster gave."""
    def show(got):
        rows = got if isinstance(got, list) else [got]
        rows = [{key: "SOME" if key in names else value for key, value in row.items()} for row in rows]
        return rows if isinstance(got, list) else rows[0]
    return show


def a_pool_of_images():
    tell("pool_init", images.pool_init, io, True)
    tell("pool_init, not forced", images.pool_init, io, False)
    tell("version", images.version)
    tell("features_to_string", images.features_to_string, 61)
    tell("features_from_string", images.features_from_string, "layering,exclusive-lock")
    tell("features_from_string, unknown", images.features_from_string, "layering,nosuch")
    tell("pool_metadata_set", images.pool_metadata_set, io, "k", "v")
    tell("pool_metadata_get", images.pool_metadata_get, io, "k")
    tell("pool_metadata_get, none", images.pool_metadata_get, io, "none")
    tell("pool_metadata_list", lambda: list(images.pool_metadata_list(io)))
    tell("pool_metadata_remove", images.pool_metadata_remove, io, "k")
    tell("pool_metadata_remove again", images.pool_metadata_remove, io, "k")
    tell("config_set", images.config_set, io, "rbd_cache", "false")
    tell("config_set, unknown", images.config_set, io, "nosuch", "false")
    tell("config_get", images.config_get, io, "rbd_cache")
    tell("config_get, unset", images.config_get, io, "rbd_cache_size")
    tell("config_list", lambda: [(row["name"], row["value"]) for row in images.config_list(io) if row["source"] == rbd.RBD_CONFIG_SOURCE_POOL])
    tell("config_remove", images.config_remove, io, "rbd_cache")
    tell("config_remove again", images.config_remove, io, "rbd_cache")
    tell("namespace_create", images.namespace_create, io, "ns")
    tell("namespace_create again", images.namespace_create, io, "ns")
    tell("namespace_create, no name", images.namespace_create, io, "")
    tell("namespace_exists", images.namespace_exists, io, "ns")
    tell("namespace_list", images.namespace_list, io)
    tell("namespace_remove", images.namespace_remove, io, "ns")
    tell("namespace_remove again", images.namespace_remove, io, "ns")
    tell("pool_stats_get", images.pool_stats_get, io)


def creating():
    tell("create", images.create, io, "one", 64 * MB)
    tell("create again", images.create, io, "one", 64 * MB)
    tell("create nothing", images.create, io, "none", 0)
    for label, named in (("order 11", {"order": 11}), ("order 26", {"order": 26}), ("old format", {"old_format": True}),
                         ("stripes", {"stripe_unit": 1 << 16, "stripe_count": 4}), ("bad stripes", {"stripe_unit": 12345, "stripe_count": 4}),
                         ("one stripe", {"stripe_unit": 1 << 16, "stripe_count": 0}), ("no data pool", {"data_pool": "nosuch"}),
                         ("features", {"features": 5}), ("bad features", {"features": 8}), ("strange features", {"features": 1 << 40})):
        tell(f"create with {label}", images.create, io, "two", 8 * MB, **named)
        tell("remove", images.remove, io, "two")
    for name in ("with/slash", "with@at", "", "a" * 200, "\u00e4 \n%", "snap@"):
        tell(f"create {name!r:.20}", images.create, io, name, MB)
        tell("open", lambda name=name: rbd.Image(io, name).size())
    tell("list", lambda: sorted(images.list(io)))
    tell("list2", lambda: sorted(row["name"] for row in images.list2(io)))
    tell("rename", images.rename, io, "none", "three")
    tell("rename to itself", images.rename, io, "three", "three")
    tell("rename onto another", images.rename, io, "three", "one")
    tell("rename what is not there", images.rename, io, "none", "four")
    for name in images.list(io):
        if name != "one":
            tell(f"remove {name!r:.20}", images.remove, io, name)
    tell("remove again", images.remove, io, "three")
    tell("open none", rbd.Image, io, "nosuch")
    tell("open none by id", rbd.Image, io, image_id="nosuch")
    tell("open at no snapshot", rbd.Image, io, "one", snapshot="none")
    with rbd.Image(io, "one") as image:
        tell("remove what is open", images.remove, io, "one")
        tell("open by id", lambda: rbd.Image(io, image_id=image.id()).get_name())


def an_image():
    with rbd.Image(io, "one") as image:
        tell("stat", image.stat, show=lambda got: {key: value for key, value in got.items() if key != "parent_id"})
        for method in ("size", "features", "op_features", "flags", "old_format", "stripe_unit", "stripe_count", "get_name", "id",
                       "block_name_prefix", "overlap", "parent_info", "parent_id", "get_parent_image_spec", "migration_source_spec",
                       "group", "create_timestamp", "access_timestamp", "modify_timestamp", "get_snap_limit", "is_exclusive_lock_owner",
                       "list_lockers", "flush", "invalidate_cache"):
            tell(method, getattr(image, method))
        tell("data_pool_id", lambda: image.data_pool_id() == io.get_pool_id())
        tell("write", image.write, b"hello" * 1000, 100)
        tell("read", lambda: image.read(100, 10))
        tell("read at the end", lambda: len(image.read(64 * MB - 10, 100)))
        tell("read beyond", image.read, 64 * MB, 10)
        tell("read nothing", image.read, 0, 0)
        tell("write beyond", image.write, b"x", 64 * MB)
        tell("write over the end", image.write, b"xyz", 64 * MB - 1)
        tell("write nothing", image.write, b"", 5)
        tell("read with flags", lambda: image.read(100, 5, rados.LIBRADOS_OP_FLAG_FADVISE_NOCACHE))
        tell("discard", image.discard, 0, 4096)
        tell("discard over the end", image.discard, 64 * MB - 10, 100)
        tell("discard beyond", image.discard, 65 * MB, 100)
        tell("write_zeroes", image.write_zeroes, 4096, 4096)
        tell("write_zeroes, thick", image.write_zeroes, 8192, 4096, rbd.RBD_WRITE_ZEROES_FLAG_THICK_PROVISION)
        tell("is_exclusive_lock_owner", image.is_exclusive_lock_owner)
        tell("lock_get_owners", lambda: [row["mode"] for row in image.lock_get_owners()])
        tell("lock_acquire", image.lock_acquire, rbd.RBD_LOCK_MODE_EXCLUSIVE)
        tell("lock_acquire, shared", image.lock_acquire, rbd.RBD_LOCK_MODE_SHARED)
        tell("lock_release", image.lock_release)
        tell("lock_release again", image.lock_release)
        tell("lock_break, none", image.lock_break, rbd.RBD_LOCK_MODE_EXCLUSIVE, "nobody")
        tell("lock_exclusive", image.lock_exclusive, "mine")
        tell("lock_exclusive again", image.lock_exclusive, "mine")
        tell("list_lockers", lambda: {key: value if key != "lockers" else [row[1] for row in value] for key, value in image.list_lockers().items()})
        tell("break_lock, none", image.break_lock, "client.1", "mine")
        tell("unlock", image.unlock, "mine")
        tell("unlock again", image.unlock, "mine")
        tell("lock_shared", image.lock_shared, "s", "tag")
        tell("lock_shared, other tag", image.lock_shared, "s", "other")
        tell("unlock", image.unlock, "s")
        tell("watchers_list", lambda: len(list(image.watchers_list())))
        tell("metadata_set", image.metadata_set, "k", "v")
        tell("metadata_set, long", image.metadata_set, "long", "v" * 5000)
        tell("metadata_get", image.metadata_get, "k")
        tell("metadata_get, long", lambda: len(image.metadata_get("long")))
        tell("metadata_get, none", image.metadata_get, "none")
        tell("metadata_list", lambda: [(key, len(value)) for key, value in image.metadata_list()])
        tell("metadata_remove", image.metadata_remove, "k")
        tell("metadata_remove again", image.metadata_remove, "k")
        tell("config_set", image.config_set, "rbd_cache_size", "1048576")
        tell("config_set, unknown", image.config_set, "nosuch", "1")
        tell("config_get", image.config_get, "rbd_cache_size")
        tell("config_get, unset", image.config_get, "rbd_cache")
        tell("config_list", lambda: [row["name"] for row in image.config_list() if row["source"] == rbd.RBD_CONFIG_SOURCE_IMAGE])
        tell("config_remove", image.config_remove, "rbd_cache_size")
        tell("config_remove again", image.config_remove, "rbd_cache_size")
        tell("update_features, off", image.update_features, rbd.RBD_FEATURE_FAST_DIFF, False)
        tell("features", image.features)
        tell("update_features, on", image.update_features, rbd.RBD_FEATURE_FAST_DIFF, True)
        tell("flags", image.flags)
        tell("rebuild_object_map", image.rebuild_object_map)
        tell("flags", image.flags)
        tell("update_features, deep", image.update_features, rbd.RBD_FEATURE_DEEP_FLATTEN, True)
        tell("resize", image.resize, 32 * MB, True)
        tell("resize, no shrinking", image.resize, 16 * MB, False)
        tell("size", image.size)
        tell("resize", image.resize, 64 * MB)
        tell("sparsify", image.sparsify, 1 << 16)
        tell("sparsify by too little", image.sparsify, 1000)
        tell("flatten", image.flatten)
        found = []
        tell("diff_iterate", image.diff_iterate, 0, 64 * MB, None, lambda *part: found.append(part))
        say("differences", found)
        tell("diff_iterate from none", image.diff_iterate, 0, 64 * MB, "none", lambda *part: found.append(part))
    tell("after close", image.size)
    with rbd.Image(io, "one", read_only=True) as image:
        tell("write, read only", image.write, b"x", 0)
        tell("resize, read only", image.resize, MB)
        tell("create_snap, read only", image.create_snap, "s")


def asynchronous_images():
    over = threading.Event()
    heard = []

    def done(completion, *got):
        heard[:] = got
        over.set()

    def wait(label, begin, *arguments, show=lambda got: got):
        over.clear()
        try:
            completion = begin(*arguments, done) if begin.__name__ not in ("aio_open_image",) else begin(done, *arguments)
        except (rbd.Error, TypeError) as error:
            print(f"{label}: {type(error).__name__}")
            return None
        completion.wait_for_complete_and_cb()
        over.wait(30)
        try:
            say(label, (completion.get_return_value(), *[show(part) for part in heard]))
        except rbd.Error as error:
            print(f"{label}: {type(error).__name__}")
        return heard[0] if heard else None

    with rbd.Image(io, "one") as image:
        wait("aio_write", lambda *a: image.aio_write(*a), b"again", 0)
        wait("aio_read", lambda *a: image.aio_read(*a), 0, 10)
        wait("aio_read beyond", lambda *a: image.aio_read(*a), 100 * MB, 10)
        wait("aio_discard", lambda *a: image.aio_discard(*a), 0, 10)
        wait("aio_write_zeroes", lambda *a: image.aio_write_zeroes(*a), 0, 10)
        wait("aio_flush", lambda *a: image.aio_flush(*a))
        wait("aio_mirror_image_get_info", lambda *a: image.aio_mirror_image_get_info(*a))
        wait("aio_mirror_image_get_mode", lambda *a: image.aio_mirror_image_get_mode(*a))


def image_snapshots():
    with rbd.Image(io, "one") as image:
        image.write(b"first", 0)
        tell("create_snap", image.create_snap, "a")
        tell("create_snap again", image.create_snap, "a")
        tell("create_snap, no name", image.create_snap, "")
        tell("create_snap, odd", image.create_snap, "odd /\u00e4")
        tell("create_snap without quiescing", image.create_snap, "q", rbd.RBD_SNAP_CREATE_SKIP_QUIESCE)
        image.write(b"second", 0)
        tell("list_snaps", lambda: [(row["name"], row["size"], row["namespace"]) for row in image.list_snaps()])
        ids = {row["name"]: row["id"] for row in image.list_snaps()}
        tell("snap_exists", image.snap_exists, "a")
        tell("snap_exists, none", image.snap_exists, "none")
        tell("snap_get_id", lambda: image.snap_get_id("a") == ids["a"])
        tell("snap_get_id, none", image.snap_get_id, "none")
        tell("snap_get_name", lambda: image.snap_get_name(ids["a"]))
        tell("snap_get_name, none", image.snap_get_name, 7777)
        tell("snap_get_namespace_type", lambda: image.snap_get_namespace_type(ids["a"]))
        tell("snap_get_group_namespace", lambda: image.snap_get_group_namespace(ids["a"]))
        tell("snap_get_trash_namespace", lambda: image.snap_get_trash_namespace(ids["a"]))
        tell("snap_get_mirror_namespace", lambda: image.snap_get_mirror_namespace(ids["a"]))
        tell("get_snap_timestamp", lambda: image.get_snap_timestamp(ids["a"]))
        tell("rename_snap", image.rename_snap, "q", "r")
        tell("rename_snap, none", image.rename_snap, "none", "s")
        tell("rename_snap onto another", image.rename_snap, "r", "a")
        tell("protect_snap", image.protect_snap, "a")
        tell("protect_snap again", image.protect_snap, "a")
        tell("is_protected_snap", image.is_protected_snap, "a")
        tell("is_protected_snap, none", image.is_protected_snap, "none")
        tell("remove_snap, protected", image.remove_snap, "a")
        tell("set_snap_limit", image.set_snap_limit, 3)
        tell("create_snap beyond the limit", image.create_snap, "limit")
        tell("get_snap_limit", image.get_snap_limit)
        tell("remove_snap_limit", image.remove_snap_limit)
        tell("set_snap", image.set_snap, "a")
        tell("read", lambda: image.read(0, 6))
        tell("write", image.write, b"x", 0)
        tell("set_snap, none", image.set_snap, "none")
        tell("set_snap_by_id", lambda: image.set_snap_by_id(ids["a"]))
        tell("set_snap, head", image.set_snap, None)
        tell("read", lambda: image.read(0, 6))
        tell("rollback_to_snap", image.rollback_to_snap, "a")
        tell("rollback_to_snap, none", image.rollback_to_snap, "none")
        tell("read", lambda: image.read(0, 6))
    tell("clone", images.clone, io, "one", "a", io, "kid")
    tell("clone again", images.clone, io, "one", "a", io, "kid")
    tell("clone of none", images.clone, io, "one", "none", io, "kid2")
    tell("clone, unprotected", images.clone, io, "one", "r", io, "kid2")
    tell("clone, other order", images.clone, io, "one", "a", io, "kid2", order=20, stripe_unit=1 << 20, stripe_count=1)
    with rbd.Image(io, "one", snapshot="a") as image:
        tell("list_children", lambda: sorted(image.list_children()))
        tell("list_children2", lambda: sorted((row["image"], row["trash"]) for row in image.list_children2()))
        tell("list_descendants", lambda: sorted(row["image"] for row in image.list_descendants()))
        tell("write at a snapshot", image.write, b"x", 0)
    with rbd.Image(io, "kid") as kid:
        tell("parent_info", kid.parent_info)
        tell("overlap", kid.overlap)
        tell("get_parent_image_spec", lambda: {key: value for key, value in kid.get_parent_image_spec().items() if key not in ("image_id", "snap_id")})
        tell("read", lambda: kid.read(0, 6))
        tell("resize", kid.resize, 32 * MB)
        tell("overlap", kid.overlap)
        tell("flatten", kid.flatten)
        tell("flatten again", kid.flatten)
        tell("parent_info", kid.parent_info)
    with rbd.Image(io, "kid2") as kid:
        tell("copy", kid.copy, io, "copied")
        tell("copy again", kid.copy, io, "copied")
        tell("deep_copy", kid.deep_copy, io, "deep")
        tell("deep_copy again", kid.deep_copy, io, "deep")
    with rbd.Image(io, "one") as image:
        tell("unprotect_snap, with children", image.unprotect_snap, "a")
    for name in ("kid", "kid2", "copied", "deep"):
        tell(f"remove {name}", images.remove, io, name)
    with rbd.Image(io, "one") as image:
        tell("unprotect_snap", image.unprotect_snap, "a")
        tell("unprotect_snap again", image.unprotect_snap, "a")
        tell("remove_snap", image.remove_snap, "a")
        tell("remove_snap again", image.remove_snap, "a")
        tell("remove_snap2", image.remove_snap2, "r", rbd.RBD_SNAP_REMOVE_FORCE)
        ids = {row["name"]: row["id"] for row in image.list_snaps()}
        tell("remove_snap_by_id", lambda: image.remove_snap_by_id(ids["odd /\u00e4"]))
        tell("remove_snap_by_id, none", image.remove_snap_by_id, 7777)
        tell("list_snaps", lambda: list(image.list_snaps()), show=without("id"))
    tell("remove with progress", lambda: (images.create(io, "p", 40 * MB), images.remove(io, "p", lambda now, of: 0)) and None)


def groups_and_trash():
    for name in ("g1", "g2"):
        images.create(io, name, 8 * MB)
    tell("group_create", images.group_create, io, "g")
    tell("group_create again", images.group_create, io, "g")
    tell("group_create, no name", images.group_create, io, "")
    tell("group_list", images.group_list, io)
    group = rbd.Group(io, "g")
    tell("add_image", group.add_image, io, "g1")
    tell("add_image again", group.add_image, io, "g1")
    tell("add_image, none", group.add_image, io, "none")
    tell("add_image 2", group.add_image, io, "g2")
    tell("list_images", lambda: sorted((row["name"], row["state"]) for row in group.list_images()))
    with rbd.Image(io, "g1") as image:
        tell("its group", lambda: image.group()["name"])
    tell("remove what is in a group", images.remove, io, "g1")
    tell("create_snap", group.create_snap, "s")
    tell("create_snap again", group.create_snap, "s")
    tell("list_snaps", lambda: [(row["name"], row["state"]) for row in group.list_snaps()])
    with rbd.Image(io, "g1") as image:
        image.write(b"after", 0)
        ids = [row["id"] for row in image.list_snaps()]
        tell("namespace", lambda: image.snap_get_namespace_type(ids[0]))
        tell("group namespace", lambda: image.snap_get_group_namespace(ids[0])["group_snap_name"])
        tell("remove_snap_by_id of a group's", lambda: image.remove_snap_by_id(ids[0]))
    tell("rename_snap", group.rename_snap, "s", "t")
    tell("rename_snap, none", group.rename_snap, "none", "t")
    tell("rollback_to_snap", group.rollback_to_snap, "t")
    tell("rollback_to_snap, none", group.rollback_to_snap, "none")
    with rbd.Image(io, "g1") as image:
        tell("rolled back", lambda: image.read(0, 5))
    tell("remove_image", group.remove_image, io, "g2")
    tell("remove_image again", group.remove_image, io, "g2")
    tell("remove_snap", group.remove_snap, "t")
    tell("remove_snap again", group.remove_snap, "t")
    tell("group_rename", images.group_rename, io, "g", "h")
    tell("group_rename, none", images.group_rename, io, "g", "h")
    tell("group_remove", images.group_remove, io, "h")
    tell("group_remove again", images.group_remove, io, "h")
    tell("of no group", lambda: list(rbd.Group(io, "h").list_images()))

    with rbd.Image(io, "g1") as image:
        identity = image.id()
    tell("trash_move", images.trash_move, io, "g1", 600)
    tell("trash_move again", images.trash_move, io, "g1", 0)
    tell("trash_list", lambda: [(row["name"], row["source"]) for row in images.trash_list(io)])
    tell("trash_get", lambda: images.trash_get(io, identity)["name"])
    tell("trash_get, none", images.trash_get, io, "none")
    tell("trash_remove, too early", images.trash_remove, io, identity)
    tell("trash_restore", images.trash_restore, io, identity, "g2")
    tell("trash_restore", images.trash_restore, io, identity, "back")
    tell("trash_restore again", images.trash_restore, io, identity, "back")
    tell("trash_move", images.trash_move, io, "back", 600)
    tell("trash_purge", images.trash_purge, io)
    tell("trash_list", lambda: [row["name"] for row in images.trash_list(io)])
    tell("trash_purge, later", images.trash_purge, io, datetime.datetime.utcnow() + datetime.timedelta(days=2))
    tell("trash_remove, forced", images.trash_remove, io, identity, True)
    tell("trash_remove again", images.trash_remove, io, identity, True)
    images.remove(io, "g2")


def migrating():
    images.create(io, "m", 8 * MB)
    with rbd.Image(io, "m") as image:
        image.write(b"moving", 0)
    hide = without("source_pool_id", "dest_pool_id", "source_image_id", "dest_image_id")
    tell("migration_status of none", images.migration_status, io, "m")
    tell("migration_prepare", images.migration_prepare, io, "m", io, "n", order=20)
    tell("migration_prepare again", images.migration_prepare, io, "m", io, "n")
    tell("migration_status", images.migration_status, io, "n", show=hide)
    tell("migration_commit, too early", images.migration_commit, io, "n")
    with rbd.Image(io, "n") as image:
        tell("read", lambda: image.read(0, 6))
        tell("write", image.write, b"MOV", 0)
    tell("migration_execute", images.migration_execute, io, "n")
    tell("migration_status", images.migration_status, io, "n", show=hide)
    tell("migration_commit", images.migration_commit, io, "n")
    with rbd.Image(io, "n") as image:
        tell("read", lambda: image.read(0, 6))
    tell("migration_prepare", images.migration_prepare, io, "n", io, "o")
    tell("migration_abort", images.migration_abort, io, "o")
    tell("migration_abort again", images.migration_abort, io, "n")
    path = f"/tmp/nacre-import-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(b"from a file" + bytes(MB))
    source = json.dumps({"type": "raw", "stream": {"type": "file", "file_path": path}})
    tell("migration_prepare_import", images.migration_prepare_import, source, io, "imported")
    tell("migration_execute", images.migration_execute, io, "imported")
    tell("migration_commit", images.migration_commit, io, "imported")
    with rbd.Image(io, "imported") as image:
        tell("read", lambda: image.read(0, 11))
    tell("migration_prepare_import, nonsense", images.migration_prepare_import, "nonsense", io, "imported2")
    os.unlink(path)
    images.remove(io, "imported")
    images.remove(io, "n")


def encryption():
    for name, kind in (("luks1", rbd.RBD_ENCRYPTION_FORMAT_LUKS1), ("luks2", rbd.RBD_ENCRYPTION_FORMAT_LUKS2)):
        images.create(io, name, 64 * MB)
        with rbd.Image(io, name) as image:
            tell("encryption_load before", image.encryption_load, kind, "open sesame")
            tell("encryption_format", image.encryption_format, kind, "open sesame")
            tell("size", image.size)
            tell("write", image.write, b"secret", 4096)
            tell("encryption_load again", image.encryption_load, kind, "open sesame")
        with rbd.Image(io, name) as image:
            tell("read, raw", lambda: b"secret" in image.read(0, image.size()))
            tell("encryption_load, wrong", image.encryption_load, kind, "open")
        with rbd.Image(io, name) as image:
            tell("encryption_load", image.encryption_load, kind, "open sesame")
            tell("size", image.size)
            tell("read", lambda: image.read(4096, 6))
            tell("resize", image.resize, 80 * MB)
        images.remove(io, name)


def mirroring():
    tell("mirror_site_name_set", images.mirror_site_name_set, cluster, "here")
    tell("mirror_site_name_get", images.mirror_site_name_get, cluster)
    tell("mirror_mode_get", images.mirror_mode_get, io)
    tell("mirror_uuid_get, off", images.mirror_uuid_get, io)
    tell("mirror_mode_set", images.mirror_mode_set, io, rbd.RBD_MIRROR_MODE_IMAGE)
    tell("mirror_uuid_get", images.mirror_uuid_get, io)
    peer = tell("mirror_peer_add", images.mirror_peer_add, io, "there", "client.mirror")
    tell("mirror_peer_add again", images.mirror_peer_add, io, "there", "client.mirror")
    tell("mirror_peer_list", lambda: list(images.mirror_peer_list(io)))
    tell("mirror_peer_set_client", images.mirror_peer_set_client, io, peer, "client.other")
    tell("mirror_peer_set_cluster", images.mirror_peer_set_cluster, io, peer, "elsewhere")
    tell("mirror_peer_set_name", images.mirror_peer_set_name, io, peer, "yonder")
    tell("mirror_peer_set_attributes", images.mirror_peer_set_attributes, io, peer, {rbd.RBD_MIRROR_PEER_ATTRIBUTE_NAME_MON_HOST: "1.2.3.4"})
    tell("mirror_peer_get_attributes", images.mirror_peer_get_attributes, io, peer)
    tell("mirror_peer_get_attributes, none", images.mirror_peer_get_attributes, io, "none")
    tell("mirror_peer_list", lambda: list(images.mirror_peer_list(io)))
    images.create(io, "ms", 8 * MB)
    with rbd.Image(io, "ms") as image:
        tell("mirror_image_get_mode, off", image.mirror_image_get_mode)
        tell("mirror_image_get_info, off", image.mirror_image_get_info)
        tell("mirror_image_create_snapshot, off", image.mirror_image_create_snapshot)
        tell("mirror_image_enable", image.mirror_image_enable, rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT)
        tell("mirror_image_enable again", image.mirror_image_enable, rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT)
        tell("mirror_image_get_mode", image.mirror_image_get_mode)
        tell("mirror_image_get_info", image.mirror_image_get_info)
        made = image.mirror_image_create_snapshot()
        tell("namespace", image.snap_get_namespace_type, made)
        tell("mirror namespace", lambda: {key: value for key, value in image.snap_get_mirror_namespace(made).items()
                                          if key in ("state", "complete", "last_copied_object_number", "mirror_peer_uuids")})
        tell("mirror_image_get_status", image.mirror_image_get_status, show=lambda got: sorted(got))
        tell("mirror_image_get_instance_id", image.mirror_image_get_instance_id)
        tell("mirror_image_demote", image.mirror_image_demote)
        tell("write, demoted", image.write, b"x", 0)
        tell("mirror_image_promote", image.mirror_image_promote, False)
        tell("mirror_image_resync", image.mirror_image_resync)
    tell("mirror_image_info_list", images.mirror_image_info_list, io)
    tell("mirror_image_status_list", lambda: [row["name"] for row in images.mirror_image_status_list(io)])
    tell("mirror_image_status_summary", images.mirror_image_status_summary, io)
    tell("mirror_image_instance_id_list", lambda: list(images.mirror_image_instance_id_list(io)))
    tell("mirror_peer_remove", images.mirror_peer_remove, io, peer)
    tell("mirror_peer_remove again", images.mirror_peer_remove, io, peer)
    tell("mirror_mode_set, with images", images.mirror_mode_set, io, rbd.RBD_MIRROR_MODE_DISABLED)
    with rbd.Image(io, "ms") as image:
        tell("mirror_image_disable", image.mirror_image_disable, False)
        tell("mirror_image_disable again", image.mirror_image_disable, False)
    tell("mirror_peer_bootstrap_import, nonsense", images.mirror_peer_bootstrap_import, io, rbd.RBD_MIRROR_PEER_DIRECTION_RX_TX, "bm9uc2Vuc2U=")
    tell("mirror_mode_set", images.mirror_mode_set, io, rbd.RBD_MIRROR_MODE_POOL)
    tell("mirror_mode_set, off", images.mirror_mode_set, io, rbd.RBD_MIRROR_MODE_DISABLED)
    images.remove(io, "ms")
    tell("mirror_site_name_set, none", images.mirror_site_name_set, cluster, "")


if __name__ == "__main__":
    main(a_pool_of_images, creating, an_image, asynchronous_images, image_snapshots, groups_and_trash, migrating, encryption, mirroring)
    tell("remove the last", images.remove, io, "one")
    say("images left", images.list(io))
    sys.stdout.flush()
    os._exit(0)  # what is still open shall not be waited for
    sys.stdout.flush()
    os._exit(0)  # what is still open shall not be waited for
