//! Claims tasks at the moment they are handed out.

use std::{collections::BTreeSet, time::Duration};

use dueline_api::{Action, Assignment, Report, Status};
use dueline_domain::{JobName, WorkerId, WriteId};
use dueline_ports::{Delivery, Receipt, TaskQueue};
use dueline_runtime::TaskGroup;
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use crate::{Deps, pause::Pauses, under_way::HandOut};

/// A message whose claim could not be decided comes back after this, so that a store that is down is not stormed.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Claimed tasks on their way to the worker. Whoever drops them gives them back.
pub(crate) struct Handed {
    assignments: Vec<Assignment>,
    deps: Deps,
    group: TaskGroup,
    /// Ends when the tasks are the worker's business, or nobody's.
    hand_out: Option<HandOut>,
}

/// Who gets what is claimed.
pub(crate) struct Taker {
    /// The new owner.
    pub(crate) worker: WorkerId,
    /// Whether it begins at once all that it gets.
    pub(crate) start: bool,
    /// When it asked.
    pub(crate) asked: Instant,
    /// For one that begins at once.
    pub(crate) hand_out: Option<HandOut>,
}

impl Handed {
    pub(crate) fn new(assignments: Vec<Assignment>, deps: &Deps, group: &TaskGroup) -> Self {
        Self {
            assignments,
            deps: deps.clone(),
            group: group.clone(),
            hand_out: None,
        }
    }

    /// The tasks; from here on they are the caller's.
    pub(crate) fn take(mut self) -> Vec<Assignment> {
        std::mem::take(&mut self.assignments)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let assignments = std::mem::take(&mut self.assignments);
        // Without a runtime the process is ending, and the claim timeout does the rest.
        if assignments.is_empty() || Handle::try_current().is_err() {
            return;
        }
        let (deps, hand_out) = (self.deps.clone(), self.hand_out.take());
        self.group.spawn_infallible("give back", async move {
            give_back(&deps, assignments).await;
            drop(hand_out);
        });
    }
}

/// Claims the tasks of `deliveries` for `taker`. The answer never comes if the claims could not be made.
///
/// Claim, answer and acknowledgement run in their own task: when the worker goes away in between, nothing is torn,
/// and the tasks are given back at once.
pub(crate) fn hand_out(
    deps: &Deps,
    group: &TaskGroup,
    pauses: &Pauses,
    taker: Taker,
    deliveries: Vec<Delivery>,
) -> oneshot::Receiver<Handed> {
    let (answer, answered) = oneshot::channel();
    let (deps, own_group, pauses) = (deps.clone(), group.clone(), pauses.clone());
    group.spawn_infallible("hand out", async move {
        let claimed = claim(&*deps.status, &taker, deliveries).await;
        // Before the answer: whoever waits for it must not take more of what cannot be claimed.
        claimed.pause(&pauses);
        let handed = Handed {
            assignments: claimed.assignments,
            deps: deps.clone(),
            group: own_group,
            hand_out: taker.hand_out,
        };
        // A worker that is gone leaves the tasks here, where dropping them gives them back.
        drop(answer.send(handed));
        settle(&*deps.queue, claimed.done, claimed.undecided).await;
    });
    answered
}

struct Claimed {
    assignments: Vec<Assignment>,
    /// Messages of tasks that are claimed, or that are stale.
    done: Vec<Receipt>,
    /// Messages that should come back.
    undecided: Vec<Receipt>,
    /// Jobs of which too much is asked of the store.
    throttled: BTreeSet<JobName>,
    /// Whether anything is undecided for another reason.
    is_cut_off: bool,
}

impl Claimed {
    /// Begins a pause where nothing could be decided.
    fn pause(&self, pauses: &Pauses) {
        if self.done.is_empty() && self.is_cut_off {
            pauses.all.failed();
        } else {
            pauses.all.succeeded();
        }
        let decided: BTreeSet<&JobName> = self.done.iter().map(Receipt::job).collect();
        for job in &decided {
            pauses.of(job).succeeded();
        }
        let throttled = self.throttled.iter();
        for job in throttled.filter(|job| !decided.contains(job)) {
            pauses.of(job).failed();
        }
    }
}

async fn claim(status: &dyn Status, taker: &Taker, deliveries: Vec<Delivery>) -> Claimed {
    let (messages, receipts): (Vec<_>, Vec<_>) = deliveries
        .into_iter()
        .map(|delivery| (delivery.task, delivery.receipt))
        .unzip();
    // Looked at before the claim: no lease of it begins earlier.
    let waited = taker.asked.elapsed();
    let results = status.claim(&taker.worker, messages, taker.start).await;
    let mut claimed = Claimed {
        assignments: Vec::with_capacity(results.len()),
        done: Vec::with_capacity(results.len()),
        undecided: Vec::new(),
        throttled: BTreeSet::new(),
        is_cut_off: false,
    };
    let mut receipts = receipts.into_iter();
    // The receipts come second: a zip that ends on a missing result must not swallow one.
    for (result, receipt) in results.into_iter().zip(receipts.by_ref()) {
        match result {
            Ok(assignment) => {
                claimed.assignments.push(Assignment {
                    waited,
                    ..assignment
                });
                claimed.done.push(receipt);
            }
            Err(error) if error.is_retryable() => {
                tracing::debug!(%error, "failed to claim a task; its message comes back");
                match error.reason() {
                    "throttled" => drop(claimed.throttled.insert(receipt.job().clone())),
                    _ => claimed.is_cut_off = true,
                }
                claimed.undecided.push(receipt);
            }
            // Somebody else has the task, or it has moved on: the message is of no more use.
            Err(_) => claimed.done.push(receipt),
        }
    }
    let unanswered = claimed.undecided.len();
    claimed.undecided.extend(receipts);
    claimed.is_cut_off |= claimed.undecided.len() > unanswered;
    count("claimed", claimed.assignments.len());
    count("stale", claimed.done.len() - claimed.assignments.len());
    count("retried", claimed.undecided.len());
    claimed
}

fn count(result: &'static str, count: usize) {
    if count > 0 {
        metrics::counter!("dueline_controller_claims_total", "result" => result)
            .increment(count as u64);
    }
}

/// Deletes what is done and returns what is undecided. Where that fails, the messages come back by themselves, and
/// the store knows better than they do.
async fn settle(queue: &dyn TaskQueue, done: Vec<Receipt>, undecided: Vec<Receipt>) {
    if !done.is_empty()
        && let Err(error) = queue.ack(done).await
    {
        tracing::warn!(%error, "failed to acknowledge messages of claimed tasks");
    }
    if !undecided.is_empty()
        && let Err(error) = queue.nack(undecided, RETRY_DELAY).await
    {
        tracing::warn!(%error, "failed to return messages of unclaimed tasks");
    }
}

/// The worker went away before it got its tasks: they are handed on again at once, and no try is used.
async fn give_back(deps: &Deps, assignments: Vec<Assignment>) {
    let abandon = |assignment: Assignment| Report {
        job: assignment.job,
        id: assignment.id,
        // A token is used for one claim only, and this is the only abandon of it: the name is unique.
        write: WriteId::from_random(assignment.token.get().rotate_left(32)),
        token: assignment.token,
        action: Action::Abandon,
    };
    let reports: Vec<_> = assignments.into_iter().map(abandon).collect();
    let count = reports.len();
    let results = deps.status.report(reports).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    tracing::debug!(count, failed, "gave back tasks whose worker had gone away");
}
