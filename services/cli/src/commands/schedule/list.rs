//! `dueline schedule list`.

use comfy_table::{Cell, Color};
use dueline_api::v1::{ScheduleList, ScheduleView};
use dueline_domain::{JobName, ScheduleName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
};

/// Most schedules that the server returns in one page.
const PAGE_LEN_MAX: usize = 1_000;

/// Lists the schedules of a job, by name.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Name of the job
    job: JobName,

    /// Most schedules to list
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Only schedules after this name
    #[arg(long, value_name = "NAME")]
    after: Option<ScheduleName>,
}

/// A page in the server's own JSON, so that `--json` prints every digit.
#[derive(Debug, Serialize, Deserialize)]
struct RawPage {
    schedules: Vec<Box<RawValue>>,
    #[serde(default)]
    next: Option<String>,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        if self.limit == 0 {
            return Err(CliError::invalid("--limit must be at least 1"));
        }
        let client = context.client()?;
        let path = ["jobs", self.job.as_str(), "schedules"];
        let mut after = self.after.map(|after| after.to_string());
        let mut schedules = Vec::new();
        loop {
            let limit = (self.limit - schedules.len()).min(PAGE_LEN_MAX);
            let mut query = vec![("limit", limit.to_string())];
            query.extend(after.map(|after| ("after", after)));
            let page: RawPage = client.get(&path, &query).await?.read()?;
            schedules.extend(page.schedules);
            after = page.next;
            if after.is_none() || schedules.len() >= self.limit {
                break;
            }
        }
        let next = after;
        let answer = JsonAnswer::of(&RawPage { schedules, next });
        context.output.show(&answer, context.now(), |style| {
            let list: ScheduleList = answer.read()?;
            Ok(render(style, &list.schedules, list.next.as_deref()))
        })?;
        Ok(Exit::Ok)
    }
}

const FIT: Fit = Fit {
    texts: &["FIRES", "INFO"],
    drops: &["ZONE", "MISSED", "INFO", "LAST"],
    cuts: true,
};

fn render(style: &TableStyle, schedules: &[ScheduleView], next: Option<&str>) -> String {
    if schedules.is_empty() {
        return "no schedules found; create one with `dueline schedule apply`".into();
    }
    let mut table = style.table(&[
        "SCHEDULE", "STATUS", "FIRES", "ZONE", "NEXT", "LAST", "MISSED", "INFO",
    ]);
    for schedule in schedules {
        let status = match schedule.status.as_str() {
            "paused" => style.coloured("paused", Color::Yellow),
            other => Cell::new(clean(other)),
        };
        let when = |at: Option<_>| at.map_or_else(|| "-".to_owned(), |at| style.when(at));
        let next_at = schedule.next_at.filter(|_| schedule.paused.is_none());
        table.add_row([
            Cell::new(&schedule.name),
            status,
            Cell::new(short(&schedule.timing, 40)),
            Cell::new(clean(schedule.zone.as_deref().unwrap_or("UTC"))),
            Cell::new(when(next_at)),
            Cell::new(when(schedule.last_at)),
            Cell::new(schedule.counts.missed),
            Cell::new(short(&schedule.info, 60)),
        ]);
    }
    let mut text = output::list(&table, FIT);
    if let Some(after) = next {
        text.push_str(&format!(
            "\n\nmore schedules exist: use --limit N, or --after {}",
            clean(after)
        ));
    }
    text
}
