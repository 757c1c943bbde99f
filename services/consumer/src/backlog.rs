//! Exports the depth of each queue as the metric by which fleets scale.

use std::{collections::BTreeSet, time::Duration};

use dueline_domain::JobName;
use dueline_ports::{QueueError, StoreError};
use dueline_runtime::Shutdown;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Config, Deps, members::CurrentShare};

/// The approximate number of enqueued tasks of a job that no worker has claimed yet.
const METRIC: &str = "dueline_backlog_tasks";

/// Exports the depths of this consumer's queues every backlog period, until the intake is stopped.
pub(crate) async fn run(config: Config, deps: Deps, share: CurrentShare, shutdown: Shutdown) {
    let mut ticks = interval(config.backlog_period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut exported = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            _ = ticks.tick() => {}
        }
        // A failed read must not make the fleet look idle: the last values are kept until there are newer ones.
        let Ok(current) = export(&deps, &share).await else {
            continue;
        };
        // A job that another consumer exports from now on must not keep its old value here.
        for job in exported.difference(&current) {
            gauge(job).set(0.0);
        }
        exported = current;
    }
}

/// Exports the depths once. Returns the jobs in this consumer's share.
async fn export(deps: &Deps, share: &CurrentShare) -> Result<BTreeSet<JobName>, StoreError> {
    let mut exported = BTreeSet::new();
    let jobs = deps.store.jobs().await?;
    let share = share.get();
    let is_in_share = |job: &JobName| share.as_ref().is_none_or(|share| share.covers(job, 0));
    for job in jobs
        .iter()
        .map(|job| &job.name)
        .filter(|job| is_in_share(job))
    {
        match deps.queue.depth(job).await {
            Ok(depth) => {
                #[expect(clippy::cast_precision_loss, reason = "a depth is approximate")]
                gauge(job).set((depth.visible + depth.in_flight) as f64);
            }
            // A queue that does not exist yet is empty.
            Err(QueueError::NotFound(_)) => gauge(job).set(0.0),
            Err(error) => {
                tracing::debug!(job.name = %job, %error, "failed to read a queue's depth");
            }
        }
        exported.insert(job.clone());
    }
    Ok(exported)
}

fn gauge(job: &JobName) -> metrics::Gauge {
    metrics::gauge!(METRIC, "job" => job.as_str().to_owned())
}
