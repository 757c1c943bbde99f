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
use dueline_scale::Prices;
use indicatif::ProgressBar;

use self::place::Place;
use crate::{
    cli::Context,
    commands::process,
    exit::{CliError, Exit},
};
pub use report::{Latencies, Report, db_bytes, rss_peak_kib};

/// Measures the whole program in one process: on a fresh SQLite file without a network, or on a fresh table and fresh
/// queues, which it makes and removes, with each task going through the queue as it does between processes.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// What to measure
    #[arg(long, value_enum, default_value_t = Scenario::Both)]
    scenario: Scenario,

    /// Store by URI instead of a fresh SQLite file; its table is named after it and the scenario: dynamodb://TABLE
    #[arg(long, value_name = "URI", requires = "queue")]
    store: Option<String>,

    /// Queue by URI, for --store: sqs://PREFIX
    #[arg(long, value_name = "URI", requires = "store")]
    queue: Option<String>,

    /// How many tasks [default: what suits the scenario]
    #[arg(long, value_name = "N")]
    tasks: Option<u64>,

    /// Callers of enqueue scenarios, slots of the worker in others [default: 64 callers, 10 slots; 64 with --store]
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
        let ceiling = place.ceiling(self.slots()).await;
        // Whatever happened, tables and queues must not stay behind.
        let cleared = place.clear().await;
        let mut report = report?;
        cleared?;
        self.add_costs(&place, &mut report, ceiling?);
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
        // A local engine takes a hundredth of what a file does.
        let default = if self.store.is_some() {
            default.min(5_000)
        } else {
            default
        };
        self.tasks.unwrap_or(default).max(1)
    }

    fn callers(&self, default: u32) -> u32 {
        self.concurrency.unwrap_or(default).max(1)
    }

    fn slots(&self) -> u32 {
        // A slot waits for the network here, so it takes more of them to keep the store busy.
        self.callers(if self.store.is_some() { 64 } else { 10 })
    }

    /// Store and queue instead of a file, if the scenario can use them.
    fn fleet(&self) -> Result<Option<(String, String)>, CliError> {
        let (Some(store), Some(queue)) = (&self.store, &self.queue) else {
            return Ok(None);
        };
        let address = dueline_backends::StoreAddress::parse(store);
        let address = address.map_err(|error| process::backend_error(&error))?;
        if !address.is_shared() {
            let text = "--store names what processes share; a file is made by itself, see --dir and --durability";
            return Err(CliError::invalid(text));
        }
        // "sqs://" stands for its default prefix, to which a name can be added.
        let queue = match queue.as_str() {
            "sqs:" | "sqs://" => "sqs://dueline".to_owned(),
            named => named.replacen("sqs://?", "sqs://dueline?", 1),
        };
        Ok(Some((store.clone(), queue)))
    }

    /// What calls have cost, per task, and how close the store came to what the table takes from anybody.
    fn add_costs(&self, place: &Place, report: &mut Report, ceiling: Option<f64>) {
        let spent = place.spent();
        if self.store.is_none() || report.tasks == 0 {
            return;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of a benchmark are small"
        )]
        let (tasks, requests) = (report.tasks as f64, spent.queue_requests as f64);
        let per_task = |count: f64| (count / tasks * 1_000.0).round() / 1_000.0;
        let prices = Prices::default();
        let dollars = prices.usd(spent.write_units, spent.read_units, requests) / tasks * 1e6;
        report.more.extend([
            ("wru_per_task", per_task(spent.write_units)),
            ("rru_per_task", per_task(spent.read_units)),
            ("sqs_requests_per_task", per_task(requests)),
            (
                "usd_per_million_tasks",
                (dollars * 1_000.0).round() / 1_000.0,
            ),
        ]);
        if let Some(ceiling) = ceiling.filter(|writes_per_s| *writes_per_s > 0.0) {
            // One write each to create, to claim and to finish, and one to hand on a task with a date.
            let writes_per_task = match self.scenario {
                Scenario::Enqueue | Scenario::EnqueueOne | Scenario::Bulk => 1.0,
                Scenario::Drain => 2.0,
                Scenario::Schedule => 4.0,
                _ => 3.0,
            };
            let ratio = report.rate_per_s * writes_per_task / ceiling;
            report.more.extend([
                ("table_writes_per_s", ceiling.round()),
                ("ratio_to_table", (ratio * 1_000.0).round() / 1_000.0),
            ]);
        }
    }

    /// A report to fill in.
    fn report(&self, tasks: u64, concurrency: u32) -> Report {
        let scenario = self.scenario.to_possible_value();
        Report {
            scenario: scenario.map_or_else(String::new, |value| value.get_name().to_owned()),
            store: if self.store.is_some() {
                "dynamodb"
            } else {
                "sqlite"
            }
            .into(),
            durability: match self.store {
                Some(_) => "replicated".into(),
                None => self.durability.clone(),
            },
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
