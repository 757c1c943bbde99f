//! `dueline job stats`.

use comfy_table::Cell;
use dueline_api::v1::StatsView;
use dueline_domain::{JobName, StateKind};

use crate::{
    context::Context,
    exit::{CliError, Exit},
    output::{self, TableStyle},
};

/// Counts the tasks of a job.
#[derive(Debug, clap::Args)]
pub struct Stats {
    /// Name of the job
    job: JobName,
}

impl Stats {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let answer = context
            .client()?
            .get(&["jobs", self.job.as_str(), "stats"], &[])
            .await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read()?))
        })?;
        Ok(Exit::Ok)
    }
}

fn render(style: &TableStyle, stats: &StatsView) -> String {
    let mut table = style.table(&["STATE", "TASKS"]);
    for state in StateKind::ALL {
        let count = stats.by_state.get(state.name()).copied().unwrap_or(0);
        if count > 0 {
            table.add_row([style.state(state), Cell::new(count)]);
        }
    }
    table.add_row([Cell::new("total"), Cell::new(stats.total)]);
    let mut text = output::text(&table);
    if stats.partial {
        text.push_str("\n\npartial: all unfinished tasks are counted, but not all finished ones");
    }
    if stats.age_ms > 0 {
        let age_s = stats.age_ms.div_ceil(1_000);
        text.push_str(&format!("\n\ncounted {age_s} s ago"));
    }
    if let Some(at) = stats.oldest_due_at {
        text.push_str(&format!("\n\nearliest trigger time: {}", style.when(at)));
    }
    text
}
