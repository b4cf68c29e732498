//! The small values that maps and messages are made of.

mod addr;
mod entity;
mod object;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use entity::{EntityName, EntityType};
pub use object::{ObjectId, ObjectLocator, object_hash};
