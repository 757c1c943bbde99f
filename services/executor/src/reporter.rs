//! Sends the reports of runs in batches, in order for each task, and repeats them until they are durable.

mod batch;
mod lanes;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dueline_api::{Action, Controller};
use dueline_ports::Rng;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    batch::{AnsweredBatch, QueuedReport, ReportResult},
    lanes::ReportLanes,
};
use crate::run::{Run, RunReport, StartReport, lost};

/// Most reports in one call.
const BATCH_MAX: usize = 1_000;
/// Most first sends in flight. More than one, so that the next batch is at the store when the previous one is done.
const BATCHES_MAX: usize = 3;
/// Most reports that the reporter has received and that are not settled. Beyond this, slots wait.
const UNSETTLED_MAX: usize = 10_000;
/// How long a run may last until its start becomes a report of its own.
const START_DELAY: Duration = Duration::from_millis(1);

/// What the reporter receives.
pub(crate) struct ReporterInbox {
    pub(crate) reports: mpsc::Receiver<RunReport>,
    /// Runs that need a heartbeat now.
    pub(crate) heartbeats: mpsc::Receiver<Vec<Arc<Run>>>,
}

pub(crate) struct Reporter {
    controller: Arc<dyn Controller>,
    rng: Arc<dyn Rng>,
    finished: Arc<AtomicU64>,
    inbox: ReporterInbox,
    ready: VecDeque<QueuedReport>,
    lanes: ReportLanes,
    /// Runs that have begun and whose start is not sent.
    begun: Vec<Arc<Run>>,
    begun_since: Instant,
    in_flight: FuturesUnordered<BoxFuture<'static, AnsweredBatch>>,
    /// First sends in flight. Heartbeats and repetitions do not count.
    first_sends: usize,
    unsettled: usize,
}

impl Reporter {
    pub(crate) fn new(
        controller: Arc<dyn Controller>,
        rng: Arc<dyn Rng>,
        finished: Arc<AtomicU64>,
        inbox: ReporterInbox,
    ) -> Self {
        Self {
            controller,
            rng,
            finished,
            inbox,
            ready: VecDeque::new(),
            lanes: ReportLanes::default(),
            begun: Vec::new(),
            begun_since: Instant::now(),
            in_flight: FuturesUnordered::new(),
            first_sends: 0,
            unsettled: 0,
        }
    }

    /// Runs until `flush` is cancelled, and then until all earlier reports are settled.
    pub(crate) async fn run(mut self, flush: CancellationToken) {
        let mut incoming = Vec::with_capacity(BATCH_MAX);
        let (mut is_flushing, mut is_open) = (false, true);
        loop {
            while !self.ready.is_empty() && self.first_sends < BATCHES_MAX {
                let len = self.ready.len().min(BATCH_MAX);
                let reports = self.ready.drain(..len).collect();
                self.first_sends += 1;
                self.send(reports, true, Duration::ZERO);
            }
            if is_flushing && self.unsettled == 0 && self.inbox.reports.is_empty() {
                return;
            }
            let has_room = self.unsettled < UNSETTLED_MAX;
            tokio::select! {
                biased;
                Some(batch) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.first_sends -= usize::from(batch.is_first);
                    self.settle(batch);
                }
                Some(runs) = self.inbox.heartbeats.recv() => self.heartbeat(runs),
                n = self.inbox.reports.recv_many(&mut incoming, BATCH_MAX), if has_room && is_open => {
                    // Zero means that all senders are gone.
                    is_open = n > 0;
                    is_flushing |= !is_open;
                    for report in incoming.drain(..) {
                        self.admit(report);
                    }
                }
                () = tokio::time::sleep_until(self.begun_since + START_DELAY),
                    if !self.begun.is_empty() => self.send_starts(),
                () = flush.cancelled(), if !is_flushing => is_flushing = true,
            }
        }
    }

    /// Queues a report behind the earlier reports of its task.
    fn admit(&mut self, mut report: RunReport) {
        let run = report.run.clone();
        let mut start = run.start_report();
        match (&mut report.action, *start) {
            (Action::Start, StartReport::Pending) if report.reply.is_none() => {
                if self.begun.is_empty() {
                    self.begun_since = Instant::now();
                }
                self.begun.push(report.run);
                return;
            }
            (Action::Start, StartReport::Pending) => *start = StartReport::Sent,
            // The start was already sent, ahead of a report that needs it.
            (Action::Start, _) => return,
            // The outcome carries the start, or the handler never began.
            (Action::Finish { .. } | Action::Abandon, StartReport::Pending) => {
                *start = StartReport::Merged;
            }
            (Action::Finish { started_at, .. }, StartReport::Sent | StartReport::Claimed) => {
                *started_at = None;
            }
            // All other reports are refused before the start, so the start is sent first.
            (_, StartReport::Pending) => {
                *start = StartReport::Sent;
                self.queue(RunReport::new(run.clone(), Action::Start));
            }
            _ => {}
        }
        drop(start);
        self.queue(report);
    }

    fn queue(&mut self, report: RunReport) {
        self.unsettled += 1;
        let ready = self.lanes.enter(QueuedReport::new(report));
        self.ready.extend(ready);
    }

    /// Sends the starts of the runs that have not ended in the meantime.
    fn send_starts(&mut self) {
        for run in std::mem::take(&mut self.begun) {
            let mut start = run.start_report();
            if *start == StartReport::Pending {
                *start = StartReport::Sent;
                drop(start);
                self.queue(RunReport::new(run, Action::Start));
            }
        }
    }

    /// Sends heartbeats at once, without waiting for a free first send.
    fn heartbeat(&mut self, runs: Vec<Arc<Run>>) {
        let mut reports = Vec::with_capacity(runs.len());
        for run in runs {
            // A heartbeat is skipped while another report of the run is ready or in flight.
            if run.wants_heartbeat() && self.lanes.occupy(&run) {
                let heartbeat = RunReport::new(run, Action::Heartbeat);
                reports.push(QueuedReport::new(heartbeat));
            }
        }
        self.unsettled += reports.len();
        if !reports.is_empty() {
            self.send(reports, false, Duration::ZERO);
        }
    }

    fn send(&mut self, mut reports: Vec<QueuedReport>, is_first: bool, wait: Duration) {
        for queued in &mut reports {
            queued.write.get_or_insert_with(|| self.rng.write_id());
        }
        let controller = self.controller.clone();
        let sending = batch::send(controller, reports, is_first, wait);
        self.in_flight.push(Box::pin(sending));
    }

    fn settle(&mut self, batch: AnsweredBatch) {
        let mut repeated = Vec::new();
        let mut wait = Duration::ZERO;
        let mut finished = 0;
        let sent_at = batch.sent_at;
        for (queued, answer) in batch.reports.into_iter().zip(batch.answers) {
            let run = queued.report.run.clone();
            match batch::settle(queued, answer, sent_at, || self.rng.jitter()) {
                ReportResult::Repeat { queued, after } => {
                    wait = wait.max(after);
                    repeated.push(queued);
                    continue;
                }
                ReportResult::Finished => finished += 1,
                ReportResult::Done => {}
                ReportResult::Lost => self.drop_waiting(&run),
            }
            self.unsettled -= 1;
            self.ready.extend(self.lanes.leave(&run));
        }
        if !repeated.is_empty() {
            self.send(repeated, false, wait);
        }
        if finished > 0 {
            self.finished.fetch_add(finished, Ordering::Relaxed);
            metrics::counter!("dueline_executor_runs_finished_total").increment(finished);
        }
    }

    /// Drops the waiting reports of a lost task: they would be refused.
    fn drop_waiting(&mut self, run: &Run) {
        let waiting = self.lanes.take_waiting(run);
        self.unsettled -= waiting.len();
        for queued in waiting {
            queued.report.answer(Err(lost()));
        }
    }
}
