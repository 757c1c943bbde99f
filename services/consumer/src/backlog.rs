//! How much waits in each queue, as a metric that fleets scale by.

use std::{collections::BTreeSet, time::Duration};

use dueline_domain::JobName;
use dueline_ports::{QueueError, StoreError};
use dueline_runtime::Shutdown;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Config, Deps, members::CurrentShare};

/// Tasks of a job that are handed on and that nobody runs yet, approximately.
const METRIC: &str = "dueline_backlog_tasks";

/// Tells the depths of this consumer's queues now and then, until the intake is stopped.
pub(crate) async fn run(config: Config, deps: Deps, share: CurrentShare, shutdown: Shutdown) {
    let mut ticks = interval(config.backlog_period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.intake_stopped() => return,
            _ = ticks.tick() => {}
        }
        // A fleet that cannot ask must not look idle: the last numbers stand until there are newer ones.
        let Ok(now) = tell(&deps, &share).await else {
            continue;
        };
        // What another consumer tells from now on must not stand here with its old number.
        for job in told.difference(&now) {
            gauge(job).set(0.0);
        }
        told = now;
    }
}

/// Answers the jobs of which this consumer tells the depth.
async fn tell(deps: &Deps, share: &CurrentShare) -> Result<BTreeSet<JobName>, StoreError> {
    let mut told = BTreeSet::new();
    let jobs = deps.store.jobs().await?;
    let share = share.get();
    let is_mine = |job: &JobName| share.as_ref().is_none_or(|share| share.covers(job, 0));
    for job in jobs.iter().map(|job| &job.name).filter(|job| is_mine(job)) {
        match deps.queue.depth(job).await {
            Ok(depth) => {
                #[expect(clippy::cast_precision_loss, reason = "a depth is approximate")]
                gauge(job).set((depth.visible + depth.in_flight) as f64);
            }
            // A queue that is not there yet holds nothing.
            Err(QueueError::NotFound(_)) => gauge(job).set(0.0),
            Err(error) => {
                tracing::debug!(job.name = %job, %error, "failed to read a queue's depth");
            }
        }
        told.insert(job.clone());
    }
    Ok(told)
}

fn gauge(job: &JobName) -> metrics::Gauge {
    metrics::gauge!(METRIC, "job" => job.as_str().to_owned())
}
