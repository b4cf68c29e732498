//! Finds the faults of a script that its failure needs.

use crate::scenario::run_script;
use crate::script::{Auth, Fault, Script};

/// Leaves out faults as long as the run still fails. A run without some fault is another run, so the result
/// may fail in another way. `tell` is called with each smaller script that fails.
pub fn shrink(script: &Script, mut tell: impl FnMut(&Script, &str)) -> Script {
    let mut best = script.clone();
    let mut fails = |candidate: &Script| {
        let failure = run_script(candidate, false).failure?;
        tell(candidate, &failure);
        Some(())
    };
    let mut len = best.steps.len().div_ceil(2);
    loop {
        let mut at = 0;
        let before = best.steps.len();
        while at < best.steps.len() {
            let mut candidate = best.clone();
            let end = (at + len).min(best.steps.len());
            // The end keeps its time, so that what came before has time to take effect.
            candidate
                .steps
                .splice(at..end, best.steps[at..end].iter().filter(|s| s.1 == Fault::End).cloned());
            if candidate.steps.len() < best.steps.len() && fails(&candidate).is_some() {
                best = candidate;
            } else {
                at += len;
            }
        }
        if len == 1 && best.steps.len() == before {
            break;
        }
        len = len.div_ceil(2);
    }
    for calmer in [
        |s: &mut Script| s.shape.loss = 0,
        |s: &mut Script| s.shape.slow_osd = None,
        |s: &mut Script| s.shape.clock_skew = 0,
        |s: &mut Script| s.shape.mons = 1,
        |s: &mut Script| s.shape.backoff_on_peering = false,
        |s: &mut Script| s.shape.erasure = false,
        |s: &mut Script| s.shape.resets = 0,
        |s: &mut Script| s.shape.frames = false,
        |s: &mut Script| s.shape.ticket_ttl = 0,
        |s: &mut Script| s.shape.auth = Auth::None,
    ] {
        let mut candidate = best.clone();
        calmer(&mut candidate);
        if candidate != best && fails(&candidate).is_some() {
            best = candidate;
        }
    }
    best
}
