//! Every verb of the frontend, both ways.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use dueline_api::{
    ApiError, Call, Callable as _,
    grpc::{FrontendClient, Remote, Services, proto},
    operation::{
        Cancel, DeleteJob, GetJob, GetJobStats, GetTask, ListJobs, ListTasks, ListWorkers, Modify,
        PauseJob, PutJob, Redrive, ShownJob, Submit, Submitted,
    },
};
use dueline_domain::{
    Job, Modification, Policy, Priority, RunningCancel, StateKind, Task, Timestamp, Weight,
};
use dueline_ports::{JobStats, ListQuery, Page, WorkerRecord};

use crate::{
    fakes::{Script, Scripted, said},
    server::TestServer,
    values::{
        MS, at, bare_task, errors, id, largest, name, plain_job, plain_submit, rich_job,
        rich_submit, tasks, unique_submit, worker,
    },
};

async fn start() -> (TestServer, Arc<Script>, FrontendClient) {
    let fake = Scripted::default();
    let services = Services {
        frontend: Some(Arc::new(fake.clone())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().frontend();
    (server, fake.0, client)
}

#[tokio::test]
async fn f_133_jobs_arrive_as_they_were_sent() {
    let (_server, script, client) = start().await;
    for job in [plain_job(), rich_job()] {
        let stored = Arc::new(job.clone());
        let good: Result<Arc<Job>, ApiError> = Ok(stored.clone());

        let put = PutJob::from(job.clone());
        let get = GetJob {
            name: job.name.clone(),
            frequency: true,
        };
        let shown: Result<ShownJob, ApiError> = Ok(ShownJob {
            job: stored.clone(),
            frequency: Some("@daily".to_owned()),
        });
        let pause = PauseJob {
            name: job.name.clone(),
            paused: job.paused,
        };
        let delete = DeleteJob {
            name: job.name.clone(),
        };
        let call = Call::default();
        script.answers(good.clone());
        assert_eq!(client.call(&call, put.clone()).await, good);
        script.answers(shown.clone());
        assert_eq!(client.call(&call, get.clone()).await, shown);
        script.answers(good.clone());
        assert_eq!(client.call(&call, pause.clone()).await, good);
        script.answers(Ok::<(), ApiError>(()));
        assert_eq!(client.call(&call, delete.clone()).await, Ok(()));

        let calls = [
            said("", put),
            said("", get),
            said("", pause),
            said("", delete),
        ];
        assert_eq!(script.calls(), calls);
    }
    let all: Result<_, ApiError> = Ok(vec![Arc::new(plain_job()), Arc::new(rich_job())]);
    script.answers(all.clone());
    assert_eq!(client.call(&Call::default(), ListJobs).await, all);
    script.answers(Ok::<_, ApiError>(Vec::<Arc<Job>>::new()));
    assert_eq!(
        client.call(&Call::default(), ListJobs).await,
        Ok(Vec::new())
    );
}

#[tokio::test]
async fn a_job_gets_the_servers_timeouts_where_it_names_none() {
    let fake = Scripted::default();
    let ms = Duration::from_millis;
    let default_policy = Policy {
        enqueue_timeout: ms(4_100),
        claim_timeout: ms(4_200),
        heartbeat_timeout: ms(4_300),
        heartbeat_increment: ms(4_300),
        ..Policy::default()
    };
    let services = Services {
        frontend: Some(Arc::new(fake.clone())),
        default_policy: default_policy.clone(),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let mut client = proto::frontend_client::FrontendClient::new(server.channel());
    for (named, wanted) in [
        (None, default_policy.clone()),
        (
            Some(proto::Policy {
                claim_timeout_ms: Some(700),
                ..proto::Policy::default()
            }),
            Policy {
                claim_timeout: ms(700),
                ..default_policy
            },
        ),
    ] {
        fake.0.answers(Ok::<_, ApiError>(Arc::new(plain_job())));
        let job = proto::Job {
            name: "mail".into(),
            policy: named,
            ..proto::Job::default()
        };
        let ask = proto::PutJobRequest { job: Some(job) };
        client.put_job(ask).await.unwrap();
        let asked = fake.0.calls().pop().unwrap();
        assert!(asked.contains(&format!("{wanted:?}")), "{asked}");
    }
}

#[tokio::test]
async fn numbers_about_a_job_arrive() {
    let (_server, script, client) = start().await;
    let full = JobStats {
        by_state: StateKind::ALL
            .into_iter()
            .map(|kind| (kind, u64::MAX - u64::from(kind.code())))
            .collect(),
        oldest_due_at: Some(Timestamp::EPOCH),
        partial: true,
        age: Duration::from_millis(1_500),
    };
    for stats in [JobStats::default(), full] {
        script.answers(Ok::<_, ApiError>(stats.clone()));
        assert_eq!(
            client
                .call(&Call::default(), GetJobStats { name: name("a") })
                .await,
            Ok(stats)
        );
    }
}

#[tokio::test]
async fn f_005_submits_arrive_byte_for_byte_and_each_has_its_answer() {
    let (_server, script, client) = start().await;
    let tasks = vec![plain_submit(), rich_submit(), unique_submit()];
    let submitted = |existed| Submitted {
        job: name("b"),
        id: id(9),
        state: StateKind::Enqueued,
        run_at: Timestamp::MAX,
        existed,
        replaced: existed,
    };
    let error = errors().pop().unwrap();
    let answers = vec![Ok(submitted(true)), Err(error), Ok(submitted(false))];
    script.answers(Ok::<_, ApiError>(answers.clone()));
    let submit = Submit { tasks };
    let got = client.call(&Call::default(), submit.clone()).await;
    assert_eq!(got, Ok(answers));
    assert_eq!(script.calls(), [said("", submit)]);
    assert_eq!(
        client
            .call(&Call::default(), Submit { tasks: Vec::new() })
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn f_021_one_read_returns_everything_known_about_a_task() {
    let (_server, script, client) = start().await;
    let mut all = tasks();
    all.push(bare_task(plain_submit()));
    let waits = [None, Some(Duration::ZERO), Some(MS * 30_000)];
    for (task, wait) in all.iter().zip(waits.iter().cycle()) {
        script.answers(Ok::<_, ApiError>(task.clone()));
        let get = GetTask {
            job: task.job.clone(),
            id: task.id,
            wait: *wait,
        };
        let read = client.call(&Call::default(), get.clone()).await;
        assert_eq!(read.as_ref(), Ok(task));
        assert_eq!(script.calls(), [said("", get)]);
    }
}

#[tokio::test]
async fn lists_arrive_with_their_filters_and_cursors() {
    let (_server, script, client) = start().await;
    let text = |text: &str| Some(Arc::from(text));
    let full = ListQuery {
        states: StateKind::ALL.to_vec(),
        tag: text("t"),
        name: text("n"),
        key: text("k"),
        due_from: Some(Timestamp::EPOCH),
        due_before: Some(Timestamp::MAX),
        cursor: text("next"),
        limit: 1_000,
        ..ListQuery::of(name("a"))
    };
    let some = Page {
        tasks: tasks(),
        next: text("after that"),
    };
    let cases = [(full, some), (ListQuery::of(name("b")), Page::default())];
    for (query, page) in cases {
        script.answers(Ok::<_, ApiError>(page.clone()));
        let list = ListTasks(query);
        let got = client.call(&Call::default(), list.clone()).await;
        assert_eq!(got, Ok(page));
        assert_eq!(script.calls(), [said("", list)]);
    }
}

#[tokio::test]
async fn changes_of_tasks_arrive() {
    let (_server, script, client) = start().await;
    let task = tasks().remove(4);
    let good: Result<Task, ApiError> = Ok(task.clone());
    let (job, id) = (task.job, task.id);

    let reasons = [
        None,
        Some(Arc::from("")),
        Some(Arc::from("no longer wanted")),
    ];
    let modes = [RunningCancel::Refuse, RunningCancel::Request];
    for (reason, running) in reasons.into_iter().zip(modes.into_iter().cycle()) {
        script.answers(good.clone());
        let cancel = Cancel {
            job: job.clone(),
            id,
            running,
            reason,
            family: true,
        };
        let answer = client.call(&Call::default(), cancel.clone()).await;
        assert_eq!(answer, good);
        assert_eq!(script.calls(), [said("", cancel)]);
    }
    let full = Modification {
        run_at: Some(at(0)),
        priority: Priority::new(0).ok(),
        weight: Weight::new(1).ok(),
        payload: Some(Bytes::new()),
    };
    let large = Modification {
        payload: Some(largest()),
        ..Modification::default()
    };
    for change in [full, large] {
        script.answers(good.clone());
        let modify = Modify {
            job: job.clone(),
            id,
            change,
        };
        let answer = client.call(&Call::default(), modify.clone()).await;
        assert_eq!(answer, good);
        assert_eq!(script.calls(), [said("", modify)]);
    }
    script.answers(good.clone());
    let redrive = Redrive {
        job,
        id,
        with_followers: true,
    };
    let answer = client.call(&Call::default(), redrive.clone()).await;
    assert_eq!(answer, good);
    assert_eq!(script.calls(), [said("", redrive)]);
}

#[tokio::test]
async fn workers_arrive() {
    let (_server, script, client) = start().await;
    let bare = WorkerRecord {
        id: worker(),
        kind: Arc::from("executor"),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 0,
        embedded: false,
        started_at: Timestamp::EPOCH,
        seen_at: Timestamp::EPOCH,
        metadata: dueline_ports::Metadata::new(),
    };
    let full = WorkerRecord {
        jobs: vec![name("a"), name("b")],
        handlers: vec![Arc::from("exec"), Arc::from("http")],
        concurrency: u32::MAX,
        embedded: true,
        started_at: at(1),
        seen_at: Timestamp::MAX,
        ..bare.clone()
    };
    let workers: Result<_, ApiError> = Ok(vec![bare, full]);
    script.answers(workers.clone());
    assert_eq!(
        client.call(&Call::default(), ListWorkers::default()).await,
        workers
    );
}

#[tokio::test]
async fn every_error_arrives_with_all_its_fields() {
    let (_server, script, client) = start().await;
    for error in errors() {
        script.answers(Err::<ShownJob, _>(error.clone()));
        assert_eq!(
            client
                .call(&Call::default(), GetJob::definition(name("a")))
                .await,
            Err(error.clone())
        );
        script.answers(Err::<Task, _>(error.clone()));
        let answer = client
            .call(
                &Call::default(),
                Redrive {
                    job: name("a"),
                    id: id(1),
                    with_followers: false,
                },
            )
            .await;
        assert_eq!(answer, Err(error.clone()));
        let answers: Vec<Result<Submitted, _>> = vec![Err(error)];
        script.answers(Ok::<_, ApiError>(answers.clone()));
        let submit = Submit {
            tasks: vec![plain_submit()],
        };
        assert_eq!(client.call(&Call::default(), submit).await, Ok(answers));
    }
}

#[tokio::test]
async fn f_012_the_context_of_a_call_travels_as_metadata() {
    let group = dueline_runtime::TaskGroup::new();
    let (server, client) = {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        let router =
            axum::Router::new().fallback(move |request: http::Request<axum::body::Body>| {
                record.lock().unwrap().push(request.headers().clone());
                async {
                    tonic::Status::unavailable("only a recorder").into_http::<axum::body::Body>()
                }
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        group.spawn_infallible("recorder", async move {
            axum::serve(listener, router).await.unwrap();
        });
        (seen, Remote::new(&uri).unwrap().frontend())
    };
    let call = Call {
        principal: Some("ann".into()),
        deadline: Some(tokio::time::Instant::now() + Duration::from_secs(5)),
        trace: Some("00-abc-def-01".into()),
        request_id: Some("r-7".into()),
    };
    client.call(&call, ListJobs).await.unwrap_err();
    client.call(&Call::default(), ListJobs).await.unwrap_err();
    let headers = server.lock().unwrap();
    let value = |index: usize, name: &str| {
        let value = headers[index].get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    assert_eq!(value(0, Call::PRINCIPAL).as_deref(), Some("ann"));
    assert_eq!(value(0, Call::TRACE).as_deref(), Some("00-abc-def-01"));
    assert_eq!(value(0, Call::REQUEST_ID).as_deref(), Some("r-7"));
    assert!(value(0, "grpc-timeout").is_some());
    for name in [
        Call::PRINCIPAL,
        Call::TRACE,
        Call::REQUEST_ID,
        "grpc-timeout",
    ] {
        assert_eq!(value(1, name), None, "{name}");
    }
}
