//! Returns the runs of a task that are over.

use std::sync::Arc;

use dueline_domain::{
    JobName, RunEnd, StateKind, Task, TaskId, Timestamp, WorkerId, limits, truncate_text,
};

use super::Operation;

/// Returns the runs of a task that are over, oldest first, the successful one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRuns {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
}

/// The runs of a task that are over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRuns {
    /// The first run, and the latest ones.
    pub runs: Vec<TaskRun>,
    /// Runs that are no longer kept, between the first and the second of `runs`.
    pub dropped: u32,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRun {
    /// Its number; 0 for the first.
    pub attempt: u32,
    /// Who ran it; `None` for a successful run that an older version stored.
    pub worker: Option<WorkerId>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over.
    pub finished_at: Timestamp,
    /// How it ended.
    pub end: RunEnd,
    /// What it returned or what went wrong, as text.
    pub info: Arc<str>,
}

impl TaskRuns {
    /// The runs of `task`. The fields of the task describe the successful one, which is always the last.
    pub fn of(task: &Task) -> Self {
        let history = task.history.as_deref();
        let earlier = history.map_or(&[][..], |history| &history.runs);
        let earlier = earlier.iter().map(|run| TaskRun {
            attempt: run.attempt,
            worker: Some(run.worker.clone()),
            started_at: run.started_at,
            finished_at: run.finished_at,
            end: run.end,
            info: run.info.clone(),
        });
        let mut runs: Vec<_> = earlier.collect();
        if task.kind() == StateKind::Succeeded
            && let (Some(started_at), Some(finished_at)) = (task.started_at, task.finished_at)
        {
            runs.push(TaskRun {
                attempt: task.attempt(),
                worker: task.last_owner.clone(),
                started_at,
                finished_at,
                end: RunEnd::Succeeded,
                info: task
                    .result
                    .as_deref()
                    .map(readable)
                    .unwrap_or_default()
                    .into(),
            });
        }
        Self {
            runs,
            dropped: history.map_or(0, |history| history.dropped),
        }
    }
}

/// Bytes as text for people, cut to the limit of texts about runs.
fn readable(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return format!("{} bytes", bytes.len());
    };
    truncate_text(text, limits().error_bytes_max).to_owned()
}

impl Operation for GetRuns {
    type Output = TaskRuns;
    const NAME: &'static str = "GetRuns";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{
            RequestDefaults, Unary,
            convert::{enums, field},
            proto,
        },
    };

    impl Unary for GetRuns {
        type Request = proto::GetRunsRequest;
        type Response = proto::GetRunsResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self {
                job: field::job_name("job", &request.job)?,
                id: field::task_id("id", &request.id)?,
            })
        }

        fn into_request(self) -> Self::Request {
            proto::GetRunsRequest {
                job: self.job.to_string(),
                id: self.id.to_string(),
            }
        }

        fn into_response(runs: TaskRuns) -> Self::Response {
            let record = |run: TaskRun| proto::RunRecord {
                attempt: run.attempt,
                worker: run
                    .worker
                    .map(|worker| worker.to_string())
                    .unwrap_or_default(),
                started_at_ms: run.started_at.millis(),
                finished_at_ms: run.finished_at.millis(),
                end: proto::RunEnd::from(run.end).into(),
                info: run.info.as_ref().to_owned(),
            };
            proto::GetRunsResponse {
                runs: runs.runs.into_iter().map(record).collect(),
                dropped: runs.dropped,
            }
        }

        fn from_response(response: Self::Response) -> Result<TaskRuns, ApiError> {
            let run = |run: proto::RunRecord| {
                let worker = Some(run.worker.as_str()).filter(|worker| !worker.is_empty());
                let worker = worker.map(|worker| field::worker_id("runs.worker", worker));
                Ok(TaskRun {
                    attempt: run.attempt,
                    worker: worker.transpose()?,
                    started_at: field::timestamp("runs.started_at_ms", run.started_at_ms)?,
                    finished_at: field::timestamp("runs.finished_at_ms", run.finished_at_ms)?,
                    end: enums::run_end("runs.end", run.end)?,
                    info: Arc::from(run.info),
                })
            };
            let runs = response.runs.into_iter().map(run);
            Ok(TaskRuns {
                runs: runs.collect::<Result<_, ApiError>>()?,
                dropped: response.dropped,
            })
        }
    }
}
