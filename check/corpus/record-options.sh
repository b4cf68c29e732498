#!/bin/sh
# Records core/options/src/ceph.tsv: every option of a real Ceph (16.2) that is up, one per line, in Ceph's order.
# Run with CEPH_CONF naming its configuration. Only facts are recorded, no descriptions.
set -eu
cd "$(dirname "$0")/../../core/options/src"
/usr/bin/python3 - > ceph.tsv <<'END'
import json
import rados

cluster = rados.Rados(conffile="")
cluster.connect()


def ask(**command):
    code, output, said = cluster.mon_command(json.dumps(dict(command, format="json")), b"")
    assert code == 0, said
    return json.loads(output)


def text(value):
    return json.dumps(value) if isinstance(value, (bool, int, float)) else value


listed = ask(prefix="config ls")
code, output, said = cluster.osd_command(0, json.dumps({"prefix": "config show", "format": "json"}), b"")
assert code == 0, said
# Levels of debugging are options, but Ceph does not list them.
levels = sorted(name for name in json.loads(output) if name.startswith("debug_") and name not in listed)
for name in listed + levels:
    option = ask(prefix="config help", key=name)
    fields = [
        name,
        option["type"],
        option["level"],
        text(option["default"]),
        text(option["daemon_default"]),
        text(option["min"]),
        text(option["max"]),
        "|".join(option.get("enum_values", [])),
        "|".join(option["flags"]),
        "runtime" if option["can_update_at_runtime"] else "restart",
        "|".join(option["services"]),
        "|".join(option["tags"]),
        "|".join(option["see_also"]),
    ]
    assert not any(c in field for field in fields for c in "\t\n"), name
    print("\t".join(fields).rstrip("\t"))
END
