mod maps;
mod monitors;
mod requests;
mod resends;
mod watches;
mod world;
