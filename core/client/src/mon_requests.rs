//! What a client asks monitors.

use bytes::Bytes;
use nacre_base::{PoolId, SnapId};
use nacre_monc::MakeMessage;
use nacre_proto::maps::Uuid;
use nacre_proto::messages::{
    GetPoolStats, Message, MonCommand, MonGetVersion, PaxosVersion, PoolOp, PoolOpKind, Statfs,
};

#[derive(Debug)]
pub(crate) struct AskVersion;
impl MakeMessage for AskVersion {
    fn make(&self, tid: u64, _: Uuid) -> Message {
        MonGetVersion { handle: tid, what: "osdmap".to_owned() }.into()
    }
}

#[derive(Debug)]
pub(crate) struct AskCommand {
    pub(crate) command: String,
    pub(crate) input: Bytes,
}
impl MakeMessage for AskCommand {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        let (cmd, input) = (vec![self.command.clone()], self.input.clone());
        MonCommand { version: PaxosVersion(0), fsid, cmd, input }.into()
    }
}

#[derive(Debug)]
pub(crate) struct AskPoolStats(pub(crate) Vec<String>);
impl MakeMessage for AskPoolStats {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        GetPoolStats { version: PaxosVersion(0), fsid, pools: self.0.clone() }.into()
    }
}

#[derive(Debug)]
pub(crate) struct AskStatfs(pub(crate) Option<PoolId>);
impl MakeMessage for AskStatfs {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        Statfs { version: PaxosVersion(0), fsid, data_pool: self.0 }.into()
    }
}

#[derive(Debug)]
pub(crate) struct AskPoolOp {
    pub(crate) pool: PoolId,
    pub(crate) op: PoolOpKind,
    pub(crate) snap: SnapId,
}
impl MakeMessage for AskPoolOp {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        let AskPoolOp { pool, op, snap } = *self;
        PoolOp {
            version: PaxosVersion(0),
            fsid,
            pool: pool.0 as u32,
            op,
            auid: 0,
            snap,
            name: String::new(),
            crush_rule: 0,
        }
        .into()
    }
}
