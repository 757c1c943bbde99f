//! Finished tasks are delivered to the sink of their job before they are deleted, also when the server is killed or the sink is down.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use dueline_tests_end_to_end::{ServerProcess, TestFolder, pause, wait_until};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::s;

/// A job whose tasks do nothing, and are deleted as soon as they may be.
fn job(sink: &str) -> Value {
    json!({"handler": {"kind": "noop"}, "retention_ms": 0, "sink": sink})
}

async fn submit(server: &ServerProcess<'_>, job: &str, count: usize) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for number in 0..count {
        let task = json!({"payload": {"n": number}});
        ids.insert(server.api.submit(job, task).await);
    }
    ids
}

/// The finished tasks of these records.
fn ids(records: &[Value]) -> BTreeSet<String> {
    let id = |record: &Value| {
        assert_eq!(record["state"], "succeeded", "{record}");
        assert!(record["finished_at"].is_string(), "{record}");
        assert!(record.get("owed").is_none(), "{record}");
        record["id"].as_str().unwrap().to_owned()
    };
    records.iter().map(id).collect()
}

async fn is_pruned(server: &ServerProcess<'_>, job: &str) {
    wait_until("the tasks to be deleted", s(40), async || {
        match server.api.tasks(job).await.len() {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_111_every_finished_task_is_in_the_file_before_it_is_deleted_even_after_kills() {
    let folder = TestFolder::new();
    let sinks = folder.file("done");
    let setting = format!("sinks.folder={}", sinks.display());
    let mut server = ServerProcess::start(&folder, &["--set", &setting]).await;
    server
        .api
        .put_job("mail", job("file:mail.ndjson"), json!({}))
        .await;
    let mut submitted = BTreeSet::new();
    for _ in 0..3 {
        submitted.extend(submit(&server, "mail", 20).await);
        server.kill().await;
        server.start_again().await;
    }
    is_pruned(&server, "mail").await;
    let text = fs::read_to_string(sinks.join("mail.ndjson")).unwrap();
    // A kill may have cut a line.
    let records: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(ids(&records), submitted);
}

/// A web server that keeps the bodies of POST requests, and answers 503 while it is down.
struct Receiver {
    url: String,
    is_up: Arc<AtomicBool>,
    refused: Arc<Mutex<usize>>,
    records: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            url: format!("http://{}/done", listener.local_addr().unwrap()),
            is_up: Arc::default(),
            refused: Arc::default(),
            records: Arc::default(),
        };
        let (is_up, refused) = (receiver.is_up.clone(), receiver.refused.clone());
        let records = receiver.records.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the runtime of the test"
        )]
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Some((stream, body)) = read_request(stream).await else {
                    continue;
                };
                let status = if is_up.load(Ordering::SeqCst) {
                    records.lock().unwrap().push(body);
                    "204 No Content"
                } else {
                    *refused.lock().unwrap() += 1;
                    "503 Service Unavailable"
                };
                answer(stream, status).await;
            }
        });
        receiver
    }
}

/// Reads one request with its JSON body.
async fn read_request(mut stream: TcpStream) -> Option<(TcpStream, Value)> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        if let Ok(body) = serde_json::from_str(body) {
            let head = head.to_ascii_lowercase();
            assert!(head.starts_with("post /done"), "{head}");
            assert!(head.contains("dueline-job: mail"), "{head}");
            return Some((stream, body));
        }
    }
}

async fn answer(mut stream: TcpStream, status: &str) {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // The server that made the request may be gone.
    let _ = stream.write_all(text.as_bytes()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g_19_nothing_is_deleted_while_the_sink_is_down_and_everything_arrives_when_it_is_up() {
    let folder = TestFolder::new();
    let receiver = Receiver::start().await;
    let args = ["--set", "sinks.http_allow_private=true"];
    let mut server = ServerProcess::start(&folder, &args).await;
    server
        .api
        .put_job("mail", job(&receiver.url), json!({}))
        .await;
    let submitted = submit(&server, "mail", 10).await;
    let first = submitted.first().unwrap();
    let owes = wait_until("a failed delivery", s(20), async || {
        let task = server.api.task("mail", first).await;
        match task["owed"]["failures"].as_u64() {
            Some(1..) => Ok(task),
            _ => Err(task.to_string()),
        }
    })
    .await;
    assert_eq!(owes["owed"]["effects"], json!(["deliver"]), "{owes}");
    assert_eq!(
        owes["owed"]["error"], "status 503 Service Unavailable",
        "{owes}"
    );
    assert!(owes["owed"]["next_try_at"].is_string(), "{owes}");
    // The pruner runs every five seconds.
    pause(s(7)).await;
    assert_eq!(
        server.api.tasks("mail").await.len(),
        10,
        "a task was deleted"
    );
    server.kill().await;
    server.start_again().await;
    assert_eq!(
        server.api.tasks("mail").await.len(),
        10,
        "a task was deleted"
    );
    receiver.is_up.store(true, Ordering::SeqCst);
    is_pruned(&server, "mail").await;
    assert_eq!(ids(&receiver.records.lock().unwrap()), submitted);
    assert!(*receiver.refused.lock().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_111_a_sink_that_could_not_work_is_refused_with_its_job() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker", "--set", "sinks.folder="]).await;
    for (sink, reason) in [
        ("file:../up", "invalid_sink"),
        ("ftp://a/", "invalid_sink"),
        ("file:done", "sink_not_available"),
        ("sqs://done", "sink_not_available"),
        ("http://127.0.0.1:9/", "target_not_allowed"),
    ] {
        let answer = server.api.put("jobs/mail", &job(sink)).await;
        assert_eq!(answer.status, 400, "{sink}: {}", answer.body);
        assert_eq!(answer.body["reason"], reason, "{sink}: {}", answer.body);
        assert_eq!(answer.body["field"], "sink", "{sink}: {}", answer.body);
    }
}
