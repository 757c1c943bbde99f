//! What the workers of this host can run. Messages are received only for jobs with a live subscription.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{PollRequest, Registration, ServedJob};
use dueline_domain::{JobName, WorkerId};
use tokio::{sync::Notify, time::Instant};

/// How long a subscription lasts after the last poll with it was answered.
const POLL_LINGER: Duration = Duration::from_secs(10);
/// For how many registration intervals the subscription of a registered worker lasts.
const REGISTRATION_INTERVALS: u32 = 3;

/// The live subscriptions of each worker.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    workers: Mutex<BTreeMap<WorkerId, Vec<Subscription>>>,
    /// Signalled when a subscription was added, or a worker deregistered.
    pub(crate) changed: Notify,
    /// How many subscriptions have been added so far.
    revision: AtomicU64,
}

/// What a worker can run. A worker has several subscriptions when its polls differ.
#[derive(Debug)]
struct Subscription {
    jobs: Vec<JobName>,
    handlers: Vec<Arc<str>>,
    task_weight_max: u32,
    /// How many polls with this subscription are waiting.
    active_polls: usize,
    until: Instant,
}

impl Subscription {
    fn is_live(&self, now: Instant) -> bool {
        self.active_polls > 0 || self.until > now
    }

    fn can_run(&self, job: &ServedJob) -> bool {
        self.jobs.contains(&job.name) || self.handlers.contains(&job.handler)
    }

    fn has(&self, jobs: &[JobName], handlers: &[Arc<str>], task_weight_max: u32) -> bool {
        self.jobs == jobs && self.handlers == handlers && self.task_weight_max == task_weight_max
    }
}

/// Keeps the subscription of a waiting poll live; ends when dropped.
pub(crate) struct ActivePoll<'a> {
    subscriptions: &'a Subscriptions,
    poll: &'a PollRequest,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Vec<Subscription>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many subscriptions have been added so far. [`Subscriptions::runnable`] sees all of them.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Adds or renews the subscription of a poll.
    pub(crate) fn begin_poll<'a>(&'a self, poll: &'a PollRequest) -> ActivePoll<'a> {
        let until = Instant::now() + POLL_LINGER;
        let (jobs, handlers) = (&poll.jobs, &poll.handlers);
        self.renew(
            &poll.worker,
            jobs,
            handlers,
            poll.task_weight_max,
            |subscription| {
                subscription.active_polls += 1;
                subscription.until = subscription.until.max(until);
            },
        );
        ActivePoll {
            subscriptions: self,
            poll,
        }
    }

    /// Adds or renews the subscription of a worker that registers every `interval`.
    pub(crate) fn register(&self, worker: &Registration, interval: Duration) {
        let lasts = interval.saturating_mul(REGISTRATION_INTERVALS);
        let until = Instant::now() + lasts.max(POLL_LINGER);
        let (jobs, handlers) = (&worker.jobs, &worker.handlers);
        self.renew(
            &worker.worker,
            jobs,
            handlers,
            worker.concurrency,
            |subscription| subscription.until = subscription.until.max(until),
        );
    }

    fn renew(
        &self,
        worker: &WorkerId,
        jobs: &[JobName],
        handlers: &[Arc<str>],
        task_weight_max: u32,
        renew: impl FnOnce(&mut Subscription),
    ) {
        let mut workers = self.lock();
        if !workers.contains_key(worker) {
            workers.insert(worker.clone(), Vec::new());
        }
        let Some(subscriptions) = workers.get_mut(worker) else {
            return;
        };
        let is_same = |s: &&mut Subscription| s.has(jobs, handlers, task_weight_max);
        if let Some(existing) = subscriptions.iter_mut().find(is_same) {
            return renew(existing);
        }
        let now = Instant::now();
        subscriptions.retain(|subscription| subscription.is_live(now));
        let mut subscription = Subscription {
            jobs: jobs.to_vec(),
            handlers: handlers.to_vec(),
            task_weight_max,
            active_polls: 0,
            until: now,
        };
        renew(&mut subscription);
        subscriptions.push(subscription);
        self.revision.fetch_add(1, Ordering::Release);
        self.changed.notify_one();
    }

    /// Removes all subscriptions of a worker.
    pub(crate) fn deregister(&self, worker: &WorkerId) {
        if self.lock().remove(worker).is_some() {
            self.changed.notify_one();
        }
    }

    /// Removes expired subscriptions. Returns the jobs that a worker here can run, each with the weight of the heaviest
    /// task that one of its workers can run.
    pub(crate) fn runnable(&self, jobs: &[ServedJob], now: Instant) -> BTreeMap<JobName, u32> {
        let mut workers = self.lock();
        workers.retain(|_, subscriptions| {
            subscriptions.retain(|subscription| subscription.is_live(now));
            !subscriptions.is_empty()
        });
        let heaviest = |job: &ServedJob| {
            let able = workers.values().flatten().filter(|s| s.can_run(job));
            able.map(|subscription| subscription.task_weight_max).max()
        };
        jobs.iter()
            .filter_map(|job| Some((job.name.clone(), heaviest(job)?)))
            .collect()
    }
}

impl Drop for ActivePoll<'_> {
    fn drop(&mut self) {
        let mut workers = self.subscriptions.lock();
        // A worker that has deregistered stays removed, even if a poll of it was still waiting.
        let Some(subscriptions) = workers.get_mut(&self.poll.worker) else {
            return;
        };
        let poll = self.poll;
        let is_same =
            |s: &&mut Subscription| s.has(&poll.jobs, &poll.handlers, poll.task_weight_max);
        if let Some(subscription) = subscriptions.iter_mut().find(is_same) {
            subscription.active_polls = subscription.active_polls.saturating_sub(1);
            subscription.until = subscription.until.max(Instant::now() + POLL_LINGER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, handler: &str) -> ServedJob {
        ServedJob {
            name: JobName::parse(name).unwrap(),
            handler: Arc::from(handler),
        }
    }

    fn poll_for(jobs: &[&str]) -> PollRequest {
        PollRequest {
            worker: WorkerId::new("w", 1).unwrap(),
            jobs: jobs
                .iter()
                .map(|job| JobName::parse(job).unwrap())
                .collect(),
            handlers: Vec::new(),
            tasks_max: 1,
            weight_max: 1,
            task_weight_max: 1,
            wait: Duration::ZERO,
            start: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn different_polls_of_one_worker_are_separate_subscriptions() {
        let subscriptions = Subscriptions::default();
        let jobs = [job("a", "worker"), job("b", "worker")];
        let (a, b) = (poll_for(&["a"]), poll_for(&["b"]));
        let active_a = subscriptions.begin_poll(&a);
        drop(subscriptions.begin_poll(&b));
        assert_eq!(subscriptions.runnable(&jobs, Instant::now()).len(), 2);
        // A waiting poll keeps its subscription live without a limit; an answered one for POLL_LINGER.
        let later = Instant::now() + POLL_LINGER;
        let runnable = subscriptions.runnable(&jobs, later);
        assert_eq!(runnable.keys().collect::<Vec<_>>(), [&a.jobs[0]]);
        drop(active_a);
        assert!(subscriptions.runnable(&jobs, later).is_empty());
    }

    fn registration(name: &str, concurrency: u32) -> Registration {
        Registration {
            worker: WorkerId::new(name, 1).unwrap(),
            jobs: vec![JobName::parse("a").unwrap()],
            handlers: vec![Arc::from("exec")],
            concurrency,
            embedded: false,
            kind: dueline_ports::ProcessKind::Executor,
            metadata: dueline_ports::Metadata::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f_027_only_jobs_that_a_worker_here_can_run_are_runnable() {
        let subscriptions = Subscriptions::default();
        let jobs = [job("a", "worker"), job("b", "worker"), job("c", "exec")];
        let start = Instant::now();
        assert!(subscriptions.runnable(&jobs, start).is_empty());
        let second = Duration::from_secs(1);
        subscriptions.register(&registration("small", 4), second * 20);
        subscriptions.register(&registration("large", 9), second);
        let runnable = subscriptions.runnable(&jobs, start);
        let runnable: Vec<_> = runnable.iter().map(|(j, w)| (j.as_str(), *w)).collect();
        assert_eq!(runnable, [("a", 9), ("c", 9)]);
        // The large worker does not register again.
        let runnable = subscriptions.runnable(&jobs, start + second * 11);
        assert!(runnable.values().all(|weight| *weight == 4));
        subscriptions.deregister(&WorkerId::new("small", 1).unwrap());
        assert!(subscriptions.runnable(&jobs, start).is_empty());
    }
}
