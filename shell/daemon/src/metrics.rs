//! Serves metrics over HTTP, at an address of each monitor, for Prometheus and what reads its format.
//!
//! What is on the page is the monitor's (`nacre_mon::MetricsPage`). A thread beside the monitor follows the
//! configured address, takes requests and answers them, so that no client of it keeps the monitor from its
//! work.

use crate::image_tasks::{ImageMetrics, Manager, Order};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nacre_base::Now;
use nacre_mon::{MetricsAddrs, MetricsPage, Mon, Standby};
use nacre_node::Caller;
use nacre_perf::{Exposition, MetricKind};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// How often the configured address is looked at.
const FOLLOW: Duration = Duration::from_secs(1);
/// Connections at a time; others wait.
const CONNECTIONS_MAX: usize = 32;
/// What a client may take to send a request, from its connection or its last answer on.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// After this long a connection ends in any case.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// What the monitor, and looking up the names of images, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients that ask at the same time get the same page.
const PAGE_KEPT: Duration = Duration::from_secs(1);

type Answer = Response<Full<Bytes>>;

/// The thread that serves a monitor's metrics.
pub struct MetricsServer {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl MetricsServer {
    /// Begins to serve; what hinders it is in the log. `worker` looks up the names of images.
    pub fn start(monitor: Caller<Manager>, worker: Sender<Order>) -> Result<MetricsServer> {
        let (stop, stopped) = oneshot::channel();
        let serve = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let source = Source { monitor, worker, page: PageCache::default(), spent: Cell::default() };
                let source = Rc::new(source);
                LocalSet::new().block_on(&runtime, run(source, stopped));
            }
            Err(e) => tracing::warn!("metrics are not served: {e}"),
        };
        let thread = thread::Builder::new().name("metrics".to_string()).spawn(serve)?;
        Ok(MetricsServer { stop, thread })
    }

    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Listens at the address that is configured, and follows it when it changes.
async fn run(source: Rc<Source>, mut stopped: oneshot::Receiver<()>) {
    let mut listens: Option<(SocketAddr, tokio::task::JoinHandle<()>)> = None;
    let mut failed = None;
    loop {
        let configured = source.ask(|mon, _| mon.metrics_addrs()).await;
        let current = listens.as_ref().map(|(addr, _)| *addr);
        let wanted = addr_to_listen_on(configured, current);
        if current != wanted {
            if let Some((_, task)) = listens.take() {
                task.abort();
                // Its socket closes with it.
                let _ = task.await;
            }
            if let Some(addr) = wanted {
                match TcpListener::bind(addr).await {
                    Ok(listener) => {
                        tracing::info!("metrics are at http://{addr}/metrics");
                        failed = None;
                        listens = Some((addr, tokio::task::spawn_local(accept(listener, source.clone()))));
                    }
                    Err(e) if failed != wanted => {
                        tracing::warn!("metrics are not served: cannot listen on {addr}: {e}");
                        failed = wanted;
                    }
                    Err(_) => {}
                }
            }
        }
        tokio::select! {
            _ = &mut stopped => return,
            () = sleep(FOLLOW) => {}
        }
    }
}

/// The address that is configured. As long as the monitor does not say, that stays as it is.
fn addr_to_listen_on(
    configured: Result<Option<MetricsAddrs>>,
    current: Option<SocketAddr>,
) -> Option<SocketAddr> {
    configured.map_or(current, |addrs| addrs.map(|addrs| addrs.listen))
}

async fn accept(listener: TcpListener, source: Rc<Source>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let source = source.clone();
                tokio::task::spawn_local(async move {
                    let service = service_fn(move |request| answer(source.clone(), request));
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(REQUEST_TIMEOUT)
                        .max_buf_size(HEAD_MAX)
                        .serve_connection(TokioIo::new(stream), service);
                    if let Ok(Err(e)) = timeout(CONNECTION_TIMEOUT, connection).await {
                        tracing::debug!("metrics for {from}: {e}");
                    }
                    drop(permit);
                });
            }
            // Out of file descriptors, mostly.
            Err(e) => {
                tracing::warn!("cannot accept connections for metrics: {e}");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(source: Rc<Source>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    Ok(match request.uri().path() {
        _ if !is_read => text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n"),
        "/metrics" => source.page().await.unwrap_or_else(unavailable),
        "/" => source.index().await.unwrap_or_else(unavailable),
        _ => text(StatusCode::NOT_FOUND, "there is only /metrics\n"),
    })
}

fn unavailable(error: anyhow::Error) -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n"))
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn html(body: String) -> Answer {
    let mut answer = text(StatusCode::OK, body);
    let kind = hyper::header::HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn redirect(to: &str) -> Answer {
    let mut answer = text(StatusCode::TEMPORARY_REDIRECT, format!("the metrics are at {to}\n"));
    if let Ok(to) = to.parse() {
        answer.headers_mut().insert(LOCATION, to);
    }
    answer
}

/// The last page. Clients that ask while it is being made wait for it.
#[derive(Default)]
struct PageCache(Mutex<Option<(Instant, Bytes)>>);

impl PageCache {
    /// The last page if it is new enough, else another one, which is kept if there is one.
    async fn get_or_build<E, B>(&self, build: impl FnOnce() -> B) -> Result<Result<Bytes, E>>
    where
        B: Future<Output = Result<Result<Bytes, E>>>,
    {
        let mut kept = self.0.lock().await;
        if let Some((made, page)) = &*kept
            && made.elapsed() < PAGE_KEPT
        {
            return Ok(Ok(page.clone()));
        }
        let built = build().await?;
        if let Ok(page) = &built {
            *kept = Some((Instant::now(), page.clone()));
        }
        Ok(built)
    }
}

/// Where pages come from.
struct Source {
    monitor: Caller<Manager>,
    worker: Sender<Order>,
    page: PageCache,
    /// What making pages took so far, and how many there were.
    spent: Cell<(Duration, u64)>,
}

impl Source {
    /// Asks the monitor.
    async fn ask<T: Send + 'static>(&self, f: impl FnOnce(&Mon, Now) -> T + Send + 'static) -> Result<T> {
        let (tell, told) = oneshot::channel();
        let is_there = self.monitor.call(move |manager, now, _| drop(tell.send(f(manager.mon(), now))));
        if !is_there {
            bail!("the monitor has stopped");
        }
        let answer = timeout(PATIENCE, told).await.context("the monitor does not answer in time")?;
        answer.context("the monitor has stopped")
    }

    async fn page(&self) -> Result<Answer> {
        let page = self.page.get_or_build(|| self.build_page()).await?;
        Ok(match page {
            Ok(page) => text(StatusCode::OK, page),
            Err((active, behaviour)) => standby(active.as_deref(), &behaviour),
        })
    }

    async fn build_page(&self) -> Result<Result<Bytes, (Option<String>, Standby)>> {
        let began = Instant::now();
        let (page, pools) = self.ask(|mon, now| (mon.metrics(now), mon.rbd_stats_pools())).await?;
        let mut metrics = match page {
            MetricsPage::Active(metrics) => metrics,
            MetricsPage::Standby { active, behaviour } => return Ok(Err((active, behaviour))),
        };
        if !pools.is_empty() {
            self.add_images(pools, &mut metrics).await;
        }
        self.add_duration(began, &mut metrics);
        Ok(Ok(Bytes::from(metrics.to_text())))
    }

    async fn index(&self) -> Result<Answer> {
        let standby = self.ask(|mon, _| mon.metrics_standby()).await?;
        Ok(match standby {
            None => html(index_of("/metrics")),
            Some((Some(active), _)) => html(index_of(&format!("{active}metrics"))),
            Some((None, _)) => html(index_of("/metrics").replace("Metrics", "Metrics (no monitor leads)")),
        })
    }

    /// Adds the counters of images. Without an answer in time there are none.
    async fn add_images(&self, pools: Vec<String>, metrics: &mut Exposition) {
        let (tell, told) = oneshot::channel();
        if self.worker.send(Order::Metrics(pools, tell)).is_err() {
            return;
        }
        let Ok(Ok(images)) = timeout(PATIENCE, told).await else { return };
        images.iter().for_each(|image| add_image(image, metrics));
    }

    fn add_duration(&self, began: Instant, metrics: &mut Exposition) {
        let (spent, pages) = self.spent.get();
        self.spent.set((spent + began.elapsed(), pages + 1));
        let (spent, pages) = self.spent.get();
        for (part, help, value) in [
            ("sum", "The sum of seconds took to collect all metrics of this exporter", spent.as_secs_f64()),
            ("count", "The amount of metrics gathered for this exporter", pages as f64),
        ] {
            let name = format!("ceph_prometheus_collect_duration_seconds_{part}");
            metrics.add(&name, MetricKind::Counter, help, &[("method", "collect")], value);
        }
    }
}

fn standby(active: Option<&str>, behaviour: &Standby) -> Answer {
    match (behaviour, active) {
        (Standby::Error(status), _) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            text(status, "another monitor leads\n")
        }
        (Standby::Redirect, Some(active)) => redirect(&format!("{active}metrics")),
        (Standby::Empty, Some(active)) => {
            text(StatusCode::OK, format!("# Another monitor leads: {active}metrics\n"))
        }
        (Standby::Redirect | Standby::Empty, None) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "no monitor leads\n")
        }
    }
}

fn index_of(metrics: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html><head><title>Nacre</title></head>\n\
         <body><p><a href=\"{metrics}\">Metrics</a></p></body></html>\n"
    )
}

/// Under the names that Ceph gives the counters of images.
fn add_image(image: &ImageMetrics, metrics: &mut Exposition) {
    let ImageMetrics { pool, namespace, image, totals } = image;
    let [writes, reads, write_bytes, read_bytes, write_nanos, read_nanos] = totals.map(|total| total as f64);
    let labels = [("pool", pool.as_str()), ("namespace", namespace.as_str()), ("image", image.as_str())];
    for (name, help, value) in [
        ("write_ops", "RBD image writes count", writes),
        ("read_ops", "RBD image reads count", reads),
        ("write_bytes", "RBD image bytes written", write_bytes),
        ("read_bytes", "RBD image bytes read", read_bytes),
        ("write_latency_sum", "RBD image writes latency (nsec) Total", write_nanos),
        ("write_latency_count", "RBD image writes latency (nsec) Count", writes),
        ("read_latency_sum", "RBD image reads latency (nsec) Total", read_nanos),
        ("read_latency_count", "RBD image reads latency (nsec) Count", reads),
    ] {
        metrics.add(&format!("ceph_rbd_{name}"), MetricKind::Counter, help, &labels, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_stays_while_the_monitor_does_not_answer() {
        let addr: SocketAddr = "127.0.0.1:9283".parse().unwrap();
        let other: SocketAddr = "127.0.0.1:9284".parse().unwrap();
        let addrs = MetricsAddrs { listen: other, public: other };
        assert_eq!(addr_to_listen_on(Err(anyhow::anyhow!("busy")), Some(addr)), Some(addr));
        assert_eq!(addr_to_listen_on(Ok(None), Some(addr)), None);
        assert_eq!(addr_to_listen_on(Ok(Some(addrs)), Some(addr)), Some(other));
    }

    #[tokio::test]
    async fn clients_that_ask_at_the_same_time_get_one_page() {
        let (cache, built) = (PageCache::default(), Cell::new(0));
        let build = || async {
            built.set(built.get() + 1);
            tokio::task::yield_now().await;
            Ok(Ok::<_, ()>(Bytes::from(format!("page {}", built.get()))))
        };
        let pages =
            tokio::join!(cache.get_or_build(build), cache.get_or_build(build), cache.get_or_build(build));
        for page in [pages.0, pages.1, pages.2] {
            assert_eq!(page.unwrap().unwrap(), "page 1");
        }
        // What is no page is not kept.
        let cache = PageCache::default();
        cache.get_or_build(|| async { Ok(Err(())) }).await.unwrap().unwrap_err();
        cache.get_or_build(build).await.unwrap().unwrap();
        assert_eq!(built.get(), 2);
    }
}
