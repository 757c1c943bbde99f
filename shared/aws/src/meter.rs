//! The costs of calls, counted from their responses.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dueline_ports::Cost;

/// Most jobs counted separately; costs of further ones are counted under no job.
const JOBS_MAX: usize = 10_000;

/// Adds up costs, by job and operation. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Counts>>);

type Counts = BTreeMap<Option<Arc<str>>, BTreeMap<&'static str, Cost>>;

impl Meter {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call for one job, or for no particular one, and exports it as metrics.
    pub fn add(&self, job: Option<&str>, operation: &'static str, cost: Cost) {
        export(job, operation, &cost);
        let mut counts = self.lock();
        let known = job.and_then(|job| counts.get_key_value(&Some(Arc::from(job))));
        let key = match (job, known) {
            (_, Some((key, _))) => key.clone(),
            (Some(job), None) if counts.len() < JOBS_MAX => Some(Arc::from(job)),
            _ => None,
        };
        let total = counts.entry(key).or_default().entry(operation).or_default();
        *total = total.plus(cost);
    }

    /// The total so far.
    pub fn total(&self) -> Cost {
        let counts = self.lock();
        let all = counts.values().flat_map(BTreeMap::values);
        all.fold(Cost::default(), |sum, cost| sum.plus(*cost))
    }

    /// The total so far, by job; `None` holds costs that belong to no particular job.
    pub fn by_job(&self) -> BTreeMap<Option<Arc<str>>, Cost> {
        let sum = |costs: &BTreeMap<_, Cost>| {
            let costs = costs.values();
            costs.fold(Cost::default(), |sum, cost| sum.plus(*cost))
        };
        let counts = self.lock();
        let jobs = counts.iter();
        jobs.map(|(job, costs)| (job.clone(), sum(costs))).collect()
    }

    /// The total so far, by operation.
    pub fn by_operation(&self) -> BTreeMap<&'static str, Cost> {
        let mut sums: BTreeMap<&'static str, Cost> = BTreeMap::new();
        for (operation, cost) in self.lock().values().flatten() {
            let sum = sums.entry(operation).or_default();
            *sum = sum.plus(*cost);
        }
        sums
    }
}

/// Units are exported in thousandths, because counters are whole numbers and a small read costs half a unit.
fn export(job: Option<&str>, operation: &'static str, cost: &Cost) {
    let labels = [
        metrics::Label::new("job", job.unwrap_or_default().to_owned()),
        metrics::Label::from_static_parts("operation", operation),
    ];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and never negative"
    )]
    let milli = |units: f64| (units * 1_000.0).round() as u64;
    let count = |name: &'static str, by: u64| {
        if by > 0 {
            metrics::counter!(name, labels.iter()).increment(by);
        }
    };
    count("dueline_store_requests_total", cost.store_requests);
    count(
        "dueline_store_write_milliunits_total",
        milli(cost.write_units),
    );
    count(
        "dueline_store_read_milliunits_total",
        milli(cost.read_units),
    );
    count("dueline_queue_requests_total", cost.queue_requests);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(units: f64) -> Cost {
        Cost {
            store_requests: 1,
            write_units: units,
            ..Cost::default()
        }
    }

    #[test]
    fn costs_add_up_by_job_and_operation() {
        let meter = Meter::default();
        meter.add(Some("mail"), "create", writes(2.0));
        meter.add(Some("mail"), "finish", writes(2.0));
        meter.add(Some("post"), "create", writes(3.0));
        meter.add(None, "jobs", writes(1.0));
        assert!((meter.total().write_units - 8.0).abs() < 1e-9);
        assert!((meter.by_job()[&Some("mail".into())].write_units - 4.0).abs() < 1e-9);
        assert!((meter.by_operation()["create"].write_units - 5.0).abs() < 1e-9);
        let since = meter.total().since(writes(5.0));
        assert!((since.write_units - 3.0).abs() < 1e-9);
        assert_eq!(since.store_requests, 3);
    }
}
