//! The bytes of a Raft entry and of a checkpoint, as monitors have on their disks already.

use super::*;
use crate::services::auth::AuthDelta;
use crate::services::config::ConfigKey;
use crate::services::fsmap::FsDelta;
use crate::services::fsmap::changes::{self, NewFileSystem};
use crate::services::health::Mute;
use crate::services::hosts::{Host, HostChange, HostMonitor, HostOrder, OsdRemoval, Token};
use crate::services::leader_hints::{LeaderHints, PastMarkDown, PastRecovery};
use crate::services::monmap::MonChange;
use crate::services::osdmap::maps::OsdMapDelta;
use crate::services::upgrade::{PastUpgrade, Step, Upgrade, Upgrades};
use crate::state::{Batch, Genesis, State};
use nacre_auth::cephx::SERVICE_OSD;
use nacre_auth::{Entity, Entropy, KeyType, Secret};
use nacre_base::SnapId;
use nacre_crush::CrushMap;
use nacre_proto::maps::{CompatSet, FsMap, Incremental, MdsInfo, MdsState, MgrMap, MonMap, Pool};
use nacre_proto::types::{AuthName, EntityName, Network};
use std::sync::Arc;

const STAMP: Utime = Utime { sec: 1_700_000_000, nsec: 5 };
const PG: PgId = PgId { pool: PoolId(1), seed: 0 };

fn secret(seed: u64) -> Secret {
    Secret::generate(KeyType::Aes, STAMP, &mut Entropy::repeatable(seed))
}
fn entity(name: &str) -> (AuthName, Entity) {
    let caps = [("osd".to_string(), "allow *".to_string())].into();
    (AuthName::new(EntityType::Osd, name), Entity { key: secret(7), caps })
}

fn genesis() -> Genesis {
    let monmap = MonMap::new([1; 16], STAMP, [("a".to_string(), addr(3300, 0))]);
    let osdmap = OsdMap::new([1; 16], STAMP, CrushMap::fresh(1));
    Genesis { monmap, osdmap: to_vec(&osdmap).into(), entities: [entity("0")].into(), format: 2 }
}

fn incremental(state: &State) -> Bytes {
    let mut inc = Incremental::after(&state.osdmap.map, STAMP);
    inc.new_pools.insert(PG.pool, Arc::new(Pool::replicated(3, 4, 4, 0, STAMP)));
    inc.new_max_osd = Some(3);
    inc.new_up_client.insert(OsdId(1), addr(6800, 1));
    inc.seal(&state.osdmap.map).unwrap();
    to_vec(&inc).into()
}

/// Every field has something in it.
fn batch(state: &State) -> Batch {
    let line = LogEntry {
        name: AuthName::new(EntityType::Mon, "a"),
        rank: EntityName::new(EntityType::Mon, 0),
        addrs: addr(3300, 0),
        stamp: STAMP,
        seq: 3,
        level: LogLevel::Warn,
        text: "a line".to_string(),
        channel: "cluster".to_string(),
    };
    let key = |name: &str| ConfigKey { section: "osd".into(), mask: "host:h".into(), name: name.into() };
    let past =
        PastMarkDown { age: 3, reporters: vec![OsdId(1)], refused: false, network: Some(Network::Public) };
    let hints = LeaderHints {
        down: [(OsdId(1), 40)].into(),
        returned: [(OsdId(1), vec![5, 1])].into(),
        died: [(OsdId(1), vec![9])].into(),
        restored_links: [((OsdId(0), OsdId(1)), vec![7])].into(),
        marked_down: [(OsdId(1), past)].into(),
        recovery: Some(PastRecovery { age: 8, started_at: STAMP, most: 100 }),
    };
    let mute = Mute { until: STAMP, sticky: true, summary: "down".into(), count: 2 };
    Batch {
        origin: (1, 2),
        stamp: STAMP,
        genesis: None,
        monmap: Some(MonChange::Expect { name: "b".into(), addrs: addr(3301, 0) }),
        mgrmap: Some(MgrMap::with_active(Epoch(1), "a", 9, addr(6900, 3), STAMP)),
        osdmap: OsdMapDelta {
            incremental: Some(incremental(state)),
            metadata: vec![(OsdId(1), [("hostname".to_string(), "h".to_string())].into())],
            removal_numbers: vec![(PG.pool, SnapId(4))],
        },
        pgs: vec![(PG, PgRecord { interval: Epoch(2), acting: vec![OsdId(1)] })],
        config: vec![(key("osd_max_backfills"), Some("2".into())), (key("none"), None)],
        kv: vec![("key".into(), Some(Bytes::from_static(b"value"))), ("gone".into(), None)],
        log: vec![line],
        health: vec![("OSD_DOWN".into(), Some(mute)), ("NONE".into(), None)],
        auth: AuthDelta {
            global_ids: 1000,
            entities: vec![(entity("1").0, Some(entity("1").1)), (entity("2").0, None)],
            rotated: vec![(SERVICE_OSD, secret(8))],
        },
        leader_hints: Some(hints),
        fsmap: file_systems(),
        hosts: hosts(),
        upgrades: Some(upgrades()),
        mon_metadata: vec![(1, Some([("hostname".to_string(), "h".to_string())].into())), (2, None)],
    }
}

fn file_systems() -> FsDelta {
    let mut map = FsMap { epoch: Epoch(2), ..FsMap::default() };
    let new = NewFileSystem {
        name: "files".into(),
        metadata: PoolId(1),
        data: PoolId(2),
        fscid: None,
        recover: true,
    };
    changes::create(&mut map, &new, STAMP);
    let info = MdsInfo {
        gid: 4100,
        name: "a".into(),
        rank: -1,
        incarnation: 0,
        state: MdsState::STANDBY,
        state_seq: 1,
        addrs: addr(6800, 7),
        laggy_since: STAMP,
        export_targets: vec![1],
        features: 3,
        join_fscid: 1,
        flags: 1,
        compat: CompatSet::of_new_file_system(),
    };
    changes::insert(&mut map, info);
    let said = MdsHealth { kind: 1, severity: 1, text: "slow".into(), metadata: BTreeMap::new() };
    FsDelta {
        map: Some(map),
        metadata: vec![(4100, [("hostname".to_string(), "h".to_string())].into())],
        health: vec![(4100, vec![said])],
    }
}

fn hosts() -> Vec<HostChange> {
    let text = |text: &str| text.to_string();
    let host = Host {
        uuid: [3; 16],
        addr: addr(3300, 0).msgr2().unwrap(),
        machine: text("boot"),
        roles: [text("mon")].into(),
        labels: [text("ssd")].into(),
        registered: STAMP,
        monitor: Some(HostMonitor { id: 4, name: text("h") }),
        facts: BTreeMap::from([(text("kernel"), text("6.1"))]).into(),
        seen: STAMP,
        maintenance: Some(STAMP),
        orders: vec![HostOrder {
            id: 7,
            action: text("zap"),
            target: text("/dev/vdb"),
            seen: text("{}"),
            given: STAMP,
        }],
        last_order: 7,
        noout_before: [OsdId(2)].into(),
    };
    let removal = OsdRemoval {
        host: text("h"),
        replace: true,
        force: false,
        zap: true,
        started: STAMP,
        weight: 0x10000,
        removed: true,
    };
    let token = Token {
        made: STAMP,
        expires: Some(STAMP),
        uses: 2,
        roles: [text("osd")].into(),
        used_by: [[3; 16]].into(),
    };
    vec![
        HostChange::Host(text("h"), Some(Box::new(host))),
        HostChange::Host(text("gone"), None),
        HostChange::Token(text("4f"), Some(token)),
        HostChange::Token(text("gone"), None),
        HostChange::MonitorId(4),
        HostChange::DomainGrown,
        HostChange::Removal(3, Some(removal)),
        HostChange::Removal(4, None),
    ]
}

fn upgrades() -> Upgrades {
    let step = Step { daemons: vec!["osd.1".to_string()], began: STAMP };
    let current = Upgrade {
        target: "0.2.0".to_string(),
        started: STAMP,
        paused: true,
        halted: Some("why".to_string()),
        codes: ["OSD_DOWN".to_string()].into(),
        latency_us: 900,
        inactive_pgs: 1,
        unclean_pgs: 2,
        step: Some(step),
        restarted: 3,
    };
    let past = PastUpgrade { ended: STAMP, version: "0.1.0".to_string(), format: 2 };
    Upgrades { format: 2, current: Some(current), past: vec![past] }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chunks(50).map(|line| line.concat() + "\n").collect()
}

#[test]
fn entries_and_checkpoints_stay_as_they_are_on_disk() {
    let mut state = State::begin(&genesis()).unwrap();
    let first = Batch { genesis: Some(genesis()), ..Batch::default() };
    let batch = batch(&state);
    state.apply(&batch).unwrap();
    let mut changed = String::new();
    for (name, bytes, kept) in [
        ("genesis", to_vec(&first), include_str!("encodings/genesis.hex")),
        ("batch", to_vec(&batch), include_str!("encodings/batch.hex")),
        ("state", to_vec(&state), include_str!("encodings/state.hex")),
    ] {
        if hex(&bytes) != kept {
            changed += &format!("{name}:\n{}", hex(&bytes));
        }
    }
    assert!(changed.is_empty(), "these are other bytes than those on disks:\n{changed}");
    assert_eq!(from_slice::<Batch>(&to_vec(&batch)).unwrap(), batch);
    let again: State = from_slice(&to_vec(&state)).unwrap();
    assert!(to_vec(&again) == to_vec(&state));
}

/// What the last release stored is read, and stored again without a loss.
#[test]
fn entries_and_checkpoints_of_the_first_format_are_read() {
    let bytes = |text: &str| -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    let first: Batch = from_slice(&bytes(include_str!("encodings/format-1/genesis.hex"))).unwrap();
    let mut state = State::begin(&first.genesis.unwrap()).unwrap();
    assert_eq!(state.upgrades, Upgrades { format: 1, ..Upgrades::default() });
    let second: Batch = from_slice(&bytes(include_str!("encodings/format-1/batch.hex"))).unwrap();
    let mut expected = Batch { upgrades: None, fsmap: FsDelta::default(), ..batch(&state) };
    // Without what is newer.
    expected.hosts.retain(|change| !matches!(change, HostChange::Removal(..)));
    for change in &mut expected.hosts {
        if let HostChange::Host(_, Some(host)) = change {
            (host.orders, host.last_order) = (Vec::new(), 0);
            host.noout_before.clear();
        }
    }
    assert_eq!(second, expected);
    state.apply(&second).unwrap();
    let kept: State = from_slice(&bytes(include_str!("encodings/format-1/state.hex"))).unwrap();
    assert!(to_vec(&kept) == to_vec(&state), "the checkpoint of the last release is another state");
}
