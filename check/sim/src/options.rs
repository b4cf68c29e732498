//! Values for options, from the ranges that the options table gives for simulations.

use nacre_base::Rng;
use nacre_options::{Effect, Kind, Opt};

/// An option, and the least and the greatest value that a simulation gives it.
pub type Range = (&'static Opt, f64, f64);

/// The shape of a run sets these itself, as it limits what may be kept.
const OF_SHAPE: [&str; 3] = ["mon_min_osdmap_epochs", "osd_max_pg_log_entries", "osd_min_pg_log_entries"];

/// All other options that have such a range, in the order of the table.
pub fn simulated() -> Vec<Range> {
    let range = |option: &'static Opt| {
        if OF_SHAPE.contains(&option.name) {
            return None;
        }
        let Effect::Used(used) = option.effect else { return None };
        let (min, max) = used.sim?;
        let number = |text: &str| option.parse(text).expect("the range has values of the option").as_f64();
        Some((option, number(min), number(max)))
    };
    nacre_options::all().iter().filter_map(range).collect()
}

/// Small values are as likely as large ones, and both ends have a share of their own.
pub fn draw(rng: &mut Rng, kind: Kind, min: f64, max: f64) -> String {
    const STEPS: u64 = 1000;
    let at = match rng.below(8) {
        0 => 0.0,
        1 => 1.0,
        _ => (rng.below(STEPS) as f64 / STEPS as f64).powi(3),
    };
    let value = min + at * (max - min);
    match kind {
        Kind::Float => format!("{value:.3}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_values_are_values_of_their_options() {
        let rng = &mut Rng::new(1);
        let ranges = simulated();
        assert!(ranges.len() > 10);
        for (option, min, max) in ranges {
            for _ in 0..100 {
                let text = draw(rng, option.kind, min, max);
                let value = option.parse(&text).unwrap().as_f64();
                assert!((min..=max).contains(&value), "{} = {text}", option.name);
            }
        }
    }
}
