//! The measurements of a benchmark.

use std::{collections::BTreeMap, fmt, fs, path::Path, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of durations, in microseconds with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Longest duration that the histogram distinguishes.
const LATENCY_MAX: Duration = Duration::from_secs(3_600);

impl Latencies {
    /// An empty histogram.
    #[expect(
        clippy::expect_used,
        reason = "the bounds are constants that a test builds"
    )]
    pub fn new() -> Self {
        let max_us = LATENCY_MAX.as_micros() as u64;
        Self(Histogram::new_with_bounds(1, max_us, 3).expect("bounds are in order"))
    }

    /// Counts one duration. A duration longer than an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        // Adding fails only when the bounds differ, and all histograms have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// How many durations were counted.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether no duration was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quantile of the durations in milliseconds; `quantile` is from 0 to 1.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        millis(self.0.value_at_quantile(quantile))
    }

    /// The longest duration in milliseconds.
    pub fn max_ms(&self) -> f64 {
        millis(self.0.max())
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an hour of microseconds fits a double exactly"
)]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// The measurements of one scenario, as `--json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// The name of the scenario.
    pub scenario: String,
    /// The kind of the store.
    pub store: String,
    /// The durability of the store.
    pub durability: String,
    /// The number of tasks.
    pub tasks: u64,
    /// Callers or worker slots.
    pub concurrency: u32,
    /// The size of each payload.
    pub payload_bytes: usize,
    /// Tasks per second.
    pub rate_per_s: f64,
    /// The median latency; absent if the scenario measures only a rate.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the latency.
    pub p99_ms: Option<f64>,
    /// The greatest latency.
    pub max_ms: Option<f64>,
    /// The peak memory of the process, where the system reports it.
    pub rss_kib: Option<u64>,
    /// The size of the SQLite file and its log; absent for other stores.
    pub db_bytes: Option<u64>,
    /// Measurements that only this scenario has, such as the ratio of two rates.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, f64>,
}

impl BenchReport {
    /// Fills in the rate and the latencies.
    #[must_use]
    pub fn measured(mut self, elapsed: Duration, latencies: &Latencies) -> Self {
        let seconds = elapsed.as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a benchmark has fewer than 2^53 tasks"
        )]
        let tasks = self.tasks as f64;
        self.rate_per_s = if seconds > 0.0 {
            round(tasks / seconds, 10.0)
        } else {
            0.0
        };
        if !latencies.is_empty() {
            self.p50_ms = Some(round(latencies.quantile_ms(0.5), 1_000.0));
            self.p99_ms = Some(round(latencies.quantile_ms(0.99), 1_000.0));
            self.max_ms = Some(round(latencies.max_ms(), 1_000.0));
        }
        self
    }

    /// Whether no task started before its due time, and tasks of high priority did not wait for low ones.
    pub fn is_right(&self) -> bool {
        let value = |name| self.more.get(name).copied();
        let waited = value("p95_ms").zip(value("p95_limit_ms"));
        value("early").is_none_or(|early| early == 0.0)
            && waited.is_none_or(|(waited, limit)| waited <= limit)
    }

    /// The report as JSON on one line, without a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} tasks of {} B, concurrency {}, {} ({}): {} tasks/s",
            self.scenario,
            self.tasks,
            self.payload_bytes,
            self.concurrency,
            self.store,
            self.durability,
            self.rate_per_s,
        )?;
        let latencies = [
            ("p50", self.p50_ms),
            ("p99", self.p99_ms),
            ("max", self.max_ms),
        ];
        for (name, ms) in latencies {
            if let Some(ms) = ms {
                write!(f, ", {name} {ms} ms")?;
            }
        }
        for (name, value) in &self.more {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

fn round(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// The peak memory of this process, on Linux.
pub fn rss_peak_kib() -> Option<u64> {
    parse_peak_kib(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_peak_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Size of a SQLite file and its write-ahead log.
pub fn db_bytes(path: &Path) -> Option<u64> {
    let file = fs::metadata(path).ok()?.len();
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    Some(file + fs::metadata(wal).map_or(0, |wal| wal.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(millis: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        for wait in millis {
            latencies.record(Duration::from_millis(wait));
        }
        latencies
    }

    #[track_caller]
    fn assert_near(actual: f64, expected: f64) {
        assert!(
            (actual - expected).abs() <= expected / 500.0,
            "{actual} instead of {expected}"
        );
    }

    #[test]
    fn quantiles_are_those_of_the_recorded_durations() {
        let latencies = latencies(1..=1_000);
        assert_near(latencies.quantile_ms(0.5), 500.0);
        assert_near(latencies.quantile_ms(0.99), 990.0);
        assert_near(latencies.max_ms(), 1_000.0);
    }

    #[test]
    fn latencies_of_several_callers_are_added() {
        let mut all = latencies([1, 2]);
        all.add(&latencies([300]));
        assert_eq!(all.len(), 3);
        assert_near(all.max_ms(), 300.0);
        all.record(Duration::from_secs(100_000));
        assert_near(all.max_ms(), 3_600_000.0);
    }

    #[test]
    fn the_report_is_json_with_these_fields_in_this_order() {
        let report = BenchReport {
            scenario: "run-now".into(),
            store: "sqlite".into(),
            durability: "full".into(),
            tasks: 3_000,
            concurrency: 10,
            payload_bytes: 256,
            rate_per_s: 0.0,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            rss_kib: Some(1),
            db_bytes: None,
            more: BTreeMap::new(),
        };
        let report = report.measured(Duration::from_secs(2), &latencies([4]));
        assert_eq!(
            report.to_json(),
            r#"{"scenario":"run-now","store":"sqlite","durability":"full","tasks":3000,"concurrency":10,"payload_bytes":256,"rate_per_s":1500.0,"p50_ms":4.001,"p99_ms":4.001,"max_ms":4.001,"rss_kib":1,"db_bytes":null}"#
        );
        assert!(report.to_string().contains("1500 tasks/s"));
    }

    #[test]
    fn an_empty_histogram_has_the_maximum_zero() {
        let latencies = Latencies::new();
        assert!(latencies.is_empty());
        assert!(latencies.max_ms().abs() < f64::EPSILON);
    }

    #[test]
    fn the_peak_memory_is_parsed_from_the_status_file() {
        assert_eq!(
            parse_peak_kib("Name:\tx\nVmHWM:\t   5124 kB\nVmRSS:\t 9 kB\n"),
            Some(5_124)
        );
        assert_eq!(parse_peak_kib("Name:\tx\n"), None);
        #[cfg(target_os = "linux")]
        assert!(rss_peak_kib().is_some_and(|kib| kib > 100));
    }

    #[test]
    fn the_size_of_a_database_includes_its_log() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.db");
        assert_eq!(db_bytes(&path), None);
        fs::write(&path, [0; 100]).unwrap();
        assert_eq!(db_bytes(&path), Some(100));
        fs::write(home.path().join("x.db-wal"), [0; 7]).unwrap();
        assert_eq!(db_bytes(&path), Some(107));
    }
}
