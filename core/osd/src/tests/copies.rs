//! Objects that are made copies of others.

use super::world::{POOL, World};
use super::{append, read, write};
use bytes::Bytes;
use nacre_base::{Name, OsdId, PoolId, SnapId};
use nacre_proto::types::{CopySource, ObjectLocator, Op, object_hash};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longer than the parts that tests have objects fetched in.
const LONG: &str = "a text that does not fit into one part of a copy, nor into two of them";

fn source_in(pool: PoolId, name: &str) -> CopySource {
    CopySource {
        snap: SnapId::HEAD,
        version: 0,
        flags: 0,
        fadvise: 0,
        name: name.into(),
        locator: ObjectLocator::new(pool),
        truncate: Some((0, 0)),
    }
}
fn copy(name: &str) -> Vec<Op> {
    vec![Op::CopyFrom(source_in(POOL, name))]
}
fn copy_version(name: &str, version: u64) -> Vec<Op> {
    vec![Op::CopyFrom(CopySource { version, ..source_in(POOL, name) })]
}
/// The number of a name's PG among four.
fn group(name: &str) -> u32 {
    object_hash(&Name::default(), &name.into()) % 4
}
/// Two names in PGs that have different primaries.
fn apart(w: &mut World) -> (String, String) {
    w.run_until("clean", World::all_clean);
    let primary = |name: &str| primary(w, name);
    let to = "to".to_string();
    let from = (0..).map(|n| format!("from{n}")).find(|name| primary(name) != primary(&to)).unwrap();
    (from, to)
}
fn pg(w: &World, name: &str) -> nacre_base::PgId {
    w.map.hash_to_pg(POOL, object_hash(&Name::default(), &name.into())).unwrap()
}
fn primary(w: &World, name: &str) -> usize {
    w.map.pg_to_up_acting(pg(w, name)).acting_primary.unwrap().index()
}
/// Data, attributes, omap and its header.
fn everything() -> Vec<Op> {
    let pairs: BTreeMap<Name, Bytes> =
        (0..7).map(|n| (format!("k{n}").into(), Bytes::from(format!("v{n}")))).collect();
    let mut ops = write(LONG);
    ops.extend([
        Op::OmapSetVals(pairs),
        Op::OmapSetHeader("header".into()),
        Op::SetXattr { name: "x".into(), value: "1".into() },
    ]);
    ops
}
fn look() -> Vec<Op> {
    let vals = Op::OmapGetVals { after: Name::default(), max: 100, prefix: Name::default() };
    let mut ops = read();
    ops.extend([Op::GetXattrs, Op::OmapGetHeader, vals]);
    ops
}
fn outputs(w: &mut World, name: &str) -> Vec<Bytes> {
    w.run_ops(name, look()).ops.into_iter().map(|op| op.data).collect()
}

#[test]
fn a_copy_has_all_that_its_source_has_and_nothing_that_it_had() {
    for (seed, osds) in [(1, 1), (2, 3)] {
        let mut w = World::new(seed, osds, osds as u8, 1, 4);
        w.run_ops("from", everything());
        let full = outputs(&mut w, "from");
        // In every PG: so also in the source's own, and on other OSDs.
        let names: Vec<String> = (0..12).map(|n| format!("to{n}")).collect();
        assert_eq!(names.iter().map(|n| group(n)).collect::<BTreeSet<_>>().len(), 4);
        for name in &names {
            w.run_ops(name, append("its own"));
            w.run_ops(name, vec![Op::SetXattr { name: "own".into(), value: "1".into() }]);
            let done = w.run_ops(name, copy("from"));
            assert_eq!(done.result, 0);
            assert_eq!(outputs(&mut w, name), full);
            assert_eq!(w.run_ops(name, read()).user_version, done.user_version);
        }
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
    }
}

#[test]
fn a_source_can_be_in_another_pool() {
    let mut w = World::new(3, 3, 2, 1, 4);
    let other = PoolId(2);
    w.add_pool(other, vec![OsdId(2), OsdId(1)]);
    let hash = object_hash(&Name::default(), &"from".into());
    let tid = w.submit_with(ObjectLocator::new(other), "from".into(), hash, 0, write(LONG));
    assert_eq!(w.reply(tid).result, 0);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(w.run_ops(name, vec![Op::CopyFrom(source_in(other, "from"))]).result, 0);
        assert_eq!(w.run_ops(name, read()).ops[0].data, LONG);
    }
    let gone = w.run_ops("a", vec![Op::CopyFrom(source_in(PoolId(9), "from"))]);
    assert_eq!(gone.result, -2);
}

#[test]
fn copy_from_absent_own_or_changed_object_is_refused() {
    let mut w = World::new(4, 3, 3, 2, 4);
    w.run_ops("to", write("as before"));
    let version = w.run_ops("from", write("new")).user_version;
    assert_eq!(w.run_ops("to", copy("missing")).result, -2);
    assert_eq!(w.run_ops("to", copy("to")).result, -22);
    assert_eq!(w.run_ops("to", copy_version("from", version - 1)).result, -34);
    assert_eq!(w.run_ops("to", copy_version("from", version + 1)).result, -75);
    let unknown = CopySource { flags: 0x40, ..source_in(POOL, "from") };
    assert_eq!(w.run_ops("to", vec![Op::CopyFrom(unknown)]).result, -22);
    // One operation of several that fails takes the others with it.
    let exclusive = [copy("from"), vec![Op::Create { exclusive: true }]].concat();
    assert_eq!(w.run_ops("to", exclusive).result, -17);
    assert_eq!(w.run_ops("to", read()).ops[0].data, "as before");
    let more = [copy_version("from", version), append("er")].concat();
    assert_eq!(w.run_ops("to", more).result, 0);
    assert_eq!(w.run_ops("to", read()).ops[0].data, "newer");
}

#[test]
fn copy_from_a_changing_source_is_consistent() {
    for seed in 0..20 {
        let mut w = World::new(seed, 3, 3, 2, 4);
        let (from, to) = apart(&mut w);
        let texts: Vec<String> = (0..5).map(|n| format!("{n}").repeat(40 + n)).collect();
        w.run_ops(&from, write(&texts[0]));
        let copying = w.submit(&to, copy(&from));
        let behind = w.submit(&to, read());
        for text in &texts[1..] {
            w.run_ops(&from, write(text));
        }
        assert_eq!(w.reply(copying).result, 0);
        let copied = w.run_ops(&to, read()).ops[0].data.clone();
        assert!(texts.iter().any(|text| copied == *text), "seed {seed}: {copied:?}");
        assert_eq!(w.reply(behind).ops[0].data, copied, "what came later ran later");
    }
}

#[test]
fn copy_from_continues_when_the_sources_primary_dies() {
    for seed in 0..20 {
        let mut w = World::new(seed, 4, 3, 1, 4);
        let (from, to) = apart(&mut w);
        w.run_ops(&from, everything());
        let full = outputs(&mut w, &from);
        let tid = w.submit(&to, copy(&from));
        let before = w.rng.duration(Duration::ZERO, Duration::from_millis(60));
        w.run_for(before);
        let dying = primary(&w, &from);
        w.kill(dying);
        assert_eq!(w.reply(tid).result, 0);
        assert_eq!(outputs(&mut w, &to), full, "seed {seed}");
        w.start(dying);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
    }
}

/// The copy's own write is the first object of an undersized placement group, which is degraded from then on.
/// That makes looks at merges and backoffs due after those of the event; `Osd::check` ended the OSD for it.
#[test]
fn copy_from_itself_may_change_the_state_of_the_target() {
    let mut w = World::new(5, 3, 3, 1, 8);
    w.run_until("clean", World::all_clean);
    let from = "from".to_string();
    let me = primary(&w, &from);
    w.run_ops(&from, everything());
    w.kill((me + 1) % 3);
    w.run_until("down", |w| w.map.up_osds().count() == 2);
    w.run_for(Duration::from_secs(3));
    let to: Vec<String> = (0..200).map(|n| format!("to{n}")).filter(|to| primary(&w, to) == me).collect();
    assert!(to.iter().map(|to| pg(&w, to)).collect::<BTreeSet<_>>().len() > 1);
    for to in to {
        assert_eq!(w.run_ops(&to, copy(&from)).result, 0);
    }
}

#[test]
fn copy_from_restarts_after_peering_or_session_loss() {
    for seed in 0..20 {
        let mut w = World::new(seed, 4, 3, 1, 4);
        let (from, to) = apart(&mut w);
        w.run_ops(&from, everything());
        let full = outputs(&mut w, &from);
        let tid = w.submit(&to, copy(&from));
        let before = w.rng.duration(Duration::ZERO, Duration::from_millis(60));
        w.run_for(before);
        let (here, there) = (primary(&w, &to), primary(&w, &from));
        if seed % 2 == 0 {
            w.reset_between(here, there);
        } else {
            let replica = (0..4).find(|n| *n != here && *n != there).unwrap();
            w.kill(replica);
        }
        assert_eq!(w.reply(tid).result, 0);
        assert_eq!(outputs(&mut w, &to), full, "seed {seed}");
    }
}

#[test]
fn mutual_copy_from_onto_each_other_does_not_deadlock() {
    for seed in 0..20 {
        let mut w = World::new(seed, 3, 3, 2, 4);
        let (a, b) = apart(&mut w);
        w.run_ops(&a, write(LONG));
        w.run_ops(&b, write(LONG));
        let tids = [w.submit(&a, copy(&b)), w.submit(&b, copy(&a))];
        for tid in tids {
            assert_eq!(w.reply(tid).result, 0);
        }
        assert_eq!(w.run_ops(&a, read()).ops[0].data, LONG);
    }
}
