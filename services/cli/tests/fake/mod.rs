//! A fake server whose responses a test sets, and the program under test as a child process.
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

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: String,
}

/// A running fake server.
pub struct FakeServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    _group: TaskGroup,
}

impl FakeServer {
    /// Responds to each request with the status and the text that `respond` returns.
    pub async fn start(
        respond: impl Fn(&RecordedRequest) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, respond) = (Arc::new(Mutex::new(Vec::new())), Arc::new(respond));
        let recorded = requests.clone();
        let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            let request = RecordedRequest {
                method,
                uri,
                headers,
                body,
            };
            let (status, text) = respond(&request);
            recorded.lock().unwrap().push(request);
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
            requests,
            _group: group,
        }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The address of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the program against this server.
    pub async fn run(&self, args: &[&str]) -> ProgramOutput {
        run(&format!("http://{}", self.address), args, "").await
    }

    /// As [`FakeServer::run`], with `input` on standard input.
    pub async fn run_with(&self, args: &[&str], input: &str) -> ProgramOutput {
        run(&format!("http://{}", self.address), args, input).await
    }
}

/// The exit code and the output of the program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program against `server`. The environment names a proxy at which no process listens, because a loopback
/// address must never be called through a proxy.
pub async fn run(server: &str, args: &[&str], input: &str) -> ProgramOutput {
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
    ProgramOutput {
        code: output.status.code().expect("the program exits by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
