//! What is different on a store that other processes share, and where each write is billed.

use std::time::Duration;

use dueline_consumer::Sharing;
use dueline_domain::WorkerId;
use dueline_runtime::incarnation;

use crate::config::NodeConfig;

/// How often consumers tell each other that they are there: a dead one is missed within three of these.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(3);
/// How often running tasks give a sign of life. Most of them are answered from memory; the one that has to be written is
/// tried twice before its run must stop.
const INTERVAL: Duration = Duration::from_secs(1);
/// Each look at the depth of a queue is a billed request.
const BACKLOG_PERIOD: Duration = Duration::from_secs(60);
/// Finished tasks leave by the table's own expiry; this walk takes what that leaves behind.
const PRUNE_PERIOD: Duration = Duration::from_secs(3_600);

/// Settings of a process that is one of many: see ADR 0009 for the claims.
pub(crate) fn adapt(config: &mut NodeConfig) {
    config.status.interval = config.status.interval.min(INTERVAL);
    config.status.claims_start = true;
    config.status.heartbeats_coalesced = true;
    config.status.prune_period = config.status.prune_period.max(PRUNE_PERIOD);
    config.consumer.backlog_period = config.consumer.backlog_period.max(BACKLOG_PERIOD);
    // A name of this shape is always legal.
    if let Ok(me) = WorkerId::new("consumer", incarnation()) {
        let interval = MEMBERSHIP_INTERVAL;
        config.consumer.sharing = Some(Sharing { me, interval });
    }
    // Nobody owns the store, so nobody may conclude from a new start that these are gone.
    for worker in &mut config.workers {
        worker.executor.embedded = false;
    }
}
