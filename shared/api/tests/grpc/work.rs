//! Every verb of a controller, both ways, and what long polls promise.

use std::{sync::Arc, time::Duration};

use dueline_api::{
    ApiError, Assignment, Controller as _, PollRequest, Registered, Registration,
    grpc::{ControllerClient, Services},
};

use crate::{
    controller::FakeController,
    fakes::{Script, Scripted, said},
    server::{TestServer, soon},
    status::{reported, reports},
    values::{MS, errors, name, plain_assignment, rich_assignment, worker},
};

async fn scripted() -> (TestServer, Arc<Script>, ControllerClient) {
    let fake = Scripted::default();
    let services = Services {
        work: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().work();
    (server, fake.0, client)
}

async fn with_controller() -> (TestServer, FakeController, ControllerClient) {
    let fake = FakeController::default();
    let services = Services {
        work: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().work();
    (server, fake, client)
}

pub(crate) fn ask(wait: Duration) -> PollRequest {
    PollRequest {
        worker: worker(),
        jobs: vec![name("a"), name("b")],
        handlers: vec![Arc::from("exec"), Arc::from("http")],
        tasks_max: 10,
        weight_max: u32::MAX,
        task_weight_max: 7,
        wait,
        start: false,
    }
}

#[tokio::test]
async fn asks_for_work_arrive_and_so_does_the_work() {
    let (_server, script, client) = scripted().await;
    let bare = PollRequest {
        jobs: Vec::new(),
        handlers: Vec::new(),
        tasks_max: 0,
        weight_max: 0,
        task_weight_max: 0,
        start: true,
        ..ask(Duration::ZERO)
    };
    let some = vec![plain_assignment(3), rich_assignment()];
    for (ask, work) in [(ask(MS * 25_000), some), (bare, Vec::new())] {
        script.answers(Ok::<_, ApiError>(work.clone()));
        assert_eq!(client.poll(ask.clone()).await, Ok(work));
        assert_eq!(script.calls(), [said("next", (ask,))]);
    }
    for error in errors() {
        script.answers(Err::<Vec<Assignment>, _>(error.clone()));
        assert_eq!(client.poll(ask(MS)).await, Err(error));
    }
}

#[tokio::test]
async fn eighty_of_the_largest_assignments_fit_into_an_answer() {
    let (_server, script, client) = scripted().await;
    let work: Result<_, ApiError> = Ok(vec![rich_assignment(); 80]);
    script.answers(work.clone());
    let ask = PollRequest {
        tasks_max: 5_000,
        ..ask(MS)
    };
    assert_eq!(client.poll(ask.clone()).await, work);
    // More would not fit, so more are not asked for.
    let asked = PollRequest {
        tasks_max: 80,
        ..ask
    };
    assert_eq!(script.calls(), [said("next", (asked,))]);
}

#[tokio::test]
async fn reports_signs_of_life_and_farewells_arrive() {
    let (_server, script, client) = scripted().await;
    let answers = reported(reports().len());
    script.answers(answers.clone());
    assert_eq!(client.report(reports()).await, answers);
    assert_eq!(script.calls(), [said("report", (reports(),))]);

    let registration = Registration {
        worker: worker(),
        jobs: vec![name("a")],
        handlers: vec![Arc::from("noop")],
        concurrency: 1,
        embedded: true,
        kind: dueline_ports::ProcessKind::Executor,
        metadata: dueline_ports::Metadata::new(),
    };
    script.answers(alive_of(9));
    assert_eq!(
        client.register_worker(registration.clone()).await,
        alive_of(9)
    );
    script.answers(Ok::<(), ApiError>(()));
    assert_eq!(client.deregister_worker(&worker()).await, Ok(()));
    let calls = [said("alive", (registration,)), said("leave", (worker(),))];
    assert_eq!(script.calls(), calls);
}

fn alive_of(interval_ms: u32) -> Result<Registered, ApiError> {
    Ok(Registered {
        interval: MS * interval_ms,
        claims_start: true,
    })
}

#[tokio::test]
async fn f_134_a_long_poll_returns_when_work_arrives() {
    let (_server, controller, client) = with_controller().await;
    let give = async {
        controller.asked(1).await;
        controller.give([plain_assignment(1)]);
    };
    let polled = client.poll(ask(Duration::from_secs(3_000)));
    let (work, ()) = soon(async { tokio::join!(polled, give) }).await;
    assert_eq!(work, Ok(vec![plain_assignment(1)]));
}

#[tokio::test]
async fn f_134_a_long_poll_without_work_ends_empty_after_its_wait() {
    let (_server, _controller, client) = with_controller().await;
    assert_eq!(soon(client.poll(ask(MS))).await, Ok(Vec::new()));
}

#[tokio::test]
async fn f_134_a_client_that_vanishes_ends_its_question_on_the_server() {
    let (_server, controller, client) = with_controller().await;
    {
        let polled = client.poll(ask(Duration::from_secs(3_000)));
        tokio::select! {
            biased;
            _ = polled => panic!("there was no work"),
            _ = controller.asked(1) => {}
        }
    }
    controller.vanished(1).await;
    // What arrives now is for those who are still there.
    controller.give([plain_assignment(1)]);
    let work = soon(client.poll(ask(Duration::from_secs(3_000)))).await;
    assert_eq!(work, Ok(vec![plain_assignment(1)]));
}
