#!/usr/bin/env python3
"""Clients work on trees of a file system, each after a model, while at random OSDs, monitors, metadata servers and
the clients themselves are killed and stopped.

A client that lives must find exactly what it did. After one is killed, its successor must find everything that was
fsynced or in the tree at the last sync, and nothing that was not there, except where the client was at work since.

Arguments: the cluster's folder (3 monitors, 3 OSDs), the `nacre` binary, a seed, seconds of faults."""
import collections
import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import rados

sys.dont_write_bytecode = True
from files_model import BLOCK, BLOCKS, File, Tree

FOLDER, NACRE = sys.argv[1:3]
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files_worker.py")
ANSWER_WITHIN, PATHS_MAX, CLIENTS, SERVERS = 150, 40, 2, ["a", "b", "c"]
# What a client is told that was stopped for so long that the file system gave it up.
EVICTED = {errno.ESHUTDOWN, errno.ENOTCONN, errno.EBADF, errno.EIO}
began = time.monotonic()


def say(text):
    print(f"{time.monotonic() - began:7.1f} {text}", flush=True)


class Died(Exception):
    """The client is no more."""


class Client(threading.Thread):
    """Has a process work on a tree, and compares."""

    def __init__(self, name, number, seed):
        super().__init__(daemon=True)
        self.fs_name, self.rng = name, random.Random(seed)
        self.tree, self.number = Tree(f"/tree{number}"), number
        self.count, self.deaths, self.failure, self.stopping, self.was_frozen = 0, 0, None, False, False
        self.next, self.name = 1, f"client {number}"
        self.asked_at, self.asked = None, collections.deque(maxlen=30)
        self.start_worker()
        self.ask("mkdir", self.tree.top)
        self.ask("pin", self.tree.top, number % 2)
        self.ask("sync")

    def start_worker(self):
        worker = subprocess.Popen(["/usr/bin/python3", WORKER, self.fs_name], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.worker, self.was_frozen = worker, False
        self.asked_at = time.monotonic()
        self.asked.append(("mount",))
        line = worker.stdout.readline()
        self.asked_at = None
        if not line:
            raise Died
        self.id = json.loads(line)

    def ask(self, *words):
        self.asked_at = time.monotonic()
        self.asked.append(words)
        try:
            print(json.dumps(words), file=self.worker.stdin, flush=True)
            line = self.worker.stdout.readline()
        except OSError:
            line = ""
        self.asked_at = None
        if not line:
            raise Died
        code, answer = json.loads(line)
        if code in EVICTED and self.was_frozen:
            say(f"client {self.number}: {answer}")
            self.kill()
            raise Died
        assert not code, f"client {self.number}: {answer}"
        self.count += 1
        return answer

    def kill(self):
        self.worker.kill()

    def run(self):
        try:
            while not self.stopping:
                self.step()
            self.insist(self.finish)
        except Exception as error:  # noqa: BLE001: the main thread shows it
            self.failure = f"client {self.number}: {type(error).__name__}: {error}, after {list(self.asked)}"

    def step(self):
        try:
            self.operate()
        except Died:
            self.insist(self.recover)

    def insist(self, what):
        while True:
            try:
                return what()
            except Died:
                if what != self.recover:
                    self.insist(self.recover)

    def walk(self):
        found = self.ask("walk", self.tree.top)
        for kind, *rest in found.values():
            if kind == "file":
                rest[0]["blocks"] = {int(block): number for block, number in rest[0]["blocks"].items()}
        return found

    def recover(self):
        """Another client takes over the tree."""
        self.worker.wait()
        self.deaths += 1
        evict(self.id)
        self.start_worker()
        found = self.walk()
        self.tree.check_durable(found)
        self.ask("sync")
        self.tree.adopt(found)

    def finish(self):
        self.tree.check_exactly(self.walk())
        self.ask("sync")
        self.tree.made_durable()
        self.kill()
        self.recover()

    def some_name(self):
        folder = self.rng.choice([self.tree.top, *self.tree.of("dir")])
        return f"{folder}/{self.rng.randrange(8)}" if folder.count("/") < 4 else f"{self.tree.top}/{self.rng.randrange(8)}"

    def operate(self):
        tree, rng = self.tree, self.rng
        files, path, new = tree.of("file"), None, self.some_name()
        is_free = new not in tree.paths and len(tree.paths) < PATHS_MAX
        path = rng.choice(files) if files else None
        what = rng.choices(["create", "mkdir", "symlink", "link", "rename", "remove", "write", "fsync", "truncate",
                            "xattr", "sync", "compare"], [10, 5, 2, 4, 6, 9, 20, 8, 5, 5, 3, 1])[0]
        if what in ("create", "mkdir", "symlink") and is_free:
            tree.touch(new, "created")
            self.ask(*{"create": ["create", new], "mkdir": ["mkdir", new], "symlink": ["symlink", path or "x", new]}[what])
            tree.paths[new] = {"create": File(), "mkdir": ["dir"]}.get(what) or ["symlink", path or "x"]
        elif what == "link" and is_free and path and len(tree.linked()) < 6:
            tree.touch(new, "moved")
            self.ask("link", path, new)
            tree.paths[new] = tree.paths[path]
        elif what == "rename" and tree.paths:
            self.rename(rng.choice(sorted(tree.paths)), new)
        elif what == "remove" and tree.paths:
            self.remove(rng.choice(sorted(tree.paths)))
        elif what == "write" and path:
            self.write(path, rng.random() < 0.4)
        elif what == "fsync" and path:
            self.ask("fsync", path)
            tree.fsynced(path)
        elif what == "truncate" and path:
            size = rng.choice(BLOCKS) * BLOCK
            tree.paths[path].is_cut = True
            self.ask("truncate", path, size)
            tree.paths[path].truncate(size)
        elif what == "xattr" and path:
            name, value = rng.choice("abc"), str(self.next)
            self.next += 1
            tree.paths[path].changed.add(name)
            self.ask("xattr", path, name, value)
            tree.paths[path].xattr(name, value)
        elif what == "sync":
            self.ask("sync")
            tree.made_durable()
        elif what == "compare":
            tree.check_exactly(self.walk())

    def write(self, path, sync):
        file, block = self.tree.paths[path], self.rng.choice(BLOCKS)
        self.next += 1
        file.changed.add(block)
        self.ask("write", path, block, self.next, sync)
        file.write(block, self.next)
        if sync:
            self.tree.fsynced(path)

    def rename(self, old, new):
        tree = self.tree
        node, there = tree.paths[old], tree.paths.get(new)
        if new == old or new.startswith(f"{old}/") or node is there:
            return
        if there is not None and (node == ["dir"] or there == ["dir"] or there in tree.linked()):
            return
        tree.touch(old, "moved")
        tree.touch(new, "moved")
        self.ask("rename", old, new)
        moved = {path: node for path, node in tree.paths.items() if path == old or path.startswith(f"{old}/")}
        for path in moved:
            del tree.paths[path]
        tree.paths.update({new + path[len(old):]: node for path, node in moved.items()})

    def remove(self, path):
        tree = self.tree
        is_dir = tree.paths[path] == ["dir"]
        if is_dir and any(other.startswith(f"{path}/") for other in tree.paths) or tree.paths[path] in tree.linked():
            return
        tree.touch(path, "moved")
        self.ask("rmdir" if is_dir else "unlink", path)
        del tree.paths[path]


# ---- the cluster, and what goes wrong ----


def ask(prefix, timeout=30, **arguments):
    command = json.dumps({"prefix": prefix, "format": "json", **arguments})
    code, said, why = cluster.mon_command(command, b"", timeout=timeout)
    if code:
        raise rados.Error(f"{prefix} {arguments}: {why}", abs(code))
    return said.decode()


def insist(prefix, **arguments):
    end = time.monotonic() + ANSWER_WITHIN
    while True:
        try:
            return ask(prefix, **arguments)
        except rados.Error as error:
            assert time.monotonic() < end, error
            time.sleep(0.5)


def servers():
    dump = json.loads(insist("fs dump"))
    return [*dump["filesystems"][0]["mdsmap"]["info"].values(), *dump["standbys"]]


def evict(client):
    """An administrator ends a dead client's session, for which others would wait until it is stale."""
    end, done = time.monotonic() + ANSWER_WITHIN, set()
    while time.monotonic() < end:
        holders = {info["name"]: info["state"] for info in servers() if info["rank"] >= 0}
        for name in holders.keys() - done:
            tell = ["timeout", "10", "ceph", "tell", f"mds.{name}", "client", "evict", f"id={client}"]
            if subprocess.run(tell, capture_output=True, check=False).returncode == 0:
                done.add(name)
        if "up:active" in holders.values() and holders.keys() <= done:
            return
        time.sleep(0.5)
    raise AssertionError(f"client {client} is not evicted, {holders}")


class Mds:
    """A metadata server's process."""

    def __init__(self, name):
        self.name, self.frozen = name, False
        self.keyring = f"{FOLDER}/mds.{name}.keyring"
        caps = ["mon", "profile mds", "mgr", "profile mds", "mds", "allow *", "osd", "allow rwx"]
        said = json.loads(insist("auth get-or-create", entity=f"mds.{name}", caps=caps))
        with open(self.keyring, "w", encoding="utf-8") as file:
            file.write(f"[mds.{name}]\n\tkey = {said[0]['key']}\n")
        self.start()

    def start(self):
        words = ["ceph-mds", "-f", "-i", self.name, "--keyring", self.keyring]
        words += ["--log-file", f"{FOLDER}/log/mds.{self.name}.log"]
        words += ["--admin-socket", f"{FOLDER}/mds.{self.name}.asok"]
        words += ["--mds-beacon-interval=1", "--mds-tick-interval=1"]
        # It replaces itself when it is fenced: by a process with the same id.
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)


class Nacre:
    """A daemon of the cluster."""

    def __init__(self, name):
        self.name, self.frozen = name, False

    @property
    def pid(self):
        with open(f"{FOLDER}/run/{self.name}.pid", encoding="utf-8") as file:
            return int(file.read())

    def start(self):
        done = subprocess.run([NACRE, "start", self.name, "--data", FOLDER], capture_output=True, text=True, check=False)
        assert not done.returncode, f"start {self.name}: {done.stdout}{done.stderr}"


def send(pid, what):
    """To a process that may have ended by itself."""
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


class Faults:
    def __init__(self, rng, clients):
        self.rng, self.clients, self.undo, self.count = rng, clients, {}, 0
        self.lock, self.failure = threading.RLock(), None
        self.servers = [Mds(name) for name in SERVERS]
        names = sorted(name[:-4] for name in os.listdir(f"{FOLDER}/run") if name.endswith(".pid"))
        kind = lambda word: [Nacre(name) for name in names if name.startswith(word)]
        self.kinds = {"osd": kind("osd."), "mon": kind("mon.")}

    def later(self, daemon, least, most, undo, *arguments):
        """Takes a fault back, also while the main thread waits for an answer of stopped monitors."""
        timer = threading.Timer(self.rng.uniform(least, most), self.take_back, [daemon])
        self.undo[daemon] = (undo, arguments)
        timer.daemon = True
        timer.start()

    def take_back(self, daemon):
        with self.lock:
            undo, arguments = self.undo.get(daemon, (None, ()))
            try:
                if undo:
                    undo(daemon, *arguments)
            except Exception as error:  # noqa: BLE001: the main thread shows it
                self.failure = f"{daemon.name}: {error!r}"
            self.undo.pop(daemon, None)

    def is_away(self, daemons):
        return any(daemon in self.undo for daemon in daemons)

    def start(self, daemon):
        say(f"start {daemon.name}")
        daemon.start()

    def thaw(self, what, pid):
        say(f"thaw {what.name}")
        send(pid, signal.SIGCONT)

    def kill_or_freeze(self, daemons, longest):
        """At most one of a kind is away at a time, and it comes back."""
        if self.is_away(daemons):
            return
        daemon, rng = self.rng.choice(daemons), self.rng
        pid = daemon.process.pid if isinstance(daemon, Mds) else daemon.pid
        if rng.random() < 0.5:
            say(f"kill {daemon.name}")
            send(pid, signal.SIGKILL)
            if isinstance(daemon, Mds):
                daemon.process.wait()
            self.later(daemon, 0.2, 4, self.start)
        else:
            say(f"freeze {daemon.name}")
            send(pid, signal.SIGSTOP)
            self.later(daemon, 0.5, longest, self.thaw, pid)

    def client(self, longest):
        client = self.rng.choice(self.clients)
        if self.is_away(self.clients):
            return
        pid = client.worker.pid
        if self.rng.random() < 0.7:
            say(f"kill client {client.number}")
            client.kill()
        else:
            say(f"freeze client {client.number}")
            client.was_frozen = True
            send(pid, signal.SIGSTOP)
            self.later(client, 0.5, longest, self.thaw, pid)

    def administrator(self):
        what = self.rng.choice(["fail", "ranks"])
        try:
            if what == "fail":
                say(ask("mds fail", role_or_gid=str(self.rng.randrange(2))) or "mds fail")
            else:
                ranks = str(self.rng.choice([1, 2]))
                say(f"max_mds {ranks}")
                ask("fs set", fs_name="chaos", var="max_mds", val=ranks)
        except rados.Error as error:
            say(f"{what}: {error}")

    def one(self):
        self.count += 1
        what = self.rng.choices(["osd", "mon", "mds", "client", "administrator"], [4, 2, 5, 4, 1])[0]
        if what == "administrator":
            self.administrator()
        elif what == "client":
            self.client(6)
        else:
            self.kill_or_freeze(self.kinds.get(what, self.servers), 10)

    def restart_ended(self):
        """A metadata server may end itself when it finds that it was fenced."""
        assert not self.failure, self.failure
        for server in self.servers:
            if server not in self.undo and server.process.poll() is not None:
                code = server.process.returncode
                assert code >= 0, f"mds.{server.name} ended with signal {-code}"
                self.start(server)


def until(what, done):
    end = time.monotonic() + ANSWER_WITHIN
    while not done():
        assert time.monotonic() < end, f"waited {ANSWER_WITHIN} s for {what}"
        time.sleep(0.2)


def look(clients):
    for client in clients:
        assert not client.failure, client.failure
        since = client.asked_at
        waited = since and time.monotonic() - since
        assert not waited or waited < ANSWER_WITHIN, f"client {client.number} waits for {client.asked[-1]}"


def main(seed, seconds):
    rng = random.Random(seed)
    insist("config set", who="global", name="mds_beacon_grace", value="4")
    insist("config set", who="mds", name="mds_reconnect_timeout", value="8")
    insist("fs volume create", name="chaos")
    faults = Faults(rng, [])
    active = lambda: any(info["state"] == "up:active" for info in servers())
    until("an active server", active)
    if rng.random() < 0.5:
        insist("fs set", fs_name="chaos", var="max_mds", val="2")
    faults.clients.extend(Client("chaos", number, seed + number) for number in range(CLIENTS))
    clients = faults.clients
    for client in clients:
        client.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            faults.one()
            pause = time.monotonic() + rng.uniform(0.2, 3)
            while time.monotonic() < min(pause, end):
                faults.restart_ended()
                look(clients)
                time.sleep(0.1)
        say("all come back")
        for daemon in list(faults.undo):
            faults.take_back(daemon)
        for client in clients:
            client.stopping = True
        while any(client.is_alive() for client in clients):
            faults.restart_ended()
            look(clients)
            time.sleep(0.1)
        look(clients)
    except BaseException:
        say(f"servers: {[(info['name'], info['rank'], info['state']) for info in servers()]}")
        raise
    finally:
        for client in clients:
            client.worker.kill()
        for server in faults.servers:
            server.process.kill()
    operations, deaths = (sum(getattr(client, what) for client in clients) for what in ("count", "deaths"))
    say(f"all good: {operations} operations, {faults.count} faults, {deaths} clients died")


cluster = rados.Rados(conffile=os.environ["CEPH_CONF"], name="client.admin")
cluster.connect()
main(int(sys.argv[3]), float(sys.argv[4]))
