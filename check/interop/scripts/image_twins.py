#!/usr/bin/env python3
"""The same random operations on images of two clusters, and whatever the two answer differently.

Arguments: two configuration files, a seed, how many operations. Each cluster gets two pools, `twins` and `twins-data`,
which are made anew; with TWINS_POOL=overwrites in the environment `twins-data` is erasure-coded (2+1). After each
operation the images that it named are compared in all that a client can see of them: every byte, snapshot and
difference too. Ends with the first operations that differed, and with exit 1 if any did."""
import concurrent.futures
import ctypes
import datetime
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import rados
import rbd

MB = 1 << 20
POOL, DATA_POOL = "twins", "twins-data"
NAMES, SNAPS, GROUPS, SPACES = tuple("abcdefghi"), ("s", "t", "u"), ("g", "h"), ("", "", "", "ns")
SIZES = (0, 4096, 100_000, MB, MB + 12345, 2 * MB, 2 * MB, 3 * MB, 3 * MB + 1)
FEATURES = (None, None, 0, 1, 3, 5, 13, 29, 61, 61, 125)
HANG = 100  # seconds
images = rbd.RBD()


class Librbd:
    """librbd in C, for what its binding lacks."""

    def __init__(self, conf):
        self.lib, library = ctypes.CDLL("librbd.so.1"), ctypes.CDLL("librados.so.2")
        cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        assert library.rados_create2(ctypes.byref(cluster), b"ceph", b"client.admin", ctypes.c_uint64(0)) == 0
        assert library.rados_conf_read_file(cluster, conf.encode()) == 0
        library.rados_conf_set(cluster, b"rbd_cache", b"false")
        assert library.rados_connect(cluster) == 0
        assert library.rados_ioctx_create(cluster, POOL.encode(), ctypes.byref(self.io)) == 0
        self.library = library

    def with_image(self, space, name, then):
        self.library.rados_ioctx_set_namespace(self.io, space.encode())
        image = ctypes.c_void_p()
        code = self.lib.rbd_open(self.io, name.encode(), ctypes.byref(image), None)
        if code:
            return code
        got = then(image)
        self.lib.rbd_close(image)
        return got

    def same(self, space, name, offset, length, part):
        self.lib.rbd_writesame.restype = ctypes.c_ssize_t
        return self.with_image(space, name, lambda image: self.lib.rbd_writesame(
            image, ctypes.c_uint64(offset), ctypes.c_size_t(length), part, ctypes.c_size_t(len(part)), 0))

    def compare_and_write(self, space, name, offset, expected, data):
        self.lib.rbd_compare_and_write.restype = ctypes.c_ssize_t
        differs = ctypes.c_uint64(0)

        def call(image):
            code = self.lib.rbd_compare_and_write(image, ctypes.c_uint64(offset), ctypes.c_size_t(len(data)), expected, data,
                                                  ctypes.byref(differs), 0)
            return code, differs.value
        return self.with_image(space, name, call)

    def snapshot_while_quiescing(self, space, name, snap, answer, flags):
        """What a snapshot says when one who has the image open must first agree."""
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        asked, handle, opened = [], ctypes.c_uint64(0), []

        def quiesce(_):
            asked.append("quiesce")
            self.lib.rbd_quiesce_complete(opened[0], handle, answer)

        begin, end = kind(quiesce), kind(lambda _: asked.append("unquiesce"))
        progress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)(lambda *_: 0)

        def call(image):
            opened.append(image)
            self.lib.rbd_quiesce_watch(image, begin, end, None, ctypes.byref(handle))
            code = self.lib.rbd_snap_create2(image, snap.encode(), ctypes.c_uint32(flags), progress, None)
            gone = self.lib.rbd_quiesce_unwatch(image, handle)
            return code, gone, asked
        return self.with_image(space, name, call)


class Side:
    """One of the two clusters."""

    def __init__(self, conf, folder):
        self.conf, self.folder = conf, folder
        os.mkdir(folder)
        self.cluster = rados.Rados(conffile=conf)
        for name in ("rbd_cache", "log_to_stderr", "err_to_stderr"):
            self.cluster.conf_set(name, "false")
        for pool in (POOL, DATA_POOL):
            self.command("ceph", "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")
            if pool == DATA_POOL and os.environ.get("TWINS_POOL") == "overwrites":
                self.command("ceph", "osd", "erasure-code-profile", "set", "twins", "k=2", "m=1", "crush-failure-domain=osd")
                self.command("ceph", "osd", "pool", "create", pool, "8", "8", "erasure", "twins")
                self.command("ceph", "osd", "pool", "set", pool, "allow_ec_overwrites", "true")
            else:
                self.command("ceph", "osd", "pool", "create", pool, "8")
        self.cluster.connect()
        self.contexts = {}
        for space in ("", "ns"):
            self.contexts[space] = self.cluster.open_ioctx(POOL)
            self.contexts[space].set_namespace(space)
        images.pool_init(self.contexts[""], True)
        images.namespace_create(self.contexts[""], "ns")
        self.librbd = Librbd(conf)
        self.aliases, self.held = {}, {}

    def command(self, *words):
        """A stock command: how it ended and what it wrote, without what only numbers things."""
        words = [word.replace("@@", self.folder + "/") for word in words]
        environment = dict(os.environ, CEPH_CONF=self.conf, CEPH_ARGS="--log-to-stderr=false --rbd-cache=false")
        done = subprocess.run(["timeout", "120", *words], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def alias(self, value):
        """Ids are compared by when they were first seen."""
        if value in (-1, 0, "", None, "-1"):
            return value
        return self.aliases.setdefault(value, f"#{len(self.aliases)}")

    def open(self, space, name, snap=None, read_only=False):
        return rbd.Image(self.contexts[space], name, snapshot=snap, read_only=read_only)

    def on(self, space, name, act):
        held = self.held.get((space, name))
        if held:
            return act(held)
        with self.open(space, name) as image:
            return act(image)


HIDDEN = {"timestamp", "deletion_time", "deferment_end_time", "block_name_prefix", "addr", "cookie", "up", "site_uuid", "mirror_uuid", "global_id",
          "client", "address", "trash_timestamp", "lockers", "owner"}
NUMBERED = {"id", "image_id", "parent_id", "pool", "pool_id", "parent_pool", "snap_id", "source_pool_id", "dest_pool_id", "source_image_id",
            "dest_image_id", "group_snap_id", "child_image_id", "parent_snap_id", "primary_snap_id", "image_pool", "image_pool_id"}


def normal(side, value, key=None):
    """Without what differs between two clusters that do the same."""
    if key in HIDDEN:
        return None
    if key in NUMBERED and isinstance(value, (int, str)):
        return side.alias(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes {hashlib.sha1(value).hexdigest()[:10]}"
    if isinstance(value, datetime.datetime):
        return None
    if isinstance(value, dict):
        return {name: normal(side, part, name) for name, part in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(part, dict) and "name" in part for part in value):
            value = sorted(value, key=lambda part: (part["name"], str(part.get("pool_name"))))
        return [normal(side, part, key) for part in value]
    if isinstance(value, str):  # names of snapshots that mirroring or the trash gave
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", value)
    return value


def attempt(side, act):
    try:
        got = act(side)
    except rbd.Error as error:
        return f"{type(error).__name__} {getattr(error, 'errno', None)}"
    except (TypeError, ValueError, OverflowError, LookupError) as error:
        return f"{type(error).__name__}"
    return normal(side, as_list(got))


# ---- what there is to see

def differences(image, start):
    """Not of whole objects, which sometimes ends the process in librbd 16.2: `diff` asks a command for those."""
    found = []
    image.diff_iterate(0, image.size(), start, lambda *part: found.append(part))
    return found


def content(image):
    """In pieces of an odd size, so that reads cross the ends of objects."""
    size, piece = image.size(), 1_234_567
    return b"".join(image.read(at, min(piece, size - at)) for at in range(0, size, piece))


ASKED = ("size", "features", "op_features", "flags", "old_format", "stripe_unit", "stripe_count", "overlap", "parent_info", "get_snap_limit",
         "metadata_list", "group", "list_children2", "list_descendants", "mirror_image_get_info", "mirror_image_get_mode", "migration_source_spec",
         "list_lockers", "get_parent_image_spec", "stat")


def picture(side, space, name):
    """All that can be seen of an image."""
    def look(image, part):
        return normal(side, getattr(image, part)())

    def tolerant(part, *arguments):
        return attempt(side, lambda _: part(*arguments))

    try:
        image = side.open(space, name, read_only=True)
    except rbd.Error as error:
        return f"{type(error).__name__} {error.errno}"
    with image:
        seen = {part: tolerant(lambda part=part: as_list(getattr(image, part)())) for part in ASKED}
        snaps = sorted((dict(snap) for snap in image.list_snaps()), key=lambda snap: snap["id"])
        seen["snaps"] = [(snap["name"] if snap["namespace"] == 0 else None, snap["size"], snap["namespace"], side.alias(snap["id"])) for snap in snaps]
        users = [snap["name"] for snap in snaps if snap["namespace"] == 0]
        seen["content"] = tolerant(content, image)
        for start in (None, *users):
            seen[f"since {start}"] = tolerant(differences, image, start)
        for snap in users:
            seen[f"protected {snap}"] = tolerant(image.is_protected_snap, snap)
    for snap in users:
        try:
            with side.open(space, name, snap, True) as image:
                seen[f"content {snap}"] = tolerant(content, image)
                seen[f"then {snap}"] = [look(image, part) for part in ("size", "features", "flags", "overlap")]
                seen[f"until {snap}"] = tolerant(differences, image, None)
        except rbd.Error as error:
            seen[f"content {snap}"] = f"{type(error).__name__} {error.errno}"
    return seen


def as_list(got):
    """What an iterator gives; sorted, unless it is rows."""
    if isinstance(got, (str, bytes, dict, tuple)) or not hasattr(got, "__iter__"):
        return got
    got = list(got)
    return got if got and isinstance(got[0], dict) else sorted(got, key=str)


def pools(side):
    """All that can be seen of a pool."""
    seen = {}
    for space, io in side.contexts.items():
        seen[space] = attempt(side, lambda _, io=io: {
            "images": sorted(images.list(io)), "more": list(images.list2(io)), "trash": list(images.trash_list(io)), "groups": sorted(images.group_list(io)),
            "mirrored": sorted(row["mode"] for row in images.mirror_image_info_list(io))})
        for group in GROUPS:
            seen[space, group] = attempt(side, lambda _, io=io, group=group: {
                "images": [(row["name"], row["state"]) for row in sorted(rbd.Group(io, group).list_images(), key=lambda row: row["name"])],
                "snaps": [(row["name"], row["state"]) for row in sorted(rbd.Group(io, group).list_snaps(), key=lambda row: row["name"])]})
    io = side.contexts[""]
    seen["spaces"] = attempt(side, lambda _: sorted(images.namespace_list(io)))
    seen["stats"] = attempt(side, lambda _: images.pool_stats_get(io))
    seen["mode"] = attempt(side, lambda _: images.mirror_mode_get(io))
    seen["metadata"] = attempt(side, lambda _: sorted(images.pool_metadata_list(io)))
    return seen


# ---- what there is to do: each gives a sentence, the images that it touches, and what to do to a side

class Plan:
    """Draws what is done next, with what the first side has in mind."""

    def __init__(self, rng, side):
        self.rng, self.side = rng, side

    def image(self):
        space = self.rng.choice(SPACES)
        if self.rng.random() < 0.93:
            try:
                there = sorted(images.list(self.side.contexts[space]))
            except rbd.Error:
                there = []
            if there:
                return space, self.rng.choice(there)
        return space, self.rng.choice(NAMES)

    def fresh(self):
        space = self.rng.choice(SPACES)
        there = images.list(self.side.contexts[space]) if self.rng.random() < 0.9 else []
        free = [name for name in NAMES if name not in there]
        return space, self.rng.choice(free or NAMES)

    def snap(self, image):
        if self.rng.random() < 0.9:
            try:
                there = sorted(row["name"] for row in self.side.on(*image, lambda held: list(held.list_snaps())) if row["namespace"] == 0)
            except rbd.Error:
                there = []
            if there:
                return self.rng.choice(there)
        return self.rng.choice(SNAPS)

    def layout(self):
        pick = self.rng.choice
        wanted = {"features": pick(FEATURES), "order": pick((None, 12, 14, 16, 18, 18, 20, 20, 22, 22, 22, 24))}
        if self.rng.random() < 0.05:
            wanted["order"] = pick((11, 27, 0))
        if self.rng.random() < 0.3:
            order = wanted["order"] or 22
            wanted["stripe_unit"], wanted["stripe_count"] = pick((1 << max(order - 3, 9), 1 << order, 4096, 4096, 12345)), pick((1, 2, 3, 5, 16, 2, 2, 0))
        if self.rng.random() < 0.25:
            wanted["data_pool"] = pick((DATA_POOL, DATA_POOL, DATA_POOL, "nosuch"))
        return {key: value for key, value in wanted.items() if value is not None}

    def extent(self, image):
        """Mostly in the image, often from or to the end of an object."""
        start = self.rng.choice((0, 1, 4096, 65536, MB, 2 * MB, 3 * MB)) + self.rng.choice((0, 0, -1, 1, 512, -4096, 777))
        length = self.rng.choice((0, 1, 512, 4096, 5000, 65536, 65537, 300_000, MB))
        if self.rng.random() < 0.9:
            try:
                size = max(self.side.on(*image, lambda held: held.size()), 1)
            except rbd.Error:
                size = MB
            start = max(start, 0) % size
            length = min(length, size - start)
        return max(start, 0), length

    def data(self, length):
        return random.Random(self.rng.random()).randbytes(length) if self.rng.random() < 0.8 else bytes(length)


def spec(at):
    return "/".join((POOL, *filter(None, at)))


def create(plan):
    at, size, layout = plan.fresh(), plan.rng.choice(SIZES), plan.layout()
    old = plan.rng.random() < 0.05
    if old:
        layout = {key: value for key, value in layout.items() if key == "order"}
    return f"create {at} {size} {layout} old={old}", [at], lambda side: images.create(side.contexts[at[0]], at[1], size, old_format=old, **layout)


def write(plan):
    at = plan.image()
    start, length = plan.extent(at)
    data = plan.data(length)
    return f"write {at} {start}~{length}", [at], lambda side: side.on(*at, lambda image: (image.write(data, start), image.flush()))


def read(plan):
    at = plan.image()
    start, length = plan.extent(at)
    return f"read {at} {start}~{length}", [], lambda side: side.on(*at, lambda image: image.read(start, length))


def discard(plan):
    at = plan.image()
    start, length = plan.extent(at)
    return f"discard {at} {start}~{length}", [at], lambda side: side.on(*at, lambda image: image.discard(start, length))


def write_zeroes(plan):
    at = plan.image()
    start, length = plan.extent(at)
    flags = plan.rng.choice((0, 0, rbd.RBD_WRITE_ZEROES_FLAG_THICK_PROVISION))
    return f"write_zeroes {at} {start}~{length} {flags}", [at], lambda side: side.on(*at, lambda image: image.write_zeroes(start, length, flags))


def writesame(plan):
    at = plan.image()
    start, length = plan.extent(at)
    part = plan.data(plan.rng.choice((512, 4096, 1, 1000, 0)))
    if part and plan.rng.random() < 0.8:
        length = max(length // len(part), 1) * len(part)
    return f"writesame {at} {start}~{length} of {len(part)}", [at], lambda side: side.librbd.same(*at, start, length, part)


def compare_and_write(plan):
    at = plan.image()
    start, length = plan.extent(at)
    # Of nothing, or of two parts of a striped object, it ends its process in librbd 16.2.
    length = plan.rng.choice((512, 4096, 1024, 100, max(length, 1)))
    if attempt(plan.side, lambda side: side.on(*at, lambda image: image.stripe_count())) != 1:
        length = 1
    data, expected = plan.data(length), bytes(length)
    try:
        there = plan.side.on(*at, lambda image: image.read(start, length))
        expected = there if len(there) == length else expected
    except rbd.Error:
        pass
    if expected and plan.rng.random() < 0.4:
        where = plan.rng.randrange(length)
        expected = expected[:where] + bytes([expected[where] ^ 1]) + expected[where + 1:]
    return f"compare_and_write {at} {start}~{length}", [at], lambda side: side.librbd.compare_and_write(*at, start, expected, data)


def resize(plan):
    at, size, shrink = plan.image(), plan.rng.choice(SIZES), plan.rng.random() < 0.7
    return f"resize {at} {size} {shrink}", [at], lambda side: side.on(*at, lambda image: image.resize(size, shrink))


def remove(plan):
    at = plan.image()
    return f"remove {at}", [at], lambda side: images.remove(side.contexts[at[0]], at[1])


def rename(plan):
    at, to = plan.image(), plan.fresh()
    return f"rename {at} {to[1]}", [at, (at[0], to[1])], lambda side: images.rename(side.contexts[at[0]], at[1], to[1])


def snap_create(plan):
    at, snap = plan.image(), plan.rng.choice(SNAPS)
    flags = plan.rng.choice((0, 0, 0, rbd.RBD_SNAP_CREATE_SKIP_QUIESCE, rbd.RBD_SNAP_CREATE_IGNORE_QUIESCE_ERROR, 3))
    return f"create_snap {at} {snap} {flags}", [at], lambda side: side.on(*at, lambda image: image.create_snap(snap, flags))


def snap_quiesce(plan):
    at, snap, answer, flags = plan.image(), plan.rng.choice(SNAPS), plan.rng.choice((0, 0, -5)), plan.rng.choice((0, 0, 1, 2))
    return f"snapshot with quiescing {at} {snap} {answer} {flags}", [at], lambda side: side.librbd.snapshot_while_quiescing(*at, snap, answer, flags)


def snap_change(plan):
    at = plan.image()
    snap, other = plan.snap(at), plan.rng.choice(SNAPS)
    method, *arguments = plan.rng.choice((
        ("remove_snap", snap), ("remove_snap", snap), ("remove_snap2", snap, plan.rng.choice((1, 2, 3, 7))), ("rename_snap", snap, other),
        ("protect_snap", snap), ("unprotect_snap", snap), ("rollback_to_snap", snap), ("rollback_to_snap", snap),
        ("set_snap_limit", plan.rng.choice((0, 1, 2, 5))), ("remove_snap_limit",), ("is_protected_snap", snap), ("snap_exists", snap)))
    return f"{method} {at} {arguments}", [at], lambda side: side.on(*at, lambda image: getattr(image, method)(*arguments))


def snap_by_id(plan):
    """Of any kind, also those of groups and of the trash."""
    at, which = plan.image(), plan.rng.randrange(4)
    method = plan.rng.choice(("remove_snap_by_id", "snap_get_namespace_type", "snap_get_group_namespace", "snap_get_trash_namespace", "snap_get_name"))

    def act(image):
        ids = sorted(row["id"] for row in image.list_snaps())
        return getattr(image, method)(ids[which] if which < len(ids) else 99999)
    return f"{method} {at} no. {which}", [at], lambda side: side.on(*at, act)


def clone(plan):
    at, to, layout, form = plan.image(), plan.fresh(), plan.layout(), plan.rng.choice("12")
    snap = plan.snap(at)

    def act(side):
        side.cluster.conf_set("rbd_default_clone_format", form)
        images.clone(side.contexts[at[0]], at[1], snap, side.contexts[to[0]], to[1], **layout)
    return f"clone v{form} {at}@{snap} {to} {layout}", [at, to], act


def ready_clone(plan):
    """The way that a volume is made of an image: snapshot, protected, cloned."""
    at, to, snap, form = plan.image(), plan.fresh(), plan.rng.choice(SNAPS), plan.rng.choice("12")

    def act(side):
        side.cluster.conf_set("rbd_default_clone_format", form)
        with side.open(*at) as image:
            if not image.snap_exists(snap):
                image.create_snap(snap)
            if form == "1" and not image.is_protected_snap(snap):
                image.protect_snap(snap)
        images.clone(side.contexts[at[0]], at[1], snap, side.contexts[to[0]], to[1], features=61)
    return f"snapshot and clone v{form} {at}@{snap} {to}", [at, to], act


def flatten(plan):
    at = plan.image()
    return f"flatten {at}", [at], lambda side: side.on(*at, lambda image: image.flatten())


def copy(plan):
    at, to, layout = plan.image(), plan.fresh(), plan.layout()
    method = plan.rng.choice(("copy", "deep_copy"))
    return f"{method} {at} {to} {layout}", [to], lambda side: side.on(*at, lambda image: getattr(image, method)(side.contexts[to[0]], to[1], **layout))


def diff(plan):
    at, parent = plan.image(), plan.rng.random() < 0.5
    start, length = plan.extent(at)
    since = plan.rng.choice((None, plan.snap(at)))

    def act(image):
        found = []
        image.diff_iterate(start, length, since, lambda *part: found.append(part), parent)
        return found
    return f"diff_iterate {at} {start}~{length} since {since} parent={parent}", [], lambda side: side.on(*at, act)


def diff_of_objects(plan):
    at = plan.image()
    until, since = plan.rng.choice(("", "@" + plan.snap(at))), plan.rng.choice(((), ("--from-snap", plan.snap(at))))
    name = spec(at) + until
    return f"diff of whole objects {name} {since}", [], lambda side: side.command("rbd", "diff", "--whole-object", "--format", "json", *since, name)


def metadata(plan):
    at, key, value = plan.image(), plan.rng.choice(("k", "l", "conf_rbd_qos_iops_limit", "")), plan.rng.choice(("v", "", "100", "w" * 3000))
    method, *arguments = plan.rng.choice((("metadata_set", key, value), ("metadata_set", key, value), ("metadata_get", key), ("metadata_remove", key),
                                          ("config_set", "rbd_cache_size", "1048576"), ("config_get", "rbd_cache_size"), ("config_remove", "rbd_cache_size")))
    if plan.rng.random() < 0.2 and method.startswith("metadata"):
        pooled = "pool_" + method
        return f"{pooled} {arguments}", [], lambda side: getattr(images, pooled)(side.contexts[""], *arguments)
    return f"{method} {at} {arguments}", [at], lambda side: side.on(*at, lambda image: getattr(image, method)(*arguments))


def features(plan):
    at, on = plan.image(), plan.rng.random() < 0.5
    mask = plan.rng.choice((4, 8, 16, 8 | 16, 4 | 8 | 16, 32, 64, 1, 2, 128, 256, 512))
    return f"update_features {at} {mask} {on}", [at], lambda side: side.on(*at, lambda image: image.update_features(mask, on))


def rebuild(plan):
    at = plan.image()
    method, *arguments = plan.rng.choice((
        ("rebuild_object_map",), ("sparsify", 4096), ("sparsify", 65536), ("sparsify", 1000), ("sparsify", 1 << 25), ("invalidate_cache",)))
    return f"{method} {at} {arguments}", [at], lambda side: side.on(*at, lambda image: getattr(image, method)(*arguments))


def lock(plan):
    """What is acquired is released: who asks for an image that somebody keeps asks forever."""
    at = plan.image()
    method, *arguments = plan.rng.choice((
        ("lock_acquire", rbd.RBD_LOCK_MODE_EXCLUSIVE), ("lock_release",), ("is_exclusive_lock_owner",), ("lock_exclusive", "mine"),
        ("lock_shared", "mine", "tag"), ("unlock", "none"), ("break_lock", "client.1", "mine"),
        ("lock_break", rbd.RBD_LOCK_MODE_EXCLUSIVE, "nobody")))

    def act(image):
        got = getattr(image, method)(*arguments)
        if method == "lock_acquire":
            got = image.is_exclusive_lock_owner(), image.lock_release()
        if method in ("lock_exclusive", "lock_shared"):
            held = image.list_lockers()
            got = held["exclusive"], held["tag"], attempt(None, lambda _: image.lock_shared("mine", "other")), image.unlock("mine")
        return got
    return f"{method} {at} {arguments}", [at], lambda side: side.on(*at, act)


def watchers(plan):
    at = plan.image()
    return f"watchers {at}", [], lambda side: side.on(*at, lambda image: (len(list(image.watchers_list())), [row["mode"] for row in image.lock_get_owners()]))


def hold(plan):
    """Has an image open for a while."""
    at, times = plan.image(), plan.rng.random()

    def act(side):
        if times < 0.3 and not side.held:
            side.held[at] = side.open(*at)
        else:
            for key in list(side.held):
                side.held.pop(key).close()
        return sorted(side.held)
    return f"hold {at} {times < 0.3}", [at], act


def group(plan):
    at, name, other, snap, snap2 = plan.image(), plan.rng.choice(GROUPS), plan.rng.choice(GROUPS), plan.rng.choice(SNAPS), plan.rng.choice(SNAPS)
    space = plan.rng.choice(SPACES)
    kind = plan.rng.choice(("create", "create", "remove", "rename", "add", "add", "add", "drop", "snap", "snap", "snap_rm", "snap_mv", "rollback"))

    def act(side):
        io = side.contexts[space]
        if kind in ("create", "remove"):
            return getattr(images, "group_" + kind)(io, name)
        if kind == "rename":
            return images.group_rename(io, name, other)
        here, image = rbd.Group(io, name), (side.contexts[at[0]], at[1])
        method, *arguments = {"add": ("add_image", *image), "drop": ("remove_image", *image), "snap": ("create_snap", snap), "snap_rm": ("remove_snap", snap),
                              "snap_mv": ("rename_snap", snap, snap2), "rollback": ("rollback_to_snap", snap)}[kind]
        return getattr(here, method)(*arguments)
    return f"group {kind} {space}/{name} {other} {at} {snap} {snap2}", [at], act


def trash(plan):
    at, to, later, forced = plan.image(), plan.fresh(), plan.rng.choice((0, 0, 3600)), plan.rng.random() < 0.3
    kind = plan.rng.choice(("move", "move", "restore", "restore", "remove", "purge", "purge_all", "get"))

    def of_trash(side):
        """One that was thrown away, by name: names may be there more than once, and ids differ."""
        there = sorted(images.trash_list(side.contexts[at[0]]), key=lambda row: (row["name"], row["deletion_time"]))
        return there[0]["id"] if there else "none"

    def act(side):
        io = side.contexts[at[0]]
        if kind == "move":
            return images.trash_move(io, at[1], later)
        if kind == "restore":
            return images.trash_restore(io, of_trash(side), to[1])
        if kind == "remove":
            return images.trash_remove(io, of_trash(side), forced)
        if kind == "get":
            return images.trash_get(io, of_trash(side))
        return images.trash_purge(io, datetime.datetime.utcnow() + datetime.timedelta(days=2 if kind == "purge_all" else 0))
    return f"trash {kind} {at} {to[1]} {later} {forced}", [at, (at[0], to[1])], act


def options(layout):
    """A layout in words."""
    words = []
    for key, value in layout.items():
        if key == "features":
            for name in images.features_to_string(value).split(",") if value else ():
                words += ["--image-feature", name]
        else:
            words += ["--" + key.replace("_", "-"), str(value)]
    return words


def migration(plan):
    """By the command: of some images, librbd 16.2 ends its process."""
    at, to, layout = plan.image(), plan.fresh(), plan.layout()
    kind = plan.rng.choice(("prepare", "prepare", "execute", "execute", "commit", "abort"))
    rest = (spec(to), *options(layout)) if kind == "prepare" else ("--no-progress",)
    return f"migration {kind} {at} {to} {layout}", [at, to], lambda side: side.command("rbd", "migration", kind, spec(at), *rest)


def migrate_all(plan):
    """From beginning to end, with a write on the way."""
    at, to, layout = plan.image(), plan.fresh(), plan.layout()
    start, length = plan.extent(at)
    data, over = plan.data(length), plan.rng.choice(("commit", "commit", "abort"))

    def act(side):
        prepared = side.command("rbd", "migration", "prepare", spec(at), spec(to), *options(layout))
        if prepared[0]:
            return prepared
        tried = attempt(side, lambda side: side.on(*to, lambda image: image.write(data, start)))
        executed = side.command("rbd", "migration", "execute", "--no-progress", spec(to))
        status = attempt(side, lambda side: images.migration_status(side.contexts[to[0]], to[1]))
        return tried, executed, status, side.command("rbd", "migration", over, "--no-progress", spec(to))
    return f"migrate {at} {to} {layout} {start}~{length} {over}", [at, to], act


def namespace(plan):
    name, kind = plan.rng.choice(("ns", "other", "other")), plan.rng.choice(("create", "remove", "exists"))
    return f"namespace {kind} {name}", [], lambda side: getattr(images, "namespace_" + kind)(side.contexts[""], name)


def mirror(plan):
    at, mode = plan.image(), plan.rng.choice((rbd.RBD_MIRROR_IMAGE_MODE_JOURNAL, rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT, rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT))
    forced, pooled = plan.rng.random() < 0.5, plan.rng.choice((0, 1, 1, 2))
    if plan.rng.random() < 0.2:
        return f"mirror_mode_set {at[0]} {pooled}", [], lambda side: images.mirror_mode_set(side.contexts[at[0]], pooled)
    method, *arguments = plan.rng.choice((
        ("mirror_image_enable", mode), ("mirror_image_enable", mode), ("mirror_image_disable", forced), ("mirror_image_demote",),
        ("mirror_image_promote", forced), ("mirror_image_resync",), ("mirror_image_create_snapshot",), ("mirror_image_create_snapshot",)))

    def act(image):
        got = getattr(image, method)(*arguments)
        return {"id": got} if method == "mirror_image_create_snapshot" else got
    return f"{method} {at} {arguments}", [at], lambda side: side.on(*at, act)


def export(plan):
    """Exported, and imported under another name."""
    at, to, form = plan.image(), plan.fresh(), plan.rng.choice("12")
    name, target = spec(at), spec(to)

    def act(side):
        path = f"{side.folder}/export"
        said = side.command("rbd", "export", "--no-progress", "--export-format", form, name, "@@export")
        if said[0]:
            return said
        with open(path, "rb") as file:
            whole = file.read()
        back = side.command("rbd", "import", "--no-progress", "--export-format", form, "@@export", target)
        os.unlink(path)
        return said, whole, back
    return f"export v{form} {at} {to}", [to], act


def export_diff(plan):
    """Differences in two steps, merged, brought to an empty image."""
    at, to = plan.image(), plan.fresh()
    snap, whole = plan.snap(at), plan.rng.choice(((), ("--whole-object",)))
    name, target = spec(at), spec(to)

    def act(side):
        said = [side.command("rbd", "export-diff", "--no-progress", *whole, f"{name}@{snap}", "@@one"),
                side.command("rbd", "export-diff", "--no-progress", *whole, "--from-snap", snap, name, "@@two"),
                side.command("rbd", "merge-diff", "--no-progress", "@@one", "@@two", "@@both"),
                attempt(side, lambda side: images.create(side.contexts[to[0]], to[1], MB)),
                side.command("rbd", "import-diff", "--no-progress", "@@both", target)]
        for part in ("one", "two", "both"):
            try:
                with open(f"{side.folder}/{part}", "rb") as file:
                    said.append(file.read())
                os.unlink(f"{side.folder}/{part}")
            except FileNotFoundError:
                said.append(None)
        return said
    return f"export-diff {at}@{snap} {to} {whole}", [to], act


def check_map(plan):
    at = plan.image()
    name = spec(at)
    return f"object-map check {at}", [at], lambda side: side.command("rbd", "object-map", "check", "--no-progress", name)


def usage(plan):
    at = plan.image()
    name = spec(at)
    return f"du {at}", [], lambda side: (side.command("rbd", "du", name), side.command("rbd", "du", "--exact", name))


def encryption(plan):
    """The keys are random: only what is read through them is compared."""
    form = plan.rng.choice((rbd.RBD_ENCRYPTION_FORMAT_LUKS1, rbd.RBD_ENCRYPTION_FORMAT_LUKS2))
    start, length = plan.rng.choice((0, 4096, MB - 100, 3 * MB)), plan.rng.choice((512, 5000, 300_000))
    size, data = plan.rng.choice((MB, 20 * MB, 64 * MB)), plan.data(length)

    def act(side):
        io = side.contexts[""]
        images.create(io, "secret", size)
        try:
            with side.open("", "secret") as image:
                image.encryption_format(form, "phrase")
            with side.open("", "secret") as image:
                image.encryption_load(form, "phrase")
                image.write(data, start)
                return image.size(), image.read(start, length)
        finally:
            images.remove(io, "secret")
    return f"encryption {form} {size} {start}~{length}", [], act


DRAWN = [(create, 14), (write, 18), (read, 2), (discard, 6), (write_zeroes, 3), (writesame, 3), (compare_and_write, 3), (resize, 4), (remove, 3), (rename, 2),
         (snap_create, 6), (snap_quiesce, 1), (snap_change, 8), (snap_by_id, 2), (clone, 3), (ready_clone, 5), (flatten, 2), (copy, 3), (diff, 2),
         (diff_of_objects, 2), (metadata, 3), (features, 4), (rebuild, 3), (lock, 3), (watchers, 2), (hold, 3), (group, 7), (trash, 4), (migration, 4),
         (migrate_all, 1), (namespace, 1), (mirror, 5), (export, 1), (export_diff, 1), (check_map, 1), (usage, 1), (encryption, 0.3)]


# ---- both at once

class Watchdog:
    """Says what does not end, and ends it."""

    def __init__(self):
        self.now, self.since = "", time.monotonic()
        threading.Thread(target=self.look, daemon=True).start()

    def begin(self, what):
        if os.environ.get("VERBOSE") == "2":
            print("  " + what, flush=True)
        self.now, self.since = what, time.monotonic()

    def look(self):
        while True:
            time.sleep(1)
            if time.monotonic() - self.since > HANG:
                print(f"HANGS: {self.now}", flush=True)
                os._exit(2)


def tell(label, ours, theirs):
    """Where two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(set(ours) | set(theirs), key=str):
            if ours.get(key) != theirs.get(key):
                tell(f"{label} [{key}]", ours.get(key), theirs.get(key))
    else:
        print(f"  {label}\n    first:  {str(ours)[:1500]}\n    second: {str(theirs)[:1500]}")


def main():
    first, second, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    folder = tempfile.mkdtemp(prefix="image-twins-")
    sides = [Side(first, folder + "/first"), Side(second, folder + "/second")]
    rng, watchdog, differing, began = random.Random(seed), Watchdog(), 0, time.monotonic()
    plan, verbose, answers = Plan(rng, sides[0]), os.environ.get("VERBOSE"), {}
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        def on_both(what, act):
            watchdog.begin(what)
            return list(both.map(act, sides))

        for step in range(count):
            watchdog.begin(f"planning {step}")
            draw = create if step < 4 else rng.choices([op for op, _ in DRAWN], [weight for _, weight in DRAWN])[0]
            sentence, touched, act = draw(plan)
            ours, theirs = on_both(f"{step}: {sentence}", lambda side: attempt(side, act))
            wrong = [("answer", ours, theirs)] if ours != theirs else []
            for at in dict.fromkeys(touched):
                seen = on_both(f"{step}: picture of {at} after {sentence}", lambda side: picture(side, *at))
                wrong += [(f"image {at}", *seen)] if seen[0] != seen[1] else []
            seen = on_both(f"{step}: pools after {sentence}", pools) if step % 5 == 4 or step == count - 1 else (None, None)
            wrong += [("pools", *seen)] if seen[0] != seen[1] else []
            failed = isinstance(ours, str) and " " in ours and not ours[0].isdigit()
            answers.setdefault(draw.__name__, [0, 0])[failed] += 1
            if verbose or wrong:
                print(f"{step}: {sentence}: {str(ours)[:200]}", flush=True)
            for each in wrong:
                tell(*each)
            differing += bool(wrong)
            if differing >= 10:
                break
    done = ", ".join(f"{name} {good}+{bad}" for name, (good, bad) in sorted(answers.items()))
    print(f"seed {seed}: {step + 1} operations, {differing} differ, {time.monotonic() - began:.0f} s (done + refused: {done})", flush=True)
    shutil.rmtree(folder)
    os._exit(1 if differing else 0)  # what is still open shall not be waited for


if __name__ == "__main__":
    main()
