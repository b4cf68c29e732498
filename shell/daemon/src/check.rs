//! Whether a cluster serves: stores a real file and reads it back, as any client would.

use crate::ask;
use crate::cluster::{Cluster, Layout};
use crate::processes::{self, State};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use nacre_base::PoolId;
use nacre_base::errno::ENOSPC;
use nacre_client::{ObjectRequest, Output, Request};
use nacre_node::BlockingClient;
use nacre_proto::types::op_flags;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

/// Exists only while the check runs.
const POOL: &str = ".nacre-check";
const POOL_PGS: u32 = 8;
/// Until every OSD is up and every placement group clean. A cluster that has to catch up after a
/// crash may take longer, and serves meanwhile.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
const OBJECT_LEN: usize = 4 << 20;
/// Of the file that is stored.
const FILE_MAX: u64 = 32 << 20;

/// Gives a sentence about what was proven.
pub fn prove(layout: &Layout, cluster: &Cluster) -> Result<String> {
    let client = ask::connect(layout, cluster)?;
    let waited = wait_healthy(&client, layout, cluster)?;
    let file = own_program()?;
    let start = Instant::now();
    let created = json!({"prefix": "osd pool create", "pool": POOL, "pg_num": POOL_PGS});
    command(&client, &created).context("cannot create a pool")?;
    let result = store_and_read(&client, &file);
    let remove =
        json!({"prefix": "osd pool rm", "pool": POOL, "pool2": POOL, "yes_i_really_really_mean_it": true});
    // An operator may have forbidden it; that says nothing against the cluster.
    let removed = command(&client, &remove);
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = file.len() as f64 / 1e6;
    let mut sentence = waited + "\n";
    sentence += &match result? {
        true => format!(
            "Stored {megabytes:.1} MB (this program) with the built-in client and read it back unchanged, \
             in {seconds:.1} s"
        ),
        false => "A disk is full: no more data can be stored until some is removed".to_string(),
    };
    if let Err(e) = removed {
        sentence += &format!("\nThe pool {POOL} could not be removed: {e:#}");
    }
    Ok(sentence)
}

fn own_program() -> Result<Bytes> {
    let path = std::env::current_exe().context("cannot find this program")?;
    let mut file = Vec::new();
    let read = File::open(&path).and_then(|f| f.take(FILE_MAX).read_to_end(&mut file));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(file.into())
}

fn command(client: &BlockingClient, command: &Value) -> Result<Bytes> {
    ask::command(client, command, REQUEST_TIMEOUT)
}

/// Names of daemons that wait for memory: each starts within a while, see `admission`.
fn waiting(layout: &Layout, cluster: &Cluster) -> Result<String> {
    let running = processes::running(layout, &cluster.daemons())?;
    let names = running.into_iter().filter(|(_, state)| matches!(state, State::Waits(_)));
    Ok(names.map(|(name, _)| name).collect::<Vec<_>>().join(", "))
}

fn wait_healthy(client: &BlockingClient, layout: &Layout, cluster: &Cluster) -> Result<String> {
    let mut start = Instant::now();
    let mut said = String::new();
    loop {
        let waits = waiting(layout, cluster)?;
        if !waits.is_empty() {
            start = Instant::now();
        }
        if said != waits {
            let text = if waits.is_empty() {
                "No OSD waits for memory any more".into()
            } else {
                format!("Waits for memory: {waits}")
            };
            eprintln!("{text}");
            said = waits;
        }
        let status = command(client, &json!({"prefix": "status", "format": "json"}));
        let status: Value = match status {
            Ok(json) => serde_json::from_slice(&json).context("the status is not JSON")?,
            // Still electing, or starting.
            Err(_) if start.elapsed() < CLEAN_TIMEOUT => Value::Null,
            Err(e) => return Err(e.context("the monitor does not return the status of the cluster")),
        };
        let health = Health::of(&status);
        let osds = cluster.osds.len() as u64;
        if health.osds_up == osds && health.clean == health.pgs {
            return Ok(format!("{}: {osds} of {osds} OSDs are up", health.summary));
        }
        if start.elapsed() > CLEAN_TIMEOUT {
            let Health { summary, osds_up, pgs, active, clean } = health;
            let text = format!(
                "{summary}: {osds_up} of {osds} OSDs are up, {active} of {pgs} placement groups serve, {clean} are clean"
            );
            ensure!(osds_up > 0 && active == pgs, text);
            return Ok(text);
        }
        std::thread::sleep(POLL);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Health {
    /// As in `HEALTH_OK`.
    summary: String,
    osds_up: u64,
    pgs: u64,
    /// Placement groups that serve.
    active: u64,
    clean: u64,
}

impl Health {
    fn of(status: &Value) -> Health {
        let pgmap = &status["pgmap"];
        let states = pgmap["pgs_by_state"].as_array().map_or(&[][..], |states| &states[..]);
        let with = |word: &str| {
            let has = |state: &&Value| {
                state["state_name"].as_str().is_some_and(|s| s.split('+').any(|w| w == word))
            };
            states.iter().filter(has).filter_map(|state| state["count"].as_u64()).sum()
        };
        Health {
            summary: status["health"]["status"].as_str().unwrap_or("no health yet").to_string(),
            osds_up: status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0),
            pgs: pgmap["num_pgs"].as_u64().unwrap_or(0),
            active: with("active"),
            clean: with("clean"),
        }
    }
}

/// Whether there was room for it: a cluster that is full has to come up, too.
fn store_and_read(client: &BlockingClient, file: &Bytes) -> Result<bool> {
    let lookup = client.request(Request::lookup_pool(POOL).timeout(REQUEST_TIMEOUT))?;
    let Output::Pool(pool) = lookup else { bail!("unexpected reply to a pool lookup: {lookup:?}") };
    let parts: Vec<Bytes> = (0..file.len())
        .step_by(OBJECT_LEN)
        .map(|at| file.slice(at..file.len().min(at + OBJECT_LEN)))
        .collect();
    let object = |n: usize| ObjectRequest::new(PoolId(pool.0), format!("part.{n}").as_str());
    let send = |request: ObjectRequest| client.submit(Request::from(request).timeout(REQUEST_TIMEOUT));
    let store = |(n, part): (usize, &Bytes)| {
        send(object(n).flags(op_flags::message::FULL_TRY).write_full(part.clone()))
    };
    let writes: Vec<_> = parts.iter().enumerate().map(store).collect();
    let mut has_room = true;
    for (n, write) in writes.into_iter().enumerate() {
        match write.wait() {
            Err(e) if e.errno == ENOSPC => has_room = false,
            stored => drop(stored.map_err(|e| anyhow!(e)).with_context(|| format!("cannot store part {n}"))?),
        }
    }
    if !has_room {
        return Ok(false);
    }
    let reads: Vec<_> =
        parts.iter().enumerate().map(|(n, part)| send(object(n).read(0, part.len() as u64))).collect();
    for (n, (read, part)) in reads.into_iter().zip(&parts).enumerate() {
        let reply = read.wait().map_err(|e| anyhow!(e)).with_context(|| format!("cannot read part {n}"))?;
        let Output::Object(reply) = reply else { bail!("unexpected reply to a read: {reply:?}") };
        ensure!(
            reply.ops.first().is_some_and(|op| op.data == *part),
            "part {n} was read back with different content"
        );
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_read_from_the_status_that_ceph_prints() {
        let status = json!({
            "health": {"status": "HEALTH_WARN"},
            "osdmap": {"num_osds": 3, "num_up_osds": 2},
            "pgmap": {"num_pgs": 10, "pgs_by_state": [
                {"state_name": "active+clean", "count": 7},
                {"state_name": "active+undersized+degraded", "count": 2},
                {"state_name": "peering", "count": 1},
            ]},
        });
        let expected =
            Health { summary: "HEALTH_WARN".to_string(), osds_up: 2, pgs: 10, active: 9, clean: 7 };
        assert_eq!(Health::of(&status), expected);
    }
}
