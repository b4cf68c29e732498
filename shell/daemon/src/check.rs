//! Whether a cluster serves: stores a real file and reads it back, as any client would.

use crate::ask;
use crate::cluster::Cluster;
use crate::folder::Layout;
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
/// How long the check waits until every OSD is up and every placement group clean. A cluster that recovers
/// from a crash may take longer, and serves meanwhile.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(60);
/// With all OSDs up, placement groups whose states do not change for this long are not waited for.
const STABLE_TIMEOUT: Duration = Duration::from_secs(20);
/// This many placement groups are named.
const NAMED_MAX: usize = 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
const OBJECT_LEN: usize = 4 << 20;
/// Of the file that is stored.
const FILE_MAX: u64 = 32 << 20;

/// What the check found.
pub struct Proof {
    pub text: String,
    /// Every placement group serves, and a file was stored and read back.
    pub serves: bool,
}

/// Fails where no monitor answers, and for a new cluster that does not serve. An existing cluster that serves
/// in part is left running: the rest of it can only be repaired while it runs.
pub fn prove(layout: &Layout, cluster: &Cluster, is_new: bool) -> Result<Proof> {
    let client = ask::connect(layout, cluster)?;
    let waited = wait_healthy(&client, layout, cluster)?;
    let stored = store_file(&client);
    if is_new {
        ensure!(waited.serves, waited.text);
        return Ok(Proof { text: waited.text + "\n" + &stored?, serves: true });
    }
    let (text, serves) = match stored {
        Ok(text) => (text, waited.serves),
        Err(e) => (format!("A file could not be stored and read back: {e:#}"), false),
    };
    Ok(Proof { text: waited.text + "\n" + &text, serves })
}

/// Stores this program in a pool of its own and reads it back. Gives a sentence about that.
fn store_file(client: &BlockingClient) -> Result<String> {
    let file = own_program()?;
    let start = Instant::now();
    let created = json!({"prefix": "osd pool create", "pool": POOL, "pg_num": POOL_PGS});
    command(client, &created).context("cannot create a pool")?;
    let result = store_and_read(client, &file);
    let remove =
        json!({"prefix": "osd pool rm", "pool": POOL, "pool2": POOL, "yes_i_really_really_mean_it": true});
    // The operator may have disabled pool deletion, which is not a fault of the cluster.
    let removed = command(client, &remove);
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = file.len() as f64 / 1e6;
    let mut sentence = match result? {
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

/// Names of daemons that wait for memory, see `admission`.
fn waiting(layout: &Layout, cluster: &Cluster) -> Result<String> {
    let running = processes::running(layout, &cluster.daemons())?;
    let names = running.into_iter().filter(|(_, state)| matches!(state, State::Waits(_)));
    Ok(names.map(|(name, _)| name).collect::<Vec<_>>().join(", "))
}

fn wait_healthy(client: &BlockingClient, layout: &Layout, cluster: &Cluster) -> Result<Proof> {
    let mut start = Instant::now();
    let mut said = String::new();
    let mut stable = (Health::default(), start);
    loop {
        let waits = waiting(layout, cluster)?;
        if !waits.is_empty() {
            start = Instant::now();
        }
        if said != waits {
            let text = if waits.is_empty() {
                "No OSD waits for memory any more".into()
            } else {
                format!("Waiting for memory: {waits}")
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
            let text = format!("{}: {osds} of {osds} OSDs are up", health.summary);
            return Ok(Proof { text, serves: true });
        }
        if stable.0 != health {
            stable = (health.clone(), Instant::now());
        }
        let is_stable = health.osds_up == osds && health.pgs > 0 && stable.1.elapsed() > STABLE_TIMEOUT;
        if start.elapsed() > CLEAN_TIMEOUT || is_stable {
            let serves = health.osds_up > 0 && health.active == health.pgs;
            let mut text = health.describe(osds);
            if !serves {
                text +=
                    &not_serving(client).unwrap_or_else(|e| format!("\nThe list of them is missing: {e:#}"));
            }
            return Ok(Proof { text, serves });
        }
        std::thread::sleep(POLL);
    }
}

/// Names the placement groups that do not serve, with their states, and says where to look.
fn not_serving(client: &BlockingClient) -> Result<String> {
    let pgs = ask::ask(client, &json!({"prefix": "pg ls", "format": "json"}))?;
    let pgs = pgs["pg_stats"].as_array().map_or(&[][..], |pgs| &pgs[..]);
    let is_active = |state: &str| state.split('+').any(|word| word == "active");
    let named: Vec<String> = pgs
        .iter()
        .filter_map(|pg| Some((pg["pgid"].as_str()?, pg["state"].as_str()?)))
        .filter(|(_, state)| !is_active(state))
        .map(|(pgid, state)| format!("{pgid} ({state})"))
        .collect();
    Ok(name_some(&named))
}

fn name_some(named: &[String]) -> String {
    if named.is_empty() {
        return String::new();
    }
    let more = match named.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = named[..named.len().min(NAMED_MAX)].join(", ");
    format!(
        "\nPlacement groups that do not serve: {shown}{more}. `ceph health detail` and `ceph pg PGID query` give the reasons"
    )
}

#[derive(Clone, Debug, Default, PartialEq)]
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
    fn describe(&self, osds: u64) -> String {
        let Health { summary, osds_up, pgs, active, clean } = self;
        format!(
            "{summary}: {osds_up} of {osds} OSDs are up, {active} of {pgs} placement groups serve, {clean} are clean"
        )
    }

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

/// False if there was no space for it: a full cluster has to come up, too.
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
    let mut has_space = true;
    for (n, write) in writes.into_iter().enumerate() {
        match write.wait() {
            Err(e) if e.errno == ENOSPC => has_space = false,
            stored => drop(stored.map_err(|e| anyhow!(e)).with_context(|| format!("cannot store part {n}"))?),
        }
    }
    if !has_space {
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

    #[test]
    fn placement_groups_that_do_not_serve_are_named() {
        assert_eq!(name_some(&[]), "");
        let named: Vec<String> = (0..12).map(|n| format!("5.{n:x} (unknown)")).collect();
        assert!(name_some(&named[..1]).contains("do not serve: 5.0 (unknown). "));
        assert!(name_some(&named).contains("5.9 (unknown) and 2 more. "));
    }
}
