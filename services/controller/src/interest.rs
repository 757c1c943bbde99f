//! Who could run what: messages are taken for workers that are here, never for nobody.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{NextWork, Registration, ServedJob};
use dueline_domain::{JobName, WorkerId};
use tokio::{sync::Notify, time::Instant};

/// How long a worker that asked for work counts as being here after its last question was answered.
const LINGER: Duration = Duration::from_secs(10);
/// A worker that says it is alive counts as being here for this many of its intervals.
const ALIVE_INTERVALS: u32 = 3;

/// The workers that are here, each with everything it lately wanted.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    workers: Mutex<BTreeMap<WorkerId, Vec<Interest>>>,
    /// Woken when a worker came that wants something new, or went.
    pub(crate) changed: Notify,
    /// How many times a worker came that wants something new.
    arrivals: AtomicU64,
}

/// One set of wishes of one worker. A worker may have several, when its questions differ.
#[derive(Debug)]
struct Interest {
    jobs: Vec<JobName>,
    handlers: Vec<Arc<str>>,
    task_weight_max: u32,
    /// Questions with this set that wait for an answer right now.
    asking: usize,
    until: Instant,
}

impl Interest {
    fn is_here(&self, now: Instant) -> bool {
        self.asking > 0 || self.until > now
    }

    fn can_run(&self, job: &ServedJob) -> bool {
        self.jobs.contains(&job.name) || self.handlers.contains(&job.handler)
    }

    fn is_of(&self, jobs: &[JobName], handlers: &[Arc<str>], task_weight_max: u32) -> bool {
        self.jobs == jobs && self.handlers == handlers && self.task_weight_max == task_weight_max
    }
}

/// A question that waits for an answer; ends when dropped.
pub(crate) struct Asking<'a> {
    interests: &'a Interests,
    ask: &'a NextWork,
}

impl Interests {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Vec<Interest>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many times a worker came that wants something new; everything such a worker wants is known by then.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Acquire)
    }

    /// A worker asks for work.
    pub(crate) fn ask<'a>(&'a self, ask: &'a NextWork) -> Asking<'a> {
        let until = Instant::now() + LINGER;
        let (jobs, handlers) = (&ask.jobs, &ask.handlers);
        self.note(
            &ask.worker,
            jobs,
            handlers,
            ask.task_weight_max,
            |interest| {
                interest.asking += 1;
                interest.until = interest.until.max(until);
            },
        );
        Asking {
            interests: self,
            ask,
        }
    }

    /// A worker says that it is alive, and will do so again after `interval`.
    pub(crate) fn alive(&self, worker: &Registration, interval: Duration) {
        let until = Instant::now() + interval.saturating_mul(ALIVE_INTERVALS).max(LINGER);
        let (jobs, handlers) = (&worker.jobs, &worker.handlers);
        self.note(
            &worker.worker,
            jobs,
            handlers,
            worker.concurrency,
            |interest| interest.until = interest.until.max(until),
        );
    }

    fn note(
        &self,
        worker: &WorkerId,
        jobs: &[JobName],
        handlers: &[Arc<str>],
        task_weight_max: u32,
        renew: impl FnOnce(&mut Interest),
    ) {
        let mut workers = self.lock();
        if !workers.contains_key(worker) {
            workers.insert(worker.clone(), Vec::new());
        }
        let Some(interests) = workers.get_mut(worker) else {
            return;
        };
        let is_same = |interest: &&mut Interest| interest.is_of(jobs, handlers, task_weight_max);
        if let Some(known) = interests.iter_mut().find(is_same) {
            return renew(known);
        }
        let now = Instant::now();
        interests.retain(|interest| interest.is_here(now));
        let mut interest = Interest {
            jobs: jobs.to_vec(),
            handlers: handlers.to_vec(),
            task_weight_max,
            asking: 0,
            until: now,
        };
        renew(&mut interest);
        interests.push(interest);
        self.arrivals.fetch_add(1, Ordering::Release);
        self.changed.notify_one();
    }

    /// A worker is gone.
    pub(crate) fn leave(&self, worker: &WorkerId) {
        if self.lock().remove(worker).is_some() {
            self.changed.notify_one();
        }
    }

    /// Forgets workers that are no longer here, and answers for each job that somebody here can run the weight of
    /// the heaviest task that would find a worker.
    pub(crate) fn wanted(&self, jobs: &[ServedJob], now: Instant) -> BTreeMap<JobName, u32> {
        let mut workers = self.lock();
        workers.retain(|_, interests| {
            interests.retain(|interest| interest.is_here(now));
            !interests.is_empty()
        });
        let heaviest = |job: &ServedJob| {
            let able = workers.values().flatten().filter(|i| i.can_run(job));
            able.map(|interest| interest.task_weight_max).max()
        };
        jobs.iter()
            .filter_map(|job| Some((job.name.clone(), heaviest(job)?)))
            .collect()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut workers = self.interests.lock();
        // A worker that has left is here no more, even if its last question still was.
        let Some(interests) = workers.get_mut(&self.ask.worker) else {
            return;
        };
        let ask = self.ask;
        let is_same = |interest: &&mut Interest| {
            interest.is_of(&ask.jobs, &ask.handlers, ask.task_weight_max)
        };
        if let Some(interest) = interests.iter_mut().find(is_same) {
            interest.asking = interest.asking.saturating_sub(1);
            interest.until = interest.until.max(Instant::now() + LINGER);
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

    fn ask_for(jobs: &[&str]) -> NextWork {
        NextWork {
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
    async fn different_questions_of_one_worker_stand_side_by_side() {
        let interests = Interests::default();
        let jobs = [job("a", "worker"), job("b", "worker")];
        let (a, b) = (ask_for(&["a"]), ask_for(&["b"]));
        let asking_a = interests.ask(&a);
        drop(interests.ask(&b));
        assert_eq!(interests.wanted(&jobs, Instant::now()).len(), 2);
        // A question that still waits counts however long it does; one that was answered lingers for a while.
        let later = Instant::now() + LINGER;
        let wanted = interests.wanted(&jobs, later);
        assert_eq!(wanted.keys().collect::<Vec<_>>(), [&a.jobs[0]]);
        drop(asking_a);
        assert!(interests.wanted(&jobs, later).is_empty());
    }

    fn registration(name: &str, concurrency: u32) -> Registration {
        Registration {
            worker: WorkerId::new(name, 1).unwrap(),
            jobs: vec![JobName::parse("a").unwrap()],
            handlers: vec![Arc::from("exec")],
            concurrency,
            embedded: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f_027_only_what_somebody_here_can_run_is_wanted() {
        let interests = Interests::default();
        let jobs = [job("a", "worker"), job("b", "worker"), job("c", "exec")];
        let start = Instant::now();
        assert!(interests.wanted(&jobs, start).is_empty());
        let second = Duration::from_secs(1);
        interests.alive(&registration("small", 4), second * 20);
        interests.alive(&registration("large", 9), second);
        let wanted = interests.wanted(&jobs, start);
        let wanted: Vec<_> = wanted.iter().map(|(j, w)| (j.as_str(), *w)).collect();
        assert_eq!(wanted, [("a", 9), ("c", 9)]);
        // The large one falls silent.
        let wanted = interests.wanted(&jobs, start + second * 11);
        assert!(wanted.values().all(|weight| *weight == 4));
        interests.leave(&WorkerId::new("small", 1).unwrap());
        assert!(interests.wanted(&jobs, start).is_empty());
    }
}
