//! Metrics in the text format of Prometheus.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// Upper bounds of histograms of seconds: from one commit to a long run.
const SECONDS: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0,
];

/// What the `metrics` macros of this process have counted.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// The `metrics` facade is process-wide, so what reads it back is too: several servers in one process, as in
/// tests, share it.
static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Collects this process's metrics from now on. Again: the same collection.
    ///
    /// If other code has set a recorder before, its metrics stay there and this collection is empty.
    pub fn install() -> Self {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = &*installed {
            return metrics.clone();
        }
        let (metrics, recorder) = Self::build();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics go to a recorder that was set before; /metrics stays empty");
        }
        *installed = Some(metrics.clone());
        metrics
    }

    /// A collection that the process does not use by itself, and its recorder.
    fn build() -> (Self, PrometheusRecorder) {
        let builder = PrometheusBuilder::new();
        let seconds = Matcher::Suffix("_seconds".into());
        let builder = builder
            .set_buckets_for_metric(seconds, &SECONDS)
            .unwrap_or_default();
        let recorder = builder.build_recorder();
        (Self(recorder.handle()), recorder)
    }

    /// Everything counted so far.
    pub fn render(&self) -> String {
        // Drains what histograms have gathered, so that nothing grows between two reads.
        self.0.run_upkeep();
        self.0.render()
    }

    /// Bounds the memory of histograms when nobody reads them; call it every few seconds.
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
    fn what_is_counted_is_rendered_with_buckets_of_seconds() {
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
        let first = Metrics::install();
        let second = Metrics::install();
        metrics::counter!("dueline_shared_total").increment(1);
        assert!(first.render().contains("dueline_shared_total 1"));
        assert!(second.render().contains("dueline_shared_total 1"));
    }
}
