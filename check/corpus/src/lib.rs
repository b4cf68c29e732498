//! Recordings of real Ceph, and fuzz targets for every decoder of ours that reads foreign bytes.
//!
//! `samples` returns the recordings in `data/` by type. `targets::ALL` is the table of fuzz targets, with
//! their initial inputs; `mutate` generates new inputs from those. The `fuzz` program puts the two together
//! (`docs/fuzzing.md`), and so does `check/fuzz` for libFuzzer.

pub mod mutate;
pub mod samples;
pub mod targets;
