//! Toy machines over real sockets and a real disk, and our client with a real cluster.

mod abuse;
mod client;
mod echo;
mod kill;
mod limits;
mod toys;
