//! The inner loop of all codes: a sum of products of byte strings, by the best instructions that the
//! processor has. All kernels give the same bytes; `scalar` is what the others are tested against.

#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use smallvec::SmallVec;
use std::sync::OnceLock;

/// `target ^= factor * source` for all terms. The lengths are equal and multiples of `GRAIN`.
type AddProducts = fn(terms: &[(u8, &[u8])], target: &mut [u8]);

/// No allocation for up to 16 sources.
type Terms<'a> = SmallVec<[(u8, &'a [u8]); 16]>;

/// Vector kernels work on multiples of this many bytes. What is left goes to `scalar`.
const GRAIN: usize = 64;
/// The target stays in the first-level cache while all sources are added to it.
const BLOCK: usize = 4096;

/// A way to compute sums of products.
#[derive(Clone, Copy)]
pub struct Kernel {
    name: &'static str,
    add_products: AddProducts,
}

impl Kernel {
    /// The fastest one that this processor can run.
    pub fn best() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Kernel::available()[0])
    }

    /// All that this processor can run, the fastest first.
    pub fn available() -> Vec<Kernel> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        kernels.extend(x86::available());
        #[cfg(target_arch = "aarch64")]
        kernels.extend(neon::available());
        kernels.push(Kernel { name: "scalar", add_products: scalar::add_products });
        kernels
    }

    /// For people: which instructions it uses.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `target ^= factor * source` for all terms.
    ///
    /// # Panics
    /// A source is shorter than the target.
    pub fn add_products(&self, terms: &[(u8, &[u8])], target: &mut [u8]) {
        let mut at = 0;
        for block in target.chunks_mut(BLOCK) {
            let terms: Terms =
                terms.iter().map(|(factor, from)| (*factor, &from[at..at + block.len()])).collect();
            at += block.len();
            let whole = block.len() - block.len() % GRAIN;
            let (even, rest) = block.split_at_mut(whole);
            if !even.is_empty() {
                let terms: Terms = terms.iter().map(|(factor, from)| (*factor, &from[..whole])).collect();
                (self.add_products)(&terms, even);
            }
            if !rest.is_empty() {
                let terms: Terms = terms.iter().map(|(factor, from)| (*factor, &from[whole..])).collect();
                scalar::add_products(&terms, rest);
            }
        }
    }
}
