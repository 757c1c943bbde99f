//! Metrics in the text format of Prometheus.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::layers::FanoutBuilder;
use opentelemetry::metrics::Meter;

use crate::otel_recorder::OtelRecorder;

/// Bucket bounds of histograms in seconds, from the duration of a commit to that of a long run.
pub(crate) const SECONDS: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0,
];

/// The end of the names of histograms that are in seconds.
pub(crate) const SECONDS_SUFFIX: &str = "_seconds";

/// The values that the `metrics` macros of this process have recorded.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// The `metrics` facade is process-wide. Several servers in one process, as in tests, therefore share one collection.
static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Collects the metrics of this process from now on. Later calls return the same collection.
    ///
    /// If other code has set a recorder before, the metrics go to that recorder and this collection stays empty. With a
    /// meter, the metrics go to it as well.
    pub(crate) fn install(meter: Option<Meter>) -> Self {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = &*installed {
            return metrics.clone();
        }
        let (metrics, recorder) = Self::build();
        let is_set = match meter {
            None => metrics::set_global_recorder(recorder).is_ok(),
            Some(meter) => {
                let both = FanoutBuilder::default()
                    .add_recorder(recorder)
                    .add_recorder(OtelRecorder::new(meter));
                metrics::set_global_recorder(both.build()).is_ok()
            }
        };
        if !is_set {
            tracing::warn!("another metrics recorder is already set; /metrics stays empty");
        }
        *installed = Some(metrics.clone());
        metrics
    }

    /// A collection that is not installed, and its recorder.
    fn build() -> (Self, PrometheusRecorder) {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Suffix(SECONDS_SUFFIX.into());
        let builder = builder
            .set_buckets_for_metric(seconds, &SECONDS)
            .unwrap_or_default();
        let recorder = builder.build_recorder();
        (Self(recorder.handle()), recorder)
    }

    /// All values in the text format of Prometheus.
    pub fn render(&self) -> String {
        // Drains the samples of histograms, so that their memory does not grow between two reads.
        self.0.run_upkeep();
        self.0.render()
    }

    /// Bounds the memory of histograms while the metrics are not read. Call it every few seconds.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_histograms_in_seconds_are_rendered() {
        let (metrics, recorder) = Metrics::build();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("dueline_test_total", "job" => "mail").increment(3);
            metrics::histogram!("dueline_wait_seconds").record(0.003);
        });
        let text = metrics.render();
        assert!(
            text.contains("dueline_test_total{job=\"mail\"} 3"),
            "{text}"
        );
        assert!(
            text.contains("dueline_wait_seconds_bucket{le=\"0.005\"} 1"),
            "{text}"
        );
    }

    #[test]
    fn installing_twice_shares_one_collection() {
        let first = Metrics::install(None);
        let second = Metrics::install(None);
        metrics::counter!("dueline_shared_total").increment(1);
        assert!(first.render().contains("dueline_shared_total 1"));
        assert!(second.render().contains("dueline_shared_total 1"));
    }
}
