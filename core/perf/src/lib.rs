//! What a daemon counts of itself, and how it is shown: `ceph tell osd.N perf dump`.
//!
//! A set of counters is a struct of typed values, made with `counters!`. The code that counts holds it; the
//! daemon's `Registry` knows all sets and shows them. Counting is an addition to an atomic, from any
//! thread. Nothing is ever decided by a counter, so a run is the same whether it is watched or not.

mod exposition;
mod histogram;
mod registry;
#[cfg(test)]
mod tests;
mod values;

pub use exposition::{Exposition, MetricKind};
pub use histogram::{Axis, Histogram, SizedHistogram};
pub use registry::{Counters, Item, Registry};
pub use values::{Bytes, Count, Gauge, GaugeBytes, Latency, Reading, SizedLatency, Value};

/// A struct of counters under the name by which `perf dump` shows them. The doc comment of each is
/// its description in `perf schema`.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $set:literal {
            $( #[doc = $doc:literal] $field:ident: $kind:ident, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name {
            $( #[doc = $doc] pub $field: $crate::$kind, )*
        }
        impl $crate::Counters for $name {
            fn set_name(&self) -> &'static str {
                $set
            }
            fn items(&self) -> Vec<$crate::Item<'_>> {
                vec![$( $crate::Item {
                    name: stringify!($field),
                    description: $doc.trim(),
                    value: &self.$field,
                }, )*]
            }
        }
    };
}
