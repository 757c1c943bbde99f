//! The standard services: health and reflection.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use dueline_api::{Ready, grpc::Services};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{fakes::Scripted, server::TestServer};

#[derive(Default)]
struct Switch(AtomicBool);

#[async_trait]
impl Ready for Switch {
    async fn ready(&self) -> Result<(), String> {
        match self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("switched off".to_owned()),
        }
    }
}

fn about(service: &str) -> HealthCheckRequest {
    let service = service.to_owned();
    HealthCheckRequest { service }
}

#[tokio::test]
async fn the_health_service_follows_the_process() {
    let switch = Arc::new(Switch::default());
    let services = Services {
        frontend: Some(Arc::new(Scripted::default())),
        ready: Some(switch.clone()),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let mut client = HealthClient::new(server.channel());
    let watched = client.watch(about("dueline.v1.Frontend")).await.unwrap();
    let mut watched = watched.into_inner();
    let first = watched.message().await.unwrap().expect("a status at once");
    assert_eq!(first.status(), ServingStatus::NotServing);
    for service in ["", "dueline.v1.Frontend"] {
        let answer = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::NotServing, "'{service}'");
    }

    switch.0.store(true, Ordering::Relaxed);
    let next = watched.message().await.unwrap().expect("the change");
    assert_eq!(next.status(), ServingStatus::Serving);
    for service in ["", "dueline.v1.Frontend"] {
        let answer = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "'{service}'");
    }

    // The process offers no queue.
    for service in ["dueline.v1.Queue", "nonsense"] {
        let refused = client.check(about(service)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "'{service}'");
        let unknown = client.watch(about(service)).await.unwrap().into_inner();
        let unknown = { unknown }.message().await.unwrap().unwrap();
        assert_eq!(unknown.status(), ServingStatus::ServiceUnknown);
    }
}

#[tokio::test]
async fn watches_are_bounded_and_their_places_come_back() {
    let services = Services {
        frontend: Some(Arc::new(Scripted::default())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let mut client = HealthClient::new(server.channel());
    let mut watches = Vec::new();
    let refused = loop {
        match client.watch(about("")).await {
            Ok(watch) => watches.push(watch),
            Err(refused) => break refused,
        }
        assert!(watches.len() <= 256, "there is no bound");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    // A check needs no place.
    client.check(about("")).await.unwrap();
    watches.clear();
    let mut tries = 0;
    while client.watch(about("")).await.is_err() {
        tries += 1;
        assert!(tries < 500, "no place came back");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn tools_can_read_the_protocol_from_the_server() {
    let server = TestServer::start(Services::default()).await;
    let mut client = ServerReflectionClient::new(server.channel());
    let ask = |message_request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    };
    let asked = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "dueline.v1.Frontend".to_owned(),
        )),
    ]);
    let answers = client.server_reflection_info(asked).await.unwrap();
    let mut answers = answers.into_inner();
    let listed = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = listed.message_response else {
        panic!("{listed:?}");
    };
    let names: Vec<_> = listed.service.iter().map(|it| it.name.as_str()).collect();
    for name in [
        "dueline.v1.Frontend",
        "dueline.v1.Controller",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let file = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(file)) = file.message_response else {
        panic!("{file:?}");
    };
    let bytes = file.file_descriptor_proto.concat();
    let has = |name: &str| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    assert!(
        has("PutJob") && has("GetFamily"),
        "the operations are there"
    );
}
