//! `dueline task explain`.

use dueline_api::v1::ExplanationView;

use crate::{
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
};

/// Says why a task is not running.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,
}

impl Explain {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "explain"];
        let answer = context.client()?.get(&path, &[]).await?;
        context.output.show(&answer, context.now(), |_| {
            let found: ExplanationView = answer.read()?;
            Ok(format!(
                "state        {}\ncause        {}\nwhy          {}\nreleased by  {}",
                found.state,
                clean(&found.cause),
                clean(&found.message),
                clean(&found.release),
            ))
        })?;
        Ok(Exit::Ok)
    }
}
