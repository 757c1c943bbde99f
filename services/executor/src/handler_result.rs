//! What a handler returns.

use std::{fmt, time::Duration};

use bytes::Bytes;
use dueline_domain::RetryClass;

/// What a handler returns.
pub type HandlerResult = Result<Success, Failure>;

/// A successful run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// The result, which clients can read.
    pub result: Option<Bytes>,
}

impl From<()> for Success {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Bytes> for Success {
    fn from(result: Bytes) -> Self {
        let result = Some(result);
        Self { result }
    }
}

impl From<Vec<u8>> for Success {
    fn from(result: Vec<u8>) -> Self {
        Bytes::from(result).into()
    }
}

impl From<String> for Success {
    fn from(result: String) -> Self {
        Bytes::from(result).into()
    }
}

/// A failed run. Every value with `Display` converts into a retriable failure of the standard class, so `?` works on
/// any error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A retry may succeed.
    Retriable {
        /// Selects the backoff.
        class: RetryClass,
        /// A delay that replaces the backoff.
        delay: Option<Duration>,
        /// What went wrong.
        error: String,
    },
    /// A retry would fail, too.
    Fatal {
        /// What went wrong.
        error: String,
    },
    /// The handler ended because of its stop signal.
    Cancelled,
    /// This host is short of what the run needs, such as descriptors or memory, so the run did not begin. The task is
    /// abandoned, which uses no try, and the executor polls again after a pause.
    Host {
        /// What is missing.
        error: String,
    },
}

impl Failure {
    /// A failure that a retry may cure, with the backoff of `class`.
    pub fn retriable(class: RetryClass, error: impl Into<String>) -> Self {
        let (delay, error) = (None, error.into());
        Self::Retriable {
            class,
            delay,
            error,
        }
    }

    /// A failure that a retry cannot cure.
    pub fn fatal(error: impl Into<String>) -> Self {
        let error = error.into();
        Self::Fatal { error }
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retriable(RetryClass::Standard, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_errors_become_retriable_failures_of_the_standard_class() {
        let standard = |error: &str| Failure::retriable(RetryClass::Standard, error);
        assert_eq!(Failure::from("no"), standard("no"));
        assert_eq!(Failure::from(String::from("no")), standard("no"));
        let parse = "x".parse::<u8>().unwrap_err();
        assert_eq!(
            Failure::from(parse),
            standard("invalid digit found in string")
        );
    }
}
