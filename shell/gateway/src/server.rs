//! The HTTP server: connections, their limits, and the end of the process.

use crate::access::{Access, Peer};
use crate::admin::{Admin, AdminApi};
use crate::buckets::Buckets;
use crate::console;
use crate::cors::{self, CrossOrigin};
use crate::domains::Domains;
use crate::front;
use crate::garbage::collect;
use crate::lifecycle::Lifecycle;
use crate::orphans::be_seen;
use crate::quotas::Quotas;
use crate::service::{Core, Service};
use crate::store::Store;
use crate::swift::Swift;
use crate::unread;
use crate::users::{Auth, FirstUser, Users};
use anyhow::{Context, Result};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nacre_rados::RadosClient;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Error};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// A client that does not send its headers within this time is given up; so is one that keeps a connection
/// without using it.
const HEADERS_MAX: Duration = Duration::from_secs(60);
/// The most bytes of a request's headers.
const HEADERS_BYTES_MAX: usize = 64 << 10;
const HEADERS_COUNT_MAX: usize = 128;
/// The most bytes of a request in XML: a thousand keys to delete, or ten thousand parts.
const XML_MAX: usize = 4 << 20;
/// The most bytes of a form. Forms are refused before they are parsed: this holds for what escapes that.
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
    /// Memory for bodies on their way.
    pub memory: u64,
    pub connections_max: usize,
    /// How long the data of a replaced object is kept for those that read it.
    pub grace: Duration,
    pub first_user: Option<FirstUser>,
    /// The length of a day for lifecycle rules, if it is not one: for tests of rules.
    pub lifecycle_day: Option<Duration>,
}

/// A gateway that listens.
pub struct Gateway {
    listener: TcpListener,
    front: Front,
    connections: Arc<Semaphore>,
    /// Collects garbage, carries out lifecycle rules, and notes that this gateway is there.
    background: [JoinHandle<()>; 3],
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
    }
}

impl Gateway {
    /// Listens.
    pub async fn bind(client: &RadosClient, options: Options) -> Result<Gateway> {
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        let mebibytes = (options.memory.max(MEMORY_MIN) >> 20) as usize;
        let store = Arc::new(Store::new(client, Arc::new(Semaphore::new(mebibytes))));
        let users = Arc::new(Users::new(store.clone(), options.first_user));
        let buckets = Arc::new(Buckets::new(store.clone()));
        let collector = tokio::spawn(collect(store.clone(), buckets.clone(), options.grace));
        let lifecycle = Lifecycle {
            store: store.clone(),
            buckets: buckets.clone(),
            grace: options.grace,
            short_day: options.lifecycle_day,
        };
        let seen = tokio::spawn(be_seen(store.clone(), lifecycle.window()));
        let background = [collector, tokio::spawn(lifecycle.run()), seen];
        let domains = Domains::new(&options.domains).map_err(anyhow::Error::msg)?;
        let quotas = Quotas::new(users.accounts.clone(), buckets.clone());
        let api = AdminApi {
            admin: Admin::of_gateway(store.clone(), users.clone(), buckets.clone()),
            users: users.clone(),
            domains: domains.clone(),
        };
        let access =
            Access { users: users.clone(), buckets: buckets.clone(), region: options.region.clone() };
        let core = Core {
            store,
            users: users.clone(),
            buckets: buckets.clone(),
            quotas,
            region: options.region.clone(),
            grace: options.grace,
        };
        let region: Arc<str> = options.region.into();
        let core = Arc::new(core);
        let swift = Arc::new(Swift::new(core.clone(), access.clone()));
        let mut builder = S3ServiceBuilder::new(Service(core));
        builder.set_auth(Auth(users));
        builder.set_access(access);
        builder.set_route(api);
        builder.set_host(domains.clone());
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_MAX;
        config.form_max_fields_size = FORM_MAX;
        config.post_object_max_file_size = FORM_MAX as u64;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let connections = Arc::new(Semaphore::new(options.connections_max));
        let front = Front { service: builder.build(), swift, buckets, domains, region };
        Ok(Gateway { listener, front, connections, background })
    }

    /// Where it listens.
    pub fn addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
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
            let front = self.front.clone();
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let peer = Peer { address: peer.ip(), is_encrypted: false };
                connection(stream, peer, front, stopped).await;
                drop(permit);
            });
        }
        drop(stopped);
        let _ = stopping.send(true);
        // Each connection holds a receiver.
        let _ = tokio::time::timeout(DRAIN_MAX, stopping.closed()).await;
    }
}

/// The interfaces of a gateway.
#[derive(Clone)]
struct Front {
    service: S3Service,
    swift: Arc<Swift>,
    buckets: Arc<Buckets>,
    domains: Domains,
    region: Arc<str>,
}

impl Front {
    /// Whether the path of a request is a key in a bucket that its host names.
    fn is_in_bucket<B>(&self, request: &Request<B>) -> bool {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.domains.bucket_of(host).is_some())
    }

    async fn answer(
        &self,
        request: Request<Body>,
        refusal: Option<S3Error>,
    ) -> Result<HttpResponse, HttpError> {
        if !self.is_in_bucket(&request) {
            if let Some(page) = console::answer(&request, &self.region) {
                return Ok(page);
            }
            if Swift::is_match(&request) {
                return Ok(self.swift.call(request).await);
            }
        }
        if cors::is_preflight(&request) {
            return cors::preflight(&self.buckets, &request).await;
        }
        let page = CrossOrigin::of(&request);
        let mut answer = match refusal {
            Some(refusal) => front::answer(refusal),
            None => self.service.call(request).await,
        };
        if let (Some(page), Ok(answer)) = (page, &mut answer) {
            page.allow(&self.buckets, answer).await;
        }
        answer
    }
}

async fn connection(stream: TcpStream, peer: Peer, front: Front, mut stopped: watch::Receiver<bool>) {
    // A small answer must not wait for more to send.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_MAX)
        .max_headers(HEADERS_COUNT_MAX)
        .max_buf_size(HEADERS_BYTES_MAX);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let front = front.clone();
        let refusal = front::refusal(&request);
        async move {
            let (request, unread) = unread::split(request);
            let mut answer = front.answer(request, refusal).await;
            if let Ok(answer) = &mut answer {
                unread.end(answer).await;
            }
            answer
        }
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
