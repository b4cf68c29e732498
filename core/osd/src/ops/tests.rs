//! Operations on one object, over a store in memory.

use super::*;
use crate::snap_set::SnapContext;
use crate::tests::{MemStore, received};
use nacre_base::errno::{ECANCELED, EEXIST, EFBIG, ENODATA};
use nacre_base::{Epoch, IntervalSet, Name, PoolId};
use nacre_proto::maps::{Pool, pool_flags};
use nacre_proto::types::{Extent, ObjectLocator};
use nacre_wire::{Decode, Reader, to_vec};
use std::collections::BTreeMap;

struct Object {
    store: MemStore,
    id: ObjectId,
    writes: u64,
    at: SnapId,
    context: SnapContext,
    ordered: bool,
    removed: IntervalSet,
    mtime: Utime,
    rules: PoolRules,
}

impl Object {
    fn new() -> Object {
        let id = ObjectId::head(PoolId(1), Name::default(), Name::default(), "o".into());
        Object {
            store: MemStore::default(),
            id,
            writes: 0,
            at: SnapId::HEAD,
            context: SnapContext::default(),
            ordered: false,
            removed: IntervalSet::new(),
            mtime: Utime::ZERO,
            rules: PoolRules::default(),
        }
    }
    /// Runs a vector, fetching what it needs, and applies what it does.
    fn run(&mut self, ops: impl IntoIterator<Item = Op>) -> Done {
        self.run_flagged(ops.into_iter().map(|op| (op, 0)))
    }
    fn run_flagged(&mut self, ops: impl Iterator<Item = (Op, u32)>) -> Done {
        let flagged =
            |(op, flags): (Op, u32)| FlaggedOp { is_write: op.to_raw().0.code.is_write(), op, flags };
        let ops: Vec<FlaggedOp> = ops.map(flagged).collect();
        let version = Version::new(Epoch(1), self.writes + 1);
        let caller = Caller { name: Default::default(), addr: Default::default(), now: Utime::ZERO };
        let mtime = self.mtime;
        let (user_version, rules) = (self.writes + 1, self.rules);
        let env = Env { version, user_version, mtime, return_vector: true, caller, notify_id: 0, rules };
        let snaps =
            Snaps { at: self.at, context: &self.context, ordered: self.ordered, removed: &self.removed };
        let mut fetched = Fetched::default();
        let done = loop {
            match execute(&self.store, &self.id, &ops, &env, &snaps, &fetched).unwrap() {
                Outcome::Done(done) => break done,
                // There is no other object.
                Outcome::NeedCopy(source) => fetched.copies.push((source, Err(-ENOENT))),
                Outcome::Need(object, extents) => {
                    let parts = self.store.read(&object.clone().into(), &extents).unwrap();
                    let pairs = extents.into_iter().zip(parts);
                    fetched.extents.extend(pairs.map(|((off, len), bytes)| (object.snap, off, len, bytes)));
                }
            }
        };
        if !fetched.extents.is_empty() {
            self.store.in_memory = true;
            let at_once = execute(&self.store, &self.id, &ops, &env, &snaps, &Fetched::default()).unwrap();
            self.store.in_memory = false;
            assert!(
                matches!(at_once, Outcome::Done(at_once) if at_once == done),
                "data in memory is no other"
            );
        }
        self.store.apply(&done.change.txn);
        self.writes += 1;
        done
    }
    fn write_under(&mut self, seq: u64, snaps: &[u64]) {
        self.context = SnapContext { seq: SnapId(seq), snaps: snaps.iter().copied().map(SnapId).collect() };
    }
    fn content(&mut self) -> Bytes {
        self.run([read(0, 0)]).outputs[0].1.clone()
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
fn read(off: u64, len: u64) -> Op {
    Op::Read(Extent::new(off, len))
}
fn write(off: u64, text: &str) -> Op {
    Op::Write { extent: Extent::new(off, text.len() as u64), data: bytes(text) }
}
fn full(text: &str) -> Op {
    Op::WriteFull { data: bytes(text) }
}

/// As in Ceph: radosgw removes an object and makes it anew, and then has a class compare the version in an
/// attribute.
#[test]
fn operations_see_the_state_before_the_request() {
    let mut o = Object::new();
    let attr = |value: &str| Op::SetXattr { name: "a".into(), value: bytes(value) };
    let attr_is = |value: &str| Op::CmpXattr { name: "a".into(), value: bytes(value), op: 1, mode: 1 };
    let omap = |value: &str| Op::OmapSetVals([(Name::from("k"), bytes(value))].into());
    let omap_is = |value: &str| Op::OmapCmp([(Name::from("k"), (bytes(value), 1))].into());
    let is = |text: &str| Op::CmpExt { off: 0, data: bytes(text) };
    let create = Op::Create { exclusive: false };

    let new = o.run([full("0123456789"), is("\0\0"), attr("old"), omap("old")]);
    assert_eq!((new.result, new.outputs.len()), (0, 4));
    let version = new.user_version;
    let changed = o.run([
        write(2, "ab"),
        read(0, 6),
        is("0123"),
        attr("new"),
        attr_is("old"),
        omap("new"),
        omap_is("old"),
    ]);
    assert_eq!((changed.result, &changed.outputs[1].1[..]), (0, &b"012345"[..]));
    assert_eq!(
        o.run([Op::AssertVer { version: version + 1 }, attr_is("new"), omap_is("new"), is("01ab")]).result,
        0
    );

    let again =
        [Op::Delete, Op::AssertVer { version: version + 1 }, create.clone(), attr_is("new"), omap_is("new")];
    assert_eq!(o.run(again).result, 0);
    assert_eq!(o.run([attr_is("")]).result, 1);
    assert_eq!(o.content(), "");
    o.run([omap("old")]);
    assert_eq!(o.run([Op::OmapClear, omap_is("old")]).result, -ECANCELED);
    assert_eq!(o.run([Op::OmapClear, omap("new"), omap_is("old")]).result, 0);
    assert_eq!(Object::new().run([create.clone(), attr_is("")]).result, -ENOENT);
    assert_eq!(Object::new().run([create.clone(), omap_is("")]).result, 0);
    assert_eq!(Object::new().run([omap(""), omap_is("")]).result, -ENOENT);
    assert_eq!(Object::new().run([full("text"), read(0, 0)]).result, -ENOENT);
}

#[test]
fn whether_an_object_exists_and_how_long_it_is_is_what_the_operations_before_made_it() {
    let mut o = Object::new();
    o.run([full("0123456789")]);
    let truncate = |size| Op::Truncate { size, truncate_size: 0, truncate_seq: 0 };
    let done = o.run([
        truncate(4),
        read(0, 0),
        Op::Append { data: bytes("z") },
        Op::Stat,
        write(12, "end"),
        read(0, 0),
    ]);
    assert_eq!(done.outputs[1].1, "0123");
    assert_eq!(done.outputs[3].1[..8], 5_u64.to_le_bytes());
    assert_eq!(done.outputs[5].1, "0123456789");
    assert_eq!(o.content(), "0123z\0\0\0\0\0\0\0end");
    assert_eq!(o.run([Op::Delete, Op::Delete]).result, -ENOENT);
    assert_eq!(o.run([Op::Delete, Op::Create { exclusive: true }, read(0, 0)]).outputs[2].1, "");
}

#[test]
fn an_omap_is_emptied_of_what_was_put_there_just_before() {
    let mut o = Object::new();
    let list = Op::OmapGetKeys { after: Name::default(), max: 9 };
    o.run([Op::OmapSetVals([(Name::from("k"), bytes("v"))].into()), Op::OmapClear]);
    assert_eq!(o.run([list.clone()]).outputs[0].1, &[0_u8; 5][..]);
    o.run([Op::OmapSetHeader(bytes("h")), Op::OmapClear]);
    assert_eq!(o.run([Op::OmapGetHeader]).outputs[0].1, "");
}

#[test]
fn omap_values_do_not_pin_the_request_buffer() {
    let mut o = Object::new();
    let (value, held) = received(b"value");
    o.run([Op::OmapSetVals(BTreeMap::from([("key".into(), value)]))]);
    assert_eq!(o.store.omap_get(&o.id.clone().into(), b"key").unwrap().unwrap(), "value");
    assert!(held.upgrade().is_none());
}

#[test]
fn a_vector_that_fails_changes_nothing() {
    let mut o = Object::new();
    o.run([full("old")]);
    let done = o.run([full("new"), Op::Create { exclusive: true }, write(0, "never")]);
    assert_eq!((done.result, done.outputs.len()), (-EEXIST, 2));
    assert_eq!((done.change.kind, done.change.txn.is_empty()), (EntryKind::Note, true));
    assert_eq!(o.content(), "old");
}

#[test]
fn an_operation_that_may_fail_does_not_stop_the_others() {
    let mut o = Object::new();
    o.run([full("x")]);
    let ops = [(Op::Create { exclusive: true }, op_flags::op::FAILOK), (full("y"), 0)];
    let done = o.run_flagged(ops.into_iter());
    assert_eq!((done.result, done.outputs[0].0), (0, -EEXIST));
    assert_eq!(o.content(), "y");
}

#[test]
fn recreated_object_has_no_old_content() {
    let mut o = Object::new();
    let pairs = BTreeMap::from([(Name::from("k"), bytes("v"))]);
    o.run([full("long text"), Op::SetXattr { name: "a".into(), value: bytes("1") }, Op::OmapSetVals(pairs)]);
    let done = o.run([Op::Delete, write(1, "z")]);
    assert_eq!((done.change.objects, done.change.bytes), (0, 2 - 9));
    let done = o.run([Op::GetXattrs, Op::OmapGetKeys { after: Name::default(), max: 9 }, read(0, 0)]);
    assert_eq!(done.outputs[0].1, &[0_u8; 4][..]);
    assert_eq!(done.outputs[1].1, &[0_u8; 5][..]);
    assert_eq!(done.outputs[2].1, &b"\0z"[..]);
}

#[test]
fn absent_object_is_distinguished_from_empty_object() {
    let mut o = Object::new();
    assert_eq!(o.run([read(0, 0)]).result, -ENOENT);
    assert_eq!(o.run([Op::Delete]).result, -ENOENT);
    assert_eq!(o.run([Op::OmapClear]).result, -ENOENT);
    assert_eq!(o.run([Op::RmXattr { name: "x".into() }]).result, -ENOENT);
    let truncated = o.run([Op::Truncate { size: 5, truncate_size: 0, truncate_seq: 0 }]);
    assert_eq!((truncated.result, truncated.change.kind), (0, EntryKind::Note));
    assert_eq!(o.run([Op::Zero { off: 0, len: 0 }]).result, 0);
    assert_eq!(o.run([Op::Stat]).result, -ENOENT);
    o.run([write(0, "")]);
    assert_eq!(o.run([Op::GetXattr { name: "x".into() }]).result, -ENODATA);
    assert_eq!(o.content(), "");
}

#[test]
fn zeroing_to_the_end_truncates_and_never_extends() {
    let mut o = Object::new();
    o.run([full("0123456789")]);
    o.run([Op::Zero { off: 10, len: 5 }, Op::Zero { off: 2, len: 3 }, Op::Zero { off: 8, len: 100 }]);
    assert_eq!(o.content(), &b"01\0\0\x00567"[..]);
    o.run([write(10, "")]);
    assert_eq!(o.content(), &b"01\0\0\x00567\0\0"[..], "writing nothing far away reaches that far");
    o.run([Op::Zero { off: 0, len: 100 }]);
    assert_eq!(o.content(), "");
    let mut new = Object::new();
    new.run([write(2, "")]);
    assert_eq!(new.content(), &b"\0\0"[..]);
}

#[test]
fn offset_at_the_size_limit_is_refused_and_empty_writes_are_accepted() {
    let truncate = |size| Op::Truncate { size, truncate_size: 0, truncate_seq: 0 };
    let last = OBJECT_SIZE_MAX - 1;
    let mut o = Object::new();
    assert_eq!(o.run([truncate(u64::MAX)]).result, 0, "of no object");
    assert_eq!(o.run([Op::Zero { off: last, len: 2 }]).result, -EFBIG);
    o.run([full("0123456789")]);
    assert_eq!(o.run([truncate(OBJECT_SIZE_MAX)]).result, -EFBIG);
    assert_eq!(o.run([write(OBJECT_SIZE_MAX, "")]).result, -EFBIG);
    assert_eq!(o.run([Op::Zero { off: last, len: 2 }]).result, 0, "beyond the end");
    assert_eq!(o.run([Op::Zero { off: 5, len: OBJECT_SIZE_MAX }]).result, -EFBIG);
    assert_eq!(o.run([Op::Zero { off: last, len: OBJECT_SIZE_MAX + 1 }]).result, -EFBIG);
    assert_eq!(o.content(), "0123456789");
    let same = |len| Op::WriteSame { off: u64::MAX, len, data: bytes("ab") };
    assert_eq!(o.run([same(0)]).result, 0);
    assert_eq!(o.run([same(3)]).result, -EINVAL);
    assert_eq!(o.run([same(4)]).result, -EFBIG);
}

/// As on Ceph: what does nothing, or is wrong in itself, is not refused for the kind of the pool.
#[test]
fn pool_without_overwrites_refuses_what_is_no_append_of_whole_stripes() {
    let mut pool = Pool::erasure(3, 2, 8, 0, "code", 8192, Utime::ZERO);
    let mut o = Object { rules: PoolRules::of(&pool), ..Object::new() };
    assert_eq!(o.run([Op::Zero { off: 0, len: 1 }]).result, -EOPNOTSUPP);
    assert_eq!(o.run([full("0123456789")]).result, 0);
    for off in [10, 4096] {
        assert_eq!(o.run([Op::Zero { off, len: 100 }]).result, 0);
    }
    let same = |len, data: &'static str| Op::WriteSame { off: 1, len, data: bytes(data) };
    for (op, code) in [
        (Op::Zero { off: 9, len: 100 }, EOPNOTSUPP),
        (Op::Zero { off: 10, len: 0 }, EOPNOTSUPP),
        (Op::Truncate { size: 5, truncate_seq: 0, truncate_size: 0 }, EOPNOTSUPP),
        (write(10, "x"), EOPNOTSUPP),
        (same(4, "ab"), EOPNOTSUPP),
        (same(3, "ab"), EINVAL),
        (same(3, ""), EINVAL),
        (Op::OmapClear, EOPNOTSUPP),
    ] {
        assert_eq!(o.run([op.clone()]).result, -code, "{op:?}");
    }
    assert_eq!(o.content(), "0123456789");
    pool.flags |= pool_flags::EC_OVERWRITES;
    o.rules = PoolRules::of(&pool);
    assert_eq!(o.run([write(10, "x")]).result, 0);
    assert_eq!(o.run([Op::OmapClear]).result, -EOPNOTSUPP);
}

#[test]
fn to_empty_what_is_empty_changes_nothing() {
    let mut o = Object::new();
    assert_eq!(o.run([full("")]).change.kind, EntryKind::Modify, "it is there now");
    assert_eq!(o.run([full("")]).change.kind, EntryKind::Note);
    o.run([full("data")]);
    assert_eq!(o.run([full("")]).change.kind, EntryKind::Modify);
    assert_eq!(o.run([Op::OmapClear]).change.kind, EntryKind::Note);
    o.run([Op::OmapSetHeader(bytes("h"))]);
    assert_eq!(o.run([Op::OmapClear]).change.kind, EntryKind::Modify);
    o.run([Op::OmapSetVals([(Name::default(), bytes("1"))].into())]);
    assert_eq!(o.run([Op::OmapClear]).change.kind, EntryKind::Modify);
    assert_eq!(o.run([Op::OmapClear]).change.kind, EntryKind::Note);
}

#[test]
fn an_empty_key_can_be_asked_for_and_is_in_no_listing() {
    let mut o = Object::new();
    o.run([Op::OmapSetVals([(Name::default(), bytes("1")), ("k".into(), bytes("2"))].into())]);
    let done = o.run([
        Op::OmapGetKeys { after: Name::default(), max: 9 },
        Op::OmapGetValsByKeys([Name::default()].into()),
    ]);
    assert_eq!(done.outputs[0].1, to_vec(&(vec![Name::from("k")], false)));
    assert_eq!(done.outputs[1].1, to_vec(&BTreeMap::from([(Name::default(), bytes("1"))])));
}

#[test]
fn unsatisfiable_requests_fail_at_once() {
    let flagged = |op: Op| [FlaggedOp::new(op, 0, false)];
    let named = |name: &str| ObjectId::head(PoolId(1), Name::default(), Name::default(), name.into());
    assert_eq!(check_request(&named(""), &flagged(Op::Stat)), Err(-EINVAL));
    assert_eq!(check_request(&named(&"n".repeat(2049)), &flagged(Op::Stat)), Err(-ENAMETOOLONG));
    let call = Op::Call { class: "hello".into(), method: "nosuch".into(), input: Bytes::new() };
    assert_eq!(check_request(&named(&"n".repeat(2049)), &flagged(call)), Err(-EOPNOTSUPP));
    assert_eq!(check_request(&named("o"), &flagged(Op::Unknown(OpCode::CACHE_FLUSH))), Err(-EINVAL));
    assert_eq!(check_request(&named("o"), &flagged(Op::Unknown(OpCode::TMAP2OMAP))), Err(-EOPNOTSUPP));
}

#[test]
fn tier_operations_fail_as_in_an_untiered_pool() {
    let mut o = Object::new();
    let ask = |code: OpCode| Op::Unknown(code);
    let object = |o: &Object| o.id.clone();
    for code in [OpCode::TIER_PROMOTE, OpCode::TIER_FLUSH, OpCode::TIER_EVICT, OpCode::SET_CHUNK] {
        assert_eq!(check_request(&object(&o), &[FlaggedOp::new(ask(code), 0, false)]), Ok(()));
        assert_eq!(o.run([ask(code)]).result, -ENOENT);
    }
    // Flagged so that it may fail, it does, and what follows happens.
    let pinned = [(ask(OpCode::CACHE_PIN), op_flags::op::FAILOK), (full("text"), 0)];
    let done = o.run_flagged(pinned.into_iter());
    assert_eq!((done.result, done.outputs[0].0), (0, -EINVAL));
    assert_eq!(o.run([ask(OpCode::TIER_PROMOTE)]).result, 0);
    assert_eq!(o.run([ask(OpCode::TIER_FLUSH)]).result, 0);
    assert_eq!(o.run([ask(OpCode::TIER_EVICT)]).result, -EINVAL);
    let flush = || ask(OpCode::CACHE_FLUSH);
    let allowed = [FlaggedOp::new(flush(), op_flags::op::FAILOK, false)];
    assert_eq!(check_request(&o.id, &allowed), Ok(()));
    let flushed = [(flush(), op_flags::op::FAILOK), (read(0, 0), 0)];
    assert_eq!(o.run_flagged(flushed.into_iter()).outputs[1].1, "text");
    assert_eq!(o.run([ask(OpCode::UNSET_MANIFEST)]).result, -EOPNOTSUPP);
}

#[test]
fn object_is_dirty_unless_unchanged_since_undirty() {
    let mut o = Object::new();
    assert_eq!(o.run([Op::Undirty]).result, 0);
    assert_eq!(o.run([Op::IsDirty]).result, -ENOENT, "that made nothing");
    let version = o.run([full("text")]).user_version;
    let is_dirty = |o: &mut Object| o.run([Op::IsDirty]).outputs[0].1 == [1][..];
    assert!(is_dirty(&mut o));
    assert_eq!(o.run([Op::Undirty]).user_version, version, "which is no change that clients count");
    assert!(!is_dirty(&mut o));
    o.run([Op::SetXattr { name: "x".into(), value: bytes("1") }]);
    assert!(is_dirty(&mut o));
    o.run([full("both at once"), Op::Undirty]);
    assert!(!is_dirty(&mut o));
    assert!(o.run([Op::Undirty]).change.txn.is_empty(), "it is clean already");
    o.run([full("both at once"), Op::Undirty]);
    assert!(is_dirty(&mut o), "it was not before");
}

/// Also a watch, which clients do not count as a change.
#[test]
fn mtime_is_that_of_the_last_write_with_a_time() {
    let mut o = Object::new();
    let stat = |o: &mut Object| o.run([Op::Stat]).outputs[0].1.clone();
    let at = |sec| to_vec(&(4_u64, Utime { sec, nsec: 0 }));
    o.mtime = Utime { sec: 5, nsec: 0 };
    o.run([full("text")]);
    assert_eq!(stat(&mut o), at(5));
    o.mtime = Utime { sec: 6, nsec: 0 };
    let action = WatchAction::Watch;
    o.run([Op::Watch { cookie: 1, action, generation: 1, timeout_secs: 30 }]);
    assert_eq!(stat(&mut o), at(6));
    o.mtime = Utime::ZERO;
    o.run([full("else")]);
    assert_eq!(stat(&mut o), at(6));
}

#[test]
fn a_request_fails_with_a_copy_even_if_the_copy_may_fail() {
    let mut o = Object::new();
    let source = CopySource {
        snap: SnapId::HEAD,
        version: 0,
        flags: 0,
        fadvise: 0,
        name: "other".into(),
        locator: ObjectLocator::new(PoolId(1)),
        truncate: None,
    };
    let done = o.run_flagged([(Op::CopyFrom(source), op_flags::op::FAILOK), (full("text"), 0)].into_iter());
    assert_eq!((done.result, done.change.txn.is_empty()), (-ENOENT, true));
}

#[test]
fn removed_object_is_gone_even_if_recreated_at_once() {
    let mut o = Object::new();
    o.run([full("first")]);
    assert!(o.run([Op::Delete, full("second")]).change.vanishes);
    assert!(!o.run([full("third")]).change.vanishes);
    assert!(o.run([Op::Delete]).change.vanishes);
    assert!(!Object::new().run([full("first"), Op::Delete]).change.vanishes, "it was never there");
}

#[test]
fn nothing_is_mapped_of_no_bytes() {
    let mut o = Object::new();
    o.run([full("text")]);
    for (len, found) in [(0, 0), (1, 1), (10, 1)] {
        let mapped = o.run([Op::MapExt(Extent::new(0, len)), Op::SparseRead(Extent::new(0, len))]);
        assert_eq!(mapped.outputs.iter().map(|(_, out)| out[0]).collect::<Vec<_>>(), [found, found]);
    }
    assert_eq!(o.run([read(0, 0)]).outputs[0].1, "text");
}

#[test]
fn checksum_range_must_be_whole_chunks() {
    let mut o = Object::new();
    o.run([full("01234567")]);
    let mut of = |off, len, chunk_size| {
        o.run([Op::Checksum { off, len, chunk_size, kind: 2, init: Bytes::from_static(&[0; 4]) }]).result
    };
    assert_eq!((of(0, 8, 4), of(4, 4, 4), of(0, 0, 0)), (0, 0, 0));
    assert_eq!((of(0, 7, 4), of(0, 0, 4), of(5, 0, 4)), (-EINVAL, -EINVAL, -EINVAL));
}

#[test]
fn numbers_in_attributes_are_what_c_reads_in_them() {
    let mut o = Object::new();
    let max = "18446744073709551616";
    let texts: [(&str, u64); 9] = [
        ("7", 7),
        ("+7", 7),
        ("-5", 5_u64.wrapping_neg()),
        ("-", 0),
        (" \t7x", 7),
        ("0x10", 0),
        ("--1", 0),
        (max, u64::MAX),
        ("", 0),
    ];
    for (text, number) in texts {
        o.run([Op::SetXattr { name: "n".into(), value: bytes(text) }]);
        let value = Bytes::copy_from_slice(&number.to_le_bytes());
        assert_eq!(o.run([Op::CmpXattr { name: "n".into(), value, op: 1, mode: 2 }]).result, 1, "{text:?}");
    }
}

#[test]
fn omap_values_are_compared_as_signed_bytes() {
    let mut o = Object::new();
    let omap = |value: &'static [u8]| Op::OmapSetVals([(Name::from("k"), Bytes::from(value))].into());
    let mut holds = |stored, op: i32, given| {
        o.run([omap(stored)]);
        let compare = Op::OmapCmp([(Name::from("k"), (Bytes::from_static(given), op))].into());
        o.run([compare]).result == 0
    };
    let (greater, less) = (3, 5);
    assert!(holds(b"5", greater, b"\xff") && !holds(b"5", less, b"\xff"));
    assert!(holds(b"\x80", less, b"\xff") && holds(b"\xff", less, b"\x00"));
    assert!(holds(b"50", greater, b"5") && holds(b"4", less, b"50"));
}

#[test]
fn comparisons_say_where_and_whether() {
    let mut o = Object::new();
    o.run([full("abc"), Op::SetXattr { name: "n".into(), value: bytes("7") }]);
    assert_eq!(o.run([Op::CmpExt { off: 1, data: bytes("bX") }]).result, -4095 - 1);
    assert_eq!(o.run([Op::CmpExt { off: 2, data: bytes("c\0\0") }]).result, 0);
    let number = |value: u64, op| Op::CmpXattr {
        name: "n".into(),
        value: Bytes::copy_from_slice(&value.to_le_bytes()),
        op,
        mode: 2,
    };
    let absent = Op::CmpXattr { name: "n".into(), value: bytes("7"), op: 1, mode: 1 };
    assert_eq!(Object::new().run([absent, full("x")]).result, -ENOENT);
    assert_eq!(o.run([number(7, 1)]).result, 1);
    assert_eq!(o.run([number(8, 3)]).result, 1);
    assert_eq!(o.run([number(7, 3)]).result, -ECANCELED);
    let version = o.run([full("abc")]).user_version;
    assert_eq!(o.run([Op::AssertVer { version }]).result, 0);
    assert_eq!(o.run([Op::AssertVer { version: version - 1 }]).result, -ERANGE);
    assert_eq!(o.run([Op::AssertVer { version: version + 1 }]).result, -EOVERFLOW);
}

/// As the kernel's client writes a new file's objects.
#[test]
fn a_file_that_was_never_truncated_has_the_largest_number_as_its_size() {
    let mut o = Object::new();
    let extent = |off| Extent { off, len: 3, truncate_size: u64::MAX, truncate_seq: 1 };
    assert_eq!(o.run([Op::Write { extent: extent(0), data: bytes("new") }]).result, 0);
    assert_eq!(o.run([Op::Write { extent: extent(3), data: bytes("er ") }]).result, 0);
    assert_eq!(o.content(), "newer ");
    assert_eq!(o.run([Op::Read(extent(2))]).outputs[0].1, "wer");
    assert_eq!(o.run([Op::Truncate { size: 2, truncate_size: 2, truncate_seq: 2 }]).result, 0);
    // One that was sent before the truncation and comes after it.
    assert_eq!(o.run([Op::Write { extent: extent(1), data: bytes("xyz") }]).result, 0);
    assert_eq!(o.content(), "nx");
}

#[test]
fn limits_are_errors_and_not_allocations() {
    let mut o = Object::new();
    assert_eq!(o.run([write(OBJECT_SIZE_MAX, "x")]).result, -EFBIG);
    assert_eq!(o.run([write(u64::MAX, "x")]).result, -EFBIG);
    o.run([full("there")]);
    let far = Op::Truncate { size: OBJECT_SIZE_MAX + 1, truncate_size: 0, truncate_seq: 0 };
    assert_eq!(o.run([far]).result, -EFBIG);
    assert_eq!(o.run([Op::WriteSame { off: 0, len: 1 << 40, data: bytes("x") }]).result, -EFBIG);
    assert_eq!(o.run([Op::WriteSame { off: 0, len: 3, data: bytes("xy") }]).result, -EINVAL);
    let long = Op::SetXattr { name: "n".repeat(101).into(), value: Bytes::new() };
    assert_eq!(o.run([long]).result, -ENAMETOOLONG);
}

/// Against a plain map.
#[test]
fn omap_operations_in_one_request_equal_single_ones() {
    let mut rng = nacre_base::Rng::new(10);
    let all = Op::OmapGetKeys { after: Name::default(), max: 99 };
    let listed = |plain: &BTreeMap<Name, Bytes>| (plain.keys().cloned().collect::<Vec<Name>>(), false);
    for _ in 0..300 {
        let (mut o, mut plain) = (Object::new(), BTreeMap::<Name, Bytes>::new());
        o.run([full("")]);
        for round in 0..4 {
            let mut key = || Name::from(format!("{:02}", rng.below(30)));
            let mut ops = Vec::new();
            for _ in 0..8 {
                let (key, end, value) = (key(), key(), bytes(&format!("{round}")));
                match end.as_bytes()[1] % 8 {
                    0..4 => {
                        let pairs: BTreeMap<Name, Bytes> = [(key, value.clone()), (end, value)].into();
                        plain.extend(pairs.clone());
                        ops.push(Op::OmapSetVals(pairs));
                    }
                    4 => {
                        plain.remove(&key);
                        ops.push(Op::OmapRmKeys([key].into()));
                    }
                    _ => {
                        plain.retain(|k, _| *k < key || *k >= end);
                        ops.push(Op::OmapRmKeyRange { begin: key, end });
                    }
                }
            }
            o.run(ops);
            let stored = o.run([all.clone()]);
            assert_eq!(stored.outputs[0].1, to_vec(&listed(&plain)));
        }
    }
}

#[test]
fn a_range_of_an_omap_is_removed_without_a_look_at_its_keys() {
    let mut o = Object::new();
    o.run([Op::OmapSetVals((0..1000).map(|n| (Name::from(format!("{n:03}")), bytes("v"))).collect())]);
    o.store.keys_walked.set(0);
    let range = |begin: &str, end: &str| Op::OmapRmKeyRange { begin: begin.into(), end: end.into() };
    let list = Op::OmapGetKeys { after: Name::default(), max: 3 };
    o.run([range("001", "500"), range("400", "998")]);
    assert_eq!(o.store.keys_walked.get(), 0);
    let names = ["000", "998", "999"].map(Name::from).to_vec();
    assert_eq!(o.run([list]).outputs[0].1, to_vec(&(names, false)));
}

/// Against a plain vector of bytes.
#[test]
fn any_vector_of_writes_does_what_it_would_do_one_by_one() {
    let mut rng = nacre_base::Rng::new(9);
    for _ in 0..300 {
        let (mut o, mut plain) = (Object::new(), Vec::new());
        o.run([full("")]);
        for _ in 0..4 {
            let mut ops = Vec::new();
            for _ in 0..rng.below(6) {
                let (off, len) = (rng.below(20), rng.below(12));
                let text = "abcdefghijklmnop"[..len as usize].to_string();
                let end = (off + len) as usize;
                match rng.below(4) {
                    0 => {
                        plain.resize(plain.len().max(end), 0);
                        plain[off as usize..end].copy_from_slice(text.as_bytes());
                        ops.push(write(off, &text));
                    }
                    1 => {
                        plain.resize(off as usize, 0);
                        ops.push(Op::Truncate { size: off, truncate_size: 0, truncate_seq: 0 });
                    }
                    2 => {
                        if end < plain.len() {
                            plain[off as usize..end].fill(0);
                        } else if len > 0 {
                            plain.truncate(off as usize);
                        }
                        ops.push(Op::Zero { off, len });
                    }
                    _ => {
                        plain.extend_from_slice(text.as_bytes());
                        ops.push(Op::Append { data: bytes(&text) });
                    }
                }
            }
            if !ops.is_empty() {
                assert_eq!(o.run(ops).result, 0);
            }
            assert_eq!(o.content(), plain);
        }
    }
}

fn list_snaps(o: &mut Object) -> (Vec<Clone>, u64) {
    o.at = SnapId::DIR;
    let done = o.run([Op::ListSnaps]);
    o.at = SnapId::HEAD;
    let out = done.outputs[0].1.clone();
    let r = &mut Reader::new(&out);
    let one = |r: &mut Reader<'_>| {
        r.versioned("clone_info", 1, |r, _| {
            Ok((Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?))
        })
    };
    r.versioned("snaps", 2, |r, _| Ok((r.list(one)?, Decode::decode(r)?))).unwrap()
}
/// Id, snapshots, overlap and size.
type Clone = (u64, Vec<u64>, Vec<(u64, u64)>, u64);

#[test]
fn clones_record_overlap_with_their_successors() {
    let mut o = Object::new();
    o.run([full("0123456789")]);
    o.write_under(4, &[4, 3]);
    o.run([write(2, "ab"), Op::Zero { off: 8, len: 1 }]);
    o.write_under(6, &[6, 4, 3]);
    o.run([Op::Truncate { size: 5, truncate_size: 0, truncate_seq: 0 }]);
    let head = (SnapId::HEAD.0, vec![], vec![], 5);
    let (clones, seq) = list_snaps(&mut o);
    assert_eq!(seq, 6);
    assert_eq!(
        clones,
        [(4, vec![3, 4], vec![(0, 2), (4, 4), (9, 1)], 10), (6, vec![6], vec![(0, 5)], 10), head]
    );
    // What is rolled back to is shared again as far as nothing between changed.
    let done = o.run([Op::Rollback { snap: SnapId(3) }, read(0, 0)]);
    assert_eq!(done.outputs[1].1, "01ab4", "and not what it is rolled back to");
    assert_eq!(o.content(), "0123456789");
    assert_eq!(list_snaps(&mut o).0[1].2, [(0, 2), (4, 1)]);
    // A deleted head is not listed and not visible.
    assert_eq!(o.run([Op::Delete]).result, 0);
    assert_eq!(list_snaps(&mut o).0.len(), 2);
    assert_eq!(o.run([read(0, 0)]).result, -nacre_base::errno::ENOENT);
    assert_eq!(o.run([Op::Create { exclusive: true }]).result, 0);
    assert_eq!(list_snaps(&mut o).0[2].3, 0);
}

#[test]
fn an_older_context_than_the_object_has_seen_is_refused_when_order_matters() {
    let mut o = Object::new();
    o.write_under(5, &[5]);
    o.run([full("x")]);
    o.write_under(4, &[4]);
    o.ordered = true;
    assert_eq!(o.run([full("y")]).result, -nacre_base::errno::ERESTART);
    o.ordered = false;
    assert_eq!(o.run([full("y")]).result, 0);
    assert_eq!(list_snaps(&mut o), (vec![(SnapId::HEAD.0, vec![], vec![], 1)], 5));
}

#[test]
fn bytes_that_clones_share_are_counted_once() {
    let mut o = Object::new();
    assert_eq!(o.run([full("0123456789")]).change.bytes, 10);
    o.write_under(1, &[1]);
    let change = o.run([write(0, "abc")]).change;
    assert_eq!((change.objects, change.clones, change.bytes), (1, 1, 3));
    assert_eq!(o.run([write(2, "cd")]).change.bytes, 1);
    let change = o.run([Op::Delete]).change;
    assert_eq!((change.objects, change.vanishes, change.bytes), (0, true, -4));
    let removed = std::iter::once(1..2).collect();
    let change = trim_clone(&o.store, &clone_of(&o.id, SnapId(1)), &removed, Version::ZERO).unwrap().unwrap();
    assert_eq!((change.objects, change.clones, change.bytes), (-2, -1, -10));
}

#[test]
fn a_map_of_old_is_changed_by_commands() {
    let mut o = Object::new();
    let pair = |letter: u8, key: &str, value: &str| [&[letter][..], &to_vec(&(key, value))].concat();
    let key = |letter: u8, key: &str| [&[letter][..], &to_vec(key)].concat();
    let update = |o: &mut Object, commands: &[Vec<u8>]| {
        o.run([Op::TmapUp { commands: commands.concat().into() }]).result
    };
    let map = |header: &str, pairs: &[(&str, &str)]| {
        let pairs: BTreeMap<String, String> = pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        to_vec(&(header.to_owned(), pairs))
    };
    assert_eq!(update(&mut o, &[]), 0);
    assert_eq!(o.run([Op::Stat]).result, -ENOENT);
    assert_eq!(update(&mut o, &[pair(b's', "b", "2"), pair(b'c', "a", "1"), key(b'h', "head")]), 0);
    assert_eq!(o.content(), map("head", &[("a", "1"), ("b", "2")]));
    assert_eq!(update(&mut o, &[pair(b's', "z", "1"), pair(b'c', "a", "3")]), -EEXIST);
    assert_eq!(update(&mut o, &[key(b'r', "none")]), -ENOENT);
    assert_eq!(update(&mut o, &[key(b'R', "none"), key(b'r', "a"), pair(b's', "b", "")]), 0);
    assert_eq!(o.content(), map("head", &[("b", "")]));
    for bad in [&b"x"[..], b"s", b"h\x05\0\0\0x", b"s\x01\0\0\0k"] {
        assert_eq!(update(&mut o, &[bad.to_vec()]), -EINVAL);
    }
    let unsorted =
        to_vec(&("h".to_owned(), vec![("b".to_owned(), "1".to_owned()), ("a".into(), "2".into())]));
    assert_eq!(o.run([Op::TmapPut { map: unsorted.into() }]).result, 0);
    assert_eq!(o.run([Op::TmapGet]).outputs[0].1, map("h", &[("a", "2"), ("b", "1")]));
    assert_eq!(o.run([Op::TmapPut { map: bytes("no map") }]).result, -EINVAL);
    o.run([full("no map")]);
    assert_eq!(update(&mut o, &[pair(b's', "a", "1")]), -EINVAL);
}
