//! The plan for a load.

use serde::Serialize;

use crate::{
    Limit, Load, PerTask, Prices, Quotas,
    budget::{self, IDLE_LOOK_S, IDLE_POLL_S},
    limits::{self, SHARDS_MAX},
};

/// A month as AWS counts it: 730 hours.
pub(crate) const MONTH_S: f64 = 730.0 * 3_600.0;
/// Keys are planned to be at most half as hot as they may be: hashing is not perfectly even.
const KEY_HEADROOM: f64 = 2.0;
/// Tasks that one consumer hands on in a second. An assumption: measure your own.
const HAND_ONS_PER_CONSUMER: f64 = 1_000.0;
/// Looks that one consumer makes in a second. An assumption: measure your own.
const LOOKS_PER_CONSUMER: f64 = 500.0;
/// One may be lost at any time.
const CONSUMERS_MIN: f64 = 2.0;
/// A process tells that it is alive this often, one write unit each.
const ALIVE_WRITE_S: f64 = 10.0;
/// What DynamoDB counts for each item beside its attributes, and what a task's state needs.
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

/// What it costs, in US dollars.
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
    /// Units per second on average, with what runs whether tasks come or not.
    pub per_second: Traffic,
    /// The same for a month of 730 hours.
    pub per_month: Traffic,
    /// Dollars per month.
    pub month_usd: Usd,
    /// Dollars per million tasks, everything included; nothing when there are no tasks.
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
    /// Limits, the first to be met first.
    pub limits: Vec<Limit>,
}

impl Plan {
    /// The limit that is met first when the load grows as it is.
    pub fn first_limit(&self) -> &Limit {
        &self.limits[0]
    }
}

/// Due shards that a job has: as asked, or as the busiest one needs.
pub(crate) fn shards(load: &Load, quotas: &Quotas) -> u32 {
    load.shards.unwrap_or_else(|| {
        keys(load, budget::per_task(load).index_wru, quotas).clamp(1, SHARDS_MAX)
    })
}

/// Keys that the busiest job needs so that each stays at half of what it may take.
fn keys(load: &Load, wru: f64, quotas: &Quotas) -> u32 {
    let hottest = load.peak_tasks_per_s() * load.busiest_job() * wru;
    ((hottest * KEY_HEADROOM / quotas.key_wru).ceil() as u32).max(1)
}

/// What a month costs for a job without tasks: a look every two seconds, and long polls of its queue that find nothing.
pub fn idle_job_usd(pollers: u32, prices: &Prices) -> f64 {
    let rru = 0.5 / IDLE_LOOK_S * MONTH_S;
    let polls = f64::from(pollers) / IDLE_POLL_S * MONTH_S;
    (rru * prices.million_rru + polls * prices.million_sqs_requests) / 1e6
}

/// The plan for a load. [`Load::check`] comes before it: nonsense in, nonsense out.
pub fn plan(load: &Load, prices: &Prices, quotas: &Quotas) -> Plan {
    let per_task = budget::per_task(load);
    let shards = shards(load, quotas);
    let look = budget::look(load, shards);
    let at_peak = budget::look(&load.at(load.peak_tasks_per_s()), shards);
    let hand_ons = load.peak_tasks_per_s() * (load.scheduled + load.retries);
    let consumers = (hand_ons / HAND_ONS_PER_CONSUMER)
        .max(at_peak.looks / LOOKS_PER_CONSUMER)
        .ceil()
        .max(CONSUMERS_MIN);

    let jobs = f64::from(load.jobs + load.idle_jobs);
    let alive = (consumers + f64::from(load.pollers)) / ALIVE_WRITE_S;
    let per_second = Traffic {
        base_wru: load.tasks_per_s * per_task.base_wru + alive,
        index_wru: load.tasks_per_s * per_task.index_wru,
        rru: load.tasks_per_s * per_task.rru + look.rru,
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
    // A payload of its own goes when the task ends; what lies in the item stays as long as the item.
    let inline = if budget::part_units(load.payload_bytes) == 0 {
        f64::from(load.payload_bytes)
    } else {
        0.0
    };
    let kept = load.tasks_per_s * load.retention_days * 86_400.0;
    let gb = kept * (ITEM_BYTES + inline) / GB;
    let storage = gb * (prices.gb_month + prices.backup_gb_month);
    Usd {
        writes,
        reads,
        sqs,
        storage,
        total: writes + reads + sqs + storage,
    }
}
