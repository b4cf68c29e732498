//! Commands of Ceph's monitors and managers that are about something Nacre does not have, and what there is
//! in its place.

use nacre_command::Absent;

const MODULE: &str = "the leading monitor is the manager, and has no loadable modules";
const DISKS: &str = "disk health is not monitored; `ceph device ls` lists the disks";
const RAFT: &str = "monitors use Raft, which has no election strategies";
const TIERS: &str = "cache tiering; to have a pool on faster OSDs, give it a rule for their device class: `ceph osd \
                     crush rule create-replicated RULE default host ssd`, then `ceph osd pool set POOL \
                     crush_rule RULE`";
const ORCHESTRATOR: &str = "daemons are started with `nacre`, not by the cluster";
const SPECIFICATIONS: &str = "no specifications of services; monitors are placed by themselves, `nacre join TOKEN --devices \
                              auto` makes OSDs of all blank disks of a host, and `ceph orch daemon add osd HOST:PATH` \
                              of one disk";

const UPMAP_PRIMARY: &str =
    "clients before Reef cannot read such entries; `ceph osd primary-affinity` shifts primaries between OSDs";

const SUBVOLUMES: &str = "there are no subvolumes; directories with quotas (the xattr ceph.quota.max_bytes) and `ceph fs \
                          authorize` serve the same purpose";
const FS_MIRRORS: &str =
    "file systems are not mirrored; `rsync` from a snapshot directory (.snap) copies one";

pub const ABSENT: Absent = Absent(&[
    ("add_bootstrap_peer_hint", RAFT),
    ("add_bootstrap_peer_hintv", RAFT),
    ("alerts", MODULE),
    ("cephadm", ORCHESTRATOR),
    ("compact", "the store compacts itself, and compaction cannot be triggered"),
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
    ("fs clone", SUBVOLUMES),
    ("fs mirror", FS_MIRRORS),
    ("fs snap-schedule", "snapshots of directories are made with `mkdir .snap/NAME`, for example from cron"),
    ("fs snapshot mirror", FS_MIRRORS),
    ("fs subvolume", SUBVOLUMES),
    ("fs subvolumegroup", SUBVOLUMES),
    ("fs volume info", "`ceph fs get`, `ceph fs status` and `ceph df` show it"),
    ("healthcheck history", "the history of health checks is in the log: `ceph log last`"),
    ("heap", "memory comes from the system's allocator, which has no such statistics"),
    ("influx", MODULE),
    ("insights", MODULE),
    ("mds set_state", "metadata servers change their states themselves; `ceph mds fail` replaces one"),
    ("mgr fail", "the leading monitor is the manager; when it stops, another one leads"),
    ("mgr self-test", MODULE),
    ("mon scrub", "data of a monitor is verified by checksum when it is read"),
    ("mon set election_strategy", RAFT),
    ("mon set_location", "monitors have no places in the CRUSH map, as there is no stretch mode"),
    ("mon set-weight", "clients choose a monitor at random; monitors have no weights"),
    ("orch apply", SPECIFICATIONS),
    ("orch", ORCHESTRATOR),
    ("osd pg-upmap-primary", UPMAP_PRIMARY),
    ("osd rm-pg-upmap-primary", UPMAP_PRIMARY),
    ("osd tier", TIERS),
    ("pg getmap", "monitors keep no PG map in Ceph's encoding; `ceph pg dump` shows the placement groups"),
    ("quorum", RAFT),
    ("restful", MODULE),
    ("scrub", "data of a monitor is verified by checksum when it is read"),
    ("smart", DISKS),
    ("sync_force", RAFT),
    ("telegraf", MODULE),
    ("telemetry", "no telemetry is sent"),
    ("zabbix", MODULE),
]);
