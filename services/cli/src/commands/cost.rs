//! `dueline cost`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use comfy_table::Cell;
use dueline_scale::Prices;
use serde::Serialize;

use crate::{
    cli::Context,
    client::{Answer, Client},
    commands::payload::unreadable,
    exit::{CliError, Exit},
    output,
};

/// Says what the processes that `--server` names (several, separated by commas) have spent on DynamoDB and SQS since they
/// started, by job, from the answers of these services themselves. On SQLite nothing is billed and nothing is shown.
#[derive(Debug, Args)]
pub struct Cost {
    /// Your own price list, a TOML file with million_wru, million_rru, million_sqs_requests [default: us-east-1 list prices]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

/// What one job has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Used {
    wru: f64,
    rru: f64,
    sqs_requests: f64,
    usd: f64,
}

#[derive(Serialize)]
struct Told {
    /// By job; what no job in particular caused stands under the empty name.
    jobs: BTreeMap<String, Used>,
    total: Used,
}

impl Cost {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let prices = prices(self.prices.as_deref())?;
        let mut jobs = BTreeMap::new();
        for server in context.global.server.split(',').map(str::trim) {
            let timeout = context.global.request_timeout;
            let client = Client::new(server, timeout, context.global.caller.clone())?;
            let (is_ok, text) = client.probe("metrics").await?;
            if !is_ok {
                return Err(CliError::invalid(format!("{server} has no metrics")));
            }
            add(&mut jobs, &text);
        }
        let mut total = Used::default();
        for used in jobs.values_mut() {
            used.usd = usd(used, &prices);
            total.wru += used.wru;
            total.rru += used.rru;
            total.sqs_requests += used.sqs_requests;
        }
        total.usd = usd(&total, &prices);
        let told = Told { jobs, total };
        context
            .output
            .show(&Answer::of(&told), context.now(), |style| {
                let mut table = style.table(&["JOB", "WRU", "RRU", "SQS REQUESTS", "USD"]);
                let rows = told.jobs.iter().map(|(job, used)| (job.as_str(), used));
                for (job, used) in rows.chain([("total", &told.total)]) {
                    let job = if job.is_empty() { "(no job)" } else { job };
                    table.add_row([
                        Cell::new(job),
                        Cell::new(used.wru),
                        Cell::new(used.rru),
                        Cell::new(used.sqs_requests),
                        Cell::new(format!("{:.6}", used.usd)),
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
    let text = std::fs::read_to_string(file)
        .map_err(|error| unreadable(&file.display().to_string(), &error))?;
    toml::from_str(&text).map_err(|error| CliError::invalid(format!("{}: {error}", file.display())))
}

fn usd(used: &Used, prices: &Prices) -> f64 {
    prices.usd(used.wru, used.rru, used.sqs_requests)
}

/// Adds what a process says in the Prometheus text format.
fn add(jobs: &mut BTreeMap<String, Used>, metrics: &str) {
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
        let add = |to: fn(&mut Used) -> &mut f64, jobs: &mut BTreeMap<String, Used>, value| {
            *to(jobs.entry(job.clone()).or_default()) += value;
        };
        match name {
            "dueline_store_write_milliunits_total" => add(|used| &mut used.wru, jobs, value / 1e3),
            "dueline_store_read_milliunits_total" => add(|used| &mut used.rru, jobs, value / 1e3),
            "dueline_queue_requests_total" => add(|used| &mut used.sqs_requests, jobs, value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_04_what_processes_say_is_added_up_by_job_and_priced() {
        let text = "# HELP dueline_store_write_milliunits_total\n\
            dueline_store_write_milliunits_total{job=\"mail\",operation=\"create\"} 2000\n\
            dueline_store_write_milliunits_total{job=\"mail\",operation=\"finish\"} 2000\n\
            dueline_store_read_milliunits_total{job=\"mail\",operation=\"claim\"} 500\n\
            dueline_queue_requests_total{job=\"\",operation=\"queue\"} 3\n\
            dueline_scan_lag_seconds 0.5\n\
            dueline_backlog_tasks{job=\"mail\"} 9\n";
        let mut jobs = BTreeMap::new();
        add(&mut jobs, text);
        add(&mut jobs, text);
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
        let own = prices(Some(&file)).expect("prices");
        assert!((own.million_wru - 2.0).abs() < 1e-9);
        let kept = own.million_rru - Prices::default().million_rru;
        assert!(kept.abs() < 1e-9, "what is not named stays");
        std::fs::write(&file, "million_wrong = 2.0\n").expect("a file");
        assert!(prices(Some(&file)).is_err());
    }
}
