//! The receive buffer of a job: polls put received references into it, and receivers take references out.
//!
//! Polls run independently of receivers, so dropping a receiver loses no message. Messages that arrive without a
//! receiver are returned to their queue at once, and surplus ones before their visibility timeout could matter.
//!
//! With a queue per priority, the most urgent references go first. While a backlog of a less urgent level is delivered,
//! polls keep running on the more urgent ones, and what they receive between two receivers waits for the next one for a
//! moment. Returned at once, it would meet the same gap again.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dueline_ports::{Delivery, QueueError};
use tokio::{sync::Notify, time::Instant};

use crate::name::LEVELS;

/// Longest wait of a receive that SQS allows.
const POLL_MAX_S: u16 = 20;
/// A long poll that has run for this long found no message when it began. Messages of less urgent levels wait for it.
const FIRST_ANSWER_MAX: Duration = Duration::from_millis(50);
/// How long references of several levels wait for the next receiver.
const NEXT_RECEIVER_MAX: Duration = Duration::from_millis(250);
/// A receiver this close to its deadline starts no further poll.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(100);

/// A received reference that no receiver has taken yet.
#[derive(Debug)]
pub(crate) struct BufferedDelivery {
    pub(crate) delivery: Delivery,
    pub(crate) received_at: Instant,
    /// Until when it waits for the next receiver, if it arrived without one.
    pub(crate) waits_until: Option<Instant>,
}

impl BufferedDelivery {
    fn expires_at(&self, max_age: Duration) -> Instant {
        self.waits_until.unwrap_or(self.received_at + max_age)
    }
}

/// The receive buffer of one job.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    levels: usize,
    /// Longest time that a reference stays in the buffer.
    max_age: Duration,
    state: Mutex<BufferState>,
    /// Notified when a poll has ended.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct BufferState {
    /// Buffered references by level, each in order of arrival.
    buffered: [VecDeque<BufferedDelivery>; LEVELS],
    running: Vec<RunningPoll>,
    /// The number of the next poll.
    next: u64,
    /// The last failed poll of each level.
    failures: [Option<(u64, QueueError)>; LEVELS],
    receivers: usize,
    /// When the last receiver was dropped.
    receiver_left_at: Option<Instant>,
    /// Polls whose references are being returned, because there was no receiver.
    returning: usize,
    /// The sum of what all receivers requested.
    demand: usize,
    /// Whether a task runs that returns expired references.
    is_expiring: bool,
}

#[derive(Clone, Copy, Debug)]
struct RunningPoll {
    number: u64,
    level: usize,
    is_short: bool,
    started_at: Instant,
    ends_at: Instant,
}

/// A poll to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqsPoll {
    pub(crate) number: u64,
    pub(crate) level: usize,
    pub(crate) wait_s: u16,
}

/// The next step of a receiver.
#[derive(Debug)]
pub(crate) enum ReceiveStep {
    Deliver(Vec<Delivery>),
    Fail(QueueError),
    /// The deadline has passed without a reference.
    TimedOut,
    /// Start these polls, then wait for a change, or until the given instant.
    Wait {
        polls: Vec<SqsPoll>,
        until: Option<Instant>,
    },
}

/// What has to be done after a poll.
#[derive(Debug, Default)]
pub(crate) struct PollFollowUp {
    /// References to return to the queue, because there is no receiver.
    pub(crate) to_return: Vec<BufferedDelivery>,
    /// Whether the task that returns expired references must be started.
    pub(crate) start_expiry: bool,
}

/// A registered receiver, until it is dropped.
#[derive(Debug)]
pub(crate) struct BufferReceiver<'a> {
    buffer: &'a ReceiveBuffer,
    max: usize,
    wait: Duration,
    deadline: Instant,
    /// Failures of polls with smaller numbers are not reported to this receiver.
    since: u64,
    has_polled: bool,
}

impl ReceiveBuffer {
    /// A buffer for `levels` queues, from which references older than `max_age` are not delivered.
    pub(crate) fn new(levels: usize, max_age: Duration) -> Self {
        Self {
            levels,
            max_age,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_receiver(&self, max: usize, wait: Duration) -> BufferReceiver<'_> {
        let mut state = self.lock();
        state.receivers += 1;
        for buffered in state.buffered.iter_mut().flatten() {
            buffered.waits_until = None;
        }
        state.demand += max;
        BufferReceiver {
            buffer: self,
            max,
            wait,
            deadline: Instant::now() + wait,
            since: state.next,
            has_polled: false,
        }
    }

    /// How many more references the receivers requested than are buffered.
    pub(crate) fn demand(&self) -> usize {
        let state = self.lock();
        let buffered: usize = state.buffered.iter().map(VecDeque::len).sum();
        state.demand.saturating_sub(buffered)
    }

    /// Takes the result of a poll that has ended.
    pub(crate) fn poll_ended(
        &self,
        poll: SqsPoll,
        result: Result<Vec<BufferedDelivery>, QueueError>,
    ) -> PollFollowUp {
        let mut follow_up = PollFollowUp::default();
        let mut state = self.lock();
        state
            .running
            .retain(|running| running.number != poll.number);
        match result {
            Ok(deliveries) if state.receivers == 0 && !self.awaits_receiver(&state) => {
                state.returning += usize::from(!deliveries.is_empty());
                follow_up.to_return = deliveries;
            }
            Ok(mut deliveries) => {
                if state.receivers == 0 {
                    let until = Instant::now() + NEXT_RECEIVER_MAX;
                    for buffered in &mut deliveries {
                        buffered.waits_until = Some(until);
                    }
                }
                follow_up.start_expiry = !deliveries.is_empty() && !state.is_expiring;
                state.is_expiring |= follow_up.start_expiry;
                state.buffered[poll.level].extend(deliveries);
            }
            Err(error) => state.failures[poll.level] = Some((poll.number, error)),
        }
        drop(state);
        self.changed.notify_waiters();
        follow_up
    }

    /// Whether the next receiver is likely to come at once: the last one has just left, with less urgent references.
    fn awaits_receiver(&self, state: &BufferState) -> bool {
        let left_at = state.receiver_left_at;
        self.levels > 1 && left_at.is_some_and(|at| at.elapsed() < NEXT_RECEIVER_MAX)
    }

    /// Notes that references without a receiver have been returned.
    pub(crate) fn returned(&self) {
        let mut state = self.lock();
        state.returning = state.returning.saturating_sub(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until no poll can receive messages that were returned just now, or until there is a receiver for them.
    pub(crate) async fn wait_until_quiet(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let is_quiet = {
                let state = self.lock();
                let mut buffered = state.buffered.iter().flatten();
                state.receivers > 0
                    || (state.running.is_empty()
                        && state.returning == 0
                        && buffered.all(|buffered| buffered.waits_until.is_none()))
            };
            if is_quiet {
                return;
            }
            changed.await;
        }
    }

    /// When the next reference expires. `None` if the buffer is empty; the expiry task then ends.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let mut state = self.lock();
        let buffered = state.buffered.iter().flatten();
        let next = buffered
            .map(|buffered| buffered.expires_at(self.max_age))
            .min();
        state.is_expiring = next.is_some();
        next
    }

    /// Removes the expired references. [`ReceiveBuffer::returned`] must be called when they have been returned.
    pub(crate) fn take_expired(&self) -> Vec<BufferedDelivery> {
        let now = Instant::now();
        let mut state = self.lock();
        let mut expired = Vec::new();
        for buffered in &mut state.buffered {
            let is_expired = |buffered: &BufferedDelivery| buffered.expires_at(self.max_age) <= now;
            let (old, kept) = std::mem::take(buffered).into_iter().partition(is_expired);
            *buffered = kept;
            expired.extend::<VecDeque<_>>(old);
        }
        state.returning += 1;
        expired
    }
}

impl BufferReceiver<'_> {
    /// Must be called again after each change, and at the instant that it returned.
    pub(crate) fn step(&mut self) -> ReceiveStep {
        let now = Instant::now();
        let mut state = self.buffer.lock();
        // A short poll of several levels is complete when all have answered: the first answer need not be the most
        // urgent.
        let is_own_short_poll = |poll: &RunningPoll| poll.is_short && poll.number >= self.since;
        if self.wait.is_zero() && state.running.iter().any(is_own_short_poll) {
            let polls = Vec::new();
            return ReceiveStep::Wait { polls, until: None };
        }
        if let Some(most_urgent) = state.most_urgent(now, self.buffer.max_age) {
            let polls = self.poll_above(&mut state, most_urgent, now);
            let until = state.answered_at(most_urgent);
            if !self.wait.is_zero() && until.is_some_and(|until| until > now) {
                return ReceiveStep::Wait { polls, until };
            }
            return ReceiveStep::Deliver(state.take(self.max, now, self.buffer.max_age));
        }
        let mut failures = state.failures.iter().flatten();
        if let Some((_, error)) = failures.find(|(number, _)| *number >= self.since) {
            return ReceiveStep::Fail(error.clone());
        }
        let left = self.deadline.saturating_duration_since(now);
        let is_first = !self.has_polled;
        self.has_polled = true;
        let mut polls = Vec::new();
        if is_first || left > DEADLINE_TOLERANCE {
            // A receiver that does not wait needs what is there now, not what a running long poll receives later.
            let is_short = self.wait.is_zero();
            for level in 0..self.buffer.levels {
                let mut running = state.running.iter();
                if !running.any(|poll| poll.level == level && (poll.is_short || !is_short)) {
                    polls.push(state.start_poll(level, left, now));
                }
            }
        }
        let ends_in_time = |poll: &RunningPoll| {
            poll.number >= self.since && poll.ends_at <= self.deadline + DEADLINE_TOLERANCE
        };
        let until = match state.running.iter().any(ends_in_time) {
            true => None,
            false if left <= DEADLINE_TOLERANCE && !is_first => return ReceiveStep::TimedOut,
            false => Some(self.deadline),
        };
        ReceiveStep::Wait { polls, until }
    }
}

impl BufferReceiver<'_> {
    /// Starts polls on all levels that are more urgent than `level`.
    fn poll_above(&self, state: &mut BufferState, level: usize, now: Instant) -> Vec<SqsPoll> {
        let left = self.deadline.saturating_duration_since(now);
        if left <= DEADLINE_TOLERANCE {
            return Vec::new();
        }
        let is_idle = |state: &BufferState, level| {
            let mut running = state.running.iter();
            !running.any(|poll| poll.level == level)
        };
        let mut polls = Vec::new();
        for level in 0..level {
            if is_idle(state, level) {
                polls.push(state.start_poll(level, left, now));
            }
        }
        polls
    }
}

impl Drop for BufferReceiver<'_> {
    fn drop(&mut self) {
        let mut state = self.buffer.lock();
        state.receivers -= 1;
        state.receiver_left_at = Some(Instant::now());
        state.demand -= self.max;
    }
}

impl BufferState {
    /// The most urgent level that has references to deliver.
    fn most_urgent(&self, now: Instant, max_age: Duration) -> Option<usize> {
        let has_fresh = |buffered: &VecDeque<BufferedDelivery>| {
            let last = buffered.back();
            last.is_some_and(|last| last.expires_at(max_age) > now)
        };
        self.buffered.iter().position(has_fresh)
    }

    /// When the polls on all levels that are more urgent than `level` have found what was there when they began. `None`
    /// if there are none.
    fn answered_at(&self, level: usize) -> Option<Instant> {
        let above = self.running.iter().filter(|poll| poll.level < level);
        above.map(|poll| poll.started_at + FIRST_ANSWER_MAX).max()
    }

    /// Takes references, the most urgent first. Expired ones stay, to be returned.
    fn take(&mut self, max: usize, now: Instant, max_age: Duration) -> Vec<Delivery> {
        let mut delivered = Vec::new();
        for buffered in &mut self.buffered {
            let from = buffered.partition_point(|buffered| buffered.expires_at(max_age) <= now);
            let to = buffered.len().min(from + max - delivered.len());
            delivered.extend(buffered.drain(from..to).map(|buffered| buffered.delivery));
        }
        delivered
    }

    /// Starts a poll. SQS counts in whole seconds, so a poll may last a little longer than its receiver waits.
    fn start_poll(&mut self, level: usize, left: Duration, now: Instant) -> SqsPoll {
        let wait_s = left.as_millis().div_ceil(1_000);
        let wait_s = u16::try_from(wait_s).unwrap_or(u16::MAX).min(POLL_MAX_S);
        let number = self.next;
        self.next += 1;
        self.running.push(RunningPoll {
            number,
            level,
            is_short: wait_s == 0,
            started_at: now,
            ends_at: now + Duration::from_secs(wait_s.into()),
        });
        SqsPoll {
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

    const MAX_AGE: Duration = Duration::from_secs(7);
    const SECOND: Duration = Duration::from_secs(1);

    fn buffered(numbers: std::ops::Range<u64>) -> Vec<BufferedDelivery> {
        let buffered = |number| BufferedDelivery {
            delivery: Delivery {
                task: message(&job(), number),
                receipt: Receipt::Local { job: job(), number },
                received: 1,
            },
            received_at: Instant::now(),
            waits_until: None,
        };
        numbers.map(buffered).collect()
    }

    fn polls(step: ReceiveStep) -> (Vec<SqsPoll>, Option<Instant>) {
        match step {
            ReceiveStep::Wait { polls, until } => (polls, until),
            other => panic!("{other:?}"),
        }
    }

    fn delivered(step: ReceiveStep) -> Vec<u64> {
        match step {
            ReceiveStep::Deliver(delivered) => {
                delivered.iter().map(|d| d.task.token.get() - 1).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_share_one_poll_and_its_messages() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let (mut a, mut b) = (
            buffer.add_receiver(2, 20 * SECOND),
            buffer.add_receiver(2, 30 * SECOND),
        );
        let (started, until) = polls(a.step());
        assert_eq!((started.len(), started[0].wait_s, until), (1, 20, None));
        assert!(polls(b.step()).0.is_empty());
        assert_eq!(buffer.demand(), 4);
        assert!(
            buffer
                .poll_ended(started[0], Ok(buffered(0..3)))
                .start_expiry
        );
        assert_eq!(delivered(a.step()), [0, 1]);
        assert_eq!(delivered(b.step()), [2]);
        drop((a, b));
        assert_eq!(buffer.next_expiry(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_longer_than_a_poll_takes_several_polls() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let mut receiver = buffer.add_receiver(1, Duration::from_millis(31_500));
        let (started, until) = polls(receiver.step());
        assert_eq!((started[0].wait_s, until), (20, None));
        tokio::time::advance(20 * SECOND).await;
        buffer.poll_ended(started[0], Ok(Vec::new()));
        let (started, until) = polls(receiver.step());
        let ends_at = Instant::now() + Duration::from_millis(11_500);
        assert_eq!((started[0].wait_s, until), (12, Some(ends_at)));
        tokio::time::advance(ends_at - Instant::now()).await;
        assert!(matches!(receiver.step(), ReceiveStep::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_below_a_second_leaves_its_poll_to_the_next_receiver() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let mut first = buffer.add_receiver(1, SECOND / 10);
        let (started, until) = polls(first.step());
        assert_eq!(
            (started[0].wait_s, until),
            (1, Some(Instant::now() + SECOND / 10))
        );
        tokio::time::advance(SECOND / 10).await;
        assert!(matches!(first.step(), ReceiveStep::TimedOut));
        drop(first);
        let mut second = buffer.add_receiver(1, 20 * SECOND);
        assert!(polls(second.step()).0.is_empty(), "the poll continues");
        buffer.poll_ended(started[0], Ok(buffered(5..6)));
        assert_eq!(delivered(second.step()), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_does_not_wait_starts_its_own_short_polls() {
        let buffer = ReceiveBuffer::new(2, MAX_AGE);
        let mut long = buffer.add_receiver(1, 20 * SECOND);
        assert_eq!(polls(long.step()).0.len(), 2);
        let mut short = buffer.add_receiver(1, Duration::ZERO);
        let (started, until) = polls(short.step());
        assert_eq!((started.len(), started[0].wait_s, until), (2, 0, None));
        buffer.poll_ended(started[0], Ok(Vec::new()));
        assert!(
            polls(short.step()).0.is_empty(),
            "the short poll of the other level is still running"
        );
        buffer.poll_ended(started[1], Ok(Vec::new()));
        assert!(matches!(short.step(), ReceiveStep::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_poll_of_several_levels_waits_for_all_of_them() {
        let buffer = ReceiveBuffer::new(2, MAX_AGE);
        let mut receiver = buffer.add_receiver(2, Duration::ZERO);
        let (started, _) = polls(receiver.step());
        buffer.poll_ended(started[1], Ok(buffered(20..22)));
        assert_eq!(polls(receiver.step()), (Vec::new(), None));
        buffer.poll_ended(started[0], Ok(buffered(10..11)));
        assert_eq!(delivered(receiver.step()), [10, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_level_goes_first() {
        let buffer = ReceiveBuffer::new(LEVELS, MAX_AGE);
        let mut receiver = buffer.add_receiver(3, SECOND);
        let (started, _) = polls(receiver.step());
        assert_eq!(started.len(), LEVELS);
        buffer.poll_ended(started[4], Ok(buffered(40..42)));
        buffer.poll_ended(started[1], Ok(buffered(10..12)));
        let answered_at = Instant::now() + FIRST_ANSWER_MAX;
        assert_eq!(polls(receiver.step()), (Vec::new(), Some(answered_at)));
        tokio::time::advance(FIRST_ANSWER_MAX).await;
        assert_eq!(delivered(receiver.step()), [10, 11, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn f_152_urgent_levels_are_polled_while_a_backlog_of_low_ones_is_delivered() {
        let buffer = ReceiveBuffer::new(2, MAX_AGE);
        let receiver = || buffer.add_receiver(1, 20 * SECOND);
        let mut first = receiver();
        let (started, _) = polls(first.step());
        buffer.poll_ended(started[1], Ok(buffered(10..30)));
        tokio::time::advance(FIRST_ANSWER_MAX).await;
        assert_eq!(delivered(first.step()), [10]);
        drop(first);
        // The long poll of the urgent level still runs, so the backlog is delivered without a further wait.
        assert_eq!(delivered(receiver().step()), [11]);
        // An urgent reference that arrives between two receivers is the next one.
        buffer.poll_ended(started[0], Ok(buffered(0..1)));
        assert_eq!(delivered(receiver().step()), [0]);
        let mut last = receiver();
        let (started, until) = polls(last.step());
        assert_eq!((started.len(), started[0].level), (1, 0));
        assert_eq!(until, Some(Instant::now() + FIRST_ANSWER_MAX));
        buffer.poll_ended(started[0], Ok(buffered(1..2)));
        assert_eq!(delivered(last.step()), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_between_two_receivers_of_several_levels_is_returned_when_none_comes() {
        let buffer = ReceiveBuffer::new(2, MAX_AGE);
        let mut receiver = buffer.add_receiver(1, 20 * SECOND);
        let (started, _) = polls(receiver.step());
        drop(receiver);
        let follow_up = buffer.poll_ended(started[0], Ok(buffered(0..2)));
        assert_eq!(
            (follow_up.to_return.len(), follow_up.start_expiry),
            (0, true)
        );
        buffer.poll_ended(started[1], Ok(Vec::new()));
        let quiet = || tokio::time::timeout(SECOND / 1_000, buffer.wait_until_quiet());
        assert!(quiet().await.is_err());
        let expiry = buffer.next_expiry().unwrap();
        assert!(expiry <= Instant::now() + NEXT_RECEIVER_MAX);
        tokio::time::advance(NEXT_RECEIVER_MAX).await;
        assert_eq!(buffer.take_expired().len(), 2);
        assert!(quiet().await.is_err(), "they are being returned");
        buffer.returned();
        assert!(quiet().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn messages_without_a_receiver_are_returned_at_once() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let mut receiver = buffer.add_receiver(1, SECOND);
        let (started, _) = polls(receiver.step());
        drop(receiver);
        let follow_up = buffer.poll_ended(started[0], Ok(buffered(0..2)));
        assert_eq!(
            (follow_up.to_return.len(), follow_up.start_expiry),
            (2, false)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_buffer_is_quiet_when_there_is_a_receiver_or_no_poll_can_receive_messages() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let quiet = || tokio::time::timeout(SECOND, buffer.wait_until_quiet());
        let mut receiver = buffer.add_receiver(1, SECOND);
        let (started, _) = polls(receiver.step());
        assert!(quiet().await.is_ok(), "there is a receiver");
        drop(receiver);
        assert!(quiet().await.is_err());
        assert_eq!(
            buffer
                .poll_ended(started[0], Ok(buffered(0..2)))
                .to_return
                .len(),
            2
        );
        assert!(quiet().await.is_err(), "they are being returned");
        buffer.returned();
        assert!(quiet().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_references_are_not_delivered() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let mut receiver = buffer.add_receiver(1, SECOND);
        let (started, _) = polls(receiver.step());
        assert!(
            buffer
                .poll_ended(started[0], Ok(buffered(0..3)))
                .start_expiry
        );
        assert_eq!(delivered(receiver.step()), [0]);
        assert_eq!(buffer.next_expiry(), Some(Instant::now() + MAX_AGE));
        assert!(buffer.take_expired().is_empty());
        tokio::time::advance(MAX_AGE).await;
        let mut late = buffer.add_receiver(1, SECOND);
        assert_eq!(polls(late.step()).0.len(), 1, "it has to poll SQS");
        assert_eq!(buffer.take_expired().len(), 2);
        assert_eq!(buffer.next_expiry(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_reported_only_to_receivers_that_waited_for_its_poll() {
        let buffer = ReceiveBuffer::new(1, MAX_AGE);
        let mut first = buffer.add_receiver(1, SECOND);
        let (started, _) = polls(first.step());
        let mut late = buffer.add_receiver(1, SECOND);
        assert!(polls(late.step()).0.is_empty());
        buffer.poll_ended(started[0], Err(QueueError::Throttled));
        assert!(matches!(
            first.step(),
            ReceiveStep::Fail(QueueError::Throttled)
        ));
        let (own, _) = polls(late.step());
        assert_eq!(own.len(), 1);
        buffer.poll_ended(own[0], Ok(buffered(1..2)));
        assert_eq!(delivered(late.step()), [1]);
    }
}
