//! A frontend with everything around it in memory.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{Router, body::Body};
use dueline_api::{
    ApiError, Assignment, Controller, Frontend, PollRequest, Ready, Registered, Registration,
    Report, ReportAck,
};
use dueline_domain::{Claim, Event, JobName, Policy, Timestamp, WorkerId};
use dueline_frontend::{FrontendDeps, FrontendService, Health, RestLimits, RouterDeps, router};
use dueline_ports::{
    Clock, Command, JobStore as _, Rng, TaskStore as _, WorkerRecord, WorkerStore as _,
    fakes::{MemorySinks, MemoryStore, MessageLog, SeededRng, TokioClock},
};
use dueline_runtime::{DueSignal, EndSignal};
use http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// The time at which every test begins.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// Everything around one router.
pub(crate) struct Kit {
    pub(crate) router: Router,
    pub(crate) work: Arc<dyn Controller>,
    pub(crate) frontend: Arc<FrontendService>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) queue: Arc<MessageLog>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) ended: Arc<EndSignal>,
    pub(crate) jobs_changed: Arc<Notify>,
    pub(crate) clock: Arc<TokioClock>,
}

impl Kit {
    /// Make it inside a runtime with paused time.
    pub(crate) fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let queue = Arc::new(MessageLog::default());
        let clock = Arc::new(TokioClock::new(Timestamp::clamped(START_MS)));
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(7));
        let (due, ended) = (
            Arc::new(DueSignal::default()),
            Arc::new(EndSignal::default()),
        );
        let jobs_changed = Arc::new(Notify::new());
        let frontend = Arc::new(FrontendService::new(FrontendDeps {
            dispatch: None,
            store: store.clone(),
            queue: queue.clone(),
            clock: clock.clone(),
            rng: rng.clone(),
            due: due.clone(),
            ended: ended.clone(),
            sinks: Arc::new(MemorySinks::default()),
            jobs_changed: jobs_changed.clone(),
        }));
        let work: Arc<dyn Controller> = Arc::new(DirectWork {
            store: store.clone(),
            queue: queue.clone(),
            clock: clock.clone(),
            rng: rng.clone(),
            ended: ended.clone(),
        });
        let router = routes(frontend.clone(), Some(work.clone()), RestLimits::default());
        Self {
            router,
            work,
            frontend,
            store,
            queue,
            due,
            ended,
            jobs_changed,
            clock,
        }
    }

    /// With a job called `mail` that waits exactly 10 s after a failure.
    pub(crate) async fn with_job() -> Self {
        let kit = Self::new();
        let spec = r#"{"retries_max": 2, "backoff": {
            "standard": {"initial_ms": 10000, "multiplier": 1, "jitter": 0, "max_ms": 10000},
            "quick": {"initial_ms": 100, "multiplier": 1, "jitter": 0, "max_ms": 100},
            "slow": {"initial_ms": 60000, "multiplier": 1, "jitter": 0, "max_ms": 60000}}}"#;
        kit.put("/v1/jobs/mail", spec).await.expect(201);
        kit
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        call(&self.router, "GET", path, &[], "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> Reply {
        call(&self.router, "PUT", path, &[], body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        call(&self.router, "POST", path, &[], body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &str) -> Reply {
        call(&self.router, "PATCH", path, &[], body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        call(&self.router, "DELETE", path, &[], "").await
    }

    /// Submits a task of `mail`; answers its path.
    pub(crate) async fn submit(&self, body: &str) -> String {
        let reply = self.post("/v1/jobs/mail/tasks", body).await.expect(201);
        format!("/v1/jobs/mail/tasks/{}", reply.text("id"))
    }

    /// Claims the next task of `mail` for a worker; answers its work path and token.
    pub(crate) async fn claim(&self, worker: &str) -> (String, String) {
        let ask = format!(r#"{{"worker": "{worker}", "jobs": ["mail"]}}"#);
        let reply = self.post("/v1/work:next", &ask).await.expect(200);
        let task = &reply.json["tasks"][0];
        let text = |name: &str| task[name].as_str().expect(name).to_owned();
        (format!("/v1/work/mail/{}", text("id")), text("token"))
    }

    /// A worker's report with a token and more fields.
    pub(crate) async fn report(&self, path: &str, token: &str, fields: &str) -> Reply {
        let comma = if fields.is_empty() { "" } else { ", " };
        let body = format!(r#"{{"token": "{token}"{comma}{fields}}}"#);
        self.post(path, &body).await
    }
}

pub(crate) fn routes(
    frontend: Arc<dyn Frontend>,
    work: Option<Arc<dyn Controller>>,
    limits: RestLimits,
) -> Router {
    routes_with(frontend, work, limits, Policy::default())
}

pub(crate) fn routes_with(
    frontend: Arc<dyn Frontend>,
    work: Option<Arc<dyn Controller>>,
    limits: RestLimits,
    default_policy: Policy,
) -> Router {
    router(deps(frontend, work, limits, default_policy))
}

/// Routes beside those of gRPC.
pub(crate) fn routes_of(frontend: Arc<dyn Frontend>, limits: RestLimits, grpc: Router) -> Router {
    router(RouterDeps {
        grpc,
        ..deps(frontend, None, limits, Policy::default())
    })
}

fn deps(
    frontend: Arc<dyn Frontend>,
    work: Option<Arc<dyn Controller>>,
    limits: RestLimits,
    default_policy: Policy,
) -> RouterDeps {
    RouterDeps {
        frontend: Some(frontend),
        work,
        health: Arc::new(Healthy),
        clock: Arc::new(TokioClock::new(Timestamp::clamped(START_MS))),
        rng: Arc::new(SeededRng::new(11)),
        metrics: Some(Arc::new(|| "dueline_up 1\n".to_owned())),
        limits,
        default_policy,
        grpc: Router::new(),
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) json: Value,
}

impl Reply {
    /// Checks the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self
    }

    #[track_caller]
    pub(crate) fn text(&self, field: &str) -> &str {
        let value = &self.json[field];
        value
            .as_str()
            .unwrap_or_else(|| panic!("{field} is {value} in {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Checks a problem document.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str, reason: &str) {
        let got = (self.status.as_u16(), self.text("kind"), self.text("reason"));
        assert_eq!(got, (status, kind, reason), "{}", self.body);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(self.json["status"], status);
        assert!(!self.text("title").is_empty() && !self.text("detail").is_empty());
        assert!(!self.text("request_id").is_empty());
    }
}

/// One call without a network.
pub(crate) async fn call(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
    let body = String::from_utf8(bytes.to_vec()).unwrap();
    Reply {
        status: head.status,
        headers: head.headers,
        json: serde_json::from_str(&body).unwrap_or(Value::Null),
        body,
    }
}

struct Healthy;

impl Health for Healthy {
    fn durability(&self) -> Option<String> {
        Some("memory only".to_owned())
    }
}

#[async_trait]
impl Ready for Healthy {
    async fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A controller and a status controller in a few lines: claims what is in the queue, applies what is reported.
struct DirectWork {
    store: Arc<MemoryStore>,
    queue: Arc<MessageLog>,
    clock: Arc<TokioClock>,
    rng: Arc<dyn Rng>,
    ended: Arc<EndSignal>,
}

impl DirectWork {
    async fn apply(&self, command: Command) -> Result<dueline_domain::Task, ApiError> {
        let applied = self.store.apply(self.clock.now(), vec![command]).await;
        let applied = applied.into_iter().next().unwrap()?;
        Ok(*applied.task)
    }
}

#[async_trait]
impl Controller for DirectWork {
    async fn poll(&self, ask: PollRequest) -> Result<Vec<Assignment>, ApiError> {
        let take = |job: &JobName| self.queue.take(job.as_str(), 1).pop();
        let Some(message) = ask.jobs.iter().find_map(take) else {
            return Ok(Vec::new());
        };
        let claim = Claim {
            token: message.token,
            worker: ask.worker,
            start: false,
        };
        let command = Command {
            job: message.job.clone(),
            id: message.id,
            event: Event::Claim(claim),
            write: self.rng.write_id(),
        };
        let task = self.apply(command).await?;
        let job = self.store.job(&task.job).await?.unwrap();
        let policy = task.policy(&job.policy);
        let options = task.options.clone().unwrap_or_default();
        Ok(vec![Assignment {
            job: task.job.clone(),
            id: task.id,
            token: message.token,
            attempt: task.attempt(),
            input: task.input().clone(),
            content_type: options.content_type,
            name: options.name,
            weight: task.weight,
            run_at: task.run_at,
            claimed_at: task.changed_at,
            handler: job.handler.clone(),
            claim_timeout: policy.claim_timeout,
            heartbeat_timeout: policy.heartbeat_timeout,
            heartbeat_increment: policy.heartbeat_increment,
            run_timeout: policy.run_timeout,
            start_first: false,
            started_before: task.started_at.is_some(),
            trace: options.trace,
            started: false,
            results: Vec::new(),
            waited: Duration::ZERO,
        }])
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let mut answers = Vec::new();
        for report in reports {
            let command = report.into_command(&*self.rng);
            let now = self.clock.now();
            answers.push(self.apply(command).await.map(|task| {
                if task.kind().is_final() {
                    self.ended.ended(&task.id);
                }
                ReportAck::of(&task, now)
            }));
        }
        answers
    }

    async fn register_worker(&self, worker: Registration) -> Result<Registered, ApiError> {
        let now = self.clock.now();
        let record = WorkerRecord {
            id: worker.worker,
            kind: worker.kind.name().into(),
            jobs: worker.jobs,
            handlers: worker.handlers,
            concurrency: worker.concurrency,
            embedded: worker.embedded,
            metadata: worker.metadata,
            started_at: now,
            seen_at: now,
        };
        self.store.put_workers(vec![record]).await?;
        let interval = Duration::from_millis(2_500);
        Ok(Registered {
            interval,
            claims_start: false,
        })
    }

    async fn deregister_worker(&self, worker: &WorkerId) -> Result<(), ApiError> {
        Ok(self.store.remove_workers(vec![worker.clone()]).await?)
    }
}
