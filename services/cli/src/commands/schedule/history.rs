//! `dueline schedule history`.

use comfy_table::{Cell, Color};
use dueline_api::v1::ScheduleView;
use serde_json::json;

use super::ScheduleArgs;
use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
    output::{self, TableStyle},
    sanitize::{clean, short},
};

/// Shows the latest firings of a schedule. All its tasks: `dueline task list JOB --schedule NAME`.
#[derive(Debug, clap::Args)]
pub struct History {
    #[command(flatten)]
    schedule: ScheduleArgs,
}

impl History {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let path = self.schedule.path();
        let schedule: ScheduleView = context.client()?.get(&path, &[]).await?.read()?;
        let answer = JsonAnswer::of(&json!({
            "counts": schedule.counts,
            "recent": schedule.recent,
        }));
        context.output.show(&answer, context.now(), |style| {
            if schedule.recent.is_empty() {
                return Ok(format!("schedule {} has not fired yet", self.schedule));
            }
            Ok(render(style, &schedule))
        })?;
        Ok(Exit::Ok)
    }
}

/// The latest firings as a table.
pub(super) fn render(style: &TableStyle, schedule: &ScheduleView) -> String {
    let mut table = style.table(&["FIRING", "WHEN", "COUNT", "END", "TASK", "WHY"]);
    for firing in &schedule.recent {
        let end = match firing.end.as_str() {
            "created" => Cell::new("created"),
            "failed" => style.coloured("failed", Color::Red),
            other => style.coloured(&clean(other), Color::Yellow),
        };
        let task = firing.task.map(|id| format!("{}/{id}", schedule.job));
        table.add_row([
            Cell::new(firing.first_at),
            Cell::new(style.when(firing.last_at)),
            Cell::new(firing.count),
            end,
            Cell::new(task.unwrap_or_default()),
            Cell::new(short(firing.info.as_deref().unwrap_or_default(), 60)),
        ]);
    }
    output::text(&table)
}
