//! What one task costs, by the rules of the store and the queue.

use serde::Serialize;

use crate::Load;

/// A payload up to about this size lies in the task's own item, which then stays within one write unit.
pub const INLINE_BYTES_MAX: u32 = 512;
/// A due entry may point this much earlier than the true trigger time before it is moved.
pub const HINT_SLACK_S: f64 = 120.0;
/// Size of a due entry: both keys of the table, both of the index, their names.
pub const INDEX_ENTRY_BYTES: f64 = 110.0;
/// Between two looks at a job that has nothing due.
pub const IDLE_LOOK_S: f64 = 2.0;
/// Duration of a long poll that finds nothing.
pub const IDLE_POLL_S: f64 = 20.0;

/// Entries of one shard that a look reads at most.
const LOOK_ENTRIES_MAX: f64 = 2_000.0;
/// What a read returns for half a unit: eventually consistent, or for one unit: strongly consistent.
const READ_BYTES: f64 = 4_096.0;
/// Messages of one SQS call.
const BATCH_MAX: f64 = 10.0;
/// What comes while a request is under way goes out with the next one, so a batch gathers for about a round trip.
/// Together with the rate of a queue it says how full batches are. An assumption: measure your own.
pub const GATHER_S: f64 = 0.02;
/// From receiving a message until its claim is durable and it is deleted.
pub(crate) const HELD_S: f64 = 2.0;

/// Units of one task, on average, without what runs whether tasks come or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerTask {
    /// Write units of the table.
    pub base_wru: f64,
    /// Write units of the index.
    pub index_wru: f64,
    /// Read units of the table.
    pub rru: f64,
    /// SQS requests.
    pub sqs_requests: f64,
}

impl PerTask {
    /// Write units of table and index.
    pub fn wru(&self) -> f64 {
        self.base_wru + self.index_wru
    }
}

/// What a task of this load costs.
pub fn per_task(load: &Load) -> PerTask {
    let attempts = 1.0 + load.retries;
    let beats = heartbeat_writes(load.run_s, load.heartbeat_timeout_s);
    // A task for now is claimed while its entry lies ahead, one with a date when the date is there.
    let ahead = SOONEST_S.min(load.heartbeat_timeout_s) - CLAIMED_AFTER_S;
    let moves = |hint| f64::from(hint_moves(load.run_s, load.heartbeat_timeout_s, hint));
    let moved = (1.0 - load.scheduled) * moves(ahead) + load.scheduled * moves(-CLAIMED_AFTER_S);

    let parts = f64::from(part_units(load.payload_bytes));
    // In one transaction with its key, task and key count double.
    let create = 1.0 + 3.0 * load.keyed + parts;
    let claim_and_start = 1.0;
    let finish = 1.0 + parts;
    // The failure, the next hand-on, the next claim.
    let retry = 3.0 * load.retries;
    PerTask {
        base_wru: create
            + load.scheduled
            + claim_and_start
            + finish
            + retry
            + attempts * f64::from(beats),
        // A moved key is one entry deleted and one put.
        index_wru: 2.0 + attempts * moved * 2.0,
        rru: reads(load, attempts),
        sqs_requests: requests(load, attempts),
    }
}

/// How soon a task that is handed on or owned may need a look, by the defaults of a job: the first wait of a retry.
const SOONEST_S: f64 = 5.0;
/// A claim comes a moment after the task was handed on: enough to make an entry that is moved a different one.
const CLAIMED_AFTER_S: f64 = 0.02;

/// Units that the payload costs beside the task's item, once when it is written and once when it is removed.
pub fn part_units(payload_bytes: u32) -> u32 {
    if payload_bytes <= INLINE_BYTES_MAX {
        0
    } else {
        payload_bytes.div_ceil(1_024)
    }
}

/// Writes that keep the lease of one run: at most one for each half timeout that passes before it ends.
pub fn heartbeat_writes(run_s: f64, timeout_s: f64) -> u32 {
    // Saturates: a cast of a float cannot overflow.
    ((run_s / (timeout_s / 2.0)).ceil() as u32).saturating_sub(1)
}

/// How often one run moves its due entry, which was `hint_s` after the claim when it was claimed. Every write of the run
/// (the claim, then one for each half timeout) leaves its trigger one timeout ahead, and moves the entry only when it is
/// further behind than the slack; then it is put as near as anything may need a look.
pub fn hint_moves(run_s: f64, timeout_s: f64, hint_s: f64) -> u32 {
    let half = timeout_s / 2.0;
    let writes = heartbeat_writes(run_s, timeout_s);
    // The first write, counted from the one that left the entry `hint_s` ahead, which moves it again.
    let next = |hint_s: f64| {
        let free = HINT_SLACK_S - timeout_s + hint_s;
        if free < 0.0 {
            0
        } else {
            (free / half).floor() as u32 + 1
        }
    };
    let first = next(hint_s);
    if writes < first {
        return 0;
    }
    1 + (writes - first) / next(SOONEST_S.min(timeout_s)).max(1)
}

/// Each hand-on and each claim read the task, eventually consistent: what is decided from it is written only if it was
/// current. A payload of its own is read with the claim, in the same way.
fn reads(load: &Load, attempts: f64) -> f64 {
    let parts = if part_units(load.payload_bytes) == 0 {
        0.0
    } else {
        0.5 * (f64::from(load.payload_bytes) / READ_BYTES).ceil()
    };
    let hand_ons = load.scheduled + load.retries;
    0.5 * hand_ons + attempts * (0.5 + parts)
}

/// Send, receive and delete, in batches as full as the rate of a queue makes them.
fn requests(load: &Load, attempts: f64) -> f64 {
    let per_queue = load.tasks_per_s / f64::from(load.jobs);
    // The first message opens a batch, what comes while it is open joins it.
    let batch = |rate: f64| (1.0 + rate * GATHER_S).min(BATCH_MAX);
    // What the consumer hands on leaves together after each look; what runs at once leaves as it comes.
    let by_consumer = load.scheduled + load.retries;
    let after_look = (per_queue * by_consumer * load.poll_period_s).max(1.0);
    let sends = (1.0 - load.scheduled) / batch(per_queue * (1.0 - load.scheduled))
        + by_consumer * (after_look / BATCH_MAX).ceil() / after_look;
    let receives_and_deletes = 2.0 * attempts / batch(per_queue * attempts);
    sends + receives_and_deletes
}

/// What looking for due tasks costs, per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Look {
    /// Looks a second, over all jobs and shards.
    pub looks: f64,
    /// Read units a second.
    pub rru: f64,
}

/// What looking for due tasks costs when each busy job has `shards` shards.
pub fn look(load: &Load, shards: u32) -> Look {
    let shards = f64::from(load.jobs) * f64::from(shards);
    let per_shard = load.tasks_per_s / shards;
    // Runs whose entry has passed are seen again by each look until they end, and what became due since the last one.
    let hint_s = SOONEST_S.min(load.heartbeat_timeout_s);
    let running = per_shard * (load.run_s - hint_s).max(0.0);
    let due = per_shard * load.scheduled * load.poll_period_s;
    let bytes = (running + due).min(LOOK_ENTRIES_MAX) * INDEX_ENTRY_BYTES;
    let units = 0.5 * (bytes / READ_BYTES).ceil().max(1.0);
    let (busy, idle) = (
        shards / load.poll_period_s,
        f64::from(load.idle_jobs) / IDLE_LOOK_S,
    );
    Look {
        looks: busy + idle,
        rru: busy * units + idle * 0.5,
    }
}
