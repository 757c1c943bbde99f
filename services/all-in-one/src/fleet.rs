//! Settings for a store that several processes share and that charges for each write.

use std::time::Duration;

use dueline_consumer::Sharing;
use dueline_domain::WorkerId;
use dueline_runtime::incarnation;

use crate::config::NodeConfig;

/// How often consumers heartbeat each other. A dead consumer is noticed within three intervals.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(3);
/// How often runs are heartbeaten. Most heartbeats are answered from memory. One that must be written can be tried
/// twice before its run must stop.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shortest period of reading the depths of queues, because each read is a billed request.
const BACKLOG_PERIOD: Duration = Duration::from_secs(60);
/// Shortest period of the pruner. The table's own expiry deletes finished tasks; the pruner only deletes the rest.
const PRUNE_PERIOD: Duration = Duration::from_secs(3_600);

/// Adapts the settings of a process that shares its store. ADR 0009 explains the setting of the claims.
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
    // Embedded workers are taken for dead when the store's owner starts again. A shared store has no owner.
    for worker in &mut config.workers {
        worker.executor.embedded = false;
    }
}
