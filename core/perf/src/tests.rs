use crate::{Axis, Histogram, Reading, Registry};
use serde_json::json;
use std::time::Duration;

crate::counters! {
    /// For the tests.
    struct Some, "some" {
        /// Events so far.
        things: Count,
        /// What they weighed.
        weight: Bytes,
        /// Items that are here.
        here: Gauge,
        /// How long an item takes.
        thing_lat: Latency,
        /// How long an item takes, by its weight.
        thing_lat_histogram_by_weight: SizedLatency,
    }
}

#[test]
fn counters_are_shown_as_ceph_shows_them() {
    let registry = Registry::default();
    let some = registry.add::<Some>();
    some.things.inc();
    some.weight.add(4096);
    some.here.set(3);
    some.thing_lat.add(Duration::from_micros(1500));
    some.thing_lat.add(Duration::from_micros(500));
    let expected = json!({"some": {
        "things": 1, "weight": 4096, "here": 3,
        "thing_lat": {"avgcount": 2, "sum": 0.002, "avgtime": 0.001},
    }});
    assert_eq!(registry.dump("", ""), expected);
    assert_eq!(registry.dump("some", "here"), json!({"some": {"here": 3}}));
    assert_eq!(registry.dump("other", ""), json!({}));

    // The numbers are those that Ceph's own `perf schema` has for the same kinds.
    let schema = registry.schema();
    let kinds = ["things", "weight", "here", "thing_lat"].map(|name| schema["some"][name]["type"].clone());
    assert_eq!(kinds, [10, 10, 2, 5]);
    assert_eq!(schema["some"]["weight"]["units"], "bytes");
    assert_eq!(schema["some"]["thing_lat"]["description"], "How long an item takes.");
    assert!(schema["some"].get("thing_lat_histogram_by_weight").is_none());

    let readings = [
        ("some", "things", Reading::Counter(1)),
        ("some", "weight", Reading::Counter(4096)),
        ("some", "here", Reading::Gauge(3)),
        ("some", "thing_lat", Reading::Mean { count: 2, nanos: 2_000_000 }),
    ];
    assert_eq!(registry.readings(), readings);

    assert!(registry.reset("all") && registry.reset("some") && !registry.reset("other"));
    assert_eq!((some.things.get(), some.thing_lat.count(), some.here.get()), (0, 0, 3));
}

#[test]
fn histograms_say_their_axes_and_count_what_is_in_each_bucket() {
    let registry = Registry::default();
    let some = registry.add::<Some>();
    for micros in [0, 1, 2, 3, 1000, u64::MAX / 1000] {
        some.thing_lat.add(Duration::from_micros(micros));
    }
    some.thing_lat_histogram_by_weight.add(Duration::from_micros(5), 4096);
    let all = registry.histograms("", "");
    let shown = &all["some"]["thing_lat_histogram"];
    let counted = |bucket: usize| shown["values"][bucket].clone();
    assert_eq!([0, 1, 2, 3, 11, 31].map(counted), [0, 1, 1, 2, 1, 1]);
    let ranges = &shown["axes"][0]["ranges"];
    assert_eq!(ranges[0], json!({"max": -1}));
    assert_eq!(ranges[1], json!({"min": 0, "max": 0}));
    assert_eq!(ranges[11], json!({"min": 512, "max": 1023}));
    assert_eq!(ranges[31], json!({"min": 1u64 << 29}));
    let by_weight = &all["some"]["thing_lat_histogram_by_weight"];
    assert_eq!(by_weight["values"][4][5], 1, "4 to 7 microseconds, 4 to 8 KiB");
    assert_eq!(by_weight["axes"][1]["name"], "Request size (bytes)");
    let kind = &registry.histogram_schema()["some"]["thing_lat_histogram_by_weight"];
    assert_eq!((&kind["type"], &kind["value_type"]), (&json!(26), &json!("integer-2d-histogram")));
}

#[test]
fn a_quantile_is_the_end_of_the_bucket_that_holds_it() {
    let histogram = Histogram::default();
    assert_eq!(histogram.quantile(0.5), None);
    (0..99).for_each(|_| histogram.add(100));
    histogram.add(5000);
    assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (Some(128), Some(128)));
    assert_eq!(histogram.quantile(1.0), Some(8192));
    assert_eq!(Axis::MICROS.bucket(u64::MAX), 31);
}
