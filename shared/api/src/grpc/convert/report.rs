//! What owners say about their tasks.

use std::time::Duration;

use dueline_domain::{Outcome, Timestamp, limits, truncate_text};

use super::{enums, field};
use crate::{
    Action, ApiError, Report, ReportAck, check,
    grpc::proto::{self, finish::Outcome as WireOutcome, report::Action as WireAction},
};

impl From<Report> for proto::Report {
    fn from(report: Report) -> Self {
        Self {
            job: report.job.to_string(),
            id: report.id.to_string(),
            token: report.token.get(),
            write: report.write.get(),
            action: Some(report.action.into()),
            trace: field::string_opt(report.trace),
        }
    }
}

impl TryFrom<proto::Report> for Report {
    type Error = ApiError;

    fn try_from(report: proto::Report) -> Result<Self, ApiError> {
        Ok(Self {
            job: field::job_name("job", &report.job)?,
            id: field::task_id("id", &report.id)?,
            token: field::token("token", report.token)?,
            write: field::write_id("write", report.write)?,
            action: field::required("action", report.action)?.try_into()?,
            trace: field::trace(report.trace),
        })
    }
}

impl From<Action> for WireAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Start => Self::Start(proto::Start {}),
            Action::Heartbeat => Self::Heartbeat(proto::Heartbeat {}),
            Action::Extend { by } => Self::Extend(proto::Extend {
                by_ms: field::millis(by),
            }),
            Action::Checkpoint { payload } => Self::Checkpoint(proto::Checkpoint { payload }),
            Action::Finish {
                started_at,
                outcome,
            } => Self::Finish(proto::Finish {
                started_at_ms: started_at.map(Timestamp::millis),
                outcome: Some(outcome.into()),
            }),
            Action::Abandon => Self::Abandon(proto::Abandon {}),
            Action::Trash { reason } => Self::Trash(proto::Trash {
                reason: cut(&reason),
            }),
        }
    }
}

/// A text of a handler may have any length, the message it travels in may not.
fn cut(text: &str) -> String {
    truncate_text(text, limits().error_bytes_max).to_owned()
}

impl TryFrom<WireAction> for Action {
    type Error = ApiError;

    fn try_from(action: WireAction) -> Result<Self, ApiError> {
        Ok(match action {
            WireAction::Start(proto::Start {}) => Self::Start,
            WireAction::Heartbeat(proto::Heartbeat {}) => Self::Heartbeat,
            WireAction::Extend(extend) => Self::Extend {
                by: check::extension(Duration::from_millis(extend.by_ms))?,
            },
            WireAction::Checkpoint(checkpoint) => Self::Checkpoint {
                payload: field::payload("payload", checkpoint.payload)?,
            },
            WireAction::Finish(finish) => Self::Finish {
                started_at: field::timestamp_opt("finish.started_at_ms", finish.started_at_ms)?,
                outcome: field::required("finish.outcome", finish.outcome)?.try_into()?,
            },
            WireAction::Abandon(proto::Abandon {}) => Self::Abandon,
            WireAction::Trash(trash) => Self::Trash {
                reason: field::error_text(check::trash_reason(&trash.reason)?),
            },
        })
    }
}

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success { result } => Self::Success(proto::Success { result }),
            Outcome::Retriable {
                class,
                delay,
                error,
            } => Self::Retriable(proto::Retriable {
                class: proto::RetryClass::from(class).into(),
                delay_ms: delay.map(field::millis),
                error: cut(&error),
            }),
            Outcome::Fatal { error } => Self::Fatal(proto::Fatal { error: cut(&error) }),
            Outcome::Cancelled => Self::Cancelled(proto::Cancelled {}),
        }
    }
}

impl TryFrom<WireOutcome> for Outcome {
    type Error = ApiError;

    fn try_from(outcome: WireOutcome) -> Result<Self, ApiError> {
        Ok(match outcome {
            WireOutcome::Success(success) => Self::Success {
                result: success
                    .result
                    .map(|result| field::payload("result", result))
                    .transpose()?,
            },
            WireOutcome::Retriable(retriable) => Self::Retriable {
                class: enums::retry_class("class", retriable.class)?,
                delay: retriable.delay_ms.map(Duration::from_millis),
                error: field::error_text(&retriable.error),
            },
            WireOutcome::Fatal(fatal) => Self::Fatal {
                error: field::error_text(&fatal.error),
            },
            WireOutcome::Cancelled(proto::Cancelled {}) => Self::Cancelled,
        })
    }
}

impl From<ReportAck> for proto::ReportAck {
    fn from(reported: ReportAck) -> Self {
        Self {
            state: enums::state_number(reported.state),
            cancel_requested: reported.cancel_requested,
            lease_ms: reported.lease.map(|lease| {
                // Down, not up: an owner must not believe that it owns the task for longer than it does.
                u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
            }),
        }
    }
}

impl TryFrom<proto::ReportAck> for ReportAck {
    type Error = ApiError;

    fn try_from(reported: proto::ReportAck) -> Result<Self, ApiError> {
        Ok(Self {
            state: enums::state_kind("reported.state", reported.state)?,
            cancel_requested: reported.cancel_requested,
            lease: reported.lease_ms.map(Duration::from_millis),
        })
    }
}
