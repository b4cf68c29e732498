//! Our client with a cluster that runs already, Nacre's or Ceph's: give its `ceph.conf` in `CEPH_CONF`
//! and run with `cargo test -p nacre-node --test it client -- --ignored`. Without authentication.

use bytes::Bytes;
use nacre_base::{Name, PoolId, errno};
use nacre_client::{
    CommandOutput, Failure, ListCursor, ListEntry, ListPage, ObjectReply, ObjectRequest, Output, Request,
    RequestKind, parse_mon_host,
};
use nacre_node::{BlockingClient, Pending};
use nacre_proto::types::Op;
use nacre_wire::{Decode, Reader, from_slice};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Cluster {
    client: BlockingClient,
    pool: PoolId,
    pool_name: String,
}

/// A client with a pool of its own, which goes with it.
fn cluster(pool_name: &str, pg_num: u32) -> Cluster {
    let path = std::env::var("CEPH_CONF").expect("CEPH_CONF names the cluster's ceph.conf");
    let conf = std::fs::read_to_string(&path).expect("CEPH_CONF can be read");
    let mon_host = conf.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        matches!(key.trim(), "mon_host" | "mon host").then(|| value.trim())
    });
    let mons = parse_mon_host(mon_host.expect("mon_host is in it")).unwrap();
    let nonce = std::process::id() ^ u32::from_le_bytes(pool_name.as_bytes()[..4].try_into().unwrap());
    let client = BlockingClient::connect(mons, None, nonce, nonce.into());
    let create = format!(r#"{{"prefix":"osd pool create","pool":"{pool_name}","pg_num":{pg_num}}}"#);
    client.request(Request::mon_command(create, "").timeout(TIMEOUT)).unwrap();
    let Output::Pool(pool) = client.request(Request::lookup_pool(pool_name).timeout(TIMEOUT)).unwrap() else {
        panic!("a pool's name gives its number")
    };
    Cluster { client, pool, pool_name: pool_name.to_owned() }
}

impl Cluster {
    fn object(&self, name: &str) -> ObjectRequest {
        ObjectRequest::new(self.pool, name)
    }
    fn submit(&self, object: ObjectRequest) -> Pending {
        self.client.submit(Request::from(object).timeout(TIMEOUT))
    }
    fn run(&self, object: ObjectRequest) -> Result<ObjectReply, Failure> {
        object_reply(self.submit(object).wait())
    }
    fn done(&self, object: ObjectRequest) -> ObjectReply {
        self.run(object).unwrap()
    }
    fn refused(&self, object: ObjectRequest) -> i32 {
        self.run(object).unwrap_err().errno
    }
    fn read(&self, name: &str) -> Bytes {
        self.done(self.object(name).read(0, 0)).ops[0].data.clone()
    }
    fn command(&self, json: &str) -> Result<CommandOutput, Failure> {
        match self.client.request(Request::mon_command(json, "").timeout(TIMEOUT))? {
            Output::Command(output) => Ok(output),
            other => panic!("a command gave {other:?}"),
        }
    }
    fn list(&self, namespace: Option<&str>, max: u64) -> Vec<ListEntry> {
        let (mut from, mut all) = (ListCursor::default(), Vec::new());
        loop {
            let namespace = namespace.map(Name::from);
            let request = Request::from(RequestKind::List { pool: self.pool, namespace, from, max });
            let Output::Page(ListPage { entries, next }) =
                self.client.request(request.timeout(TIMEOUT)).unwrap()
            else {
                panic!("a listing gives pages")
            };
            all.extend(entries);
            match next {
                Some(cursor) => from = cursor,
                None => return all,
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let name = &self.pool_name;
        let remove = format!(
            r#"{{"prefix":"osd pool rm","pool":"{name}","pool2":"{name}","yes_i_really_really_mean_it":true}}"#
        );
        if let Err(e) = self.command(&remove) {
            eprintln!("the pool {name} stays: {e}");
        }
    }
}

fn object_reply(answer: Result<Output, Failure>) -> Result<ObjectReply, Failure> {
    match answer? {
        Output::Object(reply) => Ok(reply),
        other => panic!("an object gave {other:?}"),
    }
}

#[test]
#[ignore = "needs a running cluster"]
fn objects_can_be_written_and_read_in_every_way() {
    let c = cluster("client-objects", 8);
    assert_eq!(c.refused(c.object("a").read(0, 0)), errno::ENOENT);
    c.done(c.object("a").write_full("hello"));
    c.done(c.object("a").append(" world"));
    assert_eq!(c.read("a"), "hello world");
    c.done(c.object("a").write(6, "W"));
    let both = c.done(c.object("a").read(6, 3).stat());
    assert_eq!(both.ops[0].data, "Wor");
    assert_eq!(u64::decode(&mut Reader::new(&both.ops[1].data)), Ok(11));
    c.done(c.object("a").truncate(2).zero(0, 1));
    assert_eq!(c.read("a"), "\0e");
    assert_eq!(c.refused(c.object("a").create(true)), errno::EEXIST);

    c.done(c.object("a").set_xattr("colour", "red").set_xattr("size", "7"));
    assert_eq!(c.done(c.object("a").get_xattr("colour")).ops[0].data, "red");
    c.done(c.object("a").remove_xattr("colour"));
    assert_eq!(c.refused(c.object("a").get_xattr("colour")), errno::ENODATA);
    let all: BTreeMap<Name, Bytes> = from_slice(&c.done(c.object("a").get_xattrs()).ops[0].data).unwrap();
    assert_eq!(all, BTreeMap::from([("size".into(), "7".into())]));

    let pairs = ["k1", "k2", "k3"].map(|k| (Name::from(k), Bytes::from(k)));
    c.done(c.object("a").omap_set(pairs));
    c.done(c.object("a").omap_remove([Name::from("k2")]));
    let page = c.done(c.object("a").omap_get("", 1));
    let found: (BTreeMap<Name, Bytes>, bool) = from_slice(&page.ops[0].data).unwrap();
    assert_eq!(found, (BTreeMap::from([("k1".into(), "k1".into())]), true));
    let some = c.done(c.object("a").omap_get_keys(BTreeSet::from(["k2".into(), "k3".into()])));
    let some: BTreeMap<Name, Bytes> = from_slice(&some.ops[0].data).unwrap();
    assert_eq!(some, BTreeMap::from([("k3".into(), "k3".into())]));

    let version = c.done(c.object("a").stat()).user_version;
    assert_eq!(c.refused(c.object("a").op(Op::AssertVer { version: version + 1 }).stat()), errno::EOVERFLOW);
    let differs = c.object("a").op(Op::CmpExt { off: 1, data: "x".into() }).write_full("lost");
    assert_eq!(c.refused(differs), 4095);
    assert_eq!(c.read("a"), "\0e");
    c.done(c.object("a").remove());
    assert_eq!(c.refused(c.object("a").remove()), errno::ENOENT);
}

#[test]
#[ignore = "needs a running cluster"]
fn large_objects_and_many_requests_at_once_come_back_whole() {
    let c = cluster("client-many", 8);
    let large: Bytes = (0..9_000_000_u32).map(|i| (i % 251) as u8).collect::<Vec<u8>>().into();
    c.done(c.object("large").write_full(large.clone()));
    assert_eq!(c.read("large"), large);
    // Requests about one object are carried out in order, however many are under way.
    let writes: Vec<Pending> =
        (0..500_u32).map(|i| c.submit(c.object("o").append(format!("{i} ")))).collect();
    writes.into_iter().for_each(|write| drop(write.wait().unwrap()));
    let expected: String = (0..500).map(|i| format!("{i} ")).collect();
    assert_eq!(c.read("o"), expected);
}

#[test]
#[ignore = "needs a running cluster"]
fn listings_give_every_object_once_by_namespace_and_key() {
    let c = cluster("client-list", 12);
    let mut expected = BTreeSet::new();
    let mut writes = Vec::new();
    for i in 0..300 {
        let (name, namespace) = (format!("o{i}"), ["", "ns1", "ns2"][i % 3]);
        let key = if i % 10 == 0 { "k" } else { "" };
        writes.push(c.submit(c.object(&name).namespace(namespace).key(key).write_full("x")));
        expected.insert(ListEntry { namespace: namespace.into(), name: name.into(), key: key.into() });
    }
    writes.into_iter().for_each(|write| drop(write.wait().unwrap()));
    for max in [1, 7, 1000] {
        let found = c.list(None, max);
        assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (300, expected.clone()));
    }
    let ns1: BTreeSet<ListEntry> = c.list(Some("ns1"), 20).into_iter().collect();
    let expected: BTreeSet<ListEntry> = expected.into_iter().filter(|e| e.namespace == "ns1").collect();
    assert_eq!(ns1, expected);
    assert_eq!(c.list(Some("nothing here"), 20), []);
}

#[test]
#[ignore = "needs a running cluster"]
fn monitors_and_osds_answer_commands_and_counts() {
    let c = cluster("client-commands", 8);
    let status = c.command(r#"{"prefix":"status","format":"json"}"#).unwrap();
    assert!(status.output.starts_with(b"\n{") || status.output.starts_with(b"{"));
    assert_eq!(c.command(r#"{"prefix":"no such command"}"#).unwrap_err().errno, errno::EINVAL);
    let kind = RequestKind::OsdCommand {
        osd: nacre_base::OsdId(0),
        command: r#"{"prefix":"version","format":"json"}"#.into(),
        input: Bytes::new(),
    };
    let Output::Command(version) = c.client.request(Request::from(kind).timeout(TIMEOUT)).unwrap() else {
        panic!("a command gives its output")
    };
    assert!(version.output.starts_with(b"{") || version.output.starts_with(b"\n{"));

    let statfs =
        c.client.request(Request::from(RequestKind::Statfs { pool: None }).timeout(TIMEOUT)).unwrap();
    assert!(matches!(statfs, Output::Statfs(statfs) if statfs.kb > 0));
    let pools = RequestKind::PoolStats { pools: vec![c.pool_name.clone()] };
    let stats = c.client.request(Request::from(pools).timeout(TIMEOUT)).unwrap();
    assert!(matches!(stats, Output::PoolStats(stats) if stats.len() <= 1));
    let latest = c.client.request(Request::from(RequestKind::LatestMap).timeout(TIMEOUT)).unwrap();
    assert!(matches!(latest, Output::Map(map) if map.pool(c.pool).is_some()));
    let unknown = c.client.request(Request::lookup_pool("no such pool").timeout(TIMEOUT)).unwrap_err();
    assert_eq!(unknown.errno, errno::ENOENT);
    let nowhere = ObjectRequest::new(PoolId(987_654), "a").stat();
    assert_eq!(c.refused(nowhere), errno::ENOENT);
}

/// Each object gets appends in order while OSDs are taken for dead and come back, and while the
/// pool's placement groups split.
#[test]
#[ignore = "needs a running cluster"]
fn nothing_is_lost_or_done_twice_while_primaries_change() {
    let c = cluster("client-moves", 16);
    let start = Instant::now();
    let (mut rounds, mut writes) = (0_u32, Vec::new());
    let mut downs = 0;
    while start.elapsed() < Duration::from_secs(20) {
        for object in 0..8 {
            let name = format!("o{object}");
            writes.push(c.submit(c.object(&name).append(format!("{rounds} "))));
        }
        rounds += 1;
        if start.elapsed() > Duration::from_secs(4 * (downs + 1)) {
            let down = format!(r#"{{"prefix":"osd down","ids":["{}"]}}"#, downs % 3);
            c.command(&down).unwrap();
            downs += 1;
        }
        if rounds == 300 {
            let name = &c.pool_name;
            let split = format!(r#"{{"prefix":"osd pool set","pool":"{name}","var":"pg_num","val":"40"}}"#);
            c.command(&split).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(downs >= 3);
    writes.into_iter().for_each(|write| drop(write.wait().unwrap()));
    let expected: String = (0..rounds).map(|i| format!("{i} ")).collect();
    for object in 0..8 {
        assert_eq!(c.read(&format!("o{object}")), expected, "object {object}");
    }
}

#[test]
#[ignore = "needs a running cluster"]
fn requests_to_a_pool_that_is_deleted_end() {
    let c = cluster("client-deleted", 8);
    c.done(c.object("a").write_full("x"));
    let name = &c.pool_name;
    let remove = format!(
        r#"{{"prefix":"osd pool rm","pool":"{name}","pool2":"{name}","yes_i_really_really_mean_it":true}}"#
    );
    c.command(&remove).unwrap();
    assert_eq!(c.refused(c.object("a").read(0, 0)), errno::ENOENT);
}
