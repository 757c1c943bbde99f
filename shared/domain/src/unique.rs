//! Unique tasks: how long a task holds its idempotency key, and what becomes of a submit with a key that is held.

use std::time::Duration;

use crate::{
    Event, Modification, NewTask, Policy, Replacement, State, Task, TaskOptions, Timestamp, Token,
};

/// How long a task holds its key, and what a submit does that finds its key held. A task with a key and without this
/// holds the key as long as it is kept, and is returned to equal submits only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unique {
    /// The scope: until what happens to the task it holds the key.
    pub until: HeldUntil,
    /// The task holds the key no longer than this after its submit.
    pub period: Option<Duration>,
    /// What this submit does when another task holds the key.
    pub on_conflict: OnConflict,
    /// How long after its first submit a task is due at the latest, however often it is replaced.
    pub max_delay: Option<Duration>,
    /// How often later submits have replaced the task. Never part of a submit.
    pub replaced: u32,
}

/// Until what happens to a task it holds its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldUntil {
    /// Until a worker has claimed it.
    Started,
    /// Until it has ended.
    #[default]
    Ended,
    /// Until it is deleted.
    Deleted,
}

impl HeldUntil {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Started, Self::Ended, Self::Deleted];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Deleted => "deleted",
        }
    }

    /// The scope of a name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// What a submit does when another task holds its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It is answered with that task, whatever it contains.
    #[default]
    Return,
    /// That task gets the content, the time and the settings of this submit, if its run has not begun.
    Replace,
    /// It is refused.
    Reject,
}

impl OnConflict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Return, Self::Replace, Self::Reject];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Replace => "replace",
            Self::Reject => "reject",
        }
    }

    /// What a name on the wire stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The scope of a submit that names none. Who replaces wants a new task once the present one is on its way.
    pub const fn default_scope(self) -> HeldUntil {
        match self {
            Self::Replace => HeldUntil::Started,
            Self::Return | Self::Reject => HeldUntil::Ended,
        }
    }
}

/// What becomes of a submit whose id or key another task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The task holds the key no longer: the submit creates a task of its own.
    Free,
    /// The submit is answered with the task.
    Return,
    /// The submit replaces the task.
    Replace,
    /// The id or the key is that of another submit.
    Differs,
    /// The submit is refused because the key is held.
    Held,
}

impl Task {
    /// What makes this task unique, if it says more than its key.
    pub fn unique(&self) -> Option<&Unique> {
        self.options.as_ref()?.unique.as_deref()
    }

    /// Whether this task, which was the last to take its key, still holds it.
    pub fn holds_key(&self, now: Timestamp) -> bool {
        let Some(unique) = self.unique() else {
            return true;
        };
        let in_scope = match unique.until {
            HeldUntil::Started => self.is_untouched(),
            HeldUntil::Ended => !self.kind().is_final(),
            HeldUntil::Deleted => true,
        };
        let in_period = |period| now < self.created_at.after(period);
        in_scope && unique.period.is_none_or(in_period)
    }

    /// Whether no worker owns the task and no run of it has begun.
    pub(crate) const fn is_untouched(&self) -> bool {
        let waits = matches!(
            self.state,
            State::Waiting { .. } | State::New { .. } | State::Enqueued { .. }
        );
        waits && self.started_at.is_none()
    }

    /// What becomes of a submit at `now` that has the id of this task, or whose key this task was the last to take.
    pub fn meet(&self, submit: &NewTask, now: Timestamp) -> Meeting {
        let is_same = || match self.matches_submit(submit) {
            true => Meeting::Return,
            false => Meeting::Differs,
        };
        if self.id == submit.id {
            // The content of a task that was replaced is not that of its first submit.
            let was_replaced = self.unique().is_some_and(|unique| unique.replaced > 0);
            return if was_replaced {
                Meeting::Return
            } else {
                is_same()
            };
        }
        if !self.holds_key(now) {
            return Meeting::Free;
        }
        match submit.unique().map(|unique| unique.on_conflict) {
            None => is_same(),
            Some(OnConflict::Return) => Meeting::Return,
            Some(OnConflict::Replace) if self.is_untouched() => Meeting::Replace,
            Some(OnConflict::Replace | OnConflict::Reject) => Meeting::Held,
        }
    }
}

impl NewTask {
    /// What makes this task unique, if it says more than its key.
    pub fn unique(&self) -> Option<&Unique> {
        self.options.as_ref()?.unique.as_deref()
    }

    /// The event that gives this submit's content, time and settings to `holder`, which holds its key. `token` is for the
    /// case that the task is enqueued, which its job must allow (`may_enqueue`).
    pub fn replacement(
        self,
        holder: &Task,
        now: Timestamp,
        token: Token,
        may_enqueue: bool,
    ) -> Event {
        let max_delay = self.unique().and_then(|unique| unique.max_delay);
        let latest = max_delay.map_or(Timestamp::MAX, |delay| holder.created_at.after(delay));
        let run_at = self.due.time(now).min(latest);
        Event::Replace(Box::new(Replacement {
            change: Modification {
                run_at: Some(run_at),
                priority: Some(self.priority),
                weight: Some(self.weight),
                payload: Some(self.payload),
            },
            options: self.options,
            token: may_enqueue.then_some(token),
        }))
    }
}

/// The options of a task that is replaced: those of the later submit, with what belongs to the task itself.
pub(crate) fn replaced_options(task: &Task, new: Option<&TaskOptions>) -> Box<TaskOptions> {
    let mut options = Box::new(new.cloned().unwrap_or_default());
    let old = task.options.as_deref();
    options.key = old.and_then(|old| old.key.clone());
    options.original_run_at = old.and_then(|old| old.original_run_at);
    options.firing = old.and_then(|old| old.firing.clone());
    options.family = old.and_then(|old| old.family.clone());
    options.takes_turns = old.is_some_and(|old| old.takes_turns);
    let replaced = task.unique().map_or(0, |unique| unique.replaced);
    options.unique.get_or_insert_default().replaced = replaced.saturating_add(1);
    options
}

/// Whether a policy that allows it lets a replaced task be enqueued at once.
pub(crate) fn enqueue_timeout_end(task: &Task, policy: &Policy, now: Timestamp) -> Timestamp {
    let end = now.after(policy.enqueue_timeout);
    match &task.state {
        // Later than the old one, also where the clock is behind: a consumer that has read the task before this
        // change, to send the old message again, is refused.
        State::Enqueued { expires_at, .. } => end.max(expires_at.after(Duration::from_millis(1))),
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Due, JobName, Lease, Reason, StateKind, TaskId, WorkerId, WriteId, apply};

    fn at(ms: i64) -> Timestamp {
        Timestamp::clamped(1_000_000 + ms)
    }

    fn submit(id: u8, payload: &'static str, unique: Option<Unique>) -> NewTask {
        let job = JobName::parse("mail").unwrap();
        let id = TaskId::from_bytes([id; 16]);
        NewTask {
            options: Some(Box::new(TaskOptions {
                key: Some("k".into()),
                unique: unique.map(Box::new),
                ..TaskOptions::default()
            })),
            ..NewTask::now(id, job, Bytes::from_static(payload.as_bytes()))
        }
    }

    fn unique(until: HeldUntil, on_conflict: OnConflict) -> Unique {
        Unique {
            until,
            on_conflict,
            ..Unique::default()
        }
    }

    fn stored(new: NewTask) -> Task {
        let (token, write) = (Token::from_random(1), WriteId::from_random(1));
        new.into_task(&Policy::default(), at(0), token, write, true)
    }

    fn with_state(kind: StateKind, until: HeldUntil) -> Task {
        let mut task = stored(submit(1, "a", Some(unique(until, OnConflict::Return))));
        let token = Token::from_random(1);
        let lease = Lease {
            worker: WorkerId::parse("w@1").unwrap(),
            claimed_at: at(1),
            heartbeat_at: at(1),
            expires_at: at(9),
            deadline_at: None,
        };
        task.state = match kind {
            StateKind::Waiting => State::Waiting { check_at: at(9) },
            StateKind::New => State::New { due_at: at(9) },
            StateKind::Enqueued => task.state,
            StateKind::Claimed => State::Claimed { token, lease },
            StateKind::Processing => State::Processing { token, lease },
            StateKind::Retriable => State::Retriable { retry_at: at(9) },
            StateKind::Succeeded => State::Succeeded,
            StateKind::Failed => State::Failed,
            StateKind::Cancelled => State::Cancelled,
            StateKind::Trashed => State::Trashed,
            StateKind::Dropped => State::Dropped,
        };
        if matches!(kind, StateKind::Processing | StateKind::Retriable) {
            task.started_at = Some(at(1));
        }
        task
    }

    #[test]
    fn g_06_a_key_is_held_in_the_states_of_its_scope() {
        for kind in StateKind::ALL {
            let holds = |until| with_state(kind, until).holds_key(at(5));
            let waits = [StateKind::Waiting, StateKind::New, StateKind::Enqueued].contains(&kind);
            assert_eq!(holds(HeldUntil::Started), waits, "{kind}");
            assert_eq!(holds(HeldUntil::Ended), !kind.is_final(), "{kind}");
            assert!(holds(HeldUntil::Deleted), "{kind}");
        }
        // A retry that is enqueued has started long ago.
        let mut retry = with_state(StateKind::Enqueued, HeldUntil::Started);
        retry.started_at = Some(at(1));
        assert!(!retry.holds_key(at(5)));
    }

    #[test]
    fn g_06_a_period_ends_the_hold_on_a_key() {
        let mut task = stored(submit(
            1,
            "a",
            Some(Unique {
                until: HeldUntil::Deleted,
                period: Some(Duration::from_millis(100)),
                ..Unique::default()
            }),
        ));
        task.state = State::Succeeded;
        assert!(task.holds_key(at(99)));
        assert!(!task.holds_key(at(100)));
        let later = submit(2, "b", None);
        assert_eq!(task.meet(&later, at(99)), Meeting::Differs);
        assert_eq!(task.meet(&later, at(100)), Meeting::Free);
    }

    #[test]
    fn g_06_a_submit_meets_the_holder_of_its_key_as_it_has_asked() {
        let by = |policy| submit(2, "b", Some(unique(HeldUntil::Ended, policy)));
        for (kind, replace) in [
            (StateKind::New, Meeting::Replace),
            (StateKind::Enqueued, Meeting::Replace),
            (StateKind::Claimed, Meeting::Held),
            (StateKind::Processing, Meeting::Held),
            (StateKind::Retriable, Meeting::Held),
            (StateKind::Failed, Meeting::Free),
        ] {
            let holder = with_state(kind, HeldUntil::Ended);
            assert_eq!(holder.meet(&by(OnConflict::Replace), at(5)), replace);
            let is_free = replace == Meeting::Free;
            let expected = |meeting| if is_free { Meeting::Free } else { meeting };
            let (returned, held) = (expected(Meeting::Return), expected(Meeting::Held));
            assert_eq!(holder.meet(&by(OnConflict::Return), at(5)), returned);
            assert_eq!(holder.meet(&by(OnConflict::Reject), at(5)), held);
        }
        let plain = stored(submit(1, "a", None));
        assert_eq!(plain.meet(&submit(2, "a", None), at(5)), Meeting::Return);
        assert_eq!(plain.meet(&submit(2, "b", None), at(5)), Meeting::Differs);
    }

    #[test]
    fn g_06_a_replaced_task_gets_all_of_the_later_submit_and_is_due_within_the_maximal_delay() {
        let debounce = |id, payload, due_ms| {
            let unique = Unique {
                max_delay: Some(Duration::from_secs(10)),
                ..unique(HeldUntil::Started, OnConflict::Replace)
            };
            let mut new = submit(id, payload, Some(unique));
            new.due = Due::After(Duration::from_millis(due_ms));
            new
        };
        let mut task = stored(debounce(1, "a", 5_000));
        for (now_ms, payload, due_ms) in [(4_000, "b", 9_000), (8_000, "c", 10_000)] {
            let mut new = debounce(2, payload, 5_000);
            new.options.as_mut().unwrap().name = Some(payload.into());
            assert_eq!(task.meet(&new, at(now_ms)), Meeting::Replace);
            let event = new.replacement(&task, at(now_ms), Token::from_random(2), true);
            let write = WriteId::from_random(2);
            let decided = apply(&task, &Policy::default(), &event, write, at(now_ms));
            task.advance(decided.unwrap());
            assert_eq!(task.state, State::New { due_at: at(due_ms) });
            assert_eq!(task.run_at, at(due_ms));
            assert_eq!(task.original_run_at(), at(5_000));
            assert_eq!(task.payload, payload);
            let options = task.options.as_deref().unwrap();
            assert_eq!(options.name.as_deref(), Some(payload));
            assert_eq!(options.key.as_deref(), Some("k"));
        }
        assert_eq!(task.unique().unwrap().replaced, 2);
        // The first client may repeat its submit.
        assert_eq!(
            task.meet(&debounce(1, "a", 5_000), at(9_000)),
            Meeting::Return
        );
        // A submit that is due makes the task one that is enqueued.
        let now = submit(
            3,
            "now",
            Some(unique(HeldUntil::Started, OnConflict::Replace)),
        );
        let (token, write) = (Token::from_random(3), WriteId::from_random(3));
        let event = now.clone().replacement(&task, at(9_000), token, true);
        let decided = apply(&task, &Policy::default(), &event, write, at(9_000)).unwrap();
        assert_eq!(decided.state.token(), Some(token));
        let held_back = now.replacement(&task, at(9_000), token, false);
        let decided = apply(&task, &Policy::default(), &held_back, write, at(9_000)).unwrap();
        assert_eq!(decided.state, State::New { due_at: at(9_000) });
        task.started_at = Some(at(9_000));
        let refused = apply(&task, &Policy::default(), &held_back, write, at(9_001));
        assert_eq!(refused.unwrap_err().reason, Reason::AlreadyStarted);
    }
}
