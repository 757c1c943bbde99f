//! One past run as JSON text. Names are short because every byte of a task is paid for with each of its writes.

use std::sync::Arc;

use dueline_domain::{RunEnd, RunRecord, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use crate::attr::Bad;

#[derive(Serialize, Deserialize)]
struct RunRow {
    #[serde(rename = "n")]
    attempt: u32,
    #[serde(rename = "w")]
    worker: String,
    #[serde(rename = "s")]
    started_at: i64,
    #[serde(rename = "f")]
    finished_at: i64,
    #[serde(rename = "e")]
    end: String,
    #[serde(rename = "i")]
    info: Arc<str>,
}

pub(crate) fn run_to_json(run: &RunRecord) -> String {
    let row = RunRow {
        attempt: run.attempt,
        worker: run.worker.as_str().to_owned(),
        started_at: run.started_at.millis(),
        finished_at: run.finished_at.millis(),
        end: run.end.name().to_owned(),
        info: run.info.clone(),
    };
    serde_json::to_string(&row).unwrap_or_default()
}

pub(crate) fn run_from_json(json: &str) -> Result<RunRecord, Bad> {
    let row: RunRow = serde_json::from_str(json).map_err(Bad::new)?;
    let end = RunEnd::ALL.into_iter().find(|end| end.name() == row.end);
    Ok(RunRecord {
        attempt: row.attempt,
        worker: WorkerId::parse(&row.worker).map_err(Bad::new)?,
        started_at: Timestamp::clamped(row.started_at),
        finished_at: Timestamp::clamped(row.finished_at),
        end: end.ok_or_else(|| Bad::new("unknown end of a run"))?,
        info: row.info,
    })
}
