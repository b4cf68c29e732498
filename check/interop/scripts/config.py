#!/usr/bin/env python3
"""What operators set in the configuration, and what the `ceph` command prints and returns: output, standard error, exit code.

Argument: a pool, which is not used. `testdata/config.txt` is what it prints of a real Ceph. Descriptions of options are left
out: Nacre has its own."""
import contextlib
import io
import json
import sys

import ceph_argparse
import rados

cluster = rados.Rados(conffile="")
cluster.connect()


def descriptions(target):
    code, output, said = ceph_argparse.json_command(cluster, target=target, prefix="get_command_descriptions", timeout=60)
    assert code == 0, said
    return ceph_argparse.parse_json_funcsigs(output.decode(), "cli")


FSID = cluster.get_fsid()
KNOWN = {("mon", ""): descriptions(("mon", "")), ("osd", "0"): descriptions(("osd", "0")), ("mon", "a"): descriptions(("mon", "a"))}


def ask(words, target=("mon", ""), **more):
    """The code, the text for people, and the output, byte by byte."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        command = ceph_argparse.validate_command(KNOWN[target], words, False)
    if not command:
        return -22, "invalid command", ""
    command.pop("target", None)
    code, output, said = ceph_argparse.json_command(cluster, target=target, argdict=dict(command, **more), timeout=60)
    return code, said, output.decode()


def run(*words, target=("mon", ""), **more):
    code, said, output = ask(list(words), target, **more)
    where = "" if target == ("mon", "") else f"tell {target[0]} "
    output = output.replace(FSID, "FSID")
    if more:
        output = output.rstrip("\n")
    print(f"$ {where}{' '.join(words)}" + "".join(f" {name}={value}" for name, value in more.items()))
    print(f"  {code} {said!r} {output!r}")


def facts(name):
    """All that `config help` says of an option, but what it is for."""
    code, said, output = ask(["config", "help", name], format="json")
    if code:
        print(f"$ config help {name}\n  {code} {said!r}")
        return
    option = json.loads(output)
    del option["desc"], option["long_desc"]
    print(f"$ config help {name}\n  {json.dumps(option)}")


# ---- values ----
for name, values in {
    "rbd_cache": ["INVALID", "2", "0", "-1", "TRUE", "yes"],
    "debug_asok": ["foo", "-10", "100", "5", "1/20"],
    "log_graylog_port": ["asdf", "12", "1K"],
    "osd_pool_default_type": ["foo", "erasure"],
    "rbd_cache_size": ["64M", "1.5G", "64MiB"],
    "rados_osd_op_timeout": ["1h", "90", "-1", "1x"],
    "rbd_cache_max_dirty_age": ["0.5", "one"],
    "mon_osd_laggy_weight": ["0.5", "1.5"],
    "osd_scrub_begin_hour": ["23", "24"],
    "rbd_default_features": ["layering,exclusive-lock", "61", "nope"],
    "public_addr": ["10.0.0.1", "nowhere"],
    "osd_uuid": ["nope"],
    "fsid": ["nope", "11111111-2222-3333-4444-555555555555"],
    "mon_host": ["10.0.0.1"],
    "debug none": ["3"],
    "debug-none": ["3"],
    "no_such_option": ["1"],
}.items():
    for value in values:
        run("config", "set", "client.test", name, value)
        run("config", "get", "client.test", name)
    ask(["config", "rm", "client.test", name])

# ---- what is set nowhere ----
for who, name in [
    ("client", "rbd_cache"), ("client.test", "rbd_cache_size"), ("osd.0", "debug_asok"), ("mds", "mds_cache_memory_limit"),
    ("client", "rbd_default_features"), ("client", "log_to_stderr"), ("osd", "log_to_stderr"), ("client", "osd_scrub_sleep"),
    ("client", "no_such_option"), ("client", "host"), ("nobody", "rbd_cache"), ("osd/class:ssd", "rbd_cache"), ("", "rbd_cache"),
]:
    run("config", "get", who, name)

# ---- to whom it applies ----
run("config", "set", "client.a", "rbd_cache", "false")
run("config", "set", "client.a.b", "rbd_cache_size", "1M")
for who in ["client", "client.a", "client.a.b", "client.a.b.c", "client.ab"]:
    run("config", "get", who, "rbd_cache")
    run("config", "get", who, "rbd_cache_size")
run("config", "set", "client.a.b", "rbd_cache", "true")
run("config", "get", "client.a.b.c", "rbd_cache")
run("config", "get", "client.a.b")
run("config", "get", "client.a.b", format="json")
run("config", "rm", "client.a.b", "rbd_cache")
run("config", "set", "client.a", "osd_objectstore", "memstore")
run("config", "set", "client.a", "no_such_option", "1")
run("config", "set", "client.a", "no_such_option", "1", "--force")
run("config", "get", "client.a", "no_such_option")
run("config", "rm", "client.a", "no_such_option")
run("config", "get", "client.a")
for who in ["nobody", "", "osd/nothing", "client.x/y"]:
    run("config", "set", who, "rbd_cache", "true")
run("config", "rm", "client.a", "osd_objectstore")
run("config", "rm", "client.a", "rbd_cache")
run("config", "rm", "client.a.b", "rbd_cache_size")

# ---- one daemon ----
for target in [("osd", "0"), ("mon", "a")]:
    def tell(*words, **more):
        run(*words, target=target, **more)

    for name, value in [
        ("rbd_cache", "INVALID"), ("rbd_cache", "2"), ("no_such_option", "1"), ("osd_max_backfills", "-1"), ("debug_asok", "foo"),
        ("debug_asok", "-10"), ("debug_asok", "5"), ("rbd_cache_size", "64M"), ("osd_objectstore", "memstore"),
    ]:
        tell("config", "set", name, value)
    for name in ["rbd_cache", "debug_asok", "rbd_cache_size", "no_such_option", "debug asok"]:
        tell("config", "get", name)
    for name in ["rbd_cache", "rbd_cache", "debug_asok", "rbd_cache_size", "no_such_option"]:
        tell("config", "unset", name)
    for line in [
        "--rbd_cache=false", "--rbd-cache", "--rbd_cache false", "--no-rbd_cache", "--rbd_cache=1", "--rbd_cache=maybe",
        "--no-rbd_cache=true", "--rbd_cache_size 1M", "--no-rbd_cache_size", "--rbd_cache_size", "--rbd_cache_size=x", "--nope 1",
        "--nope=3 --x y", "foo", "--debug_asok -1", "--debug_asok 3/4 --rbd_cache_size=2M", "--osd_objectstore memstore",
    ]:
        tell("injectargs", line)
    for name in ["rbd_cache", "debug_asok", "rbd_cache_size"]:
        ask(["config", "unset", name], target)

# ---- what there is ----
code, said, output = ask(["config", "ls"])
print(f"$ config ls\n  {len(output.splitlines())} {output.splitlines()[:5]} {output[-40:]!r}")
code, said, output = ask(["config", "ls"], format="json")
print(f"$ config ls format=json\n  {len(json.loads(output))}")
for name in [
    "rbd_cache", "debug_asok", "log_to_stderr", "log_max_recent", "rbd_cache_policy", "bluestore_compression_algorithm",
    "rados_osd_op_timeout", "cephsqlite_lock_renewal_interval", "public_addr", "fsid", "public_network_interface",
    "mon_osd_laggy_weight", "rbd_persistent_cache_size", "mgr/telemetry/interval", "no_such_option",
]:
    facts(name)
