//! `dueline bench`.

mod drain;
mod enqueue;
mod latency;
mod place;
mod recovery;
mod report;
mod retry;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use self::place::Place;
use crate::{
    cli::Context,
    exit::{CliError, Exit},
};
pub use report::{Latencies, Report, db_bytes, rss_peak_kib};

/// Measures the whole program on a fresh SQLite file, in one process and without a network.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// What to measure
    #[arg(long, value_enum)]
    scenario: Scenario,

    /// How many tasks [default: what suits the scenario]
    #[arg(long, value_name = "N")]
    tasks: Option<u64>,

    /// Callers of enqueue scenarios, slots of the worker in others [default: 64 callers, 10 slots]
    #[arg(long, value_name = "C")]
    concurrency: Option<u32>,

    /// Size of each payload
    #[arg(long, value_name = "B", default_value_t = 100)]
    payload_bytes: usize,

    /// Tasks per call of the bulk scenario
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batch: usize,

    /// What an accepted write survives: full (a loss of power) or normal (a crash)
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    durability: String,

    /// Folder for the file; its disk is what is measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Many callers, each waits for the commit of its task
    Enqueue,
    /// One caller, one task at a time
    EnqueueOne,
    /// One caller, a thousand tasks at a time
    Bulk,
    /// A worker starts on a full file; p50 is when half of the tasks had begun, counted from its start
    Drain,
    /// Callers and a worker at once
    Both,
    /// From submit to start, one task each 20 ms
    Latency,
    /// From due time to start, tasks two seconds ahead
    Schedule,
    /// Drain with a thousand pending tasks and with many
    Growth,
    /// Failures a second with a thousand rows and with many
    Retry,
    /// From kill -9 of a worker to the next start of its tasks
    Recovery,
}

/// Shows that something happens; a scenario takes seconds to minutes.
fn spinner(scenario: Scenario) -> ProgressBar {
    let name = scenario.to_possible_value();
    let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
    let spinner = ProgressBar::new_spinner().with_message(format!("measuring {name}"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

impl Bench {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let place = Place::new(&self)?;
        let spinner = context
            .output
            .draws_progress()
            .then(|| spinner(self.scenario));
        let report = match self.scenario {
            Scenario::Enqueue => enqueue::callers(&self, &place, self.callers(64)).await,
            Scenario::EnqueueOne => enqueue::callers(&self, &place, 1).await,
            Scenario::Bulk => enqueue::bulk(&self, &place).await,
            Scenario::Drain => drain::drain(&self, &place).await,
            Scenario::Both => drain::both(&self, &place).await,
            Scenario::Growth => drain::growth(&self, &place).await,
            Scenario::Latency => latency::latency(&self, &place).await,
            Scenario::Schedule => latency::schedule(&self, &place).await,
            Scenario::Retry => retry::retry(&self, &place).await,
            Scenario::Recovery => recovery::recovery(&self, &place).await,
        };
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        let report = report?;
        let line = if context.output.is_json() {
            report.to_json()
        } else {
            report.to_string()
        };
        context.output.line(&line)?;
        Ok(if report.is_right() {
            Exit::Ok
        } else {
            Exit::VerifyFailed
        })
    }

    fn tasks(&self, default: u64) -> u64 {
        self.tasks.unwrap_or(default).max(1)
    }

    fn callers(&self, default: u32) -> u32 {
        self.concurrency.unwrap_or(default).max(1)
    }

    fn slots(&self) -> u32 {
        self.callers(10)
    }

    /// A report to fill in.
    fn report(&self, tasks: u64, concurrency: u32) -> Report {
        let scenario = self.scenario.to_possible_value();
        Report {
            scenario: scenario.map_or_else(String::new, |value| value.get_name().to_owned()),
            store: "sqlite".into(),
            durability: self.durability.clone(),
            tasks,
            concurrency,
            payload_bytes: self.payload_bytes,
            rate_per_s: 0.0,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            rss_kib: None,
            db_bytes: None,
            more: std::collections::BTreeMap::new(),
        }
    }
}
