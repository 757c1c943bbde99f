//! The parts of `dueline bench` that need no server: latencies and the report.

mod report;

pub use report::{Latencies, Report, db_bytes, rss_peak_kib};
