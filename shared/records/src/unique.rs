//! What makes a task unique, as text.

use dueline_domain::{HeldUntil, OnConflict, Unique};
use serde::{Deserialize, Serialize};

use crate::{RecordError, bad, duration, is_zero, millis};

/// The field names are short for the same reason as those of a past run.
#[derive(Serialize, Deserialize)]
pub(crate) struct UniqueRecord {
    #[serde(rename = "u")]
    until: String,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    period_ms: Option<u64>,
    #[serde(rename = "c")]
    on_conflict: String,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    max_delay_ms: Option<u64>,
    #[serde(rename = "n", default, skip_serializing_if = "is_zero")]
    replaced: u32,
}

impl UniqueRecord {
    pub(crate) fn of(unique: &Unique) -> Self {
        Self {
            until: unique.until.name().to_owned(),
            period_ms: unique.period.map(millis),
            on_conflict: unique.on_conflict.name().to_owned(),
            max_delay_ms: unique.max_delay.map(millis),
            replaced: unique.replaced,
        }
    }

    pub(crate) fn unique(self) -> Result<Unique, RecordError> {
        let (until, policy) = (&self.until, &self.on_conflict);
        Ok(Unique {
            until: HeldUntil::from_name(until)
                .ok_or_else(|| bad(format!("unknown scope '{until}'")))?,
            period: self.period_ms.map(duration),
            on_conflict: OnConflict::from_name(policy)
                .ok_or_else(|| bad(format!("unknown policy '{policy}'")))?,
            max_delay: self.max_delay_ms.map(duration),
            replaced: self.replaced,
        })
    }
}
