//! Claims tasks for a polling worker, when they are dispatched and not before.

use std::{collections::BTreeSet, time::Duration};

use dueline_api::{Action, Assignment, ErrorReason, Report, StatusController};
use dueline_domain::{JobName, WorkerId, WriteId};
use dueline_ports::{Delivery, Receipt, TaskQueue};
use dueline_runtime::TaskGroup;
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use crate::{Deps, in_flight::InFlightDispatch, pause::ClaimPauses};

/// Delay of a message whose claim failed with a retryable error, so that a store that is down is not overloaded.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Claimed tasks on their way to the worker. Dropping this abandons them.
pub(crate) struct Dispatched {
    assignments: Vec<Assignment>,
    deps: Deps,
    group: TaskGroup,
    /// Dropped when the worker has the tasks, or when they are abandoned.
    in_flight: Option<InFlightDispatch>,
}

/// The worker that tasks are claimed for, and its poll.
pub(crate) struct DispatchTarget {
    /// The new owner.
    pub(crate) worker: WorkerId,
    /// Whether the worker starts all its tasks at once, so that claim and start are one write.
    pub(crate) start: bool,
    /// When the poll began.
    pub(crate) polled_at: Instant,
    /// Present when the runs start with their claim.
    pub(crate) in_flight: Option<InFlightDispatch>,
}

impl Dispatched {
    pub(crate) fn new(assignments: Vec<Assignment>, deps: &Deps, group: &TaskGroup) -> Self {
        Self {
            assignments,
            deps: deps.clone(),
            group: group.clone(),
            in_flight: None,
        }
    }

    /// Returns the tasks, which are not abandoned from here on.
    pub(crate) fn take(mut self) -> Vec<Assignment> {
        std::mem::take(&mut self.assignments)
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        let assignments = std::mem::take(&mut self.assignments);
        // Without a runtime the process is ending, and the tasks are reclaimed after the claim timeout.
        if assignments.is_empty() || Handle::try_current().is_err() {
            return;
        }
        let (deps, in_flight) = (self.deps.clone(), self.in_flight.take());
        self.group.spawn_infallible("abandon", async move {
            abandon(&deps, assignments).await;
            drop(in_flight);
        });
    }
}

/// Claims the tasks of `deliveries` for `target`. The channel closes without a value if the claims could not be made.
///
/// Claim, answer and ack run in a task of their own: when the worker disconnects in between, all steps still happen,
/// and the tasks are abandoned at once.
pub(crate) fn dispatch(
    deps: &Deps,
    group: &TaskGroup,
    pauses: &ClaimPauses,
    target: DispatchTarget,
    deliveries: Vec<Delivery>,
) -> oneshot::Receiver<Dispatched> {
    let (sender, receiver) = oneshot::channel();
    let (deps, own_group, pauses) = (deps.clone(), group.clone(), pauses.clone());
    group.spawn_infallible("dispatch", async move {
        let results = claim(&*deps.status, &target, deliveries).await;
        // The pause begins before the poll is answered: an empty answer makes the poll pop the buffer again, and it
        // must not pop messages that cannot be claimed.
        results.update(&pauses);
        let dispatched = Dispatched {
            assignments: results.assignments,
            deps: deps.clone(),
            group: own_group,
            in_flight: target.in_flight,
        };
        // If the poll has been dropped, the tasks come back here, and dropping them abandons them.
        drop(sender.send(dispatched));
        settle(&*deps.queue, results.done, results.retryable).await;
    });
    receiver
}

/// What became of the messages of one claim call.
struct ClaimResults {
    assignments: Vec<Assignment>,
    /// Messages of tasks that are claimed, and stale messages.
    done: Vec<Receipt>,
    /// Messages whose claim failed with a retryable error.
    retryable: Vec<Receipt>,
    /// Jobs whose claims the store throttles.
    throttled: BTreeSet<JobName>,
    /// Whether a claim failed with another retryable error.
    is_unavailable: bool,
}

impl ClaimResults {
    /// Begins or resets the pauses: of all claims, and of each job.
    fn update(&self, pauses: &ClaimPauses) {
        if self.done.is_empty() && self.is_unavailable {
            pauses.all.claims_failed();
        } else {
            pauses.all.claims_succeeded();
        }
        let decided: BTreeSet<&JobName> = self.done.iter().map(Receipt::job).collect();
        for job in &decided {
            pauses.of(job).claims_succeeded();
        }
        let throttled = self.throttled.iter();
        for job in throttled.filter(|job| !decided.contains(job)) {
            pauses.of(job).claims_failed();
        }
    }
}

async fn claim(
    status: &dyn StatusController,
    target: &DispatchTarget,
    deliveries: Vec<Delivery>,
) -> ClaimResults {
    let (messages, receipts): (Vec<_>, Vec<_>) = deliveries
        .into_iter()
        .map(|delivery| (delivery.task, delivery.receipt))
        .unzip();
    // Measured before the claim, so that no lease of the claimed tasks begins earlier.
    let waited = target.polled_at.elapsed();
    let claims = status.claim(&target.worker, messages, target.start).await;
    let mut results = ClaimResults {
        assignments: Vec::with_capacity(claims.len()),
        done: Vec::with_capacity(claims.len()),
        retryable: Vec::new(),
        throttled: BTreeSet::new(),
        is_unavailable: false,
    };
    let mut receipts = receipts.into_iter();
    // `receipts` is the second iterator of the zip: as the first, it would lose one receipt when claims are missing.
    for (claim, receipt) in claims.into_iter().zip(receipts.by_ref()) {
        match claim {
            Ok(assignment) => {
                results.assignments.push(Assignment {
                    waited,
                    ..assignment
                });
                results.done.push(receipt);
            }
            Err(error) if error.is_retryable() => {
                tracing::debug!(%error, "failed to claim a task; its message is returned");
                match error.reason() {
                    ErrorReason::Throttled => drop(results.throttled.insert(receipt.job().clone())),
                    _ => results.is_unavailable = true,
                }
                results.retryable.push(receipt);
            }
            // Another worker owns the task, or its token has changed: the message is stale.
            Err(_) => results.done.push(receipt),
        }
    }
    let answered = results.retryable.len();
    results.retryable.extend(receipts);
    results.is_unavailable |= results.retryable.len() > answered;
    count("claimed", results.assignments.len());
    count("stale", results.done.len() - results.assignments.len());
    count("retried", results.retryable.len());
    results
}

fn count(result: &'static str, count: usize) {
    if count > 0 {
        metrics::counter!("dueline_controller_claims_total", "result" => result)
            .increment(count as u64);
    }
}

/// Acks the messages that are done and nacks the retryable ones. Where that fails, the messages become visible again
/// when their visibility timeouts end, and the next claim finds out whether they are stale.
async fn settle(queue: &dyn TaskQueue, done: Vec<Receipt>, retryable: Vec<Receipt>) {
    if !done.is_empty()
        && let Err(error) = queue.ack(done).await
    {
        tracing::warn!(%error, "failed to acknowledge messages of claimed tasks");
    }
    if !retryable.is_empty()
        && let Err(error) = queue.nack(retryable, RETRY_DELAY).await
    {
        tracing::warn!(%error, "failed to return messages of unclaimed tasks");
    }
}

/// Abandons tasks that did not reach their worker: they are enqueued again at once, and no try is used.
async fn abandon(deps: &Deps, assignments: Vec<Assignment>) {
    let report = |assignment: Assignment| Report {
        job: assignment.job,
        id: assignment.id,
        // A token belongs to one claim, and a claim is abandoned at most once: the write id is unique.
        write: WriteId::from_random(assignment.token.get().rotate_left(32)),
        token: assignment.token,
        action: Action::Abandon,
        trace: None,
    };
    let reports: Vec<_> = assignments.into_iter().map(report).collect();
    let count = reports.len();
    let results = deps.status.report(reports).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    tracing::debug!(
        count,
        failed,
        "abandoned tasks that did not reach their worker"
    );
}
