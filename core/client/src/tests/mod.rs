mod maps;
mod monitors;
mod nesting;
mod requests;
mod resends;
mod watches;
mod world;
