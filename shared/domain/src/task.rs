//! A task: one unit of work of a job.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Claim, Event, Family, JobName, Lease, Owed, Policy, Priority, State, StateKind, TaskId,
    TaskOptions, TaskRef, Timestamp, Token, Transition, Weight, WorkerId, WriteId, apply, limits,
};

/// A task, with everything that is stored of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The public id.
    pub id: TaskId,
    /// The job it belongs to.
    pub job: JobName,
    /// The state, with the data that only this state has.
    pub state: State,
    /// Urgency among ready tasks of the job.
    pub priority: Priority,
    /// What the task counts against an executor's maximum concurrency.
    pub weight: Weight,
    /// When the task was first due. Retries do not change it; a user may, see [`Task::original_run_at`].
    pub run_at: Timestamp,
    /// When the task was submitted.
    pub created_at: Timestamp,
    /// When the task last changed. Never before `created_at`, and never moved back.
    pub changed_at: Timestamp,
    /// When the latest run began.
    pub started_at: Option<Timestamp>,
    /// When the task ended.
    pub finished_at: Option<Timestamp>,
    /// The worker that owned the task when it ended; `None` if none did, or if an older program stored the end.
    pub last_owner: Option<WorkerId>,
    /// Runs that used a try. Abandoned runs and those before a redrive do not count; see [`Task::attempt`] for the
    /// number of a run.
    pub tries: u32,
    /// Claims lost before a run began. They use no try but are capped.
    pub losses: u32,
    /// Whether a user requested that the run in progress stops.
    pub cancel_requested: bool,
    /// The name of the latest write.
    pub write: WriteId,
    /// The handler's input, as submitted.
    pub payload: Bytes,
    /// The input of later runs, instead of the payload.
    pub checkpoint: Option<Bytes>,
    /// What a successful run returned.
    pub result: Option<Bytes>,
    /// Why the task last failed, was cancelled, trashed or dropped.
    pub error: Option<Arc<str>>,
    /// Past runs. The run in progress and a successful run are not in here: the fields above describe them.
    pub history: Option<Box<History>>,
    /// Fields that most tasks leave empty.
    pub options: Option<Box<TaskOptions>>,
    /// What a finished task has yet to cause beyond itself.
    pub owed: Option<Box<Owed>>,
}

/// Past runs, oldest first, up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The first run and the latest ones.
    pub runs: Vec<RunRecord>,
    /// Number of runs removed between the first and the second of `runs`.
    pub dropped: u32,
}

impl History {
    /// Adds a run. When the history is full, the second run is removed.
    pub fn push(&mut self, run: RunRecord) {
        self.push_within(run, limits().history_len_max);
    }

    fn push_within(&mut self, run: RunRecord, len_max: usize) {
        self.runs.push(run);
        let excess = self.runs.len().saturating_sub(len_max);
        // With room for a single run, that is the latest one.
        let kept = usize::from(len_max > 1);
        self.runs.drain(kept..kept + excess);
        let excess = u32::try_from(excess).unwrap_or(u32::MAX);
        self.dropped = self.dropped.saturating_add(excess);
    }

    /// Number of runs that were added.
    fn len(&self) -> u32 {
        let kept = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        kept.saturating_add(self.dropped)
    }
}

/// One past run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Number of the run, 0 for the first.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// When the run began.
    pub started_at: Timestamp,
    /// When the run ended.
    pub finished_at: Timestamp,
    /// How the run ended.
    pub end: RunEnd,
    /// Result or error text, cut to the limit.
    pub info: Arc<str>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The handler succeeded.
    Succeeded,
    /// The handler failed in a way that allows another run, whether or not a try was left.
    Retriable,
    /// The handler failed in a way that makes another run useless.
    Fatal,
    /// The lease expired or the worker was known to be gone.
    Lost,
    /// The worker gave up the task without an outcome.
    Abandoned,
    /// A user stopped the run.
    Cancelled,
    /// The worker trashed the task.
    Trashed,
}

impl RunEnd {
    /// All ends in the order of their stored codes.
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Retriable,
        Self::Fatal,
        Self::Lost,
        Self::Abandoned,
        Self::Cancelled,
        Self::Trashed,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Retriable => "retriable",
            Self::Fatal => "fatal",
            Self::Lost => "lost",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::Trashed => "trashed",
        }
    }
}

/// When a submitted task is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// At this time; at once when it has passed.
    At(Timestamp),
    /// This long after the submit arrives. A repetition of the submit is the same submit although it arrives later.
    After(Duration),
}

impl Due {
    /// The due time of a submit that arrives at `now`.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(time) => time,
            Self::After(delay) => now.after(delay),
        }
    }

    /// The time, if one is given.
    pub const fn at(self) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Now | Self::After(_) => None,
        }
    }
}

/// `None` is [`Due::Now`].
impl From<Option<Timestamp>> for Due {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Now, Self::At)
    }
}

/// The submit of a task, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTask {
    /// The id, chosen by the client or by the frontend.
    pub id: TaskId,
    /// Whether the client chose the id, so that a repetition of the submit makes no second task.
    pub id_is_given: bool,
    /// The job.
    pub job: JobName,
    /// When the task is due.
    pub due: Due,
    /// Urgency.
    pub priority: Priority,
    /// Weight.
    pub weight: Weight,
    /// The handler's input.
    pub payload: Bytes,
    /// Fields that most tasks leave empty.
    pub options: Option<Box<TaskOptions>>,
}

impl NewTask {
    /// A task of `job` that is due at once, with defaults for all other fields.
    pub fn now(id: TaskId, job: JobName, payload: Bytes) -> Self {
        Self {
            id,
            id_is_given: false,
            job,
            due: Due::Now,
            priority: Priority::default(),
            weight: Weight::ONE,
            payload,
            options: None,
        }
    }

    /// The task that this submit creates at `now`. It is created as enqueued if it is due and its job allows that
    /// (`may_enqueue`), so that a task to run now needs no second write.
    pub fn into_task(
        mut self,
        policy: &Policy,
        now: Timestamp,
        token: Token,
        write: WriteId,
        may_enqueue: bool,
    ) -> Task {
        if let Some(options) = &mut self.options {
            options.original_run_at = None;
        }
        let run_at = self.due.time(now);
        let options = self.options.as_ref();
        let family = options.and_then(|options| options.family.as_deref());
        let state = if family.is_some_and(Family::is_open) {
            let check_at = now.after(Family::CHECK_FIRST);
            State::Waiting { check_at }
        } else if run_at <= now && may_enqueue {
            let expires_at = now.after(policy.enqueue_timeout);
            State::Enqueued { token, expires_at }
        } else {
            State::New { due_at: run_at }
        };
        Task {
            id: self.id,
            job: self.job,
            state,
            priority: self.priority,
            weight: self.weight,
            run_at,
            created_at: now,
            changed_at: now,
            started_at: None,
            finished_at: None,
            last_owner: None,
            tries: 0,
            losses: 0,
            cancel_requested: false,
            write,
            payload: self.payload,
            checkpoint: None,
            result: None,
            error: None,
            history: None,
            options: self.options,
            owed: None,
        }
    }
}

impl Task {
    /// Claims a new task for a reserved worker within the write that creates the task. The result is the same as of a
    /// separate claim. A task that was not created as enqueued stays as it is.
    pub fn claim_on_create(&mut self, job: &Policy, worker: WorkerId) {
        let State::Enqueued { token, .. } = self.state else {
            return;
        };
        let claim = Event::Claim(Claim {
            token,
            worker,
            start: false,
        });
        if let Ok(transition) = apply(self, job, &claim, self.write, self.created_at) {
            self.advance(transition);
        }
    }

    /// This task without what only its owner may know: the fencing token, and the name of the latest write, which a
    /// caller could repeat. [`Token::HIDDEN`] and [`WriteId::HIDDEN`] take their places.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.write = WriteId::HIDDEN;
        if let State::Enqueued { token, .. }
        | State::Claimed { token, .. }
        | State::Processing { token, .. } = &mut self.state
        {
            *token = Token::HIDDEN;
        }
        let options = self.options.as_mut();
        if let Some(family) = options.and_then(|options| options.family.as_mut()) {
            family.staged = None;
            if let Some(run) = &mut family.from_run {
                run.token = Token::HIDDEN;
            }
        }
        self
    }

    /// The state without its data.
    pub const fn kind(&self) -> StateKind {
        self.state.kind()
    }

    /// The lease, while a worker owns the task.
    pub const fn lease(&self) -> Option<&Lease> {
        self.state.lease()
    }

    /// The worker that owns the task, or that owned it when it ended. Stores keep both in one place.
    pub fn worker(&self) -> Option<&WorkerId> {
        let owner = self.lease().map(|lease| &lease.worker);
        owner.or(self.last_owner.as_ref())
    }

    /// The input of the next run: the checkpoint, or else the payload.
    pub fn input(&self) -> &Bytes {
        self.checkpoint.as_ref().unwrap_or(&self.payload)
    }

    /// The fairness key, or the empty text without one.
    pub fn lane_name(&self) -> &str {
        let options = self.options.as_deref();
        let key = options.and_then(|options| options.fairness_key.as_deref());
        key.unwrap_or_default()
    }

    /// The run time of the submit, whether or not a user has changed the run time since.
    pub fn original_run_at(&self) -> Timestamp {
        let options = self.options.as_ref();
        let original = options.and_then(|options| options.original_run_at);
        original.unwrap_or(self.run_at)
    }

    /// Sets a new run time, and keeps the original one.
    fn reschedule(&mut self, run_at: Timestamp) {
        let original = self.original_run_at();
        self.run_at = run_at;
        if original != run_at {
            self.options.get_or_insert_default().original_run_at = Some(original);
        } else if let Some(options) = &mut self.options {
            options.original_run_at = None;
        }
    }

    /// The attempt of the run in progress or of the successful run; else of the next run. No two runs of a task have the
    /// same one, whatever happens to the count of tries: each run that ends without success enters the history, and
    /// the history counts what it does not keep.
    pub fn attempt(&self) -> u32 {
        self.history.as_ref().map_or(0, |history| history.len())
    }

    /// The attempt of the latest run, which may be in progress; `None` before the first.
    pub fn latest_attempt(&self) -> Option<u32> {
        match self.kind() {
            StateKind::Processing | StateKind::Succeeded => Some(self.attempt()),
            _ => self.attempt().checked_sub(1),
        }
    }

    /// The policy of this task: that of its job, with the task's overrides.
    pub fn policy<'a>(&self, job: &'a Policy) -> Cow<'a, Policy> {
        let options = self.options.as_ref();
        match options.and_then(|options| options.overrides.as_ref()) {
            Some(overrides) => Cow::Owned(job.with(overrides)),
            None => Cow::Borrowed(job),
        }
    }

    /// The message for the queue, while the task is enqueued.
    pub fn message(&self) -> Option<TaskRef> {
        let State::Enqueued { token, .. } = self.state else {
            return None;
        };
        let options = self.options.as_deref();
        // Tasks that take turns are dispatched in the order in which they were enqueued.
        let (priority, due_at) = match options.is_some_and(|options| options.takes_turns) {
            true => (Priority::default(), self.changed_at),
            false => (self.priority, self.run_at),
        };
        Some(TaskRef {
            job: self.job.clone(),
            id: self.id,
            token,
            priority,
            weight: self.weight,
            due_at,
            trace: options.and_then(|options| options.trace.clone()),
        })
    }

    /// Whether `submit` is a repetition of the submit that created this task: same job, payload, time and settings.
    pub fn matches_submit(&self, submit: &NewTask) -> bool {
        // Destructured without `..`, so that a new field does not compile before it is compared or listed here.
        let NewTask {
            // The caller has found the task by its id or by its key.
            id: _,
            id_is_given: _,
            job,
            due,
            priority,
            weight,
            payload,
            options,
        } = submit;
        let same_time = match *due {
            Due::At(time) => time == self.original_run_at(),
            // The time of the first submit counts, and a repetition arrives later.
            Due::Now | Due::After(_) => true,
        };
        let none = TaskOptions::default();
        let stored = self.options.as_deref().unwrap_or(&none);
        let submitted = options.as_deref().unwrap_or(&none);
        self.job == *job
            && self.payload == *payload
            && self.priority == *priority
            && self.weight == *weight
            && same_time
            && stored.matches_submit(submitted)
    }

    /// Applies a transition that [`crate::apply`] decided for this task in its present state.
    pub fn advance(&mut self, transition: Transition) {
        let Transition {
            state,
            tries,
            losses,
            cancel_requested,
            changed_at,
            started_at,
            finished_at,
            last_owner,
            write,
            run,
            checkpoint,
            result,
            error,
            modified,
            fresh,
            owed,
            family,
            options,
        } = transition;
        self.state = state;
        self.tries = tries;
        self.losses = losses;
        self.cancel_requested = cancel_requested;
        self.changed_at = changed_at;
        self.started_at = started_at;
        self.finished_at = finished_at;
        self.last_owner = last_owner;
        self.write = write;
        self.owed = owed;
        if options.is_some() {
            self.options = options;
        }
        if family.is_some() {
            self.options.get_or_insert_default().family = family;
        }
        if let Some(run) = run {
            self.history.get_or_insert_default().push(*run);
        }
        if checkpoint.is_some() {
            self.checkpoint = checkpoint;
        }
        if result.is_some() {
            self.result = result;
        }
        if error.is_some() {
            self.error = error;
        }
        if fresh {
            (self.error, self.result) = (None, None);
        }
        if self.kind() == StateKind::Succeeded {
            // The errors of earlier runs stay in the history.
            self.error = None;
        }
        if let Some(change) = modified {
            if let Some(run_at) = change.run_at {
                self.reschedule(run_at);
            }
            self.priority = change.priority.unwrap_or(self.priority);
            self.weight = change.weight.unwrap_or(self.weight);
            if let Some(payload) = change.payload {
                self.payload = payload;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Overrides;

    #[test]
    fn a_history_of_any_length_keeps_its_limit_and_counts_the_rest() {
        let run = |attempt| RunRecord {
            attempt,
            worker: WorkerId::parse("w@1").unwrap(),
            started_at: Timestamp::EPOCH,
            finished_at: Timestamp::EPOCH,
            end: RunEnd::Retriable,
            info: "".into(),
        };
        for (len_max, kept) in [(0, &[][..]), (1, &[4]), (2, &[0, 4]), (3, &[0, 3, 4])] {
            let mut history = History::default();
            for attempt in 0..5 {
                history.push_within(run(attempt), len_max);
                assert_eq!(history.len(), attempt + 1);
            }
            let attempts: Vec<_> = history.runs.iter().map(|run| run.attempt).collect();
            assert_eq!(attempts, kept, "at most {len_max}");
            assert_eq!(history.dropped as usize, 5 - kept.len());
        }
        // A limit that was lowered shortens a longer history.
        let mut history = History::default();
        (0..5).for_each(|attempt| history.push_within(run(attempt), 5));
        history.push_within(run(5), 2);
        assert_eq!((history.runs.len(), history.dropped), (2, 4));
    }

    fn submit() -> NewTask {
        let job = JobName::parse("mail").unwrap();
        let id = TaskId::from_bytes([1; 16]);
        NewTask::now(id, job, Bytes::from_static(b"hello"))
    }

    fn stored(new: NewTask) -> Task {
        let (token, write) = (Token::from_random(1), WriteId::from_random(1));
        let now = Timestamp::clamped(1_000);
        new.into_task(&Policy::default(), now, token, write, true)
    }

    fn with(options: TaskOptions) -> NewTask {
        NewTask {
            options: Some(Box::new(options)),
            ..submit()
        }
    }

    #[test]
    fn f_011_a_repeated_submit_is_recognised_after_a_reschedule() {
        let due = |ms| NewTask {
            due: Due::At(Timestamp::clamped(ms)),
            ..submit()
        };
        let mut task = stored(due(5_000));
        task.reschedule(Timestamp::clamped(6_000));
        assert!(task.matches_submit(&due(5_000)));
        assert!(!task.matches_submit(&due(6_000)));
        task.reschedule(Timestamp::clamped(7_000));
        assert_eq!(task.original_run_at(), Timestamp::clamped(5_000));
        task.reschedule(Timestamp::clamped(5_000));
        assert_eq!(
            task.options,
            Some(Box::default()),
            "nothing differs any more"
        );
    }

    #[test]
    fn f_011_a_submit_has_no_original_run_time() {
        let submit = with(TaskOptions {
            original_run_at: Some(Timestamp::clamped(5)),
            ..TaskOptions::default()
        });
        assert_eq!(stored(submit).original_run_at(), Timestamp::clamped(1_000));
    }

    #[test]
    fn a_repeated_submit_may_differ_in_client_trace_and_empty_overrides() {
        assert!(stored(submit()).matches_submit(&submit()));
        let repeated = with(TaskOptions {
            created_by: Some("cron".into()),
            content_type: Some("text/plain".into()),
            trace: Some("00-1-2-01".into()),
            overrides: Some(Overrides::default()),
            ..TaskOptions::default()
        });
        assert!(stored(submit()).matches_submit(&repeated));
    }

    #[test]
    fn a_submit_with_another_payload_name_tag_or_override_is_another_submit() {
        let overrides = Overrides {
            retries_max: Some(3),
            ..Overrides::default()
        };
        let others = [
            NewTask {
                payload: Bytes::from_static(b"bye"),
                ..submit()
            },
            with(TaskOptions {
                name: Some("a".into()),
                ..TaskOptions::default()
            }),
            with(TaskOptions {
                tags: vec!["a".into()],
                ..TaskOptions::default()
            }),
            with(TaskOptions {
                overrides: Some(overrides),
                ..TaskOptions::default()
            }),
        ];
        for other in others {
            assert!(!stored(submit()).matches_submit(&other), "{other:?}");
        }
    }
}
