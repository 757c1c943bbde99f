//! `dueline worker run`.

use clap::Args;
use dueline_all_in_one::RemoteWorker;
use dueline_api::{ErrorKind, ErrorReason, v1::JobView};
use dueline_domain::JobName;
use dueline_settings::ConfigArgs;

use super::process;
use crate::{
    context::Context,
    exit::{CliError, Exit},
    output,
};

/// Runs tasks in this process for the server or controller that `--server` names.
#[derive(Debug, Args)]
pub struct Run {
    /// Run only tasks of these jobs, separated by commas [default: all jobs whose handlers this worker has]
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    jobs: Vec<JobName>,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Run {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Some(prepared) = process::prepare(context, &self.config)? else {
            return Ok(Exit::Ok);
        };
        let settings = &prepared.settings;
        if settings.worker.handlers.is_empty() {
            let text = "a worker without handlers would run nothing";
            let hint = "set worker.handlers (--handlers) to some of exec, http and noop";
            return Err(
                CliError::new(ErrorKind::Invalid, ErrorReason::Config, text).with_hint(hint)
            );
        }
        let mut worker = process::worker(settings, false)?;
        self.check_jobs(context, &settings.worker.handlers).await?;
        worker.registry = worker.registry.kept_to(self.jobs);
        let server = &context.global.server;
        let worker =
            RemoteWorker::start(server, worker).map_err(|error| process::start_error(&error))?;
        output::note(&format!("running tasks of {server}"));
        let grace = settings.shutdown.grace();
        let executors = [worker.executor().clone()];
        process::until_stopped(worker.failed(), &executors).await?;
        process::stop(grace, &executors, worker.stop(grace)).await
    }
}

impl Run {
    /// Refuses jobs that do not exist, and those whose handler this worker does not have: it would wait in vain. A server
    /// that cannot be asked now, such as one that is about to start, is no reason not to start.
    async fn check_jobs(&self, context: &Context, handlers: &[String]) -> Result<(), CliError> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let client = context.client()?;
        for name in &self.jobs {
            let job: JobView = match client.get(&["jobs", name.as_str()], &[]).await {
                Ok(answer) => answer.read()?,
                Err(error) if error.is_reason(&ErrorReason::UnknownJob) => return Err(error),
                Err(error) => {
                    output::note(&format!("job '{name}' was not checked: {error}"));
                    continue;
                }
            };
            let kind = &job.handler.kind;
            if !handlers.contains(kind) {
                let text =
                    format!("job '{name}' has the handler '{kind}', which this worker lacks");
                let hint = "worker.handlers (--handlers) names the handlers of a worker";
                let error = CliError::new(ErrorKind::Invalid, ErrorReason::Config, text);
                return Err(error.with_hint(hint));
            }
        }
        Ok(())
    }
}
