//! `dueline job delete`.

use dueline_domain::JobName;
use reqwest::Method;
use serde_json::json;

use crate::{
    client::{JsonAnswer, RequestBody},
    context::Context,
    exit::{CliError, Exit},
};

/// Deletes a job.
#[derive(Debug, clap::Args)]
pub struct Delete {
    /// Name of the job
    job: JobName,
}

impl Delete {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let path = ["jobs", self.job.as_str()];
        context
            .client()?
            .send(Method::DELETE, &path, RequestBody::Empty)
            .await?;
        let answer = JsonAnswer::of(&json!({ "job": self.job.as_str(), "deleted": true }));
        context.output.show(&answer, context.now(), |_| {
            Ok(format!("job {} deleted", self.job))
        })?;
        Ok(Exit::Ok)
    }
}
