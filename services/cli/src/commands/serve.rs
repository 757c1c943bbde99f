//! `dueline serve`.

use clap::Args;
use dueline_all_in_one::{Node, Role, Roles};
use dueline_runtime::config::ConfigArgs;

use super::process;
use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// Runs the server that owns a store: frontend, consumer, status controller, controller, and an executor.
#[derive(Debug, Args)]
pub struct Serve {
    /// Run no tasks here; workers elsewhere do
    #[arg(long)]
    no_worker: bool,

    /// Services to run here, separated by commas: frontend, consumer, status-controller, controller [default: all]
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
        process::until_stopped(node.failed()).await?;
        let grace = settings.shutdown.grace();
        let executors = node.executors().to_vec();
        process::stop(grace, &executors, node.stop(grace)).await
    }
}

/// Says where the server is and what it promises. The first line is for programs, too: it names the address.
fn announce(
    context: &Context,
    node: &Node,
    settings: &dueline_runtime::config::Settings,
) -> Result<(), CliError> {
    if let Some(address) = node.address() {
        context
            .output
            .line(&format!("listening on http://{address}"))?;
        if !address.ip().is_loopback() {
            eprintln!(
                "WARNING: {address} can be reached from other machines and nobody has to log in: \
                 whoever reaches it can run commands here"
            );
        }
    }
    eprintln!(
        "store {}, durability {}: an accepted write survives {}",
        settings.store_uri(),
        node.durability(),
        match node.durability() {
            "full" => "a loss of power",
            "replicated" => "what DynamoDB survives",
            _ => "the end of this process, but maybe not a loss of power",
        }
    );
    if node.recovered() > 0 {
        eprintln!(
            "{} tasks of the last run are handed on again",
            node.recovered()
        );
    }
    Ok(())
}
