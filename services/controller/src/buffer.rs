//! Messages that wait for an executor, in the order in which they should run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::Bound,
    sync::Arc,
};

use dueline_api::NextWork;
use dueline_domain::{JobName, Priority, Timestamp};
use dueline_ports::{Delivery, Receipt};
use tokio::time::Instant;

/// How many lighter tasks may pass one that is too heavy for the moment.
///
/// A few keep the worker busy while weight comes free; without a bound a stream of light tasks would hold a heavy
/// one back for ever.
pub(crate) const PASSES_MAX: u32 = 16;

/// Place in the order: priority, then due time, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<Priority>,
    due_at: Timestamp,
    arrival: u64,
}

#[derive(Debug)]
struct Held {
    delivery: Delivery,
    /// When its visibility timeout last began.
    hidden_since: Instant,
    /// How many lighter tasks were handed out before it although it was their better.
    passed: u32,
}

#[derive(Debug)]
struct JobBuffer {
    handler: Arc<str>,
    held: BTreeMap<Rank, Held>,
    /// How many turns this job has had; the job with the fewest goes first among equal priorities, so that a long
    /// backlog of one job does not stand before a new task of another.
    turns: u64,
    /// A receive for this job has come back.
    has_received: bool,
}

impl JobBuffer {
    fn is_wanted(&self, job: &JobName, ask: &NextWork) -> bool {
        ask.jobs.contains(job) || ask.handlers.contains(&self.handler)
    }
}

/// Place among the heads of the jobs: priority, then turns, then the job's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    priority: Reverse<Priority>,
    turns: u64,
    rank: Rank,
    at: usize,
}

impl Head {
    const fn new(rank: Rank, turns: u64, at: usize) -> Self {
        Self {
            priority: rank.priority,
            turns,
            rank,
            at,
        }
    }
}

/// The buffer: a shelf per served job. Pure data; the lock is around it.
#[derive(Debug)]
pub(crate) struct Buffer {
    jobs: BTreeMap<JobName, JobBuffer>,
    len_max: usize,
    len: usize,
    arrivals: u64,
    /// Turns of the job that was served last: a job that comes back starts here, with no claim on turns it slept
    /// through.
    turns: u64,
}

impl Buffer {
    pub(crate) const fn new(len_max: usize) -> Self {
        Self {
            jobs: BTreeMap::new(),
            len_max,
            len: 0,
            arrivals: 0,
            turns: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The jobs that are served.
    pub(crate) fn jobs(&self) -> Vec<JobName> {
        self.jobs.keys().cloned().collect()
    }

    /// The kind of handler of a served job that has no messages here.
    pub(crate) fn handler_if_empty(&self, job: &JobName) -> Option<Arc<str>> {
        let shelf = self.jobs.get(job)?;
        shelf.held.is_empty().then(|| shelf.handler.clone())
    }

    /// How many messages one job may have here: its part of the whole.
    pub(crate) fn share(&self) -> usize {
        (self.len_max / self.jobs.len().max(1)).max(1)
    }

    /// A job is served from now on. What the others hold beyond their smaller share is answered, least urgent first
    /// to go, and must be returned to its queue.
    pub(crate) fn open(&mut self, job: &JobName, handler: &Arc<str>) -> Vec<Receipt> {
        let shelf = self.jobs.entry(job.clone()).or_insert_with(|| JobBuffer {
            handler: handler.clone(),
            held: BTreeMap::new(),
            turns: 0,
            has_received: false,
        });
        shelf.handler = handler.clone();
        let share = self.share();
        let mut excess = Vec::new();
        for shelf in self.jobs.values_mut() {
            while shelf.held.len() > share {
                excess.extend(shelf.held.pop_last().map(|(_, held)| held.receipt()));
            }
        }
        self.len -= excess.len();
        excess
    }

    /// A job is served no more; its messages must be returned to its queue.
    pub(crate) fn close(&mut self, job: &JobName) -> Vec<Receipt> {
        let held = self.jobs.remove(job).map(|shelf| shelf.held);
        let receipts: Vec<_> = held
            .into_iter()
            .flatten()
            .map(|(_, held)| held.receipt())
            .collect();
        self.len -= receipts.len();
        receipts
    }

    /// How many messages of this job there is room for.
    pub(crate) fn room(&self, job: &JobName) -> usize {
        let Some(shelf) = self.jobs.get(job) else {
            return 0;
        };
        let of_share = self.share().saturating_sub(shelf.held.len());
        of_share.min(self.len_max.saturating_sub(self.len))
    }

    /// Takes messages of one job in. What finds no room, or whose job is not served, is answered and must be
    /// returned to its queue.
    pub(crate) fn put(
        &mut self,
        job: &JobName,
        deliveries: Vec<Delivery>,
        hidden_since: Instant,
    ) -> Vec<Receipt> {
        let room = self.room(job);
        let Some(shelf) = self.jobs.get_mut(job) else {
            return deliveries.into_iter().map(|d| d.receipt).collect();
        };
        if shelf.held.is_empty() {
            shelf.turns = shelf.turns.max(self.turns);
        }
        let mut deliveries = deliveries.into_iter();
        for delivery in deliveries.by_ref().take(room) {
            let rank = Rank {
                priority: Reverse(delivery.task.priority),
                due_at: delivery.task.due_at,
                arrival: self.arrivals,
            };
            self.arrivals += 1;
            self.len += 1;
            let held = Held {
                delivery,
                hidden_since,
                passed: 0,
            };
            shelf.held.insert(rank, held);
        }
        deliveries.map(|delivery| delivery.receipt).collect()
    }

    /// Takes out what a worker should get, best first.
    ///
    /// A task that is too heavy for what the worker has free is passed by lighter ones, [`PASSES_MAX`] of them at
    /// most; then nothing behind it is handed out to a worker that can run it until it fits. Tasks that the worker
    /// could never run are left to others.
    pub(crate) fn pop(&mut self, ask: &NextWork) -> Vec<Delivery> {
        let wanted = |(job, shelf): &(&JobName, &mut JobBuffer)| {
            !shelf.held.is_empty() && shelf.is_wanted(job, ask)
        };
        let jobs = self.jobs.iter_mut().filter(wanted);
        let mut shelves: Vec<_> = jobs.map(|(_, shelf)| shelf).collect();
        let mut heads: BinaryHeap<Reverse<Head>> = shelves
            .iter()
            .enumerate()
            .filter_map(|(at, shelf)| {
                let (rank, _) = shelf.held.first_key_value()?;
                Some(Reverse(Head::new(*rank, shelf.turns, at)))
            })
            .collect();
        let mut popped = Vec::new();
        let mut waiting: Vec<(Rank, usize)> = Vec::new();
        let mut weight_left = ask.weight_max;
        while popped.len() < ask.tasks_max && weight_left > 0 {
            let Some(Reverse(Head {
                rank, turns, at, ..
            })) = heads.pop()
            else {
                break;
            };
            let JobBuffer {
                held,
                turns: turns_of_job,
                ..
            } = &mut *shelves[at];
            let next = held.range((Bound::Excluded(rank), Bound::Unbounded)).next();
            heads.extend(next.map(|(rank, _)| Reverse(Head::new(*rank, turns + 1, at))));
            let (weight, passed) = held.get(&rank).map_or((0, 0), |held| {
                (u32::from(held.delivery.task.weight.get()), held.passed)
            });
            if weight > ask.task_weight_max {
                continue;
            }
            if weight > weight_left {
                waiting.push((rank, at));
                if passed >= PASSES_MAX {
                    break;
                }
                continue;
            }
            weight_left -= weight;
            self.turns = turns;
            *turns_of_job = turns + 1;
            popped.extend(held.remove(&rank).map(|held| held.delivery));
            let mut patience_ends = false;
            for (rank, at) in &waiting {
                if let Some(held) = shelves[*at].held.get_mut(rank) {
                    held.passed += 1;
                    patience_ends |= held.passed >= PASSES_MAX;
                }
            }
            if patience_ends {
                break;
            }
        }
        self.len -= popped.len();
        popped
    }

    /// Whether there is anything here that the worker wants and could run, even if not at the moment.
    pub(crate) fn holds_for(&self, ask: &NextWork) -> bool {
        let wanted = self.jobs.iter().filter(|(job, s)| s.is_wanted(job, ask));
        let mut held = wanted.flat_map(|(_, shelf)| shelf.held.values());
        held.any(|held| u32::from(held.delivery.task.weight.get()) <= ask.task_weight_max)
    }

    /// A receive for this job has come back, whatever it brought. Answers whether it was the first one.
    pub(crate) fn received(&mut self, job: &JobName) -> bool {
        let shelf = self.jobs.get_mut(job);
        shelf.is_some_and(|shelf| !std::mem::replace(&mut shelf.has_received, true))
    }

    /// Whether a receive has come back for every served job that the worker wants.
    pub(crate) fn has_received_for(&self, ask: &NextWork) -> bool {
        let mut wanted = self.jobs.iter().filter(|(job, s)| s.is_wanted(job, ask));
        wanted.all(|(_, shelf)| shelf.has_received)
    }

    /// Takes out all messages of a job that is still served.
    pub(crate) fn clear(&mut self, job: &JobName) -> Vec<Receipt> {
        let Some(shelf) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let held = std::mem::take(&mut shelf.held);
        self.len -= held.len();
        held.into_values().map(Held::receipt).collect()
    }

    /// Takes out the messages of a job that are heavier than `weight_max`.
    pub(crate) fn take_heavier(&mut self, job: &JobName, weight_max: u32) -> Vec<Delivery> {
        let Some(shelf) = self.jobs.get_mut(job) else {
            return Vec::new();
        };
        let is_heavier = |held: &Held| u32::from(held.delivery.task.weight.get()) > weight_max;
        if !shelf.held.values().any(is_heavier) {
            return Vec::new();
        }
        let all = std::mem::take(&mut shelf.held);
        let (heavier, rest): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(_, held)| is_heavier(held));
        shelf.held = rest;
        self.len -= heavier.len();
        heavier.into_values().map(|held| held.delivery).collect()
    }

    /// The messages that have been invisible since before `than`; their timeouts count from `now` on.
    pub(crate) fn renew_hidden_before(&mut self, than: Instant, now: Instant) -> Vec<Receipt> {
        let held = self.jobs.values_mut().flat_map(|s| s.held.values_mut());
        held.filter(|held| held.hidden_since <= than)
            .map(|held| {
                held.hidden_since = now;
                held.delivery.receipt.clone()
            })
            .collect()
    }
}

impl Held {
    fn receipt(self) -> Receipt {
        self.delivery.receipt
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dueline_domain::{TaskRef, Weight, WorkerId};
    use dueline_ports::conformance::queue::message;

    use super::*;

    fn name(job: &str) -> JobName {
        JobName::parse(job).unwrap()
    }

    fn delivery(task: TaskRef) -> Delivery {
        let (job, number) = (task.job.clone(), task.token.get());
        Delivery {
            task,
            receipt: Receipt::Local { job, number },
            received: 1,
        }
    }

    fn weighing(job: &str, n: u64, weight: i64) -> Delivery {
        delivery(TaskRef {
            weight: Weight::new(weight).unwrap(),
            ..message(&name(job), n)
        })
    }

    fn ranked(job: &str, n: u64, priority: i64) -> Delivery {
        delivery(TaskRef {
            priority: Priority::new(priority).unwrap(),
            ..message(&name(job), n)
        })
    }

    fn buffer(len_max: usize, jobs: &[&str]) -> Buffer {
        let mut buffer = Buffer::new(len_max);
        for job in jobs {
            buffer.open(&name(job), &Arc::from("worker"));
        }
        buffer
    }

    fn put(buffer: &mut Buffer, job: &str, deliveries: Vec<Delivery>) -> usize {
        buffer.put(&name(job), deliveries, Instant::now()).len()
    }

    fn ask(jobs: &[&str], tasks_max: usize, weight_max: u32) -> NextWork {
        NextWork {
            worker: WorkerId::new("w", 1).unwrap(),
            jobs: jobs.iter().map(|job| name(job)).collect(),
            handlers: Vec::new(),
            tasks_max,
            weight_max,
            task_weight_max: 10,
            wait: Duration::ZERO,
            start: false,
        }
    }

    /// The numbers of what is handed out.
    fn pop(buffer: &mut Buffer, ask: &NextWork) -> Vec<u64> {
        let popped = buffer.pop(ask);
        popped.iter().map(|d| d.task.token.get() - 1).collect()
    }

    #[tokio::test]
    async fn f_026_the_best_of_all_wanted_jobs_goes_first() {
        let mut buffer = buffer(100, &["a", "b", "c"]);
        put(&mut buffer, "a", vec![ranked("a", 1, 0), ranked("a", 2, 9)]);
        put(&mut buffer, "b", vec![ranked("b", 3, 5), ranked("b", 4, 0)]);
        put(&mut buffer, "c", vec![ranked("c", 5, 99)]);
        assert_eq!(pop(&mut buffer, &ask(&["a", "b"], 3, 100)), [2, 3, 1]);
        assert_eq!(pop(&mut buffer, &ask(&["a", "b"], 9, 100)), [4]);
        assert_eq!(buffer.len(), 1);
    }

    #[tokio::test]
    async fn a_backlog_of_one_job_does_not_stand_before_another_job() {
        let mut buffer = buffer(1_000, &["flood", "quiet"]);
        let flood = (0..100).map(|n| ranked("flood", n, 0)).collect();
        put(&mut buffer, "flood", flood);
        let both = ask(&["flood", "quiet"], 50, 100);
        assert_eq!(pop(&mut buffer, &both).len(), 50);
        put(
            &mut buffer,
            "quiet",
            vec![ranked("quiet", 500, 0), ranked("quiet", 501, 0)],
        );
        let next = pop(&mut buffer, &ask(&["flood", "quiet"], 4, 100));
        assert!(next.contains(&500) && next.contains(&501), "{next:?}");
        // Turns that it slept through give it no claim to more than its half.
        let quiet = (600..700).map(|n| ranked("quiet", n, 0)).collect();
        put(&mut buffer, "quiet", quiet);
        let next = pop(&mut buffer, &ask(&["flood", "quiet"], 10, 100));
        assert_eq!(next.iter().filter(|n| **n < 100).count(), 5, "{next:?}");
    }

    #[tokio::test]
    async fn a_kind_of_handler_stands_for_all_its_jobs() {
        let mut buffer = buffer(100, &["a"]);
        buffer.open(&name("shell"), &Arc::from("exec"));
        put(&mut buffer, "a", vec![ranked("a", 1, 0)]);
        put(&mut buffer, "shell", vec![ranked("shell", 2, 0)]);
        let wanted = NextWork {
            handlers: vec![Arc::from("exec")],
            ..ask(&[], 9, 9)
        };
        assert_eq!(pop(&mut buffer, &wanted), [2]);
    }

    #[tokio::test]
    async fn f_122_the_buffer_is_never_above_its_limit_and_each_job_has_its_share() {
        let mut buffer = buffer(10, &["a"]);
        let flood = |n| (0..n).map(|n| ranked("a", n, 0)).collect::<Vec<_>>();
        assert_eq!(put(&mut buffer, "a", flood(12)), 2);
        assert_eq!((buffer.len(), buffer.room(&name("a"))), (10, 0));
        let returned = buffer.open(&name("b"), &Arc::from("worker"));
        assert_eq!((returned.len(), buffer.len()), (5, 5));
        assert_eq!(buffer.room(&name("b")), 5);
        let kept: Vec<u64> = (0..5).collect();
        assert_eq!(
            pop(&mut buffer, &ask(&["a"], 99, 99)),
            kept,
            "the best stay"
        );
        // A job that is not served finds no room.
        assert_eq!(put(&mut buffer, "c", vec![ranked("c", 1, 0)]), 1);
        put(&mut buffer, "b", vec![ranked("b", 1, 0)]);
        assert_eq!(buffer.close(&name("b")).len(), 1);
        assert_eq!(buffer.len(), 0);
    }

    #[tokio::test]
    async fn f_034_no_more_weight_is_handed_out_than_is_free() {
        let mut buffer = buffer(100, &["a"]);
        let ten = (0..10).map(|n| weighing("a", n, 3)).collect();
        put(&mut buffer, "a", ten);
        assert_eq!(pop(&mut buffer, &ask(&["a"], 99, 10)).len(), 3);
        assert_eq!(pop(&mut buffer, &ask(&["a"], 99, 1)).len(), 0);
        assert_eq!(pop(&mut buffer, &ask(&["a"], 2, 10)).len(), 2);
    }

    #[tokio::test]
    async fn d_06_a_heavy_task_lets_some_lighter_ones_pass_and_then_waits_for_room() {
        let mut buffer = buffer(100, &["a"]);
        put(&mut buffer, "a", vec![weighing("a", 1_000, 8)]);
        let light = (0..50).map(|n| weighing("a", n, 1)).collect();
        put(&mut buffer, "a", light);
        // Five are free: light ones go, but only so many.
        let mut passed = 0;
        loop {
            let got = pop(&mut buffer, &ask(&["a"], 99, 5));
            if got.is_empty() {
                break;
            }
            assert!(!got.contains(&1_000));
            passed += got.len();
        }
        assert_eq!(passed, PASSES_MAX as usize);
        // Another worker that could never run it is not held up.
        let small = NextWork {
            task_weight_max: 5,
            ..ask(&["a"], 3, 5)
        };
        assert_eq!(pop(&mut buffer, &small).len(), 3);
        // Eight are free: it goes first.
        assert_eq!(pop(&mut buffer, &ask(&["a"], 1, 8)), [1_000]);
        assert_eq!(pop(&mut buffer, &ask(&["a"], 99, 5)).len(), 5);
    }

    #[tokio::test]
    async fn what_waits_for_weight_counts_as_held_and_what_is_for_others_does_not() {
        let mut buffer = buffer(100, &["a", "b"]);
        put(&mut buffer, "a", vec![weighing("a", 1, 8)]);
        let little = ask(&["a"], 9, 5);
        assert!(pop(&mut buffer, &little).is_empty());
        assert!(buffer.holds_for(&little));
        assert!(!buffer.holds_for(&ask(&["b"], 9, 5)), "not wanted");
        let weak = NextWork {
            task_weight_max: 5,
            ..ask(&["a"], 9, 5)
        };
        assert!(!buffer.holds_for(&weak), "never for this one");
        assert_eq!(buffer.clear(&name("a")).len(), 1);
        assert!(!buffer.holds_for(&little));
        assert_eq!(buffer.len(), 0);
    }

    #[tokio::test]
    async fn a_job_that_is_served_anew_has_received_nothing_yet() {
        let mut buffer = buffer(100, &["a", "b"]);
        let both = ask(&["a", "b"], 9, 9);
        assert!(buffer.received(&name("a")) && !buffer.received(&name("a")));
        assert!(!buffer.has_received_for(&both));
        assert!(buffer.has_received_for(&ask(&["a", "nowhere"], 9, 9)));
        buffer.received(&name("b"));
        assert!(buffer.has_received_for(&both));
        buffer.close(&name("a"));
        buffer.open(&name("a"), &Arc::from("worker"));
        assert!(!buffer.has_received_for(&both));
    }

    #[tokio::test]
    async fn tasks_too_heavy_for_everybody_can_be_taken_out() {
        let mut buffer = buffer(100, &["a"]);
        let mixed = vec![weighing("a", 1, 11), weighing("a", 2, 10)];
        put(&mut buffer, "a", mixed);
        assert_eq!(buffer.take_heavier(&name("a"), 10).len(), 1);
        assert_eq!(pop(&mut buffer, &ask(&["a"], 9, 10)), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_message_is_renewed_when_its_own_time_has_come() {
        let mut buffer = buffer(100, &["a"]);
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        buffer.put(&name("a"), vec![ranked("a", 1, 0)], start);
        buffer.put(&name("a"), vec![ranked("a", 2, 0)], later);
        assert_eq!(buffer.renew_hidden_before(start, later).len(), 1);
        assert_eq!(buffer.renew_hidden_before(start, later).len(), 0);
        assert_eq!(buffer.renew_hidden_before(later, later).len(), 2);
    }
}
