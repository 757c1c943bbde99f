//! `dueline schedule`.

mod apply;
mod backfill;
mod delete;
mod get;
mod history;
mod list;
mod next;
mod pause;
mod trigger;

use clap::Subcommand;
use dueline_domain::{JobName, ScheduleName};

use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// The commands of `dueline schedule`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a schedule or replace its settings
    #[command(alias = "put")]
    Apply(Box<apply::Apply>),
    /// Show a schedule, with its next firings
    Get(get::Get),
    /// List the schedules of a job
    List(list::List),
    /// Delete a schedule; its tasks stay
    Delete(delete::Delete),
    /// Stop the firings of a schedule
    Pause(pause::Pause),
    /// Let a paused schedule fire again
    Resume(pause::Resume),
    /// Fire a schedule now
    Trigger(trigger::Trigger),
    /// Carry out all firings of a range of time
    Backfill(backfill::Backfill),
    /// Show the latest firings of a schedule, and what became of them
    History(history::History),
    /// Show when a rule fires next; needs no server
    Next(next::Next),
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
            Self::Trigger(command) => command.run(context).await,
            Self::Backfill(command) => command.run(context).await,
            Self::History(command) => command.run(context).await,
            Self::Next(command) => command.run(context),
        }
    }
}

/// Which schedule.
#[derive(Debug, clap::Args)]
struct ScheduleArgs {
    /// Name of the job
    job: JobName,

    /// Name of the schedule
    schedule: ScheduleName,
}

impl ScheduleArgs {
    /// The path of the schedule after `/v1`.
    fn path(&self) -> [&str; 4] {
        [
            "jobs",
            self.job.as_str(),
            "schedules",
            self.schedule.as_str(),
        ]
    }

    /// The path of a verb of the schedule.
    fn verb(&self, verb: &'static str) -> [&str; 5] {
        let [jobs, job, schedules, schedule] = self.path();
        [jobs, job, schedules, schedule, verb]
    }
}

impl std::fmt::Display for ScheduleArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.job, self.schedule)
    }
}
