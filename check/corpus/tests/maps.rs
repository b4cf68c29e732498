//! Maps of real clusters: decoded, encoded, and applied to each other.

use nacre_base::{Epoch, OsdId, Rng};
use nacre_proto::maps::{ApplyError, Incremental, MgrMap, MonMap, OsdMap, Pool, osd_state};
use nacre_proto::types::{AddrVec, EntityAddr};
use nacre_wire::{Decode, DecodeError, Encode, from_slice, to_vec};

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2) && hex.is_ascii());
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

/// The lines `label<TAB>hex` of a recording.
fn lines(text: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once('\t').expect("label and hex")).map(|(label, hex)| (label, from_hex(hex)))
}

const FULL: &str = include_str!("../data/osdmap_full.txt");
const INC: &str = include_str!("../data/osdmap_inc.txt");
const CHAIN: &str = include_str!("../data/osdmap-chain.txt");
const RANGES: &str = include_str!("../data/osdmap-ranges.txt");
const MONMAP_MESSAGE: &str = include_str!("../data/monmap.txt");
const MONMAP_MGRMAP: &str = include_str!("../data/monmap-mgrmap.txt");

/// Decodes `bytes`, and checks that encoding gives them back.
fn same<T: Encode + Decode>(label: &str, bytes: &[u8]) -> T {
    let value: T = from_slice(bytes).unwrap_or_else(|why| panic!("{label}: {why}"));
    let again = to_vec(&value);
    let at = again.iter().zip(bytes).position(|(a, b)| a != b);
    assert!(again == bytes, "{label}: {} bytes became {}, differing from {at:?}", bytes.len(), again.len());
    value
}

#[test]
fn captured_osd_maps_are_read_and_written_again_byte_for_byte() {
    for (label, bytes) in lines(FULL) {
        let map: OsdMap = same(label, &bytes);
        let crc = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
        assert_eq!(map.crc(), crc, "{label}");
    }
    for (label, bytes) in lines(INC) {
        let inc: Incremental = same(label, &bytes);
        assert_eq!(label, format!("osdmap inc epoch {}", inc.epoch));
        assert_eq!(inc.encode_features, Incremental::ENCODE_FEATURES);
    }
}

#[test]
fn captured_incrementals_lead_from_map_to_map_with_the_checksums_that_ceph_computed() {
    let (_, first) = lines(FULL).next().unwrap();
    let mut map: OsdMap = from_slice(&first).unwrap();
    assert_eq!(map.epoch, Epoch(39));
    for (label, bytes) in lines(INC) {
        let inc: Incremental = from_slice(&bytes).unwrap();
        map = map.apply(&inc).unwrap();
        assert_eq!(map.crc(), inc.full_crc, "{label}");
    }
    assert_eq!(map.epoch, Epoch(45));
    assert_eq!(map.blocklist.len(), 1);
    assert_eq!(map.pool_by_name("tmpp"), None);
}

#[test]
fn a_monitors_whole_history_is_reproduced_epoch_by_epoch() {
    assert!(reproduced(CHAIN).epoch > Epoch(50));
}

#[test]
fn blocklisted_networks_are_in_maps_as_ceph_writes_them() {
    let map = reproduced(RANGES);
    assert_eq!((map.blocklist.len(), map.range_blocklist.len()), (1, 2));
    let fenced = |sock: &str| map.is_blocklisted(&AddrVec::one(EntityAddr::msgr2(sock.parse().unwrap(), 7)));
    assert!(fenced("10.1.200.3:6800") && fenced("[fe80::1]:0") && fenced("10.0.0.1:0"));
    assert!(!fenced("10.2.0.1:0") && !fenced("[fe80:0:0:1::1]:0") && !fenced("[::1]:0"));
}

/// The last map of a recording; each incremental must lead to the map that Ceph had.
fn reproduced(chain: &'static str) -> OsdMap {
    let mut map: Option<OsdMap> = None;
    for (label, bytes) in lines(chain) {
        match (label.split_once(' ').unwrap().0, &map) {
            ("full", None) => map = Some(same(label, &bytes)),
            ("full", Some(map)) => assert_eq!(*map, same(label, &bytes), "{label}"),
            (_, before) => {
                let inc: Incremental = same(label, &bytes);
                let before = before.as_ref().unwrap();
                let next = before.apply(&inc).unwrap_or_else(|why| panic!("{label}: {why}"));
                assert_eq!(next.crc(), inc.full_crc, "{label}: {inc:?}\n{next:?}");
                // Encoding the map gives the same bytes as well.
                let mut made = Incremental { full_crc: 0, ..inc };
                assert_eq!(made.seal(before), Ok(next.clone()));
                assert_eq!(to_vec(&made), bytes);
                map = Some(next);
            }
        }
    }
    map.unwrap()
}

#[test]
fn the_recorded_history_uses_nearly_all_that_an_incremental_can_say() {
    let incs: Vec<Incremental> = lines(CHAIN)
        .filter(|(label, _)| label.starts_with("inc"))
        .map(|(_, bytes)| from_slice(&bytes).unwrap())
        .collect();
    type Uses = fn(&Incremental) -> bool;
    let used: [(&str, Uses); 31] = [
        ("new_pool_max", |i| i.new_pool_max.is_some()),
        ("new_flags", |i| i.new_flags.is_some()),
        ("crush", |i| i.crush.is_some()),
        ("new_max_osd", |i| i.new_max_osd.is_some()),
        ("new_pool_names", |i| !i.new_pool_names.is_empty()),
        ("old_pools", |i| !i.old_pools.is_empty()),
        ("new_up_client", |i| !i.new_up_client.is_empty()),
        ("an OSD down", |i| i.new_state.values().any(|s| s & osd_state::UP != 0)),
        ("an OSD gone", |i| i.new_state.values().any(|s| s & osd_state::EXISTS != 0)),
        ("new_weight", |i| !i.new_weight.is_empty()),
        ("new_pg_temp", |i| !i.new_pg_temp.is_empty()),
        ("new_primary_temp", |i| !i.new_primary_temp.is_empty()),
        ("new_primary_affinity", |i| !i.new_primary_affinity.is_empty()),
        ("new_erasure_code_profiles", |i| !i.new_erasure_code_profiles.is_empty()),
        ("old_erasure_code_profiles", |i| !i.old_erasure_code_profiles.is_empty()),
        ("new_pg_upmap", |i| !i.new_pg_upmap.is_empty()),
        ("old_pg_upmap", |i| !i.old_pg_upmap.is_empty()),
        ("new_pg_upmap_items", |i| !i.new_pg_upmap_items.is_empty()),
        ("old_pg_upmap_items", |i| !i.old_pg_upmap_items.is_empty()),
        ("new_removed_snaps", |i| !i.new_removed_snaps.is_empty()),
        ("new_purged_snaps", |i| !i.new_purged_snaps.is_empty()),
        ("new_last_clean_interval", |i| !i.new_last_clean_interval.is_empty()),
        ("new_up_thru", |i| !i.new_up_thru.is_empty()),
        ("new_blocklist", |i| !i.new_blocklist.is_empty()),
        ("old_blocklist", |i| !i.old_blocklist.is_empty()),
        ("new_uuid", |i| !i.new_uuid.is_empty()),
        ("new_xinfo", |i| !i.new_xinfo.is_empty()),
        ("ratios", |i| i.new_full_ratio.or(i.new_nearfull_ratio).or(i.new_backfillfull_ratio).is_some()),
        ("new_require_min_compat_client", |i| i.new_require_min_compat_client.is_some()),
        ("new_crush_node_flags", |i| !i.new_crush_node_flags.is_empty()),
        ("new_device_class_flags", |i| !i.new_device_class_flags.is_empty()),
    ];
    let unused: Vec<&str> =
        used.into_iter().filter(|(_, uses)| !incs.iter().any(uses)).map(|(name, _)| name).collect();
    assert_eq!(unused, [""; 0]);
}

#[test]
fn captured_monitor_and_manager_maps_are_read_and_written_again_byte_for_byte() {
    let (label, message) = lines(MONMAP_MESSAGE).next().unwrap();
    let map: MonMap = same(label, &message[4..]); // the message is the map with its length
    assert_eq!(map.ranks, ["a"]);
    let mut maps = lines(MONMAP_MGRMAP);
    let (label, bytes) = maps.next().unwrap();
    let map: MonMap = same(label, &bytes);
    // A new map that we make equals it.
    let mons = map.by_rank().map(|mon| (mon.name.clone(), mon.public_addrs.clone()));
    let ours = MonMap {
        epoch: map.epoch,
        last_changed: map.last_changed,
        ..MonMap::new(map.fsid, map.created, mons)
    };
    assert_eq!(ours, map);
    let (label, bytes) = maps.next().unwrap();
    let map: MgrMap = same(label, &bytes);
    assert!(map.available && !map.available_modules.is_empty());
}

#[test]
fn a_pool_made_here_is_the_pool_that_a_monitor_makes() {
    let (_, bytes) = lines(FULL).next().unwrap();
    let map: OsdMap = from_slice(&bytes).unwrap();
    let id = map.pool_by_name("cephfs.meta").or(map.pool_ids().next()).unwrap();
    let theirs = map.pool(id).unwrap();
    let ours =
        Pool::replicated(theirs.size, theirs.min_size, theirs.pg_num, theirs.crush_rule, theirs.create_time);
    let ours = Pool {
        last_change: theirs.last_change,
        applications: theirs.applications.clone(),
        options: theirs.options.clone(),
        autoscale_mode: theirs.autoscale_mode,
        ..ours
    };
    assert_eq!(ours, *theirs);
}

#[test]
fn an_incremental_that_does_not_fit_is_refused_with_the_reason() {
    let (_, bytes) = lines(FULL).next().unwrap();
    let map: OsdMap = from_slice(&bytes).unwrap();
    let inc = Incremental::after(&map, map.modified);

    let later = Incremental { epoch: Epoch(41), ..inc.clone() };
    assert_eq!(map.apply(&later), Err(ApplyError::WrongEpoch { at: Epoch(39), to: Epoch(41) }));
    let foreign = Incremental { fsid: [7; 16], ..inc.clone() };
    assert_eq!(map.apply(&foreign), Err(ApplyError::OtherCluster));
    let huge = Incremental { new_max_osd: Some(1 << 30), ..inc.clone() };
    assert_eq!(map.apply(&huge), Err(ApplyError::TooManyOsds { asked: 1 << 30 }));
    for osd in [OsdId(map.max_osd() as i32), OsdId(-1), OsdId::NONE] {
        let mut about = inc.clone();
        about.new_weight.insert(osd, 0);
        assert_eq!(map.apply(&about), Err(ApplyError::NoSuchOsd { osd, max_osd: map.max_osd() }));
    }
    assert_eq!(map.apply(&inc).unwrap().epoch, Epoch(40));
}

#[test]
fn a_damaged_map_is_refused_by_its_checksum() {
    for (_, bytes) in lines(FULL).chain(lines(INC)) {
        let mut rng = Rng::new(bytes.len() as u64);
        for _ in 0..300 {
            let mut bad = bytes.clone();
            // Not in the envelope, which is decoded before the checksum.
            let at = rng.between(6, bytes.len() as u64) as usize;
            bad[at] ^= 1 << rng.below(8);
            assert!(from_slice::<OsdMap>(&bad).is_err() && from_slice::<Incremental>(&bad).is_err());
        }
    }
}

/// Decodes with a corrected checksum, so that the damage gets past it.
fn past_the_checksum<T: Decode>(bytes: &mut [u8], tail: usize) -> Result<T, DecodeError> {
    let at = bytes.len() - tail;
    let crc = nacre_wire::crc32c(nacre_wire::crc32c(u32::MAX, &bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    from_slice(bytes)
}

#[test]
fn no_bytes_make_decoding_or_what_follows_panic() {
    let (_, full) = lines(FULL).nth(1).unwrap();
    let base: OsdMap = from_slice(&full).unwrap();
    let mut rng = Rng::new(1);
    let (mut maps, mut incs) = (0, 0);
    for round in 0..4000 {
        let mut bad = full.clone();
        damage(&mut rng, &mut bad);
        if let Ok(map) = past_the_checksum::<OsdMap>(&mut bad, 4) {
            maps += 1;
            for pg in map.pool_ids().flat_map(|pool| map.pgs(pool).take(2)) {
                map.pg_to_up_acting(pg);
            }
            let _ = to_vec(&map);
        }
        let (_, mut bad) = lines(INC).nth(round % 6).unwrap();
        damage(&mut rng, &mut bad);
        if let Ok(inc) = past_the_checksum::<Incremental>(&mut bad, 8) {
            incs += 1;
            let inc = Incremental { fsid: base.fsid, epoch: base.epoch.next(), ..inc };
            let _ = base.apply(&inc);
        }
        let (_, mut bad) = lines(MONMAP_MGRMAP).nth(round % 2).unwrap();
        damage(&mut rng, &mut bad);
        let _ = from_slice::<MonMap>(&bad);
        let _ = from_slice::<MgrMap>(&bad);
    }
    assert!(maps > 200 && incs > 200, "too few got past the decoder to tell: {maps}, {incs}");
}

/// Changes bits, a byte or a number, or truncates.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.between(6, bytes.len() as u64 - 12) as usize;
        match rng.below(8) {
            0..5 => bytes[at] ^= 1 << rng.below(8),
            5 => bytes[at] = rng.next_u64() as u8,
            6 => bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()),
            _ => bytes.truncate(at.max(40)),
        }
    }
}

#[test]
fn a_monitor_map_whose_ranks_are_not_its_monitors_is_refused() {
    let (_, bytes) = lines(MONMAP_MGRMAP).next().unwrap();
    let map: MonMap = from_slice(&bytes).unwrap();
    let name = map.ranks[0].clone();
    let refused = |what, value| Err(DecodeError::BadValue { what, value });
    for ranks in
        [vec![], vec!["nobody".into()], vec![name.clone(), name.clone()], vec![name.clone(), "b".into()]]
    {
        let value = ranks.len() as u64;
        let wrong = MonMap { ranks, ..map.clone() };
        assert_eq!(from_slice::<MonMap>(&to_vec(&wrong)), refused("MonMap ranks", value));
    }
    let mut wrong = map;
    wrong.mons.get_mut(&name).unwrap().name = "another".into();
    assert_eq!(from_slice::<MonMap>(&to_vec(&wrong)), refused("MonMap name of monitor", 0));
}
