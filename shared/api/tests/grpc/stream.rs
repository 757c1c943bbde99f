//! Work as a stream.

use std::{sync::Arc, time::Duration};

use dueline_api::{
    Action, ErrorKind,
    grpc::{Services, error_in_status, proto},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};

use crate::{
    controller::FakeController,
    server::{TestServer, soon},
    values::{plain_assignment, worker},
    work::ask,
};

/// A client that sends prepared messages.
struct Client {
    say: mpsc::Sender<proto::StreamRequest>,
    hear: Streaming<proto::StreamResponse>,
}

impl Client {
    async fn connect(server: &TestServer, first: proto::StreamRequest) -> Self {
        let mut client: proto::controller_client::ControllerClient<Channel> =
            proto::controller_client::ControllerClient::new(server.channel());
        let (say, said) = mpsc::channel(16);
        say.send(first).await.unwrap();
        let answer = soon(client.stream(ReceiverStream::new(said))).await;
        let hear = answer.unwrap().into_inner();
        Self { say, hear }
    }

    async fn say(&self, request: proto::StreamRequest) {
        self.say.send(request).await.unwrap();
    }

    /// The ids of this many assignments.
    async fn hear(&mut self, len: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.len() < len {
            let answer = soon(self.hear.message()).await.unwrap();
            let assignments = answer.expect("the stream goes on").assignments;
            assert!(!assignments.is_empty());
            ids.extend(assignments.into_iter().map(|a| a.id));
        }
        assert_eq!(ids.len(), len);
        ids
    }

    async fn end(&mut self) -> Result<(), tonic::Status> {
        soon(self.hear.message())
            .await
            .map(|more| assert!(more.is_none()))
    }
}

async fn start() -> (TestServer, FakeController) {
    let controller = FakeController::default();
    let services = Services {
        work: Some(Arc::new(controller.clone())),
        ..Services::default()
    };
    (TestServer::start(services).await, controller)
}

fn room(tasks: u32, weight: u32) -> proto::StreamRequest {
    let mut next = proto::PollRequest::from(ask(Duration::ZERO));
    (next.tasks_max, next.weight_max) = (tasks, weight);
    proto::StreamRequest {
        poll: Some(next),
        received: 0,
    }
}

const fn confirm(received: u64) -> proto::StreamRequest {
    let next = None;
    proto::StreamRequest {
        poll: next,
        received,
    }
}

fn tasks(numbers: std::ops::Range<u8>) -> Vec<String> {
    numbers
        .map(|n| plain_assignment(n).id.to_string())
        .collect()
}

#[tokio::test]
async fn f_134_a_stream_delivers_a_hundred_tasks_without_another_request() {
    let (server, controller) = start().await;
    let mut client = Client::connect(&server, room(100, 100)).await;
    let mut heard = Vec::new();
    for some in [0..1, 1..50, 50..100] {
        controller.give(some.clone().map(plain_assignment));
        heard.extend(client.hear(some.len()).await);
    }
    assert_eq!(heard, tasks(0..100));
    let asked = controller.asked(1).await.remove(0);
    assert_eq!((asked.worker, asked.task_weight_max), (worker(), 7));
}

#[tokio::test]
async fn f_134_no_more_is_sent_than_there_is_room_for() {
    let (server, controller) = start().await;
    controller.give((0..10).map(plain_assignment));
    let mut client = Client::connect(&server, room(3, 100)).await;
    assert_eq!(client.hear(3).await, tasks(0..3));
    assert_eq!(controller.left(), 7);
    client.say(room(2, 0)).await;
    assert_eq!(client.hear(2).await, tasks(3..5));
    let asks = controller.asked(2).await;
    let rooms: Vec<_> = asks.iter().map(|a| (a.tasks_max, a.weight_max)).collect();
    assert_eq!(rooms, [(3, 100), (2, 97)]);
    assert_eq!(controller.left(), 5);

    // Room for tasks without room for weight is none.
    let mut other = Client::connect(&server, room(5, 0)).await;
    other.say(room(0, 2)).await;
    other.hear(2).await;
    let last = controller.asked(3).await.remove(2);
    assert_eq!((last.tasks_max, last.weight_max), (5, 2));
}

#[tokio::test]
async fn f_134_what_a_client_that_vanished_did_not_confirm_is_given_back() {
    let (server, controller) = start().await;
    let mut client = Client::connect(&server, room(5, 5)).await;
    controller.give((0..5).map(plain_assignment));
    client.hear(5).await;
    client.say(confirm(2)).await;
    // There is no room for this one until the server has read what was said before.
    client.say(room(2, 2)).await;
    controller.give([plain_assignment(5)]);
    client.hear(1).await;
    controller.asked(3).await;
    drop(client);

    let returned = controller.reported(4).await;
    let expected: Vec<_> = (2..6).map(plain_assignment).collect();
    assert_eq!(returned.len(), 4);
    for (report, assignment) in returned.iter().zip(&expected) {
        assert_eq!(report.action, Action::Abandon);
        let of = (&report.job, report.id, report.token);
        assert_eq!(of, (&assignment.job, assignment.id, assignment.token));
    }
    // The question that was open went with the client.
    controller.vanished(1).await;
}

#[tokio::test]
async fn f_134_a_client_that_never_reads_gets_nothing_for_good() {
    let (server, controller) = start().await;
    let client = Client::connect(&server, room(50, 50)).await;
    controller.give((0..50).map(plain_assignment));
    soon(async {
        while controller.left() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(client);
    assert_eq!(controller.reported(50).await.len(), 50);
}

#[tokio::test]
async fn f_134_closing_in_order_keeps_what_was_confirmed() {
    let (server, controller) = start().await;
    let mut client = Client::connect(&server, room(3, 3)).await;
    controller.give((0..3).map(plain_assignment));
    client.hear(3).await;
    client.say(confirm(3)).await;
    let (say, _) = mpsc::channel(1);
    drop(std::mem::replace(&mut client.say, say));
    client.end().await.unwrap();
    // A later stream's return shows that the first one's would have been seen.
    let mut other = Client::connect(&server, room(1, 1)).await;
    controller.give([plain_assignment(9)]);
    other.hear(1).await;
    drop(other);
    let returned = controller.reported(1).await;
    assert_eq!(returned.len(), 1);
    assert_eq!(returned[0].id, plain_assignment(9).id);
}

#[tokio::test]
async fn streams_end_when_the_controller_stops() {
    let (server, controller) = start().await;
    let mut client = Client::connect(&server, room(1, 1)).await;
    controller.asked(1).await;
    controller.stop();
    let error = error_in_status(&client.end().await.unwrap_err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn streams_that_make_no_sense_are_ended_with_the_field() {
    let (server, controller) = start().await;
    let mut stranger = room(1, 1);
    stranger.poll.as_mut().unwrap().worker = "another@1".into();
    let cases = [
        (confirm(0), None, "next"),
        (confirm(1), None, "received"),
        (room(1, 1), Some(confirm(1)), "received"),
        (room(1, 1), Some(stranger), "next.worker"),
    ];
    for (first, second, field) in cases {
        let mut client = Client::connect(&server, first).await;
        if let Some(second) = second {
            client.say(second).await;
        }
        let error = error_in_status(&client.end().await.unwrap_err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.field(), Some(field));
    }
    assert_eq!(controller.left(), 0);
}
