//! Rate limits: how many tasks of a job may be enqueued now.
//!
//! The bucket of a job is in the store, because several consumers may enqueue tasks of one job. A consumer takes tokens from
//! it in grants, by compare-and-set, and only when it has found a due task: a job without due tasks costs nothing. What is
//! left of a grant lapses soon, so that a consumer keeps no tokens that others could use.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{Job, JobName, Timestamp};
use dueline_ports::{QuotaSwap, QuotaWrite, Rng, Store, StoreError};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::quota_bucket::{BucketLevel, BucketRate};

/// How long a grant may be used.
const GRANT_LIFETIME: Duration = Duration::from_secs(2);
/// The share of a second for which tokens are taken at least, so that a job at its limit costs few writes.
const GRANT_TIME: Duration = Duration::from_millis(250);
/// Most tries of one grant, each after another consumer was faster.
const TRIES_MAX: usize = 4;
/// Wait after these tries, or after a failed write.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Grants that are taken at once.
const GRANTS_AT_ONCE: usize = 16;

/// The quotas of all jobs that have one.
#[derive(Debug)]
pub(crate) struct JobQuotas {
    /// When this consumer started. The bucket of a job that is older begins empty if the store does not know it, so that a
    /// restart grants no second burst.
    started_at: Timestamp,
    jobs: BTreeMap<JobName, JobQuota>,
}

#[derive(Debug)]
struct JobQuota {
    rate: BucketRate,
    /// When the job was last changed.
    changed_at: Timestamp,
    /// The level as the store had it last.
    level: Option<BucketLevel>,
    /// Tokens that this consumer has taken and not used.
    granted: usize,
    granted_at: Instant,
    /// How many the last grant had, and whether it was used up.
    last_grant: usize,
    /// When the next grant may be taken.
    next_at: Instant,
    /// Whether the job has more due tasks than were allowed in the last scan.
    is_limited: bool,
}

/// What taking grants works with.
pub(crate) struct Granting<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) rng: &'a dyn Rng,
    /// Most tokens of one grant.
    pub(crate) batch_max: usize,
    pub(crate) now: Timestamp,
}

impl JobQuotas {
    pub(crate) const fn new(started_at: Timestamp) -> Self {
        Self {
            started_at,
            jobs: BTreeMap::new(),
        }
    }

    /// Updates the quotas from the current jobs. Returns how many pending tasks to read of limited jobs: none of a paused
    /// job, no more of others than their grants allow, and one of a job that may take a grant.
    pub(crate) fn limits(
        &mut self,
        jobs: &[Arc<Job>],
        batch_max: usize,
        now: Instant,
    ) -> BTreeMap<JobName, usize> {
        let mut known = std::mem::take(&mut self.jobs);
        let mut limits = BTreeMap::new();
        for job in jobs {
            if let Some(rate) = BucketRate::of(job.quota) {
                let mut quota = known.remove(&job.name).unwrap_or_else(|| JobQuota {
                    rate,
                    changed_at: job.changed_at,
                    level: None,
                    granted: 0,
                    granted_at: now,
                    last_grant: 0,
                    next_at: now,
                    is_limited: false,
                });
                if quota.rate != rate {
                    (quota.rate, quota.granted, quota.next_at) = (rate, 0, now);
                }
                if now.saturating_duration_since(quota.granted_at) >= GRANT_LIFETIME {
                    (quota.granted, quota.last_grant) = (0, 0);
                }
                let probe = usize::from(quota.next_at <= now);
                limits.insert(job.name.clone(), quota.granted.max(probe).min(batch_max));
                quota.is_limited &= !job.paused;
                self.jobs.insert(job.name.clone(), quota);
            }
            if job.paused {
                limits.insert(job.name.clone(), 0);
            }
        }
        limits
    }

    /// Takes grants for jobs of which a scan has found pending tasks, where no grant is left. Returns the jobs that have
    /// none afterwards, and whether one has more than the scan has found.
    pub(crate) async fn take_grants(
        &mut self,
        granting: &Granting<'_>,
        pending: &BTreeMap<JobName, usize>,
    ) -> (BTreeSet<JobName>, bool) {
        let started_at = self.started_at;
        let wanting = self.jobs.iter_mut().filter(|(job, quota)| {
            quota.granted == 0 && pending.get(*job).is_some_and(|pending| *pending > 0)
        });
        let grants = wanting.map(|(job, quota)| {
            Box::pin(async move {
                if let Err(error) = quota.take_grant(granting, job, started_at).await {
                    tracing::warn!(job.name = %job, %error, "failed to take tokens of a quota");
                    quota.next_at = Instant::now() + RETRY_AFTER;
                }
                (job.clone(), quota.granted)
            })
        });
        let grants: Vec<_> = grants.collect();
        let granted: Vec<_> = stream::iter(grants)
            .buffer_unordered(GRANTS_AT_ONCE)
            .collect()
            .await;
        let has_more = granted
            .iter()
            .any(|(job, granted)| *granted > pending.get(job).copied().unwrap_or(0));
        let refused = granted.into_iter().filter(|(_, granted)| *granted == 0);
        (refused.map(|(job, _)| job).collect(), has_more)
    }

    /// Records how many pending tasks of a job the current scan has read, of as many as it was allowed to read.
    pub(crate) fn record_pending(&mut self, job: &JobName, pending: usize, allowed: usize) {
        if let Some(quota) = self.jobs.get_mut(job).filter(|_| allowed > 0) {
            quota.is_limited = pending >= allowed;
        }
    }

    /// Takes enqueued tasks of a job from its grant.
    pub(crate) fn spend(&mut self, job: &JobName, count: usize) {
        if let Some(quota) = self.jobs.get_mut(job) {
            quota.granted = quota.granted.saturating_sub(count);
        }
    }

    /// When a job that reached its quota may continue. One that has a grant left could not move its tasks just now.
    pub(crate) fn next_scan_at(&self, now: Instant) -> Option<Instant> {
        let is_limited = self.jobs.values().filter(|quota| quota.is_limited);
        let next_at = is_limited.map(|quota| match quota.granted {
            0 => quota.next_at,
            _ => now + RETRY_AFTER,
        });
        next_at.min()
    }
}

impl JobQuota {
    /// Takes what the bucket has, up to a useful size. When it has nothing, the next grant waits until it has.
    async fn take_grant(
        &mut self,
        granting: &Granting<'_>,
        job: &JobName,
        started_at: Timestamp,
    ) -> Result<(), StoreError> {
        let (rate, now) = (self.rate, granting.now);
        // A job that uses its grants up gets larger ones, up to what a scan moves.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let least = rate.tokens_in(GRANT_TIME).ceil().max(1.0) as usize;
        let most = least.max(self.last_grant * 2).min(granting.batch_max);
        for _ in 0..TRIES_MAX {
            let level = self
                .level
                .unwrap_or_else(|| match self.changed_at < started_at {
                    true => BucketLevel::empty(rate, now),
                    false => BucketLevel::full(now),
                });
            let granted = level.available(rate, now).min(most);
            let is_known = self.level.is_some();
            if granted == 0 && is_known {
                let wait = level.wait_for(rate.tokens_in(GRANT_TIME), rate, now);
                let next_at = Instant::now().checked_add(wait + Duration::from_millis(1));
                self.next_at =
                    next_at.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
                self.last_grant = 0;
                return Ok(());
            }
            let without = level.without(granted, rate, now);
            let swap = QuotaSwap {
                job: job.clone(),
                seen: self.level.map(|level| level.0),
                level: without.0,
                write: granting.rng.write_id(),
                now,
            };
            match granting.store.swap_quota(swap).await? {
                QuotaWrite::Done => {
                    self.level = Some(without);
                    (self.granted, self.last_grant) = (granted, granted);
                    (self.granted_at, self.next_at) = (Instant::now(), Instant::now());
                    if granted > 0 {
                        return Ok(());
                    }
                }
                QuotaWrite::Differs(level) => self.level = level.map(BucketLevel),
            }
        }
        self.next_at = Instant::now() + RETRY_AFTER;
        Ok(())
    }
}
