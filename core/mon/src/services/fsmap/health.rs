//! What is wrong with file systems and metadata servers.

use super::{MdsMonitor, changes};
use crate::services::Context;
use crate::services::health::{Check, Checks, Severity, warn};
use nacre_proto::maps::{FsMap, MdsMap, MdsState};
use std::collections::BTreeMap;

/// Warnings that servers report of themselves: Ceph's number, code, and summary, in which `%num%` stands for
/// how many there are.
const REPORTED: [(u16, &str, &str); 13] = [
    (1, "MDS_TRIM", "%num% MDSs behind on trimming"),
    (2, "MDS_CLIENT_RECALL", "%num% clients failing to respond to cache pressure"),
    (3, "MDS_CLIENT_LATE_RELEASE", "%num% clients failing to respond to capability release"),
    (4, "MDS_CLIENT_RECALL_MANY", "%num% MDSs have many clients failing to respond to cache pressure"),
    (
        5,
        "MDS_CLIENT_LATE_RELEASE_MANY",
        "%num% MDSs have many clients failing to respond to capability release",
    ),
    (6, "MDS_CLIENT_OLDEST_TID", "%num% clients failing to advance oldest client/flush tid"),
    (7, "MDS_CLIENT_OLDEST_TID_MANY", "%num% MDSs have clients failing to advance oldest client/flush tid"),
    (8, "MDS_DAMAGE", "%num% MDSs report damaged metadata"),
    (9, "MDS_READ_ONLY", "%num% MDSs are read only"),
    (10, "MDS_SLOW_REQUEST", "%num% MDSs report slow requests"),
    (11, "MDS_CACHE_OVERSIZED", "%num% MDSs report oversized cache"),
    (12, "MDS_SLOW_METADATA_IO", "%num% MDSs report slow metadata IOs"),
    (13, "MDS_DUMMY", "%num% MDSs report a test of health warnings"),
];

fn plural(count: usize) -> (&'static str, &'static str) {
    if count == 1 { ("", "is") } else { ("s", "are") }
}

impl MdsMonitor {
    /// Adds what is wrong now.
    pub fn health(&self, cx: &Context<'_>, checks: &mut Checks) {
        let map = &cx.state.fsmap.map;
        let all: Vec<&MdsMap> = map.filesystems.values().map(|fs| &fs.map).collect();
        file_systems(map, &all, checks);
        let have = map.standbys.len();
        let lacking = |fs: &&MdsMap| {
            fs.settings.standby_count_wanted - (have + fs.count(MdsState::STANDBY_REPLAY)) as i32
        };
        if let Some(most) = all.iter().map(lacking).max().filter(|most| *most > 0) {
            let text = "insufficient standby MDS daemons available".to_string();
            let detail = vec![format!("have {have}; want {most} more")];
            warn(checks, "MDS_INSUFFICIENT_STANDBY", 1, text, detail);
        }
        reported(cx, checks);
    }
}

fn file_systems(map: &FsMap, all: &[&MdsMap], checks: &mut Checks) {
    let mut rows: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for fs in all {
        let name = &fs.fs_name;
        let ranks = &fs.ranks;
        let mut note = |code, text: String| rows.entry(code).or_default().push(text);
        if fs.settings.max_mds > 0 && ranks.up.is_empty() {
            note("MDS_ALL_DOWN", format!("fs {name} is offline because no MDS is active for it."));
        }
        if fs.is_degraded() {
            note("FS_DEGRADED", format!("fs {name} is degraded"));
        }
        // Others are taken over in a moment, or as soon as the file system may be joined.
        let fscid = map.by_name(name).map(|fs| fs.fscid);
        let has_standby = fscid.is_some_and(|fscid| changes::available_standby(map, fscid).is_some());
        if !ranks.failed.is_empty() && !has_standby {
            let (s, _) = plural(ranks.failed.len());
            note("FS_WITH_FAILED_MDS", format!("fs {name} has {} failed mds{s}", ranks.failed.len()));
        }
        let have = ranks.in_.len() as i32;
        if have < fs.settings.max_mds {
            note(
                "MDS_UP_LESS_THAN_MAX",
                format!("fs {name} has {have} MDS online, but wants {}", fs.settings.max_mds),
            );
        }
        for rank in &ranks.damaged {
            note("MDS_DAMAGE", format!("fs {name} mds.{rank} is damaged"));
        }
        if fs.settings.inline_data {
            note(
                "FS_INLINE_DATA_DEPRECATED",
                format!("fs {name} has deprecated feature inline_data enabled."),
            );
        }
    }
    for (code, detail) in rows {
        let n = detail.len();
        let (s, is) = plural(n);
        let (severity, summary) = match code {
            "MDS_ALL_DOWN" => (Severity::Error, format!("{n} filesystem{s} {is} offline")),
            "FS_DEGRADED" => (Severity::Warn, format!("{n} filesystem{s} {is} degraded")),
            "FS_WITH_FAILED_MDS" => {
                let has = if n == 1 { "has" } else { "have" };
                (Severity::Warn, format!("{n} filesystem{s} {has} a failed mds daemon"))
            }
            "MDS_UP_LESS_THAN_MAX" => {
                (Severity::Warn, format!("{n} filesystem{s} {is} online with fewer MDS than max_mds"))
            }
            "MDS_DAMAGE" => (Severity::Error, format!("{n} mds daemon{s} damaged")),
            _ => (Severity::Warn, format!("{n} filesystem{s} with deprecated feature inline_data")),
        };
        checks.insert(code, Check { severity, summary, count: n as i64, detail });
    }
}

/// What servers say of themselves.
fn reported(cx: &Context<'_>, checks: &mut Checks) {
    let map = &cx.state.fsmap.map;
    for (kind, code, text) in REPORTED {
        let mut worst = Severity::Ok;
        let mut detail = Vec::new();
        for (gid, said) in &cx.state.fsmap.health {
            let Some(info) = map.info(*gid) else { continue };
            for said in said.iter().filter(|said| said.kind == kind) {
                worst = worst.max(if said.severity == 0 { Severity::Error } else { Severity::Warn });
                detail.push(format!("mds.{}(mds.{}): {}", info.name, info.rank, said.text));
            }
        }
        if !detail.is_empty() {
            let count = detail.len();
            let check = Check {
                severity: worst,
                summary: text.replace("%num%", &count.to_string()),
                count: count as i64,
                detail,
            };
            checks.entry(code).or_insert(check);
        }
    }
}
