//! Generates new inputs from old ones, by a seed. Independent of the format, but aware of what formats have
//! in common: little-endian numbers, length prefixes, and flags.

use nacre_base::Rng;

/// Boundary values.
const INTERESTING: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    1024,
    4096,
    0x7fff,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
];

/// Mutates `input`; the result has at most `len_max` bytes. Pieces of `others` may be spliced in.
pub fn mutate(rng: &mut Rng, input: &[u8], others: &[Vec<u8>], len_max: usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    // Mostly few mutations: an input that passes the first checks reaches later ones.
    for _ in 0..[1, 1, 1, 2, 3, 8][rng.below(6) as usize] {
        change(rng, &mut bytes, others);
    }
    bytes.truncate(len_max);
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let left = bytes.len() - at;
    let some = |rng: &mut Rng, most: usize| {
        let most = if rng.chance(800) { most.min(16) } else { most };
        rng.below(most as u64 + 1) as usize
    };
    match rng.below(11) {
        0 if left > 0 => bytes[at] ^= 1 << rng.below(8),
        1 if left > 0 => bytes[at] = rng.next_u64() as u8,
        2 | 3 => {
            let value = *rng.pick(&INTERESTING).expect("there are some");
            let value = if rng.chance(200) { value.wrapping_neg() } else { value };
            put(rng, &mut bytes[at..], value);
        }
        // An off-by-little number.
        4 if left > 0 => {
            let mut old = [0; 8];
            let len = left.min([1, 4, 8][rng.below(3) as usize]);
            old[..len].copy_from_slice(&bytes[at..at + len]);
            let new = u64::from_le_bytes(old).wrapping_add(rng.below(17)).wrapping_sub(8);
            bytes[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
        }
        5 | 6 => change_length(rng, bytes),
        7 => {
            let len = some(rng, left);
            bytes.drain(at..at + len);
        }
        8 => {
            let new: Vec<u8> = match rng.below(3) {
                0 => (0..some(rng, 64)).map(|_| rng.next_u64() as u8).collect(),
                1 => vec![[0, 0xff][rng.below(2) as usize]; some(rng, 256)],
                _ => {
                    let len = some(rng, left);
                    bytes[at..at + len].to_vec()
                }
            };
            bytes.splice(at..at, new);
        }
        9 => {
            let Some(other) = rng.pick(others) else { return };
            let from = rng.below(other.len() as u64 + 1) as usize;
            let len = some(rng, other.len() - from);
            let replaced = if rng.chance(500) { len.min(left) } else { 0 };
            bytes.splice(at..at + replaced, other[from..from + len].iter().copied());
        }
        _ if rng.chance(300) => bytes.truncate(at),
        _ => {}
    }
}

/// Writes the lowest 1, 2, 4 or 8 bytes of `value`, as many as fit.
fn put(rng: &mut Rng, into: &mut [u8], value: u64) {
    let len = into.len().min([1, 2, 4, 4, 8][rng.below(5) as usize]);
    into[..len].copy_from_slice(&value.to_le_bytes()[..len]);
}

/// Finds something that looks like a length or count prefix and makes it wrong, or keeps it right while
/// inserting or removing a piece behind it.
fn change_length(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..32 {
        let Some(last) = bytes.len().checked_sub(4) else { return };
        let at = rng.below(last as u64 + 1) as usize;
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let rest = bytes.len() - at - 4;
        if len == 0 || len > rest {
            continue;
        }
        let body = at + 4..at + 4 + len;
        let new = match rng.below(6) {
            0 => u32::MAX,
            1 => rest as u32,
            2 => rest as u32 + 1,
            3 => rng.below(len as u64) as u32,
            4 => {
                let cut = rng.below(len as u64) as usize;
                bytes.drain(body.start + cut..body.end);
                cut as u32
            }
            _ => {
                let piece = bytes[body.clone()].to_vec();
                bytes.splice(body.end..body.end, piece);
                2 * len as u32
            }
        };
        bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let others = [vec![1; 40], (0..200).collect()];
        let run = |seed| {
            let rng = &mut Rng::new(seed);
            (0..500).map(|_| mutate(rng, &others[1], &others, 300)).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
        assert!(run(5).iter().all(|input| input.len() <= 300));
    }

    #[test]
    fn empty_and_short_inputs_can_be_mutated() {
        let mut rng = Rng::new(1);
        let mut input = Vec::new();
        for _ in 0..10_000 {
            let change = mutate(&mut rng, &input, &[], 5);
            input = if rng.chance(500) { change } else { Vec::new() };
        }
    }
}
