//! The recordings decode, and the fuzz targets accept their initial inputs.

use nacre_corpus::samples::{self, Sample};
use nacre_corpus::targets::ALL;
use nacre_crush::CrushMap;
use nacre_proto::maps::{Incremental, MgrMap, MonMap, OsdMap};
use nacre_proto::messages::Envelope;
use nacre_wire::{Decode, Encode, from_slice, to_vec};
use std::collections::BTreeSet;

fn same<T: Encode + Decode>(samples: Vec<Sample>, expected: usize) {
    assert_eq!(samples.len(), expected);
    for (label, bytes) in samples {
        let value: T = from_slice(&bytes).unwrap_or_else(|why| panic!("{label}: {why}"));
        assert!(to_vec(&value) == bytes, "{label} became other bytes");
    }
}

#[test]
fn every_sample_decodes_with_nothing_left_over_and_encodes_to_the_same_bytes() {
    same::<OsdMap>(samples::osd_maps(), 4);
    same::<Incremental>(samples::incrementals(), 117);
    same::<MonMap>(samples::mon_maps(), 1);
    same::<MgrMap>(samples::mgr_maps(), 1);
    same::<CrushMap>(samples::crush_maps(), 21);
    let messages = samples::messages();
    assert!(messages.len() > 200, "{}", messages.len());
    for (label, raw) in messages {
        let written = Envelope::from_raw(raw.clone()).unwrap_or_else(|why| panic!("{label}: {why}")).to_raw();
        assert!((&written.front, &written.data) == (&raw.front, &raw.data), "{label} became other bytes");
    }
}

#[test]
fn every_target_takes_its_own_samples() {
    for target in ALL {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        seeds.iter().for_each(|seed| (target.run)(seed));
    }
}

#[test]
fn targets_have_names_of_their_own() {
    assert_eq!(ALL.iter().map(|target| target.name).collect::<BTreeSet<_>>().len(), ALL.len());
}
