//! `dueline job`.

mod apply;
mod delete;
mod drop;
mod get;
mod http_handler;
mod list;
mod pause;
mod stats;

use clap::Subcommand;

use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// The commands of `dueline job`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a job or replace its definition
    #[command(alias = "put")]
    Apply(Box<apply::Apply>),
    /// Show a job
    Get(get::Get),
    /// List all jobs
    List(list::List),
    /// Delete a job that has no unfinished tasks
    Delete(delete::Delete),
    /// Stop enqueueing the tasks of a job; running tasks continue
    Pause(pause::Pause),
    /// Enqueue the tasks of a paused job again
    Resume(pause::Resume),
    /// End the tasks of a job, or those with a tag, that no worker owns
    Drop(drop::Drop),
    /// Count the tasks of a job by state
    Stats(stats::Stats),
}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Apply(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Delete(command) => command.run(context).await,
            Self::Pause(command) => command.run(context).await,
            Self::Resume(command) => command.run(context).await,
            Self::Drop(command) => command.run(context).await,
            Self::Stats(command) => command.run(context).await,
        }
    }
}
