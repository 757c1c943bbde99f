//! Refused requests and their errors.

use std::sync::Arc;

use dueline_api::{
    Call, Callable as _, ErrorKind, ErrorReason,
    grpc::{Services, error_in_status, proto},
    operation::Submit,
};
use dueline_domain::limits;

use crate::{
    controller::FakeController,
    fakes::Scripted,
    server::{TestServer, raw_frontend},
    status::reports,
    values::{id, plain_job, plain_submit, worker},
};

/// The field that a refused call was refused for.
fn refused<T: std::fmt::Debug>(answer: Result<T, tonic::Status>) -> String {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let error = error_in_status(&status).expect("an error of ours");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.field().expect("a field").to_owned()
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_with_the_field() {
    let (_server, mut client) = raw_frontend(Arc::new(Scripted::default())).await;
    let request = proto::ListTasksRequest {
        job: "a".into(),
        states: vec![1, 99],
        ..Default::default()
    };
    assert_eq!(refused(client.list_tasks(request).await), "state");
    let request = proto::CancelRequest {
        job: "a".into(),
        id: id(1).to_string(),
        running: 3,
        reason: None,
        family: false,
    };
    assert_eq!(refused(client.cancel(request).await), "running");
    let request = proto::GetTaskRequest {
        job: "a".into(),
        id: "1".into(),
        wait_ms: None,
    };
    assert_eq!(refused(client.get_task(request).await), "id");
    let request = proto::GetJobRequest {
        name: "a b".into(),
        frequency: None,
    };
    assert_eq!(refused(client.get_job(request).await), "name");
    let request = proto::PutJobRequest { job: None };
    assert_eq!(refused(client.put_job(request).await), "job");
    let mut job = proto::Job::from(&plain_job());
    let retry = job.policy.as_mut().unwrap().retry.as_mut().unwrap();
    retry.slow.as_mut().unwrap().multiplier = f64::NAN;
    let request = proto::PutJobRequest { job: Some(job) };
    let field = "backoff.slow";
    assert_eq!(refused(client.put_job(request).await), field);
}

#[tokio::test]
async fn bytes_that_are_no_message_are_a_fault_of_the_caller() {
    let (server, _client) = raw_frontend(Arc::new(Scripted::default())).await;
    let mut client = tonic::client::Grpc::new(server.channel());
    client.ready().await.unwrap();
    let path = "/dueline.v1.Frontend/PutJob".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<proto::Checkpoint, proto::PutJobResponse>::default();
    // The first field of the call is a job; these bytes are none.
    let payload = vec![0xff; 20].into();
    let request = tonic::Request::new(proto::Checkpoint { payload });
    let status = client.unary(request, path, codec).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    let error = error_in_status(&status).expect("an error of ours");
    assert_eq!(error.reason().name(), "malformed_message");
}

#[tokio::test]
async fn batches_that_are_too_long_are_refused_as_a_whole() {
    let fake = Scripted::default();
    let services = Services {
        frontend: Some(Arc::new(fake.clone())),
        status: Some(Arc::new(fake.clone())),
        work: None,
        queue: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let len = limits().batch_len_max + 1;
    let mut client = proto::frontend_client::FrontendClient::new(server.channel());
    let tasks = vec![proto::NewTask::default(); len];
    let answer = client.submit(proto::SubmitRequest { tasks }).await;
    let error = error_in_status(&answer.unwrap_err()).expect("an error of ours");
    assert_eq!(
        (error.kind(), error.reason()),
        (ErrorKind::TooLarge, &ErrorReason::BatchTooLarge)
    );
    let mut client = proto::status_controller_client::StatusControllerClient::new(server.channel());
    let messages = vec![proto::TaskRef::default(); len];
    let worker = worker().to_string();
    let start = false;
    let request = proto::ClaimRequest {
        worker,
        messages,
        start,
    };
    let answer = client.claim(request).await;
    assert_eq!(refused(answer), "messages");
    let reports = vec![proto::Report::default(); len];
    let answer = client.report(proto::ReportRequest { reports }).await;
    assert_eq!(refused(answer), "reports");
    let mut client = proto::queue_client::QueueClient::new(server.channel());
    let receipts = vec![proto::Receipt::default(); len];
    let answer = client.ack(proto::AckRequest { receipts }).await;
    assert_eq!(refused(answer), "receipts");

    // The client says the same without asking.
    let submit = Submit {
        tasks: vec![plain_submit(); len],
    };
    let client = server.remote().frontend();
    let answer = client.call(&Call::default(), submit).await;
    assert_eq!(answer.unwrap_err().reason().name(), "batch_too_large");
    assert_eq!(fake.0.calls(), [""; 0]);
}

#[tokio::test]
async fn reports_with_unknown_values_are_refused_alone() {
    let controller = FakeController::default();
    let services = Services {
        work: Some(Arc::new(controller.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let mut client = proto::controller_client::ControllerClient::new(server.channel());
    let good = proto::Report::from(reports().remove(0));
    let unknown_class = proto::report::Action::Finish(proto::Finish {
        started_at_ms: None,
        outcome: Some(proto::finish::Outcome::Retriable(proto::Retriable {
            class: 99,
            ..Default::default()
        })),
    });
    let report = |action| proto::Report {
        action,
        ..good.clone()
    };
    let unnamed = proto::Report {
        write: 0,
        ..good.clone()
    };
    let reports = vec![
        report(Some(unknown_class)),
        good.clone(),
        report(None),
        unnamed,
    ];
    let answer = client.report(proto::ReportRequest { reports }).await;
    let results = answer.unwrap().into_inner().results.into_iter();
    let field = |result: proto::ReportResult| match result.result.unwrap() {
        proto::report_result::Result::Error(error) => error.field,
        proto::report_result::Result::Ack(_) => None,
    };
    let fields: Vec<_> = results.map(field).collect();
    let fields: Vec<_> = fields.iter().map(Option::as_deref).collect();
    let expected = [Some("class"), None, Some("action"), Some("write")];
    assert_eq!(fields, expected);
    assert_eq!(controller.reported(1).await.len(), 1);
}
