//! The trace of a run: a hash for comparing two runs and, on demand, lines for reading.

use nacre_base::Time;

/// FNV-1a over everything that was noted, in order.
pub struct Trace {
    hash: u64,
    steps: u64,
    /// Print each line.
    pub print: bool,
}

impl Trace {
    pub fn new(print: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, steps: 0, print }
    }

    /// Adds a step. `detail` distinguishes steps with the same words, such as two messages of a type.
    pub fn note(&mut self, now: Time, node: &str, what: &str, detail: u64) {
        self.steps += 1;
        self.mix(&now.nanos.to_le_bytes());
        self.mix(node.as_bytes());
        self.mix(what.as_bytes());
        self.mix(&detail.to_le_bytes());
        if self.print {
            println!("{:>12.6} {:>6} {node:<9} {what}", now.nanos as f64 / 1e9, self.steps);
        }
    }

    /// Prints a line that is not part of the hash.
    pub fn comment(&self, now: Time, node: &str, text: &str) {
        if self.print {
            println!("{:>12.6}        {node:<9}   | {text}", now.nanos as f64 / 1e9);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
