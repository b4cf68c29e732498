#!/usr/bin/python3
"""Brings two clusters into the same states, and shows where what `ceph` says of them differs.

Arguments: the configuration files of both (a real Ceph first), then the names of the states that are wanted, or none for all.
Both have four OSDs or more, and a pool `rbd` of three copies; both are changed. Their pid files are in `run` beside the
configuration; OSDs are started by `ceph-osd` and by `nacre start` (`NACRE_BIN`). With TWINS_POOL=erasure or =overwrites in the
environment both get an erasure-coded pool `coded` (2+1) as well. Each command is asked in plain text and as JSON.
Numbers, times, sizes and addresses may differ. Of text the lines are compared, of JSON the keys, their types, and words; a line
`- KEY` is what only Ceph says, `+ KEY` what only Nacre says."""
import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import ceph_argparse
import rados

NACRE = os.environ.get("NACRE_BIN", "target/debug/nacre")
LOOKS = """health; health detail; status; pg stat; pg dump pgs_brief; pg dump_stuck; pg ls; osd df; osd df tree; df detail; osd tree;
osd tree down; osd stat; osd dump; osd perf; osd blocked-by; osd pool stats; osd status; osd ok-to-stop 0; osd safe-to-destroy 3"""
WRONG = """osd out 99; osd in foo; osd reweight 99 0.5; osd rm 0; osd purge 0; osd purge 99; osd destroy 0; osd destroy 99; osd purge-new 0;
osd lost 0; osd safe-to-destroy 99; osd ok-to-stop 0 1 2 3; osd stop 99; osd find 99; osd info 99; osd ls-tree nosuch; osd tree up down;
osd tree-from osd.0; osd df plain name nosuch; osd setmaxosd 2; osd pool stats nosuch; osd set nosuch; osd unset nosuch;
osd set-group noout osd.99; osd set-group noout nosuch; osd add-noout 99; osd primary-affinity 99 1; osd pg-temp 99.0 0; osd pg-upmap 99.0 0 1 2;
osd test-reweight-by-pg 100; osd set-require-min-compat-client nosuch; health mute OSD_DOWN; health mute OSD_DOWN 10x; health unmute NOSUCH;
pg map 99.0; pg ls nosuch; pg ls recovery_unfound; pg ls-by-pool nosuch; pg ls-by-osd 99; pg dump_stuck nosuch; pg scrub 99.0;
osd crush move nosuch root=default; osd crush rm default; osd crush reweight nosuch 1; osd crush rule rm replicated_rule"""
# With an erasure-coded pool `coded`, in this order: most of them change something.
CODED = """osd erasure-code-profile ls; osd erasure-code-profile get coded; osd erasure-code-profile get nosuch;
osd erasure-code-profile set a; osd erasure-code-profile get a; osd erasure-code-profile set a k=2 m=2;
osd erasure-code-profile set a k=3 m=1; osd erasure-code-profile set a k=3 m=1 --force; osd erasure-code-profile get a;
osd erasure-code-profile set b k=1; osd erasure-code-profile set b m=0; osd erasure-code-profile set b k=x;
osd erasure-code-profile set b w=9; osd erasure-code-profile set b w=9 k=2 m=1 technique=reed_sol_r6_op;
osd erasure-code-profile set b technique=nosuch; osd erasure-code-profile set b plugin=nosuch;
osd erasure-code-profile set b plugin=isa m=5; osd erasure-code-profile set b plugin=isa k=3 m=2 technique=cauchy;
osd erasure-code-profile get b; osd erasure-code-profile set c plugin=lrc k=4 m=2 l=3 crush-failure-domain=osd;
osd erasure-code-profile get c; osd erasure-code-profile set d plugin=lrc k=4 m=2 l=7; osd erasure-code-profile set d plugin=lrc k=4;
osd erasure-code-profile set d plugin=clay k=4 m=2 d=7; osd erasure-code-profile set d plugin=clay k=4 m=2; osd erasure-code-profile get d;
osd erasure-code-profile set e stripe_unit=100; osd erasure-code-profile set e stripe_unit=8000; osd erasure-code-profile set e stripe_unit=x;
osd erasure-code-profile set e stripe_unit=16K k=2 m=1 crush-failure-domain=osd; osd erasure-code-profile get e;
osd erasure-code-profile set f ruleset-root=x; osd erasure-code-profile set f crush-root=nosuch; osd erasure-code-profile set g k;
osd erasure-code-profile set g crush-failure-domain=nosuch; osd erasure-code-profile set h crush-device-class=nosuch; osd erasure-code-profile ls;
osd erasure-code-profile rm a; osd erasure-code-profile rm a; osd erasure-code-profile rm coded; osd erasure-code-profile rm default;
osd erasure-code-profile set coded k=3 m=1 crush-failure-domain=osd;
osd pool create coded 8 8 erasure coded; osd pool create coded 8 8 replicated; osd pool create coded 8; osd pool create rbd 8 8 erasure coded;
osd pool create x 8 8 erasure nosuch; osd pool create x 8 8 erasure f; osd pool create x 8 8 erasure g; osd pool create x 8 8 erasure h;
osd pool create x 8 8 erasure e; osd pool get x all; osd pool ls detail; osd crush rule dump x; osd pool create y 8 8 erasure e coded;
osd pool create z 8 8 erasure e replicated_rule; osd pool create z 8 8 erasure e nosuch; osd pool create z 8 8 replicated coded;
osd pool create z 8 8 erasure c; osd pool create z 100000 8 erasure e; osd pool create z 8 16 erasure e;
osd pool get coded all; osd pool get coded size; osd pool get coded erasure_code_profile; osd pool get coded allow_ec_overwrites;
osd pool get coded fast_read; osd pool get rbd erasure_code_profile; osd pool get rbd allow_ec_overwrites; osd pool get rbd fast_read;
osd pool set rbd erasure_code_profile coded; osd pool set coded erasure_code_profile e; osd pool set rbd allow_ec_overwrites true;
osd pool set rbd fast_read 1; osd pool set coded size 2; osd pool set coded size 3; osd pool set coded min_size 1; osd pool set coded min_size 4;
osd pool set coded min_size 3; osd pool set coded min_size 2; osd pool set coded fast_read 1; osd pool get coded fast_read;
osd pool set coded fast_read 0; osd pool set coded fast_read x; osd pool set x allow_ec_overwrites false; osd pool set x allow_ec_overwrites x;
osd pool set x allow_ec_overwrites true; osd pool set x allow_ec_overwrites false; osd pool get x allow_ec_overwrites;
osd pool set coded crush_rule replicated_rule; osd pool set rbd crush_rule coded; osd pool set x crush_rule coded; osd pool set coded hit_set_type bloom;
osd pool set coded stripe_width 4096; osd pool set coded pg_num 16; osd pool get coded pg_num; osd pool set coded nosuch 1;
osd pool mksnap x s; osd pool rmsnap x s; osd pool set-quota coded max_bytes 1000000000; osd pool get-quota coded; osd pool set-quota coded max_bytes 0;
osd crush rule create-erasure r1; osd crush rule create-erasure r1; osd crush rule create-erasure r2 coded; osd crush rule create-erasure r3 nosuch;
osd crush rule dump r2; osd crush rule dump coded; osd crush rule rm coded; osd crush rule rm r1; osd crush rule rm r2; osd crush rule ls;
osd map coded foo; osd map coded foo space; osd pool stats coded; osd pool application get coded;
osd pool autoscale-status; osd pool rename x xx; osd pool rename xx x; df; df detail; osd dump; osd lspools; pg ls-by-pool coded;
pg ls-by-primary 0; osd pool rm y y --yes-i-really-really-mean-it; osd pool rm x x --yes-i-really-really-mean-it;
osd pool rm z z --yes-i-really-really-mean-it; osd erasure-code-profile rm e; osd erasure-code-profile rm b; osd pool ls; health detail"""
# What neither side can help: what has its own numbers, and what only one of the stores has.
IGNORED = re.compile(r"network_ping_times|op_queue_age_hist|last_purged_snaps_scrub|object_location_counts|avail_no_missing|mgrmap|options\.pg_num")
SHAPES = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:?\d\d|Z)?", "STAMP"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\[?v[12]:[^\]\s]+\]?", "ADDR"),
    (r"mgr: \w\(", "mgr: x("),
    (r"\d+(\.\d+)? ?([KMGT]i?)?B\b", "SIZE"),
    (r"\b\d+[smhdwy]\b", "AGE"),
    (r"\b\d+\.[0-9a-f]{1,3}\b|\d+(\.\d+)?", "N"),
    (r"[ \t]+", " "),
]
lock = threading.Lock()


KIND = os.environ.get("TWINS_POOL", "replicated")
POOLS = ["rbd"] if KIND == "replicated" else ["rbd", "coded"]


class Side:
    def __init__(self, name, conf):
        self.name, self.folder = name, os.path.dirname(os.path.abspath(conf))
        self.conf = conf
        self.cluster = rados.Rados(conffile=conf, name="client.admin")
        self.cluster.connect(timeout=20)
        _, out, _ = ceph_argparse.json_command(self.cluster, prefix="get_command_descriptions", timeout=20)
        self.signatures = ceph_argparse.parse_json_funcsigs(out.decode(), "cli")

    def ask(self, line, form=None):
        """As `ceph` does: code, output, status."""
        said = io.StringIO()
        with lock, contextlib.redirect_stderr(said):
            command = ceph_argparse.validate_command(self.signatures, shlex.split(line))
        if not command:
            # The help that comes with it is each one's own.
            return -22, "", re.sub(r" :  .*", "", said.getvalue())
        if form:
            command["format"] = form
        target = command.get("target", ("mon", ""))
        code, out, status = ceph_argparse.json_command(self.cluster, target=target, argdict=command, timeout=30)
        return code, out.decode("utf8", "replace"), status

    def json(self, line):
        return json.loads(self.ask(line, "json")[1])

    def query(self):
        """`pg query` of a group of the erasure-coded pool."""
        pool = next(pool["pool"] for pool in self.json("osd dump")["pools"] if pool["pool_name"] == "coded")
        code, out, status = ceph_argparse.json_command(self.cluster, target=("pg", f"{pool}.0"), prefix="query", timeout=30)
        return code, out.decode("utf8", "replace"), status

    def pid(self, osd):
        with open(f"{self.folder}/run/osd.{osd}.pid") as file:
            return int(file.read())

    def start(self, osd):
        ceph = ["ceph-osd", "-c", self.conf, "-i", str(osd)]
        nacre = [NACRE, "start", "--data", self.folder, f"osd.{osd}"]
        subprocess.run(ceph if self.name == "ceph" else nacre, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def shape(text):
    for pattern, word in SHAPES:
        text = re.sub(pattern, word, text)
    return text


def paths(value, at, found):
    """Each place in the value with the types and words that are there."""
    types, words = found.setdefault(at, (set(), set()))
    types.add("number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__)
    if isinstance(value, dict):
        for key, inner in value.items():
            paths(inner, f"{at}.{shape(key)}", found)
    elif isinstance(value, list):
        for inner in value:
            paths(inner, at + "[]", found)
    elif isinstance(value, str):
        words.add(shape(value))
    return found


def differences(ceph, nacre):
    for name, one, other in [("code", ceph[0], nacre[0]), ("status", shape(ceph[2]), shape(nacre[2]))]:
        if one != other:
            yield f"  {name}: {one!r} | {other!r}"
    try:
        one, other = [paths(json.loads(side[1]), "", {}) for side in (ceph, nacre)]
    except ValueError:
        # What is said of single groups follows from where they are.
        of = [[line for line in shape(side[1]).split("\n") if not line.startswith(("N N", " pg N"))] for side in (ceph, nacre)]
        yield from [f"  - {line}" for line in of[0] if line not in of[1]][:20]
        yield from [f"  + {line}" for line in of[1] if line not in of[0]][:20]
        return
    for at in sorted(set(one) | set(other)):
        parent = at[:-2] if at.endswith("[]") else at.rpartition(".")[0]
        if IGNORED.search(at) or at and not (parent in one and parent in other):
            continue
        if at not in other or at not in one:
            yield f"  {'-' if at in one else '+'} {at}"
        elif one[at] != other[at]:
            (types, words), (other_types, other_words) = one[at], other[at]
            yield f"  {at}: {sorted(types ^ other_types)} {sorted(words - other_words)[:5]} | {sorted(other_words - words)[:5]}"


class Twins:
    def __init__(self, ceph, nacre):
        self.sides = [Side("ceph", ceph), Side("nacre", nacre)]
        self.asked = self.differed = 0

    def both(self, do):
        found = [None, None]

        def run(at):
            found[at] = do(self.sides[at])

        threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return found

    def compare(self, lines):
        for line in filter(None, map(str.strip, lines.split(";"))):
            for form in (None, "json"):
                found = list(differences(*self.both(lambda side: side.ask(line, form))))
                self.asked += 1
                if found:
                    self.differed += 1
                    print("\n".join([f"{line}{' as JSON' if form else ''}"] + found), flush=True)

    def compare_query(self):
        if "coded" not in POOLS:
            return
        found = list(differences(*self.both(Side.query)))
        self.asked += 1
        self.differed += bool(found)
        print("\n".join(["pg query", *found]) if found else "", flush=True)

    def say(self, *lines):
        [self.both(lambda side: side.ask(line)) for line in lines]

    def until(self, what, holds, seconds=120):
        def wait(side):
            end = time.time() + seconds
            while time.time() < end and not holds(side):
                time.sleep(0.5)
            return holds(side)

        held = self.both(wait)
        assert all(held), f"{what}: {held}"

    def clean(self):
        def is_clean(side):
            states = side.json("status")["pgmap"]["pgs_by_state"]
            return all(state["state_name"] == "active+clean" for state in states)

        self.until("clean", is_clean)

    def signal(self, osd, number):
        self.both(lambda side: os.kill(side.pid(osd), number))

    def up(self, osd, up):
        self.until(f"osd.{osd} up: {up}", lambda side: side.json(f"osd info {osd}")["up"] == up)

    def start(self, osd):
        self.both(lambda side: side.start(osd))
        self.up(osd, 1)

    def make_coded(self):
        """The erasure-coded pool, if one is wanted."""
        if KIND == "replicated":
            return
        self.say("osd erasure-code-profile set coded k=2 m=1 crush-failure-domain=osd",
                 "osd pool create coded 8 8 erasure coded", "osd pool application enable coded test")
        if KIND == "overwrites":
            self.say("osd pool set coded allow_ec_overwrites true")
        # What the managers say of new groups comes with the next reports.
        time.sleep(8)
        self.clean()

    def write(self, seconds=10):
        def run(side):
            ioctxs = [side.cluster.open_ioctx(pool) for pool in POOLS]
            writes = [ioctx.aio_write_full(f"state{n}", os.urandom(4096)) for n in range(200) for ioctx in ioctxs]
            end = time.time() + seconds
            while time.time() < end and not all(write.is_complete() for write in writes):
                time.sleep(0.1)

        self.both(run)


def wrong(t):
    t.compare(WRONG)


def down(t):
    """One is killed, data is written, it comes back and may not recover yet."""
    t.say("osd set noout")
    t.signal(3, signal.SIGKILL)
    t.up(3, 0)
    t.write()
    time.sleep(8)
    t.compare(LOOKS + "; osd down 3; osd lost 3; osd find 3; osd info 3")
    t.compare_query()
    t.say("osd set norecover")
    t.start(3)
    time.sleep(8)
    t.compare(LOOKS)
    t.say("osd unset norecover", "osd unset noout")
    t.clean()


def out(t):
    """One is marked out; what it holds may not move yet. Then it may, and is taken in again."""
    t.say("osd set norecover", "osd set nobackfill", "osd out 3")
    time.sleep(8)
    t.compare(LOOKS + "; osd tree out")
    t.compare_query()
    t.say("osd unset norecover", "osd unset nobackfill")
    t.clean()
    t.compare("osd safe-to-destroy 3; osd df; df")
    t.say("osd in 3")
    t.clean()


def full(t):
    for kind, ratios in {"nearfull": (1e-6, 0.9, 0.95), "backfillfull": (1e-7, 1e-6, 0.95), "full": (1e-8, 1e-7, 1e-6)}.items():
        for name, ratio in zip(("nearfull", "backfillfull", "full"), ratios):
            t.say(f"osd set-{name}-ratio {ratio:.9f}")
        time.sleep(10)
        t.compare("health; health detail; status; osd dump; osd pool ls detail; osd status")
    t.say("osd set-full-ratio 0.95", "osd set-backfillfull-ratio 0.9", "osd set-nearfull-ratio 0.85")


def slow(t):
    """One hangs, and nobody may say so."""
    t.say("osd set nodown", "config set osd osd_op_complaint_time 3")
    t.signal(2, signal.SIGSTOP)
    t.write(seconds=1)
    time.sleep(20)
    t.compare("health; health detail; status")
    t.signal(2, signal.SIGCONT)
    t.say("osd unset nodown", "config rm osd osd_op_complaint_time")
    t.clean()


def stopped(t):
    """`osd stop` ends it."""
    pids = dict(zip(("ceph", "nacre"), t.both(lambda side: side.pid(3))))
    t.say("osd set noout")
    t.compare("osd stop 3")
    t.until("its end", lambda side: not os.path.exists(f"/proc/{pids[side.name]}"))
    t.compare("osd info 3; osd stop 3; osd tree down")
    t.start(3)
    t.say("osd unset noout")
    t.clean()


def muted(t):
    t.say("osd set noout")
    time.sleep(3)
    for line in ("", "health mute OSDMAP_FLAGS 1h --sticky", "health mute OSD_DOWN 1h --sticky", "health unmute OSDMAP_FLAGS", "health unmute"):
        t.compare(f"{line}; health; health detail; status")
    t.say("osd unset noout")


def coded(t):
    """Profiles, pools and rules for erasure codes."""
    if KIND != "replicated":
        t.compare_query()
        t.compare(CODED)


STATES = {state.__name__: state for state in (wrong, down, out, full, slow, stopped, muted, coded)}

if __name__ == "__main__":
    twins = Twins(*sys.argv[1:3])
    twins.say("balancer off")
    twins.make_coded()
    for name in sys.argv[3:] or STATES:
        print(f"---- {name}", flush=True)
        STATES[name](twins)
    print(f"{twins.asked} answers, {twins.differed} differ")
