//! Maps of before there were omaps: the object's content is a header and pairs of keys and values.
//!
//! The content is `header_len:u32 header count:u32 (key_len:u32 key value_len:u32 value)*`, the keys in
//! order. An update is a string of commands, each one letter and what it is about.

use super::draft::Draft;
use super::{OpResult, data, fail, ok};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL, ENOENT};
use nacre_wire::{Decode, DecodeError, Reader, to_vec};
use std::collections::BTreeMap;

#[derive(Default)]
struct TrivialMap {
    header: Bytes,
    pairs: BTreeMap<Name, Bytes>,
}

impl TrivialMap {
    fn read(content: &Bytes) -> Result<TrivialMap, DecodeError> {
        let mut r = Reader::new(content);
        if r.is_empty() {
            return Ok(TrivialMap::default()); // of an object that is new
        }
        Ok(TrivialMap { header: Bytes::decode(&mut r)?, pairs: BTreeMap::decode(&mut r)? })
    }

    fn store(self, draft: &mut Draft<'_>) -> OpResult {
        data::write_full(draft, &to_vec(&(self.header, self.pairs)).into())
    }
}

enum Command {
    Header(Bytes),
    Set(Name, Bytes),
    Create(Name, Bytes),
    Remove(Name),
    /// The same, and no error if it is not there.
    RemoveAny(Name),
}

impl Decode for Command {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            b'h' => Command::Header(Decode::decode(r)?),
            b's' => Command::Set(Decode::decode(r)?, Decode::decode(r)?),
            b'c' => Command::Create(Decode::decode(r)?, Decode::decode(r)?),
            b'r' => Command::Remove(Decode::decode(r)?),
            b'R' => Command::RemoveAny(Decode::decode(r)?),
            other => return Err(DecodeError::BadValue { what: "tmap command", value: other.into() }),
        })
    }
}

/// Whatever is not in order in what was given, is in what is stored.
pub fn put(draft: &mut Draft<'_>, given: &Bytes) -> OpResult {
    let Ok(map) = TrivialMap::read(given) else { return fail(EINVAL) };
    map.store(draft)
}

pub fn update(draft: &mut Draft<'_>, commands: &Bytes) -> OpResult {
    if commands.is_empty() {
        return ok();
    }
    let content = draft.read(0, draft.size)?;
    let Ok(mut map) = TrivialMap::read(&content) else { return fail(EINVAL) };
    let mut r = Reader::new(commands);
    while !r.is_empty() {
        match Command::decode(&mut r) {
            Ok(Command::Header(header)) => map.header = header,
            Ok(Command::Set(key, value)) => drop(map.pairs.insert(key, value)),
            Ok(Command::Create(key, _)) if map.pairs.contains_key(&key) => return fail(EEXIST),
            Ok(Command::Create(key, value)) => drop(map.pairs.insert(key, value)),
            Ok(Command::Remove(key)) if !map.pairs.contains_key(&key) => return fail(ENOENT),
            Ok(Command::Remove(key) | Command::RemoveAny(key)) => drop(map.pairs.remove(&key)),
            Err(_) => return fail(EINVAL),
        }
    }
    map.store(draft)
}
