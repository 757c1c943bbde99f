//! What a status controller and a controller are told in the same words: reports, signs of life and goodbyes.

use std::time::Duration;

use dueline_domain::limits;
use tonic::{Response, Status};

use super::{
    Remote,
    batch::{answers, missing, send_in_chunks, value},
    errors::Effect::Writes,
};
use crate::{
    Alive, ApiError, Report, Reported,
    grpc::proto::{self, report_result},
};

/// Sends reports, in as many messages as it takes.
pub(super) async fn report<F>(
    remote: &Remote,
    reports: Vec<Report>,
    send: impl Fn(proto::ReportRequest) -> F,
) -> Vec<Result<Reported, ApiError>>
where
    F: Future<Output = Result<Response<proto::ReportResponse>, Status>>,
{
    let reports = reports.into_iter().map(Into::into).collect();
    let send_some = |reports: Vec<proto::Report>| {
        let asked = reports.len();
        let call = send(proto::ReportRequest { reports });
        async move {
            let answered = remote.call(Writes, Duration::ZERO, call).await;
            answers(asked, answered.map(|answer| answer.results), reported)
        }
    };
    send_in_chunks(reports, limits().batch_len_max, send_some).await
}

fn reported(result: proto::ReportResult) -> Result<Reported, ApiError> {
    match result.result.ok_or_else(missing)? {
        report_result::Result::Reported(reported) => value(Some(reported)),
        report_result::Result::Error(error) => Err(error.into()),
    }
}

/// Awaits the answer to a sign of life.
pub(super) async fn alive(
    remote: &Remote,
    call: impl Future<Output = Result<Response<proto::AliveResponse>, Status>>,
) -> Result<Alive, ApiError> {
    let answer = remote.call(Writes, Duration::ZERO, call).await?;
    Ok(Alive {
        interval: Duration::from_millis(answer.interval_ms),
        claims_start: answer.claims_start,
    })
}

/// Awaits the answer to a goodbye.
pub(super) async fn leave(
    remote: &Remote,
    call: impl Future<Output = Result<Response<proto::LeaveResponse>, Status>>,
) -> Result<(), ApiError> {
    let proto::LeaveResponse {} = remote.call(Writes, Duration::ZERO, call).await?;
    Ok(())
}
