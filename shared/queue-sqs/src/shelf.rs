//! Where polls put what they bring, and where receivers take it from.
//!
//! Polls run on their own, so that a receiver that goes away tears nothing: what comes for nobody goes back to its
//! queue at once, and what was left over goes back before its visibility timeout could matter.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_ports::{Delivery, QueueError};
use tokio::{sync::Notify, time::Instant};

use crate::name::LEVELS;

/// Longest wait that SQS knows.
const POLL_MAX_S: u16 = 20;
/// A receiver whose time is over by so little asks no more.
const MOMENT: Duration = Duration::from_millis(100);

/// A received reference that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) delivery: Delivery,
    pub(crate) received_at: Instant,
}

/// The shelf of one job.
#[derive(Debug)]
pub(crate) struct Shelf {
    levels: usize,
    /// Longest time that something stays here.
    hold: Duration,
    state: Mutex<State>,
    /// A poll has ended.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By level, each in order of arrival.
    held: [VecDeque<Held>; LEVELS],
    running: Vec<Running>,
    /// Number of the next poll.
    next: u64,
    /// The last failed poll of each level.
    failures: [Option<(u64, QueueError)>; LEVELS],
    receivers: usize,
    /// Polls whose references are on their way back, because nobody waited for them.
    giving_back: usize,
    /// What all receivers together want.
    wanted: usize,
    /// Somebody looks after what stays too long.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    number: u64,
    level: usize,
    is_short: bool,
    ends_at: Instant,
}

/// A poll to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    pub(crate) number: u64,
    pub(crate) level: usize,
    pub(crate) wait_s: u16,
}

/// What a receiver does next.
#[derive(Debug)]
pub(crate) enum Step {
    Take(Vec<Delivery>),
    Fail(QueueError),
    /// Its time is over.
    Leave,
    /// Make these polls, then wait for a change, or until then.
    Wait {
        polls: Vec<Poll>,
        until: Option<Instant>,
    },
}

/// What is to be done after a poll.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Nobody waits for these.
    pub(crate) give_back: Vec<Held>,
    /// Somebody must look after what stays.
    pub(crate) keep: bool,
}

/// A receiver at the shelf, until it goes away.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    shelf: &'a Shelf,
    max: usize,
    wait: Duration,
    deadline: Instant,
    /// Failures of polls with smaller numbers are not this receiver's.
    since: u64,
    has_begun: bool,
}

impl Shelf {
    /// For `levels` queues; what is taken from it must have stayed less than `hold`.
    pub(crate) fn new(levels: usize, hold: Duration) -> Self {
        Self {
            levels,
            hold,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, max: usize, wait: Duration) -> Receiver<'_> {
        let mut state = self.lock();
        state.receivers += 1;
        state.wanted += max;
        Receiver {
            shelf: self,
            max,
            wait,
            deadline: Instant::now() + wait,
            since: state.next,
            has_begun: false,
        }
    }

    /// How many more references the receivers want.
    pub(crate) fn wanted(&self) -> usize {
        let state = self.lock();
        let held: usize = state.held.iter().map(VecDeque::len).sum();
        state.wanted.saturating_sub(held)
    }

    /// A poll has ended, with what it brought.
    pub(crate) fn ended(&self, poll: Poll, result: Result<Vec<Held>, QueueError>) -> Ended {
        let mut ended = Ended::default();
        let mut state = self.lock();
        state
            .running
            .retain(|running| running.number != poll.number);
        match result {
            Ok(brought) if state.receivers == 0 => {
                state.giving_back += usize::from(!brought.is_empty());
                ended.give_back = brought;
            }
            Ok(brought) => {
                ended.keep = !brought.is_empty() && !state.is_kept;
                state.is_kept |= ended.keep;
                state.held[poll.level].extend(brought);
            }
            Err(error) => state.failures[poll.level] = Some((poll.number, error)),
        }
        drop(state);
        self.changed.notify_waiters();
        ended
    }

    /// What a poll brought for nobody has been given back.
    pub(crate) fn given_back(&self) {
        let mut state = self.lock();
        state.giving_back = state.giving_back.saturating_sub(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until no poll can take what was given back, as long as nobody wants to have it.
    pub(crate) async fn is_quiet(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let is_quiet = {
                let state = self.lock();
                state.receivers > 0 || (state.running.is_empty() && state.giving_back == 0)
            };
            if is_quiet {
                return;
            }
            changed.await;
        }
    }

    /// When the oldest will have stayed too long. None, and nobody looks after the shelf any more, when it is empty.
    pub(crate) fn keep_until(&self) -> Option<Instant> {
        let mut state = self.lock();
        let oldest = state.held.iter().filter_map(VecDeque::front);
        let oldest = oldest.map(|held| held.received_at).min();
        state.is_kept = oldest.is_some();
        oldest.map(|at| at + self.hold)
    }

    /// Takes away what has stayed too long.
    pub(crate) fn overdue(&self) -> Vec<Held> {
        let now = Instant::now();
        let mut state = self.lock();
        let held = state.held.iter_mut();
        held.flat_map(|held| {
            let count = held.partition_point(|held| held.received_at + self.hold <= now);
            held.drain(..count).collect::<Vec<_>>()
        })
        .collect()
    }
}

impl Receiver<'_> {
    /// Must be called again after each change, and when the time it answered has come.
    pub(crate) fn step(&mut self) -> Step {
        let now = Instant::now();
        let mut state = self.shelf.lock();
        // A look at several levels is over when all have answered: the quickest need not be the most urgent.
        let is_mine = |poll: &Running| poll.is_short && poll.number >= self.since;
        if self.wait.is_zero() && state.running.iter().any(is_mine) {
            let polls = Vec::new();
            return Step::Wait { polls, until: None };
        }
        let taken = state.take(self.max, now, self.shelf.hold);
        if !taken.is_empty() {
            return Step::Take(taken);
        }
        let mut failures = state.failures.iter().flatten();
        if let Some((_, error)) = failures.find(|(number, _)| *number >= self.since) {
            return Step::Fail(error.clone());
        }
        let left = self.deadline.saturating_duration_since(now);
        let is_first = !self.has_begun;
        self.has_begun = true;
        let mut polls = Vec::new();
        if is_first || left > MOMENT {
            // Someone who does not wait wants to know what is there now, not when a long poll ends.
            let is_short = self.wait.is_zero();
            for level in 0..self.shelf.levels {
                let mut running = state.running.iter();
                if !running.any(|poll| poll.level == level && (poll.is_short || !is_short)) {
                    polls.push(state.begin(level, left, now));
                }
            }
        }
        let ends_in_time =
            |poll: &Running| poll.number >= self.since && poll.ends_at <= self.deadline + MOMENT;
        let until = match state.running.iter().any(ends_in_time) {
            true => None,
            false if left <= MOMENT && !is_first => return Step::Leave,
            false => Some(self.deadline),
        };
        Step::Wait { polls, until }
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        let mut state = self.shelf.lock();
        state.receivers -= 1;
        state.wanted -= self.max;
    }
}

impl State {
    /// The most urgent first. What has stayed too long is left for its way back.
    fn take(&mut self, max: usize, now: Instant, hold: Duration) -> Vec<Delivery> {
        let mut taken = Vec::new();
        for held in &mut self.held {
            let from = held.partition_point(|held| held.received_at + hold <= now);
            let to = held.len().min(from + max - taken.len());
            taken.extend(held.drain(from..to).map(|held| held.delivery));
        }
        taken
    }

    /// SQS counts in whole seconds: a poll may last a little longer than its receiver waits.
    fn begin(&mut self, level: usize, left: Duration, now: Instant) -> Poll {
        let wait_s = left.as_millis().div_ceil(1_000);
        let wait_s = u16::try_from(wait_s).unwrap_or(u16::MAX).min(POLL_MAX_S);
        let number = self.next;
        self.next += 1;
        self.running.push(Running {
            number,
            level,
            is_short: wait_s == 0,
            ends_at: now + Duration::from_secs(wait_s.into()),
        });
        Poll {
            number,
            level,
            wait_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use dueline_ports::{Receipt, conformance::queue::message};

    use super::*;
    use crate::wire::tests::job;

    const HOLD: Duration = Duration::from_secs(7);
    const SECOND: Duration = Duration::from_secs(1);

    fn held(numbers: std::ops::Range<u64>) -> Vec<Held> {
        let held = |number| Held {
            delivery: Delivery {
                task: message(&job(), number),
                receipt: Receipt::Local { job: job(), number },
                received: 1,
            },
            received_at: Instant::now(),
        };
        numbers.map(held).collect()
    }

    fn polls(step: Step) -> (Vec<Poll>, Option<Instant>) {
        match step {
            Step::Wait { polls, until } => (polls, until),
            other => panic!("{other:?}"),
        }
    }

    fn taken(step: Step) -> Vec<u64> {
        match step {
            Step::Take(taken) => taken.iter().map(|d| d.task.token.get() - 1).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_share_one_poll_and_what_it_brings() {
        let shelf = Shelf::new(1, HOLD);
        let (mut a, mut b) = (shelf.enter(2, 20 * SECOND), shelf.enter(2, 30 * SECOND));
        let (begun, until) = polls(a.step());
        assert_eq!((begun.len(), begun[0].wait_s, until), (1, 20, None));
        assert!(polls(b.step()).0.is_empty());
        assert_eq!(shelf.wanted(), 4);
        assert!(shelf.ended(begun[0], Ok(held(0..3))).keep);
        assert_eq!(taken(a.step()), [0, 1]);
        assert_eq!(taken(b.step()), [2]);
        drop((a, b));
        assert_eq!(shelf.keep_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_wait_than_a_poll_takes_several() {
        let shelf = Shelf::new(1, HOLD);
        let mut receiver = shelf.enter(1, Duration::from_millis(31_500));
        let (begun, until) = polls(receiver.step());
        assert_eq!((begun[0].wait_s, until), (20, None));
        tokio::time::advance(20 * SECOND).await;
        shelf.ended(begun[0], Ok(Vec::new()));
        let (begun, until) = polls(receiver.step());
        let ends_at = Instant::now() + Duration::from_millis(11_500);
        assert_eq!((begun[0].wait_s, until), (12, Some(ends_at)));
        tokio::time::advance(ends_at - Instant::now()).await;
        assert!(matches!(receiver.step(), Step::Leave));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_below_a_second_leaves_its_poll_to_the_next_receiver() {
        let shelf = Shelf::new(1, HOLD);
        let mut first = shelf.enter(1, SECOND / 10);
        let (begun, until) = polls(first.step());
        assert_eq!(
            (begun[0].wait_s, until),
            (1, Some(Instant::now() + SECOND / 10))
        );
        tokio::time::advance(SECOND / 10).await;
        assert!(matches!(first.step(), Step::Leave));
        drop(first);
        let mut second = shelf.enter(1, 20 * SECOND);
        assert!(polls(second.step()).0.is_empty(), "the poll goes on");
        shelf.ended(begun[0], Ok(held(5..6)));
        assert_eq!(taken(second.step()), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_gets_a_look_of_his_own() {
        let shelf = Shelf::new(2, HOLD);
        let mut long = shelf.enter(1, 20 * SECOND);
        assert_eq!(polls(long.step()).0.len(), 2);
        let mut short = shelf.enter(1, Duration::ZERO);
        let (begun, until) = polls(short.step());
        assert_eq!((begun.len(), begun[0].wait_s, until), (2, 0, None));
        shelf.ended(begun[0], Ok(Vec::new()));
        assert!(
            polls(short.step()).0.is_empty(),
            "the other one is under way"
        );
        shelf.ended(begun[1], Ok(Vec::new()));
        assert!(matches!(short.step(), Step::Leave));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_several_levels_waits_for_all_of_them() {
        let shelf = Shelf::new(2, HOLD);
        let mut receiver = shelf.enter(2, Duration::ZERO);
        let (begun, _) = polls(receiver.step());
        shelf.ended(begun[1], Ok(held(20..22)));
        assert_eq!(polls(receiver.step()), (Vec::new(), None));
        shelf.ended(begun[0], Ok(held(10..11)));
        assert_eq!(taken(receiver.step()), [10, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_level_goes_first() {
        let shelf = Shelf::new(LEVELS, HOLD);
        let mut receiver = shelf.enter(3, SECOND);
        let (begun, _) = polls(receiver.step());
        assert_eq!(begun.len(), LEVELS);
        shelf.ended(begun[4], Ok(held(40..42)));
        shelf.ended(begun[1], Ok(held(10..12)));
        assert_eq!(taken(receiver.step()), [10, 11, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_for_nobody_goes_back_at_once() {
        let shelf = Shelf::new(1, HOLD);
        let mut receiver = shelf.enter(1, SECOND);
        let (begun, _) = polls(receiver.step());
        drop(receiver);
        let ended = shelf.ended(begun[0], Ok(held(0..2)));
        assert_eq!((ended.give_back.len(), ended.keep), (2, false));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_when_no_poll_can_take_what_nobody_wants() {
        let shelf = Shelf::new(1, HOLD);
        let quiet = || tokio::time::timeout(SECOND, shelf.is_quiet());
        let mut receiver = shelf.enter(1, SECOND);
        let (begun, _) = polls(receiver.step());
        assert!(quiet().await.is_ok(), "somebody takes what comes");
        drop(receiver);
        assert!(quiet().await.is_err());
        assert_eq!(shelf.ended(begun[0], Ok(held(0..2))).give_back.len(), 2);
        assert!(quiet().await.is_err(), "they are on their way back");
        shelf.given_back();
        assert!(quiet().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_too_long_is_not_handed_out_any_more() {
        let shelf = Shelf::new(1, HOLD);
        let mut receiver = shelf.enter(1, SECOND);
        let (begun, _) = polls(receiver.step());
        assert!(shelf.ended(begun[0], Ok(held(0..3))).keep);
        assert_eq!(taken(receiver.step()), [0]);
        assert_eq!(shelf.keep_until(), Some(Instant::now() + HOLD));
        assert!(shelf.overdue().is_empty());
        tokio::time::advance(HOLD).await;
        let mut late = shelf.enter(1, SECOND);
        assert_eq!(polls(late.step()).0.len(), 1, "it has to ask SQS");
        assert_eq!(shelf.overdue().len(), 2);
        assert_eq!(shelf.keep_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_to_those_who_waited_for_it_only() {
        let shelf = Shelf::new(1, HOLD);
        let mut first = shelf.enter(1, SECOND);
        let (begun, _) = polls(first.step());
        let mut late = shelf.enter(1, SECOND);
        assert!(polls(late.step()).0.is_empty());
        shelf.ended(begun[0], Err(QueueError::Throttled));
        assert!(matches!(first.step(), Step::Fail(QueueError::Throttled)));
        let (own, _) = polls(late.step());
        assert_eq!(own.len(), 1);
        shelf.ended(own[0], Ok(held(1..2)));
        assert_eq!(taken(late.step()), [1]);
    }
}
