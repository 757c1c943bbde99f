//! `dueline controller`.

use clap::Args;
use dueline_all_in_one::{ControllerConfig, RemoteController};
use dueline_controller::Serve;
use dueline_domain::JobName;
use dueline_runtime::config::{ConfigArgs, Settings};

use super::process;
use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// Runs a controller on this host, and an executor, for the servers that `--server` names.
///
/// `--server` takes several addresses of status controllers, separated by commas: any of them will do. With `--queue`
/// messages come from there (`sqs://PREFIX`), else from inside the first server.
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
        let metrics = prepared.metrics.clone();
        let _upkeep = process::upkeep(prepared.metrics.clone());
        let controller = RemoteController::start(ControllerConfig {
            servers: servers(&context.global.server),
            // Without a queue that processes share, messages come from inside the first server.
            queue: (settings.queue != Settings::default().queue).then(|| settings.queue.clone()),
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
            metrics: Some(std::sync::Arc::new(move || metrics.render())),
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

fn servers(list: &str) -> Vec<String> {
    let named = list.split(',').map(str::trim);
    let named = named.filter(|server| !server.is_empty());
    named.map(str::to_owned).collect()
}
