//! Names of daemons and clients.

use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::fmt;

/// The kind of a daemon or client. Ceph: `CEPH_ENTITY_TYPE_*`, which are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntityType {
    Mon = 1,
    Mds = 2,
    Osd = 4,
    Client = 8,
    Mgr = 16,
}

impl EntityType {
    pub fn from_byte(value: u8) -> Result<EntityType, DecodeError> {
        Ok(match value {
            1 => EntityType::Mon,
            2 => EntityType::Mds,
            4 => EntityType::Osd,
            8 => EntityType::Client,
            16 => EntityType::Mgr,
            _ => return Err(DecodeError::BadValue { what: "entity type", value: value.into() }),
        })
    }
}

impl fmt::Display for EntityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EntityType::Mon => "mon",
            EntityType::Mds => "mds",
            EntityType::Osd => "osd",
            EntityType::Client => "client",
            EntityType::Mgr => "mgr",
        })
    }
}

/// A daemon or client by kind and number. Ceph: `entity_name_t`. Kind 0 (not known yet) and kinds of
/// later releases are kept as numbers, since clients send them inside requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    pub kind: u8,
    pub num: i64,
}

impl EntityName {
    pub fn new(kind: EntityType, num: i64) -> EntityName {
        EntityName { kind: kind as u8, num }
    }
    pub fn client(global_id: u64) -> EntityName {
        EntityName::new(EntityType::Client, global_id as i64)
    }
    pub fn osd(id: nacre_base::OsdId) -> EntityName {
        EntityName::new(EntityType::Osd, id.0.into())
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EntityType::from_byte(self.kind) {
            Ok(kind) => write!(f, "{kind}.{}", self.num),
            Err(_) => write!(f, "unknown.{}", self.num),
        }
    }
}

impl Encode for EntityName {
    fn encode(&self, out: &mut Vec<u8>) {
        self.kind.encode(out);
        self.num.encode(out);
    }
}
impl Decode for EntityName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(EntityName { kind: u8::decode(r)?, num: i64::decode(r)? })
    }
}

/// A daemon or client by kind and name, as people and keyrings know it: `client.admin`.
/// Ceph: `EntityName`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    pub kind: u32,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityType, id: impl Into<String>) -> AuthName {
        AuthName { kind: kind as u32, id: id.into() }
    }
    /// From `client.admin`.
    pub fn parse(text: &str) -> Option<AuthName> {
        let (kind, id) = text.split_once('.')?;
        let kinds = [EntityType::Mon, EntityType::Mds, EntityType::Osd, EntityType::Client, EntityType::Mgr];
        let kind = kinds.into_iter().find(|known| known.to_string() == kind)?;
        Some(AuthName::new(kind, id))
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u8::try_from(self.kind).ok().and_then(|kind| EntityType::from_byte(kind).ok()) {
            Some(kind) => write!(f, "{kind}.{}", self.id),
            None => write!(f, "unknown.{}", self.id),
        }
    }
}

impl Encode for AuthName {
    fn encode(&self, out: &mut Vec<u8>) {
        self.kind.encode(out);
        self.id.encode(out);
    }
}
impl Decode for AuthName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(AuthName { kind: u32::decode(r)?, id: String::decode(r)? })
    }
}
