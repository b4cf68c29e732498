//! The small values that maps and messages are made of.

mod addr;
mod entity;
mod object;
mod op;
pub mod op_flags;
mod release;
mod request;
mod stats;

pub use addr::{AddrKind, AddrVec, EntityAddr, Network};
pub use entity::{AuthName, EntityName, EntityType};
pub use nacre_base::SpgId;
pub use object::{ObjectId, ObjectLocator, object_hash};
pub use op::{CopySource, Extent, ListFilter, NotifyAcks, Op, OpCode, RawOp, ScrubLs, WatchAction};
pub use release::{Formats, Release, cluster_format};
pub use request::ReqId;
pub use stats::{ObjectStatSum, PoolStat, StoreStatfs};
