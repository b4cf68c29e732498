//! Classes on an object in memory, with requests as real clients send them.

use crate::{Caller, Object, Reply, Stop, call, find};
use bytes::Bytes;
use nacre_base::errno::*;
use nacre_base::{Name, SnapId, Utime};
use nacre_proto::types::{EntityAddr, EntityName};
use nacre_wire::{Decode, Encode, Reader, to_vec, versioned};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) data: Option<Vec<u8>>,
    attrs: BTreeMap<Name, Bytes>,
    pub(crate) omap: BTreeMap<Name, Bytes>,
    header: Bytes,
    watchers: Vec<(EntityName, EntityAddr)>,
    random: u64,
    /// Reads of data go through only the second time, as on an OSD.
    slow: bool,
    fetched: BTreeSet<(u64, u64)>,
    /// What it was before the call under way, which is what that reads.
    before: Option<Box<Memory>>,
    /// Keys and attributes that the call under way wrote: a method that asks for one of them expects to see
    /// that.
    written: BTreeSet<Name>,
}

impl Memory {
    fn stored(&self) -> Result<&Memory, Stop> {
        let stored = self.before.as_deref().unwrap_or(self);
        if stored.data.is_some() { Ok(stored) } else { Err(Stop::Failed(ENOENT)) }
    }
}

impl Object for Memory {
    fn size(&self) -> Option<u64> {
        self.data.as_ref().map(|data| data.len() as u64)
    }
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        if self.slow && self.fetched.insert((offset, len)) {
            return Err(Stop::Interrupted);
        }
        let size = self.data.as_ref().map_or(0, Vec::len);
        if offset >= size as u64 || len == 0 {
            return Ok(Bytes::new());
        }
        let data = self.stored()?.data.as_deref().unwrap_or_default();
        let data = &data[..data.len().min(size)];
        let start = (offset as usize).min(data.len());
        let end = (offset.saturating_add(len).min(data.len() as u64) as usize).max(start);
        Ok(Bytes::copy_from_slice(&data[start..end]))
    }
    fn attr(&mut self, name: &Name) -> Result<Option<Bytes>, Stop> {
        assert!(!self.written.contains(name), "{name:?} is read after it was written");
        Ok(self.stored()?.attrs.get(name).cloned())
    }
    fn attrs(&mut self) -> Result<BTreeMap<Name, Bytes>, Stop> {
        Ok(self.stored()?.attrs.clone())
    }
    fn omap_get(&mut self, key: &Name) -> Result<Option<Bytes>, Stop> {
        assert!(!self.written.contains(key), "{key:?} is read after it was written");
        Ok(self.stored().ok().and_then(|stored| stored.omap.get(key).cloned()))
    }
    fn omap_walk(&mut self, from: &[u8], each: &mut dyn FnMut(&Name, &Bytes) -> bool) -> Result<(), Stop> {
        if let Ok(stored) = self.stored() {
            let _ = stored.omap.range(Name::copy_from(from)..).all(|(key, value)| each(key, value));
        }
        Ok(())
    }
    fn omap_header(&mut self) -> Result<Bytes, Stop> {
        Ok(self.stored().map(|stored| stored.header.clone()).unwrap_or_default())
    }
    fn mtime(&self) -> Option<Utime> {
        self.data.as_ref().map(|_| NOW)
    }
    fn version(&self) -> (u64, u32) {
        (70, 1)
    }
    fn snap_seq(&self) -> Option<u64> {
        self.data.as_ref().map(|_| 4)
    }
    fn watchers(&self) -> Vec<(EntityName, EntityAddr)> {
        self.watchers.clone()
    }
    fn create(&mut self) {
        self.data.get_or_insert_default();
    }
    fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), Stop> {
        if offset.saturating_add(bytes.len() as u64) > 1 << 24 {
            return Err(Stop::Failed(EFBIG));
        }
        let data = self.data.get_or_insert_default();
        let end = offset as usize + bytes.len();
        if !bytes.is_empty() {
            data.resize(data.len().max(end), 0);
            data[offset as usize..end].copy_from_slice(&bytes);
        }
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> Result<(), Stop> {
        if let Some(data) = &mut self.data {
            data.resize(size as usize, 0);
        }
        Ok(())
    }
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Stop> {
        let data = self.data.iter_mut().flatten();
        data.skip(offset as usize).take(len as usize).for_each(|byte| *byte = 0);
        Ok(())
    }
    fn remove(&mut self) {
        *self = Memory::default();
    }
    fn set_attr(&mut self, name: &Name, value: Bytes) -> Result<(), Stop> {
        self.create();
        self.attrs.insert(name.clone(), value);
        self.written.insert(name.clone());
        Ok(())
    }
    fn omap_set(&mut self, pairs: &BTreeMap<Name, Bytes>) -> Result<(), Stop> {
        self.create();
        self.omap.extend(pairs.clone());
        self.written.extend(pairs.keys().cloned());
        Ok(())
    }
    fn omap_remove(&mut self, keys: &BTreeSet<Name>) -> Result<(), Stop> {
        keys.iter().for_each(|key| drop(self.omap.remove(key)));
        self.written.extend(keys.iter().cloned());
        Ok(())
    }
    fn omap_remove_range(&mut self, begin: &Name, end: &Name) -> Result<(), Stop> {
        self.omap.retain(|key, _| key < begin || key >= end);
        Ok(())
    }
    fn omap_clear(&mut self) -> Result<(), Stop> {
        self.omap.clear();
        self.header = Bytes::new();
        Ok(())
    }
    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Stop> {
        self.create();
        self.header = header;
        Ok(())
    }
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x1234_5678_9abc_def1);
        self.random
    }
}

pub(crate) const NOW: Utime = Utime { sec: 1_700_000_000, nsec: 5 };

pub(crate) fn client(num: u64) -> Caller {
    let sock = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    Caller { name: EntityName::client(num), addr: EntityAddr::msgr2(sock, num as u32), now: NOW }
}

/// Calls `class.method`; a failed call changes nothing, an interrupted one is made again.
pub(crate) fn run(object: &mut Memory, caller: &Caller, method: &str, input: &[u8]) -> Reply {
    let (class, name) = method.split_once('.').expect("class.method");
    let method = find(class, name).map_err(Stop::Failed)?;
    let mut draft = object.clone();
    draft.before = Some(Box::new(object.clone()));
    match call(method, &mut draft, caller, input) {
        Err(Stop::Interrupted) => {
            object.fetched = draft.fetched;
            run(object, caller, &format!("{class}.{name}"), input)
        }
        Err(stop) => Err(stop),
        done => {
            draft.fetched.clear();
            draft.before = None;
            draft.written.clear();
            *object = draft;
            done
        }
    }
}

pub(crate) fn done(object: &mut Memory, method: &str, input: &[u8]) -> Bytes {
    run(object, &client(1), method, input).unwrap_or_else(|stop| panic!("{method}: {stop:?}")).1
}

pub(crate) fn error(object: &mut Memory, method: &str, input: &[u8]) -> i32 {
    match run(object, &client(1), method, input) {
        Err(Stop::Failed(errno)) => errno,
        other => panic!("{method}: {other:?}"),
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub(crate) fn decoded<T: Decode>(bytes: &[u8]) -> T {
    T::decode(&mut Reader::new(bytes)).expect("an answer decodes")
}

// ---- the registry ----

#[test]
fn unknown_classes_and_methods_have_errors_of_their_own() {
    assert_eq!(find("nosuch", "m").err(), Some(EPERM));
    assert_eq!(find("hello", "m").err(), Some(EOPNOTSUPP));
    assert!(!find("rbd", "get_size").unwrap().access.writes());
    assert!(find("rbd", "set_size").unwrap().access.writes());
}

#[test]
fn no_name_is_given_twice() {
    for class in crate::CLASSES {
        let names: BTreeSet<&str> = class.methods.iter().map(|method| method.name).collect();
        assert_eq!(names.len(), class.methods.len(), "{}", class.name);
    }
}

/// Also with objects that hold nonsense where the class keeps its values.
#[test]
fn no_input_makes_a_method_panic() {
    let mut rng = nacre_base::Rng::new(11);
    let mut odd = Memory { data: Some(vec![7; 40]), ..Memory::default() };
    for key in
        ["size", "order", "features", "snap_seq", "parent", "snapshot_0000000000000004", "tag_", "client_x"]
    {
        odd.omap.insert(Name::from(key), Bytes::from_static(b"\x09\x01\xff\xff\xff\xff\xff\xff\xff"));
    }
    odd.header = Bytes::from_static(b"\x07\x02\xff\xff\xff\xff\xff\xff\xff");
    let mut image = image();
    done(&mut image, "rbd.snapshot_add", &snap_request("s", 4));
    for method in crate::CLASSES.iter().flat_map(|class| class.methods) {
        for object in [Memory::default(), odd.clone(), image.clone()] {
            for len in [0, 1, 4, 8, 9, 16, 24, 40, 64] {
                let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
                if rng.chance(500) {
                    // Small numbers are more often counts, lengths and versions.
                    bytes.iter_mut().for_each(|byte| *byte %= 5);
                }
                let _ = call(method, &mut object.clone(), &client(1), &bytes);
            }
        }
    }
}

// ---- hello, numops, refcount, version ----

#[test]
fn hello_greets_as_a_real_one_does() {
    let mut object = Memory { data: Some(Vec::new()), ..Memory::default() };
    assert_eq!(done(&mut object, "hello.say_hello", b"bob"), "Hello, bob!");
    assert_eq!(done(&mut object, "hello.say_hello", b""), "Hello, world!");
    assert_eq!(error(&mut object, "hello.say_hello", &[b'x'; 101]), EINVAL);
    assert_eq!(error(&mut object, "hello.record_hello", b""), EEXIST);
    assert_eq!(error(&mut object, "hello.write_return_data", b"too much"), EINVAL);
    let mut object = Memory { slow: true, ..Memory::default() };
    done(&mut object, "hello.record_hello", b"x");
    assert_eq!(object.attrs[&b"said_by"[..]], "client.1 v2:127.0.0.1:0/1");
    assert_eq!(done(&mut object, "hello.replay", b""), "Hello, x!");
    done(&mut object, "hello.turn_it_to_11", b"");
    assert_eq!(done(&mut object, "hello.replay", b""), "HELLO, X!");
}

#[test]
fn a_method_that_does_more_than_it_said_fails_and_changes_nothing() {
    let mut object = Memory { data: Some(b"kept".to_vec()), ..Memory::default() };
    assert_eq!(error(&mut object, "hello.bad_reader", b""), EIO);
    assert_eq!(error(&mut object, "hello.bad_writer", b"lost"), EIO);
    assert_eq!(object.data.as_deref(), Some(&b"kept"[..]));
}

#[test]
fn numops_keep_decimal_text() {
    let mut object = Memory::default();
    let request = |operand: &str| to_vec(&(Name::from("n"), Name::from(operand)));
    done(&mut object, "numops.add", &request("4"));
    done(&mut object, "numops.mul", &request("2.5"));
    assert_eq!(object.omap[&b"n"[..]], "10");
    assert_eq!(error(&mut object, "numops.add", &request("4x")), EINVAL);
    object.omap.insert(Name::from("n"), "many".into());
    assert_eq!(error(&mut object, "numops.add", &request("4")), EBADMSG);
}

pub(crate) fn enveloped(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    versioned(&mut out, 1, 1, body);
    out
}

#[test]
fn an_object_goes_with_its_last_reference() {
    let tag = |tag: &str, implicit: bool| enveloped(|out| (Name::from(tag), implicit).encode(out));
    let mut object = Memory { data: Some(b"x".to_vec()), ..Memory::default() };
    done(&mut object, "refcount.get", &tag("a", true));
    let refs = done(&mut object, "refcount.read", &enveloped(|out| true.encode(out)));
    assert_eq!(&refs[..], &enveloped(|out| vec![Name::default(), Name::from("a")].encode(out))[..]);
    done(&mut object, "refcount.put", &tag("a", true));
    done(&mut object, "refcount.put", &tag("a", true)); // again, which counts once
    assert!(object.data.is_some());
    done(&mut object, "refcount.put", &tag("other", true));
    assert_eq!(object.data, None);
}

#[test]
fn a_version_counts_up_under_conditions() {
    let version = |number: u64, tag: &str| enveloped(|out| (number, Name::from(tag)).encode(out));
    let conditional = |number: u64, tag: &str, relation: u32| {
        enveloped(|out| {
            out.extend(version(0, ""));
            1_u32.encode(out);
            versioned(out, 1, 1, |out| {
                out.extend(version(number, tag));
                relation.encode(out);
            });
        })
    };
    let mut object = Memory::default();
    done(&mut object, "version.set", &enveloped(|out| out.extend(version(5, "t"))));
    done(&mut object, "version.inc_conds", &conditional(5, "t", 1));
    assert_eq!(error(&mut object, "version.inc_conds", &conditional(5, "t", 1)), ECANCELED);
    done(&mut object, "version.check_conds", &conditional(5, "u", 7));
    assert_eq!(
        &done(&mut object, "version.read", b"")[..],
        &enveloped(|out| out.extend(version(6, "t")))[..]
    );
}

// ---- lock ----

fn lock_request(kind: u8, cookie: &str, tag: &str, seconds: u32, flags: u8) -> Vec<u8> {
    enveloped(|out| {
        Name::from("lk").encode(out);
        kind.encode(out);
        (Name::from(cookie), Name::from(tag)).encode(out);
        (Name::from(""), Utime { sec: seconds, nsec: 0 }).encode(out);
        flags.encode(out);
    })
}

fn unlock_request(cookie: &str) -> Vec<u8> {
    enveloped(|out| (Name::from("lk"), Name::from(cookie)).encode(out))
}

pub(crate) fn failed(errno: i32) -> Reply {
    Err(Stop::Failed(errno))
}

#[test]
fn locks_are_taken_as_real_clients_take_them() {
    let mut object = Memory::default();
    let first = hex("01011e000000020000006c6b0102000000636b0000000000000000000000000000000000");
    let second = hex("01011f000000020000006c6b0103000000636b320000000000000000000000000000000000");
    let unlock = hex("01010c000000020000006c6b02000000636b");
    assert!(run(&mut object, &client(1), "lock.lock", &first).is_ok());
    assert_eq!(run(&mut object, &client(1), "lock.lock", &second), failed(EBUSY));
    assert_eq!(run(&mut object, &client(1), "lock.lock", &first), failed(EEXIST));
    assert_eq!(run(&mut object, &client(2), "lock.unlock", &unlock), failed(ENOENT));
    assert!(run(&mut object, &client(1), "lock.unlock", &unlock).is_ok());
    assert_eq!(object.attrs.keys().collect::<Vec<_>>(), [&Name::from("lock.lk")]);
}

#[test]
fn lock_of_an_unopened_image_has_no_holders() {
    let mut object = Memory { data: Some(Vec::new()), ..Memory::default() };
    let info = done(&mut object, "lock.get_info", &hex("01010c000000080000007262645f6c6f636b"));
    assert_eq!(&info[..], &hex("010109000000000000000000000000")[..]);
}

#[test]
fn shared_locks_share_under_one_tag() {
    let mut object = Memory::default();
    assert!(run(&mut object, &client(1), "lock.lock", &lock_request(2, "a", "t", 0, 0)).is_ok());
    assert!(run(&mut object, &client(2), "lock.lock", &lock_request(2, "a", "t", 0, 0)).is_ok());
    assert_eq!(run(&mut object, &client(3), "lock.lock", &lock_request(2, "a", "u", 0, 0)), failed(EBUSY));
    assert_eq!(run(&mut object, &client(3), "lock.lock", &lock_request(1, "a", "t", 0, 0)), failed(EBUSY));
    let names = done(&mut object, "lock.list_locks", b"");
    assert_eq!(&names[..], &enveloped(|out| vec![Name::from("lk")].encode(out))[..]);
}

#[test]
fn a_lock_can_be_renewed_expire_and_be_broken() {
    let mut object = Memory::default();
    assert_eq!(run(&mut object, &client(1), "lock.lock", &lock_request(1, "a", "", 9, 2)), failed(ENOENT));
    assert_eq!(run(&mut object, &client(1), "lock.lock", &lock_request(1, "a", "", 9, 3)), failed(EINVAL));
    assert!(run(&mut object, &client(1), "lock.lock", &lock_request(1, "a", "", 9, 0)).is_ok());
    assert!(run(&mut object, &client(1), "lock.lock", &lock_request(1, "a", "", 9, 1)).is_ok());
    let mut other = client(2);
    assert_eq!(run(&mut object, &other, "lock.lock", &lock_request(1, "b", "", 0, 0)), failed(EBUSY));
    other.now.sec += 10;
    assert!(run(&mut object, &other, "lock.lock", &lock_request(1, "b", "", 0, 0)).is_ok());
    let wrong = enveloped(|out| (Name::from("lk"), (EntityName::client(1), Name::from("b"))).encode(out));
    assert_eq!(run(&mut object, &client(1), "lock.break_lock", &wrong), failed(ENOENT));
    let right = enveloped(|out| (Name::from("lk"), (EntityName::client(2), Name::from("b"))).encode(out));
    assert!(run(&mut object, &client(1), "lock.break_lock", &right).is_ok());
}

#[test]
fn lock_holder_can_assert_the_lock_and_change_its_cookie() {
    let asserted = |cookie: &str| {
        enveloped(|out| {
            (Name::from("lk"), 1_u8).encode(out);
            (Name::from(cookie), Name::from("")).encode(out);
        })
    };
    let mut object = Memory::default();
    done(&mut object, "lock.lock", &lock_request(1, "a", "", 0, 0));
    done(&mut object, "lock.assert_locked", &asserted("a"));
    let change = enveloped(|out| {
        (Name::from("lk"), 1_u8).encode(out);
        (Name::from("a"), (Name::from(""), Name::from("b"))).encode(out);
    });
    done(&mut object, "lock.set_cookie", &change);
    assert_eq!(error(&mut object, "lock.assert_locked", &asserted("a")), EBUSY);
    done(&mut object, "lock.assert_locked", &asserted("b"));
}

#[test]
fn an_ephemeral_lock_takes_its_object_along() {
    let mut object = Memory::default();
    done(&mut object, "lock.lock", &lock_request(3, "a", "", 0, 0));
    done(&mut object, "lock.unlock", &unlock_request("a"));
    assert_eq!(object.data, None);
}

// ---- rbd ----

/// As a stock `rbd create` of 64 MiB made it.
fn image() -> Memory {
    let mut object = Memory { data: Some(Vec::new()), ..Memory::default() };
    let request = "0000000400000000163d00000000000000150000007262645f646174612e313036633439643431623738ffffffffffffffff";
    done(&mut object, "rbd.create", &hex(request));
    object
}

fn snap_request(name: &str, id: u64) -> Vec<u8> {
    let mut out = to_vec(&(Name::from(name), id));
    versioned(&mut out, 1, 1, |out| 0_u32.encode(out));
    out
}

#[test]
fn a_new_image_is_what_was_asked_for() {
    let mut image = image();
    let head = to_vec(&SnapId::HEAD.0);
    assert_eq!(&done(&mut image, "rbd.get_size", &head)[..], &to_vec(&(22_u8, 64_u64 << 20))[..]);
    let features = to_vec(&(SnapId::HEAD.0, true));
    assert_eq!(&done(&mut image, "rbd.get_features", &features)[..], &to_vec(&(0x3d_u64, 1_u64))[..]);
    assert_eq!(&done(&mut image, "rbd.get_all_features", b"")[..], &hex("ff0f000000000000")[..]);
    assert_eq!(decoded::<i64>(&done(&mut image, "rbd.get_data_pool", b"")), -1);
    assert_eq!(decoded::<Utime>(&done(&mut image, "rbd.get_create_timestamp", b"")), NOW);
    assert_eq!(decoded::<(u64, Vec<u64>)>(&done(&mut image, "rbd.get_snapcontext", b"")), (0, vec![]));
    let no_group = enveloped(|out| (-1_i64, Name::default()).encode(out));
    assert_eq!(&done(&mut image, "rbd.image_group_get", b"")[..], &no_group[..]);
    let no_parent =
        enveloped(|out| (-1_i64, (Name::default(), (Name::default(), SnapId::HEAD.0))).encode(out));
    assert_eq!(&done(&mut image, "rbd.parent_get", b"")[..], &no_parent[..]);
    let again = "000000040000000016000000000000000001000000780000000000000000";
    assert_eq!(error(&mut image, "rbd.create", &hex(again)), EEXIST);
}

#[test]
fn features_change_only_where_they_may() {
    let mut image = image();
    let journaling = 1_u64 << 6;
    done(&mut image, "rbd.set_features", &to_vec(&(journaling, journaling)));
    assert_eq!(error(&mut image, "rbd.set_features", &to_vec(&(2_u64, 2_u64))), EINVAL);
    done(&mut image, "rbd.set_features", &to_vec(&(0_u64, 1_u64 << 5))); // deep-flatten goes, and stays away
    assert_eq!(error(&mut image, "rbd.set_features", &to_vec(&(32_u64, 32_u64))), EINVAL);
    assert_eq!(error(&mut image, "rbd.set_features", &to_vec(&(256_u64, 256_u64))), EINVAL);
}

#[test]
fn the_directory_keeps_names_and_ids_together() {
    let mut directory = Memory::default();
    let pair = |a: &str, b: &str| to_vec(&(Name::from(a), Name::from(b)));
    done(&mut directory, "rbd.dir_add_image", &hex("04000000696d67310c000000313036633439643431623738"));
    assert_eq!(error(&mut directory, "rbd.dir_add_image", &pair("img1", "2")), EEXIST);
    assert_eq!(error(&mut directory, "rbd.dir_add_image", &pair("img2", "106c49d41b78")), EBADF);
    let rename = to_vec(&(Name::from("img1"), (Name::from("new"), Name::from("106c49d41b78"))));
    done(&mut directory, "rbd.dir_rename_image", &rename);
    assert_eq!(error(&mut directory, "rbd.dir_remove_image", &pair("img1", "106c49d41b78")), ENOENT);
    done(&mut directory, "rbd.dir_add_image", &pair("b", "2"));
    let list = done(&mut directory, "rbd.dir_list", &to_vec(&(Name::from(""), 1024_u64)));
    let expected = BTreeMap::from([("b".into(), "2".into()), ("new".into(), "106c49d41b78".into())]);
    assert_eq!(decoded::<BTreeMap<Name, Name>>(&list), expected);
    let after = done(&mut directory, "rbd.dir_list", &to_vec(&(Name::from("b"), 1024_u64)));
    assert_eq!(decoded::<BTreeMap<Name, Name>>(&after).len(), 1);
    assert_eq!(decoded::<Name>(&done(&mut directory, "rbd.dir_get_id", &to_vec("b"))), Name::from("2"));
}

#[test]
fn an_id_is_set_once() {
    let mut object = Memory { data: Some(Vec::new()), slow: true, ..Memory::default() };
    assert_eq!(error(&mut object, "rbd.get_id", b""), ENOENT);
    done(&mut object, "rbd.set_id", &hex("0c000000313036633439643431623738"));
    assert_eq!(&done(&mut object, "rbd.get_id", b"")[..], &hex("0c000000313036633439643431623738")[..]);
    assert_eq!(error(&mut object, "rbd.set_id", &to_vec("2")), EEXIST);
}

#[test]
fn snapshots_come_in_order_and_go_when_nothing_needs_them() {
    let mut image = image();
    done(&mut image, "rbd.snapshot_add", &hex("020000007331040000000000000001010400000000000000"));
    assert_eq!(error(&mut image, "rbd.snapshot_add", &snap_request("s1", 5)), EEXIST);
    assert_eq!(error(&mut image, "rbd.snapshot_add", &snap_request("s0", 3)), ESTALE);
    done(&mut image, "rbd.snapshot_add", &snap_request("s2", 7));
    assert_eq!(decoded::<(u64, Vec<u64>)>(&done(&mut image, "rbd.get_snapcontext", b"")), (7, vec![7, 4]));
    done(&mut image, "rbd.set_protection_status", &to_vec(&(4_u64, 2_u8)));
    assert_eq!(error(&mut image, "rbd.snapshot_remove", &to_vec(&4_u64)), EBUSY);
    done(&mut image, "rbd.set_protection_status", &to_vec(&(4_u64, 0_u8)));
    done(&mut image, "rbd.snapshot_remove", &to_vec(&4_u64));
    assert_eq!(error(&mut image, "rbd.snapshot_get", &to_vec(&4_u64)), ENOENT);
    done(&mut image, "rbd.snapshot_rename", &to_vec(&(7_u64, Name::from("s3"))));
    assert_eq!(
        decoded::<Name>(&done(&mut image, "rbd.get_snapshot_name", &to_vec(&7_u64))),
        Name::from("s3")
    );
    done(&mut image, "rbd.snapshot_set_limit", &to_vec(&1_u64));
    assert_eq!(error(&mut image, "rbd.snapshot_add", &snap_request("s4", 8)), EDQUOT);
}

#[test]
fn a_snapshot_with_clones_waits_for_them_in_the_trash() {
    let mut image = image();
    done(&mut image, "rbd.snapshot_add", &snap_request("s", 4));
    let mut child = to_vec(&4_u64);
    versioned(&mut child, 2, 1, |out| (1_i64, (Name::from("c"), Name::from(""))).encode(out));
    done(&mut image, "rbd.child_attach", &child);
    assert_eq!(error(&mut image, "rbd.child_attach", &child), EEXIST);
    assert_eq!(error(&mut image, "rbd.snapshot_remove", &to_vec(&4_u64)), EBUSY);
    done(&mut image, "rbd.snapshot_trash_add", &to_vec(&4_u64));
    assert_eq!(decoded::<u64>(&done(&mut image, "rbd.op_features_get", b"")), 1 | 8);
    let name = done(&mut image, "rbd.get_snapshot_name", &to_vec(&4_u64));
    assert_eq!(decoded::<Name>(&name).len(), 36);
    done(&mut image, "rbd.child_detach", &child);
    done(&mut image, "rbd.snapshot_remove", &to_vec(&4_u64));
    assert_eq!(decoded::<u64>(&done(&mut image, "rbd.op_features_get", b"")), 0);
}

#[test]
fn a_clone_shows_its_parent_until_it_is_cut_off_or_flattened() {
    let mut clone = image();
    let mut attach = enveloped(|out| (1_i64, (Name::from(""), (Name::from("p"), 4_u64))).encode(out));
    (128_u64 << 20).encode(&mut attach);
    false.encode(&mut attach);
    done(&mut clone, "rbd.parent_attach", &attach);
    assert_eq!(error(&mut clone, "rbd.parent_attach", &attach), EEXIST);
    let head = to_vec(&SnapId::HEAD.0);
    let overlap = |clone: &mut Memory| {
        decoded::<Option<u64>>(&done(clone, "rbd.parent_overlap_get", &to_vec(&SnapId::HEAD.0)))
    };
    assert_eq!(overlap(&mut clone), Some(64 << 20)); // no more than its own size
    done(&mut clone, "rbd.set_size", &to_vec(&(16_u64 << 20)));
    done(&mut clone, "rbd.set_size", &to_vec(&(64_u64 << 20)));
    assert_eq!(overlap(&mut clone), Some(16 << 20));
    let legacy = done(&mut clone, "rbd.get_parent", &head);
    assert_eq!(decoded::<(i64, (Name, (u64, u64)))>(&legacy), (1, (Name::from("p"), (4, 16 << 20))));
    done(&mut clone, "rbd.snapshot_add", &snap_request("s", 9));
    done(&mut clone, "rbd.parent_detach", b"");
    assert_eq!(overlap(&mut clone), None);
    let of_snap = done(&mut clone, "rbd.parent_overlap_get", &to_vec(&9_u64));
    assert_eq!(decoded::<Option<u64>>(&of_snap), None); // deep-flatten
}

#[test]
fn children_of_the_first_kind_are_listed_by_parent() {
    let mut object = Memory::default();
    let parent = to_vec(&(3_i64, (Name::from("p"), 4_u64)));
    let child = |name: &str| [&parent[..], &to_vec(name)].concat();
    done(&mut object, "rbd.add_child", &child("c1"));
    done(&mut object, "rbd.add_child", &child("c2"));
    assert_eq!(error(&mut object, "rbd.add_child", &child("c1")), EEXIST);
    let children = done(&mut object, "rbd.get_children", &parent);
    assert_eq!(decoded::<Vec<Name>>(&children), [Name::from("c1"), Name::from("c2")]);
    done(&mut object, "rbd.remove_child", &child("c1"));
    done(&mut object, "rbd.remove_child", &child("c2"));
    assert_eq!(error(&mut object, "rbd.get_children", &parent), ENOENT);
}

#[test]
fn an_object_map_is_kept_as_real_clients_read_it() {
    let mut object = Memory { slow: true, ..Memory::default() };
    done(&mut object, "rbd.object_map_resize", &hex("100000000000000000"));
    let loaded = done(&mut object, "rbd.object_map_load", b"");
    assert_eq!(&loaded[..], &hex("0e00000001010800000010000000000000000000000000000000")[..]);
    done(&mut object, "rbd.object_map_update", &hex("000000000000000001000000000000000100"));
    let loaded = done(&mut object, "rbd.object_map_load", b"");
    assert_eq!(loaded[18..22], [0x40, 0, 0, 0]);
    done(&mut object, "rbd.object_map_snap_add", b"");
    assert_eq!(done(&mut object, "rbd.object_map_load", b"")[18], 0xc0);
    let snap = to_vec(&loaded[..]); // a snapshot's map in which the object had changed
    done(&mut object, "rbd.object_map_snap_remove", &snap[4..]);
    assert_eq!(done(&mut object, "rbd.object_map_load", b"")[18], 0x40);
    assert_eq!(
        error(&mut object, "rbd.object_map_update", &hex("000000000000000011000000000000000100")),
        ERANGE
    );
    assert_eq!(error(&mut object, "rbd.object_map_resize", &hex("000000000000000000")), ESTALE);
}

#[test]
fn updates_of_a_large_object_map_equal_those_of_a_plain_list() {
    let count = 100_000_u64;
    let mut object = Memory { slow: true, ..Memory::default() };
    done(&mut object, "rbd.object_map_resize", &to_vec(&(count, 0_u8)));
    let mut plain = vec![0_u8; count as usize];
    let mut rng = nacre_base::Rng::new(3);
    for _ in 0..60 {
        let start = rng.below(count);
        let end = (start + 1 + rng.below(40_000)).min(count);
        let (new, expected) = (rng.below(4) as u8, rng.chance(300).then_some(rng.below(4) as u8));
        done(&mut object, "rbd.object_map_update", &to_vec(&((start, end), (new, expected))));
        for state in &mut plain[start as usize..end as usize] {
            if expected.is_none_or(|expected| *state == expected || (expected == 1 && *state == 3)) {
                *state = new;
            }
        }
    }
    let packed: Vec<u8> =
        plain.chunks(4).map(|four| four.iter().fold(0, |byte, state| byte << 2 | state)).collect();
    assert_eq!(&done(&mut object, "rbd.object_map_load", b"")[18..18 + packed.len()], &packed[..]);
    object.data.as_mut().unwrap()[5000] ^= 1; // rot
    assert_eq!(error(&mut object, "rbd.object_map_load", b""), EINVAL);
}

#[test]
fn metadata_lists_in_pages() {
    let mut image = image();
    let pairs: BTreeMap<Name, Bytes> = ["", "a", "b", "c"].map(|k| (Name::from(k), Bytes::from("v"))).into();
    done(&mut image, "rbd.metadata_set", &to_vec(&pairs));
    let page = done(&mut image, "rbd.metadata_list", &to_vec(&(Name::from("a"), 1_u64)));
    assert_eq!(decoded::<BTreeMap<Name, Bytes>>(&page).keys().collect::<Vec<_>>(), [&Name::from("b")]);
    // What has no name is there, and in no page.
    let page = done(&mut image, "rbd.metadata_list", &to_vec(&(Name::default(), 1_u64)));
    assert_eq!(decoded::<BTreeMap<Name, Bytes>>(&page).keys().collect::<Vec<_>>(), [&Name::from("a")]);
    assert_eq!(decoded::<Name>(&done(&mut image, "rbd.metadata_get", &to_vec(""))), Name::from("v"));
    done(&mut image, "rbd.metadata_remove", &to_vec("a"));
    assert_eq!(error(&mut image, "rbd.metadata_get", &to_vec("a")), ENOENT);
    assert_eq!(decoded::<Name>(&done(&mut image, "rbd.metadata_get", &to_vec("b"))), Name::from("v"));
}

#[test]
fn a_directory_takes_no_more_images_only_while_it_has_none() {
    let mut directory = Memory::default();
    let (ready, disabled) = ([0_u8], [1_u8]);
    assert_eq!(error(&mut directory, "rbd.dir_state_set", &disabled), ENOENT);
    done(&mut directory, "rbd.dir_state_set", &ready);
    done(&mut directory, "rbd.dir_state_assert", &ready);
    let image = to_vec(&(Name::from("img"), Name::from("1a")));
    done(&mut directory, "rbd.dir_add_image", &image);
    assert_eq!(error(&mut directory, "rbd.dir_state_set", &disabled), EBUSY);
    done(&mut directory, "rbd.dir_remove_image", &image);
    done(&mut directory, "rbd.dir_state_set", &disabled);
    assert_eq!(error(&mut directory, "rbd.dir_state_assert", &ready), ENOENT);
    assert_eq!(error(&mut directory, "rbd.dir_state_set", &[2]), EINVAL);
}

#[test]
fn trash_keeps_an_image_and_its_state() {
    let mut trash = Memory::default();
    let mut spec = Vec::new();
    versioned(&mut spec, 2, 1, |out| (0_u8, (Name::from("img"), (NOW, (NOW, 2_u8)))).encode(out));
    let add = [to_vec("1"), spec.clone()].concat();
    done(&mut trash, "rbd.trash_add", &add);
    assert_eq!(error(&mut trash, "rbd.trash_add", &add), EEXIST);
    assert_eq!(&done(&mut trash, "rbd.trash_get", &to_vec("1"))[..], &spec[..]);
    done(&mut trash, "rbd.trash_state_set", &to_vec(&(Name::from("1"), (0_u8, 2_u8))));
    assert_eq!(error(&mut trash, "rbd.trash_state_set", &to_vec(&(Name::from("1"), (4_u8, 2_u8)))), ESTALE);
    done(&mut trash, "rbd.trash_remove", &to_vec("1"));
    let list = done(&mut trash, "rbd.trash_list", &to_vec(&(Name::from(""), 1024_u64)));
    assert_eq!(decoded::<u32>(&list), 0);
}

#[test]
fn groups_hold_images_and_snapshots() {
    let mut group = Memory { data: Some(Vec::new()), ..Memory::default() };
    let member = |id: &str| enveloped(|out| (Name::from(id), 3_i64).encode(out));
    let status = enveloped(|out| {
        out.extend(member("1"));
        1_u8.encode(out);
    });
    done(&mut group, "rbd.group_image_set", &status);
    assert!(group.omap.contains_key(&b"image_0000000000000003_1"[..]));
    let none = enveloped(|out| (Name::from(""), -1_i64).encode(out));
    let list = done(&mut group, "rbd.group_image_list", &[none, to_vec(&10_u64)].concat());
    assert_eq!(&list[4..], &status[..]);
    done(&mut group, "rbd.group_image_remove", &member("1"));

    let mut image = image();
    let reference = |id: &str| enveloped(|out| (3_i64, Name::from(id)).encode(out));
    done(&mut image, "rbd.image_group_add", &reference("g"));
    done(&mut image, "rbd.image_group_add", &reference("g"));
    assert_eq!(error(&mut image, "rbd.image_group_add", &reference("h")), EEXIST);
    assert_eq!(error(&mut image, "rbd.image_group_remove", &reference("h")), EBADF);
    done(&mut image, "rbd.image_group_remove", &reference("g"));

    let snap = |id: &str, name: &str, state: u8| {
        enveloped(|out| (Name::from(id), (Name::from(name), (state, 0_u32))).encode(out))
    };
    done(&mut group, "rbd.group_snap_set", &snap("1", "s", 0));
    assert_eq!(error(&mut group, "rbd.group_snap_set", &snap("2", "s", 0)), EEXIST);
    done(&mut group, "rbd.group_snap_set", &snap("1", "s", 1));
    assert_eq!(&done(&mut group, "rbd.group_snap_get_by_id", &to_vec("1"))[..], &snap("1", "s", 1)[..]);

    // They have the order in which they were made, whatever their ids are.
    done(&mut group, "rbd.group_snap_set", &snap("0", "t", 0));
    let order = |group: &mut Memory, after: &str, max: u64| {
        let listed = done(group, "rbd.group_snap_list_order", &[to_vec(after), to_vec(&max)].concat());
        decoded::<Vec<(String, u64)>>(&listed)
    };
    assert_eq!(order(&mut group, "", 10), [("0".to_string(), 2), ("1".to_string(), 1)]);
    assert_eq!(order(&mut group, "", 1), [("0".to_string(), 2)]);
    assert_eq!(order(&mut group, "0", 10), [("1".to_string(), 1)]);
    done(&mut group, "rbd.group_snap_remove", &to_vec("0"));
    done(&mut group, "rbd.group_snap_set", &snap("2", "t", 0));
    assert_eq!(order(&mut group, "", 10), [("1".to_string(), 1), ("2".to_string(), 3)]);
}

#[test]
fn a_copy_up_never_overwrites() {
    let mut object = Memory::default();
    let mut request = to_vec(&BTreeMap::from([(1_u64, 2_u64), (6, 1)]));
    Bytes::from("abc").encode(&mut request);
    done(&mut object, "rbd.sparse_copyup", &request);
    assert_eq!(object.data.as_deref(), Some(&b"\0ab\0\0\0c"[..]));
    done(&mut object, "rbd.copyup", b"other");
    assert_eq!(object.data.as_deref(), Some(&b"\0ab\0\0\0c"[..]));
    done(&mut object, "rbd.sparsify", &to_vec(&(2_u64, true)));
    assert_eq!(object.data.as_deref(), Some(&b"\0ab\0\0\0c"[..]));
    object.data = Some(vec![0; 9]);
    done(&mut object, "rbd.sparsify", &to_vec(&(2_u64, true)));
    assert_eq!(object.data, None);
}

#[test]
fn mirroring_has_peers_images_and_statuses() {
    let mut pool = Memory::default();
    assert_eq!(error(&mut pool, "rbd.mirror_mode_set", &to_vec(&2_u32)), EINVAL); // no uuid yet
    done(&mut pool, "rbd.mirror_uuid_set", &to_vec("here"));
    done(&mut pool, "rbd.mirror_mode_set", &to_vec(&2_u32));
    assert_eq!(error(&mut pool, "rbd.mirror_uuid_set", &to_vec("there")), EINVAL);
    let mut peer = Vec::new();
    versioned(&mut peer, 2, 1, |out| {
        (Name::from("u"), (Name::from("site"), (Name::from("client.m"), -1_i64))).encode(out);
        (2_u8, (Name::from("there"), NOW)).encode(out);
    });
    done(&mut pool, "rbd.mirror_peer_add", &peer);
    assert_eq!(error(&mut pool, "rbd.mirror_peer_add", &peer), ESTALE);
    assert_eq!(&done(&mut pool, "rbd.mirror_peer_list", b"")[4..], &peer[..]);
    assert_eq!(error(&mut pool, "rbd.mirror_mode_set", &to_vec(&0_u32)), EBUSY);

    let mut image = to_vec("1");
    versioned(&mut image, 2, 1, |out| (Name::from("g"), (1_u8, 1_u8)).encode(out));
    done(&mut pool, "rbd.mirror_image_set", &image);
    assert_eq!(&done(&mut pool, "rbd.mirror_image_get", &to_vec("1"))[..], &image[5..]);
    assert_eq!(error(&mut pool, "rbd.mirror_image_remove", &to_vec("1")), EBUSY);
    let mut status = to_vec("g");
    versioned(&mut status, 1, 1, |out| (4_u8, (Name::from("fine"), (Utime::ZERO, false))).encode(out));
    done(&mut pool, "rbd.mirror_image_status_set", &status);
    let summary = done(&mut pool, "rbd.mirror_image_status_get_summary", b"");
    assert_eq!(decoded::<BTreeMap<u8, i32>>(&summary), BTreeMap::from([(0, 1)])); // its reporter is gone
    pool.watchers = vec![(client(1).name, client(1).addr)];
    let summary = done(&mut pool, "rbd.mirror_image_status_get_summary", b"");
    assert_eq!(decoded::<BTreeMap<u8, i32>>(&summary), BTreeMap::from([(4, 1)]));
    done(&mut pool, "rbd.mirror_image_instance_get", &to_vec("g"));
    pool.watchers.clear();
    done(&mut pool, "rbd.mirror_image_status_remove_down", b"");
    assert_eq!(error(&mut pool, "rbd.mirror_image_status_get", &to_vec("g")), ENOENT);
}

#[test]
fn namespace_is_mirrored_with_one_of_another_name() {
    let mut pool = Memory::default();
    assert_eq!(error(&mut pool, "rbd.mirror_remote_namespace_get", b""), ENOENT);
    done(&mut pool, "rbd.mirror_uuid_set", &to_vec("here"));
    // The pool is prepared for its namespaces' mirroring, and mirrors nothing itself.
    done(&mut pool, "rbd.mirror_mode_set", &to_vec(&3_u32));
    done(&mut pool, "rbd.mirror_remote_namespace_set", &to_vec("theirs"));
    assert_eq!(&done(&mut pool, "rbd.mirror_remote_namespace_get", b"")[..], &to_vec("theirs")[..]);
    done(&mut pool, "rbd.mirror_mode_set", &to_vec(&2_u32));
    assert_eq!(error(&mut pool, "rbd.mirror_remote_namespace_set", &to_vec("other")), EINVAL);
    assert_eq!(error(&mut pool, "rbd.mirror_mode_set", &to_vec(&4_u32)), EINVAL);
    done(&mut pool, "rbd.mirror_mode_set", &to_vec(&0_u32));
    assert_eq!(error(&mut pool, "rbd.mirror_remote_namespace_get", b""), ENOENT);
}

#[test]
fn snapshots_of_old_images_are_in_their_header() {
    let mut header = vec![0; 112];
    header[80..88].copy_from_slice(&(1_u64 << 30).to_le_bytes());
    let mut object = Memory { data: Some(header), slow: true, ..Memory::default() };
    for (name, id) in [("a", 3_u64), ("b", 5)] {
        done(&mut object, "rbd.snap_add", &to_vec(&(Name::from(name), id)));
    }
    assert_eq!(error(&mut object, "rbd.snap_add", &to_vec(&(Name::from("a"), 7_u64))), EEXIST);
    assert_eq!(error(&mut object, "rbd.snap_add", &to_vec(&(Name::from("c"), 4_u64))), ESTALE);
    done(&mut object, "rbd.snap_rename", &to_vec(&(3_u64, Name::from("longer"))));
    done(&mut object, "rbd.snap_remove", &to_vec("b"));
    let list = done(&mut object, "rbd.snap_list", b"");
    let expected = (5_u64, (1_u32, (3_u64, (1_u64 << 30, Name::from("longer")))));
    assert_eq!(&list[..], &to_vec(&expected)[..]);
    let mut other = Memory { data: Some(b"no header".to_vec()), ..Memory::default() };
    assert_eq!(error(&mut other, "rbd.snap_list", b""), EINVAL);
}

#[test]
fn mtime_of_an_unsnapped_object_is_set_by_the_writer() {
    // A method that only reads would not get as far: there is no object.
    assert!(find("rbd", "assert_snapc_seq").unwrap().access.writes());
    let mut none = Memory::default();
    done(&mut none, "rbd.assert_snapc_seq", &to_vec(&(0_u64, 0_u8)));
    assert_eq!(error(&mut none, "rbd.assert_snapc_seq", &to_vec(&(0_u64, 1_u8))), ERANGE);
}

// ---- journal ----

#[test]
fn a_journal_forgets_tags_that_no_client_needs() {
    let mut object = Memory::default();
    done(&mut object, "journal.create", &to_vec(&(24_u8, (4_u8, -1_i64))));
    assert_eq!(decoded::<u8>(&done(&mut object, "journal.get_splay_width", b"")), 4);
    done(&mut object, "journal.client_register", &to_vec(&(Name::from(""), Bytes::new())));
    let tag = |tid: u64, class: u64| to_vec(&(tid, (class, Bytes::from("t"))));
    done(&mut object, "journal.tag_create", &tag(0, u64::MAX));
    done(&mut object, "journal.tag_create", &tag(1, 0));
    assert_eq!(error(&mut object, "journal.tag_create", &tag(1, 0)), EEXIST);
    assert_eq!(error(&mut object, "journal.tag_create", &tag(5, 0)), ESTALE);
    let position = enveloped(|out| {
        1_u32.encode(out);
        versioned(out, 1, 1, |out| (0_u64, (1_u64, 9_u64)).encode(out));
    });
    done(&mut object, "journal.client_commit", &[to_vec(""), position].concat());
    done(&mut object, "journal.tag_create", &tag(2, 0));
    assert_eq!(error(&mut object, "journal.get_tag", &to_vec(&0_u64)), ENOENT);
    let request = to_vec(&(0_u64, (64_u64, (Name::from(""), None::<u64>))));
    assert_eq!(decoded::<u32>(&done(&mut object, "journal.tag_list", &request)), 2);
    let mut entries = Memory::default();
    done(&mut entries, "journal.guard_append", &to_vec(&4_u64));
    done(&mut entries, "journal.append", &to_vec(&(4_u64, Bytes::from("entry"))));
    assert_eq!(error(&mut entries, "journal.guard_append", &to_vec(&4_u64)), EOVERFLOW);
}
