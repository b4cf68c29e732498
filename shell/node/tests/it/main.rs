//! Toy machines over real sockets and a real disk.

mod abuse;
mod echo;
mod kill;
mod toys;
