//! The due scan: tasks whose trigger time has passed are marked, then sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dueline_domain::{Event, Job, JobName, Reason, Rejected, StateKind, Timestamp, Token, Trigger};
use dueline_ports::{
    Applied, Command, DuePage, DueQuery, DueTask, QueueError, StoreError, TaskQueue,
    apply_and_hand_on,
};
use dueline_runtime::Shutdown;
use futures_util::{StreamExt as _, future::join_all, stream};
use tokio::time::{Instant, timeout_at};

use crate::{
    Config, Deps,
    holds::{Holds, backoff},
    lateness::Lateness,
    lengths::{Length, Lengths},
    members::CurrentShare,
    quota::Quotas,
    wait::{Moment, Plan},
    watchdog::Watchdog,
};

/// Tasks moved in one look: more jobs than this are served turn by turn, and whatever else is due is seen soon.
const LOOK_MAX: usize = 2_000;
/// A look that has moved tasks for so long is over: what came due meanwhile, of other jobs perhaps, must not wait for a
/// backlog on a slow store.
const LOOK_TIME_MAX: Duration = Duration::from_millis(250);
/// The same for reading the tasks whose messages are to be sent again.
const RENEWALS_TIME_MAX: Duration = Duration::from_millis(100);
/// Tasks in the first call of a look to the store, and in the longest. The next one is twice as long each time: a slow
/// store shows in the first one that it is slow.
const CHUNK_LEN: (usize, usize) = (100, 500);
/// Shortest time between two looks, so that a stream of due tasks is handled in batches.
const LOOK_SPACING: Duration = Duration::from_millis(2);
/// The same for what is announced after a look that moved nothing.
const IDLE_LOOK_SPACING: Duration = Duration::from_millis(10);
/// Longest time of a look to ask queues how long they are; those that have not answered are asked again.
const LENGTHS_TIME_MAX: Duration = Duration::from_secs(1);
/// Between two tries to make a queue that could not be made.
const MAKE_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// When so many enqueue timeouts have passed since a message should have been claimed, even a long queue counts as having
/// lost it.
const OVERLOOKED_AFTER: u32 = 4;
/// Tasks read side by side before their messages are sent again.
const READS_AT_ONCE: usize = 8;
/// Queues made side by side: at the start of a fleet there may be a thousand, and due tasks wait for them.
const QUEUES_AT_ONCE: usize = 16;
/// When renewals were left over.
const RENEWAL_SPACING: Duration = Duration::from_millis(100);

/// The loop and what it remembers from look to look.
pub(crate) struct Scan {
    config: Config,
    deps: Deps,
    quotas: Quotas,
    watchdog: Watchdog,
    holds: Holds,
    lengths: Lengths,
    lateness: Lateness,
    /// Jobs whose queue is known to exist.
    ensured: BTreeSet<JobName>,
    /// Jobs whose queue could not be made, and when to try again.
    unmade: BTreeMap<JobName, Instant>,
    /// What this consumer reads.
    share: CurrentShare,
}

/// What a look chose to do.
#[derive(Default)]
struct Chosen {
    moves: Vec<(DueTask, Token)>,
    /// Whether due tasks were left for the next look.
    left_over: bool,
    /// Whether messages that should be sent again were left for later.
    renewals_left: bool,
}

/// What a look did.
#[derive(Default)]
struct Done {
    moved: usize,
    /// Whether some were left because the look took too long.
    is_cut: bool,
    enqueued: BTreeMap<JobName, usize>,
    taken_back: BTreeMap<StateKind, usize>,
    late: Duration,
    /// Jobs of which something was decided, and jobs of which something failed.
    decided: BTreeSet<JobName>,
    failed: BTreeSet<JobName>,
    /// The store as a whole failed.
    failure: Option<StoreError>,
}

impl Scan {
    pub(crate) fn new(config: Config, deps: Deps, share: CurrentShare) -> Self {
        let watchdog = Watchdog::new(&config);
        Self {
            config,
            deps,
            quotas: Quotas::default(),
            watchdog,
            holds: Holds::default(),
            lengths: Lengths::default(),
            lateness: Lateness::default(),
            unmade: BTreeMap::new(),
            ensured: BTreeSet::new(),
            share,
        }
    }

    /// Looks again and again until the intake is stopped. A failed look is logged and tried again.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut failures = 0;
        loop {
            // Before the look, so that whatever is announced during it is still there afterwards.
            self.deps.due.take();
            let looked = self.look().await;
            let pause = async {
                match looked {
                    Ok(plan) => {
                        failures = 0;
                        plan.wait(&*self.deps.clock, &self.deps.due).await;
                    }
                    Err(error) => {
                        failures += 1;
                        let wait = backoff(self.config.poll_period, failures);
                        tracing::warn!(%error, failures, ?wait, "failed to look for due tasks");
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

    /// One look: what is due is chosen, moved and sent. Answers when to look next.
    async fn look(&mut self) -> Result<Plan, StoreError> {
        let jobs = self.deps.store.jobs().await?;
        self.ensure_queues(&jobs).await;
        let (instant, now) = (Instant::now(), self.deps.clock.now());
        let batch_max = self.config.batch_max;
        let pending_limits = self.quotas.limits(&jobs, batch_max, instant);
        let query = DueQuery {
            now,
            limit_per_job: batch_max,
            pending_limits: pending_limits.clone(),
            share: self.share.get(),
        };
        let page = self.deps.store.due(query).await?;
        self.watchdog.sees(instant, now);

        let next_at = page.next_at;
        let chosen = self.choose(&jobs, &pending_limits, page, now).await;
        let (left_over, renewals_left) = (chosen.left_over, chosen.renewals_left);
        let done = self.carry_out(chosen.moves).await;
        self.account(&done);
        if let Some(failure) = done.failure {
            return Err(failure);
        }
        let (ended, wall) = (Instant::now(), self.deps.clock.now());
        let poll_period = self.config.poll_period;
        self.holds
            .looked(&done.decided, &done.failed, poll_period, ended);
        self.watchdog.looked(ended, wall);

        let renewed = done.taken_back.get(&StateKind::Enqueued);
        if done.moved > renewed.copied().unwrap_or(0) && (left_over || done.is_cut) {
            return Ok(Plan::now(wall));
        }
        // What a quota or a pause holds back is announced all the same; it must not cause a look each.
        let spacing = if done.moved > 0 {
            LOOK_SPACING
        } else {
            IDLE_LOOK_SPACING
        };
        let plan = Plan {
            known: Moment {
                at: next_at.unwrap_or(Timestamp::MAX),
                no_sooner: ended + LOOK_SPACING,
            },
            announced: Moment {
                at: Timestamp::MAX,
                no_sooner: ended + spacing,
            },
            latest: instant + self.config.poll_period,
        };
        let renewal = renewals_left.then(|| ended + RENEWAL_SPACING);
        Ok(plan.no_later(self.quotas.look_again_at()).no_later(renewal))
    }

    /// A queue in the memory of this process is gone after a restart, and one elsewhere may have been deleted.
    async fn ensure_queues(&mut self, jobs: &[Arc<Job>]) {
        if self.ensured.len() > jobs.len() {
            self.ensured
                .retain(|name| jobs.iter().any(|job| job.name == *name));
        }
        let (queue, ensured, now) = (&*self.deps.queue, &self.ensured, Instant::now());
        self.unmade.retain(|_, again_at| now < *again_at);
        let unmade = &self.unmade;
        let is_missing = |name: &JobName| !ensured.contains(name) && !unmade.contains_key(name);
        let missing = jobs.iter().map(|job| job.name.clone());
        let missing: Vec<_> = missing.filter(is_missing).collect();
        let mut making = stream::iter(missing)
            .map(|name| Box::pin(async move { (queue.ensure(&name).await, name) }))
            .buffer_unordered(QUEUES_AT_ONCE);
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        while let Some((result, name)) = making.next().await {
            match result {
                Ok(()) => made.push(name),
                Err(error) => {
                    tracing::warn!(job.name = %name, %error, "failed to make a queue");
                    failed.push((name, now + MAKE_AGAIN_AFTER));
                }
            }
        }
        drop(making);
        self.ensured.extend(made);
        self.unmade.extend(failed);
    }

    /// Chooses among due tasks, job by job in turn, so that none of them fills the look.
    async fn choose(
        &mut self,
        jobs: &[Arc<Job>],
        limits: &BTreeMap<JobName, usize>,
        page: DuePage,
        now: Timestamp,
    ) -> Chosen {
        let by_name: BTreeMap<&JobName, &Arc<Job>> = jobs.iter().map(|j| (&j.name, j)).collect();
        let mut pending: BTreeMap<JobName, usize> = BTreeMap::new();
        let mut seen: BTreeMap<JobName, usize> = BTreeMap::new();
        let mut turns = Vec::with_capacity(page.tasks.len());
        let instant = Instant::now();
        // A store that answers too early is not obeyed.
        for task in page.tasks.into_iter().filter(|t| t.trigger_at <= now) {
            if task.kind.is_pending() {
                *pending.entry(task.job.clone()).or_default() += 1;
            }
            let turn = seen.entry(task.job.clone()).or_default();
            *turn += 1;
            if !self.holds.is_held(&task.job, instant) {
                turns.push((*turn, task));
            }
        }
        for (job, count) in limits.keys().map(|job| (job, pending.get(job))) {
            self.quotas.saw(job, count.copied().unwrap_or(0));
        }
        // The sort is stable: within a turn and within a job the order stays.
        turns.sort_by_key(|(turn, _)| *turn);

        // What a quota holds back is no reason to look again at once.
        let full = |count: &usize| *count >= self.config.batch_max;
        let mut chosen = Chosen {
            left_over: page.more && seen.values().any(full),
            ..Chosen::default()
        };
        let mut renewals = Vec::new();
        for (_, task) in turns {
            if chosen.moves.len() >= LOOK_MAX {
                chosen.left_over = true;
                break;
            }
            match task.kind {
                StateKind::Claimed | StateKind::Processing => {
                    let Some(job) = by_name.get(&task.job) else {
                        continue;
                    };
                    let policy = &job.policy;
                    if self.watchdog.may_take_back(task.kind, policy, instant) {
                        chosen.moves.push((task, self.deps.rng.token()));
                    }
                }
                StateKind::Enqueued => renewals.push(task),
                _ => chosen.moves.push((task, self.deps.rng.token())),
            }
        }
        let crowded = |job: &JobName| {
            let limit = limits.get(job).copied().unwrap_or(usize::MAX);
            seen.get(job).copied().unwrap_or(0) >= limit.min(self.config.batch_max)
        };
        // However long the queue is: it has had the time of several timeouts to come to the message.
        let is_overlooked = |task: &DueTask| {
            by_name.get(&task.job).is_some_and(|job| {
                now.since(task.trigger_at) >= job.policy.enqueue_timeout * OVERLOOKED_AFTER
            })
        };
        let renewals = renewals.into_iter().map(|task| {
            let anyway = crowded(&task.job) || is_overlooked(&task);
            (task, anyway)
        });
        let renewals = renewals.collect();
        self.choose_renewals(renewals, &mut chosen).await;
        chosen
    }

    /// Enqueued tasks whose timeout has passed: their message may be lost, or nobody has come to it yet.
    ///
    /// It is sent again under the *same* token. That is no hand-on: nobody can have claimed under this token, or
    /// the task would not be enqueued, and whichever copy is claimed first wins. A queue that still has the message
    /// recognises the copy, so a slow queue is not flooded; with a new token it could not. A queue that cannot
    /// recognise copies gets at most one per enqueue timeout, and none while it is long: a long queue is no lossy
    /// one. It is sent `anyway` where a whole page of such tasks hides others behind it, and where a long queue has not
    /// come to it for several timeouts, at the recovery rate but only at each poll: a look over such a backlog has its price.
    async fn choose_renewals(&mut self, renewals: Vec<(DueTask, bool)>, chosen: &mut Chosen) {
        let begun_at = Instant::now();
        self.lengths.forget(begun_at);
        let jobs: BTreeSet<_> = renewals.iter().map(|(task, _)| task.job.clone()).collect();
        self.ask_lengths(jobs).await;
        let mut wanted = renewals;
        wanted.retain(|(task, anyway)| match self.lengths.get(&task.job) {
            Some(Length::Empty | Length::Short) => true,
            Some(Length::Long) | None => *anyway,
            Some(Length::Missing) => false,
        });
        let mut wanted: Vec<_> = wanted.into_iter().map(|(task, _)| task).collect();
        let taken = self.watchdog.renewals(wanted.len(), begun_at);
        let left = wanted.split_off(taken);
        // What an empty queue lacks was lost, and is brought back without a pause.
        chosen.renewals_left = self.is_any_lost(&left);
        self.read_renewals(wanted, chosen).await;
    }

    /// Finds out which tasks are still enqueued, and under which tokens.
    async fn read_renewals(&mut self, mut wanted: Vec<DueTask>, chosen: &mut Chosen) {
        let (store, begun_at) = (self.deps.store.clone(), Instant::now());
        while !wanted.is_empty() && begun_at.elapsed() < RENEWALS_TIME_MAX {
            let rest = wanted.split_off(wanted.len().min(READS_AT_ONCE));
            let reads = wanted.iter().map(|task| store.get(&task.job, &task.id));
            let found = join_all(reads).await;
            let tasks = std::mem::replace(&mut wanted, rest);
            for (task, found) in tasks.into_iter().zip(found) {
                let found = match found {
                    Ok(found) => found,
                    // A message that is sent again can wait; what else is due must not wait for it.
                    Err(error) => {
                        tracing::warn!(job.name = %task.job, %error, "failed to read an enqueued task");
                        if !matches!(error, StoreError::Throttled) {
                            return;
                        }
                        // Its partition is asked for too much; no message of it is urgent then.
                        wanted.retain(|other| other.job != task.job);
                        self.lengths.note(task.job, Length::Long, begun_at);
                        continue;
                    }
                };
                // If it moves after this, the write will find that out.
                let still_enqueued = found.filter(|found| found.kind() == StateKind::Enqueued);
                if let Some(token) = still_enqueued.and_then(|found| found.state.token()) {
                    chosen.moves.push((task, token));
                }
            }
        }
        chosen.renewals_left |= self.is_any_lost(&wanted);
    }

    /// Whether the messages of some of these tasks are certainly lost.
    fn is_any_lost(&self, tasks: &[DueTask]) -> bool {
        let is_lost = |job: &JobName| self.lengths.get(job) == Some(Length::Empty);
        tasks.iter().any(|task| is_lost(&task.job))
    }

    /// Asks the queues that have not said lately how long they are.
    async fn ask_lengths(&mut self, mut jobs: BTreeSet<JobName>) {
        jobs.retain(|job| self.lengths.get(job).is_none());
        let (queue, until) = (&*self.deps.queue, Instant::now() + LENGTHS_TIME_MAX);
        let mut asking = stream::iter(jobs)
            .map(|job| Box::pin(async move { (length(queue, &job).await, job) }))
            .buffer_unordered(QUEUES_AT_ONCE);
        let mut said = Vec::new();
        while let Ok(Some(answer)) = timeout_at(until, asking.next()).await {
            said.push(answer);
        }
        drop(asking);
        for (length, job) in said {
            if length == Length::Missing {
                self.ensured.remove(&job);
            }
            self.lengths.note(job, length, Instant::now());
        }
    }

    /// Marks and sends, batch by batch.
    async fn carry_out(&self, moves: Vec<(DueTask, Token)>) -> Done {
        let (store, queue) = (&*self.deps.store, &*self.deps.queue);
        let (mut done, begun_at) = (Done::default(), Instant::now());
        let (mut rest, mut len) = (&moves[..], CHUNK_LEN.0);
        while !rest.is_empty() {
            if begun_at.elapsed() >= LOOK_TIME_MAX {
                done.is_cut = true;
                break;
            }
            let chunk;
            (chunk, rest) = rest.split_at(len.min(rest.len()));
            len = (len * 2).min(CHUNK_LEN.1);
            let now = self.deps.clock.now();
            let commands = chunk.iter().map(|(task, token)| self.command(task, *token));
            let results = apply_and_hand_on(store, queue, now, commands.collect()).await;
            let mut failure = None;
            let mut is_decided = false;
            for ((task, _), result) in chunk.iter().zip(results) {
                match done.count(task, result, now) {
                    None => is_decided = true,
                    // Some partition is asked for too much: that is the business of its job alone.
                    Some(StoreError::Throttled) => {}
                    Some(error) => failure = Some(error),
                }
            }
            if failure.is_some() && !is_decided {
                done.failure = failure;
                break;
            }
        }
        done
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

    fn account(&mut self, done: &Done) {
        for (job, count) in &done.enqueued {
            self.quotas.spend(job, *count);
            let job = job.as_str().to_owned();
            metrics::counter!("dueline_enqueued_total", "job" => job).increment(*count as u64);
        }
        for (state, count) in &done.taken_back {
            metrics::counter!("dueline_watchdog_total", "state" => state.name())
                .increment(*count as u64);
        }
        let late = self.lateness.note(done.late, Instant::now());
        metrics::gauge!("dueline_scan_lag_seconds").set(late.as_secs_f64());
    }
}

/// How long a queue is, as far as that can be told.
async fn length(queue: &dyn TaskQueue, job: &JobName) -> Length {
    match queue.depth(job).await {
        Ok(depth) => Length::of(depth.visible),
        // Somebody deleted it. What is sent before it is there again would be lost for another timeout.
        Err(QueueError::NotFound(_)) if queue.ensure(job).await.is_err() => Length::Missing,
        Err(QueueError::NotFound(_)) => Length::Empty,
        Err(_) => Length::Short,
    }
}

impl Done {
    /// Answers the error of a write that may work later.
    fn count(
        &mut self,
        task: &DueTask,
        result: Result<Applied, StoreError>,
        now: Timestamp,
    ) -> Option<StoreError> {
        match result {
            Ok(_) => {
                self.moved += 1;
                if task.kind.is_owned() || task.kind == StateKind::Enqueued {
                    *self.taken_back.entry(task.kind).or_default() += 1;
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

/// Whether the task had simply moved between the look and the write.
fn is_lost_race(rejected: &Rejected) -> bool {
    matches!(
        rejected.reason,
        Reason::Moved | Reason::NotDue | Reason::Finished | Reason::Waiting
    )
}
