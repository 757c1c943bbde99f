//! Tasks on their way to a worker.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Handler, JobName, TaskId, Token, Weight};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    HandlerSpec, LeaseView, PredecessorResultView, Time, as_text,
    backoff::millis,
    payload::{Shown, raw, show},
};
use crate::{ApiError, Assignment, ErrorReason};

/// Tasks claimed for the worker that asked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkList {
    /// The tasks; none when the wait was over.
    pub tasks: Vec<AssignmentView>,
}

/// A task claimed for a worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AssignmentView {
    /// The job.
    #[serde(with = "as_text")]
    #[schema(value_type = String)]
    pub job: JobName,
    /// The task.
    #[serde(with = "as_text")]
    #[schema(value_type = uuid::Uuid)]
    pub id: TaskId,
    /// Fencing token: every report shows it.
    #[serde(with = "as_text")]
    #[schema(value_type = String, example = "00c0ffee00c0ffee")]
    pub token: Token,
    /// Number of this run; 0 for the first.
    pub attempt: u32,
    /// What to work on, if it is JSON: the latest checkpoint, or else the payload.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// What to work on, if it is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Media type of the payload, if one was named.
    pub content_type: Option<String>,
    /// The task's name for people.
    pub name: Option<String>,
    /// What it counts against the worker's concurrency.
    pub weight: u16,
    /// When it was due.
    pub run_at: Time,
    /// When it was claimed, by the server's clock.
    pub claimed_at: Time,
    /// What runs it.
    pub handler: HandlerSpec,
    /// How long the claim holds without a start.
    pub claim_timeout_ms: u64,
    /// How long a run holds without a heartbeat.
    pub heartbeat_timeout_ms: u64,
    /// What a heartbeat adds; zero: heartbeats do not help.
    pub heartbeat_increment_ms: u64,
    /// Longest run.
    pub run_timeout_ms: Option<u64>,
    /// Whether the start must be reported before the handler runs: this is the last try, and a crash must count.
    pub start_first: bool,
    /// Whether a run of this task has begun before.
    pub started_before: bool,
    /// W3C trace context of the claim, or of the submit if the claim was not traced.
    pub trace: Option<String>,
    /// How long the claim lasts; only in the answer to the claim of a chosen task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// What the predecessors of the task have returned, in their order; absent without predecessors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<PredecessorResultView>,
}

impl TryFrom<Assignment> for AssignmentView {
    type Error = ApiError;

    fn try_from(given: Assignment) -> Result<Self, ApiError> {
        let input = show(&given.input, given.content_type.as_deref());
        Ok(Self {
            job: given.job,
            id: given.id,
            token: given.token,
            attempt: given.attempt,
            payload: input.json,
            payload_base64: input.base64,
            content_type: given.content_type.map(|text| text.to_string()),
            name: given.name.map(|text| text.to_string()),
            weight: given.weight.get(),
            run_at: given.run_at.into(),
            claimed_at: given.claimed_at.into(),
            handler: (&given.handler).try_into()?,
            claim_timeout_ms: millis(given.claim_timeout),
            heartbeat_timeout_ms: millis(given.heartbeat_timeout),
            heartbeat_increment_ms: millis(given.heartbeat_increment),
            run_timeout_ms: given.run_timeout.map(millis),
            start_first: given.start_first,
            started_before: given.started_before,
            trace: given.trace.map(|text| text.to_string()),
            lease: None,
            results: given.results.iter().map(Into::into).collect(),
        })
    }
}

impl TryFrom<AssignmentView> for Assignment {
    type Error = ApiError;

    fn try_from(view: AssignmentView) -> Result<Self, ApiError> {
        let input = Shown {
            json: view.payload,
            base64: view.payload_base64,
        };
        let results = view.results.into_iter().map(TryInto::try_into);
        let results = results.collect::<Result<_, ApiError>>()?;
        let config = view.handler.config;
        let handler = Handler {
            kind: Arc::from(view.handler.kind),
            config: Arc::from(config.as_ref().map_or("{}", |config| config.get())),
        };
        Ok(Self {
            job: view.job,
            id: view.id,
            token: view.token,
            attempt: view.attempt,
            input: input.into_bytes("payload")?.unwrap_or_default(),
            content_type: view.content_type.map(Arc::from),
            name: view.name.map(Arc::from),
            weight: Weight::new(view.weight.into())
                .map_err(|error| ApiError::invalid("weight", ErrorReason::InvalidWeight, error))?,
            run_at: view.run_at.0,
            claimed_at: view.claimed_at.0,
            handler,
            claim_timeout: Duration::from_millis(view.claim_timeout_ms),
            heartbeat_timeout: Duration::from_millis(view.heartbeat_timeout_ms),
            heartbeat_increment: Duration::from_millis(view.heartbeat_increment_ms),
            run_timeout: view.run_timeout_ms.map(Duration::from_millis),
            start_first: view.start_first,
            started_before: view.started_before,
            trace: view.trace.map(Arc::from),
            // REST has no parameter for it, so the view has no field.
            started: false,
            results,
            waited: Duration::ZERO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use dueline_domain::{TaskAddress, TaskEnd, Timestamp};

    use crate::PredecessorResult;

    #[test]
    fn an_assignment_survives_the_way_out_and_back_in() {
        let of = |number, result: Option<&'static [u8]>| PredecessorResult {
            task: TaskAddress {
                job: JobName::parse("mail").unwrap(),
                id: TaskId::from_bytes([number; 16]),
            },
            end: Some(TaskEnd::Succeeded),
            bytes: result.map(|bytes| bytes.len() as u64).or(Some(70_000)),
            result: result.map(Bytes::from_static),
        };
        let results = [&b"[1]"[..], b"text", b"\xff"].map(Some);
        let results = results.into_iter().chain([None]);
        let results: Vec<_> = (1..)
            .zip(results)
            .map(|(n, result)| of(n, result))
            .collect();
        for input in [&b"{\"a\": 1.0}"[..], b"\xff", b""] {
            let given = Assignment {
                job: JobName::parse("mail").unwrap(),
                id: TaskId::from_bytes([9; 16]),
                token: Token::from_random(77),
                attempt: 2,
                input: Bytes::from_static(input),
                content_type: Some("application/json".into()),
                name: Some("n".into()),
                weight: Weight::new(3).unwrap(),
                run_at: Timestamp::clamped(1_700_000_000_001),
                claimed_at: Timestamp::clamped(1_700_000_000_002),
                handler: Handler {
                    kind: "exec".into(),
                    config: "{\"command\": [\"cat\"]}".into(),
                },
                claim_timeout: Duration::from_millis(1),
                heartbeat_timeout: Duration::from_millis(2),
                heartbeat_increment: Duration::ZERO,
                run_timeout: Some(Duration::from_millis(3)),
                start_first: true,
                started_before: true,
                trace: Some("00-aa-bb-01".into()),
                started: false,
                results: results.clone(),
                waited: Duration::ZERO,
            };
            let view = AssignmentView::try_from(given.clone()).unwrap();
            let json = serde_json::to_vec(&WorkList { tasks: vec![view] }).unwrap();
            let mut back: WorkList = serde_json::from_slice(&json).unwrap();
            assert_eq!(Assignment::try_from(back.tasks.remove(0)).unwrap(), given);
        }
    }
}
