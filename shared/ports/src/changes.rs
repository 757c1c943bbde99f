//! The part of the store seam that returns the changes of a job.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use dueline_domain::{JobName, TaskNews, Timestamp};

use crate::StoreError;

/// Asks what has changed among the tasks of a job.
#[derive(Clone, Debug)]
pub struct ChangeQuery {
    /// The job.
    pub job: JobName,
    /// Where the reader is. Without one the answer has only the present position.
    pub after: Option<ChangeCursor>,
    /// When this is.
    pub now: Timestamp,
    /// How long to wait for the first change.
    pub wait: Duration,
    /// Most changes to return.
    pub limit: usize,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePage {
    /// The changes in their order, each with the position behind it.
    pub changes: Vec<(TaskNews, ChangeCursor)>,
    /// Where to go on.
    pub next: ChangeCursor,
    /// Whether changes between the position of the query and these are not known any more.
    pub gap: bool,
}

/// A position among the changes of a job, as one process counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeCursor {
    /// Names one count: a process begins a new one when the first watch of the job begins.
    pub epoch: u64,
    /// How many changes the count has before this position.
    pub seq: u64,
}

const PREFIX: &str = "c1-";

impl fmt::Display for ChangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:x}-{:x}", self.epoch, self.seq)
    }
}

impl FromStr for ChangeCursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let parts = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        let cursor = parts.and_then(|(epoch, seq)| {
            let (epoch, seq) = (hex(epoch)?, hex(seq)?);
            Some(Self { epoch, seq })
        });
        let message = "cursor is none that a watch gave out";
        cursor.ok_or_else(|| StoreError::Invalid(Arc::from(message)))
    }
}
