//! Lost answers, refused calls, and batches that are processed partially.

mod kit;

use std::sync::Arc;

use dueline_domain::{Event, NewTask, RunningCancel, StateKind, Task, TaskOptions};
use dueline_ports::{
    JobStore as _, ListQuery, StoreError, TaskStore as _, WorkerRecord, WorkerStore as _,
};
use kit::{Fault, FaultyConnection, TaskDriver, at, job};

async fn faulty_driver() -> (TaskDriver, FaultyConnection) {
    let (store, connection) = kit::faulty().await;
    (TaskDriver::new(store).await, connection)
}

fn keyed(driver: &TaskDriver, key: &str) -> NewTask {
    let options = TaskOptions {
        key: Some(key.into()),
        ..TaskOptions::default()
    };
    NewTask {
        options: Some(Box::new(options)),
        ..driver.task(10)
    }
}

#[tokio::test]
async fn a_submit_whose_answer_is_lost_is_one_new_task() {
    let (driver, connection) = faulty_driver().await;
    for bytes in [10, 5_000] {
        connection.fault_after("PutItem", usize::from(bytes > 1_000), 1, Fault::LoseAnswer);
        let request = driver.request(driver.task(bytes));
        let (id, write) = (request.task.id, request.write);
        let created = driver
            .store
            .create(at(0), vec![request])
            .await
            .remove(0)
            .unwrap();
        assert!(!created.existed, "this call made it");
        assert_eq!((created.task.id, created.task.write), (id, write));
        assert_eq!(
            driver.get(&created.task).await.as_ref(),
            Some(&*created.task)
        );
        assert_eq!(connection.faults_left(), 0);
    }
}

#[tokio::test]
async fn a_submit_with_a_key_whose_answer_is_lost_is_one_new_task() {
    let (driver, connection) = faulty_driver().await;
    connection.fault("TransactWriteItems", 1, Fault::LoseAnswer);
    let request = driver.request(keyed(&driver, "k"));
    let created = driver
        .store
        .create(at(0), vec![request.clone()])
        .await
        .remove(0)
        .unwrap();
    assert!(!created.existed);
    // The caller repeats the submit, because it may have lost the store's answer.
    let again = driver
        .store
        .create(at(9), vec![request])
        .await
        .remove(0)
        .unwrap();
    assert_eq!(again.task, created.task);
    // A submit with the same key and another id answers the first task.
    let other = driver.request(keyed(&driver, "k"));
    let other = driver
        .store
        .create(at(9), vec![other])
        .await
        .remove(0)
        .unwrap();
    assert!(other.existed);
    assert_eq!(other.task, created.task);
    assert_eq!(connection.faults_left(), 0);
}

#[tokio::test]
async fn a_submit_without_an_answer_has_an_unknown_outcome_and_can_be_repeated() {
    let (driver, connection) = faulty_driver().await;
    // The engine executes it, and none of the SDK's tries gets an answer.
    connection.fault("PutItem", 3, Fault::LoseAnswer);
    let request = driver.request(driver.task(10));
    let first = driver
        .store
        .create(at(0), vec![request.clone()])
        .await
        .remove(0);
    assert!(
        first.as_ref().is_err_and(StoreError::outcome_unknown),
        "{first:?}"
    );
    let again = driver
        .store
        .create(at(50), vec![request])
        .await
        .remove(0)
        .unwrap();
    assert!(!again.existed);
    assert_eq!(again.task.created_at, at(0), "the task of the first submit");
}

#[tokio::test]
async fn every_command_whose_answer_is_lost_has_succeeded_once() {
    let (driver, connection) = faulty_driver().await;
    let task = driver.create(0, driver.task(3_000)).await;
    let lose = async |ms: i64, task: &Task, event: Event| {
        connection.fault("UpdateItem", 1, Fault::LoseAnswer);
        let applied = driver.send(ms, driver.command(task, event)).await.unwrap();
        assert_eq!(connection.faults_left(), 0);
        assert_eq!(driver.get(task).await.as_ref(), Some(&*applied.task));
        *applied.task
    };
    let task = lose(10, &task, driver.claim_event(&task)).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Processing, 1));
    let token = task.state.token().unwrap();
    let task = lose(20, &task, Event::Heartbeat { token }).await;
    let payload = vec![3; 4_000].into();
    let task = lose(30, &task, Event::Checkpoint { token, payload }).await;
    assert_eq!(task.checkpoint.as_ref().unwrap().len(), 4_000);
    let cancel = Event::Cancel {
        running: RunningCancel::Request,
        reason: None,
    };
    let task = lose(40, &task, cancel).await;
    assert!(task.cancel_requested);
    let outcome = dueline_domain::Outcome::Success {
        result: Some(vec![5; 9_000].into()),
    };
    let task = lose(50, &task, driver.finish_event(&task, outcome)).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
    assert_eq!(task.result.as_ref().unwrap().len(), 9_000);
}

#[tokio::test]
async fn a_command_without_an_answer_has_an_unknown_outcome_and_is_recognised_when_repeated() {
    let (driver, connection) = faulty_driver().await;
    let task = driver.create(0, driver.task(10)).await;
    let command = driver.command(&task, driver.claim_event(&task));
    connection.fault("UpdateItem", 3, Fault::LoseAnswer);
    let first = driver.send(10, command.clone()).await;
    assert!(
        first.as_ref().is_err_and(StoreError::outcome_unknown),
        "{first:?}"
    );
    let again = driver.send(20, command).await.unwrap();
    assert!(again.repeated);
    assert_eq!(
        (again.task.kind(), again.task.tries),
        (StateKind::Processing, 1)
    );
}

#[tokio::test]
async fn a_command_that_never_arrived_can_be_repeated() {
    let (driver, connection) = faulty_driver().await;
    let task = driver.create(0, driver.task(10)).await;
    let command = driver.command(&task, driver.claim_event(&task));
    connection.fault("UpdateItem", 3, Fault::LoseCall);
    assert!(driver.send(10, command.clone()).await.is_err());
    let again = driver.send(20, command).await.unwrap();
    assert!(!again.repeated);
    assert_eq!(again.task.kind(), StateKind::Processing);
}

#[tokio::test]
async fn throttled_calls_are_retried_and_reported_when_throttling_lasts() {
    let (driver, connection) = faulty_driver().await;
    let code = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
    connection.fault("PutItem", 2, Fault::Refuse(400, code));
    let task = driver.create(0, driver.task(10)).await;
    connection.fault("UpdateItem", 3, Fault::Refuse(400, code));
    let refused = driver
        .send(1, driver.command(&task, driver.claim_event(&task)))
        .await;
    assert!(matches!(refused, Err(StoreError::Throttled)), "{refused:?}");
    assert_eq!(
        driver.get(&task).await.as_ref(),
        Some(&task),
        "nothing happened"
    );
    driver.run(2, &task).await;
    for operation in ["Query", "BatchGetItem"] {
        connection.fault(operation, 1, Fault::Refuse(500, "InternalServerError"));
    }
    assert_eq!(driver.due(100_000, 10).await.tasks.len(), 1);
}

#[tokio::test]
async fn conflicting_transactions_are_retried() {
    let (driver, connection) = faulty_driver().await;
    let code = "com.amazonaws.dynamodb.v20120810#TransactionInProgressException";
    connection.fault("TransactWriteItems", 1, Fault::Refuse(400, code));
    let created = driver
        .store
        .create(at(0), vec![driver.request(keyed(&driver, "k"))])
        .await
        .remove(0);
    // Whether this submit fails or is retried, the next one succeeds.
    drop(created);
    let again = driver
        .store
        .create(at(0), vec![driver.request(keyed(&driver, "k"))])
        .await
        .remove(0);
    again.expect("a task");
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, request) = (
            driver.store.clone(),
            driver.request(keyed(&driver, "raced")),
        );
        racing.spawn(async move { store.create(at(1), vec![request]).await.remove(0) });
    }
    let made = racing
        .join_all()
        .await
        .into_iter()
        .map(|made| made.expect("a task"));
    let made: Vec<_> = made.collect();
    assert_eq!(made.iter().filter(|created| !created.existed).count(), 1);
    assert!(
        made.iter()
            .all(|created| created.task.id == made[0].task.id)
    );
}

#[tokio::test]
async fn unprocessed_items_of_batches_are_processed_in_the_end() {
    let (driver, connection) = faulty_driver().await;
    let record = |n: u64| WorkerRecord {
        id: dueline_domain::WorkerId::new("w", n).unwrap(),
        kind: Arc::from("executor"),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
        started_at: at(0),
        seen_at: at(0),
        metadata: dueline_ports::Metadata::new(),
    };
    connection.fault("BatchWriteItem", 2, Fault::LeaveUnprocessed);
    driver
        .store
        .put_workers((0..40).map(record).collect())
        .await
        .unwrap();
    assert_eq!(driver.store.workers().await.unwrap().len(), 40);
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(driver.create(0, driver.task(2_000)).await);
    }
    connection.fault("BatchGetItem", 2, Fault::LeaveUnprocessed);
    assert_eq!(driver.due(100_000, 100).await.tasks.len(), 10);
    connection.fault("BatchGetItem", 3, Fault::LeaveUnprocessed);
    assert_eq!(driver.get(&tasks[3]).await.as_ref(), Some(&tasks[3]));
    assert_eq!(connection.faults_left(), 0);
    connection.fault("BatchWriteItem", 8, Fault::LeaveUnprocessed);
    let refused = driver.store.remove_workers(vec![record(3).id]).await;
    assert!(matches!(refused, Err(StoreError::Throttled)), "{refused:?}");
}

#[tokio::test]
async fn an_empty_page_is_not_the_last_page() {
    let (driver, connection) = faulty_driver().await;
    for _ in 0..7 {
        driver.create(0, driver.task(10)).await;
    }
    connection.fault("Query", 2, Fault::EmptyPage);
    assert_eq!(driver.due(100_000, 100).await.tasks.len(), 7);
    connection.fault("Query", 6, Fault::EmptyPage);
    let mut query = ListQuery::of(job("mail").name);
    let mut listed = 0;
    loop {
        let page = driver.store.list(query.clone()).await.unwrap();
        listed += page.tasks.len();
        let Some(next) = page.next else {
            break;
        };
        query.cursor = Some(next);
    }
    assert_eq!(listed, 7);
    connection.fault("Query", 3, Fault::EmptyPage);
    let stats = driver.store.stats(&query.job).await.unwrap();
    assert_eq!(stats.by_state.values().sum::<u64>(), 7);
    assert_eq!(connection.faults_left(), 0);
}

#[tokio::test]
async fn a_definition_whose_answer_is_lost_is_stored_once() {
    let (driver, connection) = faulty_driver().await;
    connection.fault("TransactWriteItems", 1, Fault::LoseAnswer);
    driver.put(job("post")).await;
    connection.fault("TransactWriteItems", 1, Fault::LoseAnswer);
    let paused = driver
        .store
        .pause_job(&job("post").name, true, at(5))
        .await
        .unwrap();
    assert!(paused.paused);
    assert_eq!(driver.store.jobs().await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_index_entry_whose_task_is_not_found_is_skipped_and_checked_again() {
    let (driver, connection) = faulty_driver().await;
    let task = driver.create(0, driver.task(10)).await;
    connection.fault("BatchGetItem", 1, Fault::FindNothing);
    assert!(driver.due(100_000, 10).await.tasks.is_empty());
    let page = driver.due(100_000, 10).await;
    assert_eq!(page.tasks.len(), 1);
    assert_eq!(page.tasks[0].id, task.id);
}

#[tokio::test]
async fn a_change_of_a_definition_succeeds_although_it_cannot_be_read_back() {
    let (driver, connection) = faulty_driver().await;
    let denied = "com.amazonaws.dynamodb.v20120810#AccessDeniedException";
    let name = job("mail").name;
    for paused in [true, false] {
        // The first read is before the change, the second one after it.
        connection.fault_after("GetItem", 1, 1, Fault::Refuse(400, denied));
        let put = driver.store.pause_job(&name, paused, at(1)).await;
        assert_eq!(put.expect("a changed definition").paused, paused);
        assert_eq!(connection.faults_left(), 0);
        let known = driver.store.job(&name).await.unwrap().unwrap();
        assert_eq!(known.paused, paused);
    }
    connection.fault_after("GetItem", 3, 1, Fault::Refuse(400, denied));
    driver.store.delete_job(&name).await.expect("a deleted job");
    assert_eq!(connection.faults_left(), 0);
    assert_eq!(driver.store.job(&name).await.unwrap(), None);
}
