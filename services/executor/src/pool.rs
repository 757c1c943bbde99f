//! The slots of the executor, and the claims that wait for a free slot.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::{Config, prefetch::PrefetchEstimate, run::Run};

/// The weight in slots and in claims ahead of them. Ending a run and starting the next takes the lock once.
pub(crate) struct SlotPool {
    concurrency: u32,
    concurrency_min: Option<u32>,
    state: Mutex<SlotPoolState>,
    freed: Notify,
    idle: Notify,
}

struct SlotPoolState {
    buffer: VecDeque<Arc<Run>>,
    buffered_weight: u32,
    running_weight: u32,
    running: u32,
    prefetch: PrefetchEstimate,
    /// Whether claims start their runs, so that nothing may be claimed ahead of a free slot.
    claims_start: bool,
    /// Whether the poll loop waits for free weight. Saves a wake-up per task while the pool is full.
    is_awaited: bool,
    is_closed: bool,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRun {
    pub(crate) weight: u32,
    /// Since when it occupied its slot.
    pub(crate) since: Instant,
}

/// What can run after a run has ended.
#[derive(Default)]
pub(crate) struct NextRun {
    /// The next run, which now occupies its weight.
    pub(crate) run: Option<Arc<Run>>,
    /// Whether another claim fits.
    pub(crate) more: bool,
    /// Claims that are too old to begin.
    pub(crate) stale: Vec<Arc<Run>>,
}

/// The weight to poll for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeWeight {
    pub(crate) weight: u32,
    /// Whether claims start their runs. Then `weight` is free in slots.
    pub(crate) start: bool,
    /// Whether nothing runs or waits, so that the free weight cannot grow during the poll.
    pub(crate) is_all: bool,
}

impl SlotPool {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        // A minimum means that tasks are polled for in batches. Then no claim may wait here.
        let ahead_max = match config.concurrency_min {
            Some(_) => 0,
            None => u32::try_from(config.prefetch_max).unwrap_or(u32::MAX),
        };
        Self {
            concurrency: config.concurrency,
            concurrency_min: config.concurrency_min,
            state: Mutex::new(SlotPoolState {
                buffer: VecDeque::new(),
                buffered_weight: 0,
                running_weight: 0,
                running: 0,
                prefetch: PrefetchEstimate::new(now, config.concurrency, ahead_max),
                claims_start: false,
                is_awaited: false,
                is_closed: false,
            }),
            freed: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Sets whether claims start their runs from now on.
    pub(crate) fn set_claims_start(&self, claims_start: bool) {
        self.state().claims_start = claims_start;
    }

    /// Adds claims. After [`SlotPool::close`], returns them instead.
    pub(crate) fn add(&self, runs: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
        let mut state = self.state();
        if state.is_closed {
            return runs;
        }
        state.buffered_weight += runs.iter().map(|run| run.weight()).sum::<u32>();
        state.buffer.extend(runs);
        Vec::new()
    }

    /// Frees the weight of an ended run, if given, and starts the next claim if it fits.
    pub(crate) fn next(&self, ended: Option<EndedRun>, now: Instant) -> NextRun {
        let mut next = NextRun::default();
        let mut state = self.state();
        if let Some(EndedRun { weight, since }) = ended {
            state.running_weight -= weight;
            state.running -= 1;
            let took = now.saturating_duration_since(since);
            state.prefetch.finished(weight, took);
        }
        state.remove_stale(now, &mut next.stale);
        if state.head_fits(self.concurrency)
            && let Some(run) = state.buffer.pop_front()
        {
            state.buffered_weight -= run.weight();
            state.running_weight += run.weight();
            state.running += 1;
            next.run = Some(run);
            next.more = state.head_fits(self.concurrency);
        }
        let is_idle = state.running == 0 && state.buffer.is_empty();
        let wake = state.is_awaited && self.free_weight_in(&state).weight > 0;
        if wake {
            state.is_awaited = false;
        }
        drop(state);
        if wake {
            self.freed.notify_one();
        }
        if is_idle {
            self.idle.notify_waiters();
        }
        next
    }

    /// Waits until there is weight to poll for. Cancel safe.
    pub(crate) async fn free_weight(&self) -> FreeWeight {
        loop {
            {
                let mut state = self.state();
                state.prefetch.measure(Instant::now());
                let free = self.free_weight_in(&state);
                if free.weight > 0 {
                    return free;
                }
                state.is_awaited = true;
            }
            self.freed.notified().await;
        }
    }

    /// Removes and returns the claims that are too old to begin.
    pub(crate) fn take_stale(&self, now: Instant) -> Vec<Arc<Run>> {
        let mut stale = Vec::new();
        self.state().remove_stale(now, &mut stale);
        stale
    }

    /// Stops accepting claims. Returns the claims that have not begun.
    pub(crate) fn close(&self) -> Vec<Arc<Run>> {
        let mut state = self.state();
        state.is_closed = true;
        state.buffered_weight = 0;
        let runs = state.buffer.drain(..).collect();
        drop(state);
        self.idle.notify_waiters();
        runs
    }

    /// Waits until no task runs and no claim waits. Cancel safe.
    pub(crate) async fn until_idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            {
                let state = self.state();
                if state.running == 0 && state.buffer.is_empty() {
                    return;
                }
            }
            idle.await;
        }
    }

    /// How many runs occupy slots.
    pub(crate) fn running(&self) -> u32 {
        self.state().running
    }

    fn free_weight_in(&self, state: &SlotPoolState) -> FreeWeight {
        let used = state.running_weight + state.buffered_weight;
        let ahead = match state.claims_start {
            true => 0,
            false => state.prefetch.target(),
        };
        let may_poll = match self.concurrency_min {
            Some(min) => used < min,
            None => used < self.concurrency || state.buffered_weight < ahead.div_ceil(2),
        };
        let free = (self.concurrency + ahead).saturating_sub(used);
        FreeWeight {
            weight: if may_poll { free } else { 0 },
            start: state.claims_start,
            is_all: used == 0,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotPoolState {
    /// Whether the first claim fits. Claims keep their order: a light task does not overtake a heavy one before it.
    fn head_fits(&self, concurrency: u32) -> bool {
        let head = self.buffer.front();
        head.is_some_and(|run| self.running_weight + run.weight() <= concurrency)
    }

    fn remove_stale(&mut self, now: Instant, stale: &mut Vec<Arc<Run>>) {
        let is_stale = |run: &mut Arc<Run>| run.begin_by.is_some_and(|by| by <= now);
        while let Some(run) = self.buffer.pop_front_if(is_stale) {
            self.buffered_weight -= run.weight();
            stale.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{assignment, run};
    use dueline_api::Assignment;
    use dueline_domain::Weight;
    use std::time::Duration;

    fn pool(concurrency: u32) -> SlotPool {
        let config = Config {
            concurrency,
            ..Config::new("w", 1)
        };
        SlotPool::new(&config, Instant::now())
    }

    fn of_weight(number: u8, weight: i64) -> Arc<Run> {
        let weight = Weight::new(weight).unwrap();
        let task = Assignment {
            weight,
            ..assignment(number)
        };
        run(number, task)
    }

    #[tokio::test(start_paused = true)]
    async fn f_034_weight_counts_and_a_light_task_does_not_overtake_a_heavy_one() {
        let (pool, now) = (pool(10), Instant::now());
        let runs = [(1, 6), (2, 4), (3, 5), (4, 1)].map(|(n, w)| of_weight(n, w));
        assert!(pool.add(runs.into()).is_empty());
        let next = |weight: Option<u32>| {
            let ended = weight.map(|weight| EndedRun { weight, since: now });
            let next = pool.next(ended, now);
            (next.run.map(|run| run.number), next.more)
        };
        assert_eq!(next(None), (Some(1), true));
        assert_eq!(next(None), (Some(2), false));
        assert_eq!(next(Some(4)), (None, false));
        assert_eq!(next(Some(6)), (Some(3), true));
        assert_eq!(next(None), (Some(4), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_may_end_while_its_run_begins_is_stale() {
        let pool = pool(1);
        pool.add(vec![of_weight(1, 1)]);
        let second = Duration::from_secs(1);
        tokio::time::advance(second * 7).await;
        assert!(pool.take_stale(Instant::now()).is_empty());
        pool.add(vec![of_weight(2, 1)]);
        tokio::time::advance(second).await;
        let next = pool.next(None, Instant::now());
        let stale: Vec<_> = next.stale.iter().map(|run| run.number).collect();
        assert_eq!((stale, next.run.map(|run| run.number)), (vec![1], Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_pool_returns_all_claims() {
        let pool = pool(1);
        pool.add(vec![of_weight(1, 1)]);
        assert_eq!(pool.close().len(), 1);
        assert_eq!(pool.add(vec![of_weight(2, 1)]).len(), 1);
        pool.until_idle().await;
    }
}
