//! Batching without a timer: items that arrive while a request is in flight share the next request.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{sync::mpsc, time::Instant};

use crate::{pack::fit, request_tasks::RequestTasks};

/// A request that takes longer than this no longer delays the next one.
const SLOW_AFTER: Duration = Duration::from_millis(250);
/// Most items that wait; further ones are refused.
const WAITING_MAX: usize = 50_000;

/// A kind of batch request: its limits, and how it is made.
pub(crate) trait BatchRequest: Send + Sync + 'static {
    type Item: Send + 'static;
    type Answer: Send + 'static;
    /// Most items in one request.
    const COUNT_MAX: usize;
    /// Most bytes in one request, as [`BatchRequest::bytes`] counts them.
    const BYTES_MAX: usize;
    /// Most requests in flight.
    const IN_FLIGHT_MAX: usize;

    fn bytes(item: &Self::Item) -> usize;

    /// Makes one request. Returns an answer for each item, in their order.
    fn run(&self, items: Vec<Self::Item>) -> impl Future<Output = Vec<Self::Answer>> + Send;

    /// The answer for an item that is refused because too many wait.
    fn refused() -> Self::Answer;

    /// The answer for an item whose request ended without one.
    fn unanswered() -> Self::Answer;
}

/// Combines the items of concurrent calls into batch requests.
pub(crate) struct RequestBatcher<R: BatchRequest> {
    request: R,
    request_tasks: Arc<RequestTasks>,
    state: Mutex<BatcherState<R>>,
}

struct BatcherState<R: BatchRequest> {
    waiting: VecDeque<QueuedItem<R>>,
    in_flight: usize,
    started_at: Option<Instant>,
}

struct QueuedItem<R: BatchRequest> {
    item: R::Item,
    /// The index of the item in its call.
    index: usize,
    answer: mpsc::UnboundedSender<(usize, R::Answer)>,
}

impl<R: BatchRequest> BatcherState<R> {
    /// Whether another request may start. While one is in flight, a second one must be full, or the last one slow.
    fn may_start(&self) -> bool {
        let is_slow = || self.started_at.is_none_or(|at| at.elapsed() > SLOW_AFTER);
        match self.waiting.len() {
            0 => false,
            _ if self.in_flight == 0 => true,
            _ if self.in_flight >= R::IN_FLIGHT_MAX => false,
            waiting => waiting >= R::COUNT_MAX || is_slow(),
        }
    }

    fn take_batch(&mut self) -> Vec<QueuedItem<R>> {
        let sizes = self.waiting.iter().map(|item| R::bytes(&item.item));
        let count = fit(sizes, R::COUNT_MAX, R::BYTES_MAX);
        self.waiting.drain(..count).collect()
    }
}

impl<R: BatchRequest> RequestBatcher<R> {
    pub(crate) fn new(request: R, request_tasks: Arc<RequestTasks>) -> Arc<Self> {
        let state = BatcherState {
            waiting: VecDeque::new(),
            in_flight: 0,
            started_at: None,
        };
        let state = Mutex::new(state);
        Arc::new(Self {
            request,
            request_tasks,
            state,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BatcherState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits items and returns an answer for each, in their order. The items are sent even if the future is dropped.
    pub(crate) async fn submit(self: &Arc<Self>, items: Vec<R::Item>) -> Vec<R::Answer> {
        let mut answers: Vec<Option<R::Answer>> = Vec::new();
        answers.resize_with(items.len(), || None);
        let (answer, mut answered) = mpsc::unbounded_channel();
        {
            let mut state = self.lock();
            for (index, item) in items.into_iter().enumerate() {
                if state.waiting.len() >= WAITING_MAX {
                    answers[index] = Some(R::refused());
                    continue;
                }
                let answer = answer.clone();
                state.waiting.push_back(QueuedItem {
                    item,
                    index,
                    answer,
                });
            }
        }
        drop(answer);
        self.start_requests();
        // The channel closes when every item is answered, or dropped because its request broke off.
        while let Some((index, answer)) = answered.recv().await {
            answers[index] = Some(answer);
        }
        let answers = answers.into_iter();
        answers.map(|a| a.unwrap_or_else(R::unanswered)).collect()
    }

    fn start_requests(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if !state.may_start() {
                return;
            }
            let queued = state.take_batch();
            state.in_flight += 1;
            state.started_at = Some(Instant::now());
            drop(state);
            let guard = RequestGuard(self.clone());
            self.request_tasks.spawn(async move {
                let run = AssertUnwindSafe(guard.0.run(queued));
                let ended = run.catch_unwind().await;
                let batcher = guard.0.clone();
                drop(guard);
                // Waiting items need this call: no other code starts their request. It must also run after a panic.
                batcher.start_requests();
                if let Err(panic) = ended {
                    resume_unwind(panic);
                }
            });
        }
    }

    async fn run(&self, queued: Vec<QueuedItem<R>>) {
        let mut items = Vec::with_capacity(queued.len());
        let mut callers = Vec::with_capacity(queued.len());
        for item in queued {
            items.push(item.item);
            callers.push((item.index, item.answer));
        }
        let answers = self.request.run(items).await;
        for ((index, caller), answer) in callers.into_iter().zip(answers) {
            // The caller may have been dropped.
            let _ = caller.send((index, answer));
        }
    }
}

/// Counts a request as in flight until it ends, whether with an answer, a panic or an abort.
struct RequestGuard<R: BatchRequest>(Arc<RequestBatcher<R>>);

impl<R: BatchRequest> Drop for RequestGuard<R> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::Semaphore, task::JoinSet};

    use super::*;

    /// Doubles numbers. Each request consumes a permit.
    struct DoublingRequest {
        permits: Semaphore,
        requests: Mutex<Vec<usize>>,
    }

    impl BatchRequest for DoublingRequest {
        type Item = usize;
        type Answer = Option<usize>;
        const COUNT_MAX: usize = 10;
        const BYTES_MAX: usize = 1_000;
        const IN_FLIGHT_MAX: usize = 3;

        fn bytes(item: &usize) -> usize {
            *item
        }

        async fn run(&self, items: Vec<usize>) -> Vec<Option<usize>> {
            self.requests.lock().unwrap().push(items.len());
            self.permits.acquire().await.unwrap().forget();
            assert!(!items.contains(&666), "this request panics");
            items.into_iter().map(|n| Some(n * 2)).collect()
        }

        fn refused() -> Self::Answer {
            None
        }

        fn unanswered() -> Self::Answer {
            None
        }
    }

    fn batcher(permits: usize) -> Arc<RequestBatcher<DoublingRequest>> {
        let request = DoublingRequest {
            permits: Semaphore::new(permits),
            requests: Mutex::default(),
        };
        RequestBatcher::new(request, Arc::default())
    }

    fn requests(batcher: &RequestBatcher<DoublingRequest>) -> Vec<usize> {
        batcher.request.requests.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_arrive_during_a_request_share_the_next_one() {
        let batcher = batcher(0);
        let mut calls = JoinSet::new();
        for n in 0..9 {
            let batcher = batcher.clone();
            calls.spawn(async move { (n, batcher.submit(vec![n]).await) });
        }
        tokio::task::yield_now().await;
        batcher.request.permits.add_permits(9);
        for (n, answer) in calls.join_all().await {
            assert_eq!(answer, [Some(n * 2)]);
        }
        assert_eq!(requests(&batcher), [1, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn full_requests_do_not_wait_for_each_other() {
        let batcher = batcher(0);
        let mut call = JoinSet::new();
        call.spawn({
            let batcher = batcher.clone();
            async move { batcher.submit((0..35).collect()).await }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(requests(&batcher), [10, 10, 10]);
        batcher.request.permits.add_permits(9);
        let expected: Vec<_> = (0..35).map(|n| Some(n * 2)).collect();
        assert_eq!(call.join_all().await, [expected]);
        assert_eq!(requests(&batcher), [10, 10, 10, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_stay_within_their_byte_limit_and_a_large_item_is_sent_alone() {
        let batcher = batcher(9);
        let answers = batcher.submit(vec![400, 400, 400, 5_000, 1]).await;
        assert!(answers.iter().all(Option::is_some));
        assert_eq!(requests(&batcher), [2, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_does_not_delay_the_next_one_for_long() {
        let batcher = batcher(0);
        let mut calls = JoinSet::new();
        for wait_ms in [0, 100, 300] {
            let batcher = batcher.clone();
            calls.spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                batcher.submit(vec![1]).await
            });
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(requests(&batcher), [1, 2]);
        batcher.request.permits.add_permits(2);
        assert_eq!(calls.join_all().await.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_panics_is_answered_and_blocks_no_other() {
        let batcher = batcher(9);
        assert_eq!(batcher.submit(vec![666]).await, [None]);
        assert_eq!(batcher.submit(vec![2]).await, [Some(4)]);
        let (broken, behind) = tokio::join!(batcher.submit(vec![666]), batcher.submit(vec![3]));
        assert_eq!((broken, behind), (vec![None], vec![Some(6)]));
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_call_affects_no_other_call() {
        let batcher = batcher(0);
        let dropped_call = batcher.submit(vec![1]);
        let timed_out = tokio::time::timeout(Duration::from_millis(1), dropped_call).await;
        assert!(timed_out.is_err());
        batcher.request.permits.add_permits(9);
        assert_eq!(batcher.submit(vec![2]).await, [Some(4)]);
        assert_eq!(requests(&batcher), [1, 1]);
    }
}
