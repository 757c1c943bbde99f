//! `dueline controller`.

use clap::Args;
use dueline_all_in_one::{ControllerConfig, RemoteController};
use dueline_controller::Serve;
use dueline_domain::JobName;
use dueline_settings::{ConfigArgs, Settings};

use super::process;
use crate::{
    context::Context,
    exit::{CliError, Exit},
    output,
};

/// Runs a controller and an executor on this host for the servers that `--server` names.
///
/// `--server` takes the addresses of status controllers, separated by commas; requests go to any of them. Messages come
/// from the queue that `--queue` names (`sqs://PREFIX`), or else from the queue inside the first server.
#[derive(Debug, Args)]
pub struct Controller {
    /// Serve only these jobs, separated by commas [default: all]
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    jobs: Vec<JobName>,

    /// Run no executor in this process; executors connect to --listen
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
            // Without a shared queue, messages come from the queue inside the first server.
            queue: (settings.queue != Settings::default().queue).then(|| settings.queue.clone()),
            // The controller listens only when --listen is set: the default port belongs to the server.
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
        let server = &context.global.server;
        output::note(&format!("serving {server} as a controller"));
        let grace = settings.shutdown.grace();
        let executors = controller.executors().to_vec();
        process::until_stopped(controller.failed(), &executors).await?;
        process::stop(grace, &executors, controller.stop(grace)).await
    }
}

fn servers(list: &str) -> Vec<String> {
    let servers = list.split(',').map(str::trim);
    let servers = servers.filter(|server| !server.is_empty());
    servers.map(str::to_owned).collect()
}
