//! A server that answers what a test tells it to, and the program under test as a child.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its part of it"
)]

use std::{
    net::SocketAddr,
    process::Output,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::IntoResponse as _,
};
use dueline_runtime::TaskGroup;
use tokio::net::TcpListener;

/// What the server was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: String,
}

/// A running server.
pub struct Fake {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _group: TaskGroup,
}

impl Fake {
    /// Answers each call with the status and the text that `answer` gives.
    pub async fn start(answer: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let kept = asked.clone();
        let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            let call = Asked {
                method,
                uri,
                headers,
                body,
            };
            let (status, text) = answer(&call);
            kept.lock().unwrap().push(call);
            async move { (StatusCode::from_u16(status).unwrap(), text).into_response() }
        };
        let group = TaskGroup::new();
        let app = Router::new().fallback(handler);
        group.spawn(
            "fake server",
            async move { axum::serve(listener, app).await },
        );
        Self {
            address,
            asked,
            _group: group,
        }
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the program against this server.
    pub async fn run(&self, args: &[&str]) -> Ended {
        run(&format!("http://{}", self.address), args, "").await
    }

    /// As [`Fake::run`], with something on standard input.
    pub async fn run_with(&self, args: &[&str], input: &str) -> Ended {
        run(&format!("http://{}", self.address), args, input).await
    }
}

/// How the program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program against `server`. A proxy that nobody listens at is set, because a server on this machine must
/// never be sought there.
pub async fn run(server: &str, args: &[&str], input: &str) -> Ended {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_dueline"));
    command
        .args(args)
        .env_clear()
        .env("DUELINE_SERVER", server)
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
        .write_stdin(input)
        .timeout(Duration::from_secs(60));
    let output: Output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    Ended {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
