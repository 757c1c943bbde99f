//! The frontend over gRPC.

use std::{sync::Arc, time::Duration};

use dueline_domain::Policy;
use dueline_ports::{Clock, ListQuery, Rng};
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::batch::each;
use crate::{
    Call, Frontend, JobPut,
    grpc::{
        convert::{
            field::{self, batch, job_name, required, task_id},
            job_or, modification, new_task,
        },
        message::MESSAGE_BYTES_MAX,
        proto::{self, frontend_server, submit_result},
    },
};

/// Makes a frontend reachable.
#[derive(Clone)]
pub struct FrontendServer {
    frontend: Arc<dyn Frontend>,
    default_policy: Policy,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl FrontendServer {
    /// Serves `frontend`. What a job that is put does not set is as in `default_policy`.
    pub fn new(
        frontend: Arc<dyn Frontend>,
        default_policy: Policy,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self {
            frontend,
            default_policy,
            clock,
            rng,
        }
    }
}

/// The context that the edge has put into a request, with the request's message.
fn parts<M>(mut request: Request<M>) -> (Call, M) {
    let call = request.extensions_mut().remove::<Call>();
    (call.unwrap_or_default(), request.into_inner())
}

#[tonic::async_trait]
impl frontend_server::Frontend for FrontendServer {
    async fn put_job(
        &self,
        request: Request<proto::PutJobRequest>,
    ) -> Result<Response<proto::PutJobResponse>, Status> {
        let (call, request) = parts(request);
        let job = required("job", request.job)?;
        let put = JobPut {
            keeps_pause: job.paused.is_none(),
            job: job_or(job, &self.default_policy)?,
        };
        let job = Some(self.frontend.put_job(&call, put).await?.as_ref().into());
        Ok(Response::new(proto::PutJobResponse { job }))
    }

    async fn get_job(
        &self,
        request: Request<proto::GetJobRequest>,
    ) -> Result<Response<proto::GetJobResponse>, Status> {
        let (call, request) = parts(request);
        let name = job_name("name", &request.name)?;
        let job = Some(self.frontend.job(&call, &name).await?.as_ref().into());
        Ok(Response::new(proto::GetJobResponse { job }))
    }

    async fn list_jobs(
        &self,
        request: Request<proto::ListJobsRequest>,
    ) -> Result<Response<proto::ListJobsResponse>, Status> {
        let (call, _) = parts(request);
        let jobs = self.frontend.jobs(&call).await?;
        let jobs = jobs.iter().map(|job| job.as_ref().into()).collect();
        Ok(Response::new(proto::ListJobsResponse { jobs }))
    }

    async fn pause_job(
        &self,
        request: Request<proto::PauseJobRequest>,
    ) -> Result<Response<proto::PauseJobResponse>, Status> {
        let (call, request) = parts(request);
        let name = job_name("name", &request.name)?;
        let job = self
            .frontend
            .pause_job(&call, &name, request.paused)
            .await?;
        let job = Some(job.as_ref().into());
        Ok(Response::new(proto::PauseJobResponse { job }))
    }

    async fn delete_job(
        &self,
        request: Request<proto::DeleteJobRequest>,
    ) -> Result<Response<proto::DeleteJobResponse>, Status> {
        let (call, request) = parts(request);
        let name = job_name("name", &request.name)?;
        self.frontend.delete_job(&call, &name).await?;
        Ok(Response::new(proto::DeleteJobResponse {}))
    }

    async fn job_stats(
        &self,
        request: Request<proto::JobStatsRequest>,
    ) -> Result<Response<proto::JobStatsResponse>, Status> {
        let (call, request) = parts(request);
        let name = job_name("name", &request.name)?;
        let stats = Some(self.frontend.job_stats(&call, &name).await?.into());
        Ok(Response::new(proto::JobStatsResponse { stats }))
    }

    async fn submit(
        &self,
        request: Request<proto::SubmitRequest>,
    ) -> Result<Response<proto::SubmitResponse>, Status> {
        let (call, request) = parts(request);
        batch("tasks", request.tasks.len())?;
        let now = self.clock.now();
        let parse = |task| new_task(task, || self.rng.task_id(now));
        let submit = |tasks| self.frontend.submit(&call, tasks);
        let answers = each(request.tasks, parse, submit).await;
        let result = |answer| proto::SubmitResult {
            result: Some(match answer {
                Ok(submitted) => {
                    submit_result::Result::Submitted(proto::Submitted::from(submitted))
                }
                Err(error) => submit_result::Result::Error(proto::ApiError::from(error)),
            }),
        };
        let results = answers.into_iter().map(result).collect();
        Ok(Response::new(proto::SubmitResponse { results }))
    }

    async fn get_task(
        &self,
        request: Request<proto::GetTaskRequest>,
    ) -> Result<Response<proto::GetTaskResponse>, Status> {
        let (call, request) = parts(request);
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let wait = request.wait_ms.map(Duration::from_millis);
        let task = Some(self.frontend.task(&call, &job, &id, wait).await?.into());
        Ok(Response::new(proto::GetTaskResponse { task }))
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        let (call, request) = parts(request);
        let mut query = ListQuery::try_from(request)?;
        loop {
            let page = self.frontend.tasks(&call, query.clone()).await?;
            let len = page.tasks.len();
            let page = proto::ListTasksResponse {
                tasks: page.tasks.into_iter().map(Into::into).collect(),
                next: field::string_opt(page.next),
            };
            // Tasks with large payloads: a shorter page, whose cursor tells where it really ended.
            if len <= 1 || page.encoded_len() <= MESSAGE_BYTES_MAX {
                return Ok(Response::new(page));
            }
            query.limit = len / 2;
        }
    }

    async fn cancel(
        &self,
        request: Request<proto::CancelRequest>,
    ) -> Result<Response<proto::CancelResponse>, Status> {
        let (call, request) = parts(request);
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let running = request.running_cancel()?;
        let reason = request.reason.map(Arc::from);
        let task = self
            .frontend
            .cancel(&call, &job, &id, running, reason)
            .await?;
        let task = Some(task.into());
        Ok(Response::new(proto::CancelResponse { task }))
    }

    async fn modify(
        &self,
        request: Request<proto::ModifyRequest>,
    ) -> Result<Response<proto::ModifyResponse>, Status> {
        let (call, request) = parts(request);
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let change = modification(request, self.clock.now())?;
        let task = self.frontend.modify(&call, &job, &id, change).await?;
        let task = Some(task.into());
        Ok(Response::new(proto::ModifyResponse { task }))
    }

    async fn redrive(
        &self,
        request: Request<proto::RedriveRequest>,
    ) -> Result<Response<proto::RedriveResponse>, Status> {
        let (call, request) = parts(request);
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let task = Some(self.frontend.redrive(&call, &job, &id).await?.into());
        Ok(Response::new(proto::RedriveResponse { task }))
    }

    async fn list_workers(
        &self,
        request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let (call, _) = parts(request);
        let workers = self.frontend.workers(&call).await?.into_iter();
        let workers = workers.map(Into::into).collect();
        Ok(Response::new(proto::ListWorkersResponse { workers }))
    }
}
