//! Values: a decoded value must encode to bytes that decode to the same value.

use super::{message_input, read_message};
use crate::samples::{self, Sample};
use bytes::Bytes;
use nacre_base::{Epoch, Name, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Utime, Version};
use nacre_crush::CrushMap;
use nacre_proto::maps::{FsMap, Incremental, MAX_OSDS, MgrMap, MonMap, OsdMap};
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::part::{Act, Acts, Meta, Part, Stale};
use nacre_proto::messages::peer::{
    EntryKind, LogEntry, OtherChange, PgInfo, PgLog, PgMsg, PgRoute, Push, RepOp, Room,
};
use nacre_proto::messages::scrub::{
    BadObject, BadSnaps, Finding, ScrubAnswer, ScrubEntry, ScrubMsg, ScrubNote, ScrubQuery, ScrubSum, Shard,
};
use nacre_proto::messages::{
    Beat, DaemonMsg, Envelope, FailureEvidence, MergeReady, Message, OsdBoot, OsdFailure, PeerMsg, PgRecord,
    PgWish, QuorumMsg, RawMessage,
};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AddrVec, EntityAddr, ObjectId, Op, OpCode, RawOp, ReqId};
use nacre_wire::{Decode, Encode, Encoded, Reader, crc32c, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

fn bytes_of(samples: Vec<Sample>) -> Vec<Vec<u8>> {
    samples.into_iter().map(|(_, bytes)| bytes).collect()
}

/// The value if the bytes decode. Compares bytes, not values: a NaN does not equal itself.
pub(super) fn stable<T: Encode + Decode>(bytes: &[u8]) -> Option<T> {
    let value: T = from_slice(bytes).ok()?;
    let written = to_vec(&value);
    let again: T = from_slice(&written).unwrap_or_else(|why| panic!("what was written is refused: {why}"));
    assert!(to_vec(&again) == written, "what was written reads as something else");
    Some(value)
}

pub fn message_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = samples::messages().iter().map(|(_, raw)| message_input(raw)).collect();
    // Types without a recording start as zeros, which many of them decode as empty.
    for &kind in Message::KINDS {
        for (version, len) in [(1, 0), (3, 40), (9, 400)] {
            let front = Bytes::from(vec![0; len]);
            seeds.push(message_input(&RawMessage { kind, version, compat: 1, front, ..Default::default() }));
        }
    }
    seeds.extend(peer_messages().into_iter().map(|message| message_input(&Envelope::new(message).to_raw())));
    seeds
        .extend(daemon_messages().into_iter().map(|message| message_input(&Envelope::new(message).to_raw())));
    seeds
}

pub(super) fn daemon_messages() -> Vec<DaemonMsg> {
    let (epoch, osd, pg) = (Epoch(7), OsdId(3), PgId { pool: PoolId(2), seed: 5 });
    let addrs = AddrVec::one(EntityAddr::msgr2("127.0.0.1:6800".parse().expect("an address"), 9));
    let record = PgRecord { interval: epoch, acting: vec![osd, OsdId(1)] };
    vec![
        DaemonMsg::Boot(OsdBoot {
            osd,
            uuid: [4; 16],
            public: addrs.clone(),
            cluster: addrs.clone(),
            newest_map: epoch,
            capacity: 1 << 40,
            device_class: "ssd".into(),
            host: "node".into(),
            metadata: BTreeMap::from([("os".into(), "linux".into())]),
            formats: Some(nacre_proto::types::Formats::ALL),
        }),
        DaemonMsg::MarkMeDown { osd, epoch, is_over: true },
        DaemonMsg::Failure(OsdFailure {
            target: osd,
            target_addrs: addrs,
            epoch,
            evidence: FailureEvidence::Silent { millis: 20_000 },
        }),
        DaemonMsg::RecordQuery { epoch, pgs: vec![pg, pg] },
        DaemonMsg::Records { epoch, records: vec![(pg, Some(record.clone())), (pg, None)] },
        DaemonMsg::Activate { epoch, records: vec![(pg, record.clone())] },
        DaemonMsg::Rearrange(vec![PgWish { pg, record, acting: vec![osd] }]),
        DaemonMsg::Activated { epoch, results: vec![(pg, epoch, true)] },
        DaemonMsg::ClusterLog { level: 2, stamp: Utime { sec: 1, nsec: 2 }, text: "line".into() },
        DaemonMsg::MergeReady(MergeReady {
            epoch,
            source: pg,
            source_interval: epoch,
            source_version: Version::new(epoch, 9),
            target_interval: epoch,
            target_version: Version::ZERO,
        }),
    ]
}

pub fn message(input: &[u8]) {
    if let Ok(raw) = read_message(&mut Reader::new(input)) {
        envelope(raw);
    }
}

/// A transaction with one write to `object`.
pub(super) fn answer(version: Version) -> Answer {
    let reqid = ReqId { tid: version.version, ..ReqId::default() };
    Answer { reqid, version, user_version: 3, ..Answer::default() }
}

pub(super) fn log_entry(version: Version) -> LogEntry {
    let object = ObjectId::head(PoolId(2), "".into(), "".into(), "object".into());
    let clone = ObjectId { snap: SnapId(3), ..object.clone() };
    LogEntry {
        version,
        prior: Version::default(),
        kind: EntryKind::Modify,
        object,
        others: vec![OtherChange { object: clone, kind: EntryKind::Modify, prior: Version::default() }],
        reqid: ReqId { tid: version.version, ..ReqId::default() },
        user_version: 3,
        mtime: Utime { sec: 1, nsec: 2 },
        acts: vec![Acts {
            object: None,
            acts: vec![
                Act::Data { offset: 0, len: 4 },
                Act::Keys(vec!["k".into()]),
                Act::Truncate { size: 4 },
                Act::Revert { part: Part::everything(), to: OsdId(1) },
            ],
        }],
        result: 0,
        outputs: vec![(0, Bytes::from_static(b"output"))],
    }
}

pub fn beat_seeds() -> Vec<Vec<u8>> {
    let (from, to) = (OsdId(1), OsdId(2));
    let beat = Beat { fsid: [1; 16], from, from_life: 3, to, to_life: 4, is_answer: false, stamp: 5 };
    vec![beat.to_datagram(), Beat { is_answer: true, ..beat }.to_datagram()]
}

pub fn beat(input: &[u8]) {
    if let Ok(beat) = Beat::from_datagram(input) {
        assert_eq!(Beat::from_datagram(&beat.to_datagram()), Ok(beat));
    }
}

fn scrub_messages(object: ObjectId, version: Version) -> impl Iterator<Item = PgMsg> {
    let attrs = [("_".into(), (7, Some(Bytes::from_static(b"info"))))].into();
    let entry = ScrubEntry { size: 4, version, attrs, ..ScrubEntry::new(object.clone()) };
    let shard = Shard { errors: 8, data_digest: Some(7), ..Shard::default() };
    let bad = Finding::Object(BadObject { errors: 16, user_version: 3, shards: [(OsdId(1), shard)].into() });
    let clones = Finding::Snaps(BadSnaps { errors: 4, missing: vec![SnapId(3)], ..BadSnaps::default() });
    let findings = vec![(object.clone(), false, Some(bad)), (object.clone(), true, Some(clones))];
    let queries = [
        ScrubQuery::Names { from: object.clone(), to: None, values: true },
        ScrubQuery::Data { object: object.clone(), offset: 0, len: 4096, chain: 7, factors: Vec::new() },
        ScrubQuery::Data { object: object.clone(), offset: 0, len: 4096, chain: 7, factors: vec![1, 9] },
        ScrubQuery::Omap { object: object.clone(), from: "k".into(), to: Some("l".into()), chain: 7 },
    ];
    let answers = [
        ScrubAnswer::Names { entries: vec![entry], end: None },
        ScrubAnswer::Sum(ScrubSum::Of { sum: 1, chain: 2 }),
        ScrubAnswer::Products { sum: 1, chain: 2, products: vec![3, 4] },
    ];
    let queries = queries.map(|query| ScrubMsg::Query { id: 1, at: version, query });
    let answers = answers.map(|answer| ScrubMsg::Answer { id: 1, answer: Some(answer) });
    let others = [
        ScrubMsg::Mend { object, stale: Stale::everything(version) },
        ScrubMsg::Note(ScrubNote { findings, forget: true, ..ScrubNote::default() }),
    ];
    queries.into_iter().chain(answers).chain(others).map(|msg| PgMsg::Scrub(Box::new(msg)))
}

/// Messages of OSDs to each other and to monitors.
fn peer_messages() -> Vec<Message> {
    let (pg, interval) = (PgId { pool: PoolId(2), seed: 5 }, Epoch(7));
    let object = ObjectId::head(PoolId(2), "".into(), "".into(), "object".into());
    let version = Version::new(interval, 12);
    let entry = log_entry(version);
    let mut txn = Transaction::new();
    txn.push(object.clone(), Change::Write { offset: 0, data: Bytes::from_static(b"data") });
    txn.push(object.clone(), Change::Truncate { size: 4 });
    let meta =
        Meta { size: 4, attrs: [("_".into(), Bytes::from_static(b"info"))].into(), omap_header: "h".into() };
    let push = Push {
        common: vec![(SnapId(4), (0..4096).into())],
        id: 3,
        object: object.clone(),
        part: Part::everything(),
        meta: Some(meta.clone()),
        writes: vec![(0, Bytes::from_static(b"data"))],
        pairs: [("k".into(), Bytes::from_static(b"v"))].into(),
    };
    let info = PgInfo { last_update: version, pg_num: 8, ..PgInfo::default() };
    let log = PgLog {
        info,
        after: Version::default(),
        entries: vec![entry.clone(), log_entry(Version::new(interval, 13))],
        answers: Answers(vec![answer(version), Answer { result: -17, ..answer(version) }]),
    };
    let rep_op = RepOp {
        entry: Encoded::new(entry),
        previous: Version::default(),
        committed_to: version,
        trim_to: Version::default(),
        objects: 1,
        clones: 0,
        bytes: 4,
        txn,
        metas: vec![(object.clone(), meta.clone())],
    };
    let of_group = [
        PgMsg::InfoQuery,
        PgMsg::Info { info: Some(info), lease_left_ms: 100, is_lacking: false },
        PgMsg::Log(log.clone()),
        PgMsg::Inventory {
            from: ObjectId::min(),
            objects: vec![(object.clone(), version)],
            next: Some(object.clone()),
        },
        PgMsg::AdoptLog(log),
        PgMsg::LogAdopted { at: version, missing: vec![(object.clone(), Stale::everything(version))] },
        PgMsg::RepOp(std::sync::Arc::new(rep_op)),
        PgMsg::Pull { id: 3, object: object.clone(), part: Part::meta() },
        PgMsg::Push(Box::new(push)),
    ];
    let of_group = of_group.into_iter().chain(scrub_messages(object, version));
    let route = PgRoute::replicated(pg);
    let spg = SpgId { pg, shard: ShardId(1) };
    let many = [PgMsg::InfoQuery, PgMsg::RepAck { version }, PgMsg::StrayRemove];
    let many = PeerMsg::Pgs(many.map(|msg| (route, interval, Box::new(msg))).to_vec());
    let of_group = of_group.map(|msg| PeerMsg::Pg { route, interval, msg: Box::new(msg) });
    let others = [
        many,
        PeerMsg::Ping { stamp: 5 },
        PeerMsg::LeaseRequest { sent: 5, pgs: vec![(SpgId::replicated(pg), interval)] },
        PeerMsg::LeaseGrant { sent: 5, pgs: vec![(SpgId::replicated(pg), interval)] },
        PeerMsg::LeaseRequest { sent: 5, pgs: vec![(spg, interval)] },
        PeerMsg::Pg { route: PgRoute { to: spg.shard, ..route }, interval, msg: Box::new(PgMsg::InfoQuery) },
        PeerMsg::Room(Room { full: true, window: 4096, memory: 8192 }),
    ];
    let message =
        RawMessage { kind: 50, version: 1, front: Bytes::from_static(b"front"), ..Default::default() };
    let quorum = [
        QuorumMsg::Hello { fsid: [7; 16], features: 0, formats: nacre_proto::types::Formats::ALL, format: 1 },
        QuorumMsg::Raft(Bytes::from_static(b"opaque")),
        QuorumMsg::Forward {
            key: 1,
            kind: 8,
            num: 4100,
            addrs: AddrVec::default(),
            message: message.clone(),
            auth_name: None,
        },
        QuorumMsg::Answer { key: 1, message },
        QuorumMsg::Order {
            osd: OsdId(1),
            message: Box::new(DaemonMsg::Scrub { pgs: vec![pg], deep: true, repair: false }),
        },
        QuorumMsg::Ended { osd: OsdId(1) },
    ];
    let peers = of_group.into_iter().chain(others).map(Message::from);
    peers.chain(quorum.map(Message::from)).collect()
}

/// Decodes a message, and encodes it as we would send it.
pub(super) fn envelope(raw: RawMessage) {
    let Ok(envelope) = Envelope::from_raw(raw) else { return };
    let written = envelope.to_raw();
    let again = Envelope::from_raw(written.clone())
        .unwrap_or_else(|why| panic!("what was written is refused: {why}"));
    assert!(again.to_raw() == written, "{} reads as something else", envelope.body.name());
    if let Message::OsdOp(request) = &envelope.body {
        for item in &request.ops {
            parse_op(&item.op, &item.data);
        }
    }
}

/// Code, flags, arguments, data.
pub fn op_seeds() -> Vec<Vec<u8>> {
    let requests = samples::messages().into_iter().filter_map(|(_, raw)| Envelope::from_raw(raw).ok());
    let items = requests.flat_map(|envelope| match envelope.body {
        Message::OsdOp(request) => request.ops,
        _ => Vec::new(),
    });
    items
        .map(|item| {
            let mut out = to_vec(&(item.op.code.0, item.op.flags));
            out.extend_from_slice(&item.op.args);
            out.extend_from_slice(&item.data);
            out
        })
        .collect()
}

pub fn op(input: &[u8]) {
    let r = &mut Reader::new(input);
    let (Ok(code), Ok(flags), Ok(args)) = (u16::decode(r), u32::decode(r), r.array()) else { return };
    parse_op(&RawOp { code: OpCode(code), flags, args }, &Bytes::copy_from_slice(r.rest()));
}

fn parse_op(raw: &RawOp, data: &Bytes) {
    let Ok(op) = Op::parse(raw, data) else { return };
    let (written, data) = op.to_raw();
    let again = Op::parse(&written, &data).unwrap_or_else(|why| panic!("{op:?} is refused: {why}"));
    assert!(again.to_raw() == (written, data), "{op:?} reads as something else");
}

/// Length of the written data, that data, the rest.
pub fn transaction_seeds() -> Vec<Vec<u8>> {
    let ids = [
        StoredId::meta("superblock"),
        StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: 3 })),
        StoredId::meta(""),
    ];
    let pairs = || BTreeMap::from([(Name::from("k"), Bytes::from_static(b"value"))]);
    let mut txn = Transaction::new();
    for id in &ids {
        txn.push(id.clone(), Change::Touch);
        txn.push(id.clone(), Change::Write { offset: 4096, data: Bytes::from_static(b"written") });
        txn.push(id.clone(), Change::Zero { offset: 1, len: 2 });
        txn.push(id.clone(), Change::Truncate { size: 9 });
        txn.push(id.clone(), Change::SetAttrs(pairs()));
        txn.push(id.clone(), Change::RemoveAttr("k".into()));
        txn.push(id.clone(), Change::OmapSet(pairs()));
        txn.push(id.clone(), Change::OmapRemove(["k".into(), "l".into()].into()));
        txn.push(id.clone(), Change::OmapRemoveRange { begin: "a".into(), end: "b".into() });
        txn.push(id.clone(), Change::OmapClear);
        txn.push(id.clone(), Change::OmapSetHeader(Bytes::from_static(b"header")));
        txn.push(id.clone(), Change::CloneFrom(ids[0].clone()));
        txn.push(id.clone(), Change::CloneBlocks { from: ids[0].clone(), blocks: 1..9 });
        txn.push(id.clone(), Change::Xor { offset: 4090, data: Bytes::from_static(b"delta") });
        txn.push(id.clone(), Change::Remove);
    }
    let each =
        txn.changes.iter().map(|change| Transaction { changes: vec![change.clone()], is_read_here: false });
    each.chain([Transaction::new(), txn.clone()]).map(|txn| split(&txn)).collect()
}

fn split(txn: &Transaction) -> Vec<u8> {
    let (mut body, mut data) = (Vec::new(), Vec::new());
    txn.encode_split(&mut body, &mut data);
    let mut out = to_vec(&data.concat());
    out.extend(body);
    out
}

pub fn transaction(input: &[u8]) {
    let decode = |input: &[u8]| {
        let r = &mut Reader::new(input);
        let data = Bytes::decode(r)?;
        Transaction::decode_split(r, &data)
    };
    let Ok(txn) = decode(input) else { return };
    let _ = txn.payload_len();
    assert_eq!(decode(&split(&txn)), Ok(txn));
}

/// The offset of the checksum of an OSD map or an incremental: behind two envelopes inside one.
fn checksum_at(bytes: &[u8]) -> Option<usize> {
    let mut at = 6_usize;
    for _ in 0..2 {
        let len = bytes.get(at + 2..at + 6)?;
        at += 6 + u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
    }
    Some(at)
}

/// Corrects the checksum of what looks like an OSD map.
pub(super) fn seal_map(bytes: &mut [u8]) {
    if let Some(at) = checksum_at(bytes).filter(|&at| at < bytes.len()) {
        let crc = crc32c(u32::MAX, &bytes[..at]);
        put_crc(bytes, at, crc);
    }
}
/// Corrects the checksum of what looks like an incremental.
pub(super) fn seal_incremental(bytes: &mut [u8]) {
    if let Some(at) = checksum_at(bytes).filter(|&at| at + 8 <= bytes.len()) {
        let crc = crc32c(crc32c(u32::MAX, &bytes[..at]), &bytes[at + 4..at + 8]);
        put_crc(bytes, at, crc);
    }
}

fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

pub fn osd_map_seeds() -> Vec<Vec<u8>> {
    bytes_of(samples::osd_maps())
}

pub fn osd_map(input: &[u8]) {
    let mut bytes = input.to_vec();
    seal_map(&mut bytes);
    if let Some(map) = stable::<OsdMap>(&bytes) {
        use_map(map);
    }
}

/// The lookups that daemons do in a map.
fn use_map(mut map: OsdMap) {
    let mut crush = (*map.crush).clone();
    few_tries(&mut crush);
    map.crush = Arc::new(crush);
    for pool in map.pool_ids().take(4) {
        for pg in map.pgs(pool).take(4) {
            map.pg_to_up_acting(pg);
        }
        map.hash_to_pg(pool, 0x1234_5678);
        map.pool(pool).expect("it was listed").snap_context();
    }
    assert!(map.up_osds().all(|osd| map.exists(osd) && map.addrs(osd).is_some()));
}

/// The first two bytes select the map to which the rest is applied.
pub fn incremental_seeds() -> Vec<Vec<u8>> {
    let incrementals = bytes_of(samples::incrementals());
    let fits = |(at, inc): (usize, Vec<u8>)| {
        let mut out = to_vec(&(at as u16));
        out.extend(inc);
        out
    };
    incrementals.into_iter().enumerate().map(fits).collect()
}

/// For each recorded incremental, the map that it applies to.
fn bases() -> &'static [OsdMap] {
    static BASES: OnceLock<Vec<OsdMap>> = OnceLock::new();
    BASES.get_or_init(|| {
        let fulls: Vec<OsdMap> =
            samples::osd_maps().iter().map(|(_, map)| from_slice(map).expect("a sample")).collect();
        let mut last: Option<OsdMap> = None;
        let mut bases = Vec::new();
        for (_, bytes) in samples::incrementals() {
            let inc: Incremental = from_slice(&bytes).expect("a sample");
            let comes_before = |map: &&OsdMap| map.fsid == inc.fsid && map.epoch.0 + 1 == inc.epoch.0;
            let base = last.as_ref().filter(comes_before).or_else(|| fulls.iter().find(comes_before));
            let base = base.expect("recordings have no gaps").clone();
            last = Some(base.apply(&inc).expect("a sample"));
            bases.push(base);
        }
        bases
    })
}

pub fn incremental(input: &[u8]) {
    let Some((which, bytes)) = input.split_at_checked(2) else { return };
    let mut bytes = bytes.to_vec();
    seal_incremental(&mut bytes);
    let Some(mut inc) = stable::<Incremental>(&bytes) else { return };
    // A few bytes may ask for `MAX_OSDS` OSDs, which take 60 MB. That is allowed.
    inc.new_max_osd = inc.new_max_osd.map(|max| if max > MAX_OSDS { max } else { max.min(2000) });
    let bases = bases();
    let base = &bases[usize::from(u16::from_le_bytes([which[0], which[1]])) % bases.len()];
    // First as a receiver, which has a checksum to compare with; then as a monitor.
    let _ = base.apply(&inc);
    if let Ok(map) = inc.seal(base) {
        assert!(base.apply(&inc).is_ok_and(|again| again.crc() == map.crc()));
        let map = stable::<OsdMap>(&to_vec(&map)).expect("a map that we made is readable");
        use_map(map);
    }
}

pub fn mon_map_seeds() -> Vec<Vec<u8>> {
    bytes_of(samples::mon_maps())
}
pub fn mon_map(input: &[u8]) {
    if let Some(map) = stable::<MonMap>(input) {
        assert!(map.by_rank().enumerate().all(|(rank, mon)| map.rank_of(&mon.name) == Some(rank)));
    }
}

pub fn mgr_map_seeds() -> Vec<Vec<u8>> {
    bytes_of(samples::mgr_maps())
}
pub fn mgr_map(input: &[u8]) {
    stable::<MgrMap>(input);
}

pub fn fs_map_seeds() -> Vec<Vec<u8>> {
    bytes_of(samples::fs_maps())
}
pub fn fs_map(input: &[u8]) {
    stable::<FsMap>(input);
}

pub fn crush_map_seeds() -> Vec<Vec<u8>> {
    bytes_of(samples::crush_maps())
}

/// A map may ask for any number of tries and items, and the mapper gives up at some point. That takes
/// seconds, in which hundreds of other inputs could be run.
fn few_tries(map: &mut CrushMap) {
    let tunables = &mut map.tunables;
    for tries in [
        &mut tunables.choose_total_tries,
        &mut tunables.choose_local_tries,
        &mut tunables.choose_local_fallback_tries,
    ] {
        *tries = (*tries).min(19);
    }
    for step in map.rules.iter_mut().flatten().flat_map(|rule| &mut rule.steps) {
        if matches!(step.op, 2 | 3 | 6..=11) {
            step.arg1 = step.arg1.min(19);
        }
    }
}

pub fn crush_map(input: &[u8]) {
    let Some(mut map) = stable::<CrushMap>(input) else { return };
    map.validate().expect("a map that was read is valid");
    for top in map.roots(true).into_iter().take(4) {
        map.walk(top).take(200).for_each(drop);
        map.devices_below(top).take(200).for_each(drop);
    }
    few_tries(&mut map);
    let rules = (0..map.rules.len() as u32).take(8);
    for rule in rules {
        for weights in [&[0x1_0000; 16][..], &[0, 0x8000, 0x1_0000]] {
            for size in [1, 3] {
                assert!(map.do_rule(rule, 17, size, weights, Some(1)).len() <= size);
            }
        }
    }
}
