//! `dueline job pause` and `dueline job resume`.

use dueline_domain::JobName;
use reqwest::Method;

use crate::{
    client::RequestBody,
    context::Context,
    exit::{CliError, Exit},
};

/// Pauses a job.
#[derive(Debug, clap::Args)]
pub struct Pause {
    /// Name of the job
    job: JobName,
}

/// Resumes a job.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Name of the job
    job: JobName,
}

impl Pause {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        set_paused(context, &self.job, "pause", "paused").await
    }
}

impl Resume {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        set_paused(context, &self.job, "resume", "resumed").await
    }
}

async fn set_paused(
    context: &Context,
    job: &JobName,
    verb: &str,
    done: &str,
) -> Result<Exit, CliError> {
    let path = ["jobs", job.as_str(), verb];
    let answer = context
        .client()?
        .send(Method::POST, &path, RequestBody::Empty)
        .await?;
    context
        .output
        .show(&answer, context.now(), |_| Ok(format!("job {job} {done}")))?;
    Ok(Exit::Ok)
}
