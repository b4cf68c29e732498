//! The asynchronous client against real processes: Nacre's, or those of the cluster that `CEPH_CONF` names.

use bytes::Bytes;
use nacre_base::{Name, OsdId, PgId, errno};
use nacre_interop::Cluster;
use nacre_proto::types::{CopySource, ObjectLocator};
use nacre_rados::{Config, Failure, Limits, ObjectRequest, Pool, RadosClient, WatchEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(90);

/// A cluster to talk to.
struct Target {
    /// None: one that is up already, whose daemons are left alone.
    ours: Option<Cluster>,
    conf: PathBuf,
}

fn target(options: &[&str]) -> Target {
    match std::env::var_os("CEPH_CONF") {
        Some(conf) => Target { ours: None, conf: conf.into() },
        None => {
            let cluster = Cluster::up_with(options).unwrap();
            let conf = cluster.conf();
            Target { ours: Some(cluster), conf }
        }
    }
}

impl Target {
    fn config(&self) -> Config {
        Config::read(&self.conf, "client.admin").unwrap()
    }
    async fn client(&self) -> RadosClient {
        RadosClient::connect(self.config()).await.unwrap().with_timeout(TIMEOUT)
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// A pool of its own for each test.
async fn pool(client: &RadosClient) -> Pool {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    client.create_pool(&format!("rados-client-{}-{n}", std::process::id()), Some(8)).await.unwrap()
}

fn errno_of<T: std::fmt::Debug>(result: Result<T, Failure>) -> i32 {
    result.unwrap_err().errno
}

#[test]
fn rados_client_does_every_operation_that_a_gateway_needs() {
    let t = target(&["--processes"]);
    run(async {
        let client = t.client().await;
        let p = pool(&client).await;
        assert_eq!(errno_of(p.read("a", 0, 0).await), errno::ENOENT);
        p.write_full("a", "hello").await.unwrap();
        p.append("a", " world").await.unwrap();
        p.write("a", 6, "W").await.unwrap();
        assert_eq!(p.read("a", 0, 0).await.unwrap(), "hello World");
        assert_eq!(p.stat("a").await.unwrap().size, 11);
        assert_eq!(errno_of(p.run(p.object("a").create(true)).await), errno::EEXIST);

        // Attributes and omap, with comparisons that decide about the rest.
        let pairs = ["k1", "k2", "k3"].map(|key| (Name::from(key), Bytes::from(key)));
        let request = p.object("a").set_xattr("owner", "me").omap_set(pairs).omap_set_header("head");
        p.run(request).await.unwrap();
        let compare = nacre_rados::Compare::Equal;
        let differs = p.object("a").compare_xattr("owner", compare, "you").write_full("lost");
        assert_eq!(errno_of(p.run(differs).await), errno::ECANCELED);
        let differs = p.object("a").omap_compare("k1", compare, "k2").write_full("lost");
        assert_eq!(errno_of(p.run(differs).await), errno::ECANCELED);
        p.run(p.object("a").omap_compare("k1", compare, "k1").append("!")).await.unwrap();
        assert_eq!(p.read("a", 0, 0).await.unwrap(), "hello World!");
        let (found, more) = p.omap("a", "k1", 1).await.unwrap();
        assert_eq!((found, more), (BTreeMap::from([("k2".into(), "k2".into())]), true));
        assert_eq!(p.run(p.object("a").omap_get_header()).await.unwrap().ops[0].data, "head");
        let request = p.object("a").omap_remove(["k2".into()]).remove_xattr("owner");
        p.run(request).await.unwrap();
        assert_eq!(p.xattrs("a").await.unwrap(), BTreeMap::new());
        p.run(p.object("a").omap_clear()).await.unwrap();
        assert_eq!(p.omap("a", "", 9).await.unwrap().0, BTreeMap::new());

        // Versions, per-operation codes, truncation.
        let version = p.run(p.object("a").stat()).await.unwrap().user_version;
        let newer = p.object("a").assert_version(version + 1).write_full("lost");
        assert_eq!(errno_of(p.run(newer).await), errno::EOVERFLOW);
        let request = p.object("a").get_xattr("none").fail_ok().read(0, 5);
        let reply = p.run(request).await.unwrap();
        assert_eq!((reply.ops[0].rval, &reply.ops[1].data[..]), (-errno::ENODATA, &b"hello"[..]));
        p.run(p.object("a").truncate(3).zero(0, 1)).await.unwrap();
        assert_eq!(p.read("a", 0, 0).await.unwrap(), "\0el");

        // Classes, copies, namespaces, locators.
        let refused = errno_of(p.exec("a", "no such class", "m", "").await);
        assert!([errno::EPERM, errno::EOPNOTSUPP].contains(&refused), "{refused}");
        let source = CopySource {
            snap: nacre_base::SnapId::HEAD,
            version: 0,
            flags: 0,
            fadvise: 0,
            name: "a".into(),
            locator: ObjectLocator::new(p.id()),
            truncate: None,
        };
        p.run(p.object("copy").copy_from(source)).await.unwrap();
        assert_eq!(p.read("copy", 0, 0).await.unwrap(), "\0el");
        let other = p.namespace("other");
        other.locator("k").write_full("b", "x").await.unwrap();
        assert_eq!(errno_of(p.read("b", 0, 0).await), errno::ENOENT);
        let mut names = BTreeSet::new();
        let mut all = p.objects_of_all_namespaces();
        while let Some(entry) = all.next().await.unwrap() {
            names.insert(format!("{}/{}", entry.namespace, entry.name));
        }
        assert_eq!(names, ["/a", "/copy", "other/b"].map(str::to_owned).into());
        let mut listed = other.objects();
        assert_eq!(listed.next().await.unwrap().map(|entry| entry.name), Some("b".into()));
        assert_eq!(listed.next().await.unwrap(), None);
        p.remove("a").await.unwrap();
        assert_eq!(errno_of(p.remove("a").await), errno::ENOENT);

        // Commands.
        let status = client.mon_command(r#"{"prefix":"status","format":"json"}"#, "").await.unwrap();
        assert!(status.output.contains(&b'{'));
        assert_eq!(errno_of(client.mon_command(r#"{"prefix":"nonsense"}"#, "").await), errno::EINVAL);
        let version = r#"{"prefix":"version","format":"json"}"#;
        assert!(client.osd_command(OsdId(0), version, "").await.unwrap().output.contains(&b'{'));
        let dump = client.mgr_command(r#"{"prefix":"pg dump","format":"json"}"#, "").await.unwrap();
        assert!(dump.output.contains(&b'{'));
        let pg = PgId { pool: p.id(), seed: 0 };
        let query = format!(r#"{{"prefix":"query","pgid":"{}.0"}}"#, p.id().0);
        assert!(client.pg_command(pg, query, "").await.unwrap().output.contains(&b'{'));
        assert_eq!(errno_of(client.pool("no such pool").await.map(drop)), errno::ENOENT);
    });
}

/// Appends to a few objects, each in order and each once, and reads them at the end.
async fn appends(pool: &Pool, rounds: usize, done: &AtomicUsize) {
    let tasks = (0..16).map(|object| async move {
        for round in 0..rounds {
            pool.append(format!("o{object}"), format!("{round} ")).await.unwrap();
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    join_all(tasks).await;
    let expected: String = (0..rounds).map(|round| format!("{round} ")).collect();
    for object in 0..16 {
        assert_eq!(pool.read(format!("o{object}"), 0, 0).await.unwrap(), expected, "object {object}");
    }
}

async fn join_all(futures: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        match futures.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

#[test]
fn rados_client_loses_and_doubles_nothing_while_daemons_are_killed() {
    let t = target(&["--processes", "--mons", "3"]);
    let done = AtomicUsize::new(0);
    run(async {
        let client = t.client().await;
        let p = pool(&client).await;
        let Some(cluster) = &t.ours else { return appends(&p, 100, &done).await };
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let killer = scope.spawn(move || {
                let daemons = cluster.daemons().unwrap();
                let mut kills = 0;
                for daemon in daemons.iter().filter(|name| !name.starts_with("mgr")).cycle() {
                    if stopped.recv_timeout(Duration::from_millis(500)).is_ok() {
                        break;
                    }
                    cluster.kill(daemon).unwrap();
                    std::thread::sleep(Duration::from_secs(1));
                    cluster.start(daemon).unwrap();
                    cluster.wait_clean().unwrap();
                    kills += 1;
                }
                kills
            });
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    let begun = Instant::now();
                    let mut rounds = 0;
                    while begun.elapsed() < Duration::from_secs(20) {
                        let namespace = p.namespace(format!("round-{rounds}"));
                        appends(&namespace, 100, &done).await;
                        rounds += 1;
                    }
                });
            });
            stop.send(()).unwrap();
            let kills: usize = killer.join().unwrap();
            assert!(kills >= 2, "{kills} daemons were killed");
        });
    });
    assert!(done.load(Ordering::Relaxed) >= 1600);
}

#[test]
fn rados_client_watches_hear_notifies_across_restarts_of_osds() {
    let t = target(&["--processes"]);
    run(async {
        let (client, other) = (t.client().await, t.client().await);
        let p = pool(&client).await;
        p.write_full("bell", "").await.unwrap();
        let mut watch = p.watch("bell", Duration::from_secs(30)).await.unwrap();
        let notifier = Pool::new(other, p.id());
        let restarts = if t.ours.is_some() { 3 } else { 0 };
        for round in 0..=restarts {
            let heard = async {
                match watch.next().await {
                    Some(WatchEvent::Notified { notify_id, payload, .. }) => {
                        watch.ack(notify_id, format!("heard {round}")).await.unwrap();
                        payload
                    }
                    other => panic!("the watch is over: {other:?}"),
                }
            };
            let notify = notifier.notify("bell", format!("ring {round}"), Duration::from_secs(20));
            let (payload, outcome) = tokio::join!(heard, notify);
            assert_eq!(payload, format!("ring {round}"));
            let outcome = outcome.unwrap();
            assert!(!outcome.timed_out);
            let replies: Vec<&Bytes> = outcome.acks.acks.iter().map(|(_, reply)| reply).collect();
            assert_eq!(replies, [&Bytes::from(format!("heard {round}"))]);
            if let Some(cluster) = t.ours.as_ref().filter(|_| round < restarts) {
                let osd = format!("osd.{round}");
                tokio::task::block_in_place(|| {
                    cluster.kill(&osd).unwrap();
                    cluster.start(&osd).unwrap();
                    cluster.wait_clean().unwrap();
                });
            }
        }
        // A watcher that goes is missed at once, and a notify without watchers comes back at once.
        drop(watch);
        let outcome = notifier.notify("bell", "?", Duration::from_secs(20)).await.unwrap();
        assert!(outcome.acks.acks.is_empty());
        // A watch does not outlive its object.
        let mut watch = p.watch("bell", Duration::from_secs(30)).await.unwrap();
        p.remove("bell").await.unwrap();
        assert!(matches!(watch.next().await, Some(WatchEvent::Lost { .. })));
        assert_eq!(errno_of(p.watch("none", Duration::from_secs(30)).await.map(drop)), errno::ENOENT);
    });
}

#[test]
fn rados_client_requests_end_at_their_deadline_or_when_dropped() {
    let t = target(&["--processes"]);
    run(async {
        // Nothing answers there.
        let nowhere = nacre_rados::Config {
            mons: vec![nacre_proto::types::EntityAddr::msgr2("127.0.0.1:9".parse().unwrap(), 0)],
            ..t.config()
        };
        let client = RadosClient::start(nowhere).with_timeout(Duration::from_millis(300));
        let begun = Instant::now();
        assert_eq!(errno_of(client.wait_for_latest_map().await), errno::ETIMEDOUT);
        assert!(begun.elapsed() < Duration::from_secs(3));

        let limits = Limits { ops_in_flight: 2, bytes_in_flight: 1 << 20 };
        let client = RadosClient::connect(Config { limits, ..t.config() }).await.unwrap();
        let setup = t.client().await;
        let p = Pool::new(client.clone(), pool(&setup).await.id());
        // A thousand callers get through two places, and dropped ones leave theirs.
        let written = AtomicUsize::new(0);
        join_all((0..1000).map(|n| {
            let (p, written) = (&p, &written);
            async move {
                let write = p.write_full(format!("o{n}"), vec![b'x'; 10_000]);
                if n % 3 == 0 {
                    let _ = tokio::time::timeout(Duration::from_micros(n), write).await;
                } else {
                    write.await.unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
        }))
        .await;
        assert_eq!(written.load(Ordering::Relaxed), 666);
        for n in (0..1000).filter(|n| n % 3 != 0) {
            assert_eq!(p.stat(format!("o{n}")).await.unwrap().size, 10_000);
        }
        // One that is larger than the cap goes alone.
        p.write_full("large", vec![b'y'; 5 << 20]).await.unwrap();
        assert_eq!(p.read("large", 0, 0).await.unwrap().len(), 5 << 20);

        let nowhere = ObjectRequest::new(nacre_base::PoolId(987_654), "a").stat();
        assert_eq!(errno_of(p.run(nowhere).await), errno::ENOENT);
    });
}

#[test]
fn rados_client_encrypts_every_connection_if_told_to() {
    let t = target(&["--processes"]);
    let config = Config { secure: true, ..t.config() };
    if config.key.is_none() {
        return; // a cluster without keys has nothing to encrypt with
    }
    run(async {
        let client = RadosClient::connect(config).await.unwrap().with_timeout(TIMEOUT);
        let p = pool(&client).await;
        let data: Bytes = (0..3_000_000_u32).map(|n| n as u8).collect::<Vec<u8>>().into();
        p.write_full("a", data.clone()).await.unwrap();
        assert_eq!(p.read("a", 0, 0).await.unwrap(), data);
    });
}

#[test]
fn rados_client_on_the_blocklist_is_told_so() {
    let t = target(&["--processes"]);
    run(async {
        let (client, admin) = (t.client().await, t.client().await);
        let p = pool(&client).await;
        p.write_full("a", "x").await.unwrap();
        let mut watch = p.watch("a", Duration::from_secs(30)).await.unwrap();
        let nonce = client.nonce();
        let add = format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:0/{nonce}"}}"#);
        admin.mon_command(add, "").await.unwrap();
        let refused = async {
            loop {
                match p.write_full("a", "y").await {
                    Ok(()) => tokio::time::sleep(Duration::from_millis(50)).await,
                    Err(failure) => break failure,
                }
            }
        };
        let failure = tokio::time::timeout(TIMEOUT, refused).await.unwrap();
        assert!(failure.is_blocklisted(), "{failure}");
        let lost = tokio::time::timeout(TIMEOUT, watch.next()).await.unwrap();
        assert!(matches!(lost, Some(WatchEvent::Lost { .. })));
    });
}
