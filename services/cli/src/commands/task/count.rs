//! `dueline task count`.

use dueline_api::v1::StatsView;
use dueline_domain::{BoardState, JobName, StateKind};
use serde::Serialize;

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
};

/// Counts the tasks of a job that have not ended.
#[derive(Debug, clap::Args)]
pub struct Count {
    /// Name of the job
    job: JobName,

    /// Only tasks without an owner
    #[arg(long, conflicts_with = "claimed")]
    unclaimed: bool,

    /// Only tasks that have an owner
    #[arg(long)]
    claimed: bool,
}

/// The number of tasks on the board.
#[derive(Debug, Serialize)]
struct TaskCount {
    count: u64,
    /// How long ago they were counted.
    age_ms: u64,
}

impl Count {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let path = ["jobs", self.job.as_str(), "stats"];
        let stats: StatsView = context.client()?.get(&path, &[]).await?.read()?;
        let wanted = |state: &StateKind| match state.board() {
            BoardState::Unclaimed => !self.claimed,
            BoardState::Claimed => !self.unclaimed,
            BoardState::Complete => false,
        };
        let states = StateKind::ALL.into_iter().filter(wanted);
        let counts = states.filter_map(|state| stats.by_state.get(state.name()));
        let count = TaskCount {
            count: counts.sum(),
            age_ms: stats.age_ms,
        };
        let answer = JsonAnswer::of(&count);
        context
            .output
            .show(&answer, context.now(), |_| Ok(count.count.to_string()))?;
        Ok(Exit::Ok)
    }
}
