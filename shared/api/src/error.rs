//! The one error that every service answers.

use std::{borrow::Cow, fmt, time::Duration};

use dueline_domain::{Reason, Rejected, StateKind, Verb, WorkerId, bounded_message};
use dueline_ports::{QueueError, StoreError};

use crate::ErrorReason;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The call is wrong; it will never work.
    Invalid,
    /// Not allowed.
    Denied,
    /// There is no such thing.
    NotFound,
    /// The current state conflicts with the call.
    Conflict,
    /// Too large.
    TooLarge,
    /// Too many calls.
    RateLimited,
    /// Not now; the same call may work later.
    Unavailable,
    /// No answer in time; it may have taken effect.
    Deadline,
    /// A fault of the server.
    Internal,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Denied,
        Self::NotFound,
        Self::Conflict,
        Self::TooLarge,
        Self::RateLimited,
        Self::Unavailable,
        Self::Deadline,
        Self::Internal,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::TooLarge => "too-large",
            Self::RateLimited => "rate-limited",
            Self::Unavailable => "unavailable",
            Self::Deadline => "deadline",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::RateLimited => 429,
            Self::Unavailable => 503,
            Self::Deadline => 504,
            Self::Internal => 500,
        }
    }

    /// Whether the same call may work later.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::Deadline)
    }

    /// The kind of a name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An error with a kind for programs that only branch, a reason for those that know the case, and a text for people.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    reason: ErrorReason,
    message: String,
    field: Option<Cow<'static, str>>,
    state: Option<StateKind>,
    owner: Option<WorkerId>,
    retry_after: Option<Duration>,
}

impl ApiError {
    /// An error of `kind`; `message` is for people. A message that quotes a long input
    /// is cut.
    pub fn new(
        kind: ErrorKind,
        reason: impl Into<ErrorReason>,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            reason: reason.into(),
            message: bounded(message.into()),
            field: None,
            state: None,
            owner: None,
            retry_after: None,
        }))
    }

    /// A field that holds something wrong.
    pub fn invalid(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<ErrorReason>,
        message: impl fmt::Display,
    ) -> Self {
        let field = field.into();
        let text = format!("{field}: {message}");
        Self::new(ErrorKind::Invalid, reason, text).with_field(field)
    }

    /// The service cannot be reached, or not just now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, ErrorReason::Unavailable, message)
            .with_retry_after(Duration::from_secs(1))
    }

    /// Names the field. The name of an unknown field is input too, so a long one is cut.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.0.field = Some(match field.into() {
            Cow::Borrowed(field) => Cow::Borrowed(field),
            Cow::Owned(field) => Cow::Owned(bounded(field)),
        });
        self
    }

    /// The same error about a field of the object `parent`.
    #[must_use]
    pub fn within(self, parent: &str) -> Self {
        let Some(field) = self.field() else {
            return self;
        };
        let nested = format!("{parent}.{field}");
        let message = match self.message().strip_prefix(field) {
            Some(rest) => format!("{nested}{rest}"),
            None => self.message().to_owned(),
        };
        let mut error = self.with_field(nested);
        error.0.message = bounded(message);
        error
    }

    /// Names the state that conflicts with the call.
    #[must_use]
    pub fn with_state(mut self, state: StateKind) -> Self {
        self.0.state = Some(state);
        self
    }

    /// Names the owner of the task.
    #[must_use]
    pub fn with_owner(mut self, owner: Option<WorkerId>) -> Self {
        self.0.owner = owner;
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// What the caller can do.
    pub const fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The case, for programs.
    pub const fn reason(&self) -> &ErrorReason {
        &self.0.reason
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The field at fault.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The state that conflicts with the call.
    pub const fn state(&self) -> Option<StateKind> {
        self.0.state
    }

    /// The owner of the task.
    pub const fn owner(&self) -> Option<&WorkerId> {
        self.0.owner.as_ref()
    }

    /// When to try again.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the same call may work later.
    pub const fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Whether a worker must stop the attempt it reported on: another owner has the task, or it has ended.
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::NotFound
            || (self.kind() == ErrorKind::Conflict
                && matches!(
                    self.reason(),
                    ErrorReason::Lost
                        | ErrorReason::Expired
                        | ErrorReason::Finished
                        | ErrorReason::NotClaimed
                ))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for ApiError {}

/// The text as it may stand in an error.
fn bounded(text: String) -> String {
    match bounded_message(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(cut) => cut,
    }
}

/// Why a transition was refused, and what to do about it, for people. Programs have the reason and the state.
fn words(rejected: &Rejected) -> String {
    let Rejected {
        verb,
        state,
        reason,
        ..
    } = rejected;
    let why = match (verb, reason) {
        (Verb::Cancel, Reason::Finished) if *state == StateKind::Cancelled => {
            return "the task is already cancelled".into();
        }
        (Verb::Redrive, Reason::Finished | Reason::NotFinished) => {
            return format!(
                "only failed or trashed tasks can be redriven, and this one is {state}"
            );
        }
        (Verb::Finish, Reason::NotStarted) => {
            "its run has not begun; call start first, or send started_at"
        }
        (Verb::Cancel, Reason::Running) => {
            "a worker owns it; ask for `running: request` to have it stopped"
        }
        (_, Reason::NotStarted) => "its run has not begun; call start first",
        (_, Reason::AlreadyStarted) => "its run has begun already",
        (_, Reason::Finished) => "it has already ended",
        (_, Reason::NotFinished) => "it has not ended",
        (_, Reason::Lost) => "the token is stale: the task was enqueued again, so stop its run",
        (_, Reason::AlreadyClaimed) => "another worker owns it",
        (_, Reason::NotClaimed) => "no worker owns it; claim it first",
        (_, Reason::Running) => "a worker owns it",
        (_, Reason::Expired) => "its lease has lapsed, so stop",
        (_, Reason::Waiting) => "it waits for another task",
        (_, Reason::NotWaiting) => "it waits for no other task",
        (_, Reason::NotDue) => "its time has not come",
        (_, Reason::Moved) => "it has changed since it was read",
        (_, Reason::CancelNotRequested) => "no cancel was requested",
    };
    format!("cannot {verb} a task that is {state}: {why}")
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::NotFound { what, .. } => {
                let reason = match what {
                    "job" => ErrorReason::UnknownJob,
                    "schedule" => ErrorReason::UnknownSchedule,
                    _ => ErrorReason::UnknownTask,
                };
                Self::new(ErrorKind::NotFound, reason, message)
            }
            StoreError::Rejected(rejected) => {
                Self::new(ErrorKind::Conflict, rejected.reason, words(&rejected))
                    .with_state(rejected.state)
                    .with_owner(rejected.owner)
            }
            StoreError::Exists(_) => Self::new(ErrorKind::Conflict, ErrorReason::Exists, message),
            StoreError::KeyHeld { state, .. } => {
                Self::new(ErrorKind::Conflict, ErrorReason::KeyHeld, message)
                    .with_field("key")
                    .with_state(state)
            }
            StoreError::InUse { .. } => Self::new(ErrorKind::Conflict, ErrorReason::InUse, message),
            StoreError::HasSchedules(_) => {
                let message = format!("{message}; delete them first");
                Self::new(ErrorKind::Conflict, ErrorReason::HasSchedules, message)
            }
            StoreError::TooManyWatched { .. } => {
                Self::new(ErrorKind::RateLimited, ErrorReason::TooManyWatched, message)
            }
            StoreError::Invalid(_) => Self::new(ErrorKind::Invalid, ErrorReason::Invalid, message),
            StoreError::Throttled => {
                Self::new(ErrorKind::Unavailable, ErrorReason::Throttled, message)
                    .with_retry_after(Duration::from_secs(1))
            }
            StoreError::Full(_) => {
                Self::new(ErrorKind::Unavailable, ErrorReason::StoreFull, message)
                    .with_retry_after(Duration::from_secs(10))
            }
            StoreError::Unavailable {
                outcome_unknown, ..
            } => {
                let kind = if outcome_unknown {
                    ErrorKind::Deadline
                } else {
                    ErrorKind::Unavailable
                };
                Self::new(kind, ErrorReason::StoreUnavailable, message)
                    .with_retry_after(Duration::from_secs(1))
            }
            StoreError::Corrupt(_) => {
                Self::new(ErrorKind::Internal, ErrorReason::StoreCorrupt, message)
            }
        }
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        let message = error.to_string();
        match error {
            QueueError::NotFound(_) => {
                Self::new(ErrorKind::NotFound, ErrorReason::UnknownQueue, message)
            }
            QueueError::Invalid(_) => {
                Self::new(ErrorKind::Invalid, ErrorReason::QueueRefused, message)
            }
            QueueError::Full(_) => {
                Self::new(ErrorKind::Unavailable, ErrorReason::QueueFull, message)
            }
            QueueError::Throttled => {
                Self::new(ErrorKind::Unavailable, ErrorReason::QueueThrottled, message)
            }
            QueueError::Unavailable(_) => Self::new(
                ErrorKind::Unavailable,
                ErrorReason::QueueUnavailable,
                message,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_move_says_what_to_do_in_words() {
        let message = |verb, state, reason| {
            let rejected = Rejected {
                verb,
                state,
                reason,
                owner: None,
            };
            let error = ApiError::from(StoreError::Rejected(rejected));
            assert_eq!(error.reason(), &ErrorReason::from(reason));
            assert_eq!(error.state(), Some(state));
            error.message().to_owned()
        };
        for (verb, state, reason, wanted) in [
            (
                Verb::Finish,
                StateKind::Claimed,
                Reason::NotStarted,
                "cannot finish a task that is claimed: its run has not begun; call start first, or send started_at",
            ),
            (
                Verb::Cancel,
                StateKind::Cancelled,
                Reason::Finished,
                "the task is already cancelled",
            ),
            (
                Verb::Cancel,
                StateKind::Succeeded,
                Reason::Finished,
                "cannot cancel a task that is succeeded: it has already ended",
            ),
            (
                Verb::Redrive,
                StateKind::Succeeded,
                Reason::Finished,
                "only failed or trashed tasks can be redriven, and this one is succeeded",
            ),
        ] {
            assert_eq!(message(verb, state, reason), wanted);
        }
        for reason in Reason::ALL {
            let text = message(Verb::Start, StateKind::Claimed, reason);
            assert!(!text.contains('_'), "{text}");
        }
    }
}
