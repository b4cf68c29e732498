"""Asks a running Prometheus, which collects from a cluster, for everything that Ceph's alerts and boards use.

    monitoring.py PROMETHEUS_URL ALERTS.yml BOARDS_FOLDER

Prints what has no data, though it should, one a line; and at the end how many expressions had.
Left out is what is about parts of Ceph that a cluster may not have (see EXCLUDED).
Fails if the files have fewer expressions or rules than those of Debian 12, so that less is checked.
"""

import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request

# Beginnings of metrics, and of health checks, with the reason why there is no data.
EXCLUDED = {
    "ceph_rgw_": "there is no gateway",
    "ceph_data_sync_from_zone_": "there is no gateway",
    "ceph_mds_": "there is no file system",
    "ceph_objecter_": "only metadata servers have these counters",
    "ceph_bluestore_": "the store is not BlueStore",
    "ceph_bluefs_": "the store is not BlueStore",
    "ceph_disk_occupation": "the OSDs of this cluster are in files, of which the device is not always known",
    "haproxy_": "there is no gateway",
    "node_": "from the hosts' own exporter, which does not run here",
}
CHECKS_EXCLUDED = {
    "MON_DISK_CRIT": "monitors' stores have a fixed size",
    "MON_DISK_LOW": "monitors' stores have a fixed size",
    "OSD_TOO_MANY_REPAIRS": "not raised by Nacre",
    "OSD_SLOW_PING_TIME_FRONT": "no round trips are measured",
    "OSD_SLOW_PING_TIME_BACK": "no round trips are measured",
    "BLUESTORE_DISK_SIZE_MISMATCH": "the store is not BlueStore",
    "BLUESTORE_SPURIOUS_READ_ERRORS": "the store is not BlueStore",
    "DEVICE_HEALTH": "disk health is not monitored",
    "MDS_": "there is no file system",
    "FS_": "there is no file system",
    "RECENT_MGR_MODULE_CRASH": "there are no loadable modules",
    "PG_RECOVERY_FULL": "not raised by Nacre",
    "POOL_NEAR_FULL": "raised as POOL_NEARFULL",
    "UPGRADE_EXCEPTION": "cephadm's",
    "CEPHADM_": "cephadm's",
}

# Debian 12's have 30, 93 and 58.
LEAST = {"expressions of alerts": 28, "expressions of boards": 90, "rules": 55}

# Grafana's variables.
VARIABLES = {
    "$__rate_interval": "30s",
    "$__interval": "30s",
    "$interval": "30s",
    "[[osd_hosts]]": ".*",
    "$osd_hosts": ".*",
    "[[mon_hosts]]": ".*",
    "$mon_hosts": ".*",
    "[[mds_hosts]]": ".*",
    "$mds_hosts": ".*",
    "[[rgw_hosts]]": ".*",
    "$rgw_hosts": ".*",
    "[[ceph_hosts]]": ".*",
    "$ceph_hosts": ".*",
    "$osd_id": ".*",
    "$osd": ".*",
    "[[osd]]": ".*",
    "$pool_name": ".*",
    "[[pool_name]]": ".*",
    "$Pool": ".*",
    "$pool": ".*",
    "[[pool]]": ".*",
    "$Namespace": ".*",
    "$namespace": ".*",
    "$Image": ".*",
    "$image": ".*",
    "$instance": ".*",
    "$topk": "5",
    "$job": ".*",
}


def query(url, expression):
    where = url + "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(where, timeout=20) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{expression}: {error.read().decode()}") from error
    result = found["data"]["result"]
    if found["data"]["resultType"] == "vector":
        return result
    # A scalar always has a value, which is NaN where there is no data.
    return [] if result[1] == "NaN" else [result]


def is_excluded(expression):
    if 'compression_mode!="none"' in expression:
        return True  # no pool is compressed
    names = re.findall(r"[a-z_:][a-zA-Z0-9_:]*", expression)
    if any(name.startswith(tuple(EXCLUDED)) for name in names):
        return True
    checks = re.findall(r'name="([A-Z_]+)"', expression)
    return any(check.startswith(tuple(CHECKS_EXCLUDED)) for check in checks)


def of_boards(folder):
    """All expressions of the boards, with plain values for Grafana's variables."""
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        todo = [json.loads(file.read_text())]
        while todo:
            part = todo.pop()
            if isinstance(part, dict):
                if isinstance(part.get("expr"), str):
                    expression = part["expr"]
                    for name in sorted(VARIABLES, key=len, reverse=True):
                        expression = expression.replace(name, VARIABLES[name])
                    # A label that may be anything, also where the board takes one value.
                    expression = re.sub(r"""=(["'][^"']*\.\*[^"']*["'])""", r"=~\1", expression)
                    # What is counted may be there or not: the question is whether it can be counted.
                    expression = re.sub(r"\s(>=|<=|<|>|==)\s*(bool\s*)?[0-9.]+", "", expression)
                    if expression.strip():
                        yield file.name, expression
                todo += part.values()
            elif isinstance(part, list):
                todo += part


def of_alerts(file):
    """What the alerts look at: an alert itself has no data while all is well."""
    text = pathlib.Path(file).read_text().replace('\\"', '"')
    for line in text.splitlines():
        if "summary:" in line or "description:" in line or "documentation:" in line:
            continue
        for name, labels in re.findall(r"\b(ceph_[a-z_]+)(\{[^{}]*\})?", line):
            if name != "ceph_daemon" and not name.startswith("ceph_default"):
                yield "alerts", name + labels


def need(what, found):
    """Fails if there are too few."""
    if len(found) < LEAST[what]:
        raise SystemExit(f"only {len(found)} {what} were found")


def main():
    url, alerts, boards = sys.argv[1:]
    in_alerts = {found for found in of_alerts(alerts) if not is_excluded(found[1])}
    need("expressions of alerts", in_alerts)
    in_boards = {found for found in of_boards(boards) if not is_excluded(found[1])}
    need("expressions of boards", in_boards)
    had = 0
    for where, expression in sorted(in_alerts | in_boards):
        if query(url, expression):
            had += 1
        else:
            print(f"no data: {where}: {' '.join(expression.split())}")
    with urllib.request.urlopen(url + "/api/v1/rules", timeout=20) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    need("rules", rules)
    for rule in rules:
        if rule["health"] != "ok":
            print(f"no data: {rule['name']}: {rule['health']} {rule.get('lastError', '')}")
    print(f"{had} expressions have data, {len(rules)} rules were evaluated")


main()
