//! The frontend in the process of the store: one file per group of operations.

mod board;
mod change;
mod child_counts;
mod critical_path;
mod drop;
mod explain;
mod families;
mod family_view;
mod jobs;
mod list;
mod read;
mod revive;
mod run_to_completion;
mod schedules;
mod staged;
mod submit;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use dueline_api::{ApiError, Call, Callable, Dispatch, Operation};
use dueline_ports::{Clock, Rng, Sinks, Store, TaskQueue};
use dueline_runtime::{DueSignal, EndSignal, Families, Performer, TaskGroup};
use tokio::sync::Notify;

use run_to_completion::run_to_completion;

/// What the frontend works with.
#[derive(Clone)]
pub struct FrontendDeps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where due tasks are sent.
    pub queue: Arc<dyn TaskQueue>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Tokens, write names and ids.
    pub rng: Arc<dyn Rng>,
    /// Wakes the consumer for tasks that become due later.
    pub due: Arc<DueSignal>,
    /// Signals the ends of tasks.
    pub ended: Arc<EndSignal>,
    /// Says which sinks a job may have.
    pub sinks: Arc<dyn Sinks>,
    /// A controller in this process whose waiting workers may get new tasks at once.
    pub dispatch: Option<Arc<dyn Dispatch>>,
    /// Notified when jobs are added or deleted, paused or resumed.
    pub jobs_changed: Arc<Notify>,
}

impl FrontendDeps {
    /// Connects tasks that wait with those that they wait for.
    fn families(&self) -> Families<'_> {
        Families {
            store: &*self.store,
            clock: &*self.clock,
            rng: &*self.rng,
            performer: self.effects(),
        }
    }

    /// Does the advisory effects of the frontend's transitions.
    fn effects(&self) -> Performer<'_> {
        Performer {
            queue: &*self.queue,
            due: &self.due,
            ended: &self.ended,
        }
    }
}

/// Creates jobs and tasks, changes them on request, and answers questions about them.
///
/// A call that changes something runs to its end even when its caller gives up: a task that was stored is also sent.
pub struct FrontendService {
    inner: Arc<Inner>,
}

struct Inner {
    deps: FrontendDeps,
    /// Calls that their callers gave up on.
    detached_calls: TaskGroup,
    child_counts: child_counts::ChildCounts,
    submitted: metrics::Counter,
    repeated: metrics::Counter,
    refused: metrics::Counter,
}

impl FrontendService {
    /// A frontend over a store and a queue.
    pub fn new(deps: FrontendDeps) -> Self {
        Self {
            inner: Arc::new(Inner {
                deps,
                detached_calls: TaskGroup::new(),
                child_counts: child_counts::ChildCounts::default(),
                submitted: metrics::counter!("dueline_tasks_submitted_total"),
                repeated: metrics::counter!("dueline_submits_repeated_total"),
                refused: metrics::counter!("dueline_submits_refused_total"),
            }),
        }
    }

    /// Waits until the calls that their callers gave up on are over. Call it at shutdown, after the last request.
    pub async fn drained(&self) {
        // A failure in there was logged when it happened, and no caller waits for the answer.
        let _ = self.inner.detached_calls.wait().await;
    }
}

/// Carries out one operation, whose input was checked.
trait Serve: Operation {
    fn serve(
        self,
        inner: &Inner,
        call: &Call,
    ) -> impl Future<Output = Result<Self::Output, ApiError>> + Send;
}

#[async_trait]
impl<O: Serve> Callable<O> for FrontendService {
    async fn call(&self, call: &Call, mut operation: O) -> Result<O::Output, ApiError> {
        operation.check()?;
        if !O::WRITES {
            return operation.serve(&self.inner, call).await;
        }
        let (inner, call) = (self.inner.clone(), call.clone());
        let work = async move { operation.serve(&inner, &call).await };
        run_to_completion(&self.inner.detached_calls, work).await
    }
}
