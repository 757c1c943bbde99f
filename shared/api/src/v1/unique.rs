//! What makes a task with a key unique.

use std::time::Duration;

use dueline_domain::{HeldUntil, OnConflict, Unique};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, ErrorReason};

/// How long a task holds its key, and what its submit does when another task holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UniqueSpec {
    /// Until what happens to the task it holds its key: `started` (a worker has claimed it), `ended` or `deleted`; when absent,
    /// `started` with `replace`, else `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The task holds the key no longer than this after its submit, 1 to 31622400000; as long as `until` says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// What this submit does when another task holds the key: `return` (it is answered with that task, whatever it contains),
    /// `replace` (that task gets the content, the time and the settings of this submit, if its run has not begun) or `reject`
    /// (it is refused, and the error names that task); `return` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<String>,
    /// How long after its first submit the task is due at the latest, however often it is replaced; only with `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
}

impl UniqueSpec {
    pub(super) fn unique(self) -> Result<Unique, ApiError> {
        let policy = named(
            "unique.on_conflict",
            self.on_conflict.as_deref(),
            OnConflict::from_name,
            &OnConflict::ALL.map(OnConflict::name),
        )?;
        let on_conflict = policy.unwrap_or_default();
        let until = named(
            "unique.until",
            self.until.as_deref(),
            HeldUntil::from_name,
            &HeldUntil::ALL.map(HeldUntil::name),
        )?;
        Ok(Unique {
            until: until.unwrap_or(on_conflict.default_scope()),
            period: self.period_ms.map(Duration::from_millis),
            on_conflict,
            max_delay: self.max_delay_ms.map(Duration::from_millis),
            replaced: 0,
        })
    }
}

/// The value of a name, if one is given.
fn named<T>(
    field: &'static str,
    name: Option<&str>,
    parse: impl FnOnce(&str) -> Option<T>,
    known: &[&str],
) -> Result<Option<T>, ApiError> {
    let Some(name) = name else {
        return Ok(None);
    };
    let value = parse(name).ok_or_else(|| {
        let message = format!("must be one of {}", known.join(", "));
        ApiError::invalid(field, ErrorReason::InvalidValue, message)
    });
    value.map(Some)
}

/// How long a task holds its key, and how often it was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UniqueView {
    /// Until what happens to the task: `started`, `ended` or `deleted`.
    pub until: String,
    /// For how long after its submit at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// What its latest submit asked for when another task held the key: `return`, `replace` or `reject`.
    pub on_conflict: String,
    /// How long after its first submit it is due at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
    /// How often later submits have replaced it.
    pub replaced: u32,
}

impl From<&Unique> for UniqueView {
    fn from(unique: &Unique) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            until: unique.until.name().to_owned(),
            period_ms: unique.period.map(millis),
            on_conflict: unique.on_conflict.name().to_owned(),
            max_delay_ms: unique.max_delay.map(millis),
            replaced: unique.replaced,
        }
    }
}
