//! AVX2: two table lookups for 32 bytes. GFNI: one instruction for 32 bytes.

#![allow(unsafe_code)] // vector registers are loaded and stored through pointers

use super::{GRAIN, Kernel};
use crate::gf::{AFFINE, HALVES};
use std::arch::x86_64::*;

/// What this processor can run, the fastest first.
pub fn available() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    if is_x86_feature_detected!("avx2") {
        if is_x86_feature_detected!("gfni") {
            kernels.push(Kernel { name: "gfni", add_products: gfni });
        }
        kernels.push(Kernel { name: "avx2", add_products: avx2 });
    }
    kernels
}

fn avx2(terms: &[(u8, &[u8])], target: &mut [u8]) {
    check(terms, target);
    // SAFETY: `available` gives this out only where the processor has AVX2.
    unsafe { add_avx2(terms, target) }
}

fn gfni(terms: &[(u8, &[u8])], target: &mut [u8]) {
    check(terms, target);
    // SAFETY: `available` gives this out only where the processor has AVX2 and GFNI.
    unsafe { add_gfni(terms, target) }
}

/// What the loads and stores below rely on.
fn check(terms: &[(u8, &[u8])], target: &[u8]) {
    assert!(target.len().is_multiple_of(GRAIN));
    assert!(terms.iter().all(|(_, source)| source.len() == target.len()));
}

/// The 32 bytes at an offset.
#[target_feature(enable = "avx2")]
fn load(from: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 32 <= from.len());
    // SAFETY: callers stay below the length, a multiple of `GRAIN` that `check` compared. No alignment is
    // needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().add(at).cast()) }
}

#[target_feature(enable = "avx2")]
fn store(to: &mut [u8], at: usize, value: __m256i) {
    debug_assert!(at + 32 <= to.len());
    // SAFETY: as in `load`.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().add(at).cast(), value) }
}

#[target_feature(enable = "avx2")]
fn add_avx2(terms: &[(u8, &[u8])], target: &mut [u8]) {
    let nibble = _mm256_set1_epi8(0x0f);
    for (factor, source) in terms.iter().filter(|(factor, _)| *factor != 0) {
        if *factor == 1 {
            add(source, target);
            continue;
        }
        let [low, high] = &HALVES[usize::from(*factor)];
        // SAFETY: both tables have 16 bytes.
        let (low, high) = unsafe {
            let table = |half: &[u8; 16]| _mm256_broadcastsi128_si256(_mm_loadu_si128(half.as_ptr().cast()));
            (table(low), table(high))
        };
        for at in (0..target.len()).step_by(32) {
            let bytes = load(source, at);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), nibble));
            let sum = _mm256_xor_si256(load(target, at), _mm256_xor_si256(of_low, of_high));
            store(target, at, sum);
        }
    }
}

#[target_feature(enable = "avx2,gfni")]
fn add_gfni(terms: &[(u8, &[u8])], target: &mut [u8]) {
    for (factor, source) in terms.iter().filter(|(factor, _)| *factor != 0) {
        if *factor == 1 {
            add(source, target);
            continue;
        }
        let matrix = _mm256_set1_epi64x(AFFINE[usize::from(*factor)] as i64);
        for at in (0..target.len()).step_by(32) {
            let product = _mm256_gf2p8affine_epi64_epi8::<0>(load(source, at), matrix);
            store(target, at, _mm256_xor_si256(load(target, at), product));
        }
    }
}

#[target_feature(enable = "avx2")]
fn add(source: &[u8], target: &mut [u8]) {
    for at in (0..target.len()).step_by(32) {
        store(target, at, _mm256_xor_si256(load(target, at), load(source, at)));
    }
}
