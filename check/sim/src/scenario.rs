//! Runs one script: clients work while faults happen, then all faults end, then everything is checked.

use crate::cluster::{Cluster, Seed, mon_name};
use crate::limits::{Elections, check_maps};
use crate::network::NodeId;
use crate::node::Node;
use crate::script::{Auth, Fault, Script, Target};
use crate::workload::{WRITERS, Workload};
use bytes::Bytes;
use nacre_base::{PoolId, Rng};
use nacre_client::{Output, Request, RequestId};
use nacre_proto::types::cluster_format;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How a run ended.
pub struct Outcome {
    /// The peak memory of any OSD, in bytes.
    pub memory: usize,
    pub hash: u64,
    pub steps: u64,
    pub answered: u64,
    /// What went wrong; None if the run passed.
    pub failure: Option<String>,
}

/// After the last fault every request must be answered within this time.
const ANSWERS: Duration = Duration::from_secs(120);
/// Stray copies must be deleted within this time.
const STRAYS_GONE: Duration = Duration::from_secs(60);
/// The client that sends administrators' commands.
const ADMIN: usize = 0;
const POOLS_MAX: usize = 3;
const ADDED_MAX: usize = 2;
/// Of the erasure-coded pool, if there is one.
const SHARDS_MAX: usize = 4;

pub fn run_seed(seed: Seed, print: bool) -> Outcome {
    run_script(&Script::draw(seed.0), print)
}

pub fn run_script(script: &Script, print: bool) -> Outcome {
    let mut end = (0, 0, 0, 0);
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(script, print);
        let result = run.all(script);
        let memory = run.c.osds.iter().map(|osd| run.c.world.node(*osd).memory_peak).max();
        let trace = &run.c.world.trace;
        end = (trace.hash(), trace.steps(), run.workload.answered, memory.unwrap_or(0));
        result
    }));
    let (hash, steps, answered, memory) = end;
    let failure = match run {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("no message")))
        }
    };
    Outcome { memory, hash, steps, answered, failure }
}

/// What follows when a command is answered.
enum Then {
    Nothing,
    /// The pool with this name exists.
    LookUpPool(String),
    /// This command is sent again, with its input, unless it succeeded.
    Retry(Value, Bytes),
    /// The next command that adds or removes a monitor is sent.
    NextMon,
}

struct Run {
    c: Cluster,
    workload: Workload,
    rng: Rng,
    pools: Vec<PoolId>,
    /// Commands in flight.
    commands: Vec<(RequestId, Then)>,
    /// Commands that add or remove a monitor, behind the one in flight. Its client may send it again after a
    /// hangup, so a later one must not overtake it.
    mon_commands: VecDeque<Value>,
    lookups: Vec<RequestId>,
    /// How many pools were asked for.
    named: usize,
    /// OSDs marked out.
    out: BTreeSet<usize>,
    /// OSDs with another reweight, which they also have when they are marked in again.
    reweighted: BTreeSet<usize>,
    /// OSDs that are purged at the end, if still out.
    leaving: BTreeSet<usize>,
    added: usize,
    /// Shards of objects in the erasure-coded pool; zero if there is none.
    shards: usize,
    elections: Elections,
    /// Hosts in each rack.
    per_rack: usize,
    /// How far wrong clocks are ahead without their fault.
    clocks: BTreeMap<NodeId, Duration>,
}

impl Run {
    fn new(script: &Script, print: bool) -> Run {
        let shape = &script.shape;
        // Without authentication nothing distinguishes the reader.
        let clients = WRITERS + usize::from(shape.auth == Auth::Cephx);
        let mut c = Cluster::with_shape(Seed(script.seed), shape, clients, print);
        let mut rng = c.world.rng.fork();
        for node in &mut c.world.nodes {
            node.wall_ahead = Duration::from_secs(rng.below(u64::from(shape.clock_skew) + 1));
        }
        let workload = Workload::new(Rng::new(script.seed ^ 0x0bad_cafe));
        Run {
            c,
            workload,
            rng,
            pools: Vec::new(),
            commands: Vec::new(),
            mon_commands: VecDeque::new(),
            lookups: Vec::new(),
            named: 1,
            out: BTreeSet::new(),
            reweighted: BTreeSet::new(),
            leaving: BTreeSet::new(),
            added: 0,
            shards: 0,
            elections: Elections::default(),
            per_rack: shape.per_rack,
            clocks: BTreeMap::new(),
        }
    }

    fn all(&mut self, script: &Script) -> Result<(), String> {
        self.start(script)?;
        let began = self.c.world.now;
        self.elections = Elections::begin(&self.c);
        for (at, fault) in &script.steps {
            let due = began + *at;
            while self.c.world.now < due {
                self.workload.step(&mut self.c, &self.pools)?;
                self.note_answers();
                let pause = self.rng.duration(Duration::from_micros(500), Duration::from_millis(40));
                self.c.run_for(pause.min(due.since(self.c.world.now)));
            }
            self.c.world.comment(&format!("---- {fault}"));
            self.elections.note(fault);
            self.apply(fault);
        }
        self.end_faults()?;
        self.all_answered()?;
        self.c.wait_clean()?;
        self.c.wait_merged()?;
        for osd in self.leaving.intersection(&self.out).copied().collect::<Vec<_>>() {
            self.c.purge(osd)?;
        }
        if let Some(unreliable) = script.shape.unreliable.filter(|unreliable| !self.out.contains(unreliable))
        {
            self.corrupt_metadata(unreliable)?;
        }
        self.c.wait_monitors()?;
        if script.shape.old_release {
            self.finish_upgrade()?;
        }
        self.elections.check(&self.c)?;
        check_maps(&self.c, &script.shape)?;
        self.workload.read_all(&mut self.c);
        self.all_answered()?;
        self.workload.check()?;
        // All writes must be on disk, and the balancer must not move placement groups while copies are
        // compared.
        self.c.command(&json!({ "prefix": "balancer off" }));
        self.c.run_for(Duration::from_secs(5));
        self.c.wait_clean()?;
        self.c.check_replicas(script.shape.unreliable)?;
        self.scrub(script.shape.unreliable.is_some())?;
        self.c.check_replicas(None)?;
        let deadline = self.c.world.now + STRAYS_GONE;
        while let Err(why) = self.c.check_strays().and_then(|()| self.c.check_trimmed()) {
            if self.c.world.now > deadline {
                return Err(why);
            }
            self.c.run_for(Duration::from_secs(1));
        }
        Ok(())
    }

    fn start(&mut self, script: &Script) -> Result<(), String> {
        let c = &mut self.c;
        let all: Vec<NodeId> = c.mons.iter().chain(&c.osds).chain(&c.clients).copied().collect();
        all.into_iter().for_each(|id| c.start(id));
        c.wait_clean()?;
        let hosts = script.shape.hosts();
        for host in (0..hosts).filter(|_| script.shape.per_rack > 0) {
            let rack = format!("rack{}", host / script.shape.per_rack);
            c.command(&json!({ "prefix": "osd crush add-bucket", "name": rack, "type": "rack" }));
            c.command(&json!({ "prefix": "osd crush move", "name": rack, "args": ["root=default"] }));
            let args = [format!("rack={rack}")];
            c.command(&json!({ "prefix": "osd crush move", "name": format!("host{host}"), "args": args }));
        }
        if script.shape.pg_log_entries > 0 {
            for name in ["osd_max_pg_log_entries", "osd_min_pg_log_entries"] {
                let value = script.shape.pg_log_entries.to_string();
                c.command(&json!({ "prefix": "config set", "who": "osd", "name": name, "value": value }));
            }
        }
        if script.shape.osdmaps > 0 {
            let value = script.shape.osdmaps.to_string();
            let name = "mon_min_osdmap_epochs";
            c.command(&json!({ "prefix": "config set", "who": "global", "name": name, "value": value }));
        }
        if script.shape.backoff_on_peering {
            let name = "osd_backoff_on_peering";
            c.command(&json!({ "prefix": "config set", "who": "osd", "name": name, "value": "true" }));
        }
        for (name, value) in &script.shape.options {
            c.command(&json!({ "prefix": "config set", "who": "global", "name": name, "value": value }));
        }
        self.pools.push(c.pool("pool0", 4));
        if script.shape.erasure {
            let pool = c.erasure_pool("coded", script.shape.osds.min(SHARDS_MAX), 2);
            self.shards = script.shape.osds.min(SHARDS_MAX);
            self.workload.note_without_omap(pool);
            self.pools.push(pool);
        }
        c.world.network.loss = script.shape.loss;
        if let Some(slow) = script.shape.slow_osd {
            c.world.disk_latency[c.osds[slow].0] = (Duration::from_millis(2), Duration::from_millis(30));
        }
        Ok(())
    }

    fn nodes(&self, target: Target) -> Vec<NodeId> {
        match target {
            // A shrunk script may lack the directive that added this one.
            Target::Mon(n) => vec![self.c.mons[n.min(self.c.mons.len() - 1)]],
            Target::Osd(n) => vec![self.c.osds[n]],
            Target::Client(n) => vec![self.c.clients[n]],
            Target::Host(n) => self.on_hosts(|host| host == n),
            Target::Rack(n) => self.on_hosts(|host| host / self.per_rack.max(1) == n),
        }
    }
    /// The daemons of these hosts.
    fn on_hosts(&self, wanted: impl Fn(usize) -> bool) -> Vec<NodeId> {
        let mons = self.c.mons.iter().enumerate().filter(|(n, _)| wanted(self.c.host_of_mon(*n)));
        let osds = self.c.osds.iter().enumerate().filter(|(n, _)| wanted(n / self.c.per_host));
        mons.chain(osds).map(|(_, id)| *id).collect()
    }
    fn all_nodes(&self, targets: &[Target]) -> Vec<NodeId> {
        targets.iter().flat_map(|target| self.nodes(*target)).collect()
    }
    /// Each link between the two.
    fn links(&self, a: Target, b: Target) -> Vec<(NodeId, NodeId)> {
        let others = self.nodes(b);
        let links = self.nodes(a).into_iter().flat_map(|a| others.iter().map(move |b| (a, *b)));
        links.filter(|(a, b)| a != b).collect()
    }
    fn resume(&mut self, node: NodeId) {
        if self.c.world.node(node).paused {
            self.c.world.resume(node);
        } else if self.c.world.node(node).stopped {
            self.c.world.kill(node, false);
        } else if !self.c.is_running(node) {
            self.c.start(node);
        }
    }

    /// A daemon gets the newest version, and one that runs is restarted with it.
    fn upgrade(&mut self, node: NodeId) {
        if self.c.versions.upgrade(node) && self.c.is_running(node) {
            self.c.world.kill(node, false);
            self.c.start(node);
        }
    }

    /// Injects a fault; one that is impossible in the current state does nothing.
    fn apply(&mut self, fault: &Fault) {
        match fault {
            Fault::Kill(targets) => {
                self.all_nodes(targets).into_iter().for_each(|node| self.c.world.kill(node, false));
            }
            Fault::PowerOff(targets) => {
                self.all_nodes(targets).into_iter().for_each(|node| self.c.world.kill(node, true));
            }
            Fault::Stop(target) => self.nodes(*target).into_iter().for_each(|node| self.c.world.stop(node)),
            Fault::Pause(target) => {
                for node in self.nodes(*target) {
                    if self.c.is_running(node) && !self.c.world.node(node).paused {
                        self.c.world.pause(node);
                    }
                }
            }
            Fault::Resume(target) => {
                self.nodes(*target).into_iter().for_each(|node| self.resume(node));
            }
            Fault::Partition(a, b) => {
                self.links(*a, *b).into_iter().for_each(|(a, b)| self.c.world.partition(a, b));
            }
            Fault::PartitionOneWay(a, b) => {
                self.links(*a, *b).into_iter().for_each(|(a, b)| self.c.world.partition_one_way(a, b));
            }
            Fault::Reject(a, b) => {
                self.links(*a, *b).into_iter().for_each(|(a, b)| self.c.world.reject(a, b));
            }
            Fault::Isolate(target) => {
                let inside = self.nodes(*target);
                let all = self.c.mons.iter().chain(&self.c.osds).chain(&self.c.clients);
                let outside: Vec<NodeId> = all.filter(|node| !inside.contains(node)).copied().collect();
                for node in inside {
                    outside.iter().for_each(|other| self.c.world.partition(node, *other));
                }
            }
            Fault::Clock(target, seconds) => {
                for node in self.nodes(*target) {
                    let clock = &mut self.c.world.node_mut(node).wall_ahead;
                    self.clocks.entry(node).or_insert(*clock);
                    *clock = Duration::from_secs(*seconds);
                }
            }
            Fault::Upgrade(target) => {
                self.nodes(*target).into_iter().for_each(|node| self.upgrade(node));
            }
            Fault::FinishUpgrade => self.command(json!({ "prefix": "upgrade finish" }), Then::Nothing),
            Fault::Heal => self.c.world.heal_all(),
            Fault::Corrupt(osd, blocks) => self.c.damage(*osd, *blocks, |disk, offset| disk.corrupt(offset)),
            Fault::BadSectors(osd, sectors) => {
                self.c.damage(*osd, *sectors, |disk, offset| disk.break_sector(offset));
            }
            Fault::SlowDisk(osd, millis) => self.c.slow_down(*osd, *millis),
            Fault::Out(osd) => {
                self.out.insert(*osd);
                self.command(json!({ "prefix": "osd out", "ids": [osd.to_string()] }), Then::Nothing);
            }
            Fault::Purge(osd) => {
                self.leaving.insert(*osd);
                self.apply(&Fault::Out(*osd));
            }
            Fault::AddOsd if self.added < ADDED_MAX => {
                self.added += 1;
                if let Some((import, keyring)) = self.c.add_osd() {
                    self.import(import, keyring);
                }
            }
            Fault::AddMon => {
                let add = self.c.add_mon();
                self.mon_command(add);
            }
            Fault::RemoveMon(mon) => {
                self.mon_command(json!({ "prefix": "mon rm", "name": mon_name(*mon) }));
            }
            Fault::In(osd) => {
                self.out.remove(osd);
                self.command(json!({ "prefix": "osd in", "ids": [osd.to_string()] }), Then::Nothing);
            }
            Fault::Reweight(osd, percent) => {
                self.out.remove(osd);
                self.reweighted.insert(*osd);
                let weight = *percent as f64 / 100.0;
                self.command(json!({ "prefix": "osd reweight", "id": osd, "weight": weight }), Then::Nothing);
            }
            Fault::PgNum(pg_num) => {
                let val = pg_num.to_string();
                let set = json!({ "prefix": "osd pool set", "pool": "pool0", "var": "pg_num", "val": val });
                self.command(set, Then::Nothing);
            }
            Fault::CreatePool if self.named < POOLS_MAX => {
                let name = format!("pool{}", self.named);
                self.named += 1;
                self.command(
                    json!({ "prefix": "osd pool create", "pool": name, "pg_num": 2 }),
                    Then::LookUpPool(name),
                );
            }
            Fault::Fill(objects) => self.workload.fill(*objects),
            Fault::DeleteFill => self.workload.delete_fill(&mut self.c, self.pools[0]),
            Fault::CreateSnap => {
                let pool = *self.rng.pick(&self.pools).expect("there is a pool");
                self.workload.take_snap(&mut self.c, pool);
            }
            Fault::RemoveSnap => {
                let pool = *self.rng.pick(&self.pools).expect("there is a pool");
                self.workload.remove_snap(&mut self.c, pool);
            }
            Fault::CreatePool | Fault::AddOsd | Fault::End => {}
        }
    }

    fn command(&mut self, command: Value, then: Then) {
        let request = Request::mon_command(command.to_string(), Bytes::new());
        self.commands.push((self.c.submit(ADMIN, request), then));
    }

    fn mon_command(&mut self, command: Value) {
        self.mon_commands.push_back(command);
        if !self.commands.iter().any(|(_, then)| matches!(then, Then::NextMon)) {
            self.next_mon_command();
        }
    }
    fn next_mon_command(&mut self) {
        if let Some(command) = self.mon_commands.pop_front() {
            self.command(command, Then::NextMon);
        }
    }

    /// The OSD that has this key comes up only once the monitors know it.
    fn import(&mut self, import: Value, keyring: Bytes) {
        let request = Request::mon_command(import.to_string(), keyring.clone());
        self.commands.push((self.c.submit(ADMIN, request), Then::Retry(import, keyring)));
    }

    fn note_answers(&mut self) {
        for (request, then) in std::mem::take(&mut self.commands) {
            match (self.c.take(ADMIN, request), then) {
                (None, then) => self.commands.push((request, then)),
                // Created, or it exists because the reply to the first try was lost.
                (Some(_), Then::LookUpPool(name)) => {
                    self.lookups.push(self.c.submit(ADMIN, Request::lookup_pool(name)));
                }
                (Some(Err(_)), Then::Retry(command, input)) => self.import(command, input),
                (Some(_), Then::NextMon) => self.next_mon_command(),
                (Some(_), Then::Retry(..) | Then::Nothing) => {}
            }
        }
        for request in std::mem::take(&mut self.lookups) {
            match self.c.take(ADMIN, request) {
                None => self.lookups.push(request),
                Some(Ok(Output::Pool(pool))) => self.pools.push(pool),
                Some(other) => panic!("a pool that was created is not found: {other:?}"),
            }
        }
    }

    /// Corrupts metadata of an OSD's store: the OSD must leave without clients noticing.
    fn corrupt_metadata(&mut self, osd: usize) -> Result<(), String> {
        let id = self.c.osds[osd];
        let blocks = 1 + self.rng.below(4);
        self.c.corrupt_metadata(osd, blocks);
        self.c.world.comment(&format!("---- metadata of osd.{osd} is corrupted"));
        for how in ["", "osd deep-scrub", "start"] {
            match how {
                "" => {}
                // Only a start reads some of the metadata.
                "start" if self.c.is_running(id) => {
                    self.c.stop(id);
                    self.c.start(id);
                }
                "start" => {}
                how => drop(self.c.command(&json!({ "prefix": how, "who": "all" }))),
            }
            let until = self.c.world.now + Duration::from_secs(8);
            while self.c.world.now < until {
                self.workload.step(&mut self.c, &self.pools)?;
                self.note_answers();
                self.c.run_for(Duration::from_millis(20));
            }
            if self.c.replace_osd(osd) {
                break;
            }
        }
        self.all_answered()?;
        self.c.wait_clean()
    }

    /// Deep-scrubs everything. Copies on the unreliable disk may be inconsistent, and are repaired.
    fn scrub(&mut self, unreliable: bool) -> Result<(), String> {
        let mut differ = self.c.scrub("osd deep-scrub")?;
        if unreliable && !differ.is_empty() {
            self.c.scrub("osd repair")?;
            self.c.wait_clean()?;
            differ = self.c.scrub("osd deep-scrub")?;
        }
        if differ.is_empty() { Ok(()) } else { Err(format!("scrub finds inconsistent copies in {differ:?}")) }
    }

    /// Daemons that have the version before get the newest one, and the cluster its format.
    fn finish_upgrade(&mut self) -> Result<(), String> {
        let daemons: Vec<NodeId> = self.c.mons.iter().chain(&self.c.osds).copied().collect();
        for node in daemons {
            // A purged OSD does not run any more.
            if self.c.versions.upgrade(node) && self.c.is_running(node) {
                self.elections.note(&Fault::Upgrade(Target::Mon(0)));
                self.c.world.kill(node, false);
                self.c.start(node);
                self.c.wait_clean()?;
            }
        }
        self.c.wait_monitors()?;
        // Monitors learn from each other's messages which formats these can use.
        for _ in 0..30 {
            // Whether it is refused is seen below.
            let finish =
                Request::mon_command(json!({ "prefix": "upgrade finish" }).to_string(), Bytes::new());
            let request = self.c.submit(ADMIN, finish);
            drop(self.c.wait(ADMIN, request));
            if self.c.format() == u64::from(cluster_format::NEWEST) {
                return Ok(());
            }
            self.c.run_for(Duration::from_secs(1));
        }
        Err(format!("the cluster still has format {}", self.c.format()))
    }

    /// Ends all faults.
    fn end_faults(&mut self) -> Result<(), String> {
        let c = &mut self.c;
        c.world.heal_all();
        c.world.network.loss = 0;
        for (node, clock) in std::mem::take(&mut self.clocks) {
            c.world.node_mut(node).wall_ahead = clock;
        }
        (0..c.osds.len()).for_each(|osd| c.slow_down(osd, 0));
        let daemons: Vec<NodeId> = c.mons.iter().chain(&c.osds).copied().collect();
        for id in &daemons {
            if c.world.node(*id).paused {
                c.world.resume(*id);
            }
        }
        // Daemons that are stopping finish first.
        c.run_for(Duration::from_secs(6));
        for id in daemons {
            let Node { name, failure, .. } = c.world.node(id);
            // Only OSDs have damaged disks here, and those know what to do without what is lost.
            assert_eq!(failure, &None, "{name} failed");
            if c.world.node(id).stopped {
                c.world.kill(id, false);
            }
            if !c.is_running(id) {
                c.start(id);
            }
        }
        // Writes that wait for space get it.
        self.workload.delete_fill(&mut self.c, self.pools[0]);
        // A command that comes late must not undo the next.
        self.answered(|run| run.commands.is_empty() && run.lookups.is_empty())?;
        // OSDs stay out only if the rest has hosts for all copies.
        let per_host = self.c.per_host;
        let hosts = |out: &BTreeSet<usize>, osds: usize| {
            (0..osds)
                .filter(|osd| !out.contains(osd))
                .map(|osd| osd / per_host)
                .collect::<BTreeSet<_>>()
                .len()
        };
        let shards = self.shards;
        let too_few = |out: &BTreeSet<usize>, osds: usize| hosts(out, osds) < 3 || osds - out.len() < shards;
        while too_few(&self.out, self.c.osds.len()) {
            let Some(osd) = self.out.pop_first() else { break };
            self.command(json!({ "prefix": "osd in", "ids": [osd.to_string()] }), Then::Nothing);
        }
        // A command that was sent twice may have arrived once more after the next one.
        for osd in &self.out {
            self.c.command(&json!({ "prefix": "osd out", "ids": [osd.to_string()] }));
        }
        // At lower weights CRUSH does not always find enough OSDs.
        for osd in self.reweighted.difference(&self.out).copied().collect::<Vec<_>>() {
            self.command(json!({ "prefix": "osd reweight", "id": osd, "weight": 1.0 }), Then::Nothing);
        }
        Ok(())
    }

    fn all_answered(&mut self) -> Result<(), String> {
        self.answered(|run| run.workload.is_idle() && run.commands.is_empty() && run.lookups.is_empty())
    }

    fn answered(&mut self, enough: impl Fn(&Run) -> bool) -> Result<(), String> {
        let deadline = self.c.world.now + ANSWERS;
        loop {
            self.workload.collect_replies(&mut self.c)?;
            self.note_answers();
            if enough(self) {
                return Ok(());
            }
            if self.c.world.now > deadline {
                let commands = self.commands.len() + self.lookups.len();
                let waits = self.workload.waits_for();
                let seconds = ANSWERS.as_secs();
                return Err(format!(
                    "no answer {seconds} s after the last fault: {commands} commands, {waits}"
                ));
            }
            self.c.run_for(Duration::from_millis(50));
        }
    }
}
