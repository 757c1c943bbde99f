//! Faults of callers: each bad field of each operation.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use dueline_api::{
    ApiError, Call, Callable as _, Frontend,
    grpc::{FrontendClient, proto},
    operation::{
        Cancel, DeleteJob, GetJob, GetJobStats, GetTask, ListTasks, Modify, PauseJob, PutJob,
        Redrive,
    },
};
use dueline_domain::{
    Due, FairShare, Handler, Job, JobName, Modification, NewTask, Overrides, Quota, RunningCancel,
    TaskId, TaskOptions,
};
use dueline_ports::ListQuery;
use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{RestCall, TASK, mail, new_task};

type Answer = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send>>;

type AskGrpc = Box<dyn FnOnce(FrontendClient) -> Answer>;
type AskEmbedded = Box<dyn FnOnce(Arc<dyn Frontend>) -> Answer>;
type Asks = (AskGrpc, Option<AskEmbedded>);

/// A fault, as each door is asked to commit it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) field: Option<&'static str>,
    pub(crate) rest: RestCall,
    pub(crate) grpc: AskGrpc,
    /// None for faults that the types of the embedded API rule out.
    pub(crate) embedded: Option<AskEmbedded>,
}

/// Asks any implementation of the frontend: the one of this process, or the client of gRPC.
macro_rules! ask {
    ($frontend:ident => $call:expr) => {
        (
            Box::new(move |$frontend: FrontendClient| -> Answer {
                Box::pin(async move { $call.await.map(drop) })
            }) as AskGrpc,
            Some(Box::new(move |$frontend: Arc<dyn Frontend>| -> Answer {
                Box::pin(async move { $call.await.map(drop) })
            }) as AskEmbedded),
        )
    };
}

fn case(
    name: &'static str,
    (reason, field): (&'static str, Option<&'static str>),
    (method, path, body): (Method, &str, Option<Value>),
    (grpc, embedded): Asks,
) -> Case {
    let path = path.to_owned();
    Case {
        name,
        reason,
        field,
        rest: RestCall { method, path, body },
        grpc,
        embedded,
    }
}

/// The raw client, for what the types of the client do not allow.
macro_rules! raw {
    ($client:ident => $call:expr) => {
        (
            Box::new(move |frontend: FrontendClient| -> Answer {
                Box::pin(async move {
                    let mut $client = frontend.raw();
                    $call.await
                })
            }) as AskGrpc,
            None,
        )
    };
}

// After the macros, which it uses.
mod board;
mod schedules;
mod submits;

pub(crate) fn all() -> Vec<Case> {
    let mut cases = submits::submits();
    cases.extend(submits::raw_submits());
    cases.extend(puts());
    cases.extend(changes());
    cases.extend(reads());
    cases.extend(schedules::schedules());
    cases.extend(board::board());
    cases.extend(board::watches());
    cases.extend(board::orders());
    cases
}

fn id() -> TaskId {
    TaskId::parse(TASK).unwrap()
}

fn call() -> Call {
    Call::default()
}

fn with(options: TaskOptions) -> NewTask {
    new_task(Due::After(Duration::from_secs(600)), options)
}

fn text(text: &str) -> Option<Arc<str>> {
    Some(Arc::from(text))
}

fn put(
    name: &'static str,
    fault: (&'static str, Option<&'static str>),
    body: Value,
    change: impl FnOnce(&mut Job),
) -> Case {
    let mut job = Job::new(JobName::parse("wrong").unwrap());
    change(&mut job);
    let path = format!("jobs/{}", job.name);
    let put = PutJob::from(job);
    let again = put.clone();
    let grpc = move |frontend: FrontendClient| -> Answer {
        Box::pin(async move { frontend.call(&call(), put).await.map(drop) })
    };
    let embedded = move |frontend: Arc<dyn Frontend>| -> Answer {
        Box::pin(async move { frontend.call(&call(), again).await.map(drop) })
    };
    let asks: Asks = (Box::new(grpc), Some(Box::new(embedded)));
    case(name, fault, (Method::PUT, &path, Some(body)), asks)
}

fn puts() -> Vec<Case> {
    let handler = |kind: &str, config: &Value| {
        let (kind, config) = (Arc::from(kind), Arc::from(config.to_string()));
        move |job: &mut Job| job.handler = Handler { kind, config }
    };
    let spec = |kind: &str, config: &Value| json!({"handler": {"kind": kind, "config": config}});
    let info = "x".repeat(16_385);
    let no_command = json!({"command": []});
    let ftp = json!({"url": "ftp://example.org/"});
    let odd = json!({"command": ["true"], "shell": 1});
    let large = json!({"command": ["true"], "env": {"A": "x".repeat(50_000)}});
    let empty = json!({});
    let ms = Duration::from_millis;
    vec![
        put(
            "a short claim timeout",
            ("invalid_timeout", Some("claim_timeout_ms")),
            json!({"claim_timeout_ms": 99}),
            |job| job.policy.claim_timeout = ms(99),
        ),
        put(
            "a short enqueue timeout",
            ("invalid_timeout", Some("enqueue_timeout_ms")),
            json!({"enqueue_timeout_ms": 1}),
            |job| job.policy.enqueue_timeout = ms(1),
        ),
        put(
            "no time to run",
            ("invalid_timeout", Some("run_timeout_ms")),
            json!({"run_timeout_ms": 0}),
            |job| job.policy.run_timeout = Some(Duration::ZERO),
        ),
        put(
            "a name that looks like a flag",
            ("invalid_name", Some("job")),
            json!({}),
            |job| job.name = JobName::parse("--help").unwrap(),
        ),
        put(
            "a rate of nothing",
            ("invalid_quota", Some("quota.rate_per_s")),
            json!({"quota": {"rate_per_s": 0.0}}),
            |job| job.quota.rate_per_s = Some(0.0),
        ),
        put(
            "a burst of nothing",
            ("invalid_quota", Some("quota.burst")),
            json!({"quota": {"rate_per_s": 1.0, "burst": 0}}),
            |job| {
                job.quota = Quota {
                    rate_per_s: Some(1.0),
                    burst: Some(0),
                    running_max: None,
                }
            },
        ),
        put(
            "no running task",
            ("invalid_quota", Some("quota.running_max")),
            json!({"quota": {"running_max": 0}}),
            |job| job.quota.running_max = Some(0),
        ),
        put(
            "too many running tasks",
            ("invalid_quota", Some("quota.running_max")),
            json!({"quota": {"running_max": 1_001}}),
            |job| job.quota.running_max = Some(1_001),
        ),
        put(
            "no running task of a key",
            ("invalid_quota", Some("fair_share.running_max")),
            json!({"fair_share": {"running_max": 0}}),
            |job| {
                job.fair_share = Some(FairShare {
                    running_max: Some(0),
                });
            },
        ),
        put(
            "a long description",
            ("too_long", Some("info")),
            json!({ "info": info }),
            |job| job.info = info.as_str().into(),
        ),
        put(
            "an unknown handler",
            ("unknown_handler", Some("handler.kind")),
            spec("cron", &empty),
            handler("cron", &empty),
        ),
        put(
            "no command",
            ("invalid_handler", Some("handler.config.command")),
            spec("exec", &no_command),
            handler("exec", &no_command),
        ),
        put(
            "a missing command",
            ("missing_field", Some("handler.config.command")),
            spec("exec", &empty),
            handler("exec", &empty),
        ),
        put(
            "an unknown setting",
            ("unknown_field", Some("handler.config.shell")),
            spec("exec", &odd),
            handler("exec", &odd),
        ),
        put(
            "a URL of another protocol",
            ("invalid_handler", Some("handler.config.url")),
            spec("http", &ftp),
            handler("http", &ftp),
        ),
        put(
            "settings for a worker",
            ("unknown_field", Some("handler.config.command")),
            spec("worker", &no_command),
            handler("worker", &no_command),
        ),
        put(
            "large settings",
            ("too_long", Some("handler.config")),
            spec("exec", &large),
            handler("exec", &large),
        ),
    ]
}

fn changes() -> Vec<Case> {
    let task = format!("jobs/mail/tasks/{TASK}");
    let path = |verb: &str| format!("{task}/{verb}");
    let missing = "00000000-0000-7000-8000-000000000001";
    let gone = TaskId::parse(missing).unwrap();
    let large = "x".repeat(262_145);
    let payload = Modification {
        payload: Some(Bytes::from(large.clone())),
        ..Modification::default()
    };
    let again = payload.clone();
    let reason = "x".repeat(4_097);
    let why = text(&reason);
    vec![
        case(
            "no change",
            ("no_change", None),
            (Method::PATCH, &task, Some(json!({}))),
            ask!(frontend => frontend.call(&call(), Modify { job: mail(), id: id(), change: Modification::default() })),
        ),
        case(
            "a change to a large payload",
            ("payload_too_large", Some("payload")),
            (Method::PATCH, &task, Some(json!({ "payload_text": large }))),
            (
                Box::new(move |frontend| {
                    Box::pin(async move {
                        frontend
                            .call(
                                &call(),
                                Modify {
                                    job: mail(),
                                    id: id(),
                                    change: payload,
                                },
                            )
                            .await
                            .map(drop)
                    })
                }),
                Some(Box::new(move |frontend| {
                    Box::pin(async move {
                        frontend
                            .call(
                                &call(),
                                Modify {
                                    job: mail(),
                                    id: id(),
                                    change: again,
                                },
                            )
                            .await
                            .map(drop)
                    })
                })),
            ),
        ),
        case(
            "a change of weight to zero",
            ("invalid_weight", Some("weight")),
            (Method::PATCH, &task, Some(json!({"weight": 0}))),
            raw!(client => async move {
                let request = proto::ModifyRequest {
                    job: "mail".into(),
                    id: TASK.into(),
                    weight: Some(0),
                    ..Default::default()
                };
                status(client.modify(request).await)
            }),
        ),
        case(
            "a change of a task that does not exist",
            ("unknown_task", None),
            (
                Method::PATCH,
                &format!("jobs/mail/tasks/{missing}"),
                Some(json!({"weight": 2})),
            ),
            ask!(frontend => async {
                let change = Modification { weight: dueline_domain::Weight::new(2).ok(), ..Modification::default() };
                frontend.call(&call(), Modify { job: mail(), id: gone, change }).await
            }),
        ),
        case(
            "a long reason",
            ("too_long", Some("reason")),
            (
                Method::POST,
                &path("cancel"),
                Some(json!({ "reason": reason })),
            ),
            {
                let again = why.clone();
                (
                    Box::new(move |frontend: FrontendClient| -> Answer {
                        Box::pin(async move {
                            let refuse = RunningCancel::Refuse;
                            frontend
                                .call(
                                    &call(),
                                    Cancel {
                                        job: mail(),
                                        id: id(),
                                        running: refuse,
                                        reason: why,
                                        family: false,
                                    },
                                )
                                .await
                                .map(drop)
                        })
                    }),
                    Some(Box::new(move |frontend: Arc<dyn Frontend>| -> Answer {
                        Box::pin(async move {
                            let refuse = RunningCancel::Refuse;
                            frontend
                                .call(
                                    &call(),
                                    Cancel {
                                        job: mail(),
                                        id: id(),
                                        running: refuse,
                                        reason: again,
                                        family: false,
                                    },
                                )
                                .await
                                .map(drop)
                        })
                    })),
                )
            },
        ),
        case(
            "a cancel of a task that does not exist",
            ("unknown_task", None),
            (
                Method::POST,
                &format!("jobs/mail/tasks/{missing}/cancel"),
                None,
            ),
            ask!(frontend => frontend.call(&call(), Cancel { job: mail(), id: gone, running: RunningCancel::Refuse, reason: None, family: false })),
        ),
        case(
            "a redrive of a task that has not ended",
            ("not_finished", None),
            (Method::POST, &path("redrive"), None),
            ask!(frontend => frontend.call(&call(), Redrive { job: mail(), id: id(), with_followers: false })),
        ),
        case(
            "a pause of a job that does not exist",
            ("unknown_job", None),
            (Method::POST, "jobs/nope/pause", None),
            ask!(frontend => frontend.call(&call(), PauseJob { name: nope(), paused: true })),
        ),
        case(
            "the end of a job that does not exist",
            ("unknown_job", None),
            (Method::DELETE, "jobs/nope", None),
            ask!(frontend => frontend.call(&call(), DeleteJob { name: nope() })),
        ),
        case(
            "the end of a job with tasks",
            ("in_use", None),
            (Method::DELETE, "jobs/mail", None),
            ask!(frontend => frontend.call(&call(), DeleteJob { name: mail() })),
        ),
    ]
}

fn nope() -> JobName {
    JobName::parse("nope").unwrap()
}

fn reads() -> Vec<Case> {
    let long = "x".repeat(257);
    let task = format!("jobs/mail/tasks/{TASK}");
    let missing = "00000000-0000-7000-8000-000000000001";
    let gone = TaskId::parse(missing).unwrap();
    let mut cases = vec![
        case(
            "a job that does not exist",
            ("unknown_job", None),
            (Method::GET, "jobs/nope", None),
            ask!(frontend => frontend.call(&call(), GetJob::definition(nope()))),
        ),
        case(
            "numbers of a job that does not exist",
            ("unknown_job", None),
            (Method::GET, "jobs/nope/stats", None),
            ask!(frontend => frontend.call(&call(), GetJobStats { name: nope() })),
        ),
        case(
            "a task that does not exist",
            ("unknown_task", None),
            (Method::GET, &format!("jobs/mail/tasks/{missing}"), None),
            ask!(frontend => frontend.call(&call(), GetTask { job: mail(), id: gone, wait: None })),
        ),
        case(
            "a wait of two hours",
            ("out_of_range", Some("wait")),
            (Method::GET, &format!("{task}?wait=2h"), None),
            ask!(frontend => frontend.call(&call(), GetTask { job: mail(), id: id(), wait: Some(Duration::from_secs(7_200)) })),
        ),
        case(
            "a page of 1001 tasks",
            ("out_of_range", Some("limit")),
            (Method::GET, "jobs/mail/tasks?limit=1001", None),
            ask!(frontend => frontend.call(&call(), ListTasks(ListQuery { limit: 1_001, ..ListQuery::of(mail()) }))),
        ),
        case(
            "a name that is no name",
            ("invalid_name", Some("job")),
            (Method::GET, "jobs/a%20b/tasks", None),
            raw!(client => async move {
                let request = proto::ListTasksRequest {
                    job: "a b".into(),
                    ..Default::default()
                };
                status(client.list_tasks(request).await)
            }),
        ),
        case(
            "an id that is no UUID",
            ("invalid_id", Some("id")),
            (Method::GET, "jobs/mail/tasks/7", None),
            raw!(client => async move {
                let request = proto::GetTaskRequest {
                    job: "mail".into(),
                    id: "7".into(),
                    wait_ms: None,
                };
                status(client.get_task(request).await)
            }),
        ),
    ];
    for field in ["tag", "name", "key", "cursor"] {
        let query = |value: &str| {
            let mut query = ListQuery::of(mail());
            match field {
                "tag" => query.tag = text(value),
                "name" => query.name = text(value),
                "key" => query.key = text(value),
                _ => query.cursor = text(value),
            }
            query
        };
        for (value, reason) in [(long.as_str(), "too_long"), ("%20", "blank")] {
            let value_of = value.replace("%20", " ");
            let (one, two) = (query(&value_of), query(&value_of));
            cases.push(case(
                "a filter that is no filter",
                (reason, Some(field)),
                (
                    Method::GET,
                    &format!("jobs/mail/tasks?{field}={value}"),
                    None,
                ),
                (
                    Box::new(move |frontend| {
                        Box::pin(
                            async move { frontend.call(&call(), ListTasks(one)).await.map(drop) },
                        )
                    }),
                    Some(Box::new(move |frontend| {
                        Box::pin(
                            async move { frontend.call(&call(), ListTasks(two)).await.map(drop) },
                        )
                    })),
                ),
            ));
        }
    }
    cases
}

fn status<T>(answer: Result<T, tonic::Status>) -> Result<(), ApiError> {
    let read =
        |status| dueline_api::grpc::error_in_status(&status).expect("an error of the service");
    answer.map(drop).map_err(read)
}

/// The result of the only task of a submit.
fn submitted(
    answer: Result<tonic::Response<proto::SubmitResponse>, tonic::Status>,
) -> Result<(), ApiError> {
    let mut results = answer.expect("an answer per task").into_inner().results;
    match results.remove(0).result {
        Some(proto::submit_result::Result::Error(error)) => Err(error.into()),
        _ => Ok(()),
    }
}
