//! `dueline job get`.

use std::time::Duration;

use comfy_table::Cell;
use dueline_api::v1::{BackoffSpec, JobView, RetriesMax, ShownJobView};
use dueline_domain::JobName;

use crate::{
    context::Context,
    exit::{CliError, Exit},
    output::{self, TableStyle},
    sanitize::clean,
    units,
};

/// Shows a job.
#[derive(Debug, clap::Args)]
pub struct Get {
    /// Name of the job
    job: JobName,
}

impl Get {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let answer = context
            .client()?
            .get(&["jobs", self.job.as_str()], &[])
            .await?;
        context.output.show(&answer, context.now(), |style| {
            Ok(render(style, &answer.read()?))
        })?;
        Ok(Exit::Ok)
    }
}

fn render(style: &TableStyle, shown: &ShownJobView) -> String {
    let ShownJobView { job, frequency } = shown;
    let ms = |ms: u64| Cell::new(units::span(Duration::from_millis(ms)));
    let or_none = |millis: Option<u64>, none: &str| millis.map_or_else(|| Cell::new(none), ms);
    let config = job
        .handler
        .config
        .as_ref()
        .map_or("{}", |config| config.get());
    let created = match clean(&job.created_by) {
        by if by.is_empty() => style.when(job.created_at),
        by => format!("{} by {by}", style.when(job.created_at)),
    };
    let standard = job.backoff.standard.unwrap_or_default();
    output::text(&style.pairs(&[
        ("job", Cell::new(&job.name)),
        ("info", Cell::new(clean(&job.info))),
        ("status", Cell::new(clean(&job.status))),
        ("handler", Cell::new(clean(&job.handler.kind))),
        ("settings", Cell::new(clean(config))),
        ("retries", Cell::new(retries(job.retries_max))),
        ("backoff", Cell::new(backoff(&standard))),
        ("quota", Cell::new(quota(job))),
        (
            "frequency",
            Cell::new(clean(frequency.as_deref().unwrap_or("none"))),
        ),
        ("enqueue timeout", ms(job.enqueue_timeout_ms)),
        ("claim timeout", ms(job.claim_timeout_ms)),
        ("heartbeat timeout", ms(job.heartbeat_timeout_ms)),
        ("longest run", or_none(job.run_timeout_ms, "no limit")),
        ("retention", or_none(job.retention_ms, "unlimited")),
        (
            "sink",
            Cell::new(clean(job.sink.as_deref().unwrap_or("none"))),
        ),
        ("created", Cell::new(created)),
        ("changed", Cell::new(style.when(job.changed_at))),
    ]))
}

/// The greatest number of retries as text.
pub(super) fn retries(retries: RetriesMax) -> String {
    match retries {
        RetriesMax::Limited(max) => max.to_string(),
        RetriesMax::Unlimited => "unlimited".into(),
    }
}

/// A quota as text.
pub(super) fn quota(job: &JobView) -> String {
    let rate = job.quota.rate_per_s.map(|rate| match job.quota.burst {
        None => format!("{rate}/s"),
        Some(burst) => format!("{rate}/s, burst {burst}"),
    });
    let running = job.quota.running_max.map(|max| format!("{max} at once"));
    let fair_share = job.fair_share.map(|share| match share.running_max {
        Some(max) => format!("fair share, {max} at once for each key"),
        None => "fair share".to_owned(),
    });
    let parts: Vec<_> = rate.into_iter().chain(running).chain(fair_share).collect();
    match parts.is_empty() {
        true => "none".into(),
        false => parts.join(", "),
    }
}

fn backoff(spec: &BackoffSpec) -> String {
    let ms = |ms: Option<u64>| units::span(Duration::from_millis(ms.unwrap_or_default()));
    let multiplier = spec.multiplier.unwrap_or(1.0);
    format!(
        "{}, then × {multiplier} up to {}",
        ms(spec.initial_ms),
        ms(spec.max_ms)
    )
}
