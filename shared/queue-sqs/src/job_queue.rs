//! All that belongs to one job: its queue, or one for each priority level.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, QueueError};
use tokio::{
    sync::Semaphore,
    time::{sleep_until, timeout_at},
};

use crate::{
    crew::Crew,
    deletes::Deletes,
    lane::Lane,
    ledger::Ledger,
    name::{LEVELS, Names, level_of},
    pack::REFERENCE_LEN_MAX,
    place::{Place, Wanted},
    sends::Sends,
    service::Service,
    shelf::{Held, Shelf, Step},
    wire,
};

/// The store hands a task on again when its message is lost, long before this.
const RETENTION_S: u32 = 4 * 24 * 3_600;
/// Time for people to look at what was set aside; the longest that SQS knows.
const SET_ASIDE_RETENTION_S: u32 = 14 * 24 * 3_600;
/// The longest that SQS knows; every receive says its own all the same.
const POLL_S: u32 = 20;
/// Requests that set messages of one job aside, at once.
const SET_ASIDE_MAX: usize = 2;

/// Whose queue it is.
pub(crate) const TAG_JOB: &str = "dueline:job";
/// Which deployment it belongs to.
pub(crate) const TAG_PREFIX: &str = "dueline:prefix";

/// What all jobs share.
pub(crate) struct Common {
    pub(crate) service: Arc<Service>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) names: Names,
    pub(crate) visibility_timeout: Duration,
    pub(crate) visibility_s: i32,
    pub(crate) priority_queues: bool,
    pub(crate) set_aside: Arc<Place>,
}

/// The queues of one job.
pub(crate) struct JobQueue {
    pub(crate) common: Arc<Common>,
    pub(crate) job: JobName,
    /// One, or one for each priority level, the most urgent first.
    pub(crate) levels: Vec<Level>,
    pub(crate) shelf: Shelf,
    pub(crate) ledger: Ledger,
    pub(crate) setting_aside: Semaphore,
}

/// One queue of SQS, and what goes there.
pub(crate) struct Level {
    pub(crate) place: Arc<Place>,
    pub(crate) sends: Arc<Lane<Sends>>,
    pub(crate) deletes: Arc<Lane<Deletes>>,
    /// References per message, as received last.
    pub(crate) packed: AtomicUsize,
    /// Receives in a row that brought all they asked for.
    pub(crate) full: AtomicUsize,
}

impl Common {
    pub(crate) fn new(
        service: Arc<Service>,
        names: Names,
        visibility_s: u16,
        priority_queues: bool,
    ) -> Arc<Self> {
        let tags = BTreeMap::from([(TAG_PREFIX.to_owned(), names.prefix().to_owned())]);
        let wanted = Wanted {
            attributes: attributes(visibility_s, SET_ASIDE_RETENTION_S),
            tags,
        };
        let set_aside = Place::new(service.clone(), None, names.set_aside(), wanted);
        Arc::new(Self {
            service,
            crew: Arc::default(),
            names,
            visibility_timeout: Duration::from_secs(visibility_s.into()),
            visibility_s: visibility_s.into(),
            priority_queues,
            set_aside,
        })
    }
}

fn attributes(visibility_s: u16, retention_s: u32) -> BTreeMap<QueueAttributeName, String> {
    use QueueAttributeName::{
        MessageRetentionPeriod, ReceiveMessageWaitTimeSeconds, VisibilityTimeout,
    };
    BTreeMap::from([
        (VisibilityTimeout, visibility_s.to_string()),
        (MessageRetentionPeriod, retention_s.to_string()),
        (ReceiveMessageWaitTimeSeconds, POLL_S.to_string()),
    ])
}

impl JobQueue {
    pub(crate) fn new(common: &Arc<Common>, job: JobName) -> Arc<Self> {
        let levels = if common.priority_queues { LEVELS } else { 1 };
        let level = |level| {
            let level = common.priority_queues.then_some(level);
            let tags = [(TAG_PREFIX, common.names.prefix()), (TAG_JOB, job.as_str())];
            let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let visibility_s = u16::try_from(common.visibility_s).unwrap_or(u16::MAX);
            let wanted = Wanted {
                attributes: attributes(visibility_s, RETENTION_S),
                tags: BTreeMap::from(tags),
            };
            let name = common.names.of(&job, level);
            let place = Place::new(common.service.clone(), Some(job.clone()), name, wanted);
            Level {
                sends: Lane::new(Sends(place.clone()), common.crew.clone()),
                deletes: Lane::new(Deletes(place.clone()), common.crew.clone()),
                place,
                packed: AtomicUsize::new(1),
                full: AtomicUsize::new(0),
            }
        };
        Arc::new(Self {
            common: common.clone(),
            levels: (0..levels).map(level).collect(),
            // A caller that takes something may wait three quarters of the timeout before it extends it.
            shelf: Shelf::new(levels, common.visibility_timeout / 4),
            ledger: Ledger::default(),
            setting_aside: Semaphore::new(SET_ASIDE_MAX),
            job,
        })
    }

    /// Which of our queues a task goes to.
    pub(crate) fn level_of(&self, task: &TaskRef) -> usize {
        if self.levels.len() == 1 {
            0
        } else {
            level_of(task.priority)
        }
    }

    /// Sends references of this job, all to the same level; an answer for each.
    pub(crate) async fn send(
        &self,
        level: usize,
        tasks: &[TaskRef],
    ) -> Vec<Result<(), QueueError>> {
        let references: Vec<_> = tasks.iter().map(wire::reference).collect();
        let Some(long) = references.iter().find(|r| r.len() > REFERENCE_LEN_MAX) else {
            return self.levels[level].sends.submit(references).await;
        };
        let why = format!("a reference of {} bytes is too long for SQS", long.len());
        let refused = Err(QueueError::Invalid(why.into()));
        let fitting = references.iter().filter(|r| r.len() <= REFERENCE_LEN_MAX);
        let sent = self.levels[level].sends.submit(fitting.cloned().collect());
        let mut sent = sent.await.into_iter();
        let answer = |reference: &String| match reference.len() {
            0..=REFERENCE_LEN_MAX => sent.next().unwrap_or_else(|| refused.clone()),
            _ => refused.clone(),
        };
        references.iter().map(answer).collect()
    }

    /// Waits for references, at the shelf that polls fill.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let mut receiver = self.shelf.enter(max, wait);
        loop {
            let mut changed = pin!(self.shelf.changed.notified());
            changed.as_mut().enable();
            match receiver.step() {
                Step::Take(deliveries) => return Ok(deliveries),
                Step::Fail(error) => return Err(error),
                Step::Leave => return Ok(Vec::new()),
                Step::Wait { polls, until } => {
                    for poll in polls {
                        self.begin(poll);
                    }
                    match until {
                        // Over or not: the next step finds out.
                        Some(until) => drop(timeout_at(until, changed).await),
                        None => changed.await,
                    }
                }
            }
        }
    }

    /// Gives back what stays on the shelf too long, until it is empty.
    pub(crate) async fn keep(self: Arc<Self>) {
        while let Some(until) = self.shelf.keep_until() {
            sleep_until(until).await;
            self.give_back(self.shelf.overdue()).await;
        }
    }

    /// Nobody wants these: they are visible to others at once.
    pub(crate) async fn give_back(&self, held: Vec<Held>) {
        if held.is_empty() {
            return;
        }
        let receipts = held.iter().map(|held| &held.delivery.receipt);
        if let Err(error) = self.nack(receipts, Duration::ZERO).await {
            tracing::debug!(job.name = %self.job, %error, "failed to give messages back; they come back by their timeout");
        }
    }
}
