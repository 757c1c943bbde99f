//! Where a benchmark happens: a fresh file or table, services on it, and handlers that cost nothing.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use dueline_all_in_one::{Node, NodeConfig, WorkerConfig};
use dueline_api::{ErrorKind, Frontend};
use dueline_domain::{Handler, Job, JobName, NewTask, Policy, Quota, Timestamp};
use dueline_executor::Registry;
use dueline_ports::{Clock as _, Cost, Rng as _};
use dueline_runtime::{SystemClock, SystemRng, incarnation};

use super::{Bench, db_bytes};
use crate::{
    commands::process::{backend_error, chain, start_error},
    exit::CliError,
};

/// The job of a benchmark.
pub(super) const JOB: &str = "bench";

/// How long the ceiling of a table is measured.
const CEILING_FOR: Duration = Duration::from_secs(2);

/// A folder of its own, gone when this is dropped; or tables and queues of its own, gone with [`Place::clear`].
pub(super) struct Place {
    folder: PathBuf,
    durability: String,
    payload_bytes: usize,
    /// Store and queue that were asked for instead of a file.
    fleet: Option<(String, String)>,
    /// Tables and queues that were made.
    made: Mutex<BTreeSet<(String, String)>>,
    spent: Mutex<Cost>,
}

impl Place {
    pub(super) fn new(bench: &Bench) -> Result<Self, CliError> {
        if !matches!(bench.durability.as_str(), "full" | "normal") {
            return Err(CliError::invalid("--durability is full or normal"));
        }
        let payload_max = dueline_domain::limits().payload_bytes_max;
        if bench.payload_bytes > payload_max {
            let text = format!("--payload-bytes is at most {payload_max}");
            return Err(CliError::invalid(text));
        }
        let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("dueline-bench-{:016x}", incarnation()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            folder,
            durability: bench.durability.clone(),
            payload_bytes: bench.payload_bytes,
            fleet: bench.fleet()?,
            made: Mutex::default(),
            spent: Mutex::default(),
        })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.db"))
    }

    pub(super) fn db_bytes(&self, name: &str) -> Option<u64> {
        db_bytes(&self.file(name))
    }

    /// Services on the file, or on the table and queues, of that name; these are made if they are not there.
    pub(super) async fn config(&self, name: &str) -> Result<NodeConfig, CliError> {
        let Some((store, queue)) = &self.fleet else {
            let path = self.file(name);
            let uri = format!("sqlite:{}?durability={}", path.display(), self.durability);
            return Ok(NodeConfig::embedded(uri));
        };
        let (store, queue) = (named(store, name), named(queue, name));
        let is_new = lock(&self.made).insert((store.clone(), queue.clone()));
        if is_new {
            let made = dueline_backends::deploy::make_new(&store, &queue).await;
            if let Err(error) = made {
                // It is somebody else's, so it must not be removed at the end.
                lock(&self.made).remove(&(store, queue));
                return Err(backend_error(&error));
            }
        }
        Ok(NodeConfig {
            queue,
            // A task goes through the queue, as it does between processes.
            dispatch: false,
            ..NodeConfig::embedded(store)
        })
    }

    /// What calls have cost so far.
    pub(super) fn spent(&self) -> Cost {
        *lock(&self.spent)
    }

    /// Conditional writes a second that the table takes from anybody.
    pub(super) async fn ceiling(&self, callers: u32) -> Result<Option<f64>, CliError> {
        let Some((store, _)) = lock(&self.made).iter().next().cloned() else {
            return Ok(None);
        };
        let measured = dueline_backends::deploy::ceiling(&store, callers, CEILING_FOR).await;
        measured.map_err(|error| backend_error(&error))
    }

    /// Removes tables and queues.
    pub(super) async fn clear(&self) -> Result<(), CliError> {
        let made = std::mem::take(&mut *lock(&self.made));
        for (store, queue) in made {
            let removed = dueline_backends::deploy::remove(&store, &queue, false).await;
            removed.map_err(|error| backend_error(&error))?;
        }
        Ok(())
    }

    /// Stops services at once.
    pub(super) async fn stop(&self, node: Node) -> Result<(), CliError> {
        {
            let mut spent = lock(&self.spent);
            *spent = spent.plus(node.cost());
        }
        node.stop(Duration::from_secs(30))
            .await
            .map(drop)
            .map_err(|error| CliError::new(ErrorKind::Internal, "service_failed", chain(&error)))
    }

    /// Services on the file `name`, with the benchmark's job, and a worker if handlers are given.
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

    /// A payload of the wanted size that begins with `number`.
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

impl Drop for Place {
    fn drop(&mut self) {
        // Nothing depends on it, and the system cleans its temporary folder itself.
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

pub(super) fn name(text: &str) -> Result<JobName, CliError> {
    JobName::parse(text).map_err(|error| CliError::invalid(error.to_string()))
}

/// Stores the job `text`, which is run by whoever registered a handler for it.
pub(super) async fn put_job(
    node: &Node,
    text: &str,
    handler: Handler,
    policy: Policy,
) -> Result<JobName, CliError> {
    let name = name(text)?;
    let job = Job {
        name: name.clone(),
        info: "made by dueline bench".into(),
        handler,
        policy,
        quota: Quota::default(),
        paused: false,
        created_by: "bench".into(),
        created_at: Timestamp::EPOCH,
        changed_at: Timestamp::EPOCH,
    };
    node.frontend().put_job(job).await?;
    Ok(name)
}

/// Submits `count` tasks in batches and waits for their commits.
pub(super) async fn fill(
    place: &Place,
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
            run_at,
            ..place.task(job, number)
        });
        for answer in frontend.submit(tasks.collect()).await {
            answer?;
        }
        number = end;
    }
    Ok(())
}

/// The URI with `-name` after its path.
fn named(uri: &str, name: &str) -> String {
    match uri.split_once('?') {
        Some((path, options)) => format!("{path}-{name}?{options}"),
        None => format!("{uri}-{name}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing moved for a minute.
pub(super) fn stalled(what: &str) -> CliError {
    CliError::new(
        ErrorKind::Internal,
        "stalled",
        format!("{what} did not end"),
    )
}
