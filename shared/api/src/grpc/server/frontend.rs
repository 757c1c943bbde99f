//! The frontend over gRPC.

use std::sync::Arc;

use dueline_domain::{Modification, NewTask, Policy};
use dueline_ports::ListQuery;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::batch::each;
use crate::{
    Frontend,
    grpc::{
        convert::{
            bounds::{self, batch, job_name, required, task_id},
            check_job, job_or,
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
}

impl FrontendServer {
    /// Serves `frontend`. What a job that is put says nothing about is as in `default_policy`.
    pub fn new(frontend: Arc<dyn Frontend>, default_policy: Policy) -> Self {
        Self {
            frontend,
            default_policy,
        }
    }
}

#[tonic::async_trait]
impl frontend_server::Frontend for FrontendServer {
    async fn put_job(
        &self,
        request: Request<proto::PutJobRequest>,
    ) -> Result<Response<proto::PutJobResponse>, Status> {
        let job = required("job", request.into_inner().job)?;
        let job = job_or(job, &self.default_policy)?;
        check_job(&job)?;
        let job = Some(self.frontend.put_job(job).await?.as_ref().into());
        Ok(Response::new(proto::PutJobResponse { job }))
    }

    async fn get_job(
        &self,
        request: Request<proto::GetJobRequest>,
    ) -> Result<Response<proto::GetJobResponse>, Status> {
        let name = job_name("name", &request.into_inner().name)?;
        let job = Some(self.frontend.job(&name).await?.as_ref().into());
        Ok(Response::new(proto::GetJobResponse { job }))
    }

    async fn list_jobs(
        &self,
        _: Request<proto::ListJobsRequest>,
    ) -> Result<Response<proto::ListJobsResponse>, Status> {
        let jobs = self.frontend.jobs().await?;
        let jobs = jobs.iter().map(|job| job.as_ref().into()).collect();
        Ok(Response::new(proto::ListJobsResponse { jobs }))
    }

    async fn pause_job(
        &self,
        request: Request<proto::PauseJobRequest>,
    ) -> Result<Response<proto::PauseJobResponse>, Status> {
        let request = request.into_inner();
        let name = job_name("name", &request.name)?;
        let job = self.frontend.pause_job(&name, request.paused).await?;
        let job = Some(job.as_ref().into());
        Ok(Response::new(proto::PauseJobResponse { job }))
    }

    async fn delete_job(
        &self,
        request: Request<proto::DeleteJobRequest>,
    ) -> Result<Response<proto::DeleteJobResponse>, Status> {
        let name = job_name("name", &request.into_inner().name)?;
        self.frontend.delete_job(&name).await?;
        Ok(Response::new(proto::DeleteJobResponse {}))
    }

    async fn job_stats(
        &self,
        request: Request<proto::JobStatsRequest>,
    ) -> Result<Response<proto::JobStatsResponse>, Status> {
        let name = job_name("name", &request.into_inner().name)?;
        let stats = Some(self.frontend.job_stats(&name).await?.into());
        Ok(Response::new(proto::JobStatsResponse { stats }))
    }

    async fn submit(
        &self,
        request: Request<proto::SubmitRequest>,
    ) -> Result<Response<proto::SubmitResponse>, Status> {
        let tasks = request.into_inner().tasks;
        batch("tasks", tasks.len())?;
        let answers = each(tasks, |tasks: Vec<NewTask>| self.frontend.submit(tasks)).await;
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
        let request = request.into_inner();
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let wait = request.wait_ms.map(bounds::wait);
        let task = Some(self.frontend.task(&job, &id, wait).await?.into());
        Ok(Response::new(proto::GetTaskResponse { task }))
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        let mut query = ListQuery::try_from(request.into_inner())?;
        loop {
            let page = self.frontend.tasks(query.clone()).await?;
            let len = page.tasks.len();
            let page = proto::ListTasksResponse {
                tasks: page.tasks.into_iter().map(Into::into).collect(),
                next: bounds::string_opt(page.next),
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
        let request = request.into_inner();
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let running = request.running_cancel()?;
        let reason = request.reason.as_deref().map(bounds::error_text);
        let task = self.frontend.cancel(&job, &id, running, reason).await?;
        let task = Some(task.into());
        Ok(Response::new(proto::CancelResponse { task }))
    }

    async fn modify(
        &self,
        request: Request<proto::ModifyRequest>,
    ) -> Result<Response<proto::ModifyResponse>, Status> {
        let request = request.into_inner();
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let change = Modification::try_from(request)?;
        let task = Some(self.frontend.modify(&job, &id, change).await?.into());
        Ok(Response::new(proto::ModifyResponse { task }))
    }

    async fn redrive(
        &self,
        request: Request<proto::RedriveRequest>,
    ) -> Result<Response<proto::RedriveResponse>, Status> {
        let request = request.into_inner();
        let job = job_name("job", &request.job)?;
        let id = task_id("id", &request.id)?;
        let task = Some(self.frontend.redrive(&job, &id).await?.into());
        Ok(Response::new(proto::RedriveResponse { task }))
    }

    async fn list_workers(
        &self,
        _: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let workers = self.frontend.workers().await?.into_iter();
        let workers = workers.map(Into::into).collect();
        Ok(Response::new(proto::ListWorkersResponse { workers }))
    }
}
