//! Identifiers. Each is a type of its own, parsed once at the edge.

use std::{borrow::Borrow, fmt, num::NonZeroU64, str::FromStr, sync::Arc};

use uuid::Uuid;

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// An empty text.
    #[error("{what} is empty")]
    Empty {
        /// What was expected.
        what: &'static str,
    },
    /// Longer than the limit.
    #[error("{what} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// What was expected.
        what: &'static str,
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A character that is not allowed.
    #[error("{what} may contain only {allowed}")]
    Character {
        /// What was expected.
        what: &'static str,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// A hyphen at the beginning.
    #[error("{what} must not begin with '-', because command lines would take it for a flag")]
    LeadingHyphen {
        /// What was expected.
        what: &'static str,
    },
    /// Not a UUID in its usual text form.
    #[error("'{0}' is not a UUID")]
    NotUuid(String),
}

/// The name of a job: 1 to [`JobName::MAX_LEN`] of `A-Z a-z 0-9 _ -`.
///
/// These are the characters of SQS queue names, because each job has a queue of its own. Without '.', no name is a part of
/// a path with a meaning of its own, such as `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(Arc<str>);

impl JobName {
    /// SQS allows 80 bytes; the rest is for the prefix and suffix of queue names.
    pub const MAX_LEN: usize = 64;

    /// Parses a job name.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let what = "job name";
        parse_name(what, text, Self::MAX_LEN, "A-Z a-z 0-9 _ -", is_name_byte).map(Self)
    }

    /// Checks the name of a job to create: it must not begin with '-'. Jobs of earlier versions may have such a name, so
    /// [`JobName::parse`] accepts it.
    pub fn check_new(&self) -> Result<(), IdError> {
        let what = "job name";
        match self.0.starts_with('-') {
            true => Err(IdError::LeadingHyphen { what }),
            false => Ok(()),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a schedule, unique within its job: 1 to [`ScheduleName::MAX_LEN`] of `A-Z a-z 0-9 _ -`, and no '-' at the
/// beginning.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName(Arc<str>);

impl ScheduleName {
    /// The same bound as for job names.
    pub const MAX_LEN: usize = JobName::MAX_LEN;

    /// Parses the name of a schedule.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let what = "schedule name";
        if text.starts_with('-') {
            return Err(IdError::LeadingHyphen { what });
        }
        parse_name(what, text, Self::MAX_LEN, "A-Z a-z 0-9 _ -", is_name_byte).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a process that executes tasks: `name@incarnation`.
///
/// The incarnation is random for each start of a process. A restarted worker of the same name is therefore another
/// worker and inherits no lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// Longest worker id in bytes.
    pub const MAX_LEN: usize = 128;

    /// Parses a worker id.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        parse_name("worker id", text, Self::MAX_LEN, "visible ASCII", |b| {
            b.is_ascii_graphic()
        })
        .map(Self)
    }

    /// The id of the worker `name` with this incarnation.
    pub fn new(name: &str, incarnation: u64) -> Result<Self, IdError> {
        Self::parse(&format!("{name}@{incarnation:016x}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn parse_name(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    ok: impl Fn(u8) -> bool,
) -> Result<Arc<str>, IdError> {
    if text.trim().is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > max {
        let len = text.len();
        return Err(IdError::TooLong { what, len, max });
    }
    if !text.bytes().all(ok) {
        return Err(IdError::Character { what, allowed });
    }
    Ok(Arc::from(text))
}

macro_rules! name_impls {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
name_impls!(JobName, ScheduleName, WorkerId);

/// The public id of a task: a UUID, chosen by the client or generated from time and randomness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; 16]);

impl TaskId {
    /// A UUID of version 7 from a time and ten random bytes, so that later ids sort later.
    pub fn from_time(millis: i64, random: [u8; 10]) -> Self {
        let millis = u64::try_from(millis).unwrap_or(0);
        Self(
            *uuid::Builder::from_unix_timestamp_millis(millis, &random)
                .as_uuid()
                .as_bytes(),
        )
    }

    /// Parses the text form of a UUID.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        Uuid::try_parse(text)
            .map(|uuid| Self(*uuid.as_bytes()))
            .map_err(|_| {
                IdError::NotUuid(text.chars().take(64).flat_map(char::escape_debug).collect())
            })
    }

    /// The sixteen bytes as stored.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The sixteen bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text)
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// Stands in an answer for a value that its reader must not know.
            pub const HIDDEN: Self = Self(NonZeroU64::MAX);

            /// The id of a random number. Zero means "no id" in storage, so it becomes one.
            pub fn from_random(random: u64) -> Self {
                Self(NonZeroU64::new(random).unwrap_or(NonZeroU64::MIN))
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// The number as SQLite and DynamoDB keep it: the same 64 bits, signed.
            pub const fn to_stored(self) -> i64 {
                self.0.get().cast_signed()
            }

            /// The id of stored bits; `None` for zero.
            pub fn from_stored(bits: i64) -> Option<Self> {
                NonZeroU64::new(bits.cast_unsigned()).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let bad = IdError::Character { what: stringify!($name), allowed: "16 hexadecimal digits" };
                if text.len() != 16 {
                    return Err(bad);
                }
                u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new).map(Self).ok_or(bad)
            }
        }
    };
}

random_id!(
    /// The fencing token: new each time a task is enqueued. Claim, start, heartbeat, checkpoint and outcome carry it,
    /// and a stale token is refused.
    Token
);
random_id!(
    /// Names one write. A write that is repeated because its answer was lost is recognised by it.
    WriteId
);

/// The content of a message: a reference to a task, never its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// The job whose queue carries the message.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// The token with which the task was enqueued.
    pub token: Token,
    /// Priority for the controller's buffer.
    pub priority: crate::Priority,
    /// Weight against an executor's maximum concurrency.
    pub weight: crate::Weight,
    /// When the task was due; breaks ties between equal priorities.
    pub due_at: crate::Timestamp,
    /// W3C trace context of the step before: of the send, or else of the submit.
    pub trace: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_008_job_names_that_are_not_queue_names_are_refused() {
        for bad in [
            "",
            "  ",
            "a b",
            "ä",
            "a.fifo",
            ".",
            "..",
            "a/b",
            &"x".repeat(65),
        ] {
            assert!(JobName::parse(bad).is_err(), "{bad:?}");
            assert!(ScheduleName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(JobName::parse(&"x".repeat(64)).is_ok());
        assert!(ScheduleName::parse(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn f_008_a_new_job_has_no_name_that_a_command_line_takes_for_a_flag() {
        for bad in ["-", "--help", "-x"] {
            // A stored job may have the name.
            let name = JobName::parse(bad).unwrap();
            let what = "job name";
            assert_eq!(name.check_new(), Err(IdError::LeadingHyphen { what }));
            assert!(ScheduleName::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a-", "_-", "0"] {
            assert_eq!(JobName::parse(good).unwrap().check_new(), Ok(()));
        }
    }

    #[test]
    fn f_003_small_integers_are_not_task_ids() {
        for bad in ["1", "42", "not-a-uuid"] {
            assert!(TaskId::parse(bad).is_err());
        }
    }

    #[test]
    fn later_ids_sort_later() {
        let early = TaskId::from_time(1_000, [255; 10]);
        let late = TaskId::from_time(1_001, [0; 10]);
        assert!(early < late);
        assert_eq!(TaskId::parse(&early.to_string()), Ok(early));
    }

    #[test]
    fn tokens_survive_text_and_storage() {
        let token = Token::from_random(u64::MAX - 5);
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!(Token::from_stored(token.to_stored()), Some(token));
        assert_eq!(Token::from_stored(0), None);
    }
}
