//! Memory of OSDs when one was down during many random writes and all restart at once. Longer runs: `cargo
//! xtask sim --outage-writes 10000000` (`docs/simulation.md`).

use nacre_sim::{Outage, OutageReport};

/// Fifty writes per object, so that an object is as much work in a long run as in a short one. Stores are
/// small and there is one placement group, so that everything bounded reaches its bound early.
fn after(writes: u64) -> OutageReport {
    Outage { objects: writes / 50, pgs: 1, small_stores: true, ..Outage::new(writes) }.run().unwrap()
}

/// Everything with a bound of its own (logs, replies, caches, buffers) is there in both runs. The difference
/// is what is kept per write (at most 64 bytes for a missed one, and its block's location, in memory as long
/// as there is space), and the noise of a peak, which is up to two million bytes and so asks for runs that
/// differ by many writes: 227 and 157 bytes here.
const EACH: usize = 320;

/// Counts requested bytes, so it is the same on every machine. Each OSD has 256 MiB, or the run fails.
#[test]
fn each_further_write_during_an_outage_costs_few_bytes_on_any_osd() {
    const FEW: u64 = 5_000;
    const MORE: u64 = 25_000;
    let (few, many) = (after(FEW), after(FEW + MORE));
    let all = [("stayed up", few.stayed(), many.stayed()), ("was down", few.returned(), many.returned())];
    for (which, few, many) in all {
        let slope = many.saturating_sub(few) / MORE as usize;
        assert!(
            slope <= EACH,
            "an OSD that {which} held {few} and {many} bytes, {slope} for each further write"
        );
    }
}
