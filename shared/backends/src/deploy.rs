//! Making, checking and removing what a store and queue need in AWS.

use std::{sync::Arc, time::Duration};

use dueline_aws::Meter;
use dueline_domain::JobName;
use dueline_ports::{JobStore as _, QueueError, TaskQueue as _};
use dueline_queue_sqs::{Drift, OpenError as SqsError, QueueInfo, SqsOptions, SqsQueue};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore, OpenError,
    setup::{self, Found, Site, Step, Undone, Wanted},
};

use crate::{BackendError, QueueAddress, StoreAddress};

/// Something to do, something done, or something that has to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The table or queue.
    pub what: String,
    /// In words.
    pub text: String,
    /// Whether it changes something; else it only has to be known.
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

/// What [`set_up`] would do, and what it would leave to people.
pub async fn plan(store: &StoreAddress, queue: &QueueAddress) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::from_iter(apart(store, queue));
    let mut is_there = false;
    if let StoreAddress::DynamoDb(options) = store {
        let steps = steps(options).await?;
        is_there = steps.iter().all(|step| *step != Step::CreateTable)
            && !steps
                .iter()
                .any(|step| matches!(step, Step::WriteMeta { .. } | Step::Foreign(_)));
        actions.extend(told(&options.table, &steps, &[]));
    }
    if let QueueAddress::Sqs(options) = queue {
        let sqs = open(options).await?;
        for info in infos(&sqs, store, is_there).await? {
            actions.extend(wanted(&info));
        }
    }
    Ok(actions)
}

/// Makes what is missing: table, index, expiry, backups, the set-aside queue, and the queue of every job that is known.
/// What is there already is left alone, and attributes that differ are put right; so it can be run again and again.
///
/// A queue that belongs to another deployment is left as it is: that is an error, told when all else is done.
pub async fn set_up(
    store: &StoreAddress,
    queue: &QueueAddress,
) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::from_iter(apart(store, queue));
    if let StoreAddress::DynamoDb(options) = store {
        let site = site(options).await?;
        let steps = steps(options).await?;
        let carried_out = site.carry_out(&options.table, &steps).await;
        let undone = carried_out.map_err(dynamo)?;
        actions.extend(told(&options.table, &steps, &undone));
    }
    if let QueueAddress::Sqs(options) = queue {
        let sqs = open(options).await?;
        let before = infos(&sqs, store, true).await?;
        let mut refused = Vec::from_iter(refusal(set_up_set_aside(&sqs).await)?);
        for job in jobs(store).await? {
            refused.extend(refusal(set_up_queues(&sqs, &job).await)?);
        }
        if !refused.is_empty() {
            let all = QueueError::Invalid(refused.join("; ").into());
            return Err(BackendError::Queue(all));
        }
        actions.extend(before.iter().flat_map(wanted));
    }
    Ok(actions)
}

async fn set_up_set_aside(sqs: &SqsQueue) -> Result<(), QueueError> {
    sqs.ensure_set_aside().await?;
    sqs.mend_set_aside().await.map(drop)
}

async fn set_up_queues(sqs: &SqsQueue, job: &JobName) -> Result<(), QueueError> {
    sqs.ensure(job).await?;
    sqs.mend(job).await.map(drop)
}

/// What was refused for good, such as a queue of another deployment, keeps nobody from setting up the rest.
fn refusal(done: Result<(), QueueError>) -> Result<Option<Arc<str>>, BackendError> {
    match done {
        Ok(()) => Ok(None),
        Err(QueueError::Invalid(why)) => Ok(Some(why)),
        Err(error) => Err(BackendError::Queue(error)),
    }
}

/// A store for several processes and a queue within one: each of them is fine, but not both for several processes.
fn apart(store: &StoreAddress, queue: &QueueAddress) -> Option<Action> {
    let StoreAddress::DynamoDb(_) = store else {
        return None;
    };
    let text = "the queue lives inside each process, so a message that one sends reaches no controller of another: several \
                processes need a shared queue, --queue sqs://PREFIX";
    matches!(queue, QueueAddress::Local).then(|| Action::new("queue 'local:'", text, false))
}

/// As [`set_up`], but refuses a table that exists: for somebody who will remove it again.
pub async fn make_new(store: &str, queue: &str) -> Result<(), BackendError> {
    let (store, queue) = (StoreAddress::parse(store)?, QueueAddress::parse(queue)?);
    if let StoreAddress::DynamoDb(options) = &store
        && found(options).await?.table.is_some()
    {
        return Err(BackendError::Exists {
            what: options.table.clone(),
        });
    }
    set_up(&store, &queue).await.map(drop)
}

/// Conditional writes a second that the table takes from `callers`, whoever makes them; nothing where there is no table.
/// Leaves items behind, so it is for tables of [`make_new`].
pub async fn ceiling(
    store: &str,
    callers: u32,
    lasting: Duration,
) -> Result<Option<f64>, BackendError> {
    let StoreAddress::DynamoDb(options) = StoreAddress::parse(store)? else {
        return Ok(None);
    };
    let site = site(&options).await?;
    let measured = site.ceiling(&options.table, callers, lasting).await;
    measured.map(Some).map_err(dynamo)
}

/// Removes the table with everything in it, and all queues with the prefix and tag of this deployment; with `dry_run` it
/// only says so. What is not there is no error; what belongs to somebody else stays, and is one.
pub async fn remove(store: &str, queue: &str, dry_run: bool) -> Result<Vec<Action>, BackendError> {
    let mut actions = Vec::new();
    if let StoreAddress::DynamoDb(options) = StoreAddress::parse(store)? {
        let (site, table) = (site(&options).await?, options.table);
        let items = site.is_removable(&table).await.map_err(dynamo)?;
        let items = items.map(|shape| shape.items);
        if !dry_run {
            site.remove(&table).await.map_err(dynamo)?;
        }
        let action = match items {
            Some(items) => (format!("delete the table with about {items} items"), true),
            None => (format!("there is no such table at {}", site.place), false),
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

async fn found(options: &DynamoOptions) -> Result<Found, BackendError> {
    let site = site(options).await?;
    site.inspect(&options.table).await.map_err(dynamo)
}

async fn steps(options: &DynamoOptions) -> Result<Vec<Step>, BackendError> {
    let wanted = Wanted {
        table: options.table.clone(),
        slots: options.slots,
        backups: true,
    };
    Ok(setup::plan(&found(options).await?, &wanted))
}

fn told(table: &str, steps: &[Step], undone: &[Undone]) -> Vec<Action> {
    let steps = steps.iter().filter(|step| **step != Step::Wait);
    let action = |step: &Step| match undone.iter().find(|undone| undone.step == *step) {
        Some(Undone { why, .. }) => {
            let text = format!("not done, because it is not to be had here ({why}): {step}");
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

/// The jobs of a store that is set up.
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

async fn infos(
    sqs: &SqsQueue,
    store: &StoreAddress,
    store_is_there: bool,
) -> Result<Vec<QueueInfo>, BackendError> {
    let mut infos = vec![
        sqs.describe_set_aside()
            .await
            .map_err(BackendError::Queue)?,
    ];
    if store_is_there {
        for job in jobs(store).await? {
            infos.extend(sqs.describe(&job).await.map_err(BackendError::Queue)?);
        }
    }
    Ok(infos)
}

fn wanted(info: &QueueInfo) -> Vec<Action> {
    if !info.exists {
        return vec![Action::new(&info.name, "create the queue", true)];
    }
    if let Some(owner) = info.other_owner() {
        let text = format!(
            "left as it is, and not usable: it belongs to the deployment with the prefix '{owner}'; give one of the two \
             another prefix"
        );
        return vec![Action::new(&info.name, text, false)];
    }
    let change = |drift: &Drift| {
        let Drift { what, is, wanted } = drift;
        let is = is.as_deref().unwrap_or("nothing");
        Action::new(
            &info.name,
            format!("set {what} from {is} to {wanted}"),
            true,
        )
    };
    info.drift.iter().map(change).collect()
}

async fn site(options: &DynamoOptions) -> Result<Site, BackendError> {
    let site = Site::of(&options.aws).await;
    site.map_err(|error| dynamo(error.into()))
}

fn dynamo(error: OpenError) -> BackendError {
    BackendError::DynamoDb(error)
}
