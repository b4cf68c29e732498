//! Write credits: whether all disks of a write have space for it, known before it is sent to any of them.
//!
//! A store that is full refuses a transaction, and an OSD whose store refuses what its primary took can only
//! stop. So each OSD announces to the primaries that send it writes how many bytes each may have in flight
//! (`OwnCredit`), and a primary stays within the credits of all members of a PG (`WriteCredits`). Why this is
//! enough: `docs/decisions/0027-space-credits.md`. Memory credits work in the same way
//! (`docs/decisions/0033-write-memory-credits.md`).

use super::waiting::{Order, WaitList};
use nacre_base::{Name, OsdId, PgId};
use nacre_machine::{Statfs, StoreView};
use nacre_proto::maps::FullRatios;
use nacre_proto::messages::peer::Room;
use nacre_proto::transaction::{Change, Transaction};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fraction of the device that must stay free, as a divisor.
const FULL_PARTS: u64 = FullRatios::FAILSAFE_PARTS;
/// A full device accepts writes again when this fraction is free (a divisor, as those below).
const NOT_FULL_PARTS: u64 = FullRatios::FAILSAFE_END_PARTS;
/// Credits are unlimited as long as this fraction is free,
const SCARCE_PARTS: u64 = 8;
/// and again when this fraction is free.
const PLENTY_PARTS: u64 = 7;
/// The fraction reserved for changes that need no credit: watch records, removed snapshots.
const KEPT_PARTS: u64 = 100;
/// A window that changes by less, or that neither doubles nor halves, is not announced again.
const WINDOW_STEP: u64 = 64 << 10;
/// The store's allocation unit.
const BLOCK: u64 = 4096;
/// Space of a write beside data, attributes and keys: its log entry and index records.
const ENTRY: u64 = 1024;
/// Writes up to this size may exceed the memory credit by a factor of two.
pub const SMALL: u64 = 128 << 10;
/// Memory of each write in flight beside its data: the request, its log entry, and its messages and
/// transaction.
const IN_FLIGHT: u64 = 4 << 10;
/// Space of a clone: it has its own index records, but shares blocks.
const CLONE: u64 = 32 << 10;

/// The credit that this OSD announces, by its own disk and memory.
pub struct OwnCredit {
    said: Room,
    /// Bytes of memory for writes in flight to the disk.
    memory: u64,
}

impl OwnCredit {
    pub fn new(memory: usize) -> OwnCredit {
        OwnCredit { said: Room::PLENTY, memory: memory as u64 }
    }
    /// The credit that was announced last.
    pub fn said(&self) -> Room {
        self.said
    }
    /// The credit to announce, if it changed enough. `writers`: OSDs that send writes to this one, itself
    /// included.
    pub fn look(&mut self, space: &Statfs, writers: u64) -> Option<Room> {
        let Statfs { total, available, .. } = *space;
        let said = self.said;
        let plenty = total / if said.window == u64::MAX { SCARCE_PARTS } else { PLENTY_PARTS };
        // One writer more or less does not change the announcement.
        let memory = (self.memory / writers.next_power_of_two()).max(1);
        let enough = total / if said.full { NOT_FULL_PARTS } else { FULL_PARTS };
        let room = if available >= plenty {
            Room { memory, ..Room::PLENTY }
        } else {
            // The announced credit may be up to twice the actual one.
            let free = available.saturating_sub(total / KEPT_PARTS);
            Room { full: available < enough, window: free / (2 * writers), memory }
        };
        let halved = room.window < said.window / 2;
        let doubled = room.window / 2 > said.window;
        let news = (room.full, room.memory) != (said.full, said.memory)
            || (halved || doubled) && room.window.abs_diff(said.window) >= WINDOW_STEP
            || halved && room.window < WINDOW_STEP / 4 && said.window >= WINDOW_STEP / 4;
        if news {
            self.said = room;
        }
        news.then_some(room)
    }
}

/// The effect of a write on the used space of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    More,
    /// It needs space; replaced blocks are freed later.
    Same,
    /// It takes no space for data.
    Less,
}

/// Whether there is credit for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    /// It waits until other writes in flight have arrived.
    Soon,
    /// It waits until space is freed.
    No,
}

/// The announced credits of all OSDs, and the writes of this OSD in flight.
pub struct WriteCredits {
    said: BTreeMap<OsdId, Room>,
    in_flight: Arc<InFlight>,
    changes: u64,
    /// Placement groups with writes that wait for others in flight, and how many bytes may be left of those.
    waiting: RefCell<WaitList<u64>>,
}

/// All writes in flight.
#[derive(Debug, Default)]
struct InFlight {
    /// The space that disks need for them.
    bytes: AtomicU64,
    writes: AtomicU64,
}

impl InFlight {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    fn memory(&self) -> u64 {
        self.bytes() + IN_FLIGHT * self.writes.load(Ordering::Relaxed)
    }
}

/// A write in flight to disks. Dropping this returns the credit: the write has arrived, or will not.
#[derive(Debug)]
pub struct InFlightWrite {
    bytes: u64,
    all: Arc<InFlight>,
}

impl Drop for InFlightWrite {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.writes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WriteCredits {
    /// Records the credit that an OSD announced; it is valid until the next announcement.
    pub fn told(&mut self, osd: OsdId, room: Room) {
        self.changes += 1;
        self.said.insert(osd, room);
    }
    /// Whether the OSD announced that it is full.
    pub fn is_full(&self, osd: OsdId) -> bool {
        self.said.get(&osd).is_some_and(|room| room.full)
    }
    /// Changes whenever a verdict may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    #[cfg(test)]
    pub fn memory_in_flight(&self) -> u64 {
        self.in_flight.memory()
    }
    pub fn send(&self, bytes: u64) -> InFlightWrite {
        self.in_flight.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.in_flight.writes.fetch_add(1, Ordering::Relaxed);
        InFlightWrite { bytes, all: self.in_flight.clone() }
    }
    /// The verdict for a write that needs this many bytes on all of these OSDs.
    pub fn verdict(&self, members: impl Iterator<Item = OsdId>, bytes: u64, growth: Growth) -> Verdict {
        let in_flight = self.in_flight.bytes();
        let mut verdict = Verdict::Yes;
        for room in members.filter_map(|osd| self.said.get(&osd)) {
            let takes = growth != Growth::Less;
            if room.full && growth == Growth::More || takes && bytes > room.window {
                return Verdict::No;
            }
            let behind_others = takes && in_flight + bytes > room.window;
            if behind_others || is_crowded(self.in_flight.memory(), bytes, room) {
                verdict = Verdict::Soon;
            }
        }
        verdict
    }
    /// The PG is woken when there may be credit. The PG that has waited longest is first.
    pub fn wait(&self, pg: PgId) {
        let mut waiting = self.waiting.borrow_mut();
        let in_flight = self.in_flight.memory();
        let before = waiting.get(0, pg).copied().unwrap_or_default();
        waiting.join(0, pg, in_flight.max(before), false);
    }
    /// A PG that waits for writes in flight, of which enough have arrived.
    pub fn next_waiting(&self) -> Option<PgId> {
        let in_flight = self.in_flight.memory();
        self.waiting.borrow_mut().take_first(0, |before| in_flight < *before)
    }
}

impl Default for WriteCredits {
    fn default() -> WriteCredits {
        WriteCredits {
            said: BTreeMap::new(),
            in_flight: Arc::default(),
            changes: 0,
            waiting: RefCell::new(WaitList::new(Order::Arrival)),
        }
    }
}

/// Small writes are admitted while large ones fill the memory, and a write that exceeds all of the memory is
/// admitted alone.
fn is_crowded(in_flight: u64, bytes: u64, room: &Room) -> bool {
    let most = if bytes <= SMALL { room.memory.saturating_mul(2) } else { room.memory };
    in_flight >= most
}

/// The most that a store needs for a transaction, of a write or of a part of an object.
pub fn bytes_for(txn: &Transaction) -> u64 {
    // An index is written anew beside the old one.
    let pairs = |pairs: &BTreeMap<Name, bytes::Bytes>| {
        2 * pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64 + 64).sum::<u64>()
    };
    let of = |change: &Change| match change {
        Change::Write { offset, data } | Change::Xor { offset, data } => {
            let blocks = (offset + data.len() as u64).div_ceil(BLOCK) - offset / BLOCK;
            blocks * (BLOCK + 64)
        }
        Change::Zero { .. } => 2 * BLOCK,
        Change::Truncate { .. } => BLOCK,
        Change::SetAttrs(attrs) => pairs(attrs),
        Change::OmapSet(keys) => pairs(keys),
        Change::OmapSetHeader(header) => 2 * header.len() as u64,
        Change::CloneFrom(_) => CLONE,
        Change::CloneBlocks { blocks, .. } => blocks.len() as u64 * 64,
        _ => 0,
    };
    ENTRY + txn.changes.iter().map(|(_, change)| of(change)).sum::<u64>()
}

/// Whether the device has space for this many more bytes beside the reserve.
pub fn has_space(store: &dyn StoreView, bytes: u64) -> bool {
    let space = store.statfs();
    space.available >= space.total / FULL_PARTS + bytes
}

/// The same for data that replaces as much: it must be written even on a full device, and must leave space
/// for the writes that are in flight.
pub fn has_space_to_replace(store: &dyn StoreView, bytes: u64) -> bool {
    let space = store.statfs();
    space.available >= space.total / KEPT_PARTS + 4 * bytes
}

/// Whether the device has space for the bytes at all.
pub fn fits(store: &dyn StoreView, bytes: u64) -> bool {
    store.statfs().available >= 2 * bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(available: u64) -> Statfs {
        Statfs { total: 1000 * MIB, available, ..Statfs::default() }
    }

    #[test]
    fn few_messages_report_a_disk_that_fills_and_empties() {
        let mut own = OwnCredit::new(8 << 20);
        let mut said = Vec::new();
        let down = (0..=1000).rev();
        for available in down.chain(0..=1000) {
            said.extend(own.look(&space(available * MIB), 3));
        }
        let full: Vec<bool> = said.iter().map(|room| room.full).collect();
        let first = full.iter().position(|full| *full).unwrap();
        assert_eq!(said[first].window, 20 * MIB / 6);
        assert!(said.len() < 24, "{said:?}");
        assert_eq!(said.last(), Some(&Room { memory: 2 << 20, ..Room::PLENTY }));
        // Oscillation around a limit is not announced.
        own.look(&space(30 * MIB), 3).unwrap();
        own.look(&space(29 * MIB), 3);
        assert!((0..100).all(|n| own.look(&space((29 + n % 5) * MIB), 3).is_none()));
    }

    #[test]
    fn what_is_on_its_way_together_never_exceeds_what_was_free() {
        // Three primaries use all their credit; the disk announces each change before its reply.
        let mut own = OwnCredit::new(8 << 20);
        let (mut available, mut rooms) = (200 * MIB, [const { Room::PLENTY }; 3]);
        let mut stored = 0;
        loop {
            if let Some(room) = own.look(&space(available), 3) {
                rooms = [room; 3];
            }
            let sent: u64 = rooms.iter().filter(|room| !room.full).map(|room| room.window.min(4 * MIB)).sum();
            if sent == 0 {
                break;
            }
            assert!(sent <= available, "{sent} of {available}");
            available -= sent;
            stored += sent;
        }
        assert!(stored > 160 * MIB && available > 10 * MIB, "{stored}, {available}");
    }

    #[test]
    fn write_waits_for_other_writes_or_for_space() {
        let mut rooms = WriteCredits::default();
        let group = || [OsdId(0), OsdId(1)].into_iter();
        let first = rooms.send(60);
        assert_eq!(rooms.verdict(group(), 1 << 40, Growth::More), Verdict::Yes);
        rooms.told(OsdId(1), Room { window: 100, ..Room::PLENTY });
        assert_eq!(rooms.verdict(group(), 40, Growth::More), Verdict::Yes);
        assert_eq!(rooms.verdict(group(), 41, Growth::More), Verdict::Soon);
        assert_eq!(rooms.verdict(group(), 101, Growth::More), Verdict::No);
        assert_eq!(rooms.verdict([OsdId(2)].into_iter(), 101, Growth::More), Verdict::Yes);
        drop(first);
        assert_eq!(rooms.verdict(group(), 100, Growth::More), Verdict::Yes);
        rooms.told(OsdId(1), Room { full: true, window: 100, ..Room::PLENTY });
        assert_eq!(rooms.verdict(group(), 1, Growth::More), Verdict::No);
        assert_eq!(rooms.verdict(group(), 100, Growth::Same), Verdict::Yes);
        rooms.told(OsdId(1), Room::PLENTY);
        assert_eq!(rooms.verdict(group(), 1, Growth::More), Verdict::Yes);
    }

    #[test]
    fn large_writes_wait_for_memory_and_small_ones_rarely() {
        let pg = PgId { pool: nacre_base::PoolId(1), seed: 1 };
        let mut rooms = WriteCredits::default();
        let group = || [OsdId(0), OsdId(1)].into_iter();
        rooms.told(OsdId(1), Room { memory: MIB, ..Room::PLENTY });
        assert_eq!(
            rooms.verdict(group(), 16 * MIB, Growth::More),
            Verdict::Yes,
            "alone it may be of any size"
        );
        let first = rooms.send(MIB);
        assert_eq!(rooms.verdict(group(), 2 * SMALL, Growth::More), Verdict::Soon);
        assert_eq!(rooms.verdict(group(), SMALL, Growth::More), Verdict::Yes);
        assert_eq!(rooms.verdict([OsdId(0)].into_iter(), MIB, Growth::More), Verdict::Yes, "elsewhere");
        let second = rooms.send(MIB);
        assert_eq!(rooms.verdict(group(), SMALL, Growth::More), Verdict::Soon);
        rooms.wait(pg);
        rooms.wait(pg);
        assert_eq!(rooms.next_waiting(), None, "nothing has arrived");
        drop((first, second));
        assert_eq!((rooms.next_waiting(), rooms.next_waiting()), (Some(pg), None));
        assert_eq!(rooms.verdict(group(), MIB, Growth::More), Verdict::Yes);
    }

    #[test]
    fn many_writes_without_data_wait_for_memory_on_a_full_disk() {
        let mut rooms = WriteCredits::default();
        let group = || [OsdId(0), OsdId(1)].into_iter();
        rooms.told(OsdId(1), Room { full: true, window: 0, memory: MIB });
        let mut sent = Vec::new();
        while rooms.verdict(group(), ENTRY, Growth::Less) == Verdict::Yes {
            sent.push(rooms.send(ENTRY));
        }
        assert_eq!(sent.len() as u64, (2 * MIB).div_ceil(ENTRY + IN_FLIGHT));
        assert_eq!(rooms.verdict(group(), ENTRY, Growth::Less), Verdict::Soon);
        sent.pop();
        assert_eq!(rooms.verdict(group(), ENTRY, Growth::Less), Verdict::Yes);
    }

    #[test]
    fn memory_is_shared_among_writing_primaries() {
        let mut own = OwnCredit::new(64 << 20);
        let mut said = |writers| own.look(&space(900 * MIB), writers).map(|room| room.memory / MIB);
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 8, 4].map(&mut said),
            [Some(64), Some(32), Some(16), None, Some(8), None, None, Some(16)]
        );
    }
}
