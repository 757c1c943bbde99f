//! What one task costs, by the rules of the store and the queue.

use serde::Serialize;

use crate::Load;

/// Largest payload, approximately, that is stored in the task's own item and keeps the item within one write unit.
pub const INLINE_BYTES_MAX: u32 = 512;
/// How much earlier than the trigger time an index hint may be before a write moves it.
pub const HINT_SLACK_S: f64 = 120.0;
/// Size of an index entry: both keys of the table, both of the index, their names.
pub const INDEX_ENTRY_BYTES: f64 = 110.0;
/// Time between two scans of a job that has no due task.
pub const IDLE_SCAN_S: f64 = 2.0;
/// Duration of a long poll that returns no message.
pub const IDLE_POLL_S: f64 = 20.0;

/// Most entries of one shard that a scan reads.
const SCAN_ENTRIES_MAX: f64 = 2_000.0;
/// Bytes that an eventually consistent read returns for half a unit, and a strongly consistent one for a unit.
const READ_BYTES: f64 = 4_096.0;
/// Most messages of one SQS call.
const BATCH_MAX: f64 = 10.0;
/// How long a batch collects entries: those that arrive while a request is in flight go out with the next one, so about
/// a round trip. Together with the rate of a queue it determines how full batches are. An assumption: measure your own.
pub const BATCH_WINDOW_S: f64 = 0.02;
/// How long a message is in flight: from its receipt until its task's claim is durable and the message is deleted.
pub(crate) const IN_FLIGHT_S: f64 = 2.0;

/// Units of one task, on average, without the fixed traffic of an idle fleet.
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

/// Units that a task of this load takes.
pub fn per_task(load: &Load) -> PerTask {
    let attempts = 1.0 + load.retries;
    let beats = heartbeat_writes(load.run_s, load.heartbeat_timeout_s);
    // A task that runs at once is claimed before its hint passes, a scheduled one after its hint has passed.
    let ahead = HINT_LEAD_S.min(load.heartbeat_timeout_s) - CLAIM_DELAY_S;
    let moves = |hint| f64::from(hint_moves(load.run_s, load.heartbeat_timeout_s, hint));
    let moved = (1.0 - load.scheduled) * moves(ahead) + load.scheduled * moves(-CLAIM_DELAY_S);

    let blobs = f64::from(blob_units(load.payload_bytes));
    // A task with an idempotency key is written in one transaction with its key, and both count double.
    let create = 1.0 + 3.0 * load.keyed + blobs;
    let claim_and_start = 1.0;
    let finish = 1.0 + blobs;
    // The failure, the next enqueue, the next claim.
    let retry = 3.0 * load.retries;
    PerTask {
        base_wru: create
            + load.scheduled
            + claim_and_start
            + finish
            + retry
            + attempts * f64::from(beats),
        // A moved index entry is one entry deleted and one put.
        index_wru: 2.0 + attempts * moved * 2.0,
        rru: reads(load, attempts),
        sqs_requests: requests(load, attempts),
    }
}

/// How far ahead a new or moved index hint lies by the default policy of a job: the first backoff, which is the
/// shortest time after which a trigger can pass.
const HINT_LEAD_S: f64 = 5.0;
/// Time from enqueue to claim: small, but long enough that a hint moved by the claim differs from the old one.
const CLAIM_DELAY_S: f64 = 0.02;

/// Write units of a payload that is stored as a blob of its own: taken once when the blob is written and once when it
/// is removed. Zero for a payload within the task's item.
pub fn blob_units(payload_bytes: u32) -> u32 {
    if payload_bytes <= INLINE_BYTES_MAX {
        0
    } else {
        payload_bytes.div_ceil(1_024)
    }
}

/// Writes that renew the lease of one run: at most one for each half timeout that passes before the run ends.
pub fn heartbeat_writes(run_s: f64, timeout_s: f64) -> u32 {
    // The cast of a float saturates.
    ((run_s / (timeout_s / 2.0)).ceil() as u32).saturating_sub(1)
}

/// How often one run moves its index hint, which lies `hint_s` after the claim. Every write of the run (the claim, then
/// one for each half timeout) leaves the trigger time one timeout ahead. The write moves the hint only when the hint is
/// further behind the trigger time than the slack; the new hint lies [`HINT_LEAD_S`] ahead.
pub fn hint_moves(run_s: f64, timeout_s: f64, hint_s: f64) -> u32 {
    let half = timeout_s / 2.0;
    let writes = heartbeat_writes(run_s, timeout_s);
    // Number of the write that moves the hint again, counted from the write that left the hint `hint_s` ahead.
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
    1 + (writes - first) / next(HINT_LEAD_S.min(timeout_s)).max(1)
}

/// Read units of one task. Each enqueue and each claim read the task, eventually consistent: the conditional write that
/// follows succeeds only if the read was current. The claim reads a payload blob in the same way.
fn reads(load: &Load, attempts: f64) -> f64 {
    let blobs = if blob_units(load.payload_bytes) == 0 {
        0.0
    } else {
        0.5 * (f64::from(load.payload_bytes) / READ_BYTES).ceil()
    };
    let enqueues = load.scheduled + load.retries;
    0.5 * enqueues + attempts * (0.5 + blobs)
}

/// SQS requests of one task: send, receive and delete, in batches that are as full as the rate of a queue makes them.
fn requests(load: &Load, attempts: f64) -> f64 {
    let per_queue = load.tasks_per_s / f64::from(load.jobs);
    // The first message opens a batch; messages that arrive while it is open join it.
    let batch = |rate: f64| (1.0 + rate * BATCH_WINDOW_S).min(BATCH_MAX);
    // The consumer sends the messages of one scan together; those of tasks that run at once are sent as they come.
    let by_consumer = load.scheduled + load.retries;
    let per_scan = (per_queue * by_consumer * load.poll_period_s).max(1.0);
    let sends = (1.0 - load.scheduled) / batch(per_queue * (1.0 - load.scheduled))
        + by_consumer * (per_scan / BATCH_MAX).ceil() / per_scan;
    let receives_and_deletes = 2.0 * attempts / batch(per_queue * attempts);
    sends + receives_and_deletes
}

/// What the scans for due tasks cost, per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScanCost {
    /// Scans a second, over all jobs and shards.
    pub scans: f64,
    /// Read units a second.
    pub rru: f64,
}

/// What the scans for due tasks cost when each busy job has `shards` shards.
pub fn scan_cost(load: &Load, shards: u32) -> ScanCost {
    let shards = f64::from(load.jobs) * f64::from(shards);
    let per_shard = load.tasks_per_s / shards;
    // Each scan reads the entries of runs whose hint has passed, and of tasks that became due since the last scan.
    let hint_s = HINT_LEAD_S.min(load.heartbeat_timeout_s);
    let running = per_shard * (load.run_s - hint_s).max(0.0);
    let due = per_shard * load.scheduled * load.poll_period_s;
    let bytes = (running + due).min(SCAN_ENTRIES_MAX) * INDEX_ENTRY_BYTES;
    let units = 0.5 * (bytes / READ_BYTES).ceil().max(1.0);
    let (busy, idle) = (
        shards / load.poll_period_s,
        f64::from(load.idle_jobs) / IDLE_SCAN_S,
    );
    ScanCost {
        scans: busy + idle,
        rru: busy * units + idle * 0.5,
    }
}
