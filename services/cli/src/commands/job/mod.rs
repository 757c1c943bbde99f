//! `dueline job`.

mod apply;
mod delete;
mod get;
mod list;
mod pause;
mod stats;

use clap::Subcommand;

use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a job or replace its definition
    Apply(Box<apply::Apply>),
    /// Show a job
    Get(get::Get),
    /// List all jobs
    List(list::List),
    /// Delete a job that has no unfinished tasks
    Delete(delete::Delete),
    /// Let the tasks of a job wait; those that run go on
    Pause(pause::Pause),
    /// Let the tasks of a paused job go on
    Resume(pause::Resume),
    /// Count the tasks of a job by their states
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
            Self::Stats(command) => command.run(context).await,
        }
    }
}
