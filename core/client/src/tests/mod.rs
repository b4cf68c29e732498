mod monitors;
mod requests;
mod resends;
mod world;
