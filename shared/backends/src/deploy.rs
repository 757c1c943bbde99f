//! Creates, checks and deletes the AWS resources of a store and a queue.

use std::{sync::Arc, time::Duration};

use dueline_aws::Meter;
use dueline_domain::JobName;
use dueline_ports::{JobStore as _, QueueError, TaskQueue as _};
use dueline_queue_sqs::{Drift, OpenError as SqsError, QueueInfo, SqsOptions, SqsQueue};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore, OpenError,
    setup::{self, SetupClient, SetupStep, SkippedStep, TableSpec, TableState},
};

use crate::{BackendError, QueueAddress, StoreAddress};

/// A planned or completed change, or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The table or queue.
    pub what: String,
    /// The description.
    pub text: String,
    /// Whether something is changed; otherwise this is a notice.
    pub changes: bool,
}

impl Action {
    fn new(what: &str, text: impl Into<String>, changes: bool) -> Self {
        let (what, text) = (what.to_owned(), text.into());
        Self {
            what,
            text,
            changes,
        }
    }
}

/// What [`set_up`] would do, with notices about what it would not do.
pub async fn plan(store: &StoreAddress, queue: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::from_iter(local_queue_notice(store, queue));
    let mut store_exists = false;
    if let StoreAddress::DynamoDb(options) = store {
        let steps = steps(options).await?;
        store_exists = steps.iter().all(|step| *step != SetupStep::CreateTable)
            && !steps
                .iter()
                .any(|step| matches!(step, SetupStep::WriteMeta { .. } | SetupStep::Foreign(_)));
        actions.extend(table_actions(&options.table, &steps, &[]));
    }
    if let QueueAddress::Sqs(options) = queue {
        let sqs = open(options).await?;
        for info in describe_queues(&sqs, store, store_exists).await? {
            actions.extend(queue_actions(&info));
        }
    }
    Ok(actions)
}

/// Creates what is missing: table, index, expiry, backups, the quarantine queue, and the queue of every stored job.
/// Existing resources are kept, and attributes that differ are corrected, so it can be repeated.
///
/// A queue that belongs to another deployment is not changed. It is reported as an error after everything else is done.
pub async fn set_up(
    store: &StoreAddress,
    queue: &QueueAddress,
) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::from_iter(local_queue_notice(store, queue));
    if let StoreAddress::DynamoDb(options) = store {
        let setup_client = setup_client(options).await?;
        let steps = steps(options).await?;
        let completed = setup_client.execute(&options.table, &steps).await;
        let skipped = completed.map_err(dynamo)?;
        actions.extend(table_actions(&options.table, &steps, &skipped));
    }
    if let QueueAddress::Sqs(options) = queue {
        let sqs = open(options).await?;
        let before = describe_queues(&sqs, store, true).await?;
        let mut refusals = Vec::from_iter(refusal(set_up_quarantine(&sqs).await)?);
        for job in jobs(store).await? {
            refusals.extend(refusal(set_up_queues(&sqs, &job).await)?);
        }
        if !refusals.is_empty() {
            let all = QueueError::Invalid(refusals.join("; ").into());
            return Err(BackendError::Queue(all));
        }
        actions.extend(before.iter().flat_map(queue_actions));
    }
    Ok(actions)
}

async fn set_up_quarantine(sqs: &SqsQueue) -> Result<(), QueueError> {
    sqs.ensure_quarantine().await?;
    sqs.fix_quarantine().await.map(drop)
}

async fn set_up_queues(sqs: &SqsQueue, job: &JobName) -> Result<(), QueueError> {
    sqs.ensure(job).await?;
    sqs.fix(job).await.map(drop)
}

/// The reason of a permanent refusal, such as a queue of another deployment. It does not stop the rest of the setup.
fn refusal(result: Result<(), QueueError>) -> Result<Option<Arc<str>>, BackendError> {
    match result {
        Ok(()) => Ok(None),
        Err(QueueError::Invalid(why)) => Ok(Some(why)),
        Err(error) => Err(BackendError::Queue(error)),
    }
}

/// A notice if the store is shared by several processes but the queue is not. A single process can use both.
fn local_queue_notice(store: &StoreAddress, queue: &QueueAddress) -> Option<Action> {
    let StoreAddress::DynamoDb(_) = store else {
        return None;
    };
    let text = "the queue is inside each process, so its messages reach no controller in another process; several \
                processes need a shared queue: --queue sqs://PREFIX";
    matches!(queue, QueueAddress::Local).then(|| Action::new("queue 'local:'", text, false))
}

/// As [`set_up`], but refuses a table that exists, because the caller will delete the table afterwards.
pub async fn create_new(store: &str, queue: &str) -> Result<(), BackendError> {
    let (store, queue) = (StoreAddress::parse(store)?, QueueAddress::parse(queue)?);
    if let StoreAddress::DynamoDb(options) = &store
        && inspect(options).await?.table.is_some()
    {
        return Err(BackendError::Exists {
            what: options.table.clone(),
        });
    }
    set_up(&store, &queue).await.map(drop)
}

/// Measures how many conditional writes per second the table accepts from `callers` concurrent callers; `None` if the
/// store has no table. The items are not deleted, so use it only on tables of [`create_new`].
pub async fn ceiling(
    store: &str,
    callers: u32,
    lasting: Duration,
) -> Result<Option<f64>, BackendError> {
    let StoreAddress::DynamoDb(options) = StoreAddress::parse(store)? else {
        return Ok(None);
    };
    let setup_client = setup_client(&options).await?;
    let measured = setup_client.ceiling(&options.table, callers, lasting).await;
    measured.map(Some).map_err(dynamo)
}

/// Deletes the table with all its items, and all queues with the prefix and tag of this deployment. With `dry_run`,
/// only returns what would be deleted. Missing resources are not an error; a table of another program is one, and is
/// kept.
pub async fn remove(store: &str, queue: &str, dry_run: bool) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::new();
    if let StoreAddress::DynamoDb(options) = StoreAddress::parse(store)? {
        let (setup_client, table) = (setup_client(&options).await?, options.table);
        let items = setup_client.is_removable(&table).await.map_err(dynamo)?;
        let items = items.map(|shape| shape.items);
        if !dry_run {
            setup_client.remove(&table).await.map_err(dynamo)?;
        }
        let action = match items {
            Some(items) => (format!("delete the table with about {items} items"), true),
            None => (
                format!("there is no such table at {}", setup_client.endpoint),
                false,
            ),
        };
        actions.push(Action::new(&table, action.0, action.1));
    }
    if let QueueAddress::Sqs(options) = QueueAddress::parse(queue)? {
        let sqs = open(&options).await?;
        let names = if dry_run {
            sqs.list_own().await
        } else {
            sqs.remove_all().await
        };
        let names = names.map_err(BackendError::Queue)?;
        let delete = |name: String| Action::new(&name, "delete the queue", true);
        actions.extend(names.into_iter().map(delete));
    }
    Ok(actions)
}

async fn inspect(options: &DynamoOptions) -> Result<TableState, BackendError> {
    let setup_client = setup_client(options).await?;
    setup_client.inspect(&options.table).await.map_err(dynamo)
}

async fn steps(options: &DynamoOptions) -> Result<Vec<SetupStep>, BackendError> {
    let expected = TableSpec {
        table: options.table.clone(),
        slots: options.slots,
        backups: true,
    };
    Ok(setup::plan(&inspect(options).await?, &expected))
}

fn table_actions(table: &str, steps: &[SetupStep], skipped: &[SkippedStep]) -> Vec<Action> {
    let steps = steps.iter().filter(|step| **step != SetupStep::Wait);
    let action = |step: &SetupStep| match skipped.iter().find(|skipped| skipped.step == *step) {
        Some(SkippedStep { why, .. }) => {
            let text = format!("skipped, because the service does not support it ({why}): {step}");
            Action::new(table, text, false)
        }
        None => Action::new(table, step.to_string(), step.changes()),
    };
    steps.map(action).collect()
}

async fn open(options: &SqsOptions) -> Result<Arc<SqsQueue>, BackendError> {
    let queue = SqsQueue::open(options.clone(), Meter::default()).await;
    queue.map_err(|error: SqsError| BackendError::Sqs(error))
}

/// The names of the jobs in a store that is set up.
async fn jobs(store: &StoreAddress) -> Result<Vec<JobName>, BackendError> {
    let StoreAddress::DynamoDb(options) = store else {
        return Ok(Vec::new());
    };
    let store = DynamoStore::open(options.clone(), Meter::default())
        .await
        .map_err(dynamo)?;
    let jobs = store.jobs().await.map_err(BackendError::Store)?;
    Ok(jobs.iter().map(|job| job.name.clone()).collect())
}

async fn describe_queues(
    sqs: &SqsQueue,
    store: &StoreAddress,
    store_exists: bool,
) -> Result<Vec<QueueInfo>, BackendError> {
    let mut infos = vec![
        sqs.describe_quarantine()
            .await
            .map_err(BackendError::Queue)?,
    ];
    if store_exists {
        for job in jobs(store).await? {
            infos.extend(sqs.describe(&job).await.map_err(BackendError::Queue)?);
        }
    }
    Ok(infos)
}

fn queue_actions(info: &QueueInfo) -> Vec<Action> {
    if !info.exists {
        return vec![Action::new(&info.name, "create the queue", true)];
    }
    if let Some(owner) = info.other_owner() {
        let text = format!(
            "not changed and not usable: it belongs to the deployment with the prefix '{owner}'; change the prefix of one of \
             the two deployments"
        );
        return vec![Action::new(&info.name, text, false)];
    }
    let change = |drift: &Drift| {
        let Drift {
            name,
            actual,
            expected,
        } = drift;
        let actual = actual.as_deref().unwrap_or("nothing");
        Action::new(
            &info.name,
            format!("set {name} from {actual} to {expected}"),
            true,
        )
    };
    info.drift.iter().map(change).collect()
}

async fn setup_client(options: &DynamoOptions) -> Result<SetupClient, BackendError> {
    let setup_client = SetupClient::of(&options.aws).await;
    setup_client.map_err(|error| dynamo(error.into()))
}

fn dynamo(error: OpenError) -> BackendError {
    BackendError::DynamoDb(error)
}
