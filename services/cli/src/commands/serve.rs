//! `dueline serve`.

use clap::Args;
use dueline_all_in_one::{Node, Role, Roles};
use dueline_settings::ConfigArgs;

use super::process;
use crate::{
    context::Context,
    exit::{CliError, Exit},
    output,
};

const EXAMPLES: &str = "\
Examples:
  dueline serve --data dueline.db --listen 127.0.0.1:7070
  dueline serve --store dynamodb://dueline --queue sqs://dueline --services frontend,consumer --no-worker";

/// Runs the server that owns a store: frontend, consumer, status controller, controller, and an executor.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Run no tasks in this process; other workers run them
    #[arg(long)]
    no_worker: bool,

    /// Services to run in this process, separated by commas: frontend, consumer, status-controller, controller
    /// [default: all]
    #[arg(long, value_name = "SERVICES", value_delimiter = ',')]
    services: Vec<Role>,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Serve {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Some(prepared) = process::prepare(context, &self.config)? else {
            return Ok(Exit::Ok);
        };
        let settings = &prepared.settings;
        process::check_folder(settings)?;
        let mut config = process::node(&prepared);
        if !self.services.is_empty() {
            config.roles = Roles::of(self.services);
        }
        if !self.no_worker && config.roles.has(Role::Controller) {
            config.workers.push(process::worker(settings, true)?);
        }
        let _upkeep = process::upkeep(prepared.metrics.clone());
        let node = Node::start(config)
            .await
            .map_err(|error| process::start_error(&error))?;
        announce(context, &node, settings)?;
        let grace = settings.shutdown.grace();
        let executors = node.executors().to_vec();
        process::until_stopped(node.failed(), &executors).await?;
        process::stop(grace, &executors, node.stop(grace)).await
    }
}

/// Prints the address of the server and what an accepted write survives. Programs parse the first line for the address.
fn announce(
    context: &Context,
    node: &Node,
    settings: &dueline_settings::Settings,
) -> Result<(), CliError> {
    if let Some(address) = node.address() {
        context
            .output
            .line(&format!("listening on http://{address}"))?;
        if !address.ip().is_loopback() {
            output::note(&format!(
                "WARNING: {address} is reachable from other machines and requires no authentication: \
                 every client that reaches it can run commands on this machine"
            ));
        }
    }
    output::note(&format!(
        "store {}, durability {}: an accepted write survives {}",
        settings.store_uri(),
        node.durability(),
        match node.durability() {
            "full" => "a loss of power",
            "replicated" => "what DynamoDB survives",
            _ => "a crash of this process, but possibly not a loss of power",
        }
    ));
    if node.recovered() > 0 {
        output::note(&format!(
            "{} tasks of the previous server process were enqueued again",
            node.recovered()
        ));
    }
    Ok(())
}
