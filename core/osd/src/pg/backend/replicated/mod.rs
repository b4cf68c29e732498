//! Replicated pools: any member that has an object can give it, and one survivor is enough.

use super::{Candidates, HistoryChoice};
use crate::pg::history::missing::Missing;
use nacre_base::OsdId;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::types::ObjectId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The first holder that has all of the part, or else the first that has some. Without its metadata nothing
/// of an object has a place.
pub fn recovery_source<'a>(
    holders: impl Iterator<Item = (OsdId, &'a Missing)>,
    object: &ObjectId,
    part: &Part,
    is_tried: impl Fn(OsdId) -> bool,
) -> Option<(OsdId, Part)> {
    let mut best: Option<(OsdId, Part)> = None;
    for (osd, missing) in holders {
        let has = part.clone().without(&missing.part(object));
        if is_tried(osd) || has.is_empty() || part.meta && !has.meta {
            continue;
        }
        if has == *part {
            return Some((osd, has));
        }
        best.get_or_insert((osd, has));
    }
    best
}

/// A write was acknowledged only when all of the acting set had it, so any survivor of the recorded acting
/// set has all of them. The longest history wins; among equals ours, which saves a round trip.
pub fn choose_history(candidates: &Candidates<'_>) -> Option<HistoryChoice> {
    let Candidates { infos, record, given_up, me, acting } = candidates;
    let survivors: BTreeMap<OsdId, PgInfo> = infos
        .iter()
        .map(|(osd, info)| (*osd, *info))
        .filter(|(osd, info)| {
            // Without a record the placement group never served, and any history may be taken.
            *given_up || record.is_none_or(|r| r.acting.contains(osd) && info.interval_started >= r.interval)
        })
        .collect();
    let best = survivors.iter().max_by_key(|(osd, info)| {
        let ours = *osd == me;
        (info.interval_started, info.last_update, Reverse(info.log_tail), ours, acting.contains(osd))
    });
    let (source, info) = best.map(|(osd, info)| (*osd, *info))?;
    Some(HistoryChoice { source, info, survivors: survivors.into_keys().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Epoch, Version};
    use nacre_proto::messages::PgRecord;

    fn info(interval: u32, version: u64) -> PgInfo {
        let last_update = Version::new(Epoch(interval), version);
        PgInfo { interval_started: Epoch(interval), last_update, ..PgInfo::default() }
    }
    fn choose(infos: &[(i32, PgInfo)], record: Option<&PgRecord>, given_up: bool) -> Option<OsdId> {
        let infos = infos.iter().map(|(osd, info)| (OsdId(*osd), *info)).collect();
        let acting = [OsdId(0), OsdId(1), OsdId(2)];
        let candidates = Candidates { infos, record, given_up, me: OsdId(0), acting: &acting };
        choose_history(&candidates).map(|choice| choice.source)
    }

    #[test]
    fn a_holder_that_was_not_activated_has_no_say() {
        let record = PgRecord { interval: Epoch(5), acting: vec![OsdId(1), OsdId(2)] };
        let infos = [(0, info(4, 90)), (1, info(5, 10)), (2, info(5, 12))];
        assert_eq!(choose(&infos, Some(&record), false), Some(OsdId(2)));
        assert_eq!(choose(&infos[..1], Some(&record), false), None);
        assert_eq!(choose(&infos[..1], Some(&record), true), Some(OsdId(0)));
        assert_eq!(choose(&infos[..1], None, false), Some(OsdId(0)));
    }

    #[test]
    fn of_equal_histories_our_own_wins() {
        let record = PgRecord { interval: Epoch(5), acting: vec![OsdId(0), OsdId(1), OsdId(2)] };
        let infos = [(0, info(5, 12)), (1, info(5, 12)), (2, info(5, 11))];
        assert_eq!(choose(&infos, Some(&record), false), Some(OsdId(0)));
    }
}
