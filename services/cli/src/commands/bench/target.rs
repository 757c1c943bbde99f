//! The store and queue that a benchmark measures: a new file, or new tables and queues, and the services on them.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use dueline_all_in_one::{Node, NodeConfig, WorkerConfig};
use dueline_api::{
    Call, ErrorKind, ErrorReason, Frontend,
    operation::{PutJob, Submit},
};
use dueline_backends::error_chain;
use dueline_domain::{Due, Handler, Job, JobName, NewTask, Policy, Quota, Timestamp};
use dueline_executor::Registry;
use dueline_ports::{Clock as _, Cost, Rng as _};
use dueline_runtime::{SystemClock, SystemRng, incarnation};

use super::{Bench, db_bytes};
use crate::{
    commands::process::{backend_error, start_error},
    exit::CliError,
};

/// The job of a benchmark.
pub(super) const JOB: &str = "bench";

/// How long the greatest write rate of a table is measured.
const CEILING_DURATION: Duration = Duration::from_secs(2);

/// The store and queue of a benchmark: a new folder, removed when this value is dropped, or new tables and queues,
/// removed by [`BenchTarget::remove`].
pub(super) struct BenchTarget {
    folder: PathBuf,
    durability: String,
    payload_bytes: usize,
    /// The URIs of `--store` and `--queue`, instead of a file.
    shared_uris: Option<(String, String)>,
    /// The URIs of the tables and queues that were created.
    created: Mutex<BTreeSet<(String, String)>>,
    cost: Mutex<Cost>,
}

impl BenchTarget {
    pub(super) fn new(bench: &Bench) -> Result<Self, CliError> {
        if !matches!(bench.durability.as_str(), "full" | "normal") {
            return Err(CliError::invalid("--durability must be full or normal"));
        }
        let payload_max = dueline_domain::limits().payload_bytes_max;
        if bench.payload_bytes > payload_max {
            let text = format!("--payload-bytes must be at most {payload_max}");
            return Err(CliError::invalid(text));
        }
        let shared_uris = bench.shared_uris()?;
        let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("dueline-bench-{:016x}", incarnation()));
        std::fs::create_dir_all(&folder).map_err(|error| {
            let parent = parent.display();
            CliError::invalid(format!("cannot create a folder in {parent}: {error}"))
                .with_hint("--dir names a folder that this user may write to")
        })?;
        Ok(Self {
            folder,
            durability: bench.durability.clone(),
            payload_bytes: bench.payload_bytes,
            shared_uris,
            created: Mutex::default(),
            cost: Mutex::default(),
        })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.db"))
    }

    pub(super) fn db_bytes(&self, name: &str) -> Option<u64> {
        db_bytes(&self.file(name))
    }

    /// Whether the store and the queue are those of `--store` and `--queue`.
    pub(super) const fn is_shared(&self) -> bool {
        self.shared_uris.is_some()
    }

    /// The configuration of services on the file, or on the table and queues, called `name`. Table and queues are
    /// created at the first call.
    pub(super) async fn config(&self, name: &str) -> Result<NodeConfig, CliError> {
        let Some((store, queue)) = &self.shared_uris else {
            let path = self.file(name);
            let uri = format!("sqlite:{}?durability={}", path.display(), self.durability);
            return Ok(NodeConfig::embedded(uri));
        };
        let (store, queue) = (append_name(store, name), append_name(queue, name));
        let is_new = lock(&self.created).insert((store.clone(), queue.clone()));
        if is_new {
            let result = dueline_backends::deploy::create_new(&store, &queue).await;
            if let Err(error) = result {
                // A table that existed before belongs to another program and must not be removed at the end.
                lock(&self.created).remove(&(store, queue));
                return Err(backend_error(&error));
            }
        }
        Ok(NodeConfig {
            queue,
            // Every task goes through the queue, as between processes.
            dispatch: false,
            ..NodeConfig::embedded(store)
        })
    }

    /// The cost of all calls so far.
    pub(super) fn cost(&self) -> Cost {
        *lock(&self.cost)
    }

    /// The conditional writes per second that the table accepts when nothing but writes is measured.
    pub(super) async fn ceiling(&self, callers: u32) -> Result<Option<f64>, CliError> {
        let Some((store, _)) = lock(&self.created).iter().next().cloned() else {
            return Ok(None);
        };
        let measured = dueline_backends::deploy::ceiling(&store, callers, CEILING_DURATION).await;
        measured.map_err(|error| backend_error(&error))
    }

    /// Removes the tables and queues that were created.
    pub(super) async fn remove(&self) -> Result<(), CliError> {
        let created = std::mem::take(&mut *lock(&self.created));
        for (store, queue) in created {
            let removed = dueline_backends::deploy::remove(&store, &queue, false).await;
            removed.map_err(|error| backend_error(&error))?;
        }
        Ok(())
    }

    /// Stops the services and adds up their cost.
    pub(super) async fn stop(&self, node: Node) -> Result<(), CliError> {
        {
            let mut cost = lock(&self.cost);
            *cost = cost.plus(node.cost());
        }
        node.stop(Duration::from_secs(30))
            .await
            .map(drop)
            .map_err(|error| {
                CliError::new(
                    ErrorKind::Internal,
                    ErrorReason::ServiceFailed,
                    error_chain(&error),
                )
            })
    }

    /// Starts services on the file, or on the table and queues, called `name`, with a worker if one is given.
    pub(super) async fn node(
        &self,
        name: &str,
        worker: Option<(u32, Registry)>,
    ) -> Result<Node, CliError> {
        let mut config = self.config(name).await?;
        config.workers.extend(worker.map(|(concurrency, registry)| {
            let executor = dueline_executor::Config {
                concurrency,
                embedded: true,
                ..dueline_executor::Config::new("bench", incarnation())
            };
            WorkerConfig { executor, registry }
        }));
        self.start(config).await
    }

    pub(super) async fn start(&self, config: NodeConfig) -> Result<Node, CliError> {
        Node::start(config)
            .await
            .map_err(|error| start_error(&error))
    }

    /// A payload of the configured size that begins with `number`.
    pub(super) fn payload(&self, number: u64) -> Bytes {
        let mut payload = format!("{number:020}");
        while payload.len() < self.payload_bytes {
            payload.push('x');
        }
        payload.truncate(self.payload_bytes);
        Bytes::from(payload)
    }

    /// A task that carries `number` and is due now.
    pub(super) fn task(&self, job: &JobName, number: u64) -> NewTask {
        let id = SystemRng.task_id(SystemClock.now());
        NewTask::now(id, job.clone(), self.payload(number))
    }
}

impl Drop for BenchTarget {
    fn drop(&mut self) {
        // A folder that cannot be removed is left to the system, which cleans its temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The number that a payload begins with.
pub(super) fn number_of(payload: &[u8]) -> u64 {
    payload
        .iter()
        .take(20)
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number, byte| number * 10 + u64::from(byte - b'0'))
}

/// Stores a job called `name`.
pub(super) async fn put_job(
    node: &Node,
    name: &str,
    handler: Handler,
    policy: Policy,
) -> Result<JobName, CliError> {
    let name = JobName::parse(name).map_err(|error| CliError::invalid(error.to_string()))?;
    let job = Job {
        name: name.clone(),
        info: "created by dueline bench".into(),
        handler,
        policy,
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "bench".into(),
        created_at: Timestamp::EPOCH,
        changed_at: Timestamp::EPOCH,
    };
    node.frontend()
        .call(&Call::default(), PutJob::from(job))
        .await?;
    Ok(name)
}

/// Submits `count` tasks in batches and waits for their commits.
pub(super) async fn fill(
    target: &BenchTarget,
    frontend: &Arc<dyn Frontend>,
    job: &JobName,
    count: u64,
    due_in: Option<Duration>,
) -> Result<(), CliError> {
    let run_at = due_in.map(|wait| SystemClock.now().after(wait));
    let mut number = 0;
    while number < count {
        let end = (number + 2_000).min(count);
        let tasks = (number..end).map(|number| NewTask {
            due: Due::from(run_at),
            ..target.task(job, number)
        });
        for answer in frontend
            .call(
                &Call::default(),
                Submit {
                    tasks: tasks.collect(),
                },
            )
            .await?
        {
            answer?;
        }
        number = end;
    }
    Ok(())
}

/// The URI with `-name` appended to its path.
fn append_name(uri: &str, name: &str) -> String {
    match uri.split_once('?') {
        Some((path, options)) => format!("{path}-{name}?{options}"),
        None => format!("{uri}-{name}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a benchmark that makes no progress.
pub(super) fn stalled(what: &str) -> CliError {
    CliError::new(
        ErrorKind::Internal,
        ErrorReason::Stalled,
        format!("{what} did not end"),
    )
}
