//! Which OSDs a rule may choose, and which of them may stand in for which.

use nacre_base::OsdId;
use nacre_crush::{CrushMap, Op, Rule};
use nacre_proto::maps::{OsdMap, Pool};
use std::collections::BTreeMap;

/// The OSDs below what a rule takes.
pub struct Domains {
    /// By OSD its weight, and the bucket of each kind that the rule chooses, the outermost first. The OSD
    /// itself counts as one.
    osds: BTreeMap<OsdId, (f64, Vec<i32>)>,
}

impl Domains {
    /// None for rules with several `take` steps: what such a rule means by its parts is unknown
    /// from where OSDs are.
    pub fn of(map: &OsdMap, pool: &Pool) -> Option<Domains> {
        let (top, kinds) = shape(map.crush.rule(map.rule_of(pool)?)?)?;
        let mut osds = BTreeMap::new();
        // The buckets above the current node, by depth.
        let mut path: Vec<i32> = Vec::new();
        for node in map.crush.walk(top) {
            path.truncate(node.depth);
            path.push(node.id);
            let osd = OsdId(node.id);
            if node.id < 0 || !map.is_up(osd) || !map.is_in(osd) {
                continue;
            }
            let weight = f64::from(node.weight) * f64::from(map.weight(osd)) / f64::from(1 << 16);
            let of_kind =
                |kind: &i32| path.iter().copied().find(|&id| kind_of(&map.crush, id) == Some(*kind));
            let buckets: Option<Vec<i32>> = kinds.iter().map(of_kind).collect();
            if let (true, Some(buckets)) = (weight > 0.0, buckets) {
                osds.insert(osd, (weight, buckets));
            }
        }
        Some(Domains { osds })
    }

    pub fn osds(&self) -> impl Iterator<Item = (OsdId, f64)> {
        self.osds.iter().map(|(osd, (weight, _))| (*osd, *weight))
    }
    pub fn has(&self, osd: OsdId) -> bool {
        self.osds.contains_key(&osd)
    }

    /// Whether `to` may take the place of `from` among `members`: it is in the same buckets but for the
    /// innermost, and shares that with none of the others.
    pub fn may_replace(&self, members: &[OsdId], from: OsdId, to: OsdId) -> bool {
        let (Some((_, old)), Some((_, new))) = (self.osds.get(&from), self.osds.get(&to)) else {
            return false;
        };
        let Some((innermost, outer)) = new.split_last() else { return false };
        let others = members.iter().filter(|&&member| member != from);
        let mut taken = others.filter_map(|member| self.osds.get(member)?.1.last());
        !members.contains(&to)
            && old.split_last().is_some_and(|(_, before)| before == outer)
            && !taken.any(|bucket| bucket == innermost)
    }
}

/// What a rule takes, and the kinds of buckets that it chooses from there on.
fn shape(rule: &Rule) -> Option<(i32, Vec<i32>)> {
    let (mut top, mut kinds) = (None, Vec::new());
    for step in &rule.steps {
        match Op::from_code(step.op)? {
            Op::Take if top.is_none() => top = Some(step.arg1),
            Op::Take => return None,
            Op::ChooseFirstN | Op::ChooseIndep | Op::ChooseLeafFirstN | Op::ChooseLeafIndep => {
                kinds.push(step.arg2);
            }
            _ => {}
        }
    }
    // A choice of hosts and then of one OSD in each spreads over hosts as a choice of leaves does, but of
    // two OSDs in each it does not: then OSDs stand in for those of their own host only.
    (!kinds.is_empty()).then_some((top?, kinds))
}

fn kind_of(crush: &CrushMap, id: i32) -> Option<i32> {
    if id >= 0 { Some(0) } else { crush.bucket(id).map(|bucket| bucket.kind.into()) }
}
