//! Placement by our code and by Ceph's, on maps of every kind.
//!
//! Each map is made by a recipe below, so that no map need be stored. What Ceph's `osdmaptool` says of
//! it is in `data/placement/`, one line for each placement group; record-osdmaps.sh writes those.
//! Where `osdmaptool` is installed, it is asked again.

use nacre_base::{OsdId, PgId, PoolId, Rng, Utime};
use nacre_crush::{Bucket, ChooseArg, CrushMap, Items, Op, Rule};
use nacre_proto::maps::{
    Incremental, MonMap, Osd, OsdMap, Pool, UpActing, is_new_interval, map_flags, osd_state, pool_flags,
};
use nacre_proto::types::{AddrVec, EntityAddr, ObjectLocator};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const NOW: Utime = Utime { sec: 1_700_000_000, nsec: 5 };
const ONE: u32 = 0x10000;

// ---- CRUSH maps ----

fn empty_crush() -> CrushMap {
    let types = [
        "osd",
        "host",
        "chassis",
        "rack",
        "row",
        "pdu",
        "pod",
        "room",
        "datacenter",
        "zone",
        "region",
        "root",
    ];
    let types = types.iter().enumerate().map(|(at, name)| (at as i32, name.to_string())).collect();
    CrushMap { types, ..CrushMap::default() }
}

/// Adds a straw2 bucket and tells its id and weight.
fn bucket(crush: &mut CrushMap, kind: u16, name: String, items: &[(i32, u32)]) -> (i32, u32) {
    let id = -1 - crush.buckets.len() as i32;
    let weight = items.iter().map(|(_, weight)| weight).sum();
    let alg = Items::Straw2 { weights: items.iter().map(|(_, weight)| *weight).collect() };
    let items = items.iter().map(|(id, _)| *id).collect();
    crush.buckets.push(Some(Bucket { id, kind, weight, items, alg }));
    crush.names.insert(id, name);
    (id, weight)
}

/// Racks of hosts of OSDs with these weights; the root is the last bucket.
fn racks(crush: &mut CrushMap, racks: usize, hosts: usize, weights: &[u32], suffix: &str) -> i32 {
    let all: Vec<(i32, u32)> = weights.iter().enumerate().map(|(id, &weight)| (id as i32, weight)).collect();
    let per_rack = all.len().div_ceil(racks);
    let mut in_root = Vec::new();
    for (r, rack) in all.chunks(per_rack).enumerate() {
        let mut in_rack = Vec::new();
        for (h, host) in rack.chunks(per_rack.div_ceil(hosts)).enumerate() {
            // A shadow tree has only some devices.
            let host: Vec<_> = host.iter().copied().filter(|(_, weight)| *weight != u32::MAX).collect();
            in_rack.push(bucket(crush, 1, format!("host{r}x{h}{suffix}"), &host));
        }
        in_root.push(bucket(crush, 3, format!("rack{r}{suffix}"), &in_rack));
    }
    for &(id, _) in &all {
        crush.names.insert(id, format!("osd.{id}"));
    }
    crush.max_devices = all.len() as i32;
    bucket(crush, 11, format!("default{suffix}"), &in_root).0
}

/// A rule that takes `root` and chooses leaves of different `kind`s; the rule's number is its place.
fn rule(crush: &mut CrushMap, root: i32, kind: i32, erasure: bool) {
    let leaf = match (erasure, kind) {
        (false, 0) => Op::ChooseFirstN,
        (false, _) => Op::ChooseLeafFirstN,
        (true, 0) => Op::ChooseIndep,
        (true, _) => Op::ChooseLeafIndep,
    };
    let mut steps = Vec::new();
    if erasure {
        steps.extend([Op::SetChooseLeafTries.step(5, 0), Op::SetChooseTries.step(100, 0)]);
    }
    steps.extend([Op::Take.step(root, 0), leaf.step(0, kind), Op::Emit.step(0, 0)]);
    let number = crush.rules.len();
    let kind = if erasure { 3 } else { 1 };
    crush.rules.push(Some(Rule { ruleset: number as u8, kind, min_size: 1, max_size: 12, steps }));
    crush.rule_names.insert(number as i32, format!("rule{number}"));
}

/// Rule 0 for copies, rule 1 for chunks, both by `kind`.
fn crush(of: usize, by: (usize, usize), kind: i32, weight: impl Fn(usize) -> u32) -> CrushMap {
    let mut crush = empty_crush();
    let weights: Vec<u32> = (0..of).map(weight).collect();
    let root = racks(&mut crush, by.0, by.1, &weights, "");
    rule(&mut crush, root, kind, false);
    rule(&mut crush, root, kind, true);
    crush
}

// ---- OSD maps ----

/// All OSDs up and in.
fn cluster(crush: CrushMap) -> OsdMap {
    let osds = crush.max_devices;
    let mut map = OsdMap::new(*b"placement-tests!", NOW, crush);
    map.set_max_osd(osds as u32);
    for id in 0..osds {
        map.weights[id as usize] = Osd::IN;
        let sock = format!("127.0.0.1:{}", 6800 + id).parse().unwrap();
        let addr = AddrVec::one(EntityAddr::msgr2(sock, id as u32));
        let osd = map.osd_mut(OsdId(id)).unwrap();
        osd.state = osd_state::EXISTS | osd_state::UP;
        osd.uuid[0] = id as u8;
        (osd.public_addrs, osd.cluster_addrs) = (addr.clone(), addr.clone());
        (osd.hb_back_addrs, osd.hb_front_addrs) = (addr.clone(), addr);
    }
    map
}

fn add_pool(map: &mut OsdMap, pool: Pool) -> PoolId {
    map.pool_max += 1;
    let id = PoolId(map.pool_max.into());
    map.pools.insert(id, Arc::new(pool));
    map.pool_names.insert(id, format!("pool{id}"));
    id
}
fn copies(map: &mut OsdMap, size: u8, pg_num: u32) -> PoolId {
    add_pool(map, Pool::replicated(size, 1, pg_num, 0, NOW))
}
fn chunks(map: &mut OsdMap, size: u8, pg_num: u32) -> PoolId {
    add_pool(map, Pool::erasure(size, size - 1, pg_num, 1, "default", 4096 * (u32::from(size) - 1), NOW))
}

/// Some OSDs down, out, half out, or never there.
fn hurt(map: &mut OsdMap, rng: &mut Rng) {
    for id in 0..map.max_osd() as i32 {
        let state = &mut map.osd_mut(OsdId(id)).unwrap().state;
        match rng.below(12) {
            0 => *state &= !osd_state::UP,
            1 => *state = 0,
            2 => map.weights[id as usize] = 0,
            3 => map.weights[id as usize] = 0x4000,
            4 => map.weights[id as usize] = 0xe666,
            _ => {}
        }
    }
}
/// An OSD; now and then one that is no OSD.
fn any_osd(map: &OsdMap, rng: &mut Rng) -> OsdId {
    match rng.below(60) {
        0 => OsdId::NONE,
        1 => OsdId(map.max_osd() as i32 + 3),
        _ => OsdId(rng.below(map.max_osd().into()) as i32),
    }
}
fn set_of(map: &OsdMap, pg: PgId, rng: &mut Rng) -> Vec<OsdId> {
    let mut osds: Vec<OsdId> = Vec::new();
    while osds.len() < usize::from(map.pool(pg.pool).unwrap().size).min(map.osds.len()) {
        let osd = any_osd(map, rng);
        if osd == OsdId::NONE || !osds.contains(&osd) {
            osds.push(osd);
        }
    }
    osds
}
fn some_pgs(map: &OsdMap, rng: &mut Rng) -> Vec<PgId> {
    map.pool_ids().flat_map(|pool| map.pgs(pool)).filter(|_| rng.chance(300)).collect()
}
fn upmaps(map: &mut OsdMap, rng: &mut Rng) {
    let (mut whole, mut items) = (BTreeMap::new(), BTreeMap::new());
    for pg in some_pgs(map, rng) {
        if rng.chance(400) {
            whole.insert(pg, set_of(map, pg, rng));
        }
        if rng.chance(800) {
            // From OSDs that are there, so that it matters; sometimes to one that is there too.
            let up = map.pg_to_up_acting(pg).up;
            let pairs = up.iter().filter(|_| rng.clone().chance(700)).copied().collect::<Vec<_>>();
            items.insert(pg, pairs.into_iter().map(|from| (from, any_osd(map, rng))).collect());
        }
    }
    (map.pg_upmap, map.pg_upmap_items) = (Arc::new(whole), Arc::new(items));
}
fn temps(map: &mut OsdMap, rng: &mut Rng) {
    let (mut sets, mut primaries) = (BTreeMap::new(), BTreeMap::new());
    for pg in some_pgs(map, rng) {
        let osds = set_of(map, pg, rng);
        if rng.chance(300) {
            primaries.insert(pg, osds[osds.len() - 1]);
        }
        if rng.chance(800) {
            sets.insert(pg, osds);
        }
    }
    // osdmaptool counts primaries in an array, without a look at its end.
    primaries.retain(|_, osd| osd.0 < map.max_osd() as i32);
    (map.pg_temp, map.primary_temp) = (Arc::new(sets), Arc::new(primaries));
}
fn affinities(map: &mut OsdMap, rng: &mut Rng) {
    let all = [0, 0x2000, 0x8000, 0xf000, Osd::DEFAULT_AFFINITY, Osd::DEFAULT_AFFINITY];
    map.primary_affinity = Some(map.osds.iter().map(|_| *rng.pick(&all).unwrap()).collect());
}

/// Trees for two device classes beside the main one.
fn with_classes() -> OsdMap {
    let mut crush = empty_crush();
    let class = |id: usize| usize::from(id.is_multiple_of(3));
    let weights = |of: usize| -> Vec<u32> {
        (0..36)
            .map(|id| if of == 2 || class(id) == of { ONE + 0x1000 * (id as u32 % 5) } else { u32::MAX })
            .collect()
    };
    let main = racks(&mut crush, 3, 4, &weights(2), "");
    rule(&mut crush, main, 1, false);
    rule(&mut crush, main, 1, true);
    crush.class_of = (0..36).map(|id| (id as i32, class(id) as i32)).collect();
    for (number, name) in ["hdd", "ssd"].into_iter().enumerate() {
        crush.class_names.insert(number as i32, name.to_string());
        let first = crush.buckets.len() as i32;
        let root = racks(&mut crush, 3, 4, &weights(number), &format!("~{name}"));
        rule(&mut crush, root, 1, false);
        for slot in 0..crush.buckets.len() as i32 - first {
            crush.shadows.entry(-1 - slot).or_default().insert(number as i32, -1 - slot - first);
            crush.class_of.insert(-1 - slot - first, number as i32);
        }
    }
    let mut map = cluster(crush);
    copies(&mut map, 3, 64);
    for rule in [2, 3] {
        add_pool(&mut map, Pool::replicated(3, 2, 128, rule, NOW));
    }
    map
}

/// Weights of their own for one pool, and others for all the rest.
fn with_choose_args() -> OsdMap {
    let mut crush = crush(24, (3, 2), 3, |_| ONE);
    let slots = crush.buckets.len() as u32;
    for (of, step) in [(1_i64, 3), (-1, 5)] {
        let args = (0..slots).map(|slot| {
            let items = crush.bucket(-1 - slot as i32).unwrap().items.len() as u32;
            let set = |at: u32| (0..items).map(|i| ONE / 2 + (i * step + at + slot) % 7 * 0x3000).collect();
            (slot, ChooseArg { weight_sets: vec![set(0), set(2)], ids: Vec::new() })
        });
        crush.choose_args.insert(of, args.collect());
    }
    let mut map = cluster(crush);
    for _ in 0..2 {
        copies(&mut map, 3, 128);
    }
    map
}

fn recipes() -> Vec<(&'static str, OsdMap)> {
    let flat = |osds: usize, kind: i32| cluster(crush(osds, (1, osds), kind, |_| ONE));
    let mut all = Vec::new();

    let mut map = flat(1, 0);
    copies(&mut map, 1, 16);
    copies(&mut map, 3, 8);
    all.push(("one", map));

    let mut map = flat(3, 0);
    copies(&mut map, 3, 64);
    copies(&mut map, 2, 32);
    chunks(&mut map, 3, 16);
    all.push(("three", map));

    let mut map = cluster(crush(60, (5, 4), 3, |id| ONE / 2 + 0x2345 * (id as u32 % 11)));
    copies(&mut map, 3, 256);
    copies(&mut map, 5, 64);
    all.push(("racks", map));

    all.push(("classes", with_classes()));
    all.push(("choose-args", with_choose_args()));

    let mut map = cluster(crush(40, (1, 10), 1, |_| ONE));
    copies(&mut map, 3, 256);
    chunks(&mut map, 6, 64);
    hurt(&mut map, &mut Rng::new(1));
    all.push(("hurt", map));

    let mut map = cluster(crush(30, (1, 10), 1, |_| ONE));
    copies(&mut map, 3, 256);
    chunks(&mut map, 5, 64);
    upmaps(&mut map, &mut Rng::new(2));
    map.weights[4] = 0;
    all.push(("upmaps", map));

    let mut map = flat(12, 0);
    copies(&mut map, 3, 128);
    chunks(&mut map, 4, 64);
    temps(&mut map, &mut Rng::new(3));
    for osd in [2, 7] {
        map.osd_mut(OsdId(osd)).unwrap().state = osd_state::EXISTS;
    }
    all.push(("temps", map));

    let mut map = flat(16, 0);
    copies(&mut map, 3, 256);
    chunks(&mut map, 4, 64);
    affinities(&mut map, &mut Rng::new(4));
    all.push(("affinity", map));

    let mut map = cluster(crush(54, (3, 6), 1, |id| ONE * (1 + id as u32 % 3)));
    chunks(&mut map, 6, 128);
    chunks(&mut map, 11, 64);
    map.osd_mut(OsdId(5)).unwrap().state = osd_state::EXISTS;
    map.osd_mut(OsdId(17)).unwrap().state = 0;
    all.push(("erasure", map));

    // Numbers of groups that are no powers of two, groups placed by their parents, old hashing, and
    // a pool whose size its rule does not fit.
    let mut map = cluster(crush(20, (2, 5), 1, |_| ONE));
    let pool = Pool::replicated(3, 2, 100, 0, NOW);
    add_pool(&mut map, Pool { pgp_num: 37, ..pool.clone() });
    add_pool(&mut map, Pool { flags: 0, pg_num: 60, pgp_num: 60, ..pool.clone() });
    add_pool(&mut map, Pool { flags: pool_flags::HASHPSPOOL, pg_num: 1, pgp_num: 1, ..pool.clone() });
    add_pool(&mut map, Pool { size: 13, ..pool });
    all.push(("odd", map));

    let mut map = cluster(crush(1000, (20, 10), 3, |id| ONE + 0x111 * (id as u32 % 17)));
    copies(&mut map, 3, 2048);
    chunks(&mut map, 8, 256);
    hurt(&mut map, &mut Rng::new(5));
    all.push(("thousand", map));

    for (name, seed) in [("all-1", 11), ("all-2", 12), ("all-3", 13)] {
        let mut rng = Rng::new(seed);
        let mut map = cluster(crush(8 + 9 * seed as usize, (4, 5), 1, |id| ONE + 0x800 * (id as u32 % 5)));
        copies(&mut map, 3, 128 + 17 * seed as u32);
        chunks(&mut map, 5, 96);
        hurt(&mut map, &mut rng);
        affinities(&mut map, &mut rng);
        upmaps(&mut map, &mut rng);
        temps(&mut map, &mut rng);
        all.push((name, map));
    }
    all
}

// ---- placements as text ----

/// The OSDs, and the primary if it is not the first of them.
fn text(osds: &[i32], primary: i32) -> String {
    let none = OsdId::NONE.0;
    let names: Vec<String> =
        osds.iter().map(|&osd| if osd == none { "-".to_string() } else { osd.to_string() }).collect();
    let first = osds.iter().copied().find(|&osd| osd != none).unwrap_or(-1);
    if primary == first { names.join(",") } else { format!("{}p{primary}", names.join(",")) }
}
/// Up, and acting if it differs.
fn line(up: String, acting: String) -> String {
    if up == acting { up } else { format!("{up} {acting}") }
}

fn ours(map: &OsdMap) -> String {
    let mut out = format!("crc {:08x}\n", map.crc());
    for pool in map.pool_ids() {
        out += &format!("pool {pool}\n");
        for pg in map.pgs(pool) {
            let set = |osds: &[OsdId], primary: Option<OsdId>| {
                text(&osds.iter().map(|osd| osd.0).collect::<Vec<_>>(), primary.map_or(-1, |osd| osd.0))
            };
            let UpActing { up, up_primary, acting, acting_primary } = map.pg_to_up_acting(pg);
            out += &line(set(&up, up_primary), set(&acting, acting_primary));
            out += "\n";
        }
    }
    out
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs one of Ceph's tools; none if it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    // A tool that trips over a map can hang in its own crash handler.
    let out = Command::new("timeout").args(["120", name]).args(args).output().expect("coreutils");
    if out.status.code() == Some(127) {
        eprintln!("{name} is not installed: not asked");
        return None;
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{name} {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    Some(text)
}

/// The same as `ours`, from Ceph's tool.
fn theirs(name: &str, map: &OsdMap) -> Option<String> {
    let file = scratch(&format!("{name}.osdmap"));
    std::fs::write(&file, to_vec(map)).unwrap();
    let dump = tool("osdmaptool", &[file.to_str().unwrap(), "--test-map-pgs-dump-all"])?;
    let mut out = format!("crc {:08x}\n", map.crc());
    for row in dump.lines() {
        if let Some(pool) = row.strip_prefix("pool ") {
            out += &format!("pool {}\n", pool.split(' ').next().unwrap());
        } else if row.contains(" raw (") {
            // 1.0 raw ([2,0], p2) up ([2,0], p2) acting ([0,2], p0)
            let set = |what: &str| {
                let (_, rest) = row.split_once(&format!(" {what} ([")).unwrap();
                let (osds, rest) = rest.split_once("], p").unwrap();
                let osds = osds.split(',').filter(|osd| !osd.is_empty()).map(|osd| osd.parse().unwrap());
                text(&osds.collect::<Vec<i32>>(), rest.split_once(')').unwrap().0.parse().unwrap())
            };
            out += &line(set("up"), set("acting"));
            out += "\n";
        } else if row.starts_with('#') {
            break; // the statistics
        }
    }
    Some(out)
}

#[track_caller]
fn assert_lines(name: &str, ours: &str, theirs: &str) {
    let differ = ours.lines().zip(theirs.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert!(differ.is_none(), "{name}: ours and Ceph's differ in line {differ:?}");
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{name}");
}

#[test]
fn every_map_places_as_ceph_recorded() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/placement");
    let update = std::env::var_os("UPDATE").is_some();
    for (name, map) in recipes() {
        let file = dir.join(format!("{name}.txt"));
        if update {
            let theirs = theirs(name, &map).expect("recording needs osdmaptool");
            std::fs::write(&file, theirs).unwrap();
        }
        assert_lines(name, &ours(&map), &std::fs::read_to_string(&file).unwrap());
    }
}

#[test]
fn every_map_reads_back_and_an_empty_change_only_moves_the_epoch() {
    for (name, map) in recipes() {
        assert_eq!(from_slice::<OsdMap>(&to_vec(&map)).as_ref(), Ok(&map), "{name}");
        let mut inc = Incremental::after(&map, NOW);
        let next = inc.seal(&map).unwrap();
        assert_eq!(from_slice::<Incremental>(&to_vec(&inc)), Ok(inc));
        assert_eq!(next, OsdMap { epoch: map.epoch.next(), ..map.clone() }, "{name}");
        // What did not change is shared, however big the map.
        assert!(next.osds.iter().zip(&map.osds).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert!(Arc::ptr_eq(&next.crush, &map.crush) && Arc::ptr_eq(&next.pg_upmap, &map.pg_upmap));
    }
}

#[test]
fn osdmaptool_reads_our_maps_and_places_alike() {
    for (name, map) in recipes() {
        let Some(theirs) = theirs(name, &map) else { return };
        assert_lines(name, &ours(&map), &theirs);
        let file = scratch(&format!("{name}.osdmap"));
        let print = tool("osdmaptool", &[file.to_str().unwrap(), "--print"]).unwrap();
        assert!(print.contains(&format!("max_osd {}\n", map.max_osd())), "{name}: {print}");
        let flags: Vec<&str> = map_flags::names(map.flags).collect();
        assert!(print.contains(&format!("\nflags {}\n", flags.join(","))), "{name}: {print}");
    }
}

#[test]
fn a_map_that_osdmaptool_made_is_read_and_written_again() {
    let file = scratch("simple.osdmap");
    let path = file.to_str().unwrap();
    if tool("osdmaptool", &["--createsimple", "7", "--with-default-pool", "--clobber", path]).is_none() {
        return;
    }
    let bytes = std::fs::read(&file).unwrap();
    let mut map: OsdMap = from_slice(&bytes).unwrap();
    assert_eq!(to_vec(&map), bytes);
    // Its OSDs come up in our hands, and it goes on judging.
    let mut inc = Incremental::after(&map, NOW);
    for osd in 0..7 {
        inc.new_state.insert(OsdId(osd), osd_state::EXISTS);
        inc.new_weight.insert(OsdId(osd), Osd::IN);
        inc.new_up_client.insert(OsdId(osd), AddrVec::default());
    }
    map = map.apply(&inc).unwrap();
    assert_eq!(map.up_osds().count(), 7);
    assert_lines("simple", &ours(&map), &theirs("simple", &map).unwrap());
}

#[test]
fn objects_belong_to_the_groups_that_osdmaptool_says() {
    let (_, map) = recipes().into_iter().find(|(name, _)| *name == "odd").unwrap();
    let file = scratch("objects.osdmap");
    std::fs::write(&file, to_vec(&map)).unwrap();
    for name in ["a", "rbd_header.1", "a name with spaces", "1000000000000.00000000"] {
        for pool in map.pool_ids() {
            let id = pool.to_string();
            let args = [file.to_str().unwrap(), "--test-map-object", name, "--pool", &id];
            let Some(answer) = tool("osdmaptool", &args) else { return };
            // object 'a' -> 1.1c -> [3,1,8]
            let pg = map.object_to_pg(&ObjectLocator::new(pool), &name.into()).unwrap();
            assert!(answer.contains(&format!("' -> {pg} -> ")), "{name} {pg}: {answer}");
        }
    }
    assert_eq!(map.object_to_pg(&ObjectLocator::new(PoolId(99)), &"a".into()), None);
}

#[test]
fn monmaptool_reads_our_map() {
    let mons = ["a", "b", "c"].into_iter().enumerate().map(|(at, name)| {
        let sock = format!("127.0.0.1:{}", 3300 + at).parse().unwrap();
        (name.to_string(), AddrVec::one(EntityAddr::msgr2(sock, 0)))
    });
    let map = MonMap::new(*b"placement-tests!", NOW, mons);
    let file = scratch("monmap");
    std::fs::write(&file, to_vec(&map)).unwrap();
    let Some(print) = tool("monmaptool", &["--print", file.to_str().unwrap()]) else { return };
    for part in [
        "epoch 1\n",
        "min_mon_release 16 (pacific)",
        "0: v2:127.0.0.1:3300/0 mon.a",
        "2: v2:127.0.0.1:3302/0 mon.c",
    ] {
        assert!(print.contains(part), "no {part:?} in {print}");
    }
}

#[test]
fn an_interval_ends_when_the_placement_the_pool_or_the_number_of_groups_changes() {
    let mut map = cluster(crush(6, (1, 6), 0, |_| ONE));
    let pool = copies(&mut map, 3, 8);
    let pg = PgId { pool, seed: 1 };
    let up = map.pg_to_up_acting(pg).up;
    let new = |change: &dyn Fn(&mut Incremental)| {
        let mut inc = Incremental::after(&map, NOW);
        change(&mut inc);
        is_new_interval(&map, &map.apply(&inc).unwrap(), pg)
    };
    let with_pool = |change: &dyn Fn(&mut Pool)| {
        let mut changed = map.pool(pool).unwrap().clone();
        change(&mut changed);
        new(&|inc| inc.new_pools = BTreeMap::from([(pool, Arc::new(changed.clone()))]))
    };
    let stranger = map.osd_ids().find(|osd| !up.contains(osd)).unwrap();
    let reversed: Vec<OsdId> = up.iter().rev().copied().collect();

    assert!(!new(&|_| {}));
    assert!(!new(&|inc| inc.new_state = BTreeMap::from([(stranger, osd_state::UP)])));
    assert!(new(&|inc| inc.new_state = BTreeMap::from([(up[2], osd_state::UP)])));
    assert!(new(&|inc| inc.new_pg_temp = BTreeMap::from([(pg, reversed.clone())])));
    assert!(new(&|inc| inc.new_primary_temp = BTreeMap::from([(pg, up[1])])));
    assert!(new(&|inc| inc.old_pools = BTreeSet::from([pool])));
    assert!(!with_pool(&|p| p.quota_max_bytes = 5));
    assert!(with_pool(&|p| p.min_size = 2));
    assert!(with_pool(&|p| p.pg_num = 16)); // 1.1 gives objects to 1.9
    assert!(!with_pool(&|p| p.pg_num = 9)); // 1.0 does
    assert!(!with_pool(&|p| p.pg_num_pending = 7)); // 1.7 would go into 1.3
    assert!(with_pool(&|p| p.pg_num_pending = 5)); // 1.5 would go into 1.1
}

#[test]
fn a_fence_holds_for_one_client_or_for_a_whole_machine() {
    let mut map = cluster(crush(1, (1, 1), 0, |_| ONE));
    let any = |sock: &str, nonce| EntityAddr {
        kind: nacre_proto::types::AddrKind::Any,
        nonce,
        sock: Some(sock.parse().unwrap()),
    };
    let list = [any("10.0.0.1:0", 77), any("10.0.0.2:0", 0)];
    map.blocklist = Arc::new(list.into_iter().map(|addr| (addr, NOW)).collect());
    let fenced = |sock: &str, nonce| {
        map.is_blocklisted(&AddrVec::one(EntityAddr::msgr2(sock.parse().unwrap(), nonce)))
    };
    assert!(fenced("10.0.0.1:0", 77));
    assert!(!fenced("10.0.0.1:0", 78));
    assert!(fenced("10.0.0.2:0", 1) && fenced("10.0.0.2:6800", 5));
    assert!(!fenced("10.0.0.3:0", 77));
}
