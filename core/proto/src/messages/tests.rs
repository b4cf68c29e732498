use super::*;
use crate::maps::{CompatSet, MdsState};
use crate::types::{
    AddrVec, AuthName, CopySource, EntityName, Extent, ListFilter, NotifyAcks, ObjectId, ObjectLocator, Op,
    OpCode, PoolStat, RawOp, ReqId, ScrubLs, SpgId, WatchAction, op_flags,
};
use bytes::Bytes;
use nacre_base::{Epoch, Name, PgId, PoolId, Rng, ShardId, SnapId, Utime, Version};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};

/// Messages between real clients and daemons, of release 16.2.15.
const SMALL: &str = include_str!("../../../../check/corpus/data/small_messages.txt");
const OPS: &str = include_str!("../../../../check/corpus/data/osd_ops.txt");

fn unhex(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).expect("hex") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn lines(text: &str) -> impl Iterator<Item = (&str, Bytes)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (label, hex) = line.split_once('\t').expect("a tab between label and bytes");
        (label, unhex(hex))
    })
}

fn raw(kind: u16, version: u16, front: Bytes, data: Bytes) -> RawMessage {
    RawMessage { kind, version, compat: 1, tid: 7, front, data, ..RawMessage::default() }
}

/// The small messages, without CephFS's.
fn captured_small() -> Vec<(String, RawMessage)> {
    let kind = |name: &str| {
        Some(match name {
            "PING" => 2,
            "MON_MAP" => 4,
            "MON_GET_MAP" => 5,
            "STATFS" => 13,
            "STATFS_REPLY" => 14,
            "MON_SUBSCRIBE" => 15,
            "MON_GET_VERSION" => 19,
            "MON_GET_VERSION_REPLY" => 20,
            "MDS_MAP" => 21,
            "WATCH_NOTIFY" => 44,
            "POOLOP_REPLY" => 48,
            "POOLOP" => 49,
            "MON_COMMAND" => 50,
            "MON_COMMAND_ACK" => 51,
            "GETPOOLSTATS" => 58,
            "GETPOOLSTATSREPLY" => 59,
            "CONFIG" => 62,
            "COMMAND" => 97,
            "COMMAND_REPLY" => 98,
            "MGR_CONFIGURE" => 0x701,
            "MGR_REPORT" => 0x702,
            "MGR_CLOSE" => 0x708,
            "MGR_COMMAND" => 0x709,
            "MGR_COMMAND_REPLY" => 0x70a,
            "CLIENT_SESSION" | "CLIENT_REQUEST" | "CLIENT_REPLY" | "CLIENT_CAPS" => return None,
            other => panic!("a message of no known name: {other}"),
        })
    };
    lines(SMALL)
        .filter_map(|(label, bytes)| {
            let words: Vec<&str> = label.split(' ').collect();
            let version = words[1].trim_start_matches('v').parse().unwrap();
            let (_, lens) = label.rsplit_once('[').unwrap();
            let lens: Vec<usize> = lens
                .trim_end_matches(']')
                .split(", ")
                .filter(|len| !len.is_empty())
                .map(|len| len.parse().unwrap())
                .collect();
            let front_len = lens.first().copied().unwrap_or(0);
            assert_eq!(bytes.len(), lens.iter().sum::<usize>(), "{label}");
            let message = raw(kind(words[0])?, version, bytes.slice(..front_len), bytes.slice(front_len..));
            Some((label.to_string(), message))
        })
        .collect()
}

fn captured_ops() -> Vec<(String, RawMessage)> {
    let all: Vec<_> = lines(OPS).collect();
    all.chunks(2)
        .map(|pair| {
            let [(label, front), (_, data)] = pair else { panic!("a front without data") };
            let kind = if label.starts_with("REQ") { 42 } else { 43 };
            (label.to_string(), raw(kind, 8, front.clone(), data.clone()))
        })
        .collect()
}

#[test]
fn every_captured_message_reads_and_writes_back_byte_for_byte() {
    let small = captured_small();
    let ops = captured_ops();
    assert!(small.len() > 40 && ops.len() > 150, "{} {}", small.len(), ops.len());
    for (label, raw) in small.into_iter().chain(ops) {
        let message = Envelope::from_raw(raw.clone()).unwrap_or_else(|error| panic!("{label}: {error}"));
        let again = message.to_raw();
        assert_eq!(again.front, raw.front, "{label}: {message:?}");
        assert_eq!(again.data, raw.data, "{label}: {message:?}");
        assert_eq!((again.kind, again.version, again.tid), (raw.kind, raw.version, raw.tid), "{label}");
    }
}

#[test]
fn every_captured_operation_is_understood_and_written_as_the_client_wrote_it() {
    for (label, raw) in captured_ops().into_iter().filter(|(_, raw)| raw.kind == 42) {
        let Message::OsdOp(request) = Envelope::from_raw(raw).unwrap().body else { panic!() };
        for item in &request.ops {
            let op = item.parse().unwrap_or_else(|error| panic!("{label}: {error}"));
            assert!(!matches!(op, Op::Unknown(_)), "{label}");
            assert_eq!(&OsdOpItem::from(op.clone()), item, "{label}: {op:?}");
        }
    }
}

#[test]
fn captured_operations_say_what_they_did() {
    let request = |label: &str| {
        let raw = captured_ops().into_iter().find(|(l, _)| l == label).unwrap().1;
        let Message::OsdOp(request) = Envelope::from_raw(raw).unwrap().body else { panic!() };
        request
    };
    let ops = |label| request(label).ops.iter().map(|item| item.parse().unwrap()).collect::<Vec<_>>();

    let write = request("REQ WRITEFULL front");
    assert_eq!(write.object(), ObjectId::head(PoolId(4), Name::default(), Name::default(), "a".into()));
    assert_eq!(write.spg.to_string(), "4.0");
    assert_eq!(op_flags::message::name(write.flags), "ondisk+write+known_if_redirected");
    let client = EntityName::client(4159);
    assert_eq!(write.request_id(client, 9).to_string(), "client.4159.0:9");

    assert_eq!(
        ops("REQ OMAPGETVALS front")[0],
        Op::OmapGetVals { after: Name::default(), max: 10, prefix: Name::default() }
    );
    assert_eq!(
        ops("REQ OMAPSETVALS front")[0],
        Op::OmapSetVals(
            ["1", "2", "3"].map(|n| (format!("k{n}").into(), Bytes::from(format!("v{n}")))).into()
        )
    );
    assert!(matches!(&ops("REQ NOTIFY front")[0], Op::Notify { payload, .. } if &payload[..] == b"msg"));
    assert!(matches!(&ops("REQ WATCH front")[0], Op::Watch { action: WatchAction::Watch, .. }));
    assert!(
        matches!(&ops("REQ PGNLS front")[0], Op::List { max: 1024, cursor, .. } if *cursor == ObjectId::min())
    );
    assert!(matches!(&ops("REQ CREATE+CALL:rbd.set_id front")[..],
            [Op::Create { exclusive: true }, Op::Call { class, method, .. }] if *class == "rbd" && *method == "set_id"));
    assert!(
        matches!(&ops("REQ ASSERT_VER+APPEND front")[..], [Op::AssertVer { version: 99999 }, Op::Append { data }] if data.len() == 1)
    );
}

/// One of each message, every field with a value of its own.
fn samples() -> Vec<Message> {
    let fsid = *b"0123456789abcdef";
    let version = PaxosVersion(12);
    let text = |s: &str| s.to_string();
    let bytes = |s: &'static str| Bytes::from_static(s.as_bytes());
    let map = |k: &str, v: &str| BTreeMap::from([(text(k), text(v))]);
    let pg = PgId { pool: PoolId(3), seed: 5 };
    let object = ObjectId::head(PoolId(3), "ns".into(), "key".into(), "object".into());
    let request = OsdOp {
        spg: SpgId { pg, shard: ShardId(2) },
        hash: object.hash,
        epoch: Epoch(6),
        flags: op_flags::message::WRITE | op_flags::message::ONDISK,
        reqid: ReqId { client: EntityName::client(8), tid: 9, inc: 10 },
        client_inc: 11,
        mtime: Utime { sec: 12, nsec: 13 },
        locator: ObjectLocator { pool: PoolId(3), key: "key".into(), namespace: "ns".into(), hash: Some(14) },
        name: "object".into(),
        ops: all_ops().into_iter().map(OsdOpItem::from).collect(),
        snap: SnapId::HEAD,
        snap_seq: SnapId(15),
        snaps: vec![SnapId(15), SnapId(4)],
        retry_attempt: 16,
        features: 17,
    };
    let mut reply = OsdOpReply::to(&request, -2, Epoch(7));
    reply.bad_replay_version = Version::new(Epoch(1), 2);
    reply.replay_version = Version::new(Epoch(3), 4);
    reply.user_version = 5;
    for (i, result) in reply.ops.iter_mut().enumerate() {
        result.rval = i as i32 - 3;
        result.data = Bytes::from(vec![i as u8; i]);
    }
    let acks = NotifyAcks { acks: vec![((1, 2), bytes("yes"))], missed: vec![(3, 4)] };
    let entry = LogEntry {
        name: AuthName::new(crate::types::EntityType::Client, "admin"),
        rank: EntityName::client(4),
        addrs: AddrVec::default(),
        stamp: Utime { sec: 1, nsec: 2 },
        seq: 3,
        level: LogLevel::Warn,
        text: text("disk on fire"),
        channel: text("cluster"),
    };
    let counter = PerfCounter {
        path: text("a.b"),
        description: text("d"),
        nick: text("n"),
        kind: 1,
        priority: 2,
        unit: 3,
    };
    vec![
        Ping::default().into(),
        Ping { text: Some(text("{}")) }.into(),
        MonMapMsg { map: bytes("map") }.into(),
        MonGetMap.into(),
        Statfs { version, fsid, data_pool: Some(PoolId(4)) }.into(),
        StatfsReply { fsid, version: 1, kb: 2, kb_used: 3, kb_avail: 4, num_objects: 5 }.into(),
        MonSubscribe {
            what: BTreeMap::from([(text("osdmap"), MonSub { start: 9, flags: MonSub::ONETIME })]),
            hostname: text("h"),
        }
        .into(),
        MonSubscribeAck { interval_secs: 1, fsid }.into(),
        Auth { version, protocol: 2, payload: bytes("p"), monmap_epoch: Epoch(3) }.into(),
        AuthReply { protocol: 2, result: -13, global_id: 5, payload: bytes("p"), text: text("no") }.into(),
        MonGetVersion { handle: 1, what: text("osdmap") }.into(),
        MonGetVersionReply { handle: 1, version: 2, oldest: 3 }.into(),
        MdsMapMsg { fsid, epoch: Epoch(2), map: bytes("map"), fs_name: text("fs") }.into(),
        FsMapMsg { epoch: Epoch(2), map: bytes("map") }.into(),
        MdsBeacon {
            version,
            fsid,
            gid: 4100,
            state: MdsState::BOOT,
            seq: 7,
            name: text("a"),
            compat: CompatSet::of_new_file_system(),
            health: vec![MdsHealth { kind: 1, severity: 1, text: text("slow"), metadata: BTreeMap::new() }],
            metadata: BTreeMap::from([(text("os"), text("Linux"))]),
            features: 9,
            fs: text("fs"),
        }
        .into(),
        MdsLoadTargets { version, gid: 4100, targets: [1, 2].into() }.into(),
        RemoveSnaps { version, snaps: BTreeMap::from([(3, vec![SnapId(4), SnapId(5)])]) }.into(),
        OsdMapMsg {
            fsid,
            incrementals: BTreeMap::from([(Epoch(4), bytes("inc"))]),
            full: BTreeMap::from([(Epoch(3), bytes("full"))]),
            oldest: Epoch(1),
            newest: Epoch(4),
            gap_removed_snaps: BTreeMap::from([(PoolId(1), [3..5_u64, 8..9].into_iter().collect())]),
        }
        .into(),
        Box::new(request).into(),
        Box::new(reply).into(),
        WatchNotify {
            kind: WatchNotifyKind::Complete,
            cookie: 1,
            version: 2,
            notify_id: 3,
            payload: bytes("hello"),
            result: -110,
            notifier: 4,
            acks: to_vec(&acks).into(),
        }
        .into(),
        PoolOpReply { version, fsid, code: -22, epoch: Epoch(4), data: Some(bytes("snapid")) }.into(),
        PoolOp {
            version,
            fsid,
            pool: 1,
            op: PoolOpKind::CreateUnmanagedSnap,
            auid: 2,
            snap: SnapId(3),
            name: text("p"),
            crush_rule: -1,
        }
        .into(),
        MonCommand { version, fsid, cmd: vec![text("{}")], input: bytes("in") }.into(),
        MonCommandAck {
            version,
            retval: -2,
            status: text("no"),
            cmd: vec![text("{}")],
            output: bytes("out"),
        }
        .into(),
        Log { version, fsid, entries: vec![entry] }.into(),
        LogAck { fsid, last: 3, channel: text("cluster") }.into(),
        GetPoolStats { version, fsid, pools: vec![text("p")] }.into(),
        GetPoolStatsReply {
            version,
            fsid,
            stats: BTreeMap::from([(text("p"), PoolStat { log_size: 3, ..PoolStat::default() })]),
            per_pool: true,
        }
        .into(),
        OsdBackoff {
            spg: SpgId::replicated(pg),
            epoch: Epoch(4),
            op: BackoffOp::AckBlock,
            id: 5,
            begin: object,
            end: ObjectId::max(),
        }
        .into(),
        Config { values: map("osd_x", "1") }.into(),
        GetConfig {
            name: AuthName { kind: 8, id: text("admin") },
            host: text("h"),
            device_class: text("ssd"),
        }
        .into(),
        Command { fsid, cmd: vec![text("{}")], input: bytes("in") }.into(),
        CommandReply { retval: 1, status: text("s"), output: bytes("out") }.into(),
        FsMapUser {
            epoch: Epoch(3),
            legacy_client_fscid: 1,
            filesystems: vec![(1, text("a")), (2, text("b"))],
        }
        .into(),
        MgrOpen {
            daemon_name: text("d"),
            service_name: text("rgw"),
            service: Some(MgrService { metadata: map("a", "b"), status: map("c", "d") }),
            config: bytes("c"),
            config_defaults: bytes("cd"),
        }
        .into(),
        MgrConfigure { stats_period_secs: 5, stats_threshold: 6 }.into(),
        MgrReport {
            daemon_name: text("d"),
            declared: vec![counter],
            values: bytes("v"),
            undeclared: vec![text("u")],
            service_name: text("rgw"),
            status: Some(map("a", "b")),
            rest: bytes("rest"),
        }
        .into(),
        MgrMapMsg { map: bytes("map") }.into(),
        MgrClose { daemon_name: text("d"), service_name: text("s") }.into(),
        MgrCommand { fsid, cmd: vec![text("{}")], input: bytes("in") }.into(),
        MgrCommandReply { retval: 1, status: text("s"), output: bytes("out") }.into(),
        DaemonMsg::MarkMeDown { osd: nacre_base::OsdId(1), epoch: Epoch(2), is_over: false }.into(),
        PeerMsg::Ping { stamp: 7 }.into(),
        QuorumMsg::Raft(bytes("raft")).into(),
    ]
}

/// One of each operation that is understood.
fn all_ops() -> Vec<Op> {
    let data = Bytes::from_static(b"data");
    let keys = BTreeSet::from([Name::from("k1"), Name::from("k2")]);
    let extent = Extent { off: 1, len: 4, truncate_size: 3, truncate_seq: 9 };
    let source = CopySource {
        snap: SnapId(1),
        version: 2,
        flags: 3,
        fadvise: 4,
        name: "src".into(),
        locator: ObjectLocator::new(PoolId(5)),
        truncate: None,
    };
    vec![
        Op::Read(extent),
        Op::Stat,
        Op::MapExt(extent),
        Op::SparseRead(extent),
        Op::Checksum { off: 1, len: 2, chunk_size: 3, kind: 2, init: data.clone() },
        Op::CmpExt { off: 5, data: data.clone() },
        Op::AssertVer { version: 6 },
        Op::ListWatchers,
        Op::ListSnaps,
        Op::TmapGet,
        Op::Notify { cookie: 1, timeout_secs: 2, payload: data.clone() },
        Op::NotifyAck { notify_id: 1, cookie: 2, reply: data.clone() },
        Op::OmapGetKeys { after: "a".into(), max: 3 },
        Op::OmapGetVals { after: "a".into(), max: 3, prefix: "p".into() },
        Op::OmapGetHeader,
        Op::OmapGetValsByKeys(keys.clone()),
        Op::OmapCmp(BTreeMap::from([("k".into(), (data.clone(), 1))])),
        Op::GetXattr { name: "x".into() },
        Op::GetXattrs,
        Op::CmpXattr { name: "x".into(), value: data.clone(), op: 1, mode: 2 },
        Op::Call { class: "rbd".into(), method: "get_id".into(), input: data.clone() },
        Op::List { max: 10, start_epoch: Epoch(3), cursor: ObjectId::min(), filter: None },
        Op::List {
            max: 10,
            start_epoch: Epoch(3),
            cursor: ObjectId::min(),
            filter: Some(ListFilter { attr: "_x".into(), value: data.clone() }),
        },
        Op::ListHitSets,
        Op::GetHitSet,
        Op::IsDirty,
        Op::Undirty,
        Op::ScrubLs(ScrubLs {
            snapsets: true,
            after: ("n".into(), "s".into(), SnapId(1)),
            ..ScrubLs::default()
        }),
        Op::Write { extent, data: data.clone() },
        Op::WriteFull { data: data.clone() },
        Op::Truncate { size: 1, truncate_size: 2, truncate_seq: 3 },
        Op::Zero { off: 1, len: 2 },
        Op::Delete,
        Op::Append { data: data.clone() },
        Op::Create { exclusive: true },
        Op::Create { exclusive: false },
        Op::Rollback { snap: SnapId(4) },
        Op::Watch { cookie: 1, action: WatchAction::Reconnect, generation: 2, timeout_secs: 3 },
        Op::WriteSame { off: 1, len: 8, data: data.clone() },
        Op::SetAllocHint { object_size: 1, write_size: 2, flags: 3 },
        Op::CopyFrom(CopySource { truncate: Some((7, 8)), ..source.clone() }),
        Op::CopyFrom(source),
        Op::OmapSetVals(BTreeMap::from([("k".into(), data.clone())])),
        Op::OmapSetHeader(data.clone()),
        Op::OmapClear,
        Op::OmapRmKeys(keys),
        Op::OmapRmKeyRange { begin: "a".into(), end: "b".into() },
        Op::SetXattr { name: "x".into(), value: data.clone() },
        Op::RmXattr { name: "x".into() },
        Op::TmapPut { map: data.clone() },
        Op::TmapUp { commands: data },
        Op::Unknown(OpCode::TMAP2OMAP),
    ]
}

#[test]
fn one_of_each_message_reads_back() {
    let samples = samples();
    let kinds: BTreeSet<u16> = samples.iter().map(Message::kind).collect();
    assert_eq!(kinds.len(), Message::KINDS.len(), "a message has no sample");
    for body in samples {
        let message = Envelope { tid: 99, body };
        assert_eq!(Envelope::from_raw(message.to_raw()), Ok(message));
    }
}

#[test]
fn one_of_each_operation_reads_back() {
    for op in all_ops() {
        assert_eq!(OsdOpItem::from(op.clone()).parse(), Ok(op));
    }
}

/// Everything that might be behind a length field gets wrong sooner or later.
fn damaged(rng: &mut Rng, bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
            _ => bytes[at] ^= 1 << rng.below(8),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes.into()
}

#[test]
fn damaged_messages_are_refused_or_are_other_messages_but_never_panic() {
    let mut rng = Rng::new(0x6d65_7373);
    let originals = samples().into_iter().map(|body| Envelope { tid: 1, body }.to_raw());
    let captured = captured_small().into_iter().chain(captured_ops()).map(|(_, raw)| raw);
    let (mut read, mut refused) = (0, 0);
    for original in originals.chain(captured) {
        for _ in 0..200 {
            let mut raw = original.clone();
            if !raw.front.is_empty() {
                raw.front = damaged(&mut rng, &raw.front);
            }
            if !raw.data.is_empty() && rng.chance(300) {
                raw.data = damaged(&mut rng, &raw.data);
            }
            match Envelope::from_raw(raw) {
                Err(_) => refused += 1,
                Ok(message) => {
                    read += 1;
                    // What was read is a value like any other, so it has to survive the way there
                    // and back; this is where arbitrary values come from.
                    assert_eq!(Envelope::from_raw(message.to_raw()).as_ref(), Ok(&message));
                    if let Message::OsdOp(request) = message.body {
                        for op in request.ops.iter().filter_map(|item| item.parse().ok()) {
                            assert_eq!(OsdOpItem::from(op.clone()).parse(), Ok(op));
                        }
                    }
                }
            }
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn messages_of_other_kinds_and_versions_are_refused_with_their_numbers() {
    let refused = |raw| Envelope::from_raw(raw).unwrap_err().to_string();
    let message = raw(999, 3, Bytes::new(), Bytes::new());
    assert_eq!(refused(message), "message number 999 (version 3) is not known here");
    let message = raw(42, 7, Bytes::new(), Bytes::new());
    assert_eq!(refused(message), "osd_op of version 7 is too old, 8 is the oldest that is read");
    let message = RawMessage { compat: 10, ..raw(42, 12, Bytes::new(), Bytes::new()) };
    assert_eq!(refused(message), "osd_op of version 12 needs a reader of version 10, this one knows 8");
    let message = raw(19, 1, Bytes::from_static(&[1, 2]), Bytes::new());
    assert_eq!(refused(message), "mon_get_version of version 1: 8 bytes needed, 2 left");
}

#[test]
fn the_kernel_clients_short_and_long_forms_are_read() {
    // No host name: version 2.
    let subscribe = MonSubscribe {
        what: BTreeMap::from([("monmap".to_string(), MonSub { start: 1, flags: 0 })]),
        hostname: String::new(),
    };
    let mut message = Envelope::new(subscribe.clone()).to_raw();
    message.version = 2;
    message.front.truncate(message.front.len() - 4);
    assert_eq!(Envelope::from_raw(message).map(|m| m.body), Ok(subscribe.into()));

    // A pool number in a fixed struct, even when none is meant.
    let statfs = Statfs { version: PaxosVersion(1), fsid: [7; 16], data_pool: None };
    let mut message = Envelope::new(statfs.clone()).to_raw();
    message.front = [&message.front[..], &[0; 8]].concat().into();
    assert_eq!(Envelope::from_raw(message).map(|m| m.body), Ok(statfs.into()));
}

#[test]
fn requests_of_newer_clients_carry_another_trace_which_is_skipped() {
    let (_, old) = captured_ops().into_iter().next().unwrap();
    // Behind the target (24 bytes), three numbers, the request id (27) and the first trace.
    let at = 24 + 12 + 27 + 24;
    let mut new = old.clone();
    new.version = 9;
    new.front = [&old.front[..at], &[1, 1, 3, 0, 0, 0, 7, 7, 7], &old.front[at..]].concat().into();
    assert_eq!(Envelope::from_raw(new), Envelope::from_raw(old));
}

#[test]
fn bulk_is_never_copied() {
    let data = Bytes::from(vec![7; 1 << 16]);
    let write = Op::Write { extent: Extent::new(0, data.len() as u64), data: data.clone() };
    let Message::OsdOp(mut request) = samples().into_iter().find(|m| m.kind() == 42).unwrap() else {
        panic!()
    };
    request.ops = vec![Op::Create { exclusive: false }.into(), write.into()];
    let raw = Envelope::new(request).to_raw();
    assert_eq!(raw.data.as_ptr(), data.as_ptr());
    let Message::OsdOp(request) = Envelope::from_raw(raw).unwrap().body else { panic!() };
    let Ok(Op::Write { data: read, .. }) = request.ops[1].parse() else { panic!() };
    assert_eq!(read.as_ptr(), data.as_ptr());
}

#[test]
fn a_reply_echoes_bytes_that_mean_nothing_here() {
    let Message::OsdOp(mut request) = samples().into_iter().find(|m| m.kind() == 42).unwrap() else {
        panic!()
    };
    request.ops =
        vec![OsdOpItem { op: RawOp { code: OpCode::STAT, flags: 2, args: [0xab; 28] }, data: Bytes::new() }];
    request.flags |= op_flags::message::ACK;
    let reply = OsdOpReply::to(&request, 0, Epoch(9));
    assert_eq!(reply.ops[0].op, request.ops[0].op);
    assert_eq!(reply.flags, request.flags);
    assert_eq!(request.ops[0].parse(), Ok(Op::Stat));
}

#[test]
fn a_write_whose_length_is_not_its_datas_is_nonsense() {
    let (op, _) = Op::Write { extent: Extent::new(0, 5), data: Bytes::from_static(b"12345") }.to_raw();
    assert!(Op::parse(&op, &Bytes::from_static(b"1234")).is_err());
}

/// A metadata server leaves the offset zero.
#[test]
fn a_trimmed_file_is_cut_off_at_the_size_it_was_truncated_to() {
    let mut args = [0; 28];
    args[16..24].copy_from_slice(&4000_u64.to_le_bytes());
    args[24..].copy_from_slice(&7_u32.to_le_bytes());
    let trim = RawOp { code: OpCode::TRIMTRUNC, flags: 0, args };
    let truncate = Op::Truncate { size: 4000, truncate_size: 4000, truncate_seq: 7 };
    assert_eq!(Op::parse(&trim, &Bytes::new()), Ok(truncate));
}

#[test]
fn answers_to_a_notify_read_back_from_a_captured_completion() {
    let completion = captured_small().into_iter().filter(|(_, raw)| raw.kind == 44).nth(1).unwrap().1;
    let Message::WatchNotify(message) = Envelope::from_raw(completion).unwrap().body else { panic!() };
    assert_eq!(message.kind, WatchNotifyKind::Complete);
    let acks: NotifyAcks = from_slice(&message.acks).unwrap();
    assert_eq!((acks.acks.len(), acks.missed.len()), (1, 0));
    assert_eq!(to_vec(&acks), &message.acks[..]);
}
