//! What monitors say of themselves and of their sessions.
//!
//! Each monitor tells the leader what machine it runs on and which versions of clients and daemons have
//! sessions with it. What machines they run on is agreed on, so it is known of a monitor that is down as
//! well (Ceph: `MonMetadata`). The sessions are only known to the leader.

use crate::mon::MonConfig;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::upgrade::{FORMATS_KEY, VERSION_KEY};
use crate::sessions::Sessions;
use crate::state::{Applying, Genesis, Rejected, Slice};
use nacre_base::Time;
use nacre_command::{CEPH_RELEASE, CEPH_VERSION_SHORT, ceph_version};
use nacre_proto::messages::MonReport;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a monitor repeats to the leader what it said before.
const REPEAT: Duration = Duration::from_secs(5);

/// By Ceph's names: what a daemon runs on, and what it is.
pub type Metadata = BTreeMap<String, String>;

/// What monitors said of the machines that they run on, by their ids.
#[derive(Clone, Debug, Default)]
pub struct MonMetadata {
    /// By monitor.
    pub of: BTreeMap<u64, Metadata>,
}

impl Slice for MonMetadata {
    /// None of a monitor that was removed.
    type Delta = Vec<(u64, Option<Metadata>)>;

    fn begin(_: &Genesis) -> Result<MonMetadata, Rejected> {
        Ok(MonMetadata::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for (member, metadata) in delta {
            match metadata {
                Some(metadata) => drop(self.of.insert(*member, metadata.clone())),
                None => drop(self.of.remove(member)),
            }
        }
    }
}

/// Reports of monitors: the last one of this monitor, and those that the leader has.
#[derive(Default)]
pub struct MonReports {
    sent: Option<(u64, Time, MonReport)>,
    of: BTreeMap<u64, MonReport>,
}

impl MonReports {
    /// What the leader is to be told now.
    pub fn due(&mut self, now: Time, leader: u64, report: MonReport) -> Option<MonReport> {
        let is_known = |(to, at, sent): &(u64, Time, MonReport)| {
            *to == leader && *sent == report && now.since(*at) < REPEAT
        };
        if self.sent.as_ref().is_some_and(is_known) {
            return None;
        }
        self.sent = Some((leader, now, report.clone()));
        Some(report)
    }

    /// On the leader: what a monitor says.
    pub fn heard(&mut self, member: u64, report: MonReport) {
        self.of.insert(member, report);
    }
    /// This monitor leads no more.
    pub fn step_down(&mut self) {
        self.of.clear();
    }

    /// On the leader: what is new goes into the agreed state.
    pub fn periodic(&self, cx: &Context<'_>, pending: &mut PendingTxn) {
        let known = &cx.state.mon_metadata.of;
        let members = &cx.state.monmap.members;
        let own = (cx.config.id, own_metadata(cx.config));
        let said = self.of.iter().map(|(member, report)| (*member, report.metadata.clone())).chain([own]);
        let new = said
            .filter(|(member, metadata)| members.contains_key(member) && known.get(member) != Some(metadata));
        pending.batch.mon_metadata.extend(new.map(|(member, metadata)| (member, Some(metadata))));
        let gone = known.keys().filter(|member| !members.contains_key(member));
        pending.batch.mon_metadata.extend(gone.map(|member| (*member, None)));
    }

    /// The sessions of all monitors of the quorum: how many of a kind have which features.
    pub fn sessions(&self, own: &Sessions, quorum: impl Iterator<Item = u64>) -> BTreeMap<(u8, u64), u32> {
        let mut all = by_features(own);
        for report in quorum.filter_map(|member| self.of.get(&member)) {
            report.sessions.iter().for_each(|(of, count)| *all.entry(*of).or_default() += count);
        }
        all
    }
}

/// What this monitor says of itself now.
pub fn report(config: &MonConfig, sessions: &Sessions) -> MonReport {
    MonReport { metadata: own_metadata(config), sessions: by_features(sessions) }
}

fn own_metadata(config: &MonConfig) -> Metadata {
    let said = [
        ("ceph_release", CEPH_RELEASE.to_string()),
        ("ceph_version", ceph_version(&config.release.version)),
        ("ceph_version_short", CEPH_VERSION_SHORT.to_string()),
        ("compression_algorithms", "none".to_string()),
        ("hostname", config.host.clone()),
        (VERSION_KEY, config.release.version.clone()),
        (FORMATS_KEY, config.release.formats.to_string()),
    ];
    let said = said.into_iter().map(|(key, value)| (key.to_string(), value));
    config.metadata.clone().into_iter().chain(said).collect()
}

/// Sessions of all but monitors, by the numbers of their kinds and by features.
fn by_features(sessions: &Sessions) -> BTreeMap<(u8, u64), u32> {
    let mut counts = BTreeMap::new();
    for conn in sessions.clients() {
        if let Some(session) = sessions.get(conn) {
            *counts.entry((session.peer.kind as u8, session.peer.features)).or_default() += 1;
        }
    }
    counts
}
