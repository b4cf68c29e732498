//! Connections that are kept busy, and what that costs.

use super::client::{Client, Endpoint, Payload};
use super::gateways::Gateway;
use crate::cluster::{Cluster, own_cpu};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The bucket of small objects, and that of large ones.
const SMALL: &str = "/small";
const LARGE: &str = "/large";
const SMALL_BYTES: usize = 1 << 10;
const LARGE_BYTES: usize = 8 << 20;
/// Large objects that are written, again and again, and read.
const LARGE_COUNT: u64 = 16;
/// Connections that put objects there beforehand.
const PREPARING: u64 = 64;

/// What connections do.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    PutSmall,
    GetSmall,
    PutLarge,
    GetLarge,
    /// A page of a thousand keys.
    List,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::PutSmall, Kind::GetSmall, Kind::PutLarge, Kind::GetLarge, Kind::List];

    pub fn name(self) -> &'static str {
        match self {
            Kind::PutSmall => "PUT 1 KiB, new keys",
            Kind::GetSmall => "GET 1 KiB",
            Kind::PutLarge => "PUT 8 MiB",
            Kind::GetLarge => "GET 8 MiB",
            Kind::List => "list a page of 1000",
        }
    }
}

/// One run.
pub struct Load {
    pub kind: Kind,
    pub width: usize,
    pub seconds: u64,
    /// In the bucket of small ones.
    pub objects: u64,
    pub round: usize,
}

/// What a run showed. Times of processors are in microseconds for an operation.
pub struct Measured {
    pub rate: f64,
    /// Milliseconds.
    pub p50: f64,
    pub p99: f64,
    pub gateway_cpu: f64,
    pub osds_cpu: f64,
    pub client_cpu: f64,
}

/// Makes the buckets, and the objects to read and to list.
pub async fn prepare(endpoint: &Arc<Endpoint>, objects: u64) -> Result<()> {
    let nothing = Payload::new(Bytes::new());
    let mut client = Client::connect(endpoint.clone()).await?;
    for bucket in [SMALL, LARGE, "/new"] {
        client.request(Method::PUT, bucket, "", &nothing).await?;
    }
    let large = Payload::new(vec![b'x'; LARGE_BYTES].into());
    for n in 0..LARGE_COUNT {
        client.request(Method::PUT, &large_path(n), "", &large).await?;
    }
    let (next, small) = (Arc::new(AtomicU64::new(0)), Payload::new(vec![b'x'; SMALL_BYTES].into()));
    let mut tasks = Vec::new();
    for _ in 0..PREPARING {
        let (next, small, endpoint) = (next.clone(), small.clone(), endpoint.clone());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(endpoint).await?;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= objects {
                    return anyhow::Ok(());
                }
                client.request(Method::PUT, &small_path(n), "", &small).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

fn small_path(n: u64) -> String {
    format!("{SMALL}/object-{n:09}")
}
fn large_path(n: u64) -> String {
    format!("{LARGE}/object-{n:03}")
}
/// Spreads counters over all objects.
fn scattered(n: u64, objects: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % objects.max(1)
}

impl Load {
    pub async fn run(&self, gateway: &Gateway, cluster: &Cluster) -> Result<Measured> {
        let mut clients = Vec::new();
        for _ in 0..self.width {
            clients.push(Client::connect(gateway.endpoint.clone()).await?);
        }
        let bytes = match self.kind {
            Kind::PutSmall => SMALL_BYTES,
            Kind::PutLarge => LARGE_BYTES,
            _ => 0,
        };
        let (payload, next) = (Payload::new(vec![b'x'; bytes].into()), Arc::new(AtomicU64::new(0)));
        let before = (gateway.cpu()?, cluster.cpu()?, own_cpu()?);
        let begun = Instant::now();
        let end = begun + Duration::from_secs(self.seconds);
        let mut tasks = Vec::new();
        for client in clients {
            let work = Work {
                kind: self.kind,
                objects: self.objects,
                prefix: format!("/new/{}-{}", self.width, self.round),
                payload: payload.clone(),
            };
            tasks.push(tokio::spawn(work.repeat(client, next.clone(), end)));
        }
        let mut latencies = Vec::new();
        for task in tasks {
            latencies
                .extend(task.await?.with_context(|| format!("{} on {}", self.kind.name(), cluster.name))?);
        }
        let elapsed = begun.elapsed();
        let after = (gateway.cpu()?, cluster.cpu()?, own_cpu()?);
        latencies.sort();
        let count = latencies.len();
        ensure!(count > 0, "no operation ended in {} s", self.seconds);
        let at = |parts: f64| {
            let index = ((count as f64 * parts) as usize).min(count - 1);
            latencies[index].as_secs_f64() * 1e3
        };
        let each = |after: Duration, before: Duration| {
            after.saturating_sub(before).as_secs_f64() * 1e6 / count as f64
        };
        Ok(Measured {
            rate: count as f64 / elapsed.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            gateway_cpu: each(after.0, before.0),
            osds_cpu: each(after.1, before.1),
            client_cpu: each(after.2, before.2),
        })
    }
}

/// What one connection does.
struct Work {
    kind: Kind,
    objects: u64,
    /// Of new keys.
    prefix: String,
    payload: Payload,
}

impl Work {
    /// Until the time is over. Returns how long each request took.
    async fn repeat(self, mut client: Client, next: Arc<AtomicU64>, end: Instant) -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            self.once(&mut client, n).await?;
            latencies.push(begun.elapsed());
        }
        Ok(latencies)
    }

    async fn once(&self, client: &mut Client, n: u64) -> Result<()> {
        let (get, put) = (Method::GET, Method::PUT);
        let payload = &self.payload;
        match self.kind {
            Kind::PutSmall => {
                // Keys of users are in no order.
                let path = format!("{}-{:016x}", self.prefix, n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                client.request(put, &path, "", payload).await?;
            }
            Kind::GetSmall => {
                let path = small_path(scattered(n, self.objects));
                let len = client.request(get, &path, "", payload).await?;
                ensure!(len == SMALL_BYTES, "{path} has {len} bytes");
            }
            Kind::PutLarge => drop(client.request(put, &large_path(n % LARGE_COUNT), "", payload).await?),
            Kind::GetLarge => {
                let len = client.request(get, &large_path(n % LARGE_COUNT), "", payload).await?;
                ensure!(len == LARGE_BYTES, "an object has {len} bytes");
            }
            Kind::List => {
                let after = scattered(n, self.objects.saturating_sub(1000));
                let query = format!("list-type=2&max-keys=1000&start-after=object-{after:09}");
                let len = client.request(get, SMALL, &query, payload).await?;
                ensure!(len > 0, "an empty page");
            }
        }
        Ok(())
    }
}
