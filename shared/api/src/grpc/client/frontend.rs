//! A frontend on another host.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{Job, JobName, Modification, NewTask, RunningCancel, Task, TaskId};
use dueline_ports::{JobStats, ListQuery, Page, WorkerRecord};
use tonic::transport::Channel;

use super::{
    Remote,
    batch::{answers, missing, send_in_chunks, value, values, vec_of},
    errors::Effect::{Reads, Writes},
};
use crate::{
    ApiError, Call, Frontend, JobPut, Submitted, check,
    grpc::{
        convert::field::{self, millis, string_opt},
        message::MESSAGE_BYTES_MAX,
        proto::{self, frontend_client, submit_result},
    },
};

/// A frontend on another host.
#[derive(Clone, Debug)]
pub struct FrontendClient {
    remote: Remote,
}

impl FrontendClient {
    pub(super) const fn new(remote: Remote) -> Self {
        Self { remote }
    }

    /// The generated client on the same connection, for requests that the types of this one do not allow.
    pub fn raw(&self) -> frontend_client::FrontendClient<Channel> {
        self.client()
    }

    fn client(&self) -> frontend_client::FrontendClient<Channel> {
        frontend_client::FrontendClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn submit_some(
        &self,
        call: &Call,
        tasks: Vec<proto::NewTask>,
    ) -> Vec<Result<Submitted, ApiError>> {
        let asked = tasks.len();
        let mut client = self.client();
        let answer = client.submit(outgoing(call, proto::SubmitRequest { tasks }));
        let answered = self.remote.call(Writes, Duration::ZERO, answer).await;
        let read = |result: proto::SubmitResult| match result.result.ok_or_else(missing)? {
            submit_result::Result::Submitted(submitted) => value(Some(submitted)),
            submit_result::Result::Error(error) => Err(error.into()),
        };
        answers(asked, answered.map(|answer| answer.results), read)
    }
}

/// A request that carries the context of its call.
fn outgoing<M>(call: &Call, message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    // A call without a trace context belongs to the active span of the program.
    let trace = call
        .trace
        .clone()
        .or_else(dueline_trace::active_traceparent);
    for (key, value) in [
        (Call::PRINCIPAL, &call.principal),
        (Call::TRACE, &trace),
        (Call::REQUEST_ID, &call.request_id),
    ] {
        // Text that cannot be a header cannot have come from one either, so it is left out.
        if let Some(value) = value.as_deref().and_then(|text| text.parse().ok()) {
            request.metadata_mut().insert(key, value);
        }
    }
    if let Some(remaining) = call.remaining() {
        request.set_timeout(remaining);
    }
    request
}

/// Reads the job of an answer.
fn job(job: Option<proto::Job>) -> Result<Arc<Job>, ApiError> {
    value(job).map(Arc::new)
}

#[async_trait]
impl Frontend for FrontendClient {
    async fn put_job(&self, call: &Call, put: JobPut) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let mut message = proto::Job::from(&put.job);
        if put.keeps_pause {
            message.paused = None;
        }
        let put = Some(message);
        let answer = client.put_job(outgoing(call, proto::PutJobRequest { job: put }));
        job(self.remote.call(Writes, Duration::ZERO, answer).await?.job)
    }

    async fn job(&self, call: &Call, name: &JobName) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let answer = client.get_job(outgoing(call, proto::GetJobRequest { name }));
        job(self.remote.call(Reads, Duration::ZERO, answer).await?.job)
    }

    async fn jobs(&self, call: &Call) -> Result<Vec<Arc<Job>>, ApiError> {
        let mut client = self.client();
        let answer = client.list_jobs(outgoing(call, proto::ListJobsRequest {}));
        let answer = self.remote.call(Reads, Duration::ZERO, answer).await?;
        answer.jobs.into_iter().map(|one| job(Some(one))).collect()
    }

    async fn pause_job(
        &self,
        call: &Call,
        name: &JobName,
        paused: bool,
    ) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let answer = client.pause_job(outgoing(call, proto::PauseJobRequest { name, paused }));
        job(self.remote.call(Writes, Duration::ZERO, answer).await?.job)
    }

    async fn delete_job(&self, call: &Call, name: &JobName) -> Result<(), ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let answer = client.delete_job(outgoing(call, proto::DeleteJobRequest { name }));
        self.remote.call(Writes, Duration::ZERO, answer).await?;
        Ok(())
    }

    async fn job_stats(&self, call: &Call, name: &JobName) -> Result<JobStats, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let answer = client.job_stats(outgoing(call, proto::JobStatsRequest { name }));
        value(self.remote.call(Reads, Duration::ZERO, answer).await?.stats)
    }

    async fn submit(&self, call: &Call, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let len = tasks.len();
        if let Err(error) = field::batch("tasks", len) {
            return vec_of(len, &error);
        }
        // A task that the server would refuse is not sent. It might not even fit into a message.
        let mut tasks = tasks;
        let checked: Vec<_> = tasks.iter_mut().map(check::new_task).collect();
        let good = tasks.into_iter().zip(&checked);
        let good = good.filter(|(_, check)| check.is_ok());
        let good = good.map(|(task, _)| task.into()).collect();
        let sent = send_in_chunks(good, len, |tasks| self.submit_some(call, tasks)).await;
        let mut sent = sent.into_iter();
        let answer = |check: Result<(), ApiError>| match check {
            Ok(()) => sent.next().unwrap_or_else(|| Err(missing())),
            Err(error) => Err(error),
        };
        checked.into_iter().map(answer).collect()
    }

    async fn task(
        &self,
        call: &Call,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        check::wait("wait", wait)?;
        let mut client = self.client();
        let answer = client.get_task(outgoing(
            call,
            proto::GetTaskRequest {
                job: job.to_string(),
                id: id.to_string(),
                wait_ms: wait.map(millis),
            },
        ));
        let answer = self.remote.call(Reads, wait.unwrap_or_default(), answer);
        value(answer.await?.task)
    }

    async fn tasks(&self, call: &Call, query: ListQuery) -> Result<Page, ApiError> {
        let mut client = self.client();
        let answer = client.list_tasks(outgoing(call, proto::ListTasksRequest::from(query)));
        let answer = self.remote.call(Reads, Duration::ZERO, answer).await?;
        Ok(Page {
            tasks: values(answer.tasks)?,
            next: field::text_opt(answer.next),
        })
    }

    async fn cancel(
        &self,
        call: &Call,
        job: &JobName,
        id: &TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        let mut client = self.client();
        let answer = client.cancel(outgoing(
            call,
            proto::CancelRequest {
                job: job.to_string(),
                id: id.to_string(),
                running: proto::RunningCancel::from(running).into(),
                reason: string_opt(reason),
            },
        ));
        value(self.remote.call(Writes, Duration::ZERO, answer).await?.task)
    }

    async fn modify(
        &self,
        call: &Call,
        job: &JobName,
        id: &TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        check::modification(&change)?;
        let mut client = self.client();
        let answer = client.modify(outgoing(
            call,
            proto::ModifyRequest {
                job: job.to_string(),
                id: id.to_string(),
                ..change.into()
            },
        ));
        value(self.remote.call(Writes, Duration::ZERO, answer).await?.task)
    }

    async fn redrive(&self, call: &Call, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        let mut client = self.client();
        let answer = client.redrive(outgoing(
            call,
            proto::RedriveRequest {
                job: job.to_string(),
                id: id.to_string(),
            },
        ));
        value(self.remote.call(Writes, Duration::ZERO, answer).await?.task)
    }

    async fn workers(&self, call: &Call) -> Result<Vec<WorkerRecord>, ApiError> {
        let mut client = self.client();
        let answer = client.list_workers(outgoing(call, proto::ListWorkersRequest {}));
        values(
            self.remote
                .call(Reads, Duration::ZERO, answer)
                .await?
                .workers,
        )
    }
}
