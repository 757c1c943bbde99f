//! `dueline job drop`.

use dueline_api::v1::{DropRequest, DroppedView};
use dueline_domain::JobName;
use reqwest::Method;

use crate::{
    client::{JsonAnswer, RequestBody},
    context::Context,
    exit::{CliError, Exit},
};

/// Drops the tasks of a job.
#[derive(Debug, clap::Args)]
pub struct Drop {
    /// Name of the job
    job: JobName,

    /// Drop only the tasks with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,

    /// Reason, stored with each task
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Drop {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let path = ["jobs", self.job.as_str(), "tasks:drop"];
        let client = context.client()?;
        let (mut all, mut cursor) = (DroppedView::default(), None);
        loop {
            let request = DropRequest {
                tag: self.tag.clone(),
                reason: self.reason.clone(),
                cursor,
            };
            let body = RequestBody::json(&request)?;
            let answer = client.send(Method::POST, &path, body).await?;
            let done: DroppedView = answer.read()?;
            all.dropped += done.dropped;
            all.left += done.left;
            cursor = done.next;
            if cursor.is_none() {
                break;
            }
        }
        let answer = JsonAnswer::of(&all);
        context.output.show(&answer, context.now(), |_| {
            let left = match all.left {
                0 => String::new(),
                left => format!("; {left} were claimed or ended meanwhile"),
            };
            let tasks = match all.dropped {
                1 => "1 task".to_owned(),
                dropped => format!("{dropped} tasks"),
            };
            Ok(format!("{tasks} of job {} dropped{left}", self.job))
        })?;
        Ok(Exit::Ok)
    }
}
