//! The fixed structures on the device; `docs/formats/store.md` draws them.

use crate::BLOCK;
use crate::space::Extent;
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c};

/// Ids may have shards since this version, and nothing else changed. What older versions wrote is read as it
/// is, and the next checkpoint, which is due at once, makes the store one of this version.
pub(crate) const VERSION: u32 = 10;
/// No omap had parts.
#[cfg(test)]
pub(crate) const VERSION_WHOLE: u32 = 6;
/// Its checkpoints can be read as well (`upgrade.rs`).
pub(crate) const VERSION_OLD: u32 = 5;
/// Of labels, and so of a log's records: the version in which they changed last.
const LOG_VERSION: u32 = 5;
/// Two copies of the superblock, so far apart that one damaged spot does not hit both.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, 16];
/// Where the log begins; what is before it belongs to the superblocks.
pub(crate) const LOG_START: u64 = 32;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"NacreSto";
const LABEL_MAGIC: [u8; 8] = *b"NacreWal";
const RECORD_MAGIC: [u8; 8] = *b"NacreLog";
const CHUNK_MAGIC: [u8; 8] = *b"NacreCkp";

/// In front of a record of the log.
pub(crate) const RECORD_HEADER: usize = 72;
/// Of a placed block in a record: its number and checksum.
pub(crate) const PLACED_LEN: usize = 8;
/// Of a block whose content is in a record: its number, the content's length and checksum.
pub(crate) const ENTRY_LEN: usize = 4 + 2 + 4;
/// In front of a chunk of a checkpoint.
pub(crate) const CHUNK_HEADER: usize = 64;
const SUPERBLOCK_CRC: usize = BLOCK - 4;
/// A superblock's counters grow by one at a time from zero, so arithmetic on them cannot overflow.
pub(crate) const COUNTER_MAX: u64 = u64::MAX / 2;
/// A checkpoint has at most this many sorted runs.
pub(crate) const RUNS_MAX: usize = 64;
const _: () = assert!(8 + 4 + 16 + 3 * 4 + 1 + 16 + 4 * 8 + 4 + RUNS_MAX * 28 <= SUPERBLOCK_CRC);
const _: () = assert!(8 + 16 + 3 * 8 + 5 * 4 + 4 == RECORD_HEADER);
const _: () = assert!(8 + 16 + 8 + 4 + 4 + 4 + 4 + 4 <= CHUNK_HEADER);

/// What is where, fixed when the store was formatted; only the log can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub uuid: [u8; 16],
    /// Of the device, in blocks.
    pub blocks: u32,
    /// Where the data begin. What is between the superblocks and them is for the log.
    pub data_start: u32,
    /// The log is the ring of this many blocks from `LOG_START` on, of this device or of its own.
    pub log_blocks: u32,
    pub log_is_apart: bool,
    /// In each record of the log. It is secret, so that no client's bytes look like a record.
    pub log_id: [u8; 16],
}

impl Geometry {
    pub fn data_blocks(&self) -> u32 {
        self.blocks - self.data_start
    }
    /// For what is found by a hash: which keys meet in one place differs from store to store.
    pub fn hash_seed(&self) -> u64 {
        let (seed, _) = self.uuid.split_first_chunk().expect("it has 16 bytes");
        u64::from_le_bytes(*seed)
    }
    pub fn holds_data(&self, extent: Extent) -> bool {
        extent.start >= self.data_start
            && extent.start.checked_add(extent.len).is_some_and(|end| end <= self.blocks)
    }
    /// The byte of the log's device where position `pos` of the log is; positions only grow, the ring turns.
    pub fn log_offset(&self, pos: u64) -> u64 {
        (LOG_START + pos % u64::from(self.log_blocks)) * BLOCK as u64
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Of the store: what its sorted runs look like.
    pub version: u32,
    pub geometry: Geometry,
    /// Grows with every checkpoint; the higher of the two copies counts.
    pub generation: u64,
    /// The checkpoint holds every transaction up to this one.
    pub seq: u64,
    /// The position in the log of the first record after it.
    pub log_pos: u64,
    /// How often transactions were lost that had been acknowledged.
    pub losses: u64,
    /// What the checkpoint is made of: everything, and then what changed, and changed again.
    pub runs: Vec<RunRef>,
}

/// A chain of chunks, never empty: a sorted run's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunRef {
    /// Of the checkpoint that wrote it.
    pub generation: u64,
    /// From it the others are found.
    pub last_chunk: Extent,
    pub chunks: u32,
    /// Of all chunks' payloads together, in bytes.
    pub payload_len: u64,
}

impl Encode for RunRef {
    fn encode(&self, out: &mut Vec<u8>) {
        self.generation.encode(out);
        (self.last_chunk.start, self.last_chunk.len).encode(out);
        self.chunks.encode(out);
        self.payload_len.encode(out);
    }
}
impl Decode for RunRef {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let generation = u64::decode(r)?;
        let last_chunk = Extent { start: Decode::decode(r)?, len: Decode::decode(r)? };
        Ok(RunRef { generation, last_chunk, chunks: Decode::decode(r)?, payload_len: Decode::decode(r)? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockError {
    Blank,
    Foreign,
    Version(u32),
    Checksum,
    Decode(DecodeError),
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend(SUPERBLOCK_MAGIC);
        self.version.encode(&mut out);
        out.extend(self.geometry.uuid);
        self.geometry.blocks.encode(&mut out);
        self.geometry.data_start.encode(&mut out);
        self.geometry.log_blocks.encode(&mut out);
        self.geometry.log_is_apart.encode(&mut out);
        out.extend(self.geometry.log_id);
        self.generation.encode(&mut out);
        self.seq.encode(&mut out);
        self.log_pos.encode(&mut out);
        self.losses.encode(&mut out);
        assert!(self.runs.len() <= RUNS_MAX);
        self.runs.encode(&mut out);
        out.resize(SUPERBLOCK_CRC, 0);
        crc32c(u32::MAX, &out).encode(&mut out);
        out
    }
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        if block.iter().all(|byte| *byte == 0) {
            return Err(SuperblockError::Blank);
        }
        if block[..8] != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Foreign);
        }
        let (body, crc) = block.split_at(SUPERBLOCK_CRC);
        if crc32c(u32::MAX, body).to_le_bytes() != crc {
            return Err(SuperblockError::Checksum);
        }
        let mut r = Reader::new(&body[8..]);
        let version = u32::decode(&mut r).map_err(SuperblockError::Decode)?;
        if !(VERSION_OLD..=VERSION).contains(&version) {
            return Err(SuperblockError::Version(version));
        }
        Superblock::decode_fields(&mut r, version).map_err(SuperblockError::Decode)
    }
    fn decode_fields(r: &mut Reader<'_>, version: u32) -> Result<Superblock, DecodeError> {
        let geometry = Geometry {
            uuid: r.array()?,
            blocks: Decode::decode(r)?,
            data_start: Decode::decode(r)?,
            log_blocks: Decode::decode(r)?,
            log_is_apart: Decode::decode(r)?,
            log_id: r.array()?,
        };
        // Checked here once, so that the arithmetic of `Geometry` holds everywhere else.
        let log_end = LOG_START + if geometry.log_is_apart { 0 } else { geometry.log_blocks.into() };
        if geometry.log_blocks == 0 || log_end > u64::from(geometry.data_start) {
            let value = geometry.log_blocks.into();
            return Err(DecodeError::BadValue { what: "blocks of log", value });
        }
        if geometry.data_start >= geometry.blocks {
            let value = geometry.data_start.into();
            return Err(DecodeError::BadValue { what: "begin of the data", value });
        }
        let (generation, seq, log_pos) = (u64::decode(r)?, u64::decode(r)?, u64::decode(r)?);
        let losses = u64::decode(r)?;
        let runs: Vec<RunRef> = Decode::decode(r)?;
        if runs.len() > RUNS_MAX {
            return Err(DecodeError::BadValue { what: "sorted runs", value: runs.len() as u64 });
        }
        for run in &runs {
            let last = run.last_chunk;
            if run.chunks == 0 || last.len == 0 || !geometry.holds_data(last) {
                return Err(DecodeError::BadValue { what: "checkpoint place", value: last.start.into() });
            }
        }
        for value in [generation, seq, log_pos, losses] {
            if value > COUNTER_MAX {
                return Err(DecodeError::BadValue { what: "superblock counter", value });
            }
        }
        Ok(Superblock { version, geometry, generation, seq, log_pos, losses, runs })
    }
}

/// What a device begins with that holds nothing but a store's log: twice, where superblocks are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Of the store.
    pub uuid: [u8; 16],
    pub log_id: [u8; 16],
    pub log_blocks: u32,
}

impl Label {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend(LABEL_MAGIC);
        LOG_VERSION.encode(&mut out);
        out.extend(self.uuid);
        out.extend(self.log_id);
        self.log_blocks.encode(&mut out);
        out.resize(SUPERBLOCK_CRC, 0);
        crc32c(u32::MAX, &out).encode(&mut out);
        out
    }
    /// None if the block is no label, or damaged. Labels change with the version of records only.
    pub fn decode(block: &[u8]) -> Option<Label> {
        let (body, crc) = block.split_at_checked(SUPERBLOCK_CRC)?;
        let mut r = Reader::new(body.strip_prefix(&LABEL_MAGIC)?);
        if crc32c(u32::MAX, body).to_le_bytes() != crc || u32::decode(&mut r).ok()? != LOG_VERSION {
            return None;
        }
        let (uuid, log_id) = (r.array().ok()?, r.array().ok()?);
        Some(Label { uuid, log_id, log_blocks: Decode::decode(&mut r).ok()? })
    }
}

/// A batch of transactions in the log, from a block boundary on, around the ring's end if need be.
///
/// First comes what says all about it, its *head*: this header, the transactions, the placed blocks and
/// the list of contents. Then the contents, and last the head of the record before once more, so that one
/// damaged place in the log costs contents at most, and the list says whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Of the log, see `Geometry::log_id`.
    pub log_id: [u8; 16],
    pub pos: u64,
    pub first_seq: u64,
    /// Transactions; they are numbered from `first_seq` on. There may be none.
    pub count: u64,
    /// Bytes of transactions after the header.
    pub body_len: u32,
    /// Pairs of block and checksum after the transactions.
    pub placed: u32,
    /// Blocks whose contents are in the record.
    pub contents: u32,
    /// Bytes of contents.
    pub contents_len: u32,
    /// Bytes of the head of the record before; zero if that is not repeated.
    pub repeat_len: u32,
}

impl RecordHeader {
    /// Of the whole record, in bytes.
    pub fn record_len(&self) -> u64 {
        self.head_len() + u64::from(self.contents_len) + u64::from(self.repeat_len)
    }
    /// With this header.
    pub fn head_len(&self) -> u64 {
        RECORD_HEADER as u64
            + u64::from(self.body_len)
            + u64::from(self.placed) * PLACED_LEN as u64
            + u64::from(self.contents) * ENTRY_LEN as u64
    }
    /// Fills the first `RECORD_HEADER` bytes of `head`, which has everything else and nothing more.
    pub fn seal(&self, head: &mut [u8]) {
        let mut out = Vec::with_capacity(RECORD_HEADER);
        out.extend(RECORD_MAGIC);
        out.extend(self.log_id);
        self.pos.encode(&mut out);
        self.first_seq.encode(&mut out);
        self.count.encode(&mut out);
        self.body_len.encode(&mut out);
        self.placed.encode(&mut out);
        self.contents.encode(&mut out);
        self.contents_len.encode(&mut out);
        self.repeat_len.encode(&mut out);
        let crc = crc32c(crc32c(u32::MAX, &out), &head[RECORD_HEADER..]);
        crc.encode(&mut out);
        head[..RECORD_HEADER].copy_from_slice(&out);
    }
    /// The header and the checksum of the head; None if this is not a header.
    pub fn decode(bytes: &[u8]) -> Option<(RecordHeader, u32)> {
        let mut r = Reader::new(bytes);
        if r.array::<8>().ok()? != RECORD_MAGIC {
            return None;
        }
        Self::decode_fields(&mut r).ok()
    }
    fn decode_fields(r: &mut Reader<'_>) -> Result<(RecordHeader, u32), DecodeError> {
        let header = RecordHeader {
            log_id: r.array()?,
            pos: Decode::decode(r)?,
            first_seq: Decode::decode(r)?,
            count: Decode::decode(r)?,
            body_len: Decode::decode(r)?,
            placed: Decode::decode(r)?,
            contents: Decode::decode(r)?,
            contents_len: Decode::decode(r)?,
            repeat_len: Decode::decode(r)?,
        };
        Ok((header, Decode::decode(r)?))
    }
    /// `head` is exactly `head_len` bytes.
    pub fn crc_of(head: &[u8]) -> u32 {
        crc32c(crc32c(u32::MAX, &head[..RECORD_HEADER - 4]), &head[RECORD_HEADER..])
    }
}

/// A piece of a checkpoint. The pieces form a chain from the last to the first, since where the
/// next one will be is not known when a piece is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub uuid: [u8; 16],
    pub generation: u64,
    pub number: u32,
    /// The chunk before this one; nonsense for number 0.
    pub prev: Extent,
    pub payload_len: u32,
}

impl ChunkHeader {
    pub fn encode(&self, payload: &[u8], extent: Extent) -> Vec<u8> {
        let mut out = Vec::with_capacity(extent.len as usize * BLOCK);
        out.extend(CHUNK_MAGIC);
        out.extend(self.uuid);
        self.generation.encode(&mut out);
        self.number.encode(&mut out);
        (self.prev.start, self.prev.len).encode(&mut out);
        self.payload_len.encode(&mut out);
        out.resize(CHUNK_HEADER - 4, 0);
        let crc = crc32c(crc32c(u32::MAX, &out), payload);
        crc.encode(&mut out);
        out.extend_from_slice(payload);
        out.resize(extent.len as usize * BLOCK, 0);
        out
    }
    /// The header and the payload; None if the chunk is damaged or something else.
    pub fn decode(chunk: &[u8]) -> Option<(ChunkHeader, &[u8])> {
        let mut r = Reader::new(chunk);
        if r.array::<8>().ok()? != CHUNK_MAGIC {
            return None;
        }
        let header = ChunkHeader {
            uuid: r.array().ok()?,
            generation: Decode::decode(&mut r).ok()?,
            number: Decode::decode(&mut r).ok()?,
            prev: Extent { start: Decode::decode(&mut r).ok()?, len: Decode::decode(&mut r).ok()? },
            payload_len: Decode::decode(&mut r).ok()?,
        };
        let payload = chunk[CHUNK_HEADER..].get(..header.payload_len as usize)?;
        let crc = crc32c(crc32c(u32::MAX, &chunk[..CHUNK_HEADER - 4]), payload);
        (crc.to_le_bytes() == chunk[CHUNK_HEADER - 4..CHUNK_HEADER]).then_some((header, payload))
    }
}
