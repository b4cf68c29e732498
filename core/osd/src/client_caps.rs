//! Whether a client may do what it asks for.

use crate::ops::{FlaggedOp, method_of};
use nacre_auth::caps::{ClassCall, OsdAccess, OsdCaps};
use nacre_base::PoolId;
use nacre_machine::Peer;
use nacre_proto::maps::{OsdMap, Pool};
use nacre_proto::messages::OsdOp;
use nacre_proto::types::{Op, OpCode};
use smallvec::SmallVec;
use std::net::IpAddr;

/// What the peer of a session may do.
pub(crate) struct Access {
    /// None: everything, since authentication is off.
    caps: Option<OsdCaps>,
    from: IpAddr,
}

impl Access {
    pub(crate) fn of(peer: &Peer) -> Access {
        // A text that a newer monitor let through and that means nothing here allows nothing.
        let caps = peer.proved.as_ref().map(|proved| OsdCaps::parse(&proved.caps).unwrap_or_default());
        Access { caps, from: peer.ip() }
    }
    /// Full capabilities, which also allow commands to the daemon itself.
    pub(crate) fn is_everything(&self) -> bool {
        self.caps.as_ref().is_none_or(|caps| caps.is_allow_all(self.from))
    }

    /// `ops` are those of `op`, `id` and `pool` its pool's in this map.
    pub(crate) fn allows(
        &self,
        op: &OsdOp,
        ops: &[FlaggedOp],
        map: &OsdMap,
        (id, pool): (PoolId, &Pool),
    ) -> bool {
        let Some(caps) = self.caps.as_ref().filter(|caps| !caps.is_allow_all(self.from)) else { return true };
        let (mut need_read, mut need_write) = (false, false);
        let mut classes = SmallVec::<[ClassCall<'_>; 2]>::new();
        for (raw, FlaggedOp { op, is_write, .. }) in op.ops.iter().zip(ops) {
            match op {
                Op::Call { class, method, .. } => {
                    // One that does not exist is refused as such.
                    let Some((class, method)) = method_of(class, method) else { continue };
                    let (method, read, write) = (method.name, method.access.reads(), method.access.writes());
                    classes.push(ClassCall { class, method, read, write, listed: true });
                }
                _ => {
                    need_write |= is_write;
                    // What a watch is told depends on those that there are.
                    need_read |= raw.op.code.is_read() || raw.op.code == OpCode::WATCH;
                }
            }
        }
        let locator = &op.locator;
        let question = OsdAccess {
            pool: map.pool_name(id).unwrap_or_default(),
            namespace: locator.namespace.as_bytes(),
            applications: &pool.applications,
            object: if locator.key.is_empty() { op.name.as_bytes() } else { locator.key.as_bytes() },
            need_read,
            need_write,
            classes: &classes,
        };
        caps.allows(&question, self.from)
    }
}
