//! Sends what happened to tasks, in batches, in order for each task, until it is durable.

mod batch;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Action, ApiError, Reported, Work};
use dueline_domain::WriteId;
use dueline_ports::Rng;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::batch::{Sent, Settled};
use crate::run::{Run, StartReport, lost};

/// Most reports in one call.
const BATCH_MAX: usize = 1_000;
/// Calls under way at a time, so that the next batch is at the store when the one before is done.
const BATCHES_MAX: usize = 3;
/// Reports taken over and not durable yet. Beyond this, slots wait.
const UNSETTLED_MAX: usize = 10_000;
/// How long a run may last until its start becomes a report of its own.
const START_DELAY: Duration = Duration::from_millis(1);

/// One report on its way.
pub(crate) struct Item {
    pub(crate) run: Arc<Run>,
    action: Action,
    /// Named at the first sending and kept, so that a repetition is recognised.
    write: Option<WriteId>,
    tries: u32,
    reply: Option<oneshot::Sender<Result<Reported, ApiError>>>,
}

impl Item {
    pub(crate) fn new(run: Arc<Run>, action: Action) -> Self {
        Self {
            run,
            action,
            write: None,
            tries: 0,
            reply: None,
        }
    }

    /// A report whose sender waits for the answer.
    pub(crate) fn with_reply(
        run: Arc<Run>,
        action: Action,
        reply: oneshot::Sender<Result<Reported, ApiError>>,
    ) -> Self {
        Self {
            reply: Some(reply),
            ..Self::new(run, action)
        }
    }

    fn answer(self, answer: Result<Reported, ApiError>) {
        if let Some(reply) = self.reply {
            // Whoever asked may have gone; the report has done its work all the same.
            let _ = reply.send(answer);
        }
    }
}

/// What comes in.
pub(crate) struct Inbox {
    pub(crate) items: mpsc::Receiver<Item>,
    /// Runs that need a heartbeat now.
    pub(crate) beats: mpsc::Receiver<Vec<Arc<Run>>>,
}

pub(crate) struct Reporter {
    work: Arc<dyn Work>,
    rng: Arc<dyn Rng>,
    finished: Arc<AtomicU64>,
    inbox: Inbox,
    ready: VecDeque<Item>,
    /// Runs that have begun and whose start is not sent.
    begun: Vec<Arc<Run>>,
    begun_since: Instant,
    under_way: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// First sendings of ordinary batches under way; heartbeats and repetitions do not count.
    fresh: usize,
    unsettled: usize,
}

impl Reporter {
    pub(crate) fn new(
        work: Arc<dyn Work>,
        rng: Arc<dyn Rng>,
        finished: Arc<AtomicU64>,
        inbox: Inbox,
    ) -> Self {
        Self {
            work,
            rng,
            finished,
            inbox,
            ready: VecDeque::new(),
            begun: Vec::new(),
            begun_since: Instant::now(),
            under_way: FuturesUnordered::new(),
            fresh: 0,
            unsettled: 0,
        }
    }

    /// Reports until `flush`, and then until everything that came before it is settled.
    pub(crate) async fn run(mut self, flush: CancellationToken) {
        let mut incoming = Vec::with_capacity(BATCH_MAX);
        let (mut is_flushing, mut is_open) = (false, true);
        loop {
            while !self.ready.is_empty() && self.fresh < BATCHES_MAX {
                let len = self.ready.len().min(BATCH_MAX);
                let items = self.ready.drain(..len).collect();
                self.fresh += 1;
                self.send(items, true, Duration::ZERO);
            }
            if is_flushing && self.unsettled == 0 && self.inbox.items.is_empty() {
                return;
            }
            let has_room = self.unsettled < UNSETTLED_MAX;
            tokio::select! {
                biased;
                Some(sent) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.fresh -= usize::from(sent.is_fresh);
                    self.settle(sent);
                }
                Some(runs) = self.inbox.beats.recv() => self.heartbeat(runs),
                n = self.inbox.items.recv_many(&mut incoming, BATCH_MAX), if has_room && is_open => {
                    // Nothing means that nobody is left who could send.
                    is_open = n > 0;
                    is_flushing |= !is_open;
                    for item in incoming.drain(..) {
                        self.admit(item);
                    }
                }
                () = tokio::time::sleep_until(self.begun_since + START_DELAY),
                    if !self.begun.is_empty() => self.send_starts(),
                () = flush.cancelled(), if !is_flushing => is_flushing = true,
            }
        }
    }

    /// Takes a report over and puts it behind the earlier ones of its task.
    fn admit(&mut self, mut item: Item) {
        let run = item.run.clone();
        let mut lane = run.lane();
        match (&mut item.action, lane.start) {
            (Action::Start, StartReport::Pending) if item.reply.is_none() => {
                if self.begun.is_empty() {
                    self.begun_since = Instant::now();
                }
                self.begun.push(item.run);
                return;
            }
            (Action::Start, StartReport::Pending) => lane.start = StartReport::Sent,
            // It was sent before something that needs it.
            (Action::Start, _) => return,
            // The outcome carries the start, or there was no run at all.
            (Action::Finish { .. } | Action::Abandon, StartReport::Pending) => {
                lane.start = StartReport::Merged;
            }
            (Action::Finish { started_at, .. }, StartReport::Sent | StartReport::Claimed) => {
                *started_at = None;
            }
            // All else is refused for a task that has not started.
            (_, StartReport::Pending) => {
                lane.start = StartReport::Sent;
                lane.is_busy = true;
                self.unsettled += 1;
                self.ready.push_back(Item::new(run.clone(), Action::Start));
            }
            _ => {}
        }
        self.unsettled += 1;
        if lane.is_busy {
            lane.waiting.push_back(item);
        } else {
            lane.is_busy = true;
            self.ready.push_back(item);
        }
    }

    /// Sends the starts of the runs that have not ended meanwhile.
    fn send_starts(&mut self) {
        for run in std::mem::take(&mut self.begun) {
            let mut lane = run.lane();
            if lane.start == StartReport::Pending {
                lane.start = StartReport::Sent;
                lane.is_busy = true;
                drop(lane);
                self.unsettled += 1;
                self.ready.push_back(Item::new(run, Action::Start));
            }
        }
    }

    /// Heartbeats go out at once, past whatever is held up.
    fn heartbeat(&mut self, runs: Vec<Arc<Run>>) {
        let mut items = Vec::with_capacity(runs.len());
        for run in runs {
            let mut lane = run.lane();
            // Something else is under way for this task. If nothing is, nothing must be while this is.
            if lane.is_busy || !run.wants_heartbeat() {
                continue;
            }
            lane.is_busy = true;
            drop(lane);
            items.push(Item::new(run, Action::Heartbeat));
        }
        self.unsettled += items.len();
        if !items.is_empty() {
            self.send(items, false, Duration::ZERO);
        }
    }

    fn send(&mut self, mut items: Vec<Item>, is_fresh: bool, wait: Duration) {
        for item in &mut items {
            item.write.get_or_insert_with(|| self.rng.write_id());
        }
        let work = self.work.clone();
        let sending = batch::send(work, items, is_fresh, wait);
        self.under_way.push(Box::pin(sending));
    }

    fn settle(&mut self, sent: Sent) {
        let mut again = Vec::new();
        let mut wait = Duration::ZERO;
        let mut finished = 0;
        let batch = sent.items.into_iter().zip(sent.answers);
        for (item, answer) in batch {
            let run = item.run.clone();
            match batch::settle(item, answer, sent.at, || self.rng.jitter()) {
                Settled::Again { item, after } => {
                    wait = wait.max(after);
                    again.push(item);
                    continue;
                }
                Settled::Finished => finished += 1,
                Settled::Done => {}
                Settled::Lost => self.drop_waiting(&run),
            }
            self.unsettled -= 1;
            let mut lane = run.lane();
            match lane.waiting.pop_front() {
                Some(next) => self.ready.push_back(next),
                None => lane.is_busy = false,
            }
        }
        if !again.is_empty() {
            self.send(again, false, wait);
        }
        if finished > 0 {
            self.finished.fetch_add(finished, Ordering::Relaxed);
            metrics::counter!("dueline_executor_runs_finished_total").increment(finished);
        }
    }

    /// What else was to be said of a lost task is of no use.
    fn drop_waiting(&mut self, run: &Run) {
        let waiting = std::mem::take(&mut run.lane().waiting);
        self.unsettled -= waiting.len();
        for item in waiting {
            item.answer(Err(lost()));
        }
    }
}
