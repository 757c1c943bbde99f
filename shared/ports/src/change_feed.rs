//! The changes of watched jobs in memory: what a process writes, or has found by reading.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_domain::{
    JobName, TaskNews, Timestamp,
    hash::{fnv1a, mix64},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{ChangeCursor, ChangePage, ChangeQuery, StoreError};

/// Changes of a job that are kept. A reader that is further behind has missed some.
const CHANGES_MAX: usize = 4_096;
/// Most jobs that are watched at once.
const JOBS_MAX: usize = 64;
/// How long the changes of a job are kept for a reader that comes back.
const LINGER: Duration = Duration::from_secs(60);
/// How often a reader that waits says that it is still there.
const STILL_THERE: Duration = Duration::from_secs(20);

/// The changes of the watched jobs.
///
/// A job is watched from the first read of its changes until a minute after the last one. For other jobs nothing is kept,
/// and while no job is watched a writer pays one atomic load.
#[derive(Debug, Default)]
pub struct ChangeFeed {
    /// Makes the counts of two processes differ.
    salt: u64,
    /// How many jobs are watched.
    watched: AtomicUsize,
    jobs: Mutex<HashMap<JobName, JobChanges>>,
}

/// The changes of one job.
#[derive(Debug)]
struct JobChanges {
    epoch: u64,
    /// The number of the oldest change that is kept.
    first: u64,
    kept: VecDeque<TaskNews>,
    read_at: Timestamp,
    added: Arc<Notify>,
}

impl JobChanges {
    fn end(&self) -> ChangeCursor {
        ChangeCursor {
            epoch: self.epoch,
            seq: self.first + self.kept.len() as u64,
        }
    }

    fn has_lapsed(&self, now: Timestamp) -> bool {
        self.read_at.after(LINGER) < now
    }

    fn push(&mut self, news: TaskNews) {
        if self.kept.len() >= CHANGES_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(news);
    }

    fn page(&self, after: Option<ChangeCursor>, limit: usize) -> ChangePage {
        let end = self.end();
        let Some(after) = after else {
            return ChangePage {
                changes: Vec::new(),
                next: end,
                gap: false,
            };
        };
        let is_known = after.epoch == self.epoch && (self.first..=end.seq).contains(&after.seq);
        if !is_known {
            // Who has missed something reads the tasks themselves, and goes on from here.
            return ChangePage {
                changes: Vec::new(),
                next: end,
                gap: true,
            };
        }
        let skipped = usize::try_from(after.seq - self.first).unwrap_or(usize::MAX);
        let later = self.kept.iter().skip(skipped).take(limit);
        let position = |seq| ChangeCursor { seq, ..after };
        let changes: Vec<_> = later
            .cloned()
            .zip((after.seq + 1..).map(position))
            .collect();
        let next = changes.last().map_or(after, |(_, cursor)| *cursor);
        ChangePage {
            changes,
            next,
            gap: false,
        }
    }
}

impl ChangeFeed {
    /// A feed of a process. Feeds of processes that work on one store have different salts.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            watched: AtomicUsize::new(0),
            jobs: Mutex::default(),
        }
    }

    /// Whether any job is watched.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire) != 0
    }

    /// Whether the changes of a job are kept.
    pub fn keeps(&self, job: &JobName) -> bool {
        self.jobs().contains_key(job)
    }

    /// Begins to keep the changes of a job, or goes on. The answer says whether they were not kept before. Refused while too
    /// many jobs are watched.
    pub fn watch(&self, job: &JobName, now: Timestamp) -> Result<bool, StoreError> {
        let mut jobs = self.jobs();
        if jobs.get(job).is_some_and(|changes| changes.has_lapsed(now)) {
            jobs.remove(job);
        }
        if let Some(changes) = jobs.get_mut(job) {
            changes.read_at = now;
            return Ok(false);
        }
        if jobs.len() >= JOBS_MAX {
            jobs.retain(|_, changes| !changes.has_lapsed(now));
        }
        if jobs.len() >= JOBS_MAX {
            self.count(&jobs);
            return Err(StoreError::TooManyWatched {
                what: "jobs",
                max: JOBS_MAX,
            });
        }
        let started = u64::try_from(now.millis()).unwrap_or(0);
        let name = fnv1a(job.as_str().bytes());
        let changes = JobChanges {
            epoch: mix64(self.salt ^ mix64(started ^ mix64(name))),
            first: 0,
            kept: VecDeque::new(),
            read_at: now,
            added: Arc::default(),
        };
        jobs.insert(job.clone(), changes);
        self.count(&jobs);
        Ok(true)
    }

    /// Adds changes in their order. Those of jobs without a watch are not kept.
    pub fn publish(&self, news: impl IntoIterator<Item = TaskNews>) {
        let mut jobs = self.jobs();
        let mut woken: Option<(JobName, Arc<Notify>)> = None;
        for news in news {
            let Some(changes) = jobs.get_mut(&news.job) else {
                continue;
            };
            if changes.has_lapsed(news.at) {
                jobs.remove(&news.job);
                continue;
            }
            // Changes that are published together are of one job, as a rule.
            if woken.as_ref().is_none_or(|(job, _)| *job != news.job) {
                let next = (news.job.clone(), changes.added.clone());
                if let Some((_, added)) = woken.replace(next) {
                    added.notify_waiters();
                }
            }
            changes.push(news);
        }
        if let Some((_, added)) = woken {
            added.notify_waiters();
        }
        self.count(&jobs);
    }

    /// Keeps nothing of a job any more, and wakes its readers.
    pub fn forget(&self, job: &JobName) {
        let mut jobs = self.jobs();
        if let Some(changes) = jobs.remove(job) {
            changes.added.notify_waiters();
        }
        self.count(&jobs);
    }

    /// What is kept, at once.
    pub fn look(&self, query: &ChangeQuery) -> Result<ChangePage, StoreError> {
        self.watch(&query.job, query.now)?;
        let jobs = self.jobs();
        let changes = jobs.get(&query.job);
        let changes = changes.ok_or_else(|| StoreError::no_job(&query.job))?;
        Ok(changes.page(query.after, query.limit))
    }

    /// What is kept; waits for the first change as long as the query says. Cancel safe.
    pub async fn read(&self, mut query: ChangeQuery) -> Result<ChangePage, StoreError> {
        let (begun, now) = (Instant::now(), query.now);
        loop {
            self.watch(&query.job, query.now)?;
            let added = self.jobs().get(&query.job).map(|job| job.added.clone());
            let Some(added) = added else {
                return Err(StoreError::no_job(&query.job));
            };
            // Enabled before the look, so that a change in between is not missed.
            let mut more = std::pin::pin!(added.notified());
            more.as_mut().enable();
            let page = self.look(&query)?;
            let left = query.wait.saturating_sub(begun.elapsed());
            if query.after.is_none() || page.gap || !page.changes.is_empty() || left.is_zero() {
                return Ok(page);
            }
            let changed = timeout(left.min(STILL_THERE), more).await;
            query.now = now.after(begun.elapsed());
            if changed.is_ok() && !self.jobs().contains_key(&query.job) {
                // The job was deleted.
                return Err(StoreError::no_job(&query.job));
            }
        }
    }

    fn count(&self, jobs: &HashMap<JobName, JobChanges>) {
        self.watched.store(jobs.len(), Ordering::Release);
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobName, JobChanges>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::TaskId;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::clamped(1_000_000 + seconds * 1_000)
    }

    fn job(name: &str) -> JobName {
        JobName::parse(name).unwrap()
    }

    fn news(n: usize, seconds: i64) -> TaskNews {
        let id = TaskId::from_bytes([u8::try_from(n % 256).unwrap(); 16]);
        TaskNews::removed(job("mail"), id, at(seconds))
    }

    fn query(after: Option<ChangeCursor>, seconds: i64) -> ChangeQuery {
        ChangeQuery {
            job: job("mail"),
            after,
            now: at(seconds),
            wait: Duration::ZERO,
            limit: 10,
        }
    }

    #[test]
    fn f_086_nothing_is_kept_while_nobody_watches() {
        let feed = ChangeFeed::new(1);
        assert!(!feed.is_watched());
        feed.publish([news(1, 0)]);
        let start = feed.look(&query(None, 0)).unwrap().next;
        assert!(feed.is_watched());
        feed.publish([news(2, 1)]);
        let page = feed.look(&query(Some(start), 2)).unwrap();
        assert_eq!(page.changes.len(), 1);
        // A minute after the last read the next write drops everything.
        feed.publish([news(3, 63)]);
        assert!(!feed.is_watched());
        let page = feed.look(&query(Some(page.next), 64)).unwrap();
        assert!(page.gap && page.changes.is_empty());
    }

    #[test]
    fn f_086_a_reader_that_is_too_far_behind_is_told_of_a_gap_and_memory_is_bounded() {
        let feed = ChangeFeed::new(1);
        let start = feed.look(&query(None, 0)).unwrap().next;
        feed.publish((0..CHANGES_MAX).map(|n| news(n, 0)));
        let page = feed.look(&query(Some(start), 0)).unwrap();
        assert_eq!((page.gap, page.changes.len()), (false, 10));
        feed.publish([news(7, 0)]);
        let page = feed.look(&query(Some(start), 0)).unwrap();
        assert_eq!((page.gap, page.changes.len()), (true, 0));
        assert_eq!(feed.jobs()[&job("mail")].kept.len(), CHANGES_MAX);
        // It goes on behind the gap.
        feed.publish([news(8, 0)]);
        let page = feed.look(&query(Some(page.next), 0)).unwrap();
        assert_eq!((page.gap, page.changes.len()), (false, 1));
    }

    #[test]
    fn f_086_too_many_watched_jobs_are_refused_until_others_lapse() {
        let feed = ChangeFeed::new(1);
        for n in 0..JOBS_MAX {
            assert!(feed.watch(&job(&format!("j{n}")), at(0)).unwrap());
        }
        let refused = feed.watch(&job("mail"), at(1));
        assert!(matches!(refused, Err(StoreError::TooManyWatched { .. })));
        assert!(feed.watch(&job("mail"), at(70)).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn f_086_a_change_wakes_a_reader_that_waits() {
        let feed = Arc::new(ChangeFeed::new(1));
        let start = feed.look(&query(None, 0)).unwrap().next;
        let waiting = ChangeQuery {
            wait: Duration::from_secs(3_600),
            ..query(Some(start), 0)
        };
        let mut readers = tokio::task::JoinSet::new();
        readers.spawn({
            let feed = feed.clone();
            async move { feed.read(waiting).await }
        });
        tokio::time::sleep(Duration::from_secs(300)).await;
        // It has waited for longer than a job is kept without readers.
        feed.publish([news(1, 300)]);
        let page = readers.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(page.changes.len(), 1);
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = ChangeCursor {
            epoch: u64::MAX,
            seq: 17,
        };
        assert_eq!(cursor.to_string().parse::<ChangeCursor>().unwrap(), cursor);
        for foreign in ["", "c1-", "c1-1", "c2-1-1", "c1-g-1", "p-1"] {
            assert!(foreign.parse::<ChangeCursor>().is_err(), "{foreign}");
        }
    }
}
