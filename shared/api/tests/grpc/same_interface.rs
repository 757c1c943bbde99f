//! One use of a frontend, run against one in this process and one behind a connection.

use std::sync::Arc;

use bytes::Bytes;
use dueline_api::{
    ApiError, ErrorKind, Frontend, Submitted,
    grpc::{FrontendClient, Services},
};
use dueline_domain::{
    Job, Modification, NewTask, Priority, RunningCancel, StateKind, TaskId, limits,
};
use dueline_ports::{ListQuery, Page};

use crate::{
    memory::MemoryFrontend,
    server::TestServer,
    values::{at, id, name, plain_job, rich_job},
};

async fn remote() -> (TestServer, FrontendClient) {
    let services = Services {
        frontend: Some(Arc::new(MemoryFrontend::default())),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = server.remote().frontend();
    (server, client)
}

#[tokio::test]
async fn f_135_the_same_use_of_a_frontend_in_this_process() {
    use_it(MemoryFrontend::default()).await;
}

#[tokio::test]
async fn f_135_the_same_use_of_a_frontend_on_another_host() {
    let (_server, client) = remote().await;
    use_it(client).await;
}

/// Cannot tell which of the two it is given.
async fn use_it(frontend: impl Frontend) {
    let job = Job {
        name: name("mail"),
        ..rich_job()
    };
    let stored = frontend.put_job(job.clone()).await.unwrap();
    assert_eq!(stored.policy, job.policy);
    assert_eq!(frontend.job(&job.name).await, Ok(stored));
    frontend.put_job(plain_job()).await.unwrap();
    assert_eq!(frontend.jobs().await.unwrap().len(), 2);
    let resumed = frontend.pause_job(&job.name, false).await.unwrap();
    assert!(!resumed.paused);
    let unknown = frontend.job(&name("nope")).await;
    assert_error(unknown, ErrorKind::NotFound, "unknown_job");

    submit_some(&frontend, &job.name).await;
    change_some(&frontend, &job.name).await;

    let refused = frontend.delete_job(&job.name).await;
    assert_error(refused, ErrorKind::Invalid, "invalid");
    assert_eq!(frontend.delete_job(&name("a")).await, Ok(()));
    assert_eq!(frontend.workers().await, Ok(Vec::new()));
}

async fn submit_some(frontend: &impl Frontend, job: &dueline_domain::JobName) {
    let submit = |number, payload: Bytes| NewTask {
        id_is_given: true,
        ..NewTask::now(id(number), job.clone(), payload)
    };
    let later = NewTask {
        run_at: Some(at(2_000_000)),
        ..submit(2, Bytes::from_static(b"later"))
    };
    let nowhere = NewTask {
        job: name("nope"),
        ..submit(3, Bytes::new())
    };
    let batch = vec![
        submit(1, Bytes::new()),
        later,
        nowhere,
        submit(1, Bytes::new()),
    ];
    let answers = frontend.submit(batch).await;
    let submitted = |number, state, run_at, existed| {
        Ok::<_, ApiError>(Submitted {
            job: job.clone(),
            id: id(number),
            state,
            run_at: at(run_at),
            existed,
        })
    };
    assert_eq!(
        answers[0],
        submitted(1, StateKind::Enqueued, 1_000_000, false)
    );
    assert_eq!(answers[1], submitted(2, StateKind::New, 2_000_000, false));
    assert_error(answers[2].clone(), ErrorKind::NotFound, "unknown_job");
    assert_eq!(
        answers[3],
        submitted(1, StateKind::Enqueued, 1_000_000, true)
    );
    let other = frontend
        .submit(vec![submit(1, Bytes::from_static(b"x"))])
        .await;
    assert_error(other[0].clone(), ErrorKind::Conflict, "exists");

    let stats = frontend.job_stats(job).await.unwrap();
    let counts: Vec<_> = stats.by_state.into_iter().collect();
    assert_eq!(counts, [(StateKind::New, 1), (StateKind::Enqueued, 1)]);
    assert!(stats.oldest_due_at.is_some());
}

async fn change_some(frontend: &impl Frontend, job: &dueline_domain::JobName) {
    let change = Modification {
        priority: Priority::new(50).ok(),
        payload: Some(Bytes::from_static(b"changed")),
        ..Modification::default()
    };
    let modified = frontend.modify(job, &id(2), change).await.unwrap();
    assert_eq!(modified.payload, Bytes::from_static(b"changed"));
    assert_eq!(frontend.task(job, &id(2), None).await, Ok(modified));
    let reason = Some(Arc::from("not needed"));
    let cancelled = frontend
        .cancel(job, &id(2), RunningCancel::Refuse, reason)
        .await
        .unwrap();
    assert_eq!(cancelled.kind(), StateKind::Cancelled);
    let again = frontend.redrive(job, &id(2)).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert_eq!(again.state(), Some(StateKind::Cancelled));
    let missing = frontend.task(job, &id(99), None).await;
    assert_error(missing, ErrorKind::NotFound, "unknown_task");

    let only_enqueued = ListQuery {
        states: vec![StateKind::Enqueued],
        ..ListQuery::of(job.clone())
    };
    let page = frontend.tasks(only_enqueued).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
    let mut one_by_one = ListQuery {
        limit: 1,
        ..ListQuery::of(job.clone())
    };
    let first = frontend.tasks(one_by_one.clone()).await.unwrap();
    assert_eq!(first.tasks[0].id, id(1));
    one_by_one.cursor = first.next;
    let Page { tasks, next } = frontend.tasks(one_by_one).await.unwrap();
    assert_eq!((tasks[0].id, next), (id(2), None));
}

fn assert_error<T: std::fmt::Debug>(answer: Result<T, ApiError>, kind: ErrorKind, reason: &str) {
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (kind, reason), "{error}");
}

#[tokio::test]
async fn batches_and_pages_larger_than_a_message_still_arrive_whole() {
    let (_server, client) = remote().await;
    client.put_job(plain_job()).await.unwrap();
    let payload = Bytes::from(vec![7; limits().payload_bytes_max]);
    let len = 150_u8;
    let new = |number| NewTask::now(id(number), name("a"), payload.clone());
    let submitted = client.submit((0..len).map(new).collect()).await;
    assert_eq!(submitted.len(), usize::from(len));
    assert!(submitted.iter().all(Result::is_ok));

    let mut query = ListQuery {
        limit: 1_000,
        ..ListQuery::of(name("a"))
    };
    let mut ids: Vec<TaskId> = Vec::new();
    loop {
        let page = client.tasks(query.clone()).await.unwrap();
        assert!(page.tasks.iter().all(|task| task.payload == payload));
        ids.extend(page.tasks.iter().map(|task| task.id));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, (0..len).map(id).collect::<Vec<_>>());
}
