//! What an object knows of its clones: the copies that were made of it when a write came that knew
//! of newer snapshots than the object did. Kept with the head's info, also when the head itself is
//! deleted (`ObjectInfo::whiteout`).

use nacre_base::{IntervalSet, SnapId};
use nacre_wire::versioned_fields;
use std::collections::BTreeMap;

/// Ceph: `SnapSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// The newest snapshot that a write to the object knew of.
    pub seq: SnapId,
    /// By id: the newest snapshot that there was when the clone was made.
    pub clones: BTreeMap<SnapId, CloneInfo>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneInfo {
    /// In which the object has this content, newest first; never empty.
    pub snaps: Vec<SnapId>,
    /// Where its data is the same as that of the next newer clone, or of the head.
    pub overlap: IntervalSet,
    pub size: u64,
}

impl CloneInfo {
    /// Of data that is counted nowhere else.
    fn own_bytes(&self) -> u64 {
        self.size.saturating_sub(self.overlap.size())
    }
}

/// What writes are done under: which snapshots there are. Ceph: `SnapContext`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    pub seq: SnapId,
    /// Newest first.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// Whether the numbers can be: newest first, none above `seq`, which names a clone and so is no name of
    /// something else.
    pub fn is_valid(&self) -> bool {
        let newest = self.snaps.first().copied().unwrap_or_default();
        newest <= self.seq
            && self.seq < SnapId::HEAD
            && self.snaps.is_sorted_by(|a, b| a > b)
            && self.snaps.last() != Some(&SnapId(0))
    }
}

/// Where the content of an object in a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Head,
    Clone(SnapId),
    /// The object did not exist then.
    Nowhere,
}

impl SnapSet {
    pub fn find(&self, snap: SnapId) -> Found {
        if snap > self.seq {
            return Found::Head;
        }
        match self.clones.range(snap..).next() {
            Some((&id, clone)) if clone.snaps.last().is_some_and(|oldest| *oldest <= snap) => {
                Found::Clone(id)
            }
            _ => Found::Nowhere,
        }
    }

    /// The snapshots that a clone made now would be for.
    pub fn unseen<'a>(&self, context: &'a SnapContext) -> &'a [SnapId] {
        let new = context.snaps.iter().take_while(|snap| **snap > self.seq).count();
        &context.snaps[..new]
    }

    /// Notes the clone that a write under `context` makes of a head of `size` bytes.
    pub fn add_clone(&mut self, context: &SnapContext, size: u64) {
        let overlap = std::iter::once(0..size).collect();
        let clone = CloneInfo { snaps: self.unseen(context).to_vec(), overlap, size };
        assert!(!clone.snaps.is_empty(), "a clone is made for a snapshot");
        self.clones.insert(context.seq, clone);
    }

    /// The head's data changed there.
    pub fn head_changed(&mut self, ranges: &IntervalSet) {
        if let Some(mut newest) = self.clones.last_entry() {
            newest.get_mut().overlap.subtract(ranges);
        }
    }

    /// What of a head of `size` bytes is not the same as in a clone.
    pub fn differs_from(&self, clone: SnapId, size: u64) -> IntervalSet {
        let mut same: IntervalSet = std::iter::once(0..size).collect();
        for newer in self.clones.range(clone..).map(|(_, clone)| clone) {
            same = same.intersection(&newer.overlap);
        }
        let mut differs: IntervalSet = std::iter::once(0..size).collect();
        differs.subtract(&same);
        differs
    }

    /// The clones next to a clone, or to the head, and where their data is the same.
    pub fn neighbours(&self, snap: SnapId) -> impl Iterator<Item = (SnapId, &IntervalSet)> {
        let own = self.clones.get(&snap);
        let is_known = own.is_some() || snap == SnapId::HEAD;
        let older = self.clones.range(..snap).next_back().filter(|_| is_known);
        let newer = own.and_then(|own| Some((own, self.clones.range(snap..).nth(1)?)));
        let older = older.map(|(id, clone)| (*id, &clone.overlap));
        older.into_iter().chain(newer.map(|(own, (id, _))| (*id, &own.overlap)))
    }

    /// Removes a clone. What it shared with the next newer one is what the next older one shares
    /// with that.
    pub fn remove_clone(&mut self, id: SnapId) {
        let Some(gone) = self.clones.remove(&id) else { return };
        if let Some((_, older)) = self.clones.range_mut(..id).next_back() {
            older.overlap = older.overlap.intersection(&gone.overlap);
        }
    }

    /// Bytes of data that clones have for themselves.
    pub fn bytes(&self) -> u64 {
        self.clones.values().map(CloneInfo::own_bytes).sum()
    }
}

versioned_fields!(SnapSet, "snap set", seq, clones);
versioned_fields!(CloneInfo, "clone", snaps, overlap, size);

#[cfg(test)]
mod tests {
    use super::*;

    fn context(seq: u64, snaps: &[u64]) -> SnapContext {
        SnapContext { seq: SnapId(seq), snaps: snaps.iter().copied().map(SnapId).collect() }
    }

    #[test]
    fn snapshot_reads_the_oldest_clone_not_older_than_it() {
        let mut set = SnapSet { seq: SnapId(2), ..SnapSet::default() };
        set.add_clone(&context(5, &[5, 4, 2]), 10);
        set.seq = SnapId(5);
        set.add_clone(&context(9, &[9, 5, 4, 2]), 10);
        set.seq = SnapId(9);
        let found: Vec<Found> = [2, 3, 4, 5, 8, 9, 10].map(|snap| set.find(SnapId(snap))).into();
        let clone = |id| Found::Clone(SnapId(id));
        use Found::{Head, Nowhere};
        assert_eq!(found, [Nowhere, Nowhere, clone(5), clone(5), Nowhere, clone(9), Head]);
    }

    #[test]
    fn what_two_clones_share_survives_the_one_between_them() {
        let mut set = SnapSet::default();
        set.add_clone(&context(1, &[1]), 100);
        set.seq = SnapId(1);
        set.head_changed(&std::iter::once(0..10).collect());
        set.add_clone(&context(2, &[2, 1]), 100);
        set.seq = SnapId(2);
        set.head_changed(&std::iter::once(50..60).collect());
        assert_eq!(set.bytes(), 20);
        assert_eq!(set.differs_from(SnapId(1), 100), [0..10, 50..60].into_iter().collect());
        let neighbours =
            |snap| set.neighbours(snap).map(|(id, same)| (id.0, same.clone())).collect::<Vec<_>>();
        let older: IntervalSet = std::iter::once(10..100).collect();
        let newer: IntervalSet = [0..50, 60..100].into_iter().collect();
        assert_eq!(neighbours(SnapId::HEAD), [(2, newer)]);
        assert_eq!(neighbours(SnapId(2)), [(1, older.clone())]);
        assert_eq!(neighbours(SnapId(1)), [(2, older)]);
        assert_eq!(neighbours(SnapId(9)), []);
        set.remove_clone(SnapId(2));
        assert_eq!(set.clones[&SnapId(1)].overlap, [10..50, 60..100].into_iter().collect());
        assert_eq!(set.bytes(), 20);
    }

    #[test]
    fn invalid_snap_contexts_are_detected() {
        assert!(context(5, &[5, 3, 1]).is_valid());
        assert!(context(0, &[]).is_valid());
        assert!(context(9, &[3]).is_valid());
        let ends = [context(SnapId::HEAD.0, &[5]), context(SnapId::DIR.0, &[])];
        let lists = [context(4, &[5]), context(5, &[3, 3]), context(5, &[3, 4]), context(5, &[3, 0])];
        for bad in lists.into_iter().chain(ends) {
            assert!(!bad.is_valid());
        }
    }
}
