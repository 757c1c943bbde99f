//! What a benchmark measured.

use std::{collections::BTreeMap, fmt, fs, path::Path, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Durations by their frequency, in microseconds with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Longest duration that is told apart.
const LATENCY_MAX: Duration = Duration::from_secs(3_600);

impl Latencies {
    /// None yet.
    #[expect(
        clippy::expect_used,
        reason = "the bounds are constants that a test builds"
    )]
    pub fn new() -> Self {
        let max_us = LATENCY_MAX.as_micros() as u64;
        Self(Histogram::new_with_bounds(1, max_us, 3).expect("bounds are in order"))
    }

    /// Counts one duration; one longer than an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros);
    }

    /// Counts all that another has counted.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, which is the only thing that could be refused.
        let _ = self.0.add(&other.0);
    }

    /// How many were counted.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether none was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The duration that this part of all does not exceed, in milliseconds; `part` is from 0 to 1.
    pub fn quantile_ms(&self, part: f64) -> f64 {
        millis(self.0.value_at_quantile(part))
    }

    /// The longest one in milliseconds.
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

/// What one scenario measured, as JSON for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was measured.
    pub scenario: String,
    /// Kind of the store.
    pub store: String,
    /// What an accepted write survived.
    pub durability: String,
    /// Tasks that went through.
    pub tasks: u64,
    /// How much ran at once.
    pub concurrency: u32,
    /// Size of each payload.
    pub payload_bytes: usize,
    /// Tasks a second.
    pub rate_per_s: f64,
    /// Half of the tasks were as fast as this; nothing where a scenario has only a rate.
    pub p50_ms: Option<f64>,
    /// 99 of 100 tasks were as fast as this.
    pub p99_ms: Option<f64>,
    /// The slowest one.
    pub max_ms: Option<f64>,
    /// Most memory that the process ever held, where the system says so.
    pub rss_kib: Option<u64>,
    /// Size of the store's files, where it has any.
    pub db_bytes: Option<u64>,
    /// What only this scenario has, such as the ratio of two rates.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, f64>,
}

impl Report {
    /// Fills in what follows from the time it took and from the latencies.
    #[must_use]
    pub fn measured(mut self, elapsed: Duration, latencies: &Latencies) -> Self {
        let seconds = elapsed.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "nobody runs 2^53 tasks")]
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

    /// Whether nothing was seen that must never happen: a start before its time.
    pub fn is_right(&self) -> bool {
        self.more.get("early").is_none_or(|early| *early == 0.0)
    }

    /// One line of JSON without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Report {
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

/// Most memory that this process ever held, on Linux.
pub fn rss_peak_kib() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
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
    fn is_near(got: f64, wanted: f64) {
        assert!(
            (got - wanted).abs() <= wanted / 500.0,
            "{got} instead of {wanted}"
        );
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let latencies = latencies(1..=1_000);
        is_near(latencies.quantile_ms(0.5), 500.0);
        is_near(latencies.quantile_ms(0.99), 990.0);
        is_near(latencies.max_ms(), 1_000.0);
    }

    #[test]
    fn latencies_of_several_workers_add_up() {
        let mut all = latencies([1, 2]);
        all.add(&latencies([300]));
        assert_eq!(all.len(), 3);
        is_near(all.max_ms(), 300.0);
        all.record(Duration::from_secs(100_000));
        is_near(all.max_ms(), 3_600_000.0);
    }

    #[test]
    fn the_report_is_json_with_these_fields_in_this_order() {
        let report = Report {
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
    fn nothing_measured_in_no_time_is_zero_and_no_nonsense() {
        let latencies = Latencies::new();
        assert!(latencies.is_empty());
        assert!(latencies.max_ms().abs() < f64::EPSILON);
    }

    #[test]
    fn the_peak_of_memory_is_read_from_the_status() {
        assert_eq!(
            peak_of("Name:\tx\nVmHWM:\t   5124 kB\nVmRSS:\t 9 kB\n"),
            Some(5_124)
        );
        assert_eq!(peak_of("Name:\tx\n"), None);
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
