//! The boundary that every daemon speaks: events in, effects out.

mod store_view;

pub use store_view::{NoStore, ReadError, Statfs, StoreStat, StoreView};
