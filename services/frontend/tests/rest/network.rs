//! The router on a real port.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_api::Ready;
use dueline_frontend::{Health, RestLimits, RouterDeps, router, serve};
use dueline_ports::fakes::SeededRng;
use dueline_runtime::{Shutdown, TaskGroup};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::kit::Kit;

async fn exchange(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer));
        let len = read.await.expect("no answer").unwrap();
        answer.extend_from_slice(&buffer[..len]);
        let text = String::from_utf8_lossy(&answer);
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let len = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>())
            });
            len.is_some_and(|len| body.len() >= len.unwrap())
        });
        if whole || len == 0 {
            return text.into_owned();
        }
    }
}

#[tokio::test]
async fn calls_are_answered_until_the_shutdown_and_foreign_hosts_are_not() {
    let kit = Kit::with_job().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, group) = (Shutdown::new(), TaskGroup::new());
    group.spawn(
        "serve",
        serve(listener, kit.router.clone(), shutdown.clone()),
    );

    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = r#"{"payload": 1}"#;
    let post = format!(
        "POST /v1/jobs/mail/tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..3 {
        let answer = exchange(&mut stream, &post).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    assert_eq!(kit.store.snapshot().len(), 3);

    let foreign = post.replace(&address.to_string(), "evil.example");
    let answer = exchange(&mut stream, &foreign).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("foreign_host"),
        "{answer}"
    );

    let health = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let answer = exchange(&mut stream, &health).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("memory only"),
        "{answer}"
    );

    shutdown.stop_intake();
    // The idle connection is closed, so the server ends without the second stage.
    let ended = tokio::time::timeout(Duration::from_secs(20), group.wait()).await;
    assert_eq!(ended.expect("the server did not stop"), Ok(()));
    assert!(TcpStream::connect(address).await.is_err());
}

/// Never ready; notifies when it was asked.
struct NeverReady(Arc<Notify>);

impl Health for NeverReady {
    fn durability(&self) -> Option<String> {
        Some(String::new())
    }
}

#[async_trait]
impl Ready for NeverReady {
    async fn ready(&self) -> Result<(), String> {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_never_ends_is_cut_by_the_second_stage() {
    let kit = Kit::new();
    let asked = Arc::new(Notify::new());
    let router = router(RouterDeps {
        grpc: axum::Router::new(),
        frontend: Some(kit.frontend.clone()),
        work: None,
        health: Arc::new(NeverReady(asked.clone())),
        clock: kit.clock.clone(),
        rng: Arc::new(SeededRng::new(1)),
        metrics: None,
        limits: RestLimits::default(),
        default_policy: dueline_domain::Policy::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, group) = (Shutdown::new(), TaskGroup::new());
    group.spawn("serve", serve(listener, router, shutdown.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let (answer, ()) = tokio::join!(exchange(&mut stream, &ask), async {
        asked.notified().await;
        shutdown.stop_intake();
        tokio::task::yield_now().await;
        assert!(!group.is_empty(), "the call may still end by itself");
        shutdown.stop_work();
    });
    assert_eq!(answer, "");
    let ended = tokio::time::timeout(Duration::from_secs(20), group.wait()).await;
    assert_eq!(ended.expect("the server did not stop"), Ok(()));
}
