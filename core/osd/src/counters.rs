//! Counters of an OSD: `ceph tell osd.N perf dump`.

use nacre_perf::{Registry, counters};
use nacre_proto::messages::Latencies;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

counters! {
    /// What it does for clients and for other OSDs, under Ceph's names.
    pub struct OsdCounters, "osd" {
        /// Requests of clients that were not answered yet
        op_wip: Gauge,
        /// Requests of clients that were answered
        op: Count,
        /// Data that came with requests
        op_in_bytes: Bytes,
        /// Data that went out with answers
        op_out_bytes: Bytes,
        /// From a request's arrival to its answer
        op_latency: Latency,
        /// From a request's turn to its answer
        op_process_latency: Latency,
        /// Answered requests that only read
        op_r: Count,
        /// Data that reads gave
        op_r_out_bytes: Bytes,
        /// From a read's arrival to its answer
        op_r_latency: Latency,
        /// From a read's turn to its answer
        op_r_process_latency: Latency,
        /// Answered requests that only write
        op_w: Count,
        /// Data that came with writes
        op_w_in_bytes: Bytes,
        /// From a write's arrival to its answer
        op_w_latency: Latency,
        /// From a write's turn to its answer
        op_w_process_latency: Latency,
        /// From a write's turn to its being sent to disk and replicas
        op_w_prepare_latency: Latency,
        /// Answered requests that read and write
        op_rw: Count,
        /// Data that came with requests that read and write
        op_rw_in_bytes: Bytes,
        /// Data that answers to requests that read and write gave
        op_rw_out_bytes: Bytes,
        /// From arrival to answer, of requests that read and write
        op_rw_latency: Latency,
        /// Latency of reads by what they gave
        op_r_latency_out_bytes_histogram: SizedLatency,
        /// Latency of writes by what came with them
        op_w_latency_in_bytes_histogram: SizedLatency,
        /// Latency of requests that read and write by what came with them
        op_rw_latency_in_bytes_histogram: SizedLatency,
        /// Writes that another OSD's PG sent to us as its replica
        subop_w: Count,
        /// Data of such writes
        subop_w_in_bytes: Bytes,
        /// From such a write's arrival to its being durable here
        subop_w_latency: Latency,
        /// Objects that were recovered
        recovery_ops: Gauge,
        /// Data of recovered objects
        recovery_bytes: GaugeBytes,
        /// placement groups here
        numpg: Gauge,
        /// placement groups whose primary this is
        numpg_primary: Gauge,
        /// placement groups whose replica this is
        numpg_replica: Gauge,
        /// placement groups here that belong elsewhere
        numpg_stray: Gauge,
        /// Messages with maps
        map_messages: Count,
        /// Requests that came with a newer map than ours
        messages_delayed_for_map: Count,
        /// Size of the device
        stat_bytes: GaugeBytes,
        /// Space in use
        stat_bytes_used: GaugeBytes,
        /// Space that is left
        stat_bytes_avail: GaugeBytes,
    }
}

counters! {
    /// Where the time of a request goes. What the disk does of it is in the set `store`.
    pub struct Stages, "osd-stages" {
        /// From a request's arrival to its turn: behind others on the same object, or a PG that does not serve
        queue: Latency,
        /// From its turn to having the data that it needs, for requests that read any
        read: Latency,
        /// From having all to the transaction being in flight to our disk and the replicas
        execute: Latency,
        /// From a transaction's leaving for our disk to its being durable, of all transactions
        commit: Latency,
        /// From a write's leaving for the replicas to its being durable on the last of them
        replicas: Latency,
        /// From a write's being durable everywhere, or a read's having its data, to the answer
        reply: Latency,
    }
}

counters! {
    /// Clients that keep requests to themselves, as a PG does not serve.
    pub struct BackoffCounters, "osd-backoffs" {
        /// Pairs of a session and a PG for which its client keeps them now
        waiting: Gauge,
        /// How often a client was asked to
        blocks: Count,
        /// What requests take that wait here for a PG that does not serve
        held_bytes: GaugeBytes,
    }
}

/// All of them, as an OSD holds them.
#[derive(Clone, Debug)]
pub struct Counted {
    pub registry: Registry,
    pub osd: Arc<OsdCounters>,
    pub stages: Arc<Stages>,
    pub backoffs: Arc<BackoffCounters>,
    /// For the monitors, since the last report.
    pub latencies: Arc<LatencyTally>,
}

impl Counted {
    pub fn new(registry: Registry) -> Counted {
        let (osd, stages, backoffs) = (registry.add(), registry.add(), registry.add());
        Counted { registry, osd, stages, backoffs, latencies: Arc::default() }
    }
}

/// Latencies since they were taken last. Shards add to it.
#[derive(Debug)]
pub struct LatencyTally([AtomicU32; Latencies::BUCKETS]);

impl Default for LatencyTally {
    fn default() -> LatencyTally {
        LatencyTally(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl LatencyTally {
    /// Counts a request that took so long.
    pub fn add(&self, latency: Duration) {
        self.0[usize::from(Latencies::bucket(latency))].fetch_add(1, Relaxed);
    }
    /// What was counted since the last call.
    pub fn take(&self) -> Latencies {
        (0..=u8::MAX)
            .zip(self.0.iter().map(|count| count.swap(0, Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}
