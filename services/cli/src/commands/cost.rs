//! `dueline cost`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use comfy_table::Cell;
use dueline_scale::Prices;
use serde::Serialize;

use crate::{
    client::{JsonAnswer, RestClient},
    commands::payload::read_text_file,
    context::Context,
    exit::{CliError, Exit},
    output,
};

/// Shows by job what processes have spent on DynamoDB and SQS since they started. `--server` names the processes,
/// separated by commas. The units come from the responses of DynamoDB and SQS. SQLite is not billed and not shown.
#[derive(Debug, Args)]
pub struct Cost {
    /// Price list, a TOML file with million_wru, million_rru and million_sqs_requests [default: us-east-1 list prices]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

/// The billed units of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct JobUsage {
    wru: f64,
    rru: f64,
    sqs_requests: f64,
    usd: f64,
}

/// The usage of all jobs, as `--json` prints it.
#[derive(Serialize)]
struct CostReport {
    /// By job. Calls that belong to no single job count under the empty name.
    jobs: BTreeMap<String, JobUsage>,
    total: JobUsage,
}

impl Cost {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let prices = prices(self.prices.as_deref())?;
        let mut jobs = BTreeMap::new();
        for server in context.global.server.split(',').map(str::trim) {
            let timeout = context.global.request_timeout;
            let client = RestClient::new(server, timeout, context.global.caller.clone())?;
            let (is_ok, text) = client.probe("metrics").await?;
            if !is_ok {
                return Err(CliError::invalid(format!("{server} serves no metrics")));
            }
            add_usage(&mut jobs, &text);
        }
        let mut total = JobUsage::default();
        for usage in jobs.values_mut() {
            usage.usd = usd(usage, &prices);
            total.wru += usage.wru;
            total.rru += usage.rru;
            total.sqs_requests += usage.sqs_requests;
        }
        total.usd = usd(&total, &prices);
        let report = CostReport { jobs, total };
        context
            .output
            .show(&JsonAnswer::of(&report), context.now(), |style| {
                let mut table = style.table(&["JOB", "WRU", "RRU", "SQS REQUESTS", "USD"]);
                let rows = report.jobs.iter().map(|(job, usage)| (job.as_str(), usage));
                for (job, usage) in rows.chain([("total", &report.total)]) {
                    let job = if job.is_empty() { "(no job)" } else { job };
                    table.add_row([
                        Cell::new(job),
                        Cell::new(usage.wru),
                        Cell::new(usage.rru),
                        Cell::new(usage.sqs_requests),
                        Cell::new(format!("{:.6}", usage.usd)),
                    ]);
                }
                Ok(output::text(&table))
            })?;
        Ok(Exit::Ok)
    }
}

fn prices(file: Option<&std::path::Path>) -> Result<Prices, CliError> {
    let Some(file) = file else {
        return Ok(Prices::default());
    };
    let text = read_text_file(file)?;
    toml::from_str(&text).map_err(|error| CliError::invalid(format!("{}: {error}", file.display())))
}

fn usd(usage: &JobUsage, prices: &Prices) -> f64 {
    prices.usd(usage.wru, usage.rru, usage.sqs_requests)
}

/// Adds the usage in the metrics of a process, in the Prometheus text format.
fn add_usage(jobs: &mut BTreeMap<String, JobUsage>, metrics: &str) {
    for line in metrics.lines() {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once('}') else {
            continue;
        };
        let Ok(value) = value.trim().parse::<f64>() else {
            continue;
        };
        let job = labels
            .split(',')
            .find_map(|label| label.strip_prefix("job=\"")?.strip_suffix('"'));
        let job = job.unwrap_or_default().to_owned();
        let usage = || jobs.entry(job).or_default();
        match name {
            "dueline_store_write_milliunits_total" => usage().wru += value / 1e3,
            "dueline_store_read_milliunits_total" => usage().rru += value / 1e3,
            "dueline_queue_requests_total" => usage().sqs_requests += value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_04_the_usage_of_all_processes_is_summed_by_job_and_priced() {
        let text = "# HELP dueline_store_write_milliunits_total\n\
            dueline_store_write_milliunits_total{job=\"mail\",operation=\"create\"} 2000\n\
            dueline_store_write_milliunits_total{job=\"mail\",operation=\"finish\"} 2000\n\
            dueline_store_read_milliunits_total{job=\"mail\",operation=\"claim\"} 500\n\
            dueline_queue_requests_total{job=\"\",operation=\"queue\"} 3\n\
            dueline_scan_lag_seconds 0.5\n\
            dueline_backlog_tasks{job=\"mail\"} 9\n";
        let mut jobs = BTreeMap::new();
        add_usage(&mut jobs, text);
        add_usage(&mut jobs, text);
        let mail = jobs["mail"];
        assert!((mail.wru - 8.0).abs() < 1e-9 && (mail.rru - 1.0).abs() < 1e-9);
        assert!((jobs[""].sqs_requests - 6.0).abs() < 1e-9);
        let usd = usd(&mail, &Prices::default());
        assert!((usd - (8.0 * 0.625 + 0.125) / 1e6).abs() < 1e-12);
    }

    #[test]
    fn g_04_the_price_list_is_a_setting() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("prices.toml");
        std::fs::write(&file, "million_wru = 2.0\n").expect("a file");
        let custom = prices(Some(&file)).expect("prices");
        assert!((custom.million_wru - 2.0).abs() < 1e-9);
        let difference = custom.million_rru - Prices::default().million_rru;
        assert!(difference.abs() < 1e-9, "a missing price is the default");
        std::fs::write(&file, "million_wrong = 2.0\n").expect("a file");
        assert!(prices(Some(&file)).is_err());
    }
}
