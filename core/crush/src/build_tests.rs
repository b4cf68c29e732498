//! Edits, compared with what a live cluster and crushtool made of the same ones.

use crate::tests::{RECORDED, captured, recorded_map};
use crate::{Bucket, CrushMap, EditError, Items, Location};
use nacre_base::Rng;
use nacre_wire::{from_slice, to_vec};

fn at(places: &[(&str, &str)]) -> Location {
    places.iter().map(|(kind, name)| (kind.to_string(), name.to_string())).collect()
}

/// Six OSDs on three hosts, every second one of class ssd.
fn six() -> CrushMap {
    let mut map = CrushMap::fresh(1);
    for osd in 0..6 {
        let host = format!("h{}", osd / 2);
        map.set_device_class(osd, if osd % 2 == 0 { "hdd" } else { "ssd" }).unwrap();
        map.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &at(&[("host", &host), ("root", "default")]))
            .unwrap();
    }
    map.validate().unwrap();
    map
}

#[test]
fn a_fresh_map_after_its_osds_booted_equals_the_live_clusters() {
    for bytes in captured() {
        let theirs: CrushMap = from_slice(&bytes).unwrap();
        let host = theirs.names[&-3].clone();
        let mut ours = CrushMap::fresh(0);
        for osd in 0..3 {
            let weight = theirs.item_weight(osd).unwrap();
            ours.set_device_class(osd, &theirs.class_names[&0]).unwrap();
            let place = at(&[("host", &host), ("root", "default")]);
            assert!(ours.create_or_move_item(osd, weight, &format!("osd.{osd}"), &place).unwrap());
            assert!(!ours.create_or_move_item(osd, weight, &format!("osd.{osd}"), &place).unwrap());
        }
        assert_eq!(ours, theirs);
        assert_eq!(to_vec(&ours), bytes);
    }
}

#[test]
fn buckets_made_from_recorded_weights_equal_the_recorded_buckets() {
    let mut made = 0;
    for (name, text) in RECORDED {
        let map: CrushMap = from_slice(&recorded_map(text)).unwrap();
        for theirs in map.buckets.iter().flatten() {
            let alg = theirs.alg.code();
            let version = map.tunables.straw_calc_version;
            let ours = Bucket::make(theirs.id, theirs.kind, alg, &theirs.content(), version).unwrap();
            assert_eq!(&ours, theirs, "{name}");
            made += 1;
        }
    }
    assert!(made > 200);
}

#[test]
fn shadow_trees_keep_their_ids_when_hosts_come_and_go() {
    let mut map = six();
    let ssd = map.class_by_name("ssd").unwrap();
    let before = map.shadows.clone();
    map.insert_item(6, 0x1_0000, "osd.6", &at(&[("host", "h9"), ("root", "default")])).unwrap();
    map.set_device_class(6, "ssd").unwrap();
    for (original, shadows) in &before {
        assert_eq!(&map.shadows[original], shadows);
    }
    let root = map.shadows[&-1][&ssd];
    assert_eq!(map.names[&root], "default~ssd");
    assert_eq!(map.devices_below(root).collect::<Vec<_>>(), [1, 3, 5, 6]);
    map.remove_item("osd.6").unwrap();
    map.remove_item("h9").unwrap();
    assert_eq!(map.shadows, before);
    map.validate().unwrap();
}

#[test]
fn weights_of_all_ancestors_follow() {
    let mut map = six();
    map.reweight_item("osd.3", 0x8000).unwrap();
    assert_eq!(map.bucket(map.item_by_name("h1").unwrap()).unwrap().weight, 0x1_8000);
    assert_eq!(map.bucket(-1).unwrap().weight, 0x5_8000);
    map.move_item("h1", &at(&[("rack", "r1"), ("root", "default")])).unwrap();
    assert_eq!(map.bucket(-1).unwrap().weight, 0x5_8000);
    let place = |kind: &str, name: &str| (kind.to_string(), name.to_string());
    assert_eq!(map.location(3), [place("host", "h1"), place("rack", "r1"), place("root", "default")]);
    map.remove_item("osd.2").unwrap();
    assert_eq!(map.bucket(-1).unwrap().weight, 0x4_8000);
    map.validate().unwrap();
}

#[test]
fn rules_choose_below_their_root_and_class_only() {
    let mut map = six();
    let fast = map.create_replicated_rule("fast", "default", "host", Some("ssd")).unwrap();
    let coded = map.create_erasure_rule("coded", "default", "osd", None).unwrap();
    assert_eq!((fast, coded), (1, 2));
    for x in 0..50 {
        let mut chosen = map.do_rule(fast, x, 3, &[0x1_0000; 6], None);
        chosen.sort_unstable();
        assert_eq!(chosen, [1, 3, 5]);
        assert_eq!(map.do_rule(coded, x, 6, &[0x1_0000; 6], None).len(), 6);
    }
    let none = EditError::NoClass { root: "default".into(), class: "nvme".into() };
    assert_eq!(map.create_replicated_rule("x", "default", "host", Some("nvme")), Err(none));
    assert_eq!(
        map.create_erasure_rule("fast", "default", "host", None),
        Err(EditError::Exists("fast".into()))
    );
}

#[test]
fn a_host_may_be_in_two_places_and_leave_one() {
    let mut map = six();
    map.add_bucket("other", "root").unwrap();
    map.link_item("h0", &at(&[("root", "other")])).unwrap();
    let weight = |map: &CrushMap, name: &str| map.bucket(map.item_by_name(name).unwrap()).unwrap().weight;
    assert_eq!((weight(&map, "default"), weight(&map, "other")), (6 << 16, 2 << 16));
    map.validate().unwrap();
    assert_eq!(map.unlink_item("h0", Some("other")), Ok(true));
    assert_eq!((weight(&map, "default"), weight(&map, "other")), (6 << 16, 0));
    assert_eq!(map.unlink_item("h0", Some("other")), Ok(false));
    assert_eq!(map.unlink_item("h0", None), Ok(true));
    assert_eq!(weight(&map, "default"), 4 << 16);
    // It is still there, with its OSDs.
    assert_eq!(weight(&map, "h0"), 2 << 16);
    assert!(map.unlink_item("nobody", None).is_err());
    map.validate().unwrap();
}

#[test]
fn a_new_host_takes_the_place_of_an_old_one() {
    let mut map = six();
    let old = map.item_by_name("h0").unwrap();
    let place = at(&[("host", "new")]);
    map.add_bucket("new", "host").unwrap();
    map.insert_item(7, 0x2_0000, "osd.7", &place).unwrap();
    map.swap_buckets("new", "h0").unwrap();
    map.validate().unwrap();
    assert_eq!(map.item_by_name("new"), Some(old));
    assert_eq!(map.bucket(old).unwrap().items[..], [7]);
    let out = map.item_by_name("h0").unwrap();
    assert_eq!(map.bucket(out).unwrap().items[..], [0, 1]);
    assert_eq!(map.item_weight(old), Some(2 << 16));
    let within = Err(EditError::Loop("default".into()));
    assert_eq!(map.swap_buckets("default", "h1"), within);
}

#[test]
fn a_refused_edit_changes_nothing() {
    let mut map = six();
    let before = map.clone();
    assert_eq!(map.remove_item("h0"), Err(EditError::NotEmpty("h0".into())));
    assert_eq!(map.remove_item("nowhere"), Err(EditError::NoItem("nowhere".into())));
    assert_eq!(map.move_item("default", &at(&[("host", "h0")])), Err(EditError::Loop("default".into())));
    let wrong = EditError::WrongType { name: "h0".into(), wanted: "rack".into() };
    assert_eq!(map.insert_item(9, 1, "osd.9", &at(&[("rack", "h0")])), Err(wrong));
    assert_eq!(map.insert_item(9, 1, "osd.9", &Location::new()), Err(EditError::NoPlace("osd.9".into())));
    assert_eq!(map.insert_item(9, 1, "a b", &at(&[("host", "h0")])), Err(EditError::BadName("a b".into())));
    assert!(matches!(map.reweight_item("osd.0", u32::MAX), Err(EditError::TooHeavy { .. })));
    assert_eq!(map, before);
}

#[test]
fn random_edits_keep_the_map_valid_and_encodable() {
    let mut rng = Rng::new(11);
    for (name, text) in RECORDED.iter().filter(|(name, _)| *name != "thousand" && *name != "racks") {
        let mut map: CrushMap = from_slice(&recorded_map(text)).unwrap();
        for _ in 0..60 {
            let osd = rng.below(30) as i32;
            let osd_name = format!("osd.{osd}");
            let host = map.names.get(&-(rng.below(9) as i32)).cloned().unwrap_or("new".into());
            let place = at(&[("host", &host), ("root", "root")]);
            // Refusals are as good as changes here.
            let _ = match rng.below(6) {
                0 => map.create_or_move_item(osd, 0x1_0000, &osd_name, &place).map(drop),
                1 => map.remove_item(&osd_name),
                2 => map.reweight_item(&osd_name, rng.below(0x4_0000) as u32),
                3 => map.set_device_class(osd, ["hdd", "ssd"][rng.below(2) as usize]).map(drop),
                4 => map.move_item(&host, &at(&[("root", "other")])),
                _ => map.remove_device_class(osd).map(drop),
            };
            assert_eq!(map.validate(), Ok(()), "{name}");
        }
        assert_eq!(from_slice::<CrushMap>(&to_vec(&map)).as_ref(), Ok(&map), "{name}");
    }
}

#[test]
fn a_tree_bucket_takes_as_many_items_as_its_encoding_can_count() {
    let content: Vec<(i32, u32)> = (0..65).map(|item| (item, 0x1_0000)).collect();
    let full = Bucket::make(-1, 1, 3, &content[..64], 1).unwrap();
    assert!(matches!(full.alg, Items::Tree { nodes } if nodes.len() == 128));
    assert_eq!(Bucket::make(-1, 1, 3, &content, 1), Err(EditError::TreeFull { bucket: -1 }));
}

#[test]
fn shadow_trees_made_anew_get_the_ids_that_crushtool_gave_them() {
    for name in ["classes", "default-set"] {
        let (_, text) = RECORDED.iter().find(|(have, _)| *have == name).unwrap();
        let theirs: CrushMap = from_slice(&recorded_map(text)).unwrap();
        let mut ours = theirs.clone();
        ours.choose_args.clear();
        ours.rebuild_shadows().unwrap();
        assert_eq!(ours.buckets, theirs.buckets, "{name}: kept");

        let shadows: Vec<i32> =
            theirs.shadows.values().flat_map(|shadows| shadows.values().copied()).collect();
        for id in shadows {
            ours.drop_bucket(id);
            ours.names.remove(&id);
            ours.class_of.remove(&id);
        }
        ours.shadows.clear();
        ours.rebuild_shadows().unwrap();
        assert_eq!(ours.shadows, theirs.shadows, "{name}: new");
        assert_eq!(ours.buckets, theirs.buckets, "{name}: new");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the tool reads maps from files; this is a test, not the core")]
fn edits_give_the_map_that_the_installed_crushtool_makes_of_them() {
    use std::process::Command;
    if Command::new("crushtool").arg("--help").output().is_err() {
        println!("skipped: crushtool is not installed");
        return;
    }
    let (_, text) = RECORDED.iter().find(|(have, _)| *have == "classes").unwrap();
    let mut ours: CrushMap = from_slice(&recorded_map(text)).unwrap();
    ours.choose_args.clear();
    let file = std::env::temp_dir().join(format!("nacre-crush-edit-{}", std::process::id()));
    std::fs::write(&file, to_vec(&ours)).unwrap();

    ours.insert_item(16, 0x1_8000, "osd.16", &at(&[("host", "h4"), ("root", "default")])).unwrap();
    ours.insert_item(17, 0x1_0000, "osd.17", &at(&[("host", "h7"), ("root", "default")])).unwrap();
    ours.reweight_item("osd.5", 0x8000).unwrap();
    ours.remove_item("osd.2").unwrap();
    for edit in [
        "--add-item 16 1.5 osd.16 --loc host h4 --loc root default",
        "--add-item 17 1.0 osd.17 --loc host h7 --loc root default",
        "--reweight-item osd.5 0.5",
        "--remove-item osd.2",
    ] {
        let mut tool = Command::new("crushtool");
        let done = tool.arg("-i").arg(&file).arg("-o").arg(&file).args(edit.split(' ')).output().unwrap();
        assert!(done.status.success(), "{edit}: {done:?}");
    }
    let theirs = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(ours, from_slice(&theirs).unwrap());
    assert_eq!(to_vec(&ours), theirs);
}
