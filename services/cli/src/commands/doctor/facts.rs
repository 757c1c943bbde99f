//! The stored jobs, workers and due tasks, read from the store itself or from a server.

use std::{collections::BTreeMap, time::Duration};

use dueline_api::v1::{JobList, JobView, StatsView, WorkerList};
use dueline_domain::{Job, JobName, Timestamp};
use dueline_ports::{DueQuery, Store};

use crate::{client::RestClient, context::Context, exit::CliError};

/// Due tasks read for each job. The oldest unclaimed task is among them unless as many expired leases are older.
const DUE_PER_JOB: usize = 20;

/// Jobs, workers and due tasks. Each part holds the reason instead if it could not be read.
pub(super) struct StoreFacts {
    pub(super) jobs: Result<Vec<JobFacts>, String>,
    pub(super) workers: Result<Vec<WorkerFacts>, String>,
    /// The trigger time of each job's oldest unclaimed task, if it has passed.
    pub(super) oldest: Result<BTreeMap<JobName, Timestamp>, String>,
}

/// The checked fields of a job.
#[derive(Clone, Debug)]
pub(super) struct JobFacts {
    pub(super) name: JobName,
    pub(super) is_paused: bool,
    /// Whether the job has a quota, so that tasks may wait on purpose.
    pub(super) has_quota: bool,
    pub(super) enqueue_timeout: Duration,
    pub(super) claim_timeout: Duration,
    pub(super) heartbeat_timeout: Duration,
    pub(super) run_timeout: Option<Duration>,
}

/// The checked fields of a worker record.
#[derive(Clone, Debug)]
pub(super) struct WorkerFacts {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) seen_at: Timestamp,
}

impl StoreFacts {
    pub(super) fn job_names(&self) -> Option<Vec<JobName>> {
        let jobs = self.jobs.as_ref().ok()?;
        Some(jobs.iter().map(|job| job.name.clone()).collect())
    }
}

/// Reads the facts from the store.
pub(super) async fn of_store(store: &dyn Store, now: Timestamp) -> StoreFacts {
    let jobs = match store.jobs().await {
        Ok(jobs) => Ok(jobs.iter().map(|job| of_job(job)).collect()),
        Err(error) => Err(error.to_string()),
    };
    let workers = store.workers().await.map_err(|error| error.to_string());
    let workers = workers.map(|records| {
        let facts = records.into_iter().map(|record| WorkerFacts {
            id: record.id.to_string(),
            kind: record.kind.to_string(),
            seen_at: record.seen_at,
        });
        facts.collect()
    });
    let query = DueQuery {
        now,
        limit_per_job: DUE_PER_JOB,
        pending_limits: BTreeMap::new(),
        owed_limit: 0,
        owed_limits: BTreeMap::new(),
        share: None,
    };
    let oldest = store.due(query).await.map_err(|error| error.to_string());
    let oldest = oldest.map(|page| {
        let mut oldest: BTreeMap<JobName, Timestamp> = BTreeMap::new();
        for task in page.tasks.into_iter().filter(|task| task.kind.is_pending()) {
            let at = oldest.entry(task.job).or_insert(task.trigger_at);
            *at = task.trigger_at.min(*at);
        }
        oldest
    });
    StoreFacts {
        jobs,
        workers,
        oldest,
    }
}

fn of_job(job: &Job) -> JobFacts {
    JobFacts {
        name: job.name.clone(),
        is_paused: job.paused,
        has_quota: job.quota.rate_per_s.is_some(),
        enqueue_timeout: job.policy.enqueue_timeout,
        claim_timeout: job.policy.claim_timeout,
        heartbeat_timeout: job.policy.heartbeat_timeout,
        run_timeout: job.policy.run_timeout,
    }
}

/// Reads the facts from a server. `None` if the address of the server is not valid.
pub(super) async fn of_server(context: &Context, url: &str) -> Option<StoreFacts> {
    let client = RestClient::new(url, context.global.request_timeout, None).ok()?;
    let text = |error: CliError| error.to_string();
    let jobs: Result<JobList, _> = read(&client, &["jobs"]).await;
    let jobs = jobs.map(|list| list.jobs).map_err(text);
    let workers: Result<WorkerList, _> = read(&client, &["workers"]).await;
    let workers = workers.map_err(text).map(|list| {
        let facts = list.workers.into_iter().map(|worker| WorkerFacts {
            id: worker.id.to_string(),
            kind: worker.kind,
            seen_at: worker.seen_at.0,
        });
        facts.collect()
    });
    let mut oldest = Ok(BTreeMap::new());
    for job in jobs.iter().flatten() {
        let stats: Result<StatsView, _> =
            read(&client, &["jobs", job.name.as_str(), "stats"]).await;
        match (stats, &mut oldest) {
            (Ok(stats), Ok(oldest)) => {
                oldest.extend(stats.oldest_due_at.map(|at| (stats.job, at.0)));
            }
            (Err(error), _) => {
                oldest = Err(text(error));
                break;
            }
            (Ok(_), Err(_)) => break,
        }
    }
    Some(StoreFacts {
        jobs: jobs.map(|jobs| jobs.iter().map(of_view).collect()),
        workers,
        oldest,
    })
}

async fn read<T: serde::de::DeserializeOwned>(
    client: &RestClient,
    path: &[&str],
) -> Result<T, CliError> {
    client.get(path, &[]).await?.read()
}

fn of_view(job: &JobView) -> JobFacts {
    JobFacts {
        name: job.name.clone(),
        is_paused: job.status == "paused",
        has_quota: job.quota.rate_per_s.is_some(),
        enqueue_timeout: Duration::from_millis(job.enqueue_timeout_ms),
        claim_timeout: Duration::from_millis(job.claim_timeout_ms),
        heartbeat_timeout: Duration::from_millis(job.heartbeat_timeout_ms),
        run_timeout: job.run_timeout_ms.map(Duration::from_millis),
    }
}
