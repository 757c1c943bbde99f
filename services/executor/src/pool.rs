//! Claims that wait for a free slot, and the slots.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::{Config, pace::Pace, run::Run};

/// Weight in slots and claims ahead of them. One lock per task: ending a run and taking the next is one step.
pub(crate) struct Pool {
    concurrency: u32,
    concurrency_min: Option<u32>,
    state: Mutex<State>,
    room: Notify,
    idle: Notify,
}

struct State {
    buffer: VecDeque<Arc<Run>>,
    buffered_weight: u32,
    running_weight: u32,
    running: u32,
    pace: Pace,
    /// Whether a claim begins its run, so that nothing may be claimed ahead of a free slot.
    claims_start: bool,
    /// Whether somebody waits for room, so that a full pool wakes nobody per task.
    is_awaited: bool,
    is_closed: bool,
}

/// What the end of one run makes possible.
#[derive(Default)]
pub(crate) struct Taken {
    /// The next to run.
    pub(crate) run: Option<Arc<Run>>,
    /// Whether there may be another one that fits.
    pub(crate) more: bool,
    /// Claims that are too old to begin.
    pub(crate) stale: Vec<Arc<Run>>,
}

/// How much may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) weight: u32,
    /// Whether all of it can begin at once, and shall.
    pub(crate) start: bool,
    /// Whether nothing runs or waits, so that the room cannot grow while the answer is awaited.
    pub(crate) is_all: bool,
}

impl Pool {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        // With a refill mark, work is taken in gulps on purpose; nothing may wait here then.
        let ahead_max = match config.concurrency_min {
            Some(_) => 0,
            None => u32::try_from(config.prefetch_max).unwrap_or(u32::MAX),
        };
        Self {
            concurrency: config.concurrency,
            concurrency_min: config.concurrency_min,
            state: Mutex::new(State {
                buffer: VecDeque::new(),
                buffered_weight: 0,
                running_weight: 0,
                running: 0,
                pace: Pace::new(now, ahead_max),
                claims_start: false,
                is_awaited: false,
                is_closed: false,
            }),
            room: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Whether claims are to begin their runs from now on.
    pub(crate) fn set_claims_start(&self, claims_start: bool) {
        self.state().claims_start = claims_start;
    }

    /// Takes claims in; those that came too late, after [`Pool::close`], come back.
    pub(crate) fn put(&self, runs: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
        let mut state = self.state();
        if state.is_closed {
            return runs;
        }
        state.buffered_weight += runs.iter().map(|run| run.weight()).sum::<u32>();
        state.buffer.extend(runs);
        Vec::new()
    }

    /// Ends a run of weight `ended`, if there was one, and takes the next that fits.
    pub(crate) fn take(&self, ended: Option<u32>, now: Instant) -> Taken {
        let mut taken = Taken::default();
        let mut state = self.state();
        if let Some(weight) = ended {
            state.running_weight -= weight;
            state.running -= 1;
            state.pace.finished(weight);
        }
        state.drop_stale(now, &mut taken.stale);
        if state.head_fits(self.concurrency)
            && let Some(run) = state.buffer.pop_front()
        {
            state.buffered_weight -= run.weight();
            state.running_weight += run.weight();
            state.running += 1;
            taken.run = Some(run);
            taken.more = state.head_fits(self.concurrency);
        }
        let is_idle = state.running == 0 && state.buffer.is_empty();
        let wake = state.is_awaited && self.room_in(&state).weight > 0;
        if wake {
            state.is_awaited = false;
        }
        drop(state);
        if wake {
            self.room.notify_one();
        }
        if is_idle {
            self.idle.notify_waiters();
        }
        taken
    }

    /// Waits until more work may be asked for. Cancel safe.
    pub(crate) async fn room(&self) -> Room {
        loop {
            {
                let mut state = self.state();
                state.pace.measure(Instant::now());
                let room = self.room_in(&state);
                if room.weight > 0 {
                    return room;
                }
                state.is_awaited = true;
            }
            self.room.notified().await;
        }
    }

    /// Claims that are too old to begin.
    pub(crate) fn take_stale(&self, now: Instant) -> Vec<Arc<Run>> {
        let mut stale = Vec::new();
        self.state().drop_stale(now, &mut stale);
        stale
    }

    /// Takes nothing in any more; what had not begun comes back.
    pub(crate) fn close(&self) -> Vec<Arc<Run>> {
        let mut state = self.state();
        state.is_closed = true;
        state.buffered_weight = 0;
        let runs = state.buffer.drain(..).collect();
        drop(state);
        self.idle.notify_waiters();
        runs
    }

    /// Waits until nothing runs and nothing waits. Cancel safe.
    pub(crate) async fn idle(&self) {
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

    /// Runs in slots.
    pub(crate) fn running(&self) -> u32 {
        self.state().running
    }

    fn room_in(&self, state: &State) -> Room {
        let held = state.running_weight + state.buffered_weight;
        let ahead = match state.claims_start {
            true => 0,
            false => state.pace.target(),
        };
        let may_ask = match self.concurrency_min {
            Some(min) => held < min,
            None => held < self.concurrency || state.buffered_weight < ahead.div_ceil(2),
        };
        let free = (self.concurrency + ahead).saturating_sub(held);
        Room {
            weight: if may_ask { free } else { 0 },
            start: state.claims_start,
            is_all: held == 0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Claims keep their order, so only the head decides: a light task behind a heavy one does not overtake it.
    fn head_fits(&self, concurrency: u32) -> bool {
        let head = self.buffer.front();
        head.is_some_and(|run| self.running_weight + run.weight() <= concurrency)
    }

    fn drop_stale(&mut self, now: Instant, stale: &mut Vec<Arc<Run>>) {
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

    fn pool(concurrency: u32) -> Pool {
        let config = Config {
            concurrency,
            ..Config::new("w", 1)
        };
        Pool::new(&config, Instant::now())
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
        assert!(pool.put(runs.into()).is_empty());
        let next = |ended| {
            let taken = pool.take(ended, now);
            (taken.run.map(|run| run.number), taken.more)
        };
        assert_eq!(next(None), (Some(1), true));
        assert_eq!(next(None), (Some(2), false));
        assert_eq!(next(Some(4)), (None, false));
        assert_eq!(next(Some(6)), (Some(3), true));
        assert_eq!(next(None), (Some(4), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_may_lapse_while_its_run_begins_is_given_back() {
        let pool = pool(1);
        pool.put(vec![of_weight(1, 1)]);
        let second = Duration::from_secs(1);
        tokio::time::advance(second * 7).await;
        assert!(pool.take_stale(Instant::now()).is_empty());
        pool.put(vec![of_weight(2, 1)]);
        tokio::time::advance(second).await;
        let taken = pool.take(None, Instant::now());
        let stale: Vec<_> = taken.stale.iter().map(|run| run.number).collect();
        assert_eq!((stale, taken.run.map(|run| run.number)), (vec![1], Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_pool_gives_everything_back() {
        let pool = pool(1);
        pool.put(vec![of_weight(1, 1)]);
        assert_eq!(pool.close().len(), 1);
        assert_eq!(pool.put(vec![of_weight(2, 1)]).len(), 1);
        pool.idle().await;
    }
}
