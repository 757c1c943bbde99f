//! Answers that are lost, calls that are refused, work that is left undone.

mod kit;

use std::sync::Arc;

use dueline_domain::{Event, Extras, NewTask, RunningCancel, StateKind, Task};
use dueline_ports::{
    JobStore as _, ListQuery, StoreError, TaskStore as _, WorkerRecord, WorkerStore as _,
};
use kit::{Act, Play, Wire, at, job};

async fn play() -> (Play, Wire) {
    let (store, wire) = kit::wired().await;
    (Play::new(store).await, wire)
}

fn keyed(play: &Play, key: &str) -> NewTask {
    let extras = Extras {
        key: Some(key.into()),
        ..Extras::default()
    };
    NewTask {
        extras: Some(Box::new(extras)),
        ..play.task(10)
    }
}

#[tokio::test]
async fn a_submit_whose_answer_is_lost_is_one_new_task() {
    let (play, wire) = play().await;
    for bytes in [10, 5_000] {
        wire.fault_after("PutItem", usize::from(bytes > 1_000), 1, Act::Lose);
        let order = play.order(play.task(bytes));
        let (id, write) = (order.task.id, order.write);
        let created = play
            .store
            .create(at(0), vec![order])
            .await
            .remove(0)
            .unwrap();
        assert!(!created.existed, "nobody else made it");
        assert_eq!((created.task.id, created.task.write), (id, write));
        assert_eq!(play.get(&created.task).await.as_ref(), Some(&*created.task));
        assert_eq!(wire.faults_left(), 0);
    }
}

#[tokio::test]
async fn a_submit_with_a_key_whose_answer_is_lost_is_one_new_task() {
    let (play, wire) = play().await;
    wire.fault("TransactWriteItems", 1, Act::Lose);
    let order = play.order(keyed(&play, "k"));
    let created = play
        .store
        .create(at(0), vec![order.clone()])
        .await
        .remove(0)
        .unwrap();
    assert!(!created.existed);
    // Once more by the caller, who may have lost our answer in turn.
    let again = play
        .store
        .create(at(9), vec![order])
        .await
        .remove(0)
        .unwrap();
    assert_eq!(again.task, created.task);
    // The same under another id is the first one.
    let other = play.order(keyed(&play, "k"));
    let other = play
        .store
        .create(at(9), vec![other])
        .await
        .remove(0)
        .unwrap();
    assert!(other.existed);
    assert_eq!(other.task, created.task);
    assert_eq!(wire.faults_left(), 0);
}

#[tokio::test]
async fn a_submit_that_nobody_answers_is_told_as_unknown_and_can_be_repeated() {
    let (play, wire) = play().await;
    // The engine executes it, and none of the client's own tries gets an answer.
    wire.fault("PutItem", 3, Act::Lose);
    let order = play.order(play.task(10));
    let first = play
        .store
        .create(at(0), vec![order.clone()])
        .await
        .remove(0);
    assert!(
        first.as_ref().is_err_and(StoreError::outcome_unknown),
        "{first:?}"
    );
    let again = play
        .store
        .create(at(50), vec![order])
        .await
        .remove(0)
        .unwrap();
    assert!(!again.existed);
    assert_eq!(
        again.task.created_at,
        at(0),
        "it is the one that was stored first"
    );
}

#[tokio::test]
async fn every_command_whose_answer_is_lost_has_succeeded_once() {
    let (play, wire) = play().await;
    let task = play.create(0, play.task(3_000)).await;
    let lose = async |ms: i64, task: &Task, event: Event| {
        wire.fault("UpdateItem", 1, Act::Lose);
        let applied = play.send(ms, play.command(task, event)).await.unwrap();
        assert_eq!(wire.faults_left(), 0);
        assert_eq!(play.get(task).await.as_ref(), Some(&*applied.task));
        *applied.task
    };
    let task = lose(10, &task, play.claim_event(&task)).await;
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
    let task = lose(50, &task, play.finish_event(&task, outcome)).await;
    assert_eq!((task.kind(), task.tries), (StateKind::Succeeded, 1));
    assert_eq!(task.result.as_ref().unwrap().len(), 9_000);
}

#[tokio::test]
async fn a_command_that_nobody_answers_is_told_as_unknown_and_recognised_when_repeated() {
    let (play, wire) = play().await;
    let task = play.create(0, play.task(10)).await;
    let command = play.command(&task, play.claim_event(&task));
    wire.fault("UpdateItem", 3, Act::Lose);
    let first = play.send(10, command.clone()).await;
    assert!(
        first.as_ref().is_err_and(StoreError::outcome_unknown),
        "{first:?}"
    );
    let again = play.send(20, command).await.unwrap();
    assert!(again.repeated);
    assert_eq!(
        (again.task.kind(), again.task.tries),
        (StateKind::Processing, 1)
    );
}

#[tokio::test]
async fn a_command_that_never_arrived_can_be_repeated() {
    let (play, wire) = play().await;
    let task = play.create(0, play.task(10)).await;
    let command = play.command(&task, play.claim_event(&task));
    wire.fault("UpdateItem", 3, Act::Vanish);
    assert!(play.send(10, command.clone()).await.is_err());
    let again = play.send(20, command).await.unwrap();
    assert!(!again.repeated);
    assert_eq!(again.task.kind(), StateKind::Processing);
}

#[tokio::test]
async fn throttling_is_waited_out_and_told_when_it_lasts() {
    let (play, wire) = play().await;
    let code = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
    wire.fault("PutItem", 2, Act::Refuse(400, code));
    let task = play.create(0, play.task(10)).await;
    wire.fault("UpdateItem", 3, Act::Refuse(400, code));
    let refused = play
        .send(1, play.command(&task, play.claim_event(&task)))
        .await;
    assert!(matches!(refused, Err(StoreError::Throttled)), "{refused:?}");
    assert_eq!(
        play.get(&task).await.as_ref(),
        Some(&task),
        "nothing happened"
    );
    play.run(2, &task).await;
    for operation in ["Query", "BatchGetItem"] {
        wire.fault(operation, 1, Act::Refuse(500, "InternalServerError"));
    }
    assert_eq!(play.due(100_000, 10).await.tasks.len(), 1);
}

#[tokio::test]
async fn transactions_that_meet_are_tried_again() {
    let (play, wire) = play().await;
    let code = "com.amazonaws.dynamodb.v20120810#TransactionInProgressException";
    wire.fault("TransactWriteItems", 1, Act::Refuse(400, code));
    let created = play
        .store
        .create(at(0), vec![play.order(keyed(&play, "k"))])
        .await
        .remove(0);
    // Whether this one is told or waited out, the next one finds things in order.
    drop(created);
    let again = play
        .store
        .create(at(0), vec![play.order(keyed(&play, "k"))])
        .await
        .remove(0);
    again.expect("a task");
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, order) = (play.store.clone(), play.order(keyed(&play, "raced")));
        racing.spawn(async move { store.create(at(1), vec![order]).await.remove(0) });
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
async fn what_is_left_undone_is_done_in_the_end() {
    let (play, wire) = play().await;
    let record = |n: u64| WorkerRecord {
        id: dueline_domain::WorkerId::new("w", n).unwrap(),
        kind: Arc::from("executor"),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
        started_at: at(0),
        seen_at: at(0),
    };
    wire.fault("BatchWriteItem", 2, Act::LeaveUndone);
    play.store
        .put_workers((0..40).map(record).collect())
        .await
        .unwrap();
    assert_eq!(play.store.workers().await.unwrap().len(), 40);
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(play.create(0, play.task(2_000)).await);
    }
    wire.fault("BatchGetItem", 2, Act::LeaveUndone);
    assert_eq!(play.due(100_000, 100).await.tasks.len(), 10);
    wire.fault("BatchGetItem", 3, Act::LeaveUndone);
    assert_eq!(play.get(&tasks[3]).await.as_ref(), Some(&tasks[3]));
    assert_eq!(wire.faults_left(), 0);
    wire.fault("BatchWriteItem", 8, Act::LeaveUndone);
    let refused = play.store.remove_workers(vec![record(3).id]).await;
    assert!(matches!(refused, Err(StoreError::Throttled)), "{refused:?}");
}

#[tokio::test]
async fn an_empty_page_is_not_taken_for_the_end() {
    let (play, wire) = play().await;
    for _ in 0..7 {
        play.create(0, play.task(10)).await;
    }
    wire.fault("Query", 2, Act::EmptyPage);
    assert_eq!(play.due(100_000, 100).await.tasks.len(), 7);
    wire.fault("Query", 6, Act::EmptyPage);
    let mut query = ListQuery::of(job("mail").name);
    let mut listed = 0;
    loop {
        let page = play.store.list(query.clone()).await.unwrap();
        listed += page.tasks.len();
        let Some(next) = page.next else {
            break;
        };
        query.cursor = Some(next);
    }
    assert_eq!(listed, 7);
    wire.fault("Query", 3, Act::EmptyPage);
    let stats = play.store.stats(&query.job).await.unwrap();
    assert_eq!(stats.by_state.values().sum::<u64>(), 7);
    assert_eq!(wire.faults_left(), 0);
}

#[tokio::test]
async fn a_definition_whose_answer_is_lost_is_stored_once() {
    let (play, wire) = play().await;
    wire.fault("TransactWriteItems", 1, Act::Lose);
    play.put(job("post")).await;
    wire.fault("TransactWriteItems", 1, Act::Lose);
    let paused = play
        .store
        .pause_job(&job("post").name, true, at(5))
        .await
        .unwrap();
    assert!(paused.paused);
    assert_eq!(play.store.jobs().await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_entry_of_the_index_whose_task_is_not_there_is_passed_and_looked_at_again() {
    let (play, wire) = play().await;
    let task = play.create(0, play.task(10)).await;
    wire.fault("BatchGetItem", 1, Act::FindNothing);
    assert!(play.due(100_000, 10).await.tasks.is_empty());
    let page = play.due(100_000, 10).await;
    assert_eq!(page.tasks.len(), 1);
    assert_eq!(page.tasks[0].id, task.id);
}

#[tokio::test]
async fn a_changed_definition_that_cannot_be_read_back_is_changed_all_the_same() {
    let (play, wire) = play().await;
    let denied = "com.amazonaws.dynamodb.v20120810#AccessDeniedException";
    let name = job("mail").name;
    for paused in [true, false] {
        // The first read is before the change, the second one after it.
        wire.fault_after("GetItem", 1, 1, Act::Refuse(400, denied));
        let put = play.store.pause_job(&name, paused, at(1)).await;
        assert_eq!(put.expect("it is changed").paused, paused);
        assert_eq!(wire.faults_left(), 0);
        let known = play.store.job(&name).await.unwrap().unwrap();
        assert_eq!(known.paused, paused);
    }
    wire.fault_after("GetItem", 3, 1, Act::Refuse(400, denied));
    play.store.delete_job(&name).await.expect("it is gone");
    assert_eq!(wire.faults_left(), 0);
    assert_eq!(play.store.job(&name).await.unwrap(), None);
}
