//! The HTTP server: connections, their limits, and the end of the process.

use crate::access::{Access, Peer};
use crate::access_log::{AccessLog, Delivery};
use crate::admin::{Admin, AdminApi};
use crate::audit::AuditLog;
use crate::buckets::Buckets;
use crate::console;
use crate::cors::{self, CrossOrigin};
use crate::counters::GatewayCounters;
use crate::domains::{BucketNames, Domains};
use crate::front;
use crate::garbage::collect;
use crate::iam::Iam;
use crate::keyring::KeyRing;
use crate::keystone::{Keystone, KeystoneOptions};
use crate::lifecycle::Lifecycle;
use crate::multipart::is_form;
use crate::notify::{Notifier, Topics};
use crate::orphans::be_seen;
use crate::post_forms::PostForms;
use crate::query::QueryApi;
use crate::quotas::Quotas;
use crate::rates::Rates;
use crate::service::{Core, Service};
use crate::store::Store;
use crate::swift::Swift;
use crate::tls::{Tls, TlsFiles};
use crate::trace::{Ends, Trace, Unanswered};
use crate::unread;
use crate::usage::UsageLog;
use crate::users::{Auth, FirstUser, Users};
use crate::vault::{Vault, VaultOptions};
use crate::website::{self, Sites};
use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nacre_perf::Registry;
use nacre_rados::{RadosClient, ServiceDaemon};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Error};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// A client that does not send its headers within this time is given up; so is one that keeps a connection
/// without using it.
const HEADERS_MAX: Duration = Duration::from_secs(60);
/// The most bytes of a request's headers.
const HEADERS_BYTES_MAX: usize = 64 << 10;
const HEADERS_COUNT_MAX: usize = 128;
/// The most bytes of a form that `s3s` parses. `post_forms` does: this holds for what escapes that.
const FORM_MAX: usize = 64 << 10;
/// How long requests may take to finish when the gateway stops.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Of the memory, what is for bodies. The rest is for connections and indexes.
const MEMORY_MIN: u64 = 16 << 20;

/// How a gateway serves.
#[derive(Clone)]
pub struct Options {
    pub listen: SocketAddr,
    pub region: String,
    /// Domains under which buckets are found by host names.
    pub domains: Vec<String>,
    /// Domains under which buckets are web sites.
    pub website_domains: Vec<String>,
    /// Memory for bodies on their way.
    pub memory: u64,
    pub connections_max: usize,
    /// How long the data of a replaced object is kept for those that read it.
    pub grace: Duration,
    pub first_user: Option<FirstUser>,
    /// The length of a day for lifecycle rules, if it is not one: for tests of rules.
    pub lifecycle_day: Option<Duration>,
    /// What `ceph -s` and `ceph service dump` show of the gateway, under the name of radosgw's service.
    pub shown: ServiceDaemon,
    /// Where administration and refusals are noted.
    pub audit: Option<Arc<AuditLog>>,
    /// How often access logs of buckets are written.
    pub log_interval: Duration,
    /// Connections are encrypted if this is given.
    pub tls: Option<TlsFiles>,
    /// Users of Keystone are let in if this is given.
    pub keystone: Option<KeystoneOptions>,
    /// Keys of SSE-KMS are Vault's if this is given.
    pub vault: Option<VaultOptions>,
}

/// What every connection needs.
struct Serving {
    service: S3Service,
    swift: Arc<Swift>,
    post_forms: PostForms,
    query: QueryApi,
    buckets: Arc<Buckets>,
    domains: Domains,
    sites: Sites,
    region: Arc<str>,
    counters: Arc<GatewayCounters>,
    ends: Arc<Ends>,
    delivery: Arc<Delivery>,
    /// Requests that are not answered yet.
    active: AtomicU64,
}

/// A request that is not answered yet.
struct ActiveRequest<'a>(&'a Serving);

impl ActiveRequest<'_> {
    fn begin(serving: &Serving) -> ActiveRequest<'_> {
        serving.counters.req.inc();
        serving.counters.qactive.set(serving.active.fetch_add(1, Ordering::Relaxed) + 1);
        ActiveRequest(serving)
    }
}
impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        let before = self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.counters.qactive.set(before.saturating_sub(1));
    }
}

/// A gateway that listens.
pub struct Gateway {
    listener: TcpListener,
    serving: Arc<Serving>,
    perf: Arc<Registry>,
    connections: Arc<Semaphore>,
    tls: Option<Arc<Tls>>,
    /// Collects garbage, carries out lifecycle rules, notes that this gateway is there, reads rate limits,
    /// writes the usage log and access logs, and
    /// looks at the certificate.
    background: Vec<JoinHandle<()>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
    }
}

impl Gateway {
    /// Listens.
    pub async fn bind(client: &RadosClient, options: Options) -> Result<Gateway> {
        let tls = options.tls.map(Tls::read).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        let mebibytes = (options.memory.max(MEMORY_MIN) >> 20) as usize;
        let store = Arc::new(Store::new(client, Arc::new(Semaphore::new(mebibytes))));
        let perf = Arc::new(Registry::default());
        let counters = perf.add::<GatewayCounters>();
        client.register(options.shown).await?;
        let mut users = Users::new(store.clone(), options.first_user);
        users.keystone = options.keystone.map(Keystone::new).transpose()?;
        let users = Arc::new(users);
        let buckets = Arc::new(Buckets::new(store.clone()));
        let collector = tokio::spawn(collect(store.clone(), buckets.clone(), options.grace));
        let mut background = vec![collector];
        background.extend(tls.clone().map(|tls| tokio::spawn(tls.watch())));
        let domains = Domains::new(&options.domains).map_err(anyhow::Error::msg)?;
        let sites = Sites(Domains::new(&options.website_domains).map_err(anyhow::Error::msg)?);
        let quotas = Quotas::new(users.accounts.clone(), buckets.clone());
        let usage = Arc::new(UsageLog::new(store.clone()));
        background.push(tokio::spawn(usage.clone().run()));
        let api = AdminApi {
            admin: Admin::of_gateway(store.clone(), users.clone(), buckets.clone()).with_usage(usage.clone()),
            audit: options.audit.clone(),
            users: users.clone(),
            domains: domains.clone(),
        };
        let iam = Iam::new(Admin::of_gateway(store.clone(), users.clone(), buckets.clone()), users.clone());
        let topics = Topics { store: store.clone(), region: options.region.clone() };
        let query = QueryApi::new(users.clone(), iam, topics, &options.region);
        let notifier = Arc::new(Notifier::new(store.clone(), buckets.clone(), &options.region)?);
        background.push(tokio::spawn(notifier.clone().run()));
        let rates = Arc::new(Rates::default());
        background.push(tokio::spawn(rates.clone().watch(store.clone())));
        let access = Access {
            users: users.clone(),
            buckets: buckets.clone(),
            region: options.region.clone(),
            rates: rates.clone(),
        };
        let core = Core {
            access: access.clone(),
            counters: counters.clone(),
            keyring: KeyRing::new(store.clone()),
            vault: options.vault.map(Vault::new).transpose()?,
            store,
            users: users.clone(),
            buckets: buckets.clone(),
            quotas,
            region: options.region.clone(),
            grace: options.grace,
        };
        let region: Arc<str> = options.region.into();
        let core = Arc::new(core);
        let lifecycle = Lifecycle::new(core.clone(), options.lifecycle_day);
        background.push(tokio::spawn(be_seen(core.store.clone(), lifecycle.window())));
        background.push(tokio::spawn(lifecycle.run()));
        let swift = Arc::new(Swift::new(core.clone(), access.clone()));
        let post_forms = PostForms { core: core.clone(), access: access.clone() };
        let log = Arc::new(AccessLog::default());
        let interval = options.log_interval;
        let delivery = Arc::new(Delivery { core: core.clone(), access: access.clone(), interval });
        background.push(tokio::spawn(log.clone().run(delivery.clone())));
        let mut builder = S3ServiceBuilder::new(Service(core));
        builder.set_auth(Auth(users));
        builder.set_access(access);
        builder.set_route(api);
        builder.set_host(domains.clone());
        builder.set_validation(BucketNames);
        let mut config = S3Config::default();
        config.xml_max_body_size = front::XML_MAX;
        config.form_max_fields_size = FORM_MAX;
        config.post_object_max_file_size = FORM_MAX as u64;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let connections = Arc::new(Semaphore::new(options.connections_max));
        let serving = Serving {
            service: builder.build(),
            swift,
            post_forms,
            query,
            buckets,
            domains,
            sites,
            region,
            counters,
            delivery,
            ends: Arc::new(Ends { rates, usage, log, notifier, audit: options.audit }),
            active: AtomicU64::new(0),
        };
        Ok(Gateway { listener, serving: Arc::new(serving), perf, connections, tls, background })
    }

    /// Where it listens.
    pub fn addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// What it counts.
    pub fn perf(&self) -> Arc<Registry> {
        self.perf.clone()
    }

    /// The certificate; none if connections are not encrypted.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Serves until `stop` ends, and then lets requests finish.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        tokio::pin!(stop);
        loop {
            let permit = self.connections.clone().acquire_owned();
            let accepted = async { (permit.await, self.listener.accept().await) };
            let (permit, stream, peer) = tokio::select! {
                () = &mut stop => break,
                (permit, accepted) = accepted => match accepted {
                    Ok((stream, peer)) => (permit, stream, peer),
                    Err(e) => {
                        tracing::warn!("cannot accept a connection: {e}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            let serving = self.serving.clone();
            let (stopped, tls) = (stopped.clone(), self.tls.clone());
            tokio::spawn(async move {
                // A small answer must not wait for more to send.
                let _ = stream.set_nodelay(true);
                let peer = Peer { address: peer.ip(), is_encrypted: tls.is_some() };
                match tls {
                    None => connection(stream, peer, serving, stopped).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => connection(stream, peer, serving, stopped).await,
                        Err(e) => tracing::debug!("no TLS with {}: {e:#}", peer.address),
                    },
                }
                drop(permit);
            });
        }
        drop(stopped);
        let _ = stopping.send(true);
        // Each connection holds a receiver.
        let _ = tokio::time::timeout(DRAIN_MAX, stopping.closed()).await;
        if let Ok(Err(e)) = tokio::time::timeout(DRAIN_MAX, self.serving.ends.usage.flush()).await {
            tracing::warn!("the last entries of the usage log are lost: {e:#}");
        }
        let log = self.serving.ends.log.flush(&self.serving.delivery);
        let _ = tokio::time::timeout(DRAIN_MAX, log).await;
    }
}

/// The bucket in the name of the host.
fn host_bucket<B>(domains: &Domains, request: &Request<B>) -> Option<String> {
    let host = request.headers().get(HOST)?.to_str().ok()?;
    domains.bucket_of(host).map(str::to_ascii_lowercase)
}

impl Serving {
    async fn answer(
        &self,
        request: Request<Body>,
        refusal: Option<S3Error>,
    ) -> Result<HttpResponse, HttpError> {
        let site = self.sites.bucket_of(&request);
        // Below the name of a bucket, every path is a key.
        let of_host = site.clone().or_else(|| host_bucket(&self.domains, &request));
        if of_host.is_none() {
            if let Some(page) = console::answer(&request, &self.region) {
                return Ok(page);
            }
            if Swift::is_match(&request) {
                return Ok(self.swift.call(request).await);
            }
            if refusal.is_none() && QueryApi::is_match(&request) {
                return Ok(self.query.call(request).await);
            }
        }
        if cors::is_preflight(&request) {
            return cors::preflight(&self.buckets, of_host, &request).await;
        }
        let page = CrossOrigin::of(&request, of_host.clone());
        let mut answer = match (refusal, &site) {
            (Some(refusal), _) => front::answer(refusal),
            (None, Some(bucket)) => {
                let is_encrypted = request.extensions().get::<Peer>().is_some_and(|peer| peer.is_encrypted);
                website::serve(&self.service, &self.buckets, bucket, &request, is_encrypted).await
            }
            (None, None) if is_form(&request) => self.post_forms.answer(request, of_host).await,
            (None, None) => self.service.call(request).await,
        };
        if let (Some(page), Ok(answer)) = (page, &mut answer) {
            page.allow(&self.buckets, answer).await;
        }
        answer
    }
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    serving: Arc<Serving>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_MAX)
        .max_headers(HEADERS_COUNT_MAX)
        .max_buf_size(HEADERS_BYTES_MAX);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (refusal, serving) = (front::refusal(&request), serving.clone());
        // A connection would have the size of the largest request otherwise, also while it does nothing.
        Box::pin(async move {
            let _active = ActiveRequest::begin(&serving);
            let trace = Trace::begin(serving.ends.clone(), peer, &request);
            // The connection may end at any time, and this with it.
            let unanswered = Unanswered::new(&trace);
            request.extensions_mut().insert(trace.clone());
            let (request, unread) = unread::split(trace.of_request(request));
            let mut answer = trace.carry_out(serving.answer(request, refusal)).await;
            if let Ok(answer) = &mut answer {
                unread.end(answer).await;
            }
            if !answer.as_ref().is_ok_and(|answer| !is_failure(answer.status())) {
                serving.counters.failed_req.inc();
            }
            match answer {
                Ok(answer) => Ok(unanswered.answered(answer)),
                Err(error) => {
                    unanswered.failed();
                    Err(error)
                }
            }
        })
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = result {
        tracing::debug!("a connection ended: {e}");
    }
}
