//! Commands of Ceph's monitors and managers that are about something Nacre does not have, and what there is in its place.

use nacre_base::words::begins_with;

const MODULE: &str = "the leading monitor does what managers do, and takes no modules";
const DISKS: &str = "disks are not asked how they are; `ceph device ls` shows which there are";
const RAFT: &str = "monitors elect and follow by Raft, which has no such thing";
const ORCHESTRATOR: &str = "daemons are started by whoever runs `nacre`, not by the cluster";

/// The first words of a command, and why it does nothing.
const ABSENT: [(&str, &str); 38] = [
    ("add_bootstrap_peer_hint", RAFT),
    ("add_bootstrap_peer_hintv", RAFT),
    ("alerts", MODULE),
    ("cephadm", ORCHESTRATOR),
    ("compact", "the store makes its checkpoints by itself, in layers, and cannot be told to"),
    ("connection scores", RAFT),
    ("dashboard", MODULE),
    ("device check-health", DISKS),
    ("device get-health-metrics", DISKS),
    ("device light", DISKS),
    ("device ls-lights", DISKS),
    ("device monitoring", DISKS),
    ("device predict-life-expectancy", DISKS),
    ("device query-daemon-health-metrics", DISKS),
    ("device rm-life-expectancy", DISKS),
    ("device scrape-daemon-health-metrics", DISKS),
    ("device scrape-health-metrics", DISKS),
    ("device set-life-expectancy", DISKS),
    ("healthcheck history", "what health was before is in the log: `ceph log last`"),
    ("heap", "memory comes from the system's allocator, which has no such numbers"),
    ("influx", MODULE),
    ("insights", MODULE),
    ("mgr fail", "the leading monitor is the manager; when it stops, another one leads"),
    ("mgr self-test", MODULE),
    ("mon scrub", "what a monitor stores is checked by its sums when it is read"),
    ("mon set election_strategy", RAFT),
    ("mon set-weight", "clients choose a monitor by chance; none weighs more"),
    ("orch", ORCHESTRATOR),
    ("pg getmap", "monitors keep no map of groups in Ceph's own encoding; `ceph pg dump` shows them"),
    ("prometheus", MODULE),
    ("quorum", RAFT),
    ("restful", MODULE),
    ("scrub", "what a monitor stores is checked by its sums when it is read"),
    ("smart", DISKS),
    ("sync_force", RAFT),
    ("telegraf", MODULE),
    ("telemetry", "nothing is sent to anybody"),
    ("zabbix", MODULE),
];

/// Why this does nothing; None if it is no such command.
pub fn why(prefix: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(words, _)| begins_with(prefix, words)).map(|(_, why)| *why)
}
