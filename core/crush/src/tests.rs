//! Against Ceph: recorded maps and mappings, and `crushtool` itself where it is installed.

use crate::{CrushMap, Invalid, Items};
use nacre_base::Rng;
use nacre_wire::{from_slice, to_vec};

const CAPTURED: &str = include_str!("../../../check/corpus/data/crush.txt");

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        /// Written by check/corpus/record-crush.sh, which says what the lines are.
        pub const RECORDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../check/corpus/data/crush/", $name, ".txt")))),*];
    };
}
recorded!(
    "classes",
    "default-set",
    "list",
    "list-legacy",
    "mixed",
    "one",
    "racks",
    "straw",
    "straw-legacy",
    "straw2",
    "straw2-legacy",
    "thousand",
    "tree",
    "tree-legacy",
    "uneven",
    "uniform",
    "uniform-legacy",
    "unstable-0",
    "unstable-1",
);

pub fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2) && hex.is_ascii());
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The maps of a live cluster, by their label.
pub fn captured() -> Vec<Vec<u8>> {
    let lines = CAPTURED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| from_hex(line.split_once('\t').unwrap().1)).collect()
}

pub fn recorded_map(text: &str) -> Vec<u8> {
    from_hex(text.lines().next().unwrap().strip_prefix("map ").unwrap())
}

/// One `test` line: how the mapper was called, and what it answered for each x.
struct Case {
    rule: u32,
    size: usize,
    pool: i64,
    weights: Vec<u32>,
    answers: Vec<(u32, Vec<i32>)>,
}

impl Case {
    fn parse(map: &CrushMap, line: &str) -> Case {
        let fields: Vec<&str> = line.split(' ').collect();
        let [rule, size, pool, changed] = fields[..] else { panic!("{line}") };
        // crushtool counts devices that no bucket holds as out.
        let mut weights = vec![0; map.max_devices as usize];
        for &item in map.buckets.iter().flatten().flat_map(|bucket| &bucket.items) {
            if let Some(weight) = usize::try_from(item).ok().and_then(|item| weights.get_mut(item)) {
                *weight = 0x1_0000;
            }
        }
        for (device, weight) in changed.split(',').filter_map(|pair| pair.split_once('=')) {
            let weight: f32 = weight.parse().unwrap();
            weights[device.parse::<usize>().unwrap()] = (weight * 65536.0) as u32;
        }
        let pool = pool.parse().unwrap();
        Case { rule: rule.parse().unwrap(), size: size.parse().unwrap(), pool, weights, answers: Vec::new() }
    }

    fn ours(&self, map: &CrushMap, x: u32) -> Vec<i32> {
        let x = if self.pool == -1 { x } else { crate::hash::hash32_2(x, self.pool as u32) };
        // crushtool always asks for the choose_args of pool 0.
        map.do_rule(self.rule, x, self.size, &self.weights, Some(0))
    }
}

fn cases(map: &CrushMap, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(call) = line.strip_prefix("test ") {
            cases.push(Case::parse(map, call));
        } else {
            let (x, items) = line.split_once(' ').unwrap();
            let items = items.split(',').filter(|item| !item.is_empty()).map(|item| item.parse().unwrap());
            cases.last_mut().unwrap().answers.push((x.parse().unwrap(), items.collect()));
        }
    }
    cases
}

#[test]
fn the_maps_of_a_live_cluster_decode_and_encode_to_the_same_bytes() {
    assert_eq!(captured().len(), 2);
    for bytes in captured() {
        let map: CrushMap = from_slice(&bytes).unwrap();
        assert_eq!(map.item_by_name("default"), Some(-1));
        assert_eq!(to_vec(&map), bytes);
    }
}

#[test]
pub fn recorded_maps_decode_and_encode_to_the_same_bytes() {
    for (name, text) in RECORDED {
        let bytes = recorded_map(text);
        let map: CrushMap = from_slice(&bytes).unwrap();
        assert!(to_vec(&map) == bytes, "{name}");
    }
}

#[test]
fn mappings_equal_those_that_crushtool_recorded() {
    let mut compared = 0;
    for (name, text) in RECORDED {
        let map: CrushMap = from_slice(&recorded_map(text)).unwrap();
        for case in cases(&map, text) {
            assert!(!case.answers.is_empty(), "{name} rule {}", case.rule);
            for (x, theirs) in &case.answers {
                assert_eq!(
                    &case.ours(&map, *x),
                    theirs,
                    "{name} rule {} size {} x {x}",
                    case.rule,
                    case.size
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 4000, "{compared}");
}

/// More inputs than were recorded.
#[test]
#[expect(clippy::disallowed_methods, reason = "the tool reads maps from files; this is a test, not the core")]
fn mappings_equal_those_of_the_installed_crushtool() {
    use std::process::Command;
    if Command::new("crushtool").arg("--help").output().is_err() {
        println!("skipped: crushtool is not installed");
        return;
    }
    let dir = std::env::temp_dir().join(format!("nacre-crush-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in RECORDED {
        let file = dir.join(name);
        let map: CrushMap = from_slice(&recorded_map(text)).unwrap();
        std::fs::write(&file, to_vec(&map)).unwrap();
        for case in cases(&map, text) {
            let mut tool = Command::new("crushtool");
            tool.arg("-i").arg(&file).args([
                "--test",
                "--show-mappings",
                "--min-x",
                "5000",
                "--max-x",
                "5099",
            ]);
            tool.args(["--rule", &case.rule.to_string(), "--num-rep", &case.size.to_string()]);
            if case.pool != -1 {
                tool.args(["--pool-id", &case.pool.to_string()]);
            }
            for (device, &weight) in
                case.weights.iter().enumerate().filter(|(_, weight)| **weight != 0x1_0000)
            {
                let weight = f64::from(weight) / 65536.0;
                tool.args(["--weight", &device.to_string(), &weight.to_string()]);
            }
            let answer = tool.output().unwrap();
            let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
            let mut lines = 0;
            for line in answer.lines().filter(|line| line.starts_with("CRUSH rule")) {
                let x = line.split(' ').nth(4).unwrap().parse().unwrap();
                let theirs = line[line.find('[').unwrap()..].replace(',', ", ");
                assert_eq!(format!("{:?}", case.ours(&map, x)), theirs, "{name} rule {} x {x}", case.rule);
                lines += 1;
            }
            assert_eq!(lines, 100, "{name} rule {}: {answer}", case.rule);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Maps that differ from real ones in a few bytes: what decodes must stay usable.
#[test]
fn mutated_maps_are_refused_or_can_be_mapped_and_encoded() {
    let mut rng = Rng::new(0x6372_7573);
    let small = RECORDED.iter().filter(|(name, _)| *name != "thousand").map(|(_, text)| recorded_map(text));
    let blobs: Vec<Vec<u8>> = small.chain(captured()).collect();
    let mut usable = 0;
    for round in 0..4000 {
        let mut bytes = blobs[round % blobs.len()].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let Ok(map) = from_slice::<CrushMap>(&bytes) else { continue };
        usable += 1;
        assert_eq!(from_slice::<CrushMap>(&to_vec(&map)).as_ref(), Ok(&map));
        for rule in 0..map.rules.len().min(10) as u32 {
            let x = rng.next_u64() as u32;
            let result = map.do_rule_within(20_000, rule, x, 5, &[0x1_0000; 30], Some(6));
            assert!(result.len() <= 5);
        }
    }
    assert!(usable > 300, "{usable}");
}

#[test]
fn random_bytes_and_maps_cut_before_the_names_end_are_refused() {
    let mut rng = Rng::new(7);
    for len in 0..300 {
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        assert!(from_slice::<CrushMap>(&bytes).is_err());
    }
    let whole = &captured()[0];
    let map: CrushMap = from_slice(whole).unwrap();
    let classes = to_vec(&(&map.class_of, (&map.class_names, &map.shadows)));
    // Maps of older clusters end early; the names are the least that they have.
    let names_end = whole.len() - to_vec(&map.tunables).len() - classes.len() - 4;
    for len in 0..names_end {
        assert!(from_slice::<CrushMap>(&whole[..len]).is_err(), "{len} bytes were accepted");
    }
}

#[test]
fn cyclic_crush_map_is_refused_and_mapping_terminates() {
    let mut map: CrushMap = from_slice(&captured()[0]).unwrap();
    map.bucket_mut(-3).unwrap().items[0] = -1;
    assert!(matches!(map.validate(), Err(Invalid::Cycle { .. })));
    assert!(from_slice::<CrushMap>(&to_vec(&map)).is_err());
    map.rules[0].as_mut().unwrap().steps[1].arg2 = 7; // a type that is never met
    assert_eq!(map.do_rule(0, 1, 3, &[0x1_0000; 3], None), []);
}

#[test]
fn endless_tries_end() {
    let mut map: CrushMap = from_slice(&captured()[0]).unwrap();
    map.tunables.choose_total_tries = u32::MAX;
    map.tunables.choose_local_fallback_tries = u32::MAX;
    assert_eq!(map.do_rule_within(100_000, 0, 1, 3, &[0; 3], None), []);
}

#[test]
fn a_bucket_weight_list_of_another_length_is_refused() {
    let mut map: CrushMap = from_slice(&captured()[0]).unwrap();
    map.bucket_mut(-3).unwrap().alg = Items::Straw2 { weights: vec![1] };
    assert_eq!(map.validate(), Err(Invalid::Weights { bucket: -3, len: 1, items: 3 }));
}
