//! Metrics of the facade as metrics of OpenTelemetry.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry::metrics::Meter;

use crate::metrics::{SECONDS, SECONDS_SUFFIX};

/// Records on a meter. Histograms of seconds get the same buckets as in the text format of Prometheus.
pub(crate) struct OtelRecorder {
    inner: OpenTelemetryRecorder,
    /// The histograms whose buckets are set.
    bounded: Mutex<HashSet<KeyName>>,
}

impl OtelRecorder {
    pub(crate) fn new(meter: Meter) -> Self {
        Self {
            inner: OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(meter)),
            bounded: Mutex::default(),
        }
    }
}

impl Recorder for OtelRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.inner.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if key.name().ends_with(SECONDS_SUFFIX) {
            let name = key.name_shared();
            let mut bounded = self.bounded.lock().unwrap_or_else(PoisonError::into_inner);
            if bounded.insert(name.clone()) {
                let names = std::iter::once(name);
                self.inner.set_histogram_bounds(names, &SECONDS);
            }
        }
        self.inner.register_histogram(key, metadata)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::{
        InMemoryMetricExporter, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    };

    use super::*;

    #[test]
    fn f_130_metrics_of_the_facade_reach_the_meter_with_their_labels_and_buckets() {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder()
            .with_periodic_exporter(exporter.clone())
            .build();
        let recorder = OtelRecorder::new(provider.meter("test"));
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("dueline_test_total", "job" => "mail").increment(3);
            metrics::gauge!("dueline_level").set(2.0);
            metrics::gauge!("dueline_level").decrement(0.5);
            metrics::histogram!("dueline_wait_seconds").record(0.003);
        });
        provider.force_flush().unwrap();
        let exported = exporter.get_finished_metrics().unwrap();
        let all: Vec<_> = exported
            .iter()
            .flat_map(|metrics| metrics.scope_metrics())
            .flat_map(|scope| scope.metrics())
            .collect();
        let named = |name: &str| {
            let found = all.iter().find(|metric| metric.name() == name);
            found.unwrap_or_else(|| panic!("no {name}")).data()
        };
        let AggregatedMetrics::U64(MetricData::Sum(sum)) = named("dueline_test_total") else {
            panic!("not a counter");
        };
        let point = sum.data_points().next().unwrap();
        let labels: Vec<_> = point.attributes().map(|it| it.value.as_str()).collect();
        assert_eq!((point.value(), &*labels[0]), (3, "mail"));
        let AggregatedMetrics::F64(MetricData::Gauge(gauge)) = named("dueline_level") else {
            panic!("not a gauge");
        };
        assert_eq!(gauge.data_points().next().unwrap().value(), 1.5);
        let AggregatedMetrics::F64(MetricData::Histogram(wait)) = named("dueline_wait_seconds")
        else {
            panic!("not a histogram");
        };
        let point = wait.data_points().next().unwrap();
        assert_eq!(point.bounds().collect::<Vec<_>>(), SECONDS);
        assert_eq!(point.bucket_counts().nth(2), Some(1), "up to 5 ms");
    }
}
