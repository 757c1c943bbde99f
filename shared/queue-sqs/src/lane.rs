//! Batching without a timer: what arrives while a request is on its way goes out together with the next one.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{sync::mpsc, time::Instant};

use crate::{crew::Crew, pack::fit};

/// A request that takes longer than this holds nothing back any more.
const PATIENCE: Duration = Duration::from_millis(250);
/// Items that wait at most; more are refused.
const WAITING_MAX: usize = 50_000;

/// What a lane does with its items.
pub(crate) trait Batch: Send + Sync + 'static {
    type Item: Send + 'static;
    type Answer: Send + 'static;
    /// Most items of one request.
    const COUNT_MAX: usize;
    /// Most bytes of one request, as [`Batch::bytes`] counts them.
    const BYTES_MAX: usize;
    /// Most requests under way at once.
    const UNDER_WAY_MAX: usize;

    fn bytes(item: &Self::Item) -> usize;

    /// Makes one request; an answer for each item, in their order.
    fn run(&self, items: Vec<Self::Item>) -> impl Future<Output = Vec<Self::Answer>> + Send;

    /// Too many items wait.
    fn refused() -> Self::Answer;

    /// The request ended without an answer.
    fn lost() -> Self::Answer;
}

/// Collects items of concurrent calls into requests.
pub(crate) struct Lane<B: Batch> {
    batch: B,
    crew: Arc<Crew>,
    state: Mutex<State<B>>,
}

struct State<B: Batch> {
    waiting: VecDeque<Entry<B>>,
    under_way: usize,
    began_at: Option<Instant>,
}

struct Entry<B: Batch> {
    item: B::Item,
    /// Its place in the call it came with.
    place: usize,
    answer: mpsc::UnboundedSender<(usize, B::Answer)>,
}

impl<B: Batch> State<B> {
    /// One request may be under way; more only when they are full, or when the last one is slow.
    fn may_begin(&self) -> bool {
        let is_slow = || self.began_at.is_none_or(|at| at.elapsed() > PATIENCE);
        match self.waiting.len() {
            0 => false,
            _ if self.under_way == 0 => true,
            _ if self.under_way >= B::UNDER_WAY_MAX => false,
            waiting => waiting >= B::COUNT_MAX || is_slow(),
        }
    }

    fn take(&mut self) -> Vec<Entry<B>> {
        let sizes = self.waiting.iter().map(|entry| B::bytes(&entry.item));
        let count = fit(sizes, B::COUNT_MAX, B::BYTES_MAX);
        self.waiting.drain(..count).collect()
    }
}

impl<B: Batch> Lane<B> {
    pub(crate) fn new(batch: B, crew: Arc<Crew>) -> Arc<Self> {
        let state = State {
            waiting: VecDeque::new(),
            under_way: 0,
            began_at: None,
        };
        let state = Mutex::new(state);
        Arc::new(Self { batch, crew, state })
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer for each item, in their order. When the future is dropped, the items are sent all the same.
    pub(crate) async fn submit(self: &Arc<Self>, items: Vec<B::Item>) -> Vec<B::Answer> {
        let mut answers: Vec<Option<B::Answer>> = Vec::new();
        answers.resize_with(items.len(), || None);
        let (answer, mut answered) = mpsc::unbounded_channel();
        {
            let mut state = self.lock();
            for (place, item) in items.into_iter().enumerate() {
                if state.waiting.len() >= WAITING_MAX {
                    answers[place] = Some(B::refused());
                    continue;
                }
                let answer = answer.clone();
                state.waiting.push_back(Entry {
                    item,
                    place,
                    answer,
                });
            }
        }
        drop(answer);
        self.begin();
        // Ends when every entry was answered, or dropped with a request that broke off.
        while let Some((place, answer)) = answered.recv().await {
            answers[place] = Some(answer);
        }
        let answers = answers.into_iter();
        answers.map(|a| a.unwrap_or_else(B::lost)).collect()
    }

    fn begin(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if !state.may_begin() {
                return;
            }
            let entries = state.take();
            state.under_way += 1;
            state.began_at = Some(Instant::now());
            drop(state);
            let under_way = UnderWay(self.clone());
            self.crew.spawn(async move {
                let run = AssertUnwindSafe(under_way.0.run(entries));
                let ended = run.catch_unwind().await;
                let lane = under_way.0.clone();
                drop(under_way);
                // Nobody else looks after those that wait, also behind a request that broke off.
                lane.begin();
                if let Err(panic) = ended {
                    resume_unwind(panic);
                }
            });
        }
    }

    async fn run(&self, entries: Vec<Entry<B>>) {
        let mut items = Vec::with_capacity(entries.len());
        let mut askers = Vec::with_capacity(entries.len());
        for entry in entries {
            items.push(entry.item);
            askers.push((entry.place, entry.answer));
        }
        let answers = self.batch.run(items).await;
        for ((place, asker), answer) in askers.into_iter().zip(answers) {
            // Whoever went away does not want to know.
            let _ = asker.send((place, answer));
        }
    }
}

/// Counts a request until it has ended, however it ends.
struct UnderWay<B: Batch>(Arc<Lane<B>>);

impl<B: Batch> Drop for UnderWay<B> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::Semaphore, task::JoinSet};

    use super::*;

    /// Doubles numbers, one request for each permit.
    struct Doubles {
        permits: Semaphore,
        requests: Mutex<Vec<usize>>,
    }

    impl Batch for Doubles {
        type Item = usize;
        type Answer = Option<usize>;
        const COUNT_MAX: usize = 10;
        const BYTES_MAX: usize = 1_000;
        const UNDER_WAY_MAX: usize = 3;

        fn bytes(item: &usize) -> usize {
            *item
        }

        async fn run(&self, items: Vec<usize>) -> Vec<Option<usize>> {
            self.requests.lock().unwrap().push(items.len());
            self.permits.acquire().await.unwrap().forget();
            assert!(!items.contains(&666), "the number of the beast");
            items.into_iter().map(|n| Some(n * 2)).collect()
        }

        fn refused() -> Self::Answer {
            None
        }

        fn lost() -> Self::Answer {
            None
        }
    }

    fn lane(permits: usize) -> Arc<Lane<Doubles>> {
        let batch = Doubles {
            permits: Semaphore::new(permits),
            requests: Mutex::default(),
        };
        Lane::new(batch, Arc::default())
    }

    fn requests(lane: &Lane<Doubles>) -> Vec<usize> {
        lane.batch.requests.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_meanwhile_goes_out_together() {
        let lane = lane(0);
        let mut calls = JoinSet::new();
        for n in 0..9 {
            let lane = lane.clone();
            calls.spawn(async move { (n, lane.submit(vec![n]).await) });
        }
        tokio::task::yield_now().await;
        lane.batch.permits.add_permits(9);
        for (n, answer) in calls.join_all().await {
            assert_eq!(answer, [Some(n * 2)]);
        }
        assert_eq!(requests(&lane), [1, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn full_requests_do_not_wait_for_each_other() {
        let lane = lane(0);
        let mut call = JoinSet::new();
        call.spawn({
            let lane = lane.clone();
            async move { lane.submit((0..35).collect()).await }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(requests(&lane), [10, 10, 10]);
        lane.batch.permits.add_permits(9);
        let expected: Vec<_> = (0..35).map(|n| Some(n * 2)).collect();
        assert_eq!(call.join_all().await, [expected]);
        assert_eq!(requests(&lane), [10, 10, 10, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_stay_below_their_bytes_and_a_large_item_goes_alone() {
        let lane = lane(9);
        let answers = lane.submit(vec![400, 400, 400, 5_000, 1]).await;
        assert!(answers.iter().all(Option::is_some));
        assert_eq!(requests(&lane), [2, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_holds_nothing_back_for_long() {
        let lane = lane(0);
        let mut calls = JoinSet::new();
        for wait_ms in [0, 100, 300] {
            let lane = lane.clone();
            calls.spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                lane.submit(vec![1]).await
            });
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(requests(&lane), [1, 2]);
        lane.batch.permits.add_permits(2);
        assert_eq!(calls.join_all().await.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_breaks_off_answers_and_blocks_nobody() {
        let lane = lane(9);
        assert_eq!(lane.submit(vec![666]).await, [None]);
        assert_eq!(lane.submit(vec![2]).await, [Some(4)]);
        let (broken, behind) = tokio::join!(lane.submit(vec![666]), lane.submit(vec![3]));
        assert_eq!((broken, behind), (vec![None], vec![Some(6)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_goes_away_takes_nobody_with_it() {
        let lane = lane(0);
        let leaving = lane.submit(vec![1]);
        let left = tokio::time::timeout(Duration::from_millis(1), leaving).await;
        assert!(left.is_err());
        lane.batch.permits.add_permits(9);
        assert_eq!(lane.submit(vec![2]).await, [Some(4)]);
        assert_eq!(requests(&lane), [1, 1]);
    }
}
