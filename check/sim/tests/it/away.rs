//! What OSDs take of memory when one was away during many scattered writes and all start at once. Longer runs:
//! `cargo xtask sim --away-writes 10000000` (`docs/simulation.md`).

use nacre_sim::{Away, AwayReport};

/// To as many objects as to give each fifty, so that one of them is as much work in a long run as in a short
/// one. Stores are small and there is one group, so that what is bounded has reached its bound soon.
fn after(writes: u64) -> AwayReport {
    Away { objects: writes / 50, groups: 1, small_stores: true, ..Away::new(writes) }.run().unwrap()
}

/// What has a bound of its own (logs, answers, caches, what is on its way) is there in both runs. What is left is what
/// is known of each write (at most 64 bytes for one that was missed, and where its block is, in memory as long as there
/// is room), and the noise of a largest value, which is up to two million bytes and so asks for runs that differ by
/// many writes: 227 and 157 bytes here.
const EACH: usize = 320;

/// Counted in bytes that were asked for, so it is the same on every machine. Each OSD has 256 MiB, or the run fails.
#[test]
fn each_further_write_while_an_osd_is_away_takes_few_bytes_of_any_of_them() {
    const FEW: u64 = 5_000;
    const MORE: u64 = 25_000;
    let (few, many) = (after(FEW), after(FEW + MORE));
    let all = [("stayed", few.stayed(), many.stayed()), ("was away", few.returned(), many.returned())];
    for (who, few, many) in all {
        let slope = many.saturating_sub(few) / MORE as usize;
        assert!(slope <= EACH, "who {who} held {few} and {many} bytes, {slope} for each further write");
    }
}
