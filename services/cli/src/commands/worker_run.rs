//! `dueline worker run`.

use clap::Args;
use dueline_all_in_one::RemoteWorker;
use dueline_api::{ErrorKind, ErrorReason};
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
        let worker = process::worker(settings, false)?;
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
