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
    ApiError, Frontend, Submitted,
    grpc::{
        convert::{
            bounds::{self, WAIT_MAX, millis, string_opt},
            check_new_task,
        },
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

    fn client(&self) -> frontend_client::FrontendClient<Channel> {
        frontend_client::FrontendClient::new(self.remote.channel())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn submit_some(&self, tasks: Vec<proto::NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let asked = tasks.len();
        let mut client = self.client();
        let call = client.submit(proto::SubmitRequest { tasks });
        let answered = self.remote.call(Writes, Duration::ZERO, call).await;
        let read = |result: proto::SubmitResult| match result.result.ok_or_else(missing)? {
            submit_result::Result::Submitted(submitted) => value(Some(submitted)),
            submit_result::Result::Error(error) => Err(error.into()),
        };
        answers(asked, answered.map(|answer| answer.results), read)
    }
}

/// Reads the job of an answer.
fn job(job: Option<proto::Job>) -> Result<Arc<Job>, ApiError> {
    value(job).map(Arc::new)
}

#[async_trait]
impl Frontend for FrontendClient {
    async fn put_job(&self, put: Job) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let put = Some((&put).into());
        let call = client.put_job(proto::PutJobRequest { job: put });
        job(self.remote.call(Writes, Duration::ZERO, call).await?.job)
    }

    async fn job(&self, name: &JobName) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let call = client.get_job(proto::GetJobRequest { name });
        job(self.remote.call(Reads, Duration::ZERO, call).await?.job)
    }

    async fn jobs(&self) -> Result<Vec<Arc<Job>>, ApiError> {
        let mut client = self.client();
        let call = client.list_jobs(proto::ListJobsRequest {});
        let answer = self.remote.call(Reads, Duration::ZERO, call).await?;
        answer.jobs.into_iter().map(|one| job(Some(one))).collect()
    }

    async fn pause_job(&self, name: &JobName, paused: bool) -> Result<Arc<Job>, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let call = client.pause_job(proto::PauseJobRequest { name, paused });
        job(self.remote.call(Writes, Duration::ZERO, call).await?.job)
    }

    async fn delete_job(&self, name: &JobName) -> Result<(), ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let call = client.delete_job(proto::DeleteJobRequest { name });
        self.remote.call(Writes, Duration::ZERO, call).await?;
        Ok(())
    }

    async fn job_stats(&self, name: &JobName) -> Result<JobStats, ApiError> {
        let mut client = self.client();
        let name = name.to_string();
        let call = client.job_stats(proto::JobStatsRequest { name });
        value(self.remote.call(Reads, Duration::ZERO, call).await?.stats)
    }

    async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
        let len = tasks.len();
        if let Err(error) = bounds::batch("tasks", len) {
            return vec_of(len, &error);
        }
        // What the server would refuse is not worth its way, and might not even fit into a message.
        let checked: Vec<_> = tasks.iter().map(check_new_task).collect();
        let good = tasks.into_iter().zip(&checked);
        let good = good.filter(|(_, check)| check.is_ok());
        let good = good.map(|(task, _)| task.into()).collect();
        let sent = send_in_chunks(good, len, |tasks| self.submit_some(tasks)).await;
        let mut sent = sent.into_iter();
        let answer = |check: Result<(), ApiError>| match check {
            Ok(()) => sent.next().unwrap_or_else(|| Err(missing())),
            Err(error) => Err(error),
        };
        checked.into_iter().map(answer).collect()
    }

    async fn task(
        &self,
        job: &JobName,
        id: &TaskId,
        wait: Option<Duration>,
    ) -> Result<Task, ApiError> {
        let wait = wait.map(|wait| wait.min(WAIT_MAX));
        let mut client = self.client();
        let call = client.get_task(proto::GetTaskRequest {
            job: job.to_string(),
            id: id.to_string(),
            wait_ms: wait.map(millis),
        });
        let answer = self.remote.call(Reads, wait.unwrap_or_default(), call);
        value(answer.await?.task)
    }

    async fn tasks(&self, query: ListQuery) -> Result<Page, ApiError> {
        let mut client = self.client();
        let call = client.list_tasks(proto::ListTasksRequest::from(query));
        let answer = self.remote.call(Reads, Duration::ZERO, call).await?;
        Ok(Page {
            tasks: values(answer.tasks)?,
            next: bounds::text_opt(answer.next),
        })
    }

    async fn cancel(
        &self,
        job: &JobName,
        id: &TaskId,
        running: RunningCancel,
        reason: Option<Arc<str>>,
    ) -> Result<Task, ApiError> {
        let mut client = self.client();
        let call = client.cancel(proto::CancelRequest {
            job: job.to_string(),
            id: id.to_string(),
            running: proto::RunningCancel::from(running).into(),
            reason: string_opt(reason),
        });
        value(self.remote.call(Writes, Duration::ZERO, call).await?.task)
    }

    async fn modify(
        &self,
        job: &JobName,
        id: &TaskId,
        change: Modification,
    ) -> Result<Task, ApiError> {
        if let Some(payload) = &change.payload {
            bounds::payload("payload", payload.clone())?;
        }
        let mut client = self.client();
        let call = client.modify(proto::ModifyRequest {
            job: job.to_string(),
            id: id.to_string(),
            ..change.into()
        });
        value(self.remote.call(Writes, Duration::ZERO, call).await?.task)
    }

    async fn redrive(&self, job: &JobName, id: &TaskId) -> Result<Task, ApiError> {
        let mut client = self.client();
        let call = client.redrive(proto::RedriveRequest {
            job: job.to_string(),
            id: id.to_string(),
        });
        value(self.remote.call(Writes, Duration::ZERO, call).await?.task)
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, ApiError> {
        let mut client = self.client();
        let call = client.list_workers(proto::ListWorkersRequest {});
        values(self.remote.call(Reads, Duration::ZERO, call).await?.workers)
    }
}
