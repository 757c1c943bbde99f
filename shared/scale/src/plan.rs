//! The plan for a load.

use serde::Serialize;

use crate::{
    Limit, Load, PerTask, Prices, Quotas,
    budget::{self, IDLE_POLL_S, IDLE_SCAN_S},
    limits::{self, SHARDS_MAX},
};

/// A month as AWS counts it: 730 hours.
pub(crate) const MONTH_S: f64 = 730.0 * 3_600.0;
/// A key is planned to take at most half of its quota, because hashing is not perfectly even.
const KEY_HEADROOM: f64 = 2.0;
/// Tasks that one consumer enqueues in a second. An assumption: measure your own.
const ENQUEUES_PER_CONSUMER: f64 = 1_000.0;
/// Scans that one consumer makes in a second. An assumption: measure your own.
const SCANS_PER_CONSUMER: f64 = 500.0;
/// Fewest consumers, because one may be lost at any time.
const CONSUMERS_MIN: f64 = 2.0;
/// How often a process renews its registration, for one write unit each.
const REGISTRATION_PERIOD_S: f64 = 10.0;
/// Bytes of a stored task without its payload: the overhead that DynamoDB counts for each item, and the task's state.
const ITEM_BYTES: f64 = 100.0 + 450.0;
const GB: f64 = 1_073_741_824.0;

/// Units of everything, per second or per month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Write units of the table.
    pub base_wru: f64,
    /// Write units of the index.
    pub index_wru: f64,
    /// Read units of table and index.
    pub rru: f64,
    /// SQS requests.
    pub sqs_requests: f64,
}

impl Traffic {
    fn times(self, n: f64) -> Self {
        Self {
            base_wru: self.base_wru * n,
            index_wru: self.index_wru * n,
            rru: self.rru * n,
            sqs_requests: self.sqs_requests * n,
        }
    }
}

/// A bill in US dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Usd {
    /// Writes to table and index.
    pub writes: f64,
    /// Reads of table and index.
    pub reads: f64,
    /// The queues.
    pub sqs: f64,
    /// Finished tasks in the table and in its backup.
    pub storage: f64,
    /// All of it.
    pub total: f64,
}

/// What a load needs and costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The load.
    pub load: Load,
    /// Units of one task.
    pub per_task: PerTask,
    /// Units per second on average, fixed traffic of an idle fleet included.
    pub per_second: Traffic,
    /// The same for a month of 730 hours.
    pub per_month: Traffic,
    /// Dollars per month.
    pub month_usd: Usd,
    /// Dollars per million tasks, everything included; `None` when there are no tasks.
    pub million_tasks_usd: Option<f64>,
    /// Dollars per month for a job without tasks.
    pub idle_job_usd: f64,
    /// Due shards that the busiest job needs.
    pub shards: u32,
    /// Slots that the busiest job needs.
    pub slots: u32,
    /// Consumers.
    pub consumers: u32,
    /// Whether a new table must be warmed up before it takes this load.
    pub warm_up: bool,
    /// The limits, in the order in which a growing load meets them.
    pub limits: Vec<Limit>,
}

impl Plan {
    /// The limit that is met first when the load grows without changing its shape.
    pub fn first_limit(&self) -> &Limit {
        &self.limits[0]
    }
}

/// Due shards of each job: those of the load, or as many as the busiest job needs.
pub(crate) fn shards(load: &Load, quotas: &Quotas) -> u32 {
    load.shards.unwrap_or_else(|| {
        keys(load, budget::per_task(load).index_wru, quotas).clamp(1, SHARDS_MAX)
    })
}

/// Keys that the busiest job needs so that each takes at most half of its quota.
fn keys(load: &Load, wru: f64, quotas: &Quotas) -> u32 {
    let hottest = load.peak_tasks_per_s() * load.busiest_job() * wru;
    ((hottest * KEY_HEADROOM / quotas.key_wru).ceil() as u32).max(1)
}

/// Dollars per month for a job without tasks: a scan every two seconds, and long polls of its queue that return
/// nothing.
pub fn idle_job_usd(pollers: u32, prices: &Prices) -> f64 {
    let rru = 0.5 / IDLE_SCAN_S * MONTH_S;
    let polls = f64::from(pollers) / IDLE_POLL_S * MONTH_S;
    (rru * prices.million_rru + polls * prices.million_sqs_requests) / 1e6
}

/// The plan for a load. The caller checks the load with [`Load::check`] first; this function does not.
pub fn plan(load: &Load, prices: &Prices, quotas: &Quotas) -> Plan {
    let per_task = budget::per_task(load);
    let shards = shards(load, quotas);
    let scans = budget::scan_cost(load, shards);
    let scans_at_peak = budget::scan_cost(&load.at(load.peak_tasks_per_s()), shards);
    let enqueues = load.peak_tasks_per_s() * (load.scheduled + load.retries);
    let consumers = (enqueues / ENQUEUES_PER_CONSUMER)
        .max(scans_at_peak.scans / SCANS_PER_CONSUMER)
        .ceil()
        .max(CONSUMERS_MIN);

    let jobs = f64::from(load.jobs + load.idle_jobs);
    let registrations = (consumers + f64::from(load.pollers)) / REGISTRATION_PERIOD_S;
    let per_second = Traffic {
        base_wru: load.tasks_per_s * per_task.base_wru + registrations,
        index_wru: load.tasks_per_s * per_task.index_wru,
        rru: load.tasks_per_s * per_task.rru + scans.rru,
        sqs_requests: load.tasks_per_s * per_task.sqs_requests
            + jobs * f64::from(load.pollers) / IDLE_POLL_S,
    };
    let per_month = per_second.times(MONTH_S);
    let month_usd = cost(load, &per_month, prices);
    let tasks = load.tasks_per_s * MONTH_S;
    let peak = load.peak_tasks_per_s();
    Plan {
        load: load.clone(),
        per_task,
        per_second,
        per_month,
        month_usd,
        million_tasks_usd: (tasks > 0.0).then(|| month_usd.total / tasks * 1e6),
        idle_job_usd: idle_job_usd(load.pollers, prices),
        shards: keys(load, per_task.index_wru, quotas),
        slots: keys(load, per_task.base_wru, quotas),
        consumers: consumers as u32,
        warm_up: peak * per_task.base_wru.max(per_task.index_wru) > quotas.warm_wru,
        limits: limits::limits(load, quotas),
    }
}

fn cost(load: &Load, month: &Traffic, prices: &Prices) -> Usd {
    let writes = (month.base_wru + month.index_wru) / 1e6 * prices.million_wru;
    let reads = month.rru / 1e6 * prices.million_rru;
    let sqs = month.sqs_requests / 1e6 * prices.million_sqs_requests;
    // A payload blob is deleted when the task ends; a payload within the item stays as long as the item.
    let inline = if budget::blob_units(load.payload_bytes) == 0 {
        f64::from(load.payload_bytes)
    } else {
        0.0
    };
    let stored_tasks = load.tasks_per_s * load.retention_days * 86_400.0;
    let gb = stored_tasks * (ITEM_BYTES + inline) / GB;
    let storage = gb * (prices.gb_month + prices.backup_gb_month);
    Usd {
        writes,
        reads,
        sqs,
        storage,
        total: writes + reads + sqs + storage,
    }
}
