//! The node, and how it is asked through each door.

use std::{sync::Arc, time::Duration};

use dueline_all_in_one::{Node, NodeConfig};
use dueline_api::{
    ApiError, Call, Callable as _, Controller, Frontend, PollRequest,
    grpc::{ControllerClient, FrontendClient, Remote},
    operation::{GetTask, ListJobs, ListTasks, Submit},
};
use dueline_domain::{Due, JobName, NewTask, TaskId, TaskOptions};
use dueline_ports::{ListQuery, Rng as _};
use dueline_runtime::SystemRng;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Fault;

/// The one task that exists.
pub(crate) const TASK: &str = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";

/// `created_by` and the trace context of a task.
pub(crate) type Origin = (Option<String>, Option<String>);

/// A call of REST.
pub(crate) struct RestCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

pub(crate) struct TestNode {
    node: Node,
    base: String,
    http: reqwest::Client,
    remote: Remote,
    _folder: tempfile::TempDir,
}

pub(crate) fn mail() -> JobName {
    JobName::parse("mail").unwrap()
}

pub(crate) fn fault(error: &ApiError) -> Fault {
    Fault {
        kind: error.kind().name().to_owned(),
        reason: error.reason().to_string(),
        field: error.field().map(str::to_owned),
        message: error.message().to_owned(),
    }
}

impl TestNode {
    /// A node with the job `mail` and one task that is due in ten minutes.
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db");
        let mut config = NodeConfig {
            listen: Some(([127, 0, 0, 1], 0).into()),
            ..NodeConfig::embedded(format!("sqlite:{}", file.display()))
        };
        // No folder can be made here, so every delivery to a file fails.
        config.sinks.folder = Some(file.join("sinks"));
        let node = Node::start(config).await.unwrap();
        let base = format!("http://{}", node.address().unwrap());
        let test = Self {
            remote: Remote::new(&base).unwrap(),
            node,
            base,
            http: reqwest::Client::new(),
            _folder: folder,
        };
        let job = test.send(Method::PUT, "jobs/mail", Some(&json!({}))).await;
        assert_eq!(job["name"], "mail", "{job}");
        let task = json!({"id": TASK, "delay_ms": 600_000});
        let task = test
            .send(Method::POST, "jobs/mail/tasks", Some(&task))
            .await;
        assert_eq!(task["id"], TASK, "{task}");
        test
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.node.address().unwrap()
    }

    pub(crate) fn grpc(&self) -> FrontendClient {
        self.remote.frontend()
    }

    pub(crate) fn controller(&self) -> Arc<dyn Controller> {
        self.node.controller()
    }

    pub(crate) fn remote_controller(&self) -> ControllerClient {
        self.remote.work()
    }

    pub(crate) fn frontend(&self) -> Arc<dyn Frontend> {
        self.node.frontend()
    }

    /// The tasks of a schedule once there are `count`, oldest firing first.
    pub(crate) async fn fired(&self, schedule: &str, count: usize) -> Vec<Value> {
        let path = format!("jobs/mail/tasks?schedule={schedule}");
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let page = self.send(Method::GET, &path, None).await;
            let mut tasks = page["tasks"].as_array().unwrap().clone();
            if tasks.len() >= count {
                tasks.sort_by_key(|task| task["nominal_at"].to_string());
                return tasks;
            }
            assert!(Instant::now() < until, "{page}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let mut request = self
            .http
            .request(method, format!("{}/v1/{path}", self.base));
        if let Some(body) = body {
            request = request.json(body);
        }
        request
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap_or_default()
    }

    /// A stream of server-sent events.
    pub(crate) async fn events(&self, path: &str, last_event: Option<&str>) -> reqwest::Response {
        let mut request = self.http.get(format!("{}/v1/{path}", self.base));
        if let Some(id) = last_event {
            request = request.header("Last-Event-ID", id);
        }
        request.send().await.unwrap()
    }

    /// The fault that REST answers, or `None` for success.
    pub(crate) async fn rest(&self, call: &RestCall) -> Option<Fault> {
        let answer = self
            .send(call.method.clone(), &call.path, call.body.as_ref())
            .await;
        let text = |field: &str| answer[field].as_str().map(str::to_owned);
        Some(Fault {
            kind: text("kind")?,
            reason: text("reason")?,
            field: text("field"),
            message: text("detail")?,
        })
    }

    /// Numbers of jobs and tasks.
    pub(crate) async fn stored(&self) -> (usize, usize) {
        let call = Call::default();
        let jobs = self.frontend().call(&call, ListJobs).await.unwrap().len();
        let page = self
            .frontend()
            .call(&call, ListTasks(ListQuery::of(mail())))
            .await;
        (jobs, page.unwrap().tasks.len())
    }

    /// The token of a task that `thief` has claimed, and the answers about this task through each door.
    pub(crate) async fn texts_about_a_claimed_task(&self) -> (String, Vec<String>) {
        let call = Call::default();
        let id = self
            .submit_embedded(Due::Now, TaskOptions::default(), &call)
            .await;
        let poll = PollRequest {
            worker: "thief".parse().unwrap(),
            jobs: vec![mail()],
            handlers: Vec::new(),
            tasks_max: 1,
            weight_max: 1,
            task_weight_max: 1,
            wait: Duration::from_secs(20),
            start: false,
        };
        let claimed = self.node.controller().poll(poll).await.unwrap();
        assert_eq!(claimed[0].id, id);
        let token = claimed[0].token;
        let path = format!("jobs/mail/tasks/{id}");
        let grpc = self.grpc();
        let list = ListQuery {
            states: vec![dueline_domain::StateKind::Claimed],
            ..ListQuery::of(mail())
        };
        let texts = vec![
            self.send(Method::GET, &path, None).await.to_string(),
            self.send(Method::GET, "jobs/mail/tasks?state=claimed", None)
                .await
                .to_string(),
            format!(
                "{:?}",
                grpc.call(
                    &call,
                    GetTask {
                        job: mail(),
                        id,
                        wait: None
                    }
                )
                .await
                .unwrap()
            ),
            format!(
                "{:?}",
                grpc.call(&call, ListTasks(list.clone())).await.unwrap()
            ),
            format!(
                "{:?}",
                self.frontend()
                    .call(
                        &call,
                        GetTask {
                            job: mail(),
                            id,
                            wait: None
                        }
                    )
                    .await
                    .unwrap()
            ),
            format!(
                "{:?}",
                self.frontend().call(&call, ListTasks(list)).await.unwrap()
            ),
        ];
        (token.to_string(), texts)
    }

    async fn submit_embedded(&self, due: Due, options: TaskOptions, call: &Call) -> TaskId {
        let task = new_task(due, options);
        let answer = self
            .frontend()
            .call(call, Submit { tasks: vec![task] })
            .await
            .unwrap()
            .remove(0);
        answer.unwrap().id
    }

    /// `created_by` and the trace context of tasks that a caller submits through each door.
    pub(crate) async fn origins(&self, name: &str, trace: &str) -> Vec<(&'static str, Origin)> {
        let call = Call {
            trace: Some(trace.into()),
            ..Call::by(name)
        };
        let posted = self
            .http
            .post(format!("{}/v1/jobs/mail/tasks", self.base))
            .header("Dueline-Caller", name)
            .header("traceparent", trace)
            .json(&json!({"delay_ms": 600_000}))
            .send();
        let posted: Value = posted.await.unwrap().json().await.unwrap();
        // What a task itself says about its creator does not count.
        let claimed = TaskOptions {
            created_by: Some("another caller".into()),
            ..TaskOptions::default()
        };
        let due = Due::After(Duration::from_secs(600));
        let task = new_task(due, claimed.clone());
        let sent = self
            .grpc()
            .call(&call, Submit { tasks: vec![task] })
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        let embedded = self.submit_embedded(due, claimed, &call).await;
        let posted = posted["id"].as_str().unwrap().parse().unwrap();
        let mut origins = Vec::new();
        for (door, id) in [("REST", posted), ("gRPC", sent.id), ("embedded", embedded)] {
            let task = self
                .frontend()
                .call(
                    &call,
                    GetTask {
                        job: mail(),
                        id,
                        wait: None,
                    },
                )
                .await
                .unwrap();
            let options = task.options.unwrap();
            let text = |text: Option<std::sync::Arc<str>>| text.map(|text| text.to_string());
            origins.push((door, (text(options.created_by), text(options.trace))));
        }
        origins
    }

    /// How long a wait of a minute takes for a caller that itself waits for a second.
    pub(crate) async fn waits_with_a_deadline(&self) -> Vec<(&'static str, Duration)> {
        let since = Instant::now();
        let path = format!("{}/v1/jobs/mail/tasks/{TASK}?wait=60s", self.base);
        let rest = self
            .http
            .get(path)
            .header("Dueline-Timeout-Ms", "1000")
            .send();
        assert_eq!(rest.await.unwrap().status().as_u16(), 200);
        let waited_rest = since.elapsed();

        let since = Instant::now();
        let mut client =
            dueline_api::grpc::proto::frontend_client::FrontendClient::connect(self.base.clone())
                .await
                .unwrap();
        let mut request = tonic::Request::new(dueline_api::grpc::proto::GetTaskRequest {
            job: "mail".into(),
            id: TASK.into(),
            wait_ms: Some(60_000),
        });
        // Only the header: the client itself would wait for longer.
        request
            .metadata_mut()
            .insert("grpc-timeout", "1S".parse().unwrap());
        let answer = client.get_task(request).await;
        let waited_grpc = since.elapsed();
        assert!(answer.is_ok(), "{answer:?}");
        vec![("REST", waited_rest), ("gRPC", waited_grpc)]
    }

    /// The ids that the same delayed submit gets, twice through each door.
    pub(crate) async fn repeated_delays(&self) -> Vec<String> {
        let call = Call::default();
        let options = TaskOptions {
            key: Some("nightly".into()),
            ..TaskOptions::default()
        };
        let mut ids = Vec::new();
        for _ in 0..2 {
            let body = json!({"delay_ms": 600_000, "key": "nightly"});
            let answer = self
                .send(Method::POST, "jobs/mail/tasks", Some(&body))
                .await;
            ids.push(
                answer["id"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{answer}"))
                    .to_owned(),
            );
            let task = new_task(Due::After(Duration::from_secs(600)), options.clone());
            let answer = self
                .grpc()
                .call(&call, Submit { tasks: vec![task] })
                .await
                .unwrap()
                .remove(0);
            ids.push(answer.unwrap().id.to_string());
            let due = Due::After(Duration::from_secs(600));
            ids.push(
                self.submit_embedded(due, options.clone(), &call)
                    .await
                    .to_string(),
            );
            // The due times of repetitions differ.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ids
    }
}

pub(crate) fn new_task(due: Due, options: TaskOptions) -> NewTask {
    let id = TaskId::from_bytes(
        SystemRng
            .next_u64()
            .to_be_bytes()
            .repeat(2)
            .try_into()
            .unwrap(),
    );
    NewTask {
        due,
        options: Some(Box::new(options)),
        ..NewTask::now(id, mail(), bytes::Bytes::new())
    }
}
