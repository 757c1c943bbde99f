//! Counts events that are visible only in the product's own metrics.

use std::sync::Arc;

use dueline_testkit::Counters;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Metrics of the product, and the names of their counters in tests.
const NAMES: [(&str, &str); 2] = [
    (
        "dueline_heartbeats_coalesced_total",
        "heartbeat answered from memory",
    ),
    ("dueline_workers_forgotten_total", "silent worker forgotten"),
];

/// Copies some of the product's metrics into the counters of the world that runs on this thread.
pub(crate) struct MetricsCapture(pub(crate) Counters);

struct CapturedCounter {
    counters: Counters,
    name: &'static str,
}

impl CounterFn for CapturedCounter {
    fn increment(&self, value: u64) {
        self.counters.add(self.name, value);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for MetricsCapture {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let captured = NAMES.iter().find(|(metric, _)| *metric == key.name());
        captured.map_or_else(Counter::noop, |(_, name)| {
            let counters = self.0.clone();
            Counter::from_arc(Arc::new(CapturedCounter { counters, name }))
        })
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
