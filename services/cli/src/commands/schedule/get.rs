//! `dueline schedule get`.

use std::time::Duration;

use comfy_table::{Cell, Color};
use dueline_api::v1::{ScheduleView, Time};

use super::{ScheduleArgs, history};
use crate::{
    context::Context,
    exit::{CliError, Exit},
    output::{self, TableStyle},
    sanitize::clean,
    units,
};

/// Shows a schedule.
#[derive(Debug, clap::Args)]
pub struct Get {
    #[command(flatten)]
    schedule: ScheduleArgs,

    /// How many of the next firings to show
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=100))]
    next: u16,
}

impl Get {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let query = [("next", self.next.to_string())];
        let answer = context.client()?.get(&self.schedule.path(), &query).await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read()?))
        })?;
        Ok(Exit::Ok)
    }
}

fn render(style: &TableStyle, schedule: &ScheduleView) -> String {
    let when = |at: Option<Time>| at.map(|at| Cell::new(format!("{at} ({})", style.when(at))));
    let span = |ms: u64| Cell::new(units::span(Duration::from_millis(ms)));
    let text = |text: &str| (!text.is_empty()).then(|| Cell::new(clean(text)));
    let (task, counts) = (&schedule.task, &schedule.counts);
    let payload = task.payload.as_ref().map(|payload| payload.get());
    let catch_up = match schedule.catch_up_max {
        Some(max) => format!("{} (at most {max})", schedule.catch_up),
        None => schedule.catch_up.clone(),
    };
    let zone = schedule.zone.as_deref().unwrap_or("UTC");
    let rows = [
        (
            "schedule",
            Some(Cell::new(format!("{}/{}", schedule.job, schedule.name))),
        ),
        ("info", text(&schedule.info)),
        ("status", Some(status(style, schedule))),
        ("fires", Some(Cell::new(clean(&schedule.timing)))),
        ("zone", Some(Cell::new(clean(zone)))),
        ("start", when(schedule.start)),
        ("end", when(schedule.end)),
        ("anchor", when(schedule.anchor)),
        (
            "jitter",
            (schedule.jitter_ms > 0).then(|| span(schedule.jitter_ms)),
        ),
        ("catch-up", Some(Cell::new(clean(&catch_up)))),
        ("grace", Some(span(schedule.grace_ms))),
        ("overlap", Some(Cell::new(clean(&schedule.overlap)))),
        ("most firings", schedule.firings_max.map(Cell::new)),
        ("task name", task.name.as_deref().and_then(text)),
        ("tags", text(&task.tags.join(", "))),
        (
            "payload",
            payload.or(task.payload_base64.as_deref()).and_then(text),
        ),
        ("last firing", when(schedule.last_at)),
        ("waiting", when(schedule.queued_at)),
        (
            "unfinished",
            (!schedule.active.is_empty()).then(|| Cell::new(schedule.active.len())),
        ),
        (
            "firings",
            Some(Cell::new(format!(
                "{} created, {} missed, {} skipped, {} failed",
                counts.created, counts.missed, counts.skipped, counts.failed
            ))),
        ),
        ("created", when(Some(schedule.created_at))),
        ("created by", schedule.created_by.as_deref().and_then(text)),
        ("changed", when(Some(schedule.changed_at))),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let mut shown = output::text(&style.pairs(&rows));
    if !schedule.next.is_empty() {
        let mut table = style.table(&["NEXT (UTC)", "LOCAL", "WHEN"]);
        for firing in &schedule.next {
            table.add_row([
                firing.at.to_string(),
                clean(&firing.local).into_owned(),
                style.when(firing.at),
            ]);
        }
        shown.push_str("\n\n");
        shown.push_str(&output::text(&table));
    }
    if !schedule.recent.is_empty() {
        shown.push_str("\n\n");
        shown.push_str(&history::render(style, schedule));
    }
    shown
}

/// The status of a schedule in its colour.
pub(super) fn status(style: &TableStyle, schedule: &ScheduleView) -> Cell {
    let Some(pause) = &schedule.paused else {
        return Cell::new(clean(&schedule.status));
    };
    let by = pause.by.as_deref().map(|by| format!(" by {by}"));
    let reason = pause.reason.as_deref().map(|reason| format!(": {reason}"));
    let text = format!(
        "paused {}{}{}",
        style.when(pause.at),
        by.unwrap_or_default(),
        reason.unwrap_or_default()
    );
    style.coloured(&text, Color::Yellow)
}
