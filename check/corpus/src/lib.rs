//! What real Ceph wrote, and everything of ours that must read what strangers write.
//!
//! `samples` gives the recordings in `data/` by type. `targets::ALL` is the table of decoders that
//! meet bytes from outside, with samples to start from; `mutate` makes new inputs of those. The
//! `fuzz` program puts the two together (`docs/fuzzing.md`), and so does `check/fuzz` for libFuzzer.

pub mod mutate;
pub mod samples;
pub mod targets;
