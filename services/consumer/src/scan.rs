//! The due scan: marks tasks whose trigger time has passed as enqueued, then sends their messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{Event, Job, JobName, Reason, Rejected, StateKind, Timestamp, Token, Trigger};
use dueline_ports::{
    Applied, Command, DuePage, DueQuery, DueTask, QueueError, StoreError, TaskQueue,
};
use dueline_runtime::{Shutdown, log_transition};
use futures_util::{StreamExt as _, future::join_all, stream};
use tokio::time::{Instant, timeout_at};

use crate::{
    Config, Deps,
    backoffs::{JobBackoffs, backoff},
    effects::EffectsIntake,
    fair_share::{FairShares, LaneScan},
    families::WaitingTasks,
    lateness::RecentLateness,
    members::CurrentShare,
    queue_lengths::{QueueLength, QueueLengths},
    quota::{Granting, JobQuotas},
    running::RunningLimits,
    wait::{ScanSchedule, WakeTime},
    watchdog::Watchdog,
};

/// Most tasks moved in one scan. More jobs than this are served in turns, and other due tasks wait only for one scan.
const SCAN_TASKS_MAX: usize = 2_000;
/// Longest time to move tasks in one scan. Tasks that become due meanwhile, perhaps of other jobs or of higher priority,
/// must not wait for a backlog on a slow store.
const MOVE_TIME_MAX: Duration = Duration::from_millis(100);
/// Longest time to read the tasks whose messages are to be sent again.
const RESEND_READ_TIME_MAX: Duration = Duration::from_millis(100);
/// Number of tasks in the first write of a scan, and at most. Each write has twice as many tasks as the one before, so
/// that a slow store is noticed with a small batch.
const BATCH_LEN: (usize, usize) = (100, 500);
/// Shortest time between two scans, so that a stream of due tasks is handled in batches.
const SCAN_SPACING: Duration = Duration::from_millis(2);
/// Shortest time between a scan that moved no task and a scan for an announced task.
const IDLE_SCAN_SPACING: Duration = Duration::from_millis(10);
/// Longest time to read queue lengths in one scan; queues that have not answered are read again in the next scan.
const LENGTH_READ_TIME_MAX: Duration = Duration::from_secs(1);
/// Delay before the creation of a queue is retried.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Number of enqueue timeouts after which a message counts as lost even in a long queue.
const LOST_AFTER_TIMEOUTS: u32 = 4;
/// Tasks read concurrently before their messages are sent again.
const READS_AT_ONCE: usize = 8;
/// Queues created or read concurrently. At the start of a fleet there may be a thousand, and due tasks wait for them.
const QUEUES_AT_ONCE: usize = 16;
/// Delay before the next scan when lost messages remain to be sent.
const RESEND_SPACING: Duration = Duration::from_millis(100);

/// The scan loop and its state between scans.
pub(crate) struct DueScan {
    config: Config,
    deps: Deps,
    job_quotas: JobQuotas,
    running: RunningLimits,
    fair: FairShares,
    watchdog: Watchdog,
    backoffs: JobBackoffs,
    queue_lengths: QueueLengths,
    lateness: RecentLateness,
    /// Jobs whose queue is known to exist.
    ensured: BTreeSet<JobName>,
    /// Jobs whose queue could not be created, each with the time of the next attempt.
    retry_queues: BTreeMap<JobName, Instant>,
    /// The share of the due index that this consumer reads.
    share: CurrentShare,
    /// Takes the finished tasks that owe an effect.
    effects: Arc<EffectsIntake>,
    /// Takes the tasks that wait for others and are to be checked.
    waiting: Arc<WaitingTasks>,
}

/// The moves chosen by a scan.
#[derive(Default)]
struct ScanPlan {
    moves: Vec<(DueTask, Token)>,
    /// Whether due tasks were left for the next scan.
    left_over: bool,
    /// Whether lost messages remain to be sent again.
    lost_messages_left: bool,
}

/// The result of the moves of a scan.
#[derive(Default)]
struct ScanResult {
    moved: usize,
    /// Whether some moves were left because the scan took too long.
    is_cut: bool,
    enqueued: BTreeMap<JobName, usize>,
    recovered: BTreeMap<StateKind, usize>,
    late: Duration,
    /// Jobs of which the store decided a move, and jobs of which a move failed.
    decided: BTreeSet<JobName>,
    failed: BTreeSet<JobName>,
    /// The error, if the store as a whole failed.
    failure: Option<StoreError>,
}

impl DueScan {
    pub(crate) fn new(
        config: Config,
        deps: Deps,
        share: CurrentShare,
        effects: Arc<EffectsIntake>,
        waiting: Arc<WaitingTasks>,
    ) -> Self {
        let watchdog = Watchdog::new(&config);
        let job_quotas = JobQuotas::new(deps.clock.now());
        Self {
            config,
            deps,
            job_quotas,
            running: RunningLimits::default(),
            fair: FairShares::default(),
            watchdog,
            backoffs: JobBackoffs::default(),
            queue_lengths: QueueLengths::default(),
            lateness: RecentLateness::default(),
            retry_queues: BTreeMap::new(),
            ensured: BTreeSet::new(),
            share,
            effects,
            waiting,
        }
    }

    /// Scans until the intake is stopped. A failed scan is logged and retried.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut failures = 0;
        loop {
            // Taken before the scan, so that an announcement during the scan is kept.
            self.deps.due.take();
            let result = self.scan_once().await;
            let pause = async {
                match result {
                    Ok(schedule) => {
                        failures = 0;
                        schedule.wait(&*self.deps.clock, &self.deps.due).await;
                    }
                    Err(error) => {
                        failures += 1;
                        let wait = backoff(self.config.poll_period, failures);
                        tracing::warn!(%error, failures, ?wait, "failed to scan due tasks");
                        tokio::time::sleep(wait).await;
                    }
                }
            };
            tokio::select! {
                biased;
                () = shutdown.intake_stopped() => return,
                () = pause => {}
            }
        }
    }

    /// One scan: chooses due tasks, moves them and sends their messages. Returns the schedule of the next scan.
    async fn scan_once(&mut self) -> Result<ScanSchedule, StoreError> {
        let jobs = self.deps.store.jobs().await?;
        self.ensure_queues(&jobs).await;
        let (instant, now) = (Instant::now(), self.deps.clock.now());
        let batch_max = self.config.batch_max;
        let mut pending_limits = self.job_quotas.limits(&jobs, batch_max, instant);
        self.running
            .limit(&mut pending_limits, &jobs, &self.deps.due, instant);
        let (owed_limit, owed_limits) = self.effects.limits(instant);
        let share = self.share.get();
        let query = DueQuery {
            now,
            limit_per_job: batch_max,
            pending_limits: pending_limits.clone(),
            owed_limit,
            owed_limits,
            share: share.clone(),
        };
        let mut page = self.deps.store.due(query).await?;
        self.watchdog.record_read(instant, now);
        let lanes = LaneScan {
            store: &*self.deps.store,
            limits: &pending_limits,
            batch_max,
            share: share.as_ref(),
            now,
        };
        let lanes = self.fair.read(&jobs, &lanes, &mut page.tasks).await;
        let lanes_left = lanes.is_unfinished;
        page.tasks.extend(lanes.tasks);
        page.next_at = page.next_at.into_iter().chain(lanes.next_at).min();
        self.effects.offer(std::mem::take(&mut page.owed));
        let is_waiting = |task: &mut DueTask| task.kind == StateKind::Waiting;
        self.waiting
            .offer(page.tasks.extract_if(.., is_waiting).collect());

        let next_at = page.next_at;
        let plan = self.choose(&jobs, &pending_limits, page, now).await;
        let (left_over, lost_messages_left) = (plan.left_over, plan.lost_messages_left);
        let result = self.apply_moves(plan.moves).await;
        self.record(&result);
        if let Some(failure) = result.failure {
            return Err(failure);
        }
        let (ended, wall) = (Instant::now(), self.deps.clock.now());
        let poll_period = self.config.poll_period;
        self.backoffs
            .record_scan(&result.decided, &result.failed, poll_period, ended);
        self.watchdog.record_scan(ended, wall);

        let resent = result.recovered.get(&StateKind::Enqueued);
        if result.moved > resent.copied().unwrap_or(0) && (left_over || result.is_cut) {
            return Ok(ScanSchedule::immediately(wall));
        }
        // Tasks that a quota or a pause holds are announced, too, and must not cause a scan each.
        let spacing = if result.moved > 0 {
            SCAN_SPACING
        } else {
            IDLE_SCAN_SPACING
        };
        let schedule = ScanSchedule {
            stored: WakeTime {
                at: next_at.unwrap_or(Timestamp::MAX),
                not_before: ended + SCAN_SPACING,
            },
            announced: WakeTime {
                at: Timestamp::MAX,
                not_before: ended + spacing,
            },
            latest: instant + self.config.poll_period,
        };
        let next_grant = self.job_quotas.next_scan_at(ended);
        let next_grant = next_grant.map(|at| at.max(ended + SCAN_SPACING));
        let resend_at = lost_messages_left.then(|| ended + RESEND_SPACING);
        let next_look = self.running.next_scan_at();
        let next_look = next_look
            .into_iter()
            .chain(lanes_left.then_some(ended))
            .min();
        let next_look = next_look.map(|at| at.max(ended + SCAN_SPACING));
        let schedule = schedule.no_later_than(next_grant).no_later_than(next_look);
        Ok(schedule.no_later_than(resend_at))
    }

    /// Creates missing queues: a queue in memory is gone after a restart, and one elsewhere may have been deleted.
    async fn ensure_queues(&mut self, jobs: &[Arc<Job>]) {
        if self.ensured.len() > jobs.len() {
            self.ensured
                .retain(|name| jobs.iter().any(|job| job.name == *name));
        }
        let (queue, ensured, now) = (&*self.deps.queue, &self.ensured, Instant::now());
        self.retry_queues.retain(|_, again_at| now < *again_at);
        let retry_queues = &self.retry_queues;
        let is_missing =
            |name: &JobName| !ensured.contains(name) && !retry_queues.contains_key(name);
        let missing = jobs.iter().map(|job| job.name.clone());
        let missing: Vec<_> = missing.filter(is_missing).collect();
        let mut creating = stream::iter(missing)
            .map(|name| Box::pin(async move { (queue.ensure(&name).await, name) }))
            .buffer_unordered(QUEUES_AT_ONCE);
        let (mut created, mut failed) = (Vec::new(), Vec::new());
        while let Some((result, name)) = creating.next().await {
            match result {
                Ok(()) => created.push(name),
                Err(error) => {
                    tracing::warn!(job.name = %name, %error, "failed to create a queue");
                    failed.push((name, now + QUEUE_RETRY_AFTER));
                }
            }
        }
        drop(creating);
        self.ensured.extend(created);
        self.retry_queues.extend(failed);
    }

    /// Chooses among due tasks, taking turns between jobs, so that no job fills the scan.
    async fn choose(
        &mut self,
        jobs: &[Arc<Job>],
        limits: &BTreeMap<JobName, usize>,
        page: DuePage,
        now: Timestamp,
    ) -> ScanPlan {
        let by_name: BTreeMap<&JobName, &Arc<Job>> = jobs.iter().map(|j| (&j.name, j)).collect();
        let mut pending: BTreeMap<JobName, usize> = BTreeMap::new();
        let mut read_per_job: BTreeMap<JobName, usize> = BTreeMap::new();
        let mut turns = Vec::with_capacity(page.tasks.len());
        let instant = Instant::now();
        // Tasks that the store returned too early are skipped.
        for task in page.tasks.into_iter().filter(|t| t.trigger_at <= now) {
            if uses_quota(task.kind) {
                *pending.entry(task.job.clone()).or_default() += 1;
            }
            let turn = read_per_job.entry(task.job.clone()).or_default();
            *turn += 1;
            if !self.backoffs.is_backing_off(&task.job, instant) {
                turns.push((*turn, task));
            }
        }
        for (job, allowed) in limits {
            let count = pending.get(job).copied().unwrap_or(0);
            self.job_quotas.record_pending(job, count, *allowed);
        }
        let granting = Granting {
            store: &*self.deps.store,
            rng: &*self.deps.rng,
            batch_max: self.config.batch_max,
            now,
        };
        let (refused, has_more) = self.job_quotas.take_grants(&granting, &pending).await;
        turns.retain(|(_, task)| !(uses_quota(task.kind) && refused.contains(&task.job)));
        let pending = turns.iter().map(|(_, task)| task);
        let pending = pending.filter(|task| uses_quota(task.kind));
        let (store, due) = (&*self.deps.store, &*self.deps.due);
        let (running, fair) = (&mut self.running, &mut self.fair);
        let (refused, has_lanes) = running
            .take_places(store, due, &by_name, fair, pending, now)
            .await;
        if !refused.is_empty() {
            turns.retain(|(_, task)| !(uses_quota(task.kind) && refused.contains(&task.id)));
        }
        // The sort is stable: it keeps the order within a turn and within a job.
        turns.sort_by_key(|(turn, _)| *turn);

        // Tasks that a quota holds do not cause an immediate scan.
        let is_full = |count: &usize| *count >= self.config.batch_max;
        let mut plan = ScanPlan {
            left_over: has_more || has_lanes || (page.more && read_per_job.values().any(is_full)),
            ..ScanPlan::default()
        };
        let mut resends = Vec::new();
        for (_, task) in turns {
            if plan.moves.len() >= SCAN_TASKS_MAX {
                plan.left_over = true;
                break;
            }
            match task.kind {
                StateKind::Claimed | StateKind::Processing => {
                    let Some(job) = by_name.get(&task.job) else {
                        continue;
                    };
                    let policy = &job.policy;
                    if self.watchdog.may_reclaim(task.kind, policy, instant) {
                        plan.moves.push((task, self.deps.rng.token()));
                    }
                }
                StateKind::Enqueued => resends.push(task),
                _ => plan.moves.push((task, self.deps.rng.token())),
            }
        }
        let is_crowded = |job: &JobName| {
            let limit = limits.get(job).copied().unwrap_or(usize::MAX);
            read_per_job.get(job).copied().unwrap_or(0) >= limit.min(self.config.batch_max)
        };
        // After several enqueue timeouts, even a long queue should have delivered the message.
        let is_lost = |task: &DueTask| {
            by_name.get(&task.job).is_some_and(|job| {
                now.since(task.trigger_at) >= job.policy.enqueue_timeout * LOST_AFTER_TIMEOUTS
            })
        };
        let resends = resends.into_iter().map(|task| {
            let forced = is_crowded(&task.job) || is_lost(&task);
            (task, forced)
        });
        let resends = resends.collect();
        self.choose_resends(resends, &mut plan).await;
        plan
    }

    /// Chooses which messages to send again, among enqueued tasks whose timeout has passed. Their message may be lost,
    /// or may still wait in the queue.
    ///
    /// The message is sent again under the *same* token. The task is not enqueued again: no worker can have claimed it
    /// under this token, or it would not be enqueued, and the copy that is claimed first wins. A queue that still has
    /// the message recognises the copy by the token, so a slow queue is not flooded. A queue that cannot recognise
    /// copies gets at most one per enqueue timeout, and none while it is long, because a long queue is slow rather than
    /// lossy. A message is `forced` where a whole page of such tasks hides others behind it, and where a long queue has
    /// not delivered it for several timeouts. Forced messages are sent at the recovery rate but only at each poll,
    /// because scanning such a backlog is expensive.
    async fn choose_resends(&mut self, resends: Vec<(DueTask, bool)>, plan: &mut ScanPlan) {
        let started_at = Instant::now();
        self.queue_lengths.remove_expired(started_at);
        let jobs: BTreeSet<_> = resends.iter().map(|(task, _)| task.job.clone()).collect();
        self.read_queue_lengths(jobs).await;
        let mut wanted = resends;
        wanted.retain(|(task, forced)| match self.queue_lengths.get(&task.job) {
            Some(QueueLength::Empty | QueueLength::Short) => true,
            Some(QueueLength::Long) | None => *forced,
            Some(QueueLength::Missing) => false,
        });
        let mut wanted: Vec<_> = wanted.into_iter().map(|(task, _)| task).collect();
        let allowed = self.watchdog.resends(wanted.len(), started_at);
        let left = wanted.split_off(allowed);
        // Messages missing from an empty queue are certainly lost, so the next scan for them follows without waiting
        // for a poll.
        plan.lost_messages_left = self.is_any_lost(&left);
        self.read_resends(wanted, plan).await;
    }

    /// Reads which tasks are still enqueued, and under which tokens.
    async fn read_resends(&mut self, mut wanted: Vec<DueTask>, plan: &mut ScanPlan) {
        let (store, started_at) = (self.deps.store.clone(), Instant::now());
        while !wanted.is_empty() && started_at.elapsed() < RESEND_READ_TIME_MAX {
            let rest = wanted.split_off(wanted.len().min(READS_AT_ONCE));
            let reads = wanted.iter().map(|task| store.get(&task.job, &task.id));
            let found = join_all(reads).await;
            let tasks = std::mem::replace(&mut wanted, rest);
            for (task, found) in tasks.into_iter().zip(found) {
                let found = match found {
                    Ok(found) => found,
                    // Sending messages again can wait, and must not delay other due tasks.
                    Err(error) => {
                        tracing::warn!(job.name = %task.job, %error, "failed to read an enqueued task");
                        if !matches!(error, StoreError::Throttled) {
                            return;
                        }
                        // The job's partition is throttled, so none of its messages is urgent.
                        wanted.retain(|other| other.job != task.job);
                        self.queue_lengths
                            .insert(task.job, QueueLength::Long, started_at);
                        continue;
                    }
                };
                // If the task moves after this, the write is rejected.
                let still_enqueued = found.filter(|found| found.kind() == StateKind::Enqueued);
                if let Some(token) = still_enqueued.and_then(|found| found.state.token()) {
                    plan.moves.push((task, token));
                }
            }
        }
        plan.lost_messages_left |= self.is_any_lost(&wanted);
    }

    /// Whether the message of one of these tasks is certainly lost.
    fn is_any_lost(&self, tasks: &[DueTask]) -> bool {
        let is_lost = |job: &JobName| self.queue_lengths.get(job) == Some(QueueLength::Empty);
        tasks.iter().any(|task| is_lost(&task.job))
    }

    /// Reads the lengths of queues that are not cached.
    async fn read_queue_lengths(&mut self, mut jobs: BTreeSet<JobName>) {
        jobs.retain(|job| self.queue_lengths.get(job).is_none());
        let (queue, until) = (&*self.deps.queue, Instant::now() + LENGTH_READ_TIME_MAX);
        let mut reading = stream::iter(jobs)
            .map(|job| Box::pin(async move { (length(queue, &job).await, job) }))
            .buffer_unordered(QUEUES_AT_ONCE);
        let mut lengths = Vec::new();
        while let Ok(Some(length)) = timeout_at(until, reading.next()).await {
            lengths.push(length);
        }
        drop(reading);
        for (length, job) in lengths {
            if length == QueueLength::Missing {
                self.ensured.remove(&job);
            }
            self.queue_lengths.insert(job, length, Instant::now());
        }
    }

    /// Marks tasks as enqueued and sends their messages, batch by batch.
    async fn apply_moves(&self, moves: Vec<(DueTask, Token)>) -> ScanResult {
        let (store, effects) = (&*self.deps.store, self.deps.effects());
        let (mut result, started_at) = (ScanResult::default(), Instant::now());
        let (mut rest, mut len) = (&moves[..], BATCH_LEN.0);
        while !rest.is_empty() {
            if started_at.elapsed() >= MOVE_TIME_MAX {
                result.is_cut = true;
                break;
            }
            let batch;
            (batch, rest) = rest.split_at(len.min(rest.len()));
            len = (len * 2).min(BATCH_LEN.1);
            let now = self.deps.clock.now();
            let commands = batch.iter().map(|(task, token)| self.command(task, *token));
            let results = effects.apply(store, now, commands.collect()).await;
            let mut failure = None;
            let mut is_decided = false;
            for ((task, _), moved) in batch.iter().zip(results) {
                let lost = moved.as_ref().ok().map(|applied| &*applied.task);
                if let Some(lost) = lost.filter(|lost| task.kind.is_owned() && lost.may_discard()) {
                    self.waiting.offer_lost(lost);
                }
                match result.count(task, moved, now) {
                    None => is_decided = true,
                    // A throttled partition affects only its own job.
                    Some(StoreError::Throttled) => {}
                    Some(error) => failure = Some(error),
                }
            }
            if failure.is_some() && !is_decided {
                result.failure = failure;
                break;
            }
        }
        result
    }

    fn command(&self, task: &DueTask, token: Token) -> Command {
        Command {
            job: task.job.clone(),
            id: task.id,
            event: Event::Trigger(Trigger {
                seen: task.kind,
                seen_at: task.trigger_at,
                token,
                jitter: self.deps.rng.jitter(),
            }),
            write: self.deps.rng.write_id(),
        }
    }

    fn record(&mut self, result: &ScanResult) {
        for (job, count) in &result.enqueued {
            self.job_quotas.spend(job, *count);
            let job = job.as_str().to_owned();
            metrics::counter!("dueline_enqueued_total", "job" => job).increment(*count as u64);
        }
        for (state, count) in &result.recovered {
            metrics::counter!("dueline_watchdog_total", "state" => state.name())
                .increment(*count as u64);
        }
        let late = self.lateness.record(result.late, Instant::now());
        metrics::gauge!("dueline_scan_lag_seconds").set(late.as_secs_f64());
    }
}

/// The length of a queue. A queue whose length cannot be read counts as short.
async fn length(queue: &dyn TaskQueue, job: &JobName) -> QueueLength {
    match queue.depth(job).await {
        Ok(depth) => QueueLength::of(depth.visible),
        // The queue was deleted. A message sent before the queue exists again would be lost for another timeout.
        Err(QueueError::NotFound(_)) if queue.ensure(job).await.is_err() => QueueLength::Missing,
        Err(QueueError::NotFound(_)) => QueueLength::Empty,
        Err(_) => QueueLength::Short,
    }
}

impl ScanResult {
    /// Adds one result. Returns the error of a write that may succeed later.
    fn count(
        &mut self,
        task: &DueTask,
        result: Result<Applied, StoreError>,
        now: Timestamp,
    ) -> Option<StoreError> {
        match result {
            Ok(applied) => {
                log_transition(Some(task.kind), &applied.task);
                self.moved += 1;
                if task.kind.is_owned() || task.kind == StateKind::Enqueued {
                    *self.recovered.entry(task.kind).or_default() += 1;
                } else {
                    *self.enqueued.entry(task.job.clone()).or_default() += 1;
                    self.late = self.late.max(now.since(task.trigger_at));
                }
            }
            Err(StoreError::Rejected(rejected)) if is_lost_race(&rejected) => {}
            Err(error) if error.is_retryable() => {
                self.failed.insert(task.job.clone());
                return Some(error);
            }
            Err(error) => {
                tracing::warn!(
                    job.name = %task.job, task.id = %task.id, %error, "failed to move a due task"
                );
            }
        }
        if !self.decided.contains(&task.job) {
            self.decided.insert(task.job.clone());
        }
        None
    }
}

/// Whether the move of a due task counts against the quota of its job. A message that is sent again does not.
fn uses_quota(kind: StateKind) -> bool {
    kind.is_pending() && kind != StateKind::Enqueued
}

/// Whether the task moved between the scan and the write, which is expected.
fn is_lost_race(rejected: &Rejected) -> bool {
    matches!(
        rejected.reason,
        Reason::Moved | Reason::NotDue | Reason::Finished | Reason::Waiting
    )
}
