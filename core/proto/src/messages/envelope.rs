//! The list of all messages, and the way between them and what the messenger carries.

use super::body::{Body, front_only};
use super::*;
use bytes::Bytes;
use nacre_wire::DecodeError;

/// Ceph's middling priority, which everything of ours has: a connection is one ordered stream.
const PRIORITY: u16 = 127;

/// Why a message was refused. The connection is reset; the text is the whole log line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("message number {kind} (version {version}) is not known here")]
    Unknown { kind: u16, version: u16 },
    #[error("{name} of version {version} needs a reader of version {compat}, this one knows {known}")]
    TooNew { name: &'static str, version: u16, compat: u16, known: u16 },
    #[error("{name} of version {version} is too old, {oldest} is the oldest that is read")]
    TooOld { name: &'static str, version: u16, oldest: u16 },
    #[error("{name} of version {version}: {error}")]
    Body { name: &'static str, version: u16, error: DecodeError },
}

/// A message and what pairs it with its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    pub tid: u64,
    pub body: Message,
}

impl Envelope {
    /// A message that answers nothing and expects no answer.
    pub fn new(body: impl Into<Message>) -> Envelope {
        Envelope { tid: 0, body: body.into() }
    }
}

/// One row for each message: variant and content, Ceph's number, the version that is sent, the
/// oldest reader that can read that, the oldest version that is read here, Ceph's name.
/// The oldest is often 0: the kernel's client does not count the versions of simple messages.
macro_rules! messages {
    ($($variant:ident($body:ty) = $kind:literal, v $version:literal, compat $compat:literal,
       reads $oldest:literal, $name:literal;)*) => {
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $($variant($body),)*
        }

        impl Message {
            /// The numbers of all messages.
            pub const KINDS: &[u16] = &[$($kind),*];

            /// Ceph's name, for logs.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Message::$variant(_) => $name,)*
                }
            }
            /// Ceph's number.
            pub fn kind(&self) -> u16 {
                match self {
                    $(Message::$variant(_) => $kind,)*
                }
            }
        }

        $(impl From<$body> for Message {
            fn from(body: $body) -> Message {
                Message::$variant(body)
            }
        })*

        impl Envelope {
            pub fn to_raw(&self) -> RawMessage {
                let mut front = Vec::new();
                let raw = self.to_raw_behind(&mut front);
                RawMessage { front: front.into(), ..raw }
            }

            /// With its front segment appended to a buffer, and not in the message.
            pub fn to_raw_behind(&self, front: &mut Vec<u8>) -> RawMessage {
                let (version, compat, data) = match &self.body {
                    $(Message::$variant(body) => ($version, $compat, body.to_segments(front)),)*
                };
                RawMessage {
                    kind: self.body.kind(),
                    version,
                    compat,
                    tid: self.tid,
                    priority: PRIORITY,
                    front: Bytes::new(),
                    middle: Bytes::new(),
                    data,
                }
            }

            pub fn from_raw(raw: RawMessage) -> Result<Envelope, MessageError> {
                let body = match raw.kind {
                    $($kind => Message::$variant(read(&raw, $name, $version, $oldest)?),)*
                    kind => return Err(MessageError::Unknown { kind, version: raw.version }),
                };
                Ok(Envelope { tid: raw.tid, body })
            }
        }
    };
}

fn read<B: Body>(raw: &RawMessage, name: &'static str, known: u16, oldest: u16) -> Result<B, MessageError> {
    let &RawMessage { version, compat, .. } = raw;
    if compat > known {
        return Err(MessageError::TooNew { name, version, compat, known });
    }
    if version < oldest {
        return Err(MessageError::TooOld { name, version, oldest });
    }
    B::from_segments(raw).map_err(|error| MessageError::Body { name, version, error })
}

messages! {
    Ping(Ping) = 2, v 1, compat 1, reads 0, "ping";
    MonMap(MonMapMsg) = 4, v 1, compat 1, reads 0, "mon_map";
    MonGetMap(MonGetMap) = 5, v 1, compat 1, reads 0, "mon_getmap";
    Statfs(Statfs) = 13, v 2, compat 1, reads 2, "statfs";
    StatfsReply(StatfsReply) = 14, v 1, compat 1, reads 0, "statfs_reply";
    MonSubscribe(MonSubscribe) = 15, v 3, compat 1, reads 2, "mon_subscribe";
    MonSubscribeAck(MonSubscribeAck) = 16, v 1, compat 1, reads 0, "mon_subscribe_ack";
    Auth(Auth) = 17, v 1, compat 1, reads 0, "auth";
    AuthReply(AuthReply) = 18, v 1, compat 1, reads 0, "auth_reply";
    MonGetVersion(MonGetVersion) = 19, v 1, compat 1, reads 0, "mon_get_version";
    MonGetVersionReply(MonGetVersionReply) = 20, v 2, compat 1, reads 2, "mon_get_version_reply";
    MdsMap(MdsMapMsg) = 21, v 2, compat 1, reads 2, "mdsmap";
    OsdMap(OsdMapMsg) = 41, v 4, compat 3, reads 3, "osd_map";
    OsdOp(Box<OsdOp>) = 42, v 8, compat 3, reads 8, "osd_op";
    OsdOpReply(Box<OsdOpReply>) = 43, v 8, compat 2, reads 7, "osd_op_reply";
    WatchNotify(WatchNotify) = 44, v 3, compat 1, reads 3, "watch_notify";
    FsMap(FsMapMsg) = 45, v 1, compat 1, reads 0, "fsmap";
    PoolOpReply(PoolOpReply) = 48, v 1, compat 1, reads 0, "poolop_reply";
    PoolOp(PoolOp) = 49, v 4, compat 2, reads 4, "poolop";
    MonCommand(MonCommand) = 50, v 1, compat 1, reads 0, "mon_command";
    MonCommandAck(MonCommandAck) = 51, v 1, compat 1, reads 0, "mon_command_ack";
    Log(Log) = 52, v 1, compat 1, reads 0, "log";
    LogAck(LogAck) = 53, v 1, compat 1, reads 0, "log_ack";
    RemoveSnaps(RemoveSnaps) = 57, v 1, compat 1, reads 0, "remove_snaps";
    GetPoolStats(GetPoolStats) = 58, v 1, compat 1, reads 0, "getpoolstats";
    GetPoolStatsReply(GetPoolStatsReply) = 59, v 2, compat 1, reads 2, "getpoolstats_reply";
    OsdBackoff(OsdBackoff) = 61, v 1, compat 1, reads 0, "osd_backoff";
    Config(Config) = 62, v 1, compat 1, reads 0, "config";
    GetConfig(GetConfig) = 63, v 1, compat 1, reads 0, "get_config";
    Command(Command) = 97, v 1, compat 1, reads 0, "command";
    CommandReply(CommandReply) = 98, v 1, compat 1, reads 0, "command_reply";
    MdsBeacon(MdsBeacon) = 100, v 8, compat 6, reads 6, "mdsbeacon";
    MdsLoadTargets(MdsLoadTargets) = 101, v 1, compat 1, reads 0, "mds_load_targets";
    FsMapUser(FsMapUser) = 103, v 1, compat 1, reads 0, "fs_map_user";
    MgrOpen(MgrOpen) = 0x700, v 3, compat 1, reads 3, "mgropen";
    MgrConfigure(MgrConfigure) = 0x701, v 4, compat 1, reads 2, "mgrconfigure";
    MgrReport(MgrReport) = 0x702, v 9, compat 1, reads 3, "mgrreport";
    MgrMap(MgrMapMsg) = 0x704, v 1, compat 1, reads 0, "mgrmap";
    MgrClose(MgrClose) = 0x708, v 1, compat 1, reads 0, "mgrclose";
    MgrCommand(MgrCommand) = 0x709, v 1, compat 1, reads 0, "mgr_command";
    MgrCommandReply(MgrCommandReply) = 0x70a, v 1, compat 1, reads 0, "mgr_command_reply";

    // Ours alone, with numbers far from Ceph's. Their bodies carry versions of their own.
    Daemon(DaemonMsg) = 0x4e01, v 1, compat 1, reads 1, "nacre_daemon";
    Peer(PeerMsg) = 0x4e02, v 1, compat 1, reads 1, "nacre_peer";
    Quorum(QuorumMsg) = 0x4e03, v 1, compat 1, reads 1, "nacre_quorum";
}

front_only!(DaemonMsg, QuorumMsg);
