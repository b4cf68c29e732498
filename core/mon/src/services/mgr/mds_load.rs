//! What metadata servers count, as they report it to the manager: for `ceph fs status`.
//!
//! Nothing of it is stored. A server reports every few seconds to this process; when another monitor leads,
//! it reports there.

use nacre_base::Time;
use nacre_proto::messages::MgrReport;
use nacre_wire::{Decode, DecodeError, Reader};
use std::collections::BTreeMap;
use std::time::Duration;

/// Servers, and counters of each.
const SERVERS_MAX: usize = 1000;
const COUNTERS_MAX: usize = 4000;
/// A server that was silent for that long is forgotten.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Ceph: `PERFCOUNTER_LONGRUNAVG`. Such a counter has two more numbers.
const AVERAGE: u8 = 4;
/// Requests of clients: the counter whose rate is shown.
const REQUESTS: &str = "mds_server.handle_client_request";

struct Server {
    /// By path: whether it is an average.
    declared: BTreeMap<String, bool>,
    values: BTreeMap<String, u64>,
    heard: Time,
    /// Requests in a second, between the last two reports.
    rate: f64,
}

/// By name.
#[derive(Default)]
pub struct MdsLoad {
    servers: BTreeMap<String, Server>,
}

impl MdsLoad {
    /// A report of a metadata server.
    pub fn report(&mut self, now: Time, report: &MgrReport) {
        if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&report.daemon_name) {
            return;
        }
        let server = self.servers.entry(report.daemon_name.clone()).or_insert_with(|| Server {
            declared: BTreeMap::new(),
            values: BTreeMap::new(),
            heard: now,
            rate: 0.0,
        });
        for counter in &report.declared {
            if server.declared.len() < COUNTERS_MAX {
                server.declared.insert(counter.path.clone(), counter.kind & AVERAGE != 0);
            }
        }
        for path in &report.undeclared {
            server.declared.remove(path);
        }
        let Ok(values) = values(&server.declared, &report.values) else { return };
        let requests = |values: &BTreeMap<String, u64>| values.get(REQUESTS).copied();
        let elapsed = now.since(server.heard).as_secs_f64();
        if let (Some(before), Some(after)) = (requests(&server.values), requests(&values))
            && elapsed > 0.0
        {
            server.rate = after.saturating_sub(before) as f64 / elapsed;
        }
        (server.values, server.heard) = (values, now);
    }

    /// Forgets servers that are silent.
    pub fn prune(&mut self, now: Time) {
        self.servers.retain(|_, server| now.since(server.heard) < SILENCE_MAX);
    }

    /// The value of a counter of a server; none if it did not report one.
    pub fn value(&self, name: &str, path: &str) -> Option<u64> {
        self.servers.get(name)?.values.get(path).copied()
    }
    /// Requests of clients in a second.
    pub fn rate(&self, name: &str) -> f64 {
        self.servers.get(name).map_or(0.0, |server| server.rate)
    }
}

/// The values come in the order of the declared paths.
fn values(declared: &BTreeMap<String, bool>, bytes: &[u8]) -> Result<BTreeMap<String, u64>, DecodeError> {
    Reader::new(bytes).versioned("counters", 1, |r, _| {
        let mut values = BTreeMap::new();
        for (path, is_average) in declared {
            values.insert(path.clone(), u64::decode(r)?);
            if *is_average {
                let _counts: (u64, u64) = Decode::decode(r)?;
            }
        }
        Ok(values)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_proto::messages::PerfCounter;
    use nacre_wire::{Encode, versioned};

    fn report(declared: &[(&str, u8)], values: &[u64]) -> MgrReport {
        let counter = |(path, kind): &(&str, u8)| PerfCounter {
            path: path.to_string(),
            description: String::new(),
            nick: String::new(),
            kind: *kind,
            priority: 5,
            unit: 0,
        };
        let mut bytes = Vec::new();
        versioned(&mut bytes, 1, 1, |out| values.iter().for_each(|value| value.encode(out)));
        MgrReport {
            daemon_name: "a".into(),
            declared: declared.iter().map(counter).collect(),
            values: bytes.into(),
            undeclared: Vec::new(),
            service_name: String::new(),
            status: None,
            rest: Default::default(),
        }
    }

    #[test]
    fn counters_are_read_in_the_order_of_their_paths() {
        let mut load = MdsLoad::default();
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let declared = [(REQUESTS, 8), ("mds_mem.cap", 2), ("mds.latency", AVERAGE)];
        load.report(at(10), &report(&declared, &[5, 6, 7, 33, 100]));
        load.report(at(15), &report(&[], &[5, 6, 7, 34, 150]));
        assert_eq!((load.value("a", "mds_mem.cap"), load.rate("a")), (Some(34), 10.0));
        // One that is cut off changes nothing.
        load.report(at(16), &report(&[], &[5, 6]));
        assert_eq!(load.value("a", "mds_mem.cap"), Some(34));
        load.prune(at(80));
        assert_eq!(load.value("a", "mds_mem.cap"), None);
    }
}
