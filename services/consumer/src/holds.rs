//! Jobs of which the store takes no writes at the moment, so that no other job waits for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_domain::JobName;
use tokio::time::Instant;

/// Longest wait after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Doubles from the poll period on, up to a cap.
pub(crate) fn backoff(poll_period: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1));
    poll_period
        .saturating_mul(doubled.unwrap_or(u32::MAX))
        .min(BACKOFF_MAX)
}

/// The jobs that are held back, and until when.
#[derive(Debug, Default)]
pub(crate) struct Holds(BTreeMap<JobName, Hold>);

#[derive(Debug)]
struct Hold {
    until: Instant,
    failures: u32,
}

impl Holds {
    /// Whether nothing of this job is to be moved now.
    pub(crate) fn is_held(&self, job: &JobName, now: Instant) -> bool {
        self.0.get(job).is_some_and(|hold| now < hold.until)
    }

    /// Takes note of the jobs that a look moved something of, and of those of which it could move nothing.
    pub(crate) fn looked(
        &mut self,
        moved: &BTreeSet<JobName>,
        failed: &BTreeSet<JobName>,
        poll_period: Duration,
        now: Instant,
    ) {
        self.0.retain(|job, _| !moved.contains(job));
        for job in failed.difference(moved) {
            let hold = self.0.entry(job.clone()).or_insert(Hold {
                until: now,
                failures: 0,
            });
            hold.failures += 1;
            hold.until = now + backoff(poll_period, hold.failures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_is_held_for_longer_each_time_until_something_of_it_moves() {
        let (mut holds, second) = (Holds::default(), Duration::from_secs(1));
        let (a, b) = (job("a"), job("b"));
        let (none, both) = (BTreeSet::new(), BTreeSet::from([a.clone(), b.clone()]));
        let mut now = Instant::now();
        let mut lengths_s = Vec::new();
        for _ in 0..5 {
            holds.looked(&none, &both, second, now);
            let begun_at = now;
            while holds.is_held(&a, now) {
                now += second;
            }
            lengths_s.push((now - begun_at).as_secs());
        }
        assert_eq!(lengths_s, [1, 2, 4, 5, 5]);
        // Part of a batch went through: that is no reason to wait.
        holds.looked(&BTreeSet::from([a.clone()]), &both, second, now);
        assert!(!holds.is_held(&a, now) && holds.is_held(&b, now));
        holds.looked(&none, &both, second, now);
        assert!(!holds.is_held(&a, now + second), "it begins anew");
        assert!(holds.is_held(&b, now + second));
    }

    fn job(name: &str) -> JobName {
        JobName::parse(name).expect("a name")
    }
}
