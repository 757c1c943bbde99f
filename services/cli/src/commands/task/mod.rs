//! `dueline task`.

mod batch;
mod cancel;
mod claim;
mod count;
mod expires_in;
mod explain;
mod get;
mod history;
mod list;
mod owned;
mod redrive;
mod submit;
mod tree;
mod update;
mod wait;
mod wait_any;
mod watch;

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
    /// Say why a task is not running, and what lets it go on
    Explain(explain::Explain),
    /// List the tasks of a job, newest first unless --order says otherwise
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
    /// Show the runs of a task that are over
    History(history::History),
    /// Wait until a task of some jobs can be claimed, and print the ones that can
    WaitAny(wait_any::WaitAny),
    /// Print what is posted, changed and ended in a job, or how one task goes on
    Watch(watch::Watch),
    /// Count the tasks of a job that have not ended
    Count(count::Count),
    /// Become the owner of a task that is enqueued or due
    Claim(claim::Claim),
    /// Show how long the claim of a task still lasts: a duration, `never`, or `none`
    ExpiresIn(expires_in::ExpiresIn),
    /// As the owner: set the end of the claim anew
    Extend(owned::Extend),
    /// As the owner: begin the run
    Start(owned::Start),
    /// As the owner: say that the run goes on
    Heartbeat(owned::Heartbeat),
    /// As the owner: store what a later run gets instead of the payload
    Checkpoint(owned::Checkpoint),
    /// As the owner: end the task well
    #[command(alias = "complete")]
    Consume(owned::Consume),
    /// As the owner: say that the run has failed
    Fail(owned::Fail),
    /// As the owner: give the task back
    Abandon(owned::Abandon),
    /// As the owner: take the task off for good
    Trash(owned::Trash),
}

impl Command {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Submit(command) => command.run(context).await,
            Self::Get(command) => command.run(context).await,
            Self::Explain(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Tree(command) => command.run(context).await,
            Self::Wait(command) => command.run(context).await,
            Self::Cancel(command) => command.run(context).await,
            Self::Redrive(command) => command.run(context).await,
            Self::Update(command) => command.run(context).await,
            Self::History(command) => command.run(context).await,
            Self::WaitAny(command) => command.run(context).await,
            Self::Watch(command) => command.run(context).await,
            Self::Count(command) => command.run(context).await,
            Self::Claim(command) => command.run(context).await,
            Self::ExpiresIn(command) => command.run(context).await,
            Self::Extend(command) => command.run(context).await,
            Self::Start(command) => command.run(context).await,
            Self::Heartbeat(command) => command.run(context).await,
            Self::Checkpoint(command) => command.run(context).await,
            Self::Consume(command) => command.run(context).await,
            Self::Fail(command) => command.run(context).await,
            Self::Abandon(command) => command.run(context).await,
            Self::Trash(command) => command.run(context).await,
        }
    }
}
