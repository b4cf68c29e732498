//! What a gateway counts, under radosgw's names.

use nacre_perf::counters;

counters! {
    /// Of all requests of all users.
    pub struct GatewayCounters, "rgw" {
        /// Requests
        req: Count,
        /// Aborted requests
        failed_req: Count,
        /// Gets
        get: Count,
        /// Size of gets
        get_b: Bytes,
        /// Get latency
        get_initial_lat: Latency,
        /// Puts
        put: Count,
        /// Size of puts
        put_b: Bytes,
        /// Put latency
        put_initial_lat: Latency,
        /// Active requests queue
        qactive: Gauge,
    }
}
