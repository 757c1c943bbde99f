//! `dueline controller`.

use clap::Args;
use dueline_all_in_one::{ControllerConfig, RemoteController};
use dueline_controller::Serve;
use dueline_domain::JobName;
use dueline_runtime::config::ConfigArgs;

use super::process;
use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// Runs a controller on this host, and an executor, for the server that `--server` names.
#[derive(Debug, Args)]
pub struct Controller {
    /// Serve only these jobs, separated by commas [default: all]
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    jobs: Vec<JobName>,

    /// Run no tasks in this process; executors connect to --listen
    #[arg(long)]
    no_worker: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Controller {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Some(prepared) = process::prepare(context, &self.config)? else {
            return Ok(Exit::Ok);
        };
        let settings = &prepared.settings;
        let serve = if self.jobs.is_empty() {
            Serve::All
        } else {
            Serve::Jobs(self.jobs)
        };
        let workers = if self.no_worker {
            Vec::new()
        } else {
            vec![process::worker(settings, false)?]
        };
        let controller = RemoteController::start(ControllerConfig {
            server: context.global.server.clone(),
            // A port of its own only when it was asked for: the default one is the server's.
            listen: self
                .config
                .listen
                .is_some()
                .then_some(settings.server.listen),
            controller: dueline_controller::Config {
                serve,
                ..dueline_controller::Config::default()
            },
            workers,
        })
        .await
        .map_err(|error| process::start_error(&error))?;
        if let Some(address) = controller.address() {
            context
                .output
                .line(&format!("listening on http://{address}"))?;
        }
        eprintln!("serving {} as a controller", context.global.server);
        process::until_stopped(controller.failed()).await?;
        let grace = settings.shutdown.grace();
        let executors = controller.executors().to_vec();
        process::stop(grace, &executors, controller.stop(grace)).await
    }
}
