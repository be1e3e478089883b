//! Every metric of the S3 door.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Op {
    pub op: &'static str,
}

#[derive(Clone, Default)]
pub struct Metrics {
    /// Requests by operation, counted when they begin.
    pub requests: Family<Op, Counter>,
    /// Requests that ended in an error, by operation.
    pub errors: Family<Op, Counter>,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    /// Metadata commits made for requests.
    pub commits: Counter,
    /// Stripes written for requests.
    pub stripes: Counter,
    pub connections: Gauge,
    /// Names a listing passed over because S3 cannot show them.
    pub hidden_names: Counter,
}

impl Metrics {
    pub fn register(&self, r: &mut Registry) {
        let r = r.sub_registry_with_prefix("holdfast_s3");
        r.register("requests", "Requests by operation", self.requests.clone());
        r.register("errors", "Failed requests by operation", self.errors.clone());
        r.register("in_bytes", "Object bytes received", self.bytes_in.clone());
        r.register("out_bytes", "Object bytes sent", self.bytes_out.clone());
        r.register("commits", "Metadata commits made for requests", self.commits.clone());
        r.register("stripes_written", "Stripes written for requests", self.stripes.clone());
        r.register("connections", "Open connections", self.connections.clone());
        r.register("hidden_names", "Names that listings passed over", self.hidden_names.clone());
    }
}
