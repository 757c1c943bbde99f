//! Claims of chosen tasks.

use std::{fmt, time::Duration};

use dueline_domain::{ClaimLifetime, JobName, TaskId, WorkerId, WriteId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use super::{AssignmentView, as_text, backoff::millis};
use crate::{
    ApiError, check,
    operation::{ClaimTask, ClaimedTask, LeaseEnd, TaskLease},
};

/// Who claims a task, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The new owner, by any name of up to 128 visible ASCII characters. It need not be registered.
    #[schema(example = "host-1@5f3a")]
    pub owner: String,
    /// How long the claim lasts until its run begins, unless it is extended: milliseconds, or `never`. The claim timeout
    /// of the job when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<LifetimeSpec>,
    /// Names this request: 16 hexadecimal digits, chosen at random. Repeat it after a lost answer to get the same claim.
    #[serde(
        default,
        with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub write_id: Option<WriteId>,
}

impl ClaimRequest {
    /// The claim of a task.
    pub fn into_claim(self, job: JobName, id: TaskId) -> Result<ClaimTask, ApiError> {
        Ok(ClaimTask {
            job,
            id,
            owner: check::owner(&self.owner)?,
            lifetime: self.lifetime_ms.map_or(ClaimLifetime::OfJob, Into::into),
            request: self.write_id,
        })
    }
}

/// How long a claim lasts: milliseconds, or the word `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSpec {
    /// This long.
    Millis(i64),
    /// Until its owner ends it.
    Never,
}

impl From<LifetimeSpec> for ClaimLifetime {
    fn from(spec: LifetimeSpec) -> Self {
        match spec {
            // The check refuses a lifetime of zero.
            LifetimeSpec::Millis(ms) => {
                Self::For(u64::try_from(ms).map_or(Duration::ZERO, Duration::from_millis))
            }
            LifetimeSpec::Never => Self::Never,
        }
    }
}

impl Serialize for LifetimeSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Millis(ms) => serializer.serialize_i64(*ms),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for LifetimeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = LifetimeSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of milliseconds or \"never\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<LifetimeSpec, E> {
                Ok(LifetimeSpec::Millis(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<LifetimeSpec, E> {
                Ok(LifetimeSpec::Millis(
                    i64::try_from(number).unwrap_or(i64::MAX),
                ))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LifetimeSpec, E> {
                match text {
                    "never" => Ok(LifetimeSpec::Never),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for LifetimeSpec {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .minimum(Some(1)),
            )
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some(["never"])),
            )
            .description(Some("Milliseconds, or `never`."))
            .into()
    }
}

impl ToSchema for LifetimeSpec {}

impl TryFrom<ClaimedTask> for AssignmentView {
    type Error = ApiError;

    fn try_from(claimed: ClaimedTask) -> Result<Self, ApiError> {
        Ok(Self {
            lease: Some(claimed.lease.into()),
            ..claimed.assignment.try_into()?
        })
    }
}

/// Who owns a task, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// The owner; null: none.
    #[serde(default, with = "as_text::option")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<WorkerId>,
    /// `in`: after `expires_in_ms`; `never`: until its owner ends it; `none`: the task has no owner.
    #[schema(example = "in")]
    pub expires: String,
    /// How long the claim still lasts, by the server's clock; null without an end or an owner.
    pub expires_in_ms: Option<u64>,
}

impl From<TaskLease> for LeaseView {
    fn from(lease: TaskLease) -> Self {
        Self {
            owner: lease.owner,
            expires: lease.ends.name().to_owned(),
            expires_in_ms: match lease.ends {
                LeaseEnd::In(left) => Some(millis(left)),
                LeaseEnd::None | LeaseEnd::Never => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation as _, v1::parse};

    fn claim(text: &str) -> Result<ClaimTask, (String, String)> {
        let job = JobName::parse("mail").unwrap();
        let id = TaskId::from_bytes([7; 16]);
        let read = || -> Result<ClaimTask, ApiError> {
            let mut claim = parse::<ClaimRequest>(text.as_bytes())?.into_claim(job, id)?;
            claim.check()?;
            Ok(claim)
        };
        read().map_err(|error| {
            let field = error.field().unwrap_or_default().to_owned();
            (error.reason().to_string(), field)
        })
    }

    #[test]
    fn f_079_a_claim_lasts_as_its_job_says_for_a_time_or_for_ever_by_name_only() {
        let lifetime = |field: &str| {
            let claim = claim(&format!(r#"{{"owner": "ann"{field}}}"#)).unwrap();
            claim.lifetime
        };
        let half = ClaimLifetime::For(Duration::from_millis(500));
        assert_eq!(lifetime(""), ClaimLifetime::OfJob);
        assert_eq!(lifetime(r#", "lifetime_ms": null"#), ClaimLifetime::OfJob);
        assert_eq!(lifetime(r#", "lifetime_ms": 500"#), half);
        assert_eq!(
            lifetime(r#", "lifetime_ms": "never""#),
            ClaimLifetime::Never
        );
    }

    #[test]
    fn f_079_f_072_what_is_no_lifetime_and_no_owner_is_refused() {
        for (text, reason, field) in [
            (
                r#"{"owner": "a", "lifetime_ms": 0}"#,
                "invalid_duration",
                "lifetime_ms",
            ),
            (
                r#"{"owner": "a", "lifetime_ms": -5}"#,
                "invalid_duration",
                "lifetime_ms",
            ),
            (
                r#"{"owner": "a", "lifetime_ms": 99999999999999}"#,
                "invalid_duration",
                "lifetime_ms",
            ),
            (
                r#"{"owner": "a", "lifetime_ms": "ever"}"#,
                "invalid_value",
                "lifetime_ms",
            ),
            (
                r#"{"owner": "a", "lifetime_ms": false}"#,
                "invalid_type",
                "lifetime_ms",
            ),
            (r#"{"owner": ""}"#, "no_owner", "owner"),
            (r#"{"owner": " "}"#, "no_owner", "owner"),
            (r#"{"owner": "a b"}"#, "invalid_name", "owner"),
            ("{}", "missing_field", "owner"),
        ] {
            assert_eq!(claim(text), Err((reason.into(), field.into())), "{text}");
        }
    }
}
