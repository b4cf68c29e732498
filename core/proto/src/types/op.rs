//! One operation on an object, as clients ask for it.
//!
//! `RawOp` is what travels and what a reply echoes: code, flags and 28 bytes whose meaning depends
//! on the code. `Op` is the same understood, with its input taken apart; `Op::parse` and
//! `Op::to_raw` translate.

use super::{ObjectId, ObjectLocator};
use bytes::Bytes;
use nacre_base::{Epoch, Name, SnapId};
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec, versioned};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What an operation does. Ceph: `CEPH_OSD_OP_*`. Mode (read, write), type and number in one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

macro_rules! op_codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl OpCode {
            $(pub const $name: OpCode = OpCode($code);)*

            /// Ceph's name; `???` for codes that have none.
            pub fn name(self) -> &'static str {
                match self {
                    $(OpCode::$name => $text,)*
                    _ => "???",
                }
            }
        }
    };
}
op_codes! {
    READ = 0x1201, "read";
    STAT = 0x1202, "stat";
    MAPEXT = 0x1203, "mapext";
    SPARSE_READ = 0x1205, "sparse-read";
    NOTIFY = 0x1206, "notify";
    NOTIFY_ACK = 0x1207, "notify-ack";
    ASSERT_VER = 0x1208, "assert-version";
    LIST_WATCHERS = 0x1209, "list-watchers";
    LIST_SNAPS = 0x120a, "list-snaps";
    SYNC_READ = 0x120b, "sync_read";
    TMAPGET = 0x120c, "tmapget";
    OMAPGETKEYS = 0x1211, "omap-get-keys";
    OMAPGETVALS = 0x1212, "omap-get-vals";
    OMAPGETHEADER = 0x1213, "omap-get-header";
    OMAPGETVALSBYKEYS = 0x1214, "omap-get-vals-by-keys";
    OMAP_CMP = 0x1219, "omap-cmp";
    ISDIRTY = 0x121d, "isdirty";
    COPY_GET = 0x121e, "copy-get";
    CHECKSUM = 0x121f, "checksum";
    CMPEXT = 0x1220, "cmpext";
    GETXATTR = 0x1301, "getxattr";
    GETXATTRS = 0x1302, "getxattrs";
    CMPXATTR = 0x1303, "cmpxattr";
    CALL = 0x1401, "call";
    PGLS = 0x1501, "pgls";
    PGLS_FILTER = 0x1502, "pgls-filter";
    PG_HITSET_LS = 0x1503, "pg-hitset-ls";
    PG_HITSET_GET = 0x1504, "pg-hitset-get";
    PGNLS = 0x1505, "pgnls";
    PGNLS_FILTER = 0x1506, "pgnls-filter";
    SCRUBLS = 0x1507, "scrubls";
    WRITE = 0x2201, "write";
    WRITEFULL = 0x2202, "writefull";
    TRUNCATE = 0x2203, "truncate";
    ZERO = 0x2204, "zero";
    DELETE = 0x2205, "delete";
    APPEND = 0x2206, "append";
    STARTSYNC = 0x2207, "startsync";
    SETTRUNC = 0x2208, "settrunc";
    TRIMTRUNC = 0x2209, "trimtrunc";
    TMAPPUT = 0x220b, "tmapput";
    CREATE = 0x220d, "create";
    ROLLBACK = 0x220e, "rollback";
    WATCH = 0x220f, "watch";
    OMAPSETVALS = 0x2215, "omap-set-vals";
    OMAPSETHEADER = 0x2216, "omap-set-header";
    OMAPCLEAR = 0x2217, "omap-clear";
    OMAPRMKEYS = 0x2218, "omap-rm-keys";
    COPY_FROM = 0x221a, "copy-from";
    UNDIRTY = 0x221c, "undirty";
    SETALLOCHINT = 0x2223, "set-alloc-hint";
    CACHE_PIN = 0x2224, "cache-pin";
    CACHE_UNPIN = 0x2225, "cache-unpin";
    WRITESAME = 0x2226, "write-same";
    SET_REDIRECT = 0x2227, "set-redirect";
    SET_CHUNK = 0x2228, "set-chunk";
    TIER_PROMOTE = 0x2229, "tier-promote";
    UNSET_MANIFEST = 0x222a, "unset-manifest";
    OMAPRMKEYRANGE = 0x222c, "omap-rm-key-range";
    COPY_FROM2 = 0x222d, "copy-from2";
    SETXATTR = 0x2301, "setxattr";
    SETXATTRS = 0x2302, "setxattrs";
    RESETXATTRS = 0x2303, "resetxattrs";
    RMXATTR = 0x2304, "rmxattr";
    TMAPUP = 0x320a, "tmapup";
    TMAP2OMAP = 0x3222, "tmap2omap";
    CACHE_FLUSH = 0x821f, "cache-flush";
    CACHE_EVICT = 0x8220, "cache-evict";
    CACHE_TRY_FLUSH = 0x8221, "cache-try-flush";
    TIER_FLUSH = 0x822b, "tier-flush";
    TIER_EVICT = 0x822c, "tier-evict";
}

impl OpCode {
    /// Whether the code says that it examines the object. A call's class method decides for itself.
    pub fn is_read(self) -> bool {
        self.0 & 0x1000 != 0 && self != OpCode::CALL
    }
    /// Whether the code says that it changes the object. A call's class method decides for itself.
    pub fn is_write(self) -> bool {
        self.0 & 0x2000 != 0
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "???" => write!(f, "op {:#06x}", self.0),
            name => f.write_str(name),
        }
    }
}
impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which findings of a scrub to list. Ceph: `scrub_ls_arg_t` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubLs {
    /// In which interval the listing began; zero: it begins.
    pub interval: Epoch,
    /// Clones that do not fit their heads instead of copies that differ.
    pub snapsets: bool,
    /// Those behind this name, namespace and snapshot; from the start if the name is empty.
    pub after: (Name, Name, SnapId),
    pub max: u64,
}

impl Encode for ScrubLs {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.interval.encode(out);
            u32::from(self.snapsets).encode(out);
            let (name, namespace, snap) = &self.after;
            name.encode(out);
            namespace.encode(out);
            snap.encode(out);
            self.max.encode(out);
        });
    }
}
impl Decode for ScrubLs {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("scrub_ls_arg_t", 1, |r, _| {
            Ok(ScrubLs {
                interval: Decode::decode(r)?,
                snapsets: u32::decode(r)? != 0,
                after: (Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?),
                max: Decode::decode(r)?,
            })
        })
    }
}

/// Code, flags and arguments as they travel. Ceph: `ceph_osd_op` without its payload length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOp {
    pub code: OpCode,
    /// See `op_flags::op`.
    pub flags: u32,
    /// A union in Ceph. Bytes that its code does not use may be anything; a reply echoes them.
    pub args: [u8; 28],
}

impl RawOp {
    /// Code, flags, arguments and payload length.
    pub const WIRE_LEN: usize = 38;

    pub(crate) fn encode_with_len(&self, payload_len: usize, out: &mut Vec<u8>) {
        self.code.0.encode(out);
        self.flags.encode(out);
        out.extend_from_slice(&self.args);
        (payload_len as u32).encode(out);
    }
    /// The operation and its payload length.
    pub(crate) fn decode_with_len(r: &mut Reader<'_>) -> Result<(RawOp, usize), DecodeError> {
        let op = RawOp { code: OpCode(u16::decode(r)?), flags: u32::decode(r)?, args: r.array()? };
        Ok((op, u32::decode(r)? as usize))
    }
}

/// A range of an object's bytes, and what the client knows about truncation (CephFS orders
/// truncations among writes by `truncate_seq`; zero where it does not matter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub off: u64,
    pub len: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
}

impl Extent {
    pub fn new(off: u64, len: u64) -> Extent {
        Extent { off, len, ..Extent::default() }
    }
}

/// What to do to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchAction {
    Unwatch,
    /// From clients before 2015, which do not ping.
    LegacyWatch,
    Watch,
    /// The same watch over a new connection.
    Reconnect,
    Ping,
    Other(u8),
}

impl WatchAction {
    fn from_byte(byte: u8) -> WatchAction {
        match byte {
            0 => WatchAction::Unwatch,
            1 => WatchAction::LegacyWatch,
            3 => WatchAction::Watch,
            5 => WatchAction::Reconnect,
            7 => WatchAction::Ping,
            other => WatchAction::Other(other),
        }
    }
    fn to_byte(self) -> u8 {
        match self {
            WatchAction::Unwatch => 0,
            WatchAction::LegacyWatch => 1,
            WatchAction::Watch => 3,
            WatchAction::Reconnect => 5,
            WatchAction::Ping => 7,
            WatchAction::Other(other) => other,
        }
    }
}

/// Where `copy-from` copies from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    pub snap: SnapId,
    /// The version that the source must have; zero for any.
    pub version: u64,
    pub flags: u8,
    pub fadvise: u32,
    pub name: Name,
    pub locator: ObjectLocator,
    /// Of `copy-from2` only: the truncation that the copy is to have, sequence and size.
    pub truncate: Option<(u32, u64)>,
}

/// Which objects a listing is of: those with this attribute, by the name under which it is stored, and this
/// value. Ceph: the filter `plain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFilter {
    pub attr: Name,
    pub value: Bytes,
}

/// An operation understood. `Unknown` holds those that no OSD of ours carries out: cache tiers,
/// manifests, what Ceph 16 refuses too, and codes of later releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `len` zero means to the end of the object.
    Read(Extent),
    Stat,
    MapExt(Extent),
    SparseRead(Extent),
    /// `kind`: 0 xxhash32, 1 xxhash64, 2 crc32c. `init` is the seed, 4 or 8 bytes.
    Checksum {
        off: u64,
        len: u64,
        chunk_size: u32,
        kind: u8,
        init: Bytes,
    },
    CmpExt {
        off: u64,
        data: Bytes,
    },
    AssertVer {
        version: u64,
    },
    ListWatchers,
    ListSnaps,
    /// The object's content, which is a map.
    TmapGet,
    /// `cookie` names the notifier's own request; it comes back in the completion.
    Notify {
        cookie: u64,
        timeout_secs: u32,
        payload: Bytes,
    },
    NotifyAck {
        notify_id: u64,
        cookie: u64,
        reply: Bytes,
    },
    OmapGetKeys {
        after: Name,
        max: u64,
    },
    OmapGetVals {
        after: Name,
        max: u64,
        prefix: Name,
    },
    OmapGetHeader,
    OmapGetValsByKeys(BTreeSet<Name>),
    /// For each key the value to compare with and how (the codes of `CmpXattr`).
    OmapCmp(BTreeMap<Name, (Bytes, i32)>),
    GetXattr {
        name: Name,
    },
    GetXattrs,
    /// `op`: 1 equal, 2 not equal, 3 greater, 4 greater or equal, 5 less, 6 less or equal, as in
    /// "the stored one is". `mode`: 1 bytes, 2 numbers.
    CmpXattr {
        name: Name,
        value: Bytes,
        op: u8,
        mode: u8,
    },
    /// A method of an object class; may read or write.
    Call {
        class: Name,
        method: Name,
        input: Bytes,
    },
    /// The next names of a placement group.
    List {
        max: u64,
        start_epoch: Epoch,
        cursor: ObjectId,
        filter: Option<ListFilter>,
    },
    /// When a cache tier's placement group counted which objects are used; in any other it never did.
    ListHitSets,
    GetHitSet,
    /// Whether the object changed since it was called clean.
    IsDirty,
    /// What the last scrub of a placement group found.
    ScrubLs(ScrubLs),

    /// `extent.len` is the length of `data`.
    Write {
        extent: Extent,
        data: Bytes,
    },
    WriteFull {
        data: Bytes,
    },
    Truncate {
        size: u64,
        truncate_size: u64,
        truncate_seq: u32,
    },
    Zero {
        off: u64,
        len: u64,
    },
    Delete,
    Append {
        data: Bytes,
    },
    Create {
        exclusive: bool,
    },
    Rollback {
        snap: SnapId,
    },
    /// Calls the object clean.
    Undirty,
    Watch {
        cookie: u64,
        action: WatchAction,
        generation: u32,
        timeout_secs: u32,
    },
    /// Fills `len` bytes with copies of `data`.
    WriteSame {
        off: u64,
        len: u64,
        data: Bytes,
    },
    SetAllocHint {
        object_size: u64,
        write_size: u64,
        flags: u32,
    },
    CopyFrom(CopySource),
    OmapSetVals(BTreeMap<Name, Bytes>),
    OmapSetHeader(Bytes),
    OmapClear,
    OmapRmKeys(BTreeSet<Name>),
    /// From `begin` up to and without `end`.
    OmapRmKeyRange {
        begin: Name,
        end: Name,
    },
    SetXattr {
        name: Name,
        value: Bytes,
    },
    RmXattr {
        name: Name,
    },
    /// The object's content becomes this map.
    TmapPut {
        map: Bytes,
    },
    /// Changes a map that is the object's content.
    TmapUp {
        commands: Bytes,
    },

    Unknown(OpCode),
}

impl Op {
    /// Whether it is about a placement group and not about an object.
    pub fn is_about_group(&self) -> bool {
        matches!(self, Op::List { .. } | Op::ListHitSets | Op::GetHitSet | Op::ScrubLs(_))
    }

    /// Understands an operation and its input. Values stay slices of `data`; names are copied, as
    /// they outlive the request. An error means that the client sent nonsense (EINVAL).
    pub fn parse(raw: &RawOp, data: &Bytes) -> Result<Op, DecodeError> {
        let args = &mut Reader::new(&raw.args);
        let input = &mut Reader::new(data);
        Ok(match raw.code {
            OpCode::READ | OpCode::SYNC_READ => Op::Read(extent(args)?),
            OpCode::STAT => Op::Stat,
            OpCode::MAPEXT => Op::MapExt(extent(args)?),
            OpCode::SPARSE_READ => Op::SparseRead(extent(args)?),
            OpCode::CHECKSUM => Op::Checksum {
                off: u64::decode(args)?,
                len: u64::decode(args)?,
                chunk_size: u32::decode(args)?,
                kind: u8::decode(args)?,
                init: data.clone(),
            },
            OpCode::CMPEXT => Op::CmpExt { off: sized_extent(args, data)?.off, data: data.clone() },
            OpCode::ASSERT_VER => {
                let _unused = u64::decode(args)?;
                Op::AssertVer { version: u64::decode(args)? }
            }
            OpCode::LIST_WATCHERS => Op::ListWatchers,
            OpCode::LIST_SNAPS => Op::ListSnaps,
            OpCode::TMAPGET => Op::TmapGet,
            OpCode::NOTIFY => {
                let _protocol = u32::decode(input)?;
                Op::Notify {
                    cookie: u64::decode(args)?,
                    timeout_secs: u32::decode(input)?,
                    payload: shared(data, input)?,
                }
            }
            OpCode::NOTIFY_ACK => Op::NotifyAck {
                notify_id: u64::decode(input)?,
                cookie: u64::decode(input)?,
                // Left out by clients that have nothing to say.
                reply: if input.is_empty() { Bytes::new() } else { shared(data, input)? },
            },
            OpCode::OMAPGETKEYS => Op::OmapGetKeys { after: Name::decode(input)?, max: u64::decode(input)? },
            OpCode::OMAPGETVALS => Op::OmapGetVals {
                after: Name::decode(input)?,
                max: u64::decode(input)?,
                prefix: Name::decode(input)?,
            },
            OpCode::OMAPGETHEADER => Op::OmapGetHeader,
            OpCode::OMAPGETVALSBYKEYS => Op::OmapGetValsByKeys(BTreeSet::decode(input)?),
            OpCode::OMAP_CMP => {
                let count = input.count(12)?;
                let pairs = (0..count)
                    .map(|_| Ok((Name::decode(input)?, (shared(data, input)?, i32::decode(input)?))));
                Op::OmapCmp(pairs.collect::<Result<_, DecodeError>>()?)
            }
            OpCode::GETXATTR => Op::GetXattr { name: xattr(args, data)?.name },
            OpCode::GETXATTRS => Op::GetXattrs,
            OpCode::CMPXATTR => {
                let Xattr { name, value } = xattr(args, data)?;
                Op::CmpXattr { name, value, op: u8::decode(args)?, mode: u8::decode(args)? }
            }
            OpCode::CALL => {
                let [class_len, method_len, _argc] = args.array()?;
                let input_len = u32::decode(args)? as usize;
                let class = Name::copy_from(input.take(class_len.into())?);
                let method = Name::copy_from(input.take(method_len.into())?);
                Op::Call { class, method, input: data.slice_ref(input.take(input_len)?) }
            }
            OpCode::PGNLS | OpCode::PGNLS_FILTER => Op::List {
                max: u64::decode(args)?,
                start_epoch: Epoch::decode(args)?,
                filter: if raw.code == OpCode::PGNLS_FILTER { Some(filter(input, data)?) } else { None },
                cursor: ObjectId::decode(input)?,
            },
            OpCode::PG_HITSET_LS => Op::ListHitSets,
            OpCode::PG_HITSET_GET => Op::GetHitSet,
            OpCode::ISDIRTY => Op::IsDirty,
            OpCode::UNDIRTY => Op::Undirty,
            OpCode::SCRUBLS => Op::ScrubLs(ScrubLs::decode(input)?),
            OpCode::WRITE => Op::Write { extent: sized_extent(args, data)?, data: data.clone() },
            OpCode::WRITEFULL => {
                sized_extent(args, data)?;
                Op::WriteFull { data: data.clone() }
            }
            OpCode::TRUNCATE => {
                let Extent { off: size, truncate_size, truncate_seq, .. } = extent(args)?;
                Op::Truncate { size, truncate_size, truncate_seq }
            }
            // A file's metadata server cuts an object off at the size that the file was truncated to.
            OpCode::TRIMTRUNC => {
                let Extent { truncate_size, truncate_seq, .. } = extent(args)?;
                Op::Truncate { size: truncate_size, truncate_size, truncate_seq }
            }
            OpCode::ZERO => {
                let Extent { off, len, .. } = extent(args)?;
                Op::Zero { off, len }
            }
            OpCode::DELETE => Op::Delete,
            OpCode::APPEND => {
                sized_extent(args, data)?;
                Op::Append { data: data.clone() }
            }
            OpCode::CREATE => Op::Create { exclusive: raw.flags & super::op_flags::op::EXCL != 0 },
            OpCode::ROLLBACK => Op::Rollback { snap: SnapId::decode(args)? },
            OpCode::WATCH => {
                let cookie = u64::decode(args)?;
                let _version = u64::decode(args)?;
                Op::Watch {
                    cookie,
                    action: WatchAction::from_byte(u8::decode(args)?),
                    generation: u32::decode(args)?,
                    timeout_secs: u32::decode(args)?,
                }
            }
            OpCode::WRITESAME => {
                let (off, len) = (u64::decode(args)?, u64::decode(args)?);
                same_len(u64::decode(args)?, data)?;
                Op::WriteSame { off, len, data: data.clone() }
            }
            OpCode::SETALLOCHINT => Op::SetAllocHint {
                object_size: u64::decode(args)?,
                write_size: u64::decode(args)?,
                flags: u32::decode(args)?,
            },
            OpCode::COPY_FROM | OpCode::COPY_FROM2 => Op::CopyFrom(CopySource {
                snap: SnapId::decode(args)?,
                version: u64::decode(args)?,
                flags: u8::decode(args)?,
                fadvise: u32::decode(args)?,
                name: Name::decode(input)?,
                locator: ObjectLocator::decode(input)?,
                truncate: if raw.code == OpCode::COPY_FROM2 {
                    Some((u32::decode(input)?, u64::decode(input)?))
                } else {
                    None
                },
            }),
            OpCode::OMAPSETVALS => {
                let count = input.count(8)?;
                let pairs = (0..count).map(|_| Ok((Name::decode(input)?, shared(data, input)?)));
                Op::OmapSetVals(pairs.collect::<Result<_, DecodeError>>()?)
            }
            OpCode::OMAPSETHEADER => Op::OmapSetHeader(data.clone()),
            OpCode::OMAPCLEAR => Op::OmapClear,
            OpCode::OMAPRMKEYS => Op::OmapRmKeys(BTreeSet::decode(input)?),
            OpCode::OMAPRMKEYRANGE => {
                Op::OmapRmKeyRange { begin: Name::decode(input)?, end: Name::decode(input)? }
            }
            OpCode::SETXATTR => {
                let Xattr { name, value } = xattr(args, data)?;
                Op::SetXattr { name, value }
            }
            OpCode::RMXATTR => Op::RmXattr { name: xattr(args, data)?.name },
            OpCode::TMAPPUT => Op::TmapPut { map: data.clone() },
            OpCode::TMAPUP => Op::TmapUp { commands: data.clone() },
            other => Op::Unknown(other),
        })
    }

    /// What a client sends for this operation: arguments (with flags only where they are part of
    /// the operation) and input. `Unknown` becomes its bare code.
    pub fn to_raw(&self) -> (RawOp, Bytes) {
        let mut args = Vec::with_capacity(28);
        let (code, input) = self.encode_parts(&mut args);
        args.resize(28, 0);
        let flags = match self {
            Op::Create { exclusive: true } => super::op_flags::op::EXCL,
            _ => 0,
        };
        (RawOp { code, flags, args: args.try_into().expect("no operation has more than 28") }, input)
    }

    fn encode_parts(&self, args: &mut Vec<u8>) -> (OpCode, Bytes) {
        let none = Bytes::new();
        // Where a code takes no arguments Ceph's library gives the input's length as an extent's.
        let with_len = |args: &mut Vec<u8>, input: Bytes| {
            Extent::new(0, input.len() as u64).encode(args);
            input
        };
        match self {
            Op::Read(extent) => {
                extent.encode(args);
                (OpCode::READ, none)
            }
            Op::Stat => (OpCode::STAT, none),
            Op::MapExt(extent) => {
                extent.encode(args);
                (OpCode::MAPEXT, none)
            }
            Op::SparseRead(extent) => {
                extent.encode(args);
                (OpCode::SPARSE_READ, none)
            }
            Op::Checksum { off, len, chunk_size, kind, init } => {
                off.encode(args);
                len.encode(args);
                chunk_size.encode(args);
                kind.encode(args);
                (OpCode::CHECKSUM, init.clone())
            }
            Op::CmpExt { off, data } => {
                Extent::new(*off, data.len() as u64).encode(args);
                (OpCode::CMPEXT, data.clone())
            }
            Op::AssertVer { version } => {
                0_u64.encode(args);
                version.encode(args);
                (OpCode::ASSERT_VER, none)
            }
            Op::ListWatchers => (OpCode::LIST_WATCHERS, none),
            Op::ListSnaps => (OpCode::LIST_SNAPS, none),
            Op::TmapGet => (OpCode::TMAPGET, none),
            Op::Notify { cookie, timeout_secs, payload } => {
                cookie.encode(args);
                let mut input = Vec::new();
                1_u32.encode(&mut input); // the only version of this input that ever was
                timeout_secs.encode(&mut input);
                payload.encode(&mut input);
                (OpCode::NOTIFY, input.into())
            }
            Op::NotifyAck { notify_id, cookie, reply } => {
                (OpCode::NOTIFY_ACK, to_vec(&((notify_id, cookie), reply)).into())
            }
            Op::OmapGetKeys { after, max } => {
                (OpCode::OMAPGETKEYS, with_len(args, to_vec(&(after, max)).into()))
            }
            Op::OmapGetVals { after, max, prefix } => {
                (OpCode::OMAPGETVALS, with_len(args, to_vec(&((after, max), prefix)).into()))
            }
            Op::OmapGetHeader => (OpCode::OMAPGETHEADER, none),
            Op::OmapGetValsByKeys(keys) => (OpCode::OMAPGETVALSBYKEYS, with_len(args, to_vec(keys).into())),
            Op::OmapCmp(pairs) => (OpCode::OMAP_CMP, with_len(args, to_vec(pairs).into())),
            Op::GetXattr { name } => (OpCode::GETXATTR, xattr_parts(name, &none, args)),
            Op::GetXattrs => (OpCode::GETXATTRS, none),
            Op::CmpXattr { name, value, op, mode } => {
                let input = xattr_parts(name, value, args);
                args.extend([*op, *mode]);
                (OpCode::CMPXATTR, input)
            }
            Op::Call { class, method, input } => {
                args.extend([class.len() as u8, method.len() as u8, 0]);
                (input.len() as u32).encode(args);
                (OpCode::CALL, [class.as_bytes(), method.as_bytes(), input].concat().into())
            }
            Op::List { max, start_epoch, cursor, filter: None } => {
                max.encode(args);
                start_epoch.encode(args);
                (OpCode::PGNLS, to_vec(cursor).into())
            }
            Op::List { max, start_epoch, cursor, filter: Some(ListFilter { attr, value }) } => {
                max.encode(args);
                start_epoch.encode(args);
                let mut input = Vec::new();
                ["pg", "filter", PLAIN_FILTER]
                    .map(Name::from)
                    .iter()
                    .for_each(|word| word.encode(&mut input));
                attr.encode(&mut input);
                value.encode(&mut input);
                cursor.encode(&mut input);
                (OpCode::PGNLS_FILTER, input.into())
            }
            Op::ListHitSets => (OpCode::PG_HITSET_LS, none),
            Op::GetHitSet => (OpCode::PG_HITSET_GET, none),
            Op::IsDirty => (OpCode::ISDIRTY, none),
            Op::Undirty => (OpCode::UNDIRTY, none),
            Op::ScrubLs(ask) => (OpCode::SCRUBLS, to_vec(ask).into()),
            Op::Write { extent, data } => {
                extent.encode(args);
                (OpCode::WRITE, data.clone())
            }
            Op::WriteFull { data } => (OpCode::WRITEFULL, with_len(args, data.clone())),
            Op::Truncate { size, truncate_size, truncate_seq } => {
                let (truncate_size, truncate_seq) = (*truncate_size, *truncate_seq);
                Extent { off: *size, len: 0, truncate_size, truncate_seq }.encode(args);
                (OpCode::TRUNCATE, none)
            }
            Op::Zero { off, len } => {
                Extent::new(*off, *len).encode(args);
                (OpCode::ZERO, none)
            }
            Op::Delete => (OpCode::DELETE, none),
            Op::Append { data } => (OpCode::APPEND, with_len(args, data.clone())),
            Op::Create { .. } => (OpCode::CREATE, none),
            Op::Rollback { snap } => {
                snap.encode(args);
                (OpCode::ROLLBACK, none)
            }
            Op::Watch { cookie, action, generation, timeout_secs } => {
                cookie.encode(args);
                0_u64.encode(args);
                args.push(action.to_byte());
                generation.encode(args);
                timeout_secs.encode(args);
                (OpCode::WATCH, none)
            }
            Op::WriteSame { off, len, data } => {
                off.encode(args);
                len.encode(args);
                (data.len() as u64).encode(args);
                (OpCode::WRITESAME, data.clone())
            }
            Op::SetAllocHint { object_size, write_size, flags } => {
                object_size.encode(args);
                write_size.encode(args);
                flags.encode(args);
                (OpCode::SETALLOCHINT, none)
            }
            Op::CopyFrom(source) => {
                source.snap.encode(args);
                source.version.encode(args);
                source.flags.encode(args);
                source.fadvise.encode(args);
                let mut input = to_vec(&(&source.name, &source.locator));
                match source.truncate {
                    None => (OpCode::COPY_FROM, input.into()),
                    Some(truncate) => {
                        truncate.encode(&mut input);
                        (OpCode::COPY_FROM2, input.into())
                    }
                }
            }
            Op::OmapSetVals(pairs) => (OpCode::OMAPSETVALS, with_len(args, to_vec(pairs).into())),
            Op::OmapSetHeader(header) => (OpCode::OMAPSETHEADER, with_len(args, header.clone())),
            Op::OmapClear => (OpCode::OMAPCLEAR, none),
            Op::OmapRmKeys(keys) => (OpCode::OMAPRMKEYS, with_len(args, to_vec(keys).into())),
            Op::OmapRmKeyRange { begin, end } => {
                (OpCode::OMAPRMKEYRANGE, with_len(args, to_vec(&(begin, end)).into()))
            }
            Op::SetXattr { name, value } => (OpCode::SETXATTR, xattr_parts(name, value, args)),
            Op::RmXattr { name } => (OpCode::RMXATTR, xattr_parts(name, &none, args)),
            Op::TmapPut { map } => (OpCode::TMAPPUT, with_len(args, map.clone())),
            Op::TmapUp { commands } => (OpCode::TMAPUP, with_len(args, commands.clone())),
            Op::Unknown(code) => (*code, none),
        }
    }
}

impl Encode for Extent {
    fn encode(&self, out: &mut Vec<u8>) {
        self.off.encode(out);
        self.len.encode(out);
        self.truncate_size.encode(out);
        self.truncate_seq.encode(out);
    }
}

fn extent(args: &mut Reader<'_>) -> Result<Extent, DecodeError> {
    Ok(Extent {
        off: u64::decode(args)?,
        len: u64::decode(args)?,
        truncate_size: u64::decode(args)?,
        truncate_seq: u32::decode(args)?,
    })
}

/// An extent that has to describe exactly the input.
fn sized_extent(args: &mut Reader<'_>, data: &Bytes) -> Result<Extent, DecodeError> {
    let extent = extent(args)?;
    same_len(extent.len, data)?;
    Ok(extent)
}

fn same_len(len: u64, data: &Bytes) -> Result<(), DecodeError> {
    if len == data.len() as u64 {
        Ok(())
    } else {
        Err(DecodeError::BadValue { what: "operation's length, which is not its input's", value: len })
    }
}

struct Xattr {
    name: Name,
    value: Bytes,
}

fn xattr(args: &mut Reader<'_>, data: &Bytes) -> Result<Xattr, DecodeError> {
    let (name_len, value_len) = (u32::decode(args)? as usize, u32::decode(args)? as usize);
    let mut input = Reader::new(data);
    let name = Name::copy_from(input.take(name_len)?);
    Ok(Xattr { name, value: data.slice_ref(input.take(value_len)?) })
}

fn xattr_parts(name: &Name, value: &Bytes, args: &mut Vec<u8>) -> Bytes {
    (name.len() as u32).encode(args);
    (value.len() as u32).encode(args);
    [name.as_bytes(), value].concat().into()
}

/// The one kind of filter that needs no object class.
const PLAIN_FILTER: &str = "plain";

/// Which kind, and what that kind needs to know.
fn filter(input: &mut Reader<'_>, data: &Bytes) -> Result<ListFilter, DecodeError> {
    // "pg" and "filter", as though it were a method of a class.
    let (_class, _method) = (Name::decode(input)?, Name::decode(input)?);
    if Name::decode(input)?.as_bytes() != PLAIN_FILTER.as_bytes() {
        return Err(DecodeError::BadValue { what: "the kind of a listing's filter", value: 0 });
    }
    Ok(ListFilter { attr: Name::decode(input)?, value: shared(data, input)? })
}

/// Bytes with their length in front, as a slice of the buffer that is being read.
fn shared(buffer: &Bytes, r: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    Ok(buffer.slice_ref(r.bytes()?))
}

/// Which watchers answered a notify and which did not; they are (client, cookie). Travels as the data of the
/// completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyAcks {
    pub acks: Vec<((u64, u64), Bytes)>,
    pub missed: Vec<(u64, u64)>,
}

impl Encode for NotifyAcks {
    fn encode(&self, out: &mut Vec<u8>) {
        self.acks.encode(out);
        self.missed.encode(out);
    }
}
impl Decode for NotifyAcks {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(NotifyAcks { acks: Vec::decode(r)?, missed: Vec::decode(r)? })
    }
}
