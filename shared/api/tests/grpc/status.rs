//! Every verb of the status controller, both ways.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{
    Action, ApiError, Assignment, Registered, Registration, Report, ReportAck, ServedJob,
    StatusController as _,
    grpc::{Services, StatusControllerClient},
};
use dueline_domain::{Outcome, RetryClass, StateKind, Timestamp, Token, WriteId};

use crate::{
    fakes::{Script, Scripted, said},
    server::TestServer,
    values::{MS, errors, id, largest, name, plain_assignment, rich_assignment, task_ref, worker},
};

async fn start() -> (TestServer, Arc<Script>, StatusControllerClient) {
    let fake = Scripted::default();
    let services = Services {
        status: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().status();
    (server, fake.0, client)
}

/// A report of each action and outcome.
pub(crate) fn reports() -> Vec<Report> {
    let text = |text: &str| Arc::from(text);
    let mut outcomes = vec![
        Outcome::Success { result: None },
        Outcome::Success {
            result: Some(Bytes::new()),
        },
        Outcome::Success {
            result: Some(largest()),
        },
        Outcome::Fatal { error: text("") },
        Outcome::Cancelled,
    ];
    for class in RetryClass::ALL {
        outcomes.push(Outcome::Retriable {
            class,
            delay: (class == RetryClass::Quick).then_some(Duration::ZERO),
            error: text("größer"),
        });
    }
    let mut actions = vec![
        Action::Start,
        Action::Heartbeat,
        Action::Extend { by: MS },
        Action::Checkpoint {
            payload: Bytes::new(),
        },
        Action::Abandon,
        Action::Trash {
            reason: text("useless"),
        },
    ];
    for (outcome, started_at) in outcomes
        .into_iter()
        .zip([None, Some(Timestamp::MAX)].into_iter().cycle())
    {
        actions.push(Action::Finish {
            started_at,
            outcome,
        });
    }
    let report = |(action, number)| Report {
        job: name("a"),
        id: id(number),
        token: Token::from_random(u64::MAX),
        write: WriteId::from_random(u64::from(number)),
        action,
        trace: (number % 2 == 0)
            .then(|| "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
    };
    actions.into_iter().zip(1..).map(report).collect()
}

/// Answers to as many reports, some of them errors.
pub(crate) fn reported(len: usize) -> Vec<Result<ReportAck, ApiError>> {
    let mut answers: Vec<Result<ReportAck, ApiError>> = errors().into_iter().map(Err).collect();
    answers.push(Ok(ReportAck {
        state: StateKind::Processing,
        cancel_requested: true,
        lease: Some(Duration::ZERO),
    }));
    answers.push(Ok(ReportAck {
        state: StateKind::Succeeded,
        cancel_requested: false,
        lease: None,
    }));
    answers.into_iter().cycle().take(len).collect()
}

#[tokio::test]
async fn f_069_claims_arrive_and_each_has_its_answer() {
    let (_server, script, client) = start().await;
    let messages: Vec<_> = (0..4).map(task_ref).collect();
    let error = errors().remove(9);
    let answers = vec![
        Ok(rich_assignment()),
        Err(error),
        Ok(plain_assignment(1)),
        Ok(rich_assignment()),
    ];
    for start in [false, true] {
        script.answers(answers.clone());
        let claimed = client.claim(&worker(), messages.clone(), start).await;
        assert_eq!(claimed, answers);
        let asked = (worker(), messages.clone(), start);
        assert_eq!(script.calls(), [said("claim", asked)]);
    }
}

#[tokio::test]
async fn claims_of_many_large_tasks_fit_into_messages() {
    let (_server, script, client) = start().await;
    let answers = |len| -> Vec<Result<Assignment, ApiError>> {
        (0..len).map(|_| Ok(rich_assignment())).collect()
    };
    // 160 inputs of 256 KiB would not fit into one message.
    let messages: Vec<_> = (0..160).map(task_ref).collect();
    script.answers(answers(80));
    script.answers(answers(80));
    let claimed = client.claim(&worker(), messages, true).await;
    assert_eq!(claimed, answers(160));
    assert_eq!(script.calls().len(), 2);
}

#[tokio::test]
async fn f_069_reports_arrive_and_each_has_its_answer() {
    let (_server, script, client) = start().await;
    let answers = reported(reports().len());
    script.answers(answers.clone());
    assert_eq!(client.report(reports()).await, answers);
    assert_eq!(script.calls(), [said("report", (reports(),))]);
}

#[tokio::test]
async fn signs_of_life_and_farewells_arrive() {
    let (_server, script, client) = start().await;
    let bare = Registration {
        worker: worker(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 0,
        embedded: false,
        kind: dueline_ports::ProcessKind::Executor,
        metadata: dueline_ports::Metadata::new(),
    };
    let full = Registration {
        jobs: vec![name("a"), name("b")],
        handlers: vec![Arc::from("exec")],
        concurrency: u32::MAX,
        embedded: true,
        ..bare.clone()
    };
    for (registration, claims_start) in [(bare, false), (full, true)] {
        let alive = Registered {
            interval: MS * 777,
            claims_start,
        };
        script.answers(Ok::<_, ApiError>(alive));
        assert_eq!(
            client.register_worker(registration.clone()).await,
            Ok(alive)
        );
        assert_eq!(script.calls(), [said("alive", (registration,))]);
    }
    for error in errors() {
        script.answers(Err::<Registered, _>(error.clone()));
        let registration = Registration {
            worker: worker(),
            jobs: Vec::new(),
            handlers: Vec::new(),
            concurrency: 1,
            embedded: false,
            kind: dueline_ports::ProcessKind::Executor,
            metadata: dueline_ports::Metadata::new(),
        };
        assert_eq!(client.register_worker(registration).await, Err(error));
    }
    script.calls();
    script.answers(Ok::<(), ApiError>(()));
    assert_eq!(client.deregister_worker(&worker()).await, Ok(()));
    assert_eq!(script.calls(), [said("leave", (worker(),))]);
}

#[tokio::test]
async fn jobs_to_serve_arrive() {
    let (_server, script, client) = start().await;
    let jobs: Result<_, ApiError> = Ok(vec![
        ServedJob {
            name: name("a"),
            handler: Arc::from("worker"),
        },
        ServedJob {
            name: name("b"),
            handler: Arc::from("http"),
        },
    ]);
    script.answers(jobs.clone());
    assert_eq!(client.jobs().await, jobs);
}
