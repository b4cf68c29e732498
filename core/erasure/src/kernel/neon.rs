//! NEON: two table lookups for 16 bytes.

#![allow(unsafe_code)] // vector registers are loaded and stored through pointers

use super::{GRAIN, Kernel};
use crate::gf::HALVES;
use std::arch::aarch64::*;

/// What this processor can run.
pub fn available() -> Option<Kernel> {
    let has = std::arch::is_aarch64_feature_detected!("neon");
    has.then_some(Kernel { name: "neon", add_products })
}

fn add_products(terms: &[(u8, &[u8])], target: &mut [u8]) {
    assert!(target.len().is_multiple_of(GRAIN));
    assert!(terms.iter().all(|(_, source)| source.len() == target.len()));
    // SAFETY: `available` gives this out only where the processor has NEON.
    unsafe { add(terms, target) }
}

#[target_feature(enable = "neon")]
fn add(terms: &[(u8, &[u8])], target: &mut [u8]) {
    for (factor, source) in terms.iter().filter(|(factor, _)| *factor != 0) {
        let [low, high] = &HALVES[usize::from(*factor)];
        // SAFETY: both tables have 16 bytes.
        let (low, high) = unsafe { (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())) };
        let nibble = vdupq_n_u8(0x0f);
        for at in (0..target.len()).step_by(16) {
            // SAFETY: the lengths are equal multiples of `GRAIN`, which was compared above.
            unsafe {
                let bytes = vld1q_u8(source.as_ptr().add(at));
                let of_low = vqtbl1q_u8(low, vandq_u8(bytes, nibble));
                let of_high = vqtbl1q_u8(high, vshrq_n_u8::<4>(bytes));
                let product = veorq_u8(of_low, of_high);
                vst1q_u8(target.as_mut_ptr().add(at), veorq_u8(vld1q_u8(target.as_ptr().add(at)), product));
            }
        }
    }
}
