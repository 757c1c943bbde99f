//! Retries and waits on the wire.

use std::{fmt, time::Duration};

use dueline_domain::{Backoff, Policy, RetryPolicy};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use crate::{ApiError, ErrorReason};

/// Exponential backoff: `initial_ms × multiplier^n`, at most `max_ms`, plus up to `jitter` of itself at random. What
/// is left out has the default of its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackoffSpec {
    /// First wait.
    pub initial_ms: Option<u64>,
    /// Growth per failure, from 1 to 100.
    pub multiplier: Option<f64>,
    /// Random part as a fraction of the wait, from 0 to 1.
    pub jitter: Option<f64>,
    /// Longest wait before the random part.
    pub max_ms: Option<u64>,
}

impl BackoffSpec {
    /// The backoff of these numbers; `field` is where they stand.
    pub(super) fn build(self, field: &str, default: Backoff) -> Result<Backoff, ApiError> {
        let initial = self
            .initial_ms
            .map_or(default.initial(), Duration::from_millis);
        let max = self
            .max_ms
            .map_or(default.max().max(initial), Duration::from_millis);
        if max > Policy::TIMEOUT_MAX {
            return Err(ApiError::invalid(
                format!("{field}.max_ms"),
                ErrorReason::TooLong,
                "a wait may be at most 366 days",
            ));
        }
        Backoff::new(
            initial,
            self.multiplier.unwrap_or(default.multiplier()),
            self.jitter.unwrap_or(default.jitter()),
            max,
        )
        .map_err(|error| ApiError::invalid(field.to_owned(), ErrorReason::InvalidBackoff, error))
    }
}

impl From<Backoff> for BackoffSpec {
    fn from(backoff: Backoff) -> Self {
        Self {
            initial_ms: Some(millis(backoff.initial())),
            multiplier: Some(backoff.multiplier()),
            jitter: Some(backoff.jitter()),
            max_ms: Some(millis(backoff.max())),
        }
    }
}

/// Waits by class of failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackoffsSpec {
    /// No cause given.
    pub standard: Option<BackoffSpec>,
    /// A passing fault.
    pub quick: Option<BackoffSpec>,
    /// Something the handler depends on is down.
    pub slow: Option<BackoffSpec>,
    /// The other side asked for fewer calls.
    pub rate_limited: Option<BackoffSpec>,
    /// The worker died or was cut off; without it the task runs again at once.
    pub worker_lost: Option<BackoffSpec>,
}

impl BackoffsSpec {
    /// The waits of these, and of the defaults where nothing is said.
    pub(crate) fn build(self, retries_max: Option<RetriesMax>) -> Result<RetryPolicy, ApiError> {
        let default = RetryPolicy::default();
        let build = |spec: Option<BackoffSpec>, class: &str, default: Backoff| {
            spec.unwrap_or_default()
                .build(&format!("backoff.{class}"), default)
        };
        Ok(RetryPolicy {
            retries_max: retries_max.map_or(default.retries_max, Into::into),
            standard: build(self.standard, "standard", default.standard)?,
            quick: build(self.quick, "quick", default.quick)?,
            slow: build(self.slow, "slow", default.slow)?,
            rate_limited: build(self.rate_limited, "rate_limited", default.rate_limited)?,
            worker_lost: match self.worker_lost {
                Some(_) => Some(build(self.worker_lost, "worker_lost", default.quick)?),
                None => None,
            },
        })
    }
}

impl From<&RetryPolicy> for BackoffsSpec {
    fn from(policy: &RetryPolicy) -> Self {
        Self {
            standard: Some(policy.standard.into()),
            quick: Some(policy.quick.into()),
            slow: Some(policy.slow.into()),
            rate_limited: Some(policy.rate_limited.into()),
            worker_lost: policy.worker_lost.map(Into::into),
        }
    }
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Runs after the first: a number, or the word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriesMax {
    /// This many.
    Limited(u32),
    /// Until it succeeds.
    Unlimited,
}

impl From<Option<u32>> for RetriesMax {
    fn from(retries_max: Option<u32>) -> Self {
        retries_max.map_or(Self::Unlimited, Self::Limited)
    }
}

impl From<RetriesMax> for Option<u32> {
    fn from(retries_max: RetriesMax) -> Self {
        match retries_max {
            RetriesMax::Limited(max) => Some(max),
            RetriesMax::Unlimited => None,
        }
    }
}

impl Serialize for RetriesMax {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Limited(max) => serializer.serialize_u32(*max),
            Self::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for RetriesMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = RetriesMax;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of retries or \"unlimited\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RetriesMax, E> {
                u32::try_from(number)
                    .map(RetriesMax::Limited)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RetriesMax, E> {
                match text {
                    "unlimited" => Ok(RetriesMax::Unlimited),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for RetriesMax {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .minimum(Some(0))
                    .maximum(Some(u32::MAX)),
            )
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some(["unlimited"])),
            )
            .description(Some("Runs after the first; 0 means a single run."))
            .into()
    }
}

impl ToSchema for RetriesMax {}
