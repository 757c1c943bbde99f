//! The calls that status controllers and controllers share: reports, registrations and deregistrations.

use std::time::Duration;

use dueline_domain::limits;
use tonic::{Response, Status};

use super::{
    Remote,
    batch::{answers, missing, send_in_chunks, value},
    errors::Effect::Writes,
};
use crate::{
    ApiError, Registered, Report, ReportAck,
    grpc::proto::{self, report_result},
};

/// Sends reports, in as many messages as it takes.
pub(super) async fn report<F>(
    remote: &Remote,
    reports: Vec<Report>,
    send: impl Fn(proto::ReportRequest) -> F,
) -> Vec<Result<ReportAck, ApiError>>
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

fn reported(result: proto::ReportResult) -> Result<ReportAck, ApiError> {
    match result.result.ok_or_else(missing)? {
        report_result::Result::Ack(reported) => value(Some(reported)),
        report_result::Result::Error(error) => Err(error.into()),
    }
}

/// Awaits the answer to a sign of life.
pub(super) async fn register_worker(
    remote: &Remote,
    call: impl Future<Output = Result<Response<proto::RegisterWorkerResponse>, Status>>,
) -> Result<Registered, ApiError> {
    let answer = remote.call(Writes, Duration::ZERO, call).await?;
    Ok(Registered {
        interval: Duration::from_millis(answer.interval_ms),
        claims_start: answer.claims_start,
    })
}

/// Awaits the answer to a goodbye.
pub(super) async fn deregister_worker(
    remote: &Remote,
    call: impl Future<Output = Result<Response<proto::DeregisterWorkerResponse>, Status>>,
) -> Result<(), ApiError> {
    let proto::DeregisterWorkerResponse {} = remote.call(Writes, Duration::ZERO, call).await?;
    Ok(())
}
