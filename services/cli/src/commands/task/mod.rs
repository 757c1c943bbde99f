//! `dueline task`.

mod batch;
mod cancel;
mod get;
mod list;
mod redrive;
mod submit;
mod tree;
mod update;
mod wait;

use clap::Subcommand;

use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// The commands of `dueline task`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Submit a task, or a batch of tasks
    Submit(Box<submit::Submit>),
    /// Show a task
    Get(get::Get),
    /// List the tasks of a job, newest first
    List(list::List),
    /// Show a task with everything that waits for it
    Tree(tree::Tree),
    /// Wait until a task has ended; exit code 6 if it did not succeed
    Wait(wait::Wait),
    /// Cancel a task
    Cancel(cancel::Cancel),
    /// Run a failed or trashed task again, with a fresh count of tries
    #[command(alias = "retry")]
    Redrive(redrive::Redrive),
    /// Change a task that no worker owns
    Update(update::Update),
}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Submit(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Tree(command) => command.run(context).await,
            Self::Wait(command) => command.run(context).await,
            Self::Cancel(command) => command.run(context).await,
            Self::Redrive(command) => command.run(context).await,
            Self::Update(command) => command.run(context).await,
        }
    }
}
