//! `dueline bench`.

mod drain;
mod enqueue;
mod family;
mod latency;
mod priority;
mod recovery;
mod report;
mod retry;
mod schedules;
mod target;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use dueline_scale::Prices;
use indicatif::ProgressBar;

use self::target::BenchTarget;
use crate::{
    commands::process,
    context::Context,
    exit::{CliError, Exit},
};
pub use report::{BenchReport, Latencies, db_bytes, rss_peak_kib};

/// Measures the whole program in one process. Without `--store` it uses a new SQLite file and no network. With
/// `--store` it creates a new table and new queues, sends every task through the queue as between processes, and
/// removes the table and the queues afterwards.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Scenario to measure
    #[arg(long, value_enum, default_value_t = BenchScenario::Both)]
    scenario: BenchScenario,

    /// URI of the store instead of a new SQLite file: dynamodb://TABLE; the scenario is appended to the table's name
    #[arg(long, value_name = "URI", requires = "queue")]
    store: Option<String>,

    /// URI of the queue for --store: sqs://PREFIX
    #[arg(long, value_name = "URI", requires = "store")]
    queue: Option<String>,

    /// Number of tasks [default: depends on the scenario]
    #[arg(long, value_name = "N")]
    tasks: Option<u64>,

    /// Callers in the enqueue scenarios, worker slots in the others [default: 64 callers, 10 slots; 64 slots with
    /// --store]
    #[arg(long, value_name = "C")]
    concurrency: Option<u32>,

    /// Size of each payload in bytes
    #[arg(long, value_name = "B", default_value_t = 100)]
    payload_bytes: usize,

    /// Tasks per submit in the bulk scenario
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batch: usize,

    /// What an accepted write survives: full (a power loss) or normal (a crash)
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    durability: String,

    /// Folder of the SQLite file, whose disk is measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The scenarios that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchScenario {
    /// Many callers submit; each waits for the commit of its task
    Enqueue,
    /// One caller submits one task at a time
    EnqueueOne,
    /// One caller submits a batch of tasks at a time
    Bulk,
    /// A worker runs a backlog; p50 is the time from the worker's start until half of the tasks have started
    Drain,
    /// Callers submit while a worker runs
    Both,
    /// Time from submit to start, one task each 20 ms
    Latency,
    /// Time from due time to start, tasks due in two seconds
    Schedule,
    /// Time from firing to start, of many schedules that all fire at the same time
    Schedules,
    /// One parent, its children and a task that waits for all of them, from the submit to the end of the last
    Family,
    /// Time from due time to start for tasks of high priority beside a flood of low ones of 20 ms
    Priority,
    /// The same with scheduled tasks; the flood is due all at once
    PriorityScheduled,
    /// Drain with a thousand further pending tasks and with many
    Growth,
    /// Failures per second with a thousand further rows and with many
    Retry,
    /// Time from kill -9 of a worker to the next start of its tasks
    Recovery,
}

/// A spinner that shows that the program is running. A scenario takes seconds to minutes.
fn spinner(scenario: BenchScenario) -> ProgressBar {
    let name = scenario.to_possible_value();
    let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
    let spinner = ProgressBar::new_spinner().with_message(format!("measuring {name}"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

impl Bench {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let target = BenchTarget::new(&self)?;
        let spinner = context
            .output
            .draws_progress()
            .then(|| spinner(self.scenario));
        let report = match self.scenario {
            BenchScenario::Enqueue => enqueue::callers(&self, &target, self.callers(64)).await,
            BenchScenario::EnqueueOne => enqueue::callers(&self, &target, 1).await,
            BenchScenario::Bulk => enqueue::bulk(&self, &target).await,
            BenchScenario::Drain => drain::drain(&self, &target).await,
            BenchScenario::Both => drain::both(&self, &target).await,
            BenchScenario::Growth => drain::growth(&self, &target).await,
            BenchScenario::Latency => latency::latency(&self, &target).await,
            BenchScenario::Schedule => latency::schedule(&self, &target).await,
            BenchScenario::Schedules => schedules::schedules(&self, &target).await,
            BenchScenario::Family => family::family(&self, &target).await,
            BenchScenario::Priority => priority::priority(&self, &target, false).await,
            BenchScenario::PriorityScheduled => priority::priority(&self, &target, true).await,
            BenchScenario::Retry => retry::retry(&self, &target).await,
            BenchScenario::Recovery => recovery::recovery(&self, &target).await,
        };
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        let ceiling = target.ceiling(self.slots()).await;
        // Tables and queues are removed even if the scenario failed.
        let removed = target.remove().await;
        let mut report = report?;
        removed?;
        self.add_costs(&target, &mut report, ceiling?);
        if context.output.is_json() {
            context.output.verbatim(&report.to_json())?;
        } else {
            context.output.line(&report.to_string())?;
        }
        Ok(if report.is_right() {
            Exit::Ok
        } else {
            Exit::VerifyFailed
        })
    }

    fn tasks(&self, default: u64) -> u64 {
        // A local DynamoDB engine is about a hundred times slower than a SQLite file.
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
        // With --store a slot waits for the network, so more slots are needed to keep the store busy.
        self.callers(if self.store.is_some() { 64 } else { 10 })
    }

    /// The URIs of `--store` and `--queue`, if they are set.
    fn shared_uris(&self) -> Result<Option<(String, String)>, CliError> {
        let (Some(store), Some(queue)) = (&self.store, &self.queue) else {
            return Ok(None);
        };
        let address = dueline_backends::StoreAddress::parse(store);
        let address = address.map_err(|error| process::backend_error(&error))?;
        if !address.is_shared() {
            let text = "--store takes a shared store (dynamodb://TABLE); without it, a SQLite file is created, see \
                        --dir and --durability";
            return Err(CliError::invalid(text));
        }
        // "sqs://" stands for the default prefix. Written out, a name can be appended to it.
        let queue = match queue.as_str() {
            "sqs:" | "sqs://" => "sqs://dueline".to_owned(),
            uri => uri.replacen("sqs://?", "sqs://dueline?", 1),
        };
        Ok(Some((store.clone(), queue)))
    }

    /// Adds the cost per task, and the ratio of the store's write rate to the greatest write rate of the table.
    fn add_costs(&self, target: &BenchTarget, report: &mut BenchReport, ceiling: Option<f64>) {
        let cost = target.cost();
        if self.store.is_none() || report.tasks == 0 {
            return;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of a benchmark are small"
        )]
        let (tasks, requests) = (report.tasks as f64, cost.queue_requests as f64);
        let per_task = |count: f64| (count / tasks * 1_000.0).round() / 1_000.0;
        let prices = Prices::default();
        let dollars = prices.usd(cost.write_units, cost.read_units, requests) / tasks * 1e6;
        report.more.extend([
            ("wru_per_task", per_task(cost.write_units)),
            ("rru_per_task", per_task(cost.read_units)),
            ("sqs_requests_per_task", per_task(requests)),
            (
                "usd_per_million_tasks",
                (dollars * 1_000.0).round() / 1_000.0,
            ),
        ]);
        if let Some(ceiling) = ceiling.filter(|writes_per_s| *writes_per_s > 0.0) {
            // One write each to create, claim and finish a task, and one to enqueue a scheduled task.
            let writes_per_task = match self.scenario {
                BenchScenario::Enqueue | BenchScenario::EnqueueOne | BenchScenario::Bulk => 1.0,
                BenchScenario::Drain => 2.0,
                BenchScenario::Schedule => 4.0,
                _ => 3.0,
            };
            let ratio = report.rate_per_s * writes_per_task / ceiling;
            report.more.extend([
                ("table_writes_per_s", ceiling.round()),
                ("ratio_to_table", (ratio * 1_000.0).round() / 1_000.0),
            ]);
        }
    }

    /// A report without measurements.
    fn report(&self, tasks: u64, concurrency: u32) -> BenchReport {
        let scenario = self.scenario.to_possible_value();
        BenchReport {
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
