//! Answers that do not come, and the errors of their callers.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use dueline_api::{
    ApiError, Assignment, Call, Callable as _, Controller as _, ErrorKind, ErrorReason, Registered,
    Registration, Report, ReportAck, ServedJob, StatusController,
    grpc::{Remote, RemoteOptions, Services, routes},
    operation::{GetJob, PutJob, Submit},
};
use dueline_domain::{TaskRef, WorkerId};
use dueline_runtime::{SystemClock, SystemRng};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    controller::FakeController,
    fakes::Scripted,
    server::{TestServer, soon},
    values::{MS, name, plain_job, plain_submit, task_ref, worker},
    work::ask,
};

#[tokio::test]
async fn a_server_that_was_never_there_is_unavailable_for_reads_and_writes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Remote::new(&uri).unwrap().frontend();
    let read = soon(client.call(&Call::default(), GetJob::definition(name("a"))))
        .await
        .unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Unavailable);
    let written = soon(client.call(
        &Call::default(),
        Submit {
            tasks: vec![plain_submit(); 2],
        },
    ))
    .await
    .unwrap();
    assert_eq!(written.len(), 2);
    for answer in written {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn a_server_that_goes_away_is_unavailable_and_found_again_when_it_is_back() {
    let controller = FakeController::default();
    let frontend = Scripted::default();
    let services = || Services {
        frontend: Some(Arc::new(frontend.clone())),
        work: Some(Arc::new(controller.clone())),
        ..Services::default()
    };
    let mut server = TestServer::start(services()).await;
    let (remote, address) = (server.remote(), server.address());
    let poll = remote.work();
    let kill = async {
        controller.asked(1).await;
        server.kill();
    };
    let polled = poll.poll(ask(Duration::from_secs(3_000)));
    let (polled, ()) = soon(async { tokio::join!(polled, kill) }).await;
    assert_eq!(polled.unwrap_err().kind(), ErrorKind::Unavailable);

    let client = remote.frontend();
    let read = soon(client.call(&Call::default(), GetJob::definition(name("a"))))
        .await
        .unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Unavailable);
    assert!(read.is_retryable());
    let written = soon(client.call(&Call::default(), PutJob::from(plain_job())))
        .await
        .unwrap_err();
    assert_eq!(written.kind(), ErrorKind::Unavailable, "{written}");

    let _server = TestServer::start_at(services(), address).await;
    frontend.0.answers(Ok::<_, ApiError>(Arc::new(plain_job())));
    assert!(
        soon(client.call(&Call::default(), PutJob::from(plain_job())))
            .await
            .is_ok()
    );
}

/// A server that takes connections and calls and says nothing more.
fn mute() -> (TcpListener, Remote) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let options = RemoteOptions {
        answer_timeout: MS * 50,
        ..RemoteOptions::default()
    };
    (listener, Remote::with(&uri, options).unwrap())
}

#[tokio::test]
async fn an_answer_that_does_not_come_leaves_the_outcome_unknown() {
    let (_listener, remote) = mute();
    let error = soon(
        remote
            .frontend()
            .call(&Call::default(), PutJob::from(plain_job())),
    )
    .await
    .unwrap_err();
    assert_eq!(
        (error.kind(), error.reason()),
        (ErrorKind::Deadline, &ErrorReason::NoAnswer)
    );
    assert!(error.is_retryable());
    // The time that a call asks the server to wait comes on top.
    let asked_at = Instant::now();
    let polled = soon(remote.work().poll(ask(MS * 100))).await;
    assert_eq!(polled.unwrap_err().kind(), ErrorKind::Deadline);
    assert!(asked_at.elapsed() >= MS * 150);
}

#[tokio::test]
async fn a_connection_that_breaks_under_a_write_leaves_the_outcome_unknown() {
    let (asked, was_asked) = oneshot::channel();
    let services = Services {
        status: Some(Arc::new(Stuck(Mutex::new(Some(asked))))),
        ..Services::default()
    };
    let mut server = TestServer::start(services).await;
    let client = server.remote().status();
    let kill = async {
        was_asked.await.unwrap();
        server.kill();
    };
    let this = worker();
    let claim = client.claim(&this, vec![task_ref(1), task_ref(2)], false);
    let (answers, ()) = soon(async { tokio::join!(claim, kill) }).await;
    assert_eq!(answers.len(), 2);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(
            (error.kind(), error.reason()),
            (ErrorKind::Deadline, &ErrorReason::AnswerLost)
        );
        assert!(error.is_retryable() && !error.is_lost());
    }
}

#[tokio::test]
async fn of_several_status_controllers_one_that_is_there_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let fake = Scripted::default();
    let services = Services {
        status: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let any = Remote::status_of([nowhere.as_str(), &server.uri()]).unwrap();
    let jobs: Result<Vec<ServedJob>, ApiError> = Ok(Vec::new());
    fake.0.answers(jobs.clone());
    assert_eq!(soon(any.jobs()).await, jobs);
    let claimed: Vec<Result<Assignment, ApiError>> = Vec::new();
    fake.0.answers(claimed.clone());
    assert_eq!(soon(any.claim(&worker(), Vec::new(), true)).await, claimed);

    let none: [&str; 0] = [];
    for wrong in [Remote::status_of(none), Remote::status_of(["nonsense"])] {
        assert_eq!(wrong.unwrap_err().field(), Some("uri"));
    }
}

/// A status controller that is asked and never answers.
struct Stuck(Mutex<Option<oneshot::Sender<()>>>);

#[async_trait]
impl StatusController for Stuck {
    async fn claim(
        &self,
        _: &WorkerId,
        _: Vec<TaskRef>,
        _: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        if let Some(asked) = self.0.lock().unwrap().take() {
            asked.send(()).unwrap();
        }
        std::future::pending().await
    }
    async fn report(&self, _: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        std::future::pending().await
    }
    async fn register_worker(&self, _: Registration) -> Result<Registered, ApiError> {
        std::future::pending().await
    }
    async fn deregister_worker(&self, _: &WorkerId) -> Result<(), ApiError> {
        std::future::pending().await
    }
    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn one_port_serves_another_router_and_says_what_it_does_not_offer() {
    let frontend = Scripted::default();
    frontend.0.answers(Ok::<_, ApiError>(Arc::new(plain_job())));
    let services = Services {
        frontend: Some(Arc::new(frontend)),
        ..Services::default()
    };
    let rest = axum::Router::new()
        .route("/healthz", axum::routing::get(async || "ok"))
        .fallback(async || (http::StatusCode::NOT_FOUND, "no such page"));
    let router =
        rest.merge(routes(services, Arc::new(SystemClock), Arc::new(SystemRng)).into_axum_router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let use_it = async {
        let remote = Remote::new(&uri).unwrap();
        let stored = remote
            .frontend()
            .call(&Call::default(), PutJob::from(plain_job()))
            .await;
        assert_eq!(stored.unwrap().name, name("a"));
        let error = remote.status().jobs().await.unwrap_err();
        assert_eq!(error.reason().name(), "not_offered");
        assert!(!error.is_retryable());
    };
    soon(async {
        tokio::select! {
            biased;
            () = use_it => {}
            ended = axum::serve(listener, router) => panic!("server ended: {ended:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn addresses_that_cannot_be_reached_over_this_protocol_are_refused() {
    for uri in [
        "",
        "host",
        "host:1",
        "https://host:1",
        "http://",
        "ftp://host",
    ] {
        let error = Remote::new(uri).unwrap_err();
        assert_eq!(error.field(), Some("uri"), "{uri}");
    }
}
