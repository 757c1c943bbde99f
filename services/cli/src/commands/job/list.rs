//! `dueline job list`.

use comfy_table::{Cell, Color};
use dueline_api::v1::{JobList, JobView};

use super::get::{quota, retries};
use crate::{
    context::Context,
    exit::{CliError, Exit},
    fit::Fit,
    output::{self, TableStyle},
    sanitize::{clean, short},
};

/// Lists all jobs.
#[derive(Debug, clap::Args)]
pub struct List {}

impl List {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let answer = context.client()?.get(&["jobs"], &[]).await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read::<JobList>()?.jobs))
        })?;
        Ok(Exit::Ok)
    }
}

const FIT: Fit = Fit {
    texts: &["INFO"],
    drops: &["QUOTA", "RETRIES", "CHANGED", "HANDLER", "INFO"],
    cuts: true,
};

fn render(style: &TableStyle, jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs found; create one with `dueline job apply`".into();
    }
    let mut table = style.table(&[
        "JOB", "HANDLER", "STATUS", "RETRIES", "QUOTA", "CHANGED", "INFO",
    ]);
    for job in jobs {
        let status = match job.status.as_str() {
            "paused" => style.coloured("paused", Color::Yellow),
            other => Cell::new(clean(other)),
        };
        table.add_row([
            Cell::new(&job.name),
            Cell::new(clean(&job.handler.kind)),
            status,
            Cell::new(retries(job.retries_max)),
            Cell::new(quota(job)),
            Cell::new(style.when(job.changed_at)),
            Cell::new(short(&job.info, 60)),
        ]);
    }
    output::list(&table, FIT)
}
