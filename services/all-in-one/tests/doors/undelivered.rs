//! A worker that hangs up before it has read its tasks.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpSocket,
    time::{Instant, sleep},
};

use crate::node::TestNode;

const TASKS: usize = 90;

async fn claimed(node: &TestNode) -> usize {
    let path = "jobs/mail/tasks?state=claimed&limit=100";
    let page = node.send(Method::GET, path, None).await;
    page["tasks"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn f_117_tasks_go_back_at_once_when_their_worker_hangs_up_before_it_has_read_them() {
    let node = TestNode::start().await;
    let timeout = json!({"claim_timeout_ms": 600_000});
    node.send(Method::PUT, "jobs/mail", Some(&timeout)).await;
    // An answer with a third of them is more than the buffers of a connection hold.
    let payload = "x".repeat(250_000);
    for _ in 0..TASKS {
        let task = json!({"payload": payload});
        let task = node
            .send(Method::POST, "jobs/mail/tasks", Some(&task))
            .await;
        assert_ne!(task["id"], Value::Null, "{task}");
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut worker = socket.connect(node.address()).await.unwrap();
    let ask = json!({
        "worker": "host@1", "jobs": ["mail"], "tasks_max": TASKS, "wait_ms": 10_000,
    })
    .to_string();
    let request = format!(
        "POST /v1/work:next HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{ask}",
        node.address(),
        ask.len()
    );
    worker.write_all(request.as_bytes()).await.unwrap();
    while claimed(&node).await == 0 {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_millis(500)).await;
    let unread = claimed(&node).await;
    assert!(
        unread >= 24,
        "an answer of {unread} tasks is too short to wait for its reader"
    );
    drop(worker);
    let until = Instant::now() + Duration::from_secs(20);
    while claimed(&node).await > 0 {
        assert!(
            Instant::now() < until,
            "their claims would last for minutes"
        );
        sleep(Duration::from_millis(20)).await;
    }
}
