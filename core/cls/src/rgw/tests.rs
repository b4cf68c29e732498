//! An index and the gateway's lists, with bytes that a real Ceph 16.2.15 stored.

use super::entries::{CompleteRequest, PrepareRequest};
use super::list::{ListReply, ListRequest};
use super::olh::{LinkRequest, ReadLogReply, ReadLogRequest, UnlinkRequest};
use super::types::*;
use super::{gc, keys, raw};
use crate::tests::{Memory, NOW, decoded, done, enveloped, error, hex};
use nacre_base::errno::*;
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, Encode, from_slice, to_vec};

fn name(text: &str) -> Name {
    Name::from(text)
}

fn key(of: &str, instance: &str) -> ObjectKey {
    ObjectKey { name: name(of), instance: name(instance) }
}

fn index() -> Memory {
    let mut object = Memory::default();
    done(&mut object, "rgw.bucket_init_index", b"");
    assert_eq!(error(&mut object, "rgw.bucket_init_index", b""), EINVAL);
    object
}

fn prepare(object: &mut Memory, op: u8, key: &ObjectKey, tag: &str) {
    let request = PrepareRequest {
        op,
        tag: name(tag),
        locator: Name::default(),
        log: false,
        key: key.clone(),
        flags: 0,
        zones: Zones::new(),
    };
    done(object, "rgw.bucket_prepare_op", &to_vec(&request));
}

fn completion(op: u8, key: &ObjectKey, tag: &str, epoch: u64) -> CompleteRequest {
    CompleteRequest {
        op,
        epoch,
        meta: Meta { category: 1, size: 10, accounted_size: 10, mtime: NOW, ..Meta::default() },
        tag: name(tag),
        locator: Name::default(),
        removed: Vec::new(),
        version: HeadVersion { pool: 7, epoch },
        log: false,
        key: key.clone(),
        flags: 0,
        zones: Zones::new(),
    }
}

fn put(object: &mut Memory, key: &ObjectKey, epoch: u64) {
    let tag = format!("tag{epoch}");
    prepare(object, modify::ADD, key, &tag);
    let request = completion(modify::ADD, key, &tag, epoch);
    done(object, "rgw.bucket_complete_op", &to_vec(&request));
}

fn list(
    object: &mut Memory,
    after: &str,
    max: u32,
    prefix: &str,
    delimiter: &str,
    versions: bool,
) -> ListReply {
    let (prefix, delimiter) = (name(prefix), name(delimiter));
    let request = ListRequest { max, prefix, after: key(after, ""), versions, delimiter };
    decoded(&done(object, "rgw.bucket_list", &to_vec(&request)))
}

fn names(reply: &ListReply) -> Vec<String> {
    reply.listed.entries.values().map(|entry| entry.key.name.to_text().into_owned()).collect()
}

fn header(object: &mut Memory) -> Header {
    list(object, "", 0, "", "", false).listed.header
}

fn objects(object: &mut Memory) -> u64 {
    header(object).stats.get(&1).map_or(0, |stats| stats.num_entries)
}

fn same<T: Encode + Decode + PartialEq + std::fmt::Debug>(bytes: &str) -> T {
    let value = from_slice::<T>(&hex(bytes)).expect("Ceph's bytes decode");
    assert_eq!(to_vec(&value), hex(bytes));
    value
}

#[test]
fn what_ceph_stored_is_read_and_written_the_same() {
    let entry: Entry = same(concat!(
        "0803d0000000040000007461696c07000000000000000107035800000001404b4c000000000082a00b6b2d818d202000",
        "000039316632326166643564346365363966363337323832356263653830363835620300000072656603000000726566",
        "00000000404b4c000000000000000000000000000000000000000000000101020000000807053e000000383331386662",
        "61302d386434332d343531642d613036392d6236626438346266633734382e343131352e313538303038323833393335",
        "36303630303637330000000003000300000000000000"
    ));
    assert_eq!((entry.flags, entry.versioned_epoch), (flag::VERSION | flag::CURRENT, 3));
    assert_eq!((entry.version, entry.index_version), (HeadVersion { pool: 8, epoch: 7 }, 5));
    assert_eq!((entry.meta.size, entry.meta.accounted_size), (5_000_000, 5_000_000));
    let stand_in: Entry = same(concat!(
        "080374000000040000007461696c00000000000000000007033200000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000000000000000000001010a00000088ffff",
        "ffffffffffff0000000000000000000008000000000000000000"
    ));
    assert_eq!(stand_in.version, HeadVersion::default());
    let header: Header = same(concat!(
        "0702570000000100000001030220000000454b4c000000000000604c00000000000200000000000000454b4c00000000",
        "00000000000000000006000000000000000000000000000000000000000101090000000000000000ffffffff00"
    ));
    assert_eq!((header.version, header.stats[&1].num_entries), (6, 2));
    assert_eq!(header.stats[&1].total_size_rounded, 5_005_312);
    same::<gc::Garbage>(concat!(
        "0101380100003e00000038333138666261302d386434332d343531642d613036392d6236626438346266633734382e34",
        "3131352e33373734353839303338323634303035303530000101e8000000010000000201de0000001800000064656661",
        "756c742e7267772e6275636b6574732e646174615600000038333138666261302d386434332d343531642d613036392d",
        "6236626438346266633734382e343132302e315f5f736861646f775f2e5167694e72727466416f4e5f6e447252344151",
        "576c4d534b69596a7736476a5f310000000001015e0000005600000038333138666261302d386434332d343531642d61",
        "3036392d6236626438346266633734382e343132302e315f5f736861646f775f2e5167694e72727466416f4e5f6e4472",
        "52344151576c4d534b69596a7736476a5f3100000000a2bc0b6b9591fb1c"
    ));
    for number in [0, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0x100_0000, 0x100_0001, u64::MAX] {
        assert_eq!(from_slice::<Packed>(&to_vec(&Packed(number))), Ok(Packed(number)));
    }
}

#[test]
fn objects_are_counted_when_they_come_change_and_go() {
    let mut object = index();
    let small = key("small", "");
    prepare(&mut object, modify::ADD, &small, "a");
    assert_eq!(objects(&mut object), 0);
    let request = completion(modify::ADD, &small, "other", 3);
    assert_eq!(error(&mut object, "rgw.bucket_complete_op", &to_vec(&request)), EINVAL);
    done(&mut object, "rgw.bucket_complete_op", &to_vec(&completion(modify::ADD, &small, "a", 3)));
    put(&mut object, &small, 5);
    // The answer to an older change comes late.
    prepare(&mut object, modify::DELETE, &small, "late");
    done(&mut object, "rgw.bucket_complete_op", &to_vec(&completion(modify::DELETE, &small, "late", 4)));
    assert_eq!(objects(&mut object), 1);
    let stats = &header(&mut object).stats[&1];
    assert_eq!((stats.total_size, stats.total_size_rounded), (10, 4096));
    prepare(&mut object, modify::DELETE, &small, "gone");
    done(&mut object, "rgw.bucket_complete_op", &to_vec(&completion(modify::DELETE, &small, "gone", 9)));
    assert_eq!((objects(&mut object), object.omap.len()), (0, 0));
}

#[test]
fn a_completed_upload_takes_its_parts_out_of_the_index() {
    let mut object = index();
    put(&mut object, &key("part1", ""), 1);
    put(&mut object, &key("part2", ""), 2);
    let whole = key("whole", "");
    prepare(&mut object, modify::ADD, &whole, "w");
    let mut request = completion(modify::ADD, &whole, "w", 3);
    request.removed = vec![key("part1", ""), key("missing", ""), key("part2", "")];
    request.log = true;
    done(&mut object, "rgw.bucket_complete_op", &to_vec(&request));
    assert_eq!(names(&list(&mut object, "", 10, "", "", false)), ["whole"]);
    assert_eq!(objects(&mut object), 1);
    let logged = object.omap.keys().filter(|key| key.as_bytes().starts_with(keys::LOG)).count();
    assert_eq!(logged, 3);
    let trim = enveloped(|out| (Name::default(), Name::default()).encode(out));
    done(&mut object, "rgw.bi_log_trim", &trim);
    assert_eq!(error(&mut object, "rgw.bi_log_trim", &trim), ENODATA);
}

#[test]
fn listings_have_pages_prefixes_and_delimiters() {
    let mut object = index();
    for (at, of) in ["a", "d/1", "d/2", "e/1", "f", "\u{fc}"].into_iter().enumerate() {
        put(&mut object, &key(of, ""), at as u64 + 1);
    }
    object.omap.insert(keys::log(b"x"), "not an object".into());
    let first = list(&mut object, "", 2, "", "", false);
    assert_eq!((names(&first), first.truncated), (vec!["a".into(), "d/1".into()], true));
    assert_eq!(first.marker, key("d/1", ""));
    assert_eq!(names(&list(&mut object, "d/1", 9, "", "", false)), ["d/2", "e/1", "f", "\u{fc}"]);
    assert_eq!(names(&list(&mut object, "", 9, "d/", "", false)), ["d/1", "d/2"]);
    let reply = list(&mut object, "", 9, "", "/", false);
    assert_eq!(names(&reply), ["a", "d/", "e/", "f", "\u{fc}"]);
    assert_eq!(reply.listed.entries[&b"d/"[..]].flags, flag::COMMON_PREFIX);
    assert_eq!(names(&list(&mut object, "d/", 9, "", "/", false)), ["e/", "f", "\u{fc}"]);
    assert!(!reply.truncated);
}

fn link(object: &mut Memory, key: &ObjectKey, delete_marker: bool) {
    done(object, "rgw.bucket_link_olh", &to_vec(&linking(key, delete_marker)));
}

fn linking(key: &ObjectKey, delete_marker: bool) -> LinkRequest {
    LinkRequest {
        key: key.clone(),
        olh_tag: name("olh"),
        delete_marker,
        op_tag: name("op"),
        meta: Meta { mtime: NOW, ..Meta::default() },
        epoch: 0,
        log: false,
        flags: 0,
        unmodified_since_seconds: 0,
        unmodified_since: Utime::ZERO,
        high_precision: false,
        zones: Zones::new(),
    }
}

fn unlink(object: &mut Memory, key: &ObjectKey) {
    let (key, op_tag, olh_tag) = (key.clone(), name("op"), name("olh"));
    let request = UnlinkRequest { key, op_tag, epoch: 0, log: false, flags: 0, olh_tag, zones: Zones::new() };
    done(object, "rgw.bucket_unlink_instance", &to_vec(&request));
}

/// Instance, and whether it is current, as versions are listed.
fn versions(object: &mut Memory) -> Vec<(String, bool)> {
    let reply = list(object, "", 100, "", "", true);
    let entries = reply.listed.entries.into_values();
    entries.map(|e| (e.key.instance.to_text().into_owned(), e.flags & flag::CURRENT != 0)).collect()
}

fn owned(versions: &[(&str, bool)]) -> Vec<(String, bool)> {
    versions.iter().map(|(instance, current)| ((*instance).to_owned(), *current)).collect()
}

#[test]
fn versions_are_listed_newest_first_and_the_next_one_steps_up() {
    let mut object = index();
    put(&mut object, &key("k", ""), 1); // before the bucket had versions
    for (instance, epoch) in [("v1", 2), ("v2", 3)] {
        put(&mut object, &key("k", instance), epoch);
        link(&mut object, &key("k", instance), false);
    }
    assert_eq!(versions(&mut object), owned(&[("v2", true), ("v1", false), ("", false)]));
    assert_eq!(names(&list(&mut object, "", 9, "", "", false)), ["k"]);
    link(&mut object, &key("k", "marker"), true);
    assert_eq!(versions(&mut object)[0], ("marker".into(), true));
    assert_eq!(names(&list(&mut object, "", 9, "", "", false)), [""; 0]);
    // Once more deletes nothing.
    let again = to_vec(&linking(&key("k", "marker2"), true));
    assert_eq!(error(&mut object, "rgw.bucket_link_olh", &again), ENOENT);
    unlink(&mut object, &key("k", "marker"));
    unlink(&mut object, &key("k", "v2"));
    assert_eq!(versions(&mut object), owned(&[("v1", true), ("", false)]));
    unlink(&mut object, &key("k", "v1"));
    unlink(&mut object, &key("k", "null"));
    assert_eq!(versions(&mut object), []);

    let (log_key, olh_tag) = (key("k", ""), name("olh"));
    let request = ReadLogRequest { key: log_key.clone(), after: 0, olh_tag: olh_tag.clone() };
    let reply: ReadLogReply = decoded(&done(&mut object, "rgw.bucket_read_olh_log", &to_vec(&request)));
    assert_eq!((reply.log.len(), reply.truncated), (7, false));
    assert_eq!(reply.log.keys().next(), Some(&2));
    let foreign = enveloped(|out| (log_key.clone(), name("foreign")).encode(out));
    assert_eq!(error(&mut object, "rgw.bucket_clear_olh", &foreign), ECANCELED);
    done(&mut object, "rgw.bucket_clear_olh", &enveloped(|out| (log_key, olh_tag).encode(out)));
    assert!(!object.omap.contains_key(&b"k"[..]));
}

#[test]
fn a_null_version_and_a_null_delete_marker_replace_each_other() {
    let mut object = index();
    let null = key("k", "");
    put(&mut object, &null, 1);
    link(&mut object, &null, false);
    put(&mut object, &null, 2);
    link(&mut object, &null, false);
    assert_eq!(versions(&mut object), owned(&[("", true)]));
    link(&mut object, &null, true);
    let reply = list(&mut object, "", 100, "", "", true);
    let flags: Vec<u16> = reply.listed.entries.values().map(|entry| entry.flags).collect();
    assert_eq!(flags, [flag::VERSION | flag::CURRENT | flag::DELETE_MARKER]);
    put(&mut object, &null, 3);
    link(&mut object, &null, false);
    assert_eq!(versions(&mut object), owned(&[("", true)]));
}

/// A listing of current objects that finds only old versions says where to go on.
#[test]
fn a_listing_of_old_versions_only_asks_to_be_repeated() {
    let mut object = index();
    for at in 1..30 {
        let version = key("k", &format!("v{at}"));
        put(&mut object, &version, at);
        link(&mut object, &version, false);
    }
    link(&mut object, &key("k", "marker"), true);
    let request =
        ListRequest { max: 1, prefix: name(""), after: key("", ""), versions: false, delimiter: name("") };
    let method = crate::find("rgw", "bucket_list").unwrap();
    let caller = crate::tests::client(1);
    let (code, out) = crate::call(method, &mut object, &caller, &to_vec(&request)).unwrap();
    let reply: ListReply = decoded(&out);
    assert_eq!((code, reply.truncated, reply.listed.entries.len()), (-EFBIG, true, 0));
    assert_eq!(reply.marker.name, name("k"));
}

#[test]
fn a_change_that_was_given_up_is_forgotten_after_its_timeout() {
    let mut object = index();
    let lost = key("lost", "");
    prepare(&mut object, modify::ADD, &lost, "a");
    let suggestion = to_vec(&(b'r', &Entry { key: lost.clone(), ..Entry::default() }));
    done(&mut object, "rgw.dir_suggest_changes", &suggestion);
    assert!(object.omap.contains_key(&b"lost"[..]), "it may be under way");
    let mut later = crate::tests::client(1);
    later.now.sec += 121;
    crate::tests::run(&mut object, &later, "rgw.dir_suggest_changes", &suggestion).unwrap();
    assert!(!object.omap.contains_key(&b"lost"[..]));
    // The object is there: its entry was lost.
    prepare(&mut object, modify::ADD, &lost, "b");
    let meta = Meta { category: 1, accounted_size: 3, ..Meta::default() };
    let seen = Entry { key: lost, exists: true, meta, index_version: 9, ..Entry::default() };
    crate::tests::run(&mut object, &later, "rgw.dir_suggest_changes", &to_vec(&(b'u', &seen))).unwrap();
    later.now.sec += 121;
    crate::tests::run(&mut object, &later, "rgw.dir_suggest_changes", &to_vec(&(b'u', &seen))).unwrap();
    assert_eq!(objects(&mut object), 1);
}

#[test]
fn statistics_are_counted_anew() {
    let mut object = index();
    put(&mut object, &key("a", ""), 1);
    put(&mut object, &key("b", ""), 2);
    let wrong = enveloped(|out| {
        true.encode(out);
        [(1_u8, Stats { num_entries: 99, ..Stats::default() })]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .encode(out);
    });
    done(&mut object, "rgw.bucket_update_stats", &wrong);
    assert_eq!(objects(&mut object), 99);
    done(&mut object, "rgw.bucket_rebuild_index", b"");
    assert_eq!(objects(&mut object), 2);
}

#[test]
fn all_entries_of_an_index_are_listed_as_they_are_stored() {
    let mut object = index();
    put(&mut object, &key("k", "v1"), 1);
    link(&mut object, &key("k", "v1"), false);
    put(&mut object, &key("kk", ""), 2);
    put(&mut object, &key("\u{fc}", ""), 3);
    let (mut after, mut entries) = (Name::default(), Vec::new());
    loop {
        let request = raw::ListRequest { max: 2, name: name(""), after: after.clone() };
        let reply: raw::ListReply = decoded(&done(&mut object, "rgw.bi_list", &to_vec(&request)));
        entries.extend(reply.entries);
        after = entries.last().unwrap().key.clone();
        if !reply.truncated {
            break;
        }
    }
    let kinds: Vec<u8> = entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [1, 1, 1, 2, 3, 1]);
    assert_eq!(entries.len(), object.omap.len());
    let request = raw::ListRequest { max: 100, name: name("k"), after: name("") };
    let reply: raw::ListReply = decoded(&done(&mut object, "rgw.bi_list", &to_vec(&request)));
    assert_eq!(reply.entries.len(), 4);
    let mut copy = index();
    for entry in &entries {
        done(&mut copy, "rgw.bi_put", &enveloped(|out| entry.encode(out)));
    }
    assert_eq!(copy.omap, object.omap);
}

#[test]
fn an_index_that_moves_refuses_changes() {
    let mut object = index();
    let guard = enveloped(|out| (-2300_i32).encode(out));
    done(&mut object, "rgw.guard_bucket_resharding", &guard);
    let mark = enveloped(|out| Resharding { status: 1, ..Resharding::default() }.encode(out));
    done(&mut object, "rgw.set_bucket_resharding", &mark);
    assert_eq!(error(&mut object, "rgw.guard_bucket_resharding", &guard), 2300);
    assert_eq!(&done(&mut object, "rgw.get_bucket_resharding", b"")[..], mark);
    done(&mut object, "rgw.clear_bucket_resharding", b"");
    done(&mut object, "rgw.guard_bucket_resharding", &guard);
}

#[test]
fn jobs_and_buckets_with_lifecycles_come_back_as_ceph_wrote_them() {
    let mut object = Memory::default();
    let job = concat!(
        "01015100000084a00b6bf1ab690b0000000006000000676f6c64656e2b00000038333138666261302d386434332d3435",
        "31642d613036392d6236626438346266633734382e343132302e31000000000b00000011000000"
    );
    let request = enveloped(|out| out.extend(hex(job)));
    done(&mut object, "rgw.reshard_add", &request);
    assert_eq!(object.omap[&b":golden"[..]][..], hex(job));
    assert_eq!(&done(&mut object, "rgw.reshard_get", &request)[..], request);
    let (tenant, bucket) = (name(""), name("golden"));
    let other = enveloped(|out| ((tenant.clone(), bucket.clone()), name("other")).encode(out));
    done(&mut object, "rgw.reshard_remove", &other);
    assert_eq!(object.omap.len(), 1);
    done(&mut object, "rgw.reshard_remove", &enveloped(|out| ((tenant, bucket), name("")).encode(out)));
    assert_eq!(object.omap.len(), 0);

    let bucket = concat!(
        "010143000000330000003a676f6c64656e3a38333138666261302d386434332d343531642d613036392d623662643834",
        "6266633734382e343132302e31000000000000000000000000"
    );
    let mut request = Vec::new();
    nacre_wire::versioned(&mut request, 2, 2, |out| out.extend(hex(bucket)));
    done(&mut object, "rgw.lc_set_entry", &request);
    let next = done(&mut object, "rgw.lc_get_next_entry", &enveloped(|out| name("").encode(out)));
    assert_eq!(&next[..], request);
    done(&mut object, "rgw.lc_rm_entry", &request);
    assert_eq!(object.omap.len(), 0);
}

#[test]
fn garbage_is_listed_when_its_time_has_come() {
    let mut object = Memory::default();
    let garbage = gc::Garbage { tag: name("t"), chain: gc::Chain::default(), time: Utime::ZERO };
    done(&mut object, "rgw.gc_set_entry", &enveloped(|out| (60_u32, garbage).encode(out)));
    done(&mut object, "rgw.gc_defer_entry", &enveloped(|out| (90_u32, name("t")).encode(out)));
    assert_eq!(object.omap.len(), 2);
    let request = to_vec(&gc::ListRequest { marker: name(""), max: 0, expired_only: true });
    let reply: gc::ListReply = decoded(&done(&mut object, "rgw.gc_list", &request));
    assert_eq!(reply.garbage.len(), 0);
    let mut later = crate::tests::client(1);
    later.now.sec += 91;
    let (_, out) = crate::tests::run(&mut object, &later, "rgw.gc_list", &request).unwrap();
    assert_eq!(decoded::<gc::ListReply>(&out).garbage.len(), 1);
    done(&mut object, "rgw.gc_remove", &enveloped(|out| vec![name("t"), name("u")].encode(out)));
    assert_eq!(object.omap.len(), 0);
}

#[test]
fn attributes_and_times_of_objects_are_conditions() {
    let mut object = Memory::default();
    done(&mut object, "rgw.obj_store_pg_ver", &enveloped(|out| name("user.rgw.pg_ver").encode(out)));
    let check = |fail: bool| enveloped(|out| (name("user.rgw."), fail).encode(out));
    done(&mut object, "rgw.obj_check_attrs_prefix", &check(false));
    assert_eq!(error(&mut object, "rgw.obj_check_attrs_prefix", &check(true)), ECANCELED);
    let newer = |time: Utime| enveloped(|out| (time, 3_u8).encode(out));
    done(&mut object, "rgw.obj_check_mtime", &newer(Utime::ZERO));
    assert_eq!(error(&mut object, "rgw.obj_check_mtime", &newer(NOW)), ECANCELED);
    done(&mut object, "rgw.obj_remove", &enveloped(|out| vec![name("user.rgw.pg")].encode(out)));
    done(&mut object, "rgw.obj_check_attrs_prefix", &check(false));
    done(&mut object, "rgw.obj_remove", &enveloped(|out| 0_u32.encode(out)));
    assert_eq!(object.data, None);
}
