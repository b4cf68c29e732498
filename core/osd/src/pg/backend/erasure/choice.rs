//! Whose log wins after a change of members of an erasure-coded placement group.
//!
//! A write was acknowledged only when every member of its interval had it. One that some members of the last
//! interval do not have was not, and may be on too few shards to be read: so the *shortest* log of these
//! members wins, and the others undo what they have beyond it. Their logs are beginnings of one another, as
//! only the last activated interval had writes.

use super::{Geometry, index};
use crate::pg::backend::{Candidates, HistoryChoice};
use nacre_base::{OsdId, ShardId};
use nacre_proto::messages::peer::PgInfo;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// None if fewer shards than it takes to read everything are there.
pub fn choose_history(geometry: &Geometry, candidates: &Candidates<'_>) -> Option<HistoryChoice> {
    let Candidates { infos, record, given_up, me, .. } = candidates;
    let Some(record) = record.filter(|_| !given_up) else {
        // It never served, or all that it had was given up.
        let longest =
            infos.iter().max_by_key(|(osd, info)| (info.interval_started, info.last_update, *osd == me));
        let (source, info) = longest.map(|(osd, info)| (*osd, *info))?;
        return Some(HistoryChoice { source, info, survivors: infos.keys().copied().collect() });
    };
    // The place in the record is the shard; a member that holds another one by now has nothing of this.
    let was_member = |osd: &OsdId, shard: ShardId| {
        let places = record.acting.iter().enumerate().filter(|(_, member)| *member == osd);
        places.map(|(place, _)| place % geometry.n()).any(|place| index(shard) == Some(place))
    };
    let mut survivors: BTreeMap<OsdId, PgInfo> = infos
        .iter()
        .map(|(osd, info)| (*osd, *info))
        .filter(|(osd, info)| info.interval_started >= record.interval && was_member(osd, info.shard))
        .collect();
    // A disk that went back in time: what every member is known to have, it has not.
    let committed = survivors.values().map(|info| info.committed_to).max().unwrap_or_default();
    survivors.retain(|_, info| info.last_update >= committed);
    let shards: Vec<usize> = survivors.values().filter_map(|info| index(info.shard)).collect();
    if !geometry.suffice(&shards) {
        return None;
    }
    let shortest = survivors.iter().min_by_key(|(osd, info)| (info.last_update, Reverse(**osd == *me)));
    let (source, info) = shortest.map(|(osd, info)| (*osd, *info))?;
    Some(HistoryChoice { source, info, survivors: survivors.into_keys().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Epoch, Version};
    use nacre_erasure::code::Code;
    use nacre_proto::messages::PgRecord;

    fn info(interval: u32, version: u64, shard: i8) -> PgInfo {
        let last_update = Version::new(Epoch(5), version);
        PgInfo { interval_started: Epoch(interval), last_update, shard: ShardId(shard), ..PgInfo::default() }
    }
    fn choose(infos: &[(i32, PgInfo)], given_up: bool) -> Option<(OsdId, u64)> {
        let record = PgRecord { interval: Epoch(5), acting: vec![OsdId(1), OsdId(2), OsdId(3)] };
        let infos = infos.iter().map(|(osd, info)| (OsdId(*osd), *info)).collect();
        let acting = [OsdId(1), OsdId(2), OsdId(3)];
        let candidates = Candidates { infos, record: Some(&record), given_up, me: OsdId(1), acting: &acting };
        let geometry = Geometry { code: Code::reed_solomon(2, 1) };
        choose_history(&geometry, &candidates).map(|choice| (choice.source, choice.info.last_update.version))
    }

    #[test]
    fn shortest_log_of_enough_shards_wins() {
        let all = [(1, info(5, 12, 0)), (2, info(5, 11, 1)), (3, info(5, 12, 2))];
        assert_eq!(choose(&all, false), Some((OsdId(2), 11)));
        assert_eq!(choose(&[all[0], all[2]], false), Some((OsdId(1), 12)));
        assert_eq!(choose(&all[..1], false), None);
        assert_eq!(choose(&all[1..2], true), Some((OsdId(2), 11)));
    }

    #[test]
    fn a_member_with_another_shard_or_from_another_interval_does_not_count() {
        assert_eq!(choose(&[(1, info(5, 9, 0)), (2, info(5, 3, 2))], false), None);
        assert_eq!(choose(&[(1, info(5, 9, 0)), (2, info(5, 3, -1))], false), None);
        assert_eq!(choose(&[(1, info(5, 9, 0)), (2, info(4, 9, 1))], false), None);
        assert_eq!(choose(&[(1, info(5, 9, 0)), (4, info(5, 9, 1))], false), None);
    }

    #[test]
    fn a_disk_that_went_back_does_not_take_acknowledged_writes_with_it() {
        let committed = PgInfo { committed_to: Version::new(Epoch(5), 10), ..info(5, 12, 0) };
        let infos = [(1, committed), (2, info(5, 11, 1)), (3, info(5, 4, 2))];
        assert_eq!(choose(&infos, false), Some((OsdId(2), 11)));
        assert_eq!(choose(&[infos[0], infos[2]], false), None);
    }
}
