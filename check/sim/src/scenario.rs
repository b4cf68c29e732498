//! The run of one seed: work while things break, then peace, then the reckoning.

use crate::cluster::{Cluster, Seed};
use crate::workload::Workload;
use crate::world::NodeId;
use nacre_base::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How a run ended.
pub struct Outcome {
    pub hash: u64,
    pub steps: u64,
    pub answered: u64,
    /// What went wrong, if anything.
    pub failure: Option<String>,
}

/// Virtual time of trouble.
const TROUBLE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(45));
/// After the last fault everything must have been answered within this.
const ANSWERS: Duration = Duration::from_secs(120);

pub fn run_seed(seed: Seed, print: bool) -> Outcome {
    let mut end = (0, 0, 0);
    let run = catch_unwind(AssertUnwindSafe(|| {
        // Mostly one monitor: what OSDs do wrong is then easier to read from a trace.
        let mons = if seed.0 % 4 == 3 { 3 } else { 1 };
        let mut c = Cluster::new(seed, mons, 3, 2, print);
        let mut workload = Workload::new(Rng::new(seed.0 ^ 0x0bad_cafe));
        let result = run(&mut c, &mut workload);
        end = (c.world.trace.hash(), c.world.trace.steps(), workload.answered);
        result
    }));
    let (hash, steps, answered) = end;
    let failure = match run {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("without words")))
        }
    };
    Outcome { hash, steps, answered, failure }
}

fn run(c: &mut Cluster, workload: &mut Workload) -> Result<(), String> {
    start(c)?;
    let mut rng = c.world.rng.fork();
    let mut pools = vec![c.pool("first", 4)];
    // What kinds of trouble this seed has, so that each kind is also seen alone.
    let kinds = Kinds::draw(&mut rng);
    c.world.network.loss = if kinds.loss { rng.below(30) } else { 0 };
    if kinds.slow_disk {
        let slow = *rng.pick(&c.osds).expect("there are OSDs");
        c.world.disk_latency[slow.0] = (Duration::from_millis(2), Duration::from_millis(30));
    }
    let end = c.world.now + rng.duration(TROUBLE.0, TROUBLE.1);
    while c.world.now < end {
        workload.go_on(c, &pools)?;
        c.run_for(rng.duration(Duration::from_micros(500), Duration::from_millis(40)));
        if rng.chance(20) {
            trouble(c, &mut rng, &kinds, &mut pools);
        }
    }
    peace(c);
    let answered = |c: &mut Cluster, workload: &mut Workload| -> Result<(), String> {
        let deadline = c.world.now + ANSWERS;
        while !workload.is_idle() {
            c.run_for(Duration::from_millis(50));
            workload.take_answers(c)?;
            if c.world.now > deadline {
                let waits = workload.waits_for();
                return Err(format!("not answered {} s after the last fault: {waits}", ANSWERS.as_secs()));
            }
        }
        Ok(())
    };
    answered(c, workload)?;
    c.wait_clean()?;
    workload.read_all(c);
    answered(c, workload)?;
    workload.check()?;
    // Nothing is on its way to a disk any more.
    c.run_for(Duration::from_secs(5));
    c.check_replicas()
}

fn start(c: &mut Cluster) -> Result<(), String> {
    let all: Vec<NodeId> = c.mons.iter().chain(&c.osds).chain(&c.clients).copied().collect();
    all.into_iter().for_each(|id| c.start(id));
    c.wait_clean()
}

struct Kinds {
    kill: bool,
    power: bool,
    pause: bool,
    cut: bool,
    clean_stop: bool,
    loss: bool,
    slow_disk: bool,
    growth: bool,
    monitor: bool,
}

impl Kinds {
    fn draw(rng: &mut Rng) -> Kinds {
        let mut often = || rng.chance(550);
        Kinds {
            kill: often(),
            power: often(),
            pause: often(),
            cut: often(),
            clean_stop: often(),
            loss: often(),
            slow_disk: often(),
            growth: often(),
            monitor: often(),
        }
    }
}

/// One fault, or the end of one.
fn trouble(c: &mut Cluster, rng: &mut Rng, kinds: &Kinds, pools: &mut Vec<nacre_base::PoolId>) {
    let mut daemons = c.osds.clone();
    if kinds.monitor {
        daemons.extend(&c.mons);
    }
    let victim = *rng.pick(&daemons).expect("there are daemons");
    match rng.below(12) {
        0 if kinds.kill => c.world.kill(victim, false),
        1 if kinds.power => c.world.kill(victim, true),
        2 if kinds.pause && c.is_running(victim) && !c.world.node(victim).paused => c.world.pause(victim),
        3 if kinds.cut => {
            let everyone: Vec<NodeId> = daemons.iter().chain(&c.clients).copied().collect();
            let other = *rng.pick(&everyone).expect("there are nodes");
            if other != victim {
                c.world.cut(victim, other);
            }
        }
        4 if kinds.clean_stop => c.world.stop(victim),
        // Everything at once.
        5 if (kinds.kill || kinds.power) && rng.chance(200) => {
            daemons.iter().for_each(|id| c.world.kill(*id, kinds.power));
        }
        6 if kinds.growth && rng.chance(300) => {
            let pg_num = 4 + rng.below(8);
            let grow = serde_json::json!({
                "prefix": "osd pool set", "pool": "first", "var": "pg_num", "val": pg_num.to_string(),
            });
            c.submit(0, nacre_client::Request::mon_command(grow.to_string(), bytes::Bytes::new()));
        }
        7 if kinds.growth
            && rng.chance(150)
            && pools.len() < 3
            && !kinds.monitor
            && c.world.network.cuts().is_empty() =>
        {
            pools.push(c.pool(&format!("pool{}", pools.len()), 2));
        }
        8 => {
            for (a, b) in c.world.network.cuts() {
                c.world.heal(a, b);
            }
        }
        _ => {
            for id in daemons {
                if c.world.node(id).paused && rng.chance(600) {
                    c.world.resume(id);
                } else if c.world.node(id).stopped {
                    c.world.kill(id, false);
                } else if !c.is_running(id) && rng.chance(600) {
                    c.start(id);
                }
            }
        }
    }
}

/// Everything works again.
fn peace(c: &mut Cluster) {
    for (a, b) in c.world.network.cuts() {
        c.world.heal(a, b);
    }
    c.world.network.loss = 0;
    let daemons: Vec<NodeId> = c.mons.iter().chain(&c.osds).copied().collect();
    for id in &daemons {
        if c.world.node(*id).paused {
            c.world.resume(*id);
        }
    }
    // Whoever is about to stop does so first.
    c.run_for(Duration::from_secs(6));
    for id in daemons {
        if c.world.node(id).stopped {
            c.world.kill(id, false);
        }
        if !c.is_running(id) {
            c.start(id);
        }
    }
}
