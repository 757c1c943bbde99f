//! Several processes on one table, and programs of different versions.

mod kit;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Job, NewTask, Policy, StateKind, TaskOptions};
use dueline_ports::{JobStore as _, ListQuery, StoreError, TaskStore as _};
use dueline_store_dynamodb::{DynamoOptions, DynamoStore};
use kit::{TaskDriver, at, job};

/// Two stores on one table that cache definitions.
async fn two() -> (TaskDriver, TaskDriver) {
    let options = DynamoOptions {
        definitions_ttl: Duration::from_millis(200),
        ..kit::table(4).await
    };
    let one = TaskDriver::new(kit::open(&options).await).await;
    let other = one.with(&kit::open(&options).await);
    (one, other)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} never happens");
}

#[tokio::test]
async fn a_changed_definition_is_used_by_all_processes_within_two_times_to_live() {
    let (one, other) = two().await;
    let name = job("mail").name;
    assert!(!other.store.job(&name).await.unwrap().unwrap().paused);
    one.store.pause_job(&name, true, at(1)).await.unwrap();
    assert!(
        one.store.job(&name).await.unwrap().unwrap().paused,
        "at once by the process that changed it"
    );
    let began = tokio::time::Instant::now();
    until("the pause", async || {
        other.store.job(&name).await.unwrap().unwrap().paused
    })
    .await;
    assert!(began.elapsed() < Duration::from_millis(1_500));
}

#[tokio::test]
async fn no_task_is_lost_that_is_submitted_while_another_process_deletes_its_job() {
    let (one, other) = two().await;
    let name = job("mail").name;
    other.store.job(&name).await.unwrap();
    let deleting = {
        let (store, name) = (one.store.clone(), name.clone());
        async move { store.delete_job(&name).await }
    };
    let is_over = AtomicBool::new(false);
    let deleting = async {
        let deleted = deleting.await;
        is_over.store(true, Ordering::SeqCst);
        deleted
    };
    // Submits run before, while and after the unfinished tasks are counted.
    let submitting = async {
        let mut made = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            let request = other.request(other.task(10));
            let created = other.store.create(at(0), vec![request]).await.remove(0);
            made.extend(created.ok());
        }
        made
    };
    let (deleted, made) = tokio::join!(deleting, submitting);
    // Tasks that were submitted before all processes knew of the deletion are counted and prevent it.
    match deleted {
        Ok(()) => assert!(made.is_empty(), "{} tasks are lost", made.len()),
        Err(StoreError::InUse { unfinished, .. }) => assert!(unfinished >= 1 && !made.is_empty()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_command_of_an_owner_is_refused_after_another_process_has_reclaimed_its_task() {
    let (one, other) = two().await;
    let task = one.create(0, one.task(10)).await;
    let claimed = one.run(1, &task).await;
    // The other process reclaims the task and enqueues it again; the first one has the old row in its cache.
    let lost = other.trigger(60_000, &claimed).await;
    assert_eq!(lost.kind(), StateKind::Enqueued);
    let late = one
        .send(
            60_001,
            one.command(
                &claimed,
                one.finish_event(&claimed, dueline_domain::Outcome::Success { result: None }),
            ),
        )
        .await;
    let refused = matches!(&late, Err(StoreError::Rejected(rejected)) if rejected.reason == dueline_domain::Reason::Lost);
    assert!(refused, "{late:?}");
    assert_eq!(one.get(&task).await, Some(lost));
}

#[tokio::test]
async fn attributes_of_a_newer_program_survive_all_transitions() {
    let (one, _) = two().await;
    let task = one.create(0, one.task(10)).await;
    let client = kit::client().await;
    let key = kit::key_of(&one, &task).await;
    let call = client
        .update_item()
        .table_name(one.store.table())
        .set_key(Some(key));
    let call = call
        .update_expression("SET newer = :v")
        .expression_attribute_values(":v", AttributeValue::S("kept".into()));
    call.send().await.unwrap();
    let task = one.run(1, &task).await;
    let task = one.fail(2, &task, "once").await;
    let task = one.trigger(90_000, &task).await;
    let task = one.run(90_001, &task).await;
    let task = one.succeed(90_002, &task).await;
    let item = kit::stored_item(&one, &task).await;
    assert_eq!(item.get("newer"), Some(&AttributeValue::S("kept".into())));
    assert_eq!(one.get(&task).await, Some(task));
}

/// The definition as it is stored, after `change` was applied if there is one.
async fn definition(driver: &TaskDriver, change: Option<&dyn Fn(&str) -> String>) -> String {
    let client = kit::client().await;
    let key = [
        ("pk", AttributeValue::S("jobs".into())),
        ("sk", AttributeValue::B(b"mail".to_vec().into())),
    ];
    let key = key.map(|(name, value)| (name.to_owned(), value));
    let (key, table) = (Some(key.into()), driver.store.table());
    let read = client.get_item().table_name(table).set_key(key.clone());
    let item = read.send().await.unwrap().item.unwrap();
    let json = item["j"].as_s().unwrap().clone();
    let Some(change) = change else {
        return json;
    };
    let json = change(&json);
    let write = client.update_item().table_name(table).set_key(key);
    let write = write
        .update_expression("SET j = :j")
        .expression_attribute_values(":j", AttributeValue::S(json.clone()));
    write.send().await.unwrap();
    json
}

#[tokio::test]
async fn fields_of_a_newer_program_in_a_definition_survive_an_older_program() {
    let options = kit::table(4).await;
    let one = TaskDriver::new(kit::open(&options).await).await;
    let add = |json: &str| {
        let json = json.replacen('{', r#"{"newer":{"kept":[1,2.5]},"#, 1);
        json.replace(r#""standard":{"#, r#""standard":{"within":7,"#)
    };
    definition(&one, Some(&add)).await;
    // A store that is opened now reads the new fields.
    let older = one.with(&kit::open(&options).await);
    let name = job("mail").name;
    let kept = r#""newer":{"kept":[1,2.5]}"#;
    older.store.pause_job(&name, true, at(1)).await.unwrap();
    let stored = definition(&one, None).await;
    assert!(
        stored.contains(kept) && stored.contains(r#""paused":true"#),
        "{stored}"
    );
    older
        .put(Job {
            info: "other words".into(),
            ..job("mail")
        })
        .await;
    let stored = definition(&one, None).await;
    assert!(
        stored.contains(kept) && stored.contains("other words") && stored.contains(r#""within":7"#),
        "{stored}"
    );
}

#[tokio::test]
async fn an_unreadable_definition_is_replaced_by_a_new_one() {
    let options = kit::table(4).await;
    let one = TaskDriver::new(kit::open(&options).await).await;
    let task = one.create(0, one.task(10)).await;
    definition(&one, Some(&|_| "nonsense".to_owned())).await;
    let other = one.with(&kit::open(&options).await);
    let lost = other.store.get(&task.job, &task.id).await;
    assert!(!matches!(lost, Ok(Some(_))), "{lost:?}");
    other.put(job("mail")).await;
    assert_eq!(other.get(&task).await, Some(task));
}

#[tokio::test]
async fn a_task_in_a_state_of_a_newer_program_does_not_affect_others() {
    let (one, other) = two().await;
    let odd = one.create(0, one.task(10)).await;
    let good = one.create(0, one.task(10)).await;
    let client = kit::client().await;
    let key = kit::key_of(&one, &odd).await;
    let call = client
        .update_item()
        .table_name(one.store.table())
        .set_key(Some(key));
    let call = call
        .update_expression("SET s = :v")
        .expression_attribute_values(":v", AttributeValue::N("42".into()));
    call.send().await.unwrap();
    let read = other.store.get(&odd.job, &odd.id).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    let due: Vec<_> = other
        .due(900_000, 10)
        .await
        .tasks
        .iter()
        .map(|due| due.id)
        .collect();
    assert_eq!(due, [good.id]);
    let listed = other
        .store
        .list(ListQuery::of(good.job.clone()))
        .await
        .unwrap();
    assert_eq!(listed.tasks, std::slice::from_ref(&good));
    assert_eq!(other.store.ready(&good.job, 10).await.unwrap().len(), 1);
    other.run(900_001, &good).await;
}

#[tokio::test]
async fn the_pruner_deletes_finished_tasks_and_orphans() {
    let (one, _) = two().await;
    let retention = Some(Duration::from_secs(10));
    let policy = Policy {
        retention,
        ..Policy::default()
    };
    one.put(Job {
        policy,
        ..job("mail")
    })
    .await;
    let keyed = |key: &str| {
        let key = Some(key.into());
        let options = Some(Box::new(TaskOptions {
            key,
            ..TaskOptions::default()
        }));
        NewTask {
            options,
            ..one.task(3_000)
        }
    };
    // One task is finished, one is unfinished, and one expired while its key and its payload remain.
    let done = one.create(0, keyed("done")).await;
    let done = one.run(1, &done).await;
    one.succeed(2, &done).await;
    let alive = one.create(0, keyed("alive")).await;
    let expired = one.create(0, keyed("expired")).await;
    let client = kit::client().await;
    let key = kit::key_of(&one, &expired).await;
    client
        .delete_item()
        .table_name(one.store.table())
        .set_key(Some(key))
        .send()
        .await
        .unwrap();
    let keys_of_items = async || {
        let scan = client
            .scan()
            .table_name(one.store.table())
            .send()
            .await
            .unwrap();
        let mut prefixes = Vec::new();
        for item in scan.items.unwrap() {
            let AttributeValue::S(pk) = &item["pk"] else {
                panic!("a text");
            };
            if pk.starts_with("t#") || pk.starts_with("k#") {
                prefixes.push(pk[..2].to_owned());
            }
        }
        prefixes.sort_unstable();
        prefixes
    };
    assert_eq!(
        keys_of_items().await.len(),
        8,
        "three keys, three payloads, two tasks"
    );
    let mut deleted = 0;
    loop {
        let pruned = one.store.prune(at(8_000_000), 1).await.unwrap();
        deleted += pruned.deleted;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(deleted, 1);
    assert_eq!(
        keys_of_items().await,
        ["k#", "t#", "t#"],
        "key, task and payload of the unfinished task remain"
    );
    assert_eq!(one.get(&alive).await.as_ref(), Some(&alive));
    // The key can be used again.
    assert_eq!(
        one.create(9, keyed("expired")).await.kind(),
        StateKind::Enqueued
    );
}

#[tokio::test]
async fn the_pruner_deletes_the_remains_of_a_deleted_job() {
    let (one, _) = two().await;
    for _ in 0..30 {
        let task = one.create(0, one.task(2_000)).await;
        let task = one.run(1, &task).await;
        one.succeed(2, &task).await;
    }
    one.store.delete_job(&job("mail").name).await.unwrap();
    let client = kit::client().await;
    let left = async || {
        let scan = client
            .scan()
            .table_name(one.store.table())
            .send()
            .await
            .unwrap();
        let items = scan.items.unwrap();
        items
            .iter()
            .filter(|item| item["pk"] != AttributeValue::S("meta".into()))
            .count()
    };
    assert!(left().await > 60);
    one.put(job("mail")).await;
    let fresh = one.create(0, one.task(10)).await;
    while one.store.prune(at(10), 7).await.unwrap().more {}
    assert_eq!(left().await, 2, "the new job and its task");
    assert_eq!(one.get(&fresh).await, Some(fresh));
}

#[tokio::test]
async fn a_store_can_be_opened_with_an_existing_client() {
    let options = kit::table(2).await;
    let store = DynamoStore::from_client(
        kit::client().await,
        &options.table,
        dueline_aws::Meter::default(),
    )
    .await;
    let driver = TaskDriver::new(Arc::new(store.expect("a store"))).await;
    let task = driver.create(0, driver.task(10)).await;
    assert_eq!(driver.get(&task).await, Some(task));
}
