//! Who is who, and what they may do: cephx keys, tickets and capabilities.

pub mod caps;
