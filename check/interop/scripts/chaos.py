#!/usr/bin/env python3
"""Everything at once on a cluster of real processes: models of objects and images work while at random daemons are
killed and hang, and administrators do what they do. After each episode all must be well again.

Arguments: the cluster's folder (3 monitors, 5 OSDs or more), the `nacre` binary, a seed, episodes, seconds of
each, and perhaps `erasure`: large objects and the data of images are then in erasure-coded pools in each
episode, and otherwise in some."""
import collections
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import rados

FOLDER, NACRE, SEED, EPISODES, SECONDS = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
SCRIPTS = os.path.dirname(os.path.abspath(__file__))
OSDS_MAX, AWAY_MAX, MEMORY, CLEAN_WITHIN = 8, 2, 256 << 20, 180
# A process is more than what it stores: its code, its stacks, what an allocator wastes.
PROCESS = 64 << 20
FLAGS = ["noout", "nodown", "noup", "norecover", "nobackfill", "norebalance", "noscrub", "nodeep-scrub", "nosnaptrim",
         "pause", "noin"]
MODELS = {  # name -> script and how
    "objects": ["model.py", "snaps"], "large": ["model.py", "large"], "pool-snaps": ["model.py", "pool-snaps"],
    "images": ["model_images.py"],
}
# What these have instead in an episode with erasure-coded pools of two parts of data and two of parity.
CODED = {"large": ["model.py", "coded"], "images": ["model_images.py", "DATA"]}
began = time.monotonic()


def say(text):
    print(f"{time.monotonic() - began:7.1f} {text}", flush=True)


class Daemons:
    """The processes, and which of them must run."""

    def __init__(self):
        self.running = {os.path.basename(path)[:-4] for path in glob.glob(f"{FOLDER}/run/*.pid")}
        self.all, self.stopped, self.most = set(self.running), set(), {}

    def pid(self, name):
        return int(open(f"{FOLDER}/run/{name}.pid").read().split()[-1])

    def look(self):
        """Whoever must run runs, within its memory."""
        for name in self.running:
            try:
                lines = dict(line.split(":", 1) for line in open(f"/proc/{self.pid(name)}/status"))
                self.most[name] = max(self.most.get(name, 0), int(lines["VmHWM"].split()[0]) << 10)
            except (OSError, KeyError, ValueError, IndexError) as error:
                raise AssertionError(f"{name} ended by itself: {error!r}") from error
        for name, most in self.most.items():
            if name.startswith("osd."):
                assert most < MEMORY + PROCESS, f"{name} had {most >> 20} MiB"
        crashes = [path for path in glob.glob(f"{FOLDER}/crash/*")]
        assert not crashes, f"crashes: {crashes}"

    def kill(self, *names):
        say(f"kill {' '.join(names)}")
        pids = [self.pid(name) for name in names]
        for name, pid in zip(names, pids):
            os.kill(pid, signal.SIGKILL)
            self.running.discard(name)
            self.stopped.discard(name)

    def start(self, *names):
        say(f"start {' '.join(names)}")
        for name in names:
            nacre("start", name)
            self.running.add(name)

    def freeze(self, name, seconds):
        say(f"freeze {name}")
        os.kill(self.pid(name), signal.SIGSTOP)
        self.stopped.add(name)
        # Whoever asks frozen monitors cannot thaw them.
        threading.Timer(seconds, self.thaw, [name]).start()

    def thaw(self, name):
        if name in self.stopped:
            say(f"thaw {name}")
            os.kill(self.pid(name), signal.SIGCONT)
            self.stopped.discard(name)

    def well(self, kind):
        return sorted(name for name in self.running - self.stopped if name.startswith(kind))

    def away(self, kind):
        return len([name for name in self.all if name.startswith(kind)]) - len(self.well(kind))


def nacre(*words):
    where = [] if words[0] == "store" else ["--data", FOLDER]
    done = subprocess.run([NACRE, *words, *where], capture_output=True, text=True, check=False)
    assert not done.returncode, f"nacre {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


class Chaos:
    def __init__(self, cluster, daemons, rng):
        self.cluster, self.daemons, self.rng = cluster, daemons, rng
        self.pools, self.undo = [], []  # what works on them, and (when, how) something is taken back
        self.coded = []  # pools that are erasure-coded
        self.faults = [
            (self.kill_osd, 10), (self.freeze_osd, 6), (self.kill_mon, 3), (self.freeze_mon, 3), (self.kill_all, 1),
            (self.out, 4), (self.reweight, 4), (self.pg_num, 6), (self.pool_size, 3), (self.min_size, 3),
            (self.move_osd, 2), (self.crush_weight, 2), (self.upmap, 4), (self.add_osd, 1), (self.replace_osd, 2),
            (self.pool, 3), (self.scrub, 5), (self.quota, 2), (self.flag, 4), (self.temp, 2), (self.repeer, 2),
            (self.affinity, 1), (self.mark_down, 2), (self.replace_mon, 2),
        ]

    # ---- asking the monitors ----

    def ask(self, prefix, timeout=30, **arguments):
        code, said, why = self.cluster.mon_command(
            json.dumps({"prefix": prefix, "format": "json", **arguments}), b"", timeout=timeout)
        if code:
            raise rados.Error(f"{prefix} {arguments}: {why}", -code)
        return json.loads(said) if said.strip() else None

    def tell(self, prefix, **arguments):
        """Asks for something that may be refused, or come to nothing because monitors are away."""
        try:
            self.ask(prefix, **arguments)
            said = "done"
        except rados.Error as error:
            said = str(error)
        say(f"{prefix} {' '.join(map(str, arguments.values()))}: {said}")
        return said == "done"

    def insist(self, prefix, **arguments):
        for _ in range(20):
            if self.tell(prefix, **arguments):
                return
            time.sleep(1)
        raise AssertionError(f"{prefix} {arguments} is refused")

    def osds(self):
        return [osd["osd"] for osd in self.ask("osd dump")["osds"]]

    def some_osd(self):
        return self.rng.choice(sorted(name for name in self.daemons.all if name.startswith("osd.")))[4:]

    def some_pg(self):
        return self.rng.choice(self.ask("pg dump", dumpcontents=["pgs_brief"])["pg_stats"])

    def later(self, least, most, *undo):
        self.undo.append((time.monotonic() + self.rng.uniform(least, most), undo))

    def undo_due(self, now):
        due = [entry for entry in self.undo if entry[0] <= now]
        self.undo = [entry for entry in self.undo if entry[0] > now]
        for _, (how, *arguments) in sorted(due, key=lambda entry: entry[0]):
            how(*arguments)

    # ---- what goes wrong ----

    def kill_osd(self):
        if self.daemons.away("osd.") < AWAY_MAX:
            osd = self.rng.choice(self.daemons.well("osd."))
            self.daemons.kill(osd)
            self.later(0, 20, self.daemons.start, osd)

    def freeze_osd(self):
        if self.daemons.away("osd.") < AWAY_MAX:
            osd = self.rng.choice(self.daemons.well("osd."))
            self.daemons.freeze(osd, self.rng.uniform(0.5, 12))

    def kill_mon(self):
        if not self.daemons.away("mon."):
            mon = self.rng.choice(self.daemons.well("mon."))
            self.daemons.kill(mon)
            self.later(1, 15, self.daemons.start, mon)

    def freeze_mon(self):
        mons = self.daemons.well("mon.")
        if not self.daemons.away("mon."):
            for mon in self.rng.sample(mons, self.rng.choice([1, 1, 2])):
                self.daemons.freeze(mon, self.rng.uniform(1, 8))

    def kill_all(self):
        if not self.undo_starts():
            names = sorted(self.daemons.running)
            self.daemons.kill(*names)
            self.rng.shuffle(names)
            self.daemons.start(*names)

    def undo_starts(self):
        return any(undo[0] == self.daemons.start for _, undo in self.undo)

    # ---- what administrators do ----

    def out(self):
        osd = self.some_osd()
        if self.tell("osd out", ids=[osd]):
            self.later(2, 40, self.tell_in, osd)

    def tell_in(self, osd):
        self.tell("osd in", ids=[osd])

    def reweight(self):
        self.tell("osd reweight", id=int(self.some_osd()), weight=self.rng.choice([0.3, 0.7, 1.0]))

    def crush_weight(self):
        self.tell("osd crush reweight", name=f"osd.{self.some_osd()}", weight=self.rng.choice([0.002, 0.004, 0.008]))

    def affinity(self):
        self.tell("osd primary-affinity", id=int(self.some_osd()), weight=self.rng.choice([0.0, 0.5, 1.0]))

    def mark_down(self):
        self.tell("osd down", ids=[self.some_osd()])

    def set_pool(self, pool, var, val, **more):
        return self.tell("osd pool set", pool=pool, var=var, val=str(val), **more)

    def pg_num(self):
        self.set_pool(self.rng.choice(self.pools + self.coded), "pg_num", self.rng.choice([1, 4, 7, 8, 16, 24]))

    def pool_size(self):
        pool = self.rng.choice(self.pools)
        if self.set_pool(pool, "size", self.rng.choice([2, 2, 4])):
            self.later(5, 40, self.set_pool, pool, "size", 3)

    def min_size(self):
        pool = self.rng.choice(self.pools + self.coded)
        self.set_pool(pool, "min_size", self.rng.choice([1, 2] if pool in self.pools else [2, 3]))

    def move_osd(self):
        host = self.rng.choice("abc")
        self.tell("osd crush add-bucket", name=host, type="host", args=["root=default"])
        self.tell("osd crush move", name=f"osd.{self.some_osd()}", args=["root=default", f"host={host}"])

    def upmap(self):
        pg = self.some_pg()
        osd = int(self.some_osd())
        if osd not in pg["up"]:
            self.tell("osd pg-upmap-items", pgid=pg["pgid"], id=[self.rng.choice(pg["up"]), osd])
        else:
            self.tell("osd rm-pg-upmap-items", pgid=pg["pgid"])

    def temp(self):
        pg = self.some_pg()
        self.tell("osd pg-temp", pgid=pg["pgid"], id=self.rng.sample(self.osds(), 2))

    def repeer(self):
        self.tell("pg repeer", pgid=self.some_pg()["pgid"])

    def scrub(self):
        how = self.rng.choice(["scrub", "deep-scrub", "repair"])
        self.tell(f"pg {how}", pgid=self.some_pg()["pgid"])

    def add_osd(self):
        if len(self.osds()) < OSDS_MAX:
            osd = len(glob.glob(f"{FOLDER}/osd.*"))
            nacre("osd", "format", "--dev", f"{FOLDER}/disk.{osd}", "--size", "4G", "--no-check")
            self.daemons.all.add(f"osd.{osd}")
            self.daemons.start(f"osd.{osd}")

    def replace_osd(self):
        osd = self.some_osd()
        if len(self.osds()) > 5 and f"osd.{osd}" in self.daemons.well("osd.") and self.tell("osd out", ids=[osd]):
            self.later(15, 30, self.purge, osd, 6)

    def purge(self, osd, attempts):
        name = f"osd.{osd}"
        try:
            safe = self.ask("osd safe-to-destroy", ids=[osd])
            safe = not safe or int(osd) in safe["safe_to_destroy"]
        except rados.Error as error:
            say(error)
            safe = False
        if safe and name in self.daemons.well("osd."):
            nacre("stop", name)
            self.daemons.running.discard(name)
            if self.tell("osd purge", id=int(osd), yes_i_really_mean_it=True):
                # A new one takes its place, or it comes back with what it had.
                if self.rng.random() < 0.5:
                    self.daemons.start(name)
                    self.tell_in(osd)
                else:
                    self.daemons.all.discard(name)
                    self.add_osd()
            else:
                self.daemons.start(name)
                self.tell_in(osd)
        elif attempts:
            self.later(5, 10, self.purge, osd, attempts - 1)
        else:
            self.tell_in(osd)

    def replace_mon(self):
        """A monitor is lost with all that it stored, or removed while it runs; a new one takes its place."""
        name = self.rng.choice(self.daemons.well("mon.") or [""])
        if self.daemons.away("mon."):
            return
        lost = self.rng.random() < 0.5
        if lost:
            self.daemons.kill(name)
        else:
            self.daemons.running.discard(name)  # it may not end by itself, but nobody counts on it any more
        self.insist("mon rm", name=name[4:])
        if not lost:
            nacre("stop", name)
        add = nacre("mon", "format", "--id", name[4:]).split("`")[1].split()
        self.insist("mon add", name=add[3], addr=add[4])
        self.daemons.start(name)

    def pool(self):
        name = f"passing-{len(self.undo)}-{self.rng.randrange(1000)}"
        if self.tell("osd pool create", pool=name, pg_num=self.rng.choice([1, 8, 16])):
            self.later(1, 40, self.drop_pool, name)

    def drop_pool(self, name):
        self.tell("osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True)

    def quota(self):
        pool = self.rng.choice(self.pools)
        if self.tell("osd pool set-quota", pool=pool, field="max_objects", val="1"):
            self.later(2, 15, self.no_quota, pool)

    def no_quota(self, pool):
        self.tell("osd pool set-quota", pool=pool, field="max_objects", val="0")

    def flag(self):
        flag = self.rng.choice(FLAGS)
        if self.tell("osd set", key=flag):
            self.later(2, 30, self.unset, flag)

    def unset(self, flag):
        self.tell("osd unset", key=flag)

    # ---- an episode ----

    def run(self, seconds, failed):
        self.tell("balancer on")
        end = time.monotonic() + seconds
        while time.monotonic() < end and not failed():
            try:
                self.undo_due(time.monotonic())
                self.rng.choices(*zip(*self.faults))[0]()
            except rados.Error as error:  # it asked something first
                say(f"not now: {error}")
            self.daemons.look()
            time.sleep(self.rng.uniform(0, 3))
        say("all faults end")
        for name in list(self.daemons.stopped):
            self.daemons.thaw(name)
        away = sorted(self.daemons.all - self.daemons.running)
        if away:
            self.daemons.start(*away)
        self.undo = [entry for entry in self.undo if entry[1][0] not in (self.daemons.start, self.purge)]
        self.undo_due(float("inf"))
        self.insist("balancer off")  # it moves groups whenever all is clean
        for flag in FLAGS:
            self.insist("osd unset", key=flag)
        for osd in self.osds():
            self.insist("osd in", ids=[str(osd)])
            self.insist("osd reweight", id=osd, weight=1.0)
        for pool in self.pools:
            self.insist("osd pool set", pool=pool, var="size", val="3")
            self.insist("osd pool set", pool=pool, var="min_size", val="2")
            self.insist("osd pool set-quota", pool=pool, field="max_objects", val="0")
        for pool in self.coded:
            self.insist("osd pool set", pool=pool, var="min_size", val="3")

    def wait_until(self, what, done, seconds=CLEAN_WITHIN):
        end = time.monotonic() + seconds
        while not done():
            self.daemons.look()
            if time.monotonic() > end:
                for question in ["health detail", "osd tree", "pg dump_stuck"]:
                    say(f"{question}: {json.dumps(self.ask(question))}")
                states = [pg for pg in self.ask("pg dump", dumpcontents=["pgs_brief"])["pg_stats"]
                          if pg["state"] != "active+clean"]
                raise AssertionError(f"waited {seconds} s for {what}: {states}")
            time.sleep(1)
        say(what)

    def is_clean(self):
        status = self.ask("status")
        groups, osds = status["pgmap"], status["osdmap"]
        clean = sum(s["count"] for s in groups.get("pgs_by_state", []) if s["state_name"].startswith("active+clean"))
        merging = any(pool["pg_num"] != pool["pg_num_target"] for pool in self.ask("osd dump")["pools"])
        mons = len([name for name in self.daemons.all if name.startswith("mon.")])
        return len(status["quorum"]) == mons and osds["num_up_osds"] == osds["num_osds"] == osds["num_in_osds"] and clean == groups["num_pgs"] and not merging

    def deep_scrub(self):
        def stamps():
            return {pg["pgid"]: pg["last_deep_scrub_stamp"] for pg in self.ask("pg dump", dumpcontents=["pgs"])["pg_stats"]}

        before = stamps()
        self.insist("osd deep-scrub", who="all")
        self.wait_until("every group is deep-scrubbed", lambda: all(
            stamp != before.get(pg) for pg, stamp in stamps().items()), 300)
        bad = [pg for pg in self.ask("pg dump", dumpcontents=["pgs_brief"])["pg_stats"] if "inconsistent" in pg["state"]]
        health = self.ask("health", detail="detail")
        assert not bad and not {"OSD_SCRUB_ERRORS", "PG_DAMAGED"} & set(health["checks"]), f"{bad} {health}"


def create_pools(chaos, episode, with_codes):
    """A pool for each model, and the models."""
    models, chaos.pools, chaos.coded = [], [], []

    def coded(name):
        chaos.insist("osd pool create", pool=name, pg_num=8, pool_type="erasure", erasure_code_profile="chaos")
        chaos.insist("osd pool set", pool=name, var="allow_ec_overwrites", val="true")
        chaos.coded.append(name)

    for name, how in MODELS.items():
        pool, data = f"{name}-{episode}", f"data-{episode}"
        how = CODED.get(name, how) if with_codes else how
        if how[-1] == "coded":
            coded(pool)
        else:
            chaos.insist("osd pool create", pool=pool, pg_num=8)
            chaos.pools.append(pool)
        if how[-1] == "DATA":
            coded(data)
            chaos.insist("osd pool application enable", pool=data, app="rbd")
            how = [*how[:-1], data]
        models.append((pool, how))
    chaos.insist("osd pool application enable", pool=models[-1][0], app="rbd")
    return models


def start_models(wanted, seed):
    """The models, of which each works on its pool."""
    models = []
    for pool, (script, *how) in wanted:
        line = ["/usr/bin/python3", f"{SCRIPTS}/{script}", pool, str(seed), *how]
        model = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert model.stdout.readline() == "working\n"
        models.append(model)
    return models


def stop_models(wanted, models):
    for (pool, _), model in zip(wanted, models):
        said = model.communicate("stop\n")[0]
        say(f"{pool}: {said}")
    assert not any(model.returncode for model in models), "a model found something else than it expected"


def check_stores(daemons, sizes):
    """Offline, all of them: each object, or another shard of it, is on as many as its pool says, of which there
    are still some. Then the cluster is up again."""
    copies, shards = collections.Counter(), set()
    names = sorted(daemons.running, key=lambda name: (name.startswith("mon."), name))
    for name in names:
        nacre("stop", name)
    daemons.running.clear()
    for name in names:
        nacre("store", "fsck", f"{FOLDER}/{name}", "--deep")
        stored = [json.loads(line) for line in nacre("store", "ls", f"{FOLDER}/{name}", "--format", "json").splitlines()]
        for thing in (thing for thing in stored if thing["pool"] >= 0):
            # Of an erasure-coded pool: two of one shard count once.
            is_shard = re.match(r"\d+#", thing["id"])
            if not is_shard or thing["id"] not in shards:
                copies[thing["pool"], thing["id"][is_shard.end():] if is_shard else thing["id"]] += 1
            shards.update([thing["id"]] if is_shard else [])
    strange = {thing: count for thing, count in copies.items() if count != sizes.get(thing[0])}
    assert not strange, f"copies of which there are too many or too few: {strange}, pools have {sizes}"
    say("every store is right")
    daemons.start(*reversed(names))


def main():
    rng = random.Random(SEED)
    cluster = rados.Rados(conffile="")
    cluster.connect()
    daemons = Daemons()
    chaos = Chaos(cluster, daemons, rng)
    chaos.insist("config set", who="mon", name="mon_allow_pool_delete", value="true")
    profile = ["k=2", "m=2", "crush-failure-domain=osd"]
    chaos.insist("osd erasure-code-profile set", name="chaos", profile=profile)
    for episode in range(EPISODES):
        say(f"---- episode {episode}, seed {SEED} ----")
        old = chaos.pools + chaos.coded
        wanted = create_pools(chaos, episode, "erasure" in sys.argv[6:] or rng.random() < 0.4)
        for pool in old:
            chaos.later(0, SECONDS, chaos.drop_pool, pool)
        models = start_models(wanted, SEED + episode)
        chaos.run(SECONDS, lambda: any(model.poll() is not None for model in models))
        stop_models(wanted, models)
        chaos.wait_until("all is clean", chaos.is_clean)
        chaos.deep_scrub()
        daemons.look()
        check_stores(daemons, {pool["pool"]: pool["size"] for pool in chaos.ask("osd dump")["pools"]})
        chaos.wait_until("all is clean again", chaos.is_clean)
        say(f"at most, in MiB: {({name: most >> 20 for name, most in sorted(daemons.most.items())})}")
    say("all good")


main()
