//! Long backlogs, idle jobs, and jobs with several shards.

mod kit;

use std::{collections::BTreeSet, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{Due, NewTask, StateKind, TaskId};
use dueline_ports::{Create, Rng as _, TaskStore as _};
use dueline_store_dynamodb::DynamoOptions;
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

#[tokio::test]
async fn a_backlog_longer_than_one_scan_is_read_to_its_end() {
    let (one, other) = two().await;
    let count = 2_600;
    let due_at = Some(at(1_000));
    let requests: Vec<Create> = (0..count)
        .map(|_| {
            let task = one.task(0);
            // All tasks are due at the same time.
            one.request(NewTask {
                due: Due::from(due_at),
                ..task
            })
        })
        .collect();
    let all: BTreeSet<TaskId> = requests.iter().map(|request| request.task.id).collect();
    for created in one.store.create(at(0), requests).await {
        created.unwrap();
    }
    let mut enqueued = BTreeSet::new();
    let mut ms = 2_000;
    for _ in 0..40 {
        let page = other.due(ms, 400).await;
        assert!(page.tasks.len() <= 400);
        let commands = page.tasks.iter().map(|due| dueline_ports::Command {
            job: due.job.clone(),
            id: due.id,
            event: dueline_domain::Event::Trigger(dueline_domain::Trigger {
                seen: due.kind,
                seen_at: due.trigger_at,
                token: other.rng.token(),
                jitter: dueline_domain::Jitter::default(),
            }),
            write: other.rng.write_id(),
        });
        for applied in other.store.apply(at(ms), commands.collect()).await {
            let applied = applied.unwrap();
            assert!(
                enqueued.insert(applied.task.id),
                "each task is enqueued once"
            );
        }
        if enqueued.len() == count {
            break;
        }
        ms += 1_000;
    }
    assert_eq!(enqueued, all);
    // The counts of so many tasks are cached, and the answer says how old they are.
    let name = job("mail").name;
    let counted = one.store.stats(&name).await.unwrap();
    assert!(counted.age.is_zero(), "{counted:?}");
    let count = u64::try_from(count).unwrap();
    assert_eq!(counted.by_state.get(&StateKind::Enqueued), Some(&count));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = one.store.stats(&name).await.unwrap();
    assert!(again.age >= Duration::from_millis(5), "{again:?}");
    assert_eq!(again.by_state, counted.by_state);
    // A task that becomes due now is found although all the others are still before it in the index.
    let late = one
        .create(
            ms,
            NewTask {
                due: Due::At(at(ms + 500)),
                ..one.task(0)
            },
        )
        .await;
    let mut scans = 0;
    while !other
        .due(ms + 1_000 + scans * 1_000, 400)
        .await
        .tasks
        .iter()
        .any(|due| due.id == late.id)
    {
        scans += 1;
        assert!(
            scans < 3,
            "a task that becomes due behind a backlog waits too long"
        );
    }
    // The newest task is claimed after minutes. The read of owned tasks finds it behind all the enqueued ones.
    let newest = all.last().unwrap();
    let waiting = one.store.get(&name, newest).await.unwrap().unwrap();
    let running = one.run(400_000, &waiting).await;
    let owned = one.store.owned(at(401_000), None).await.unwrap();
    let ids: Vec<_> = owned.iter().map(|owned| owned.id).collect();
    assert_eq!(ids, [running.id]);
}

#[tokio::test]
async fn lost_runs_of_a_paused_job_with_a_backlog_are_found() {
    let (one, other) = two().await;
    let mut requests = Vec::new();
    for _ in 0..2_100 {
        requests.push(one.request(NewTask {
            due: Due::At(at(10)),
            ..one.task(0)
        }));
    }
    for created in one.store.create(at(0), requests).await {
        created.unwrap();
    }
    let running = one.create(0, one.task(0)).await;
    let running = one.run(900, &running).await;
    let mut found = false;
    for second in 0..60_i64 {
        let query = dueline_ports::DueQuery {
            now: at(20_000 + second * 1_000),
            limit_per_job: 500,
            pending_limits: [(running.job.clone(), 0)].into(),
            owed_limit: 0,
            owed_limits: Default::default(),
            share: None,
        };
        let page = other.store.due(query).await.unwrap();
        if page.tasks.iter().any(|due| due.id == running.id) {
            assert_eq!(page.tasks.len(), 1);
            found = true;
            break;
        }
    }
    assert!(found, "the lost run is never found");
}

#[tokio::test]
async fn an_idle_job_is_scanned_less_often_until_a_task_is_submitted() {
    let options = DynamoOptions {
        idle_poll: Duration::from_secs(2),
        definitions_ttl: Duration::from_secs(600),
        ..kit::table(2).await
    };
    let (store, connection) = kit::faulty_on(&options).await;
    let driver = TaskDriver::new(store).await;
    for second in 0..60 {
        driver.due(second * 1_000, 10).await;
    }
    let queries = |connection: &kit::FaultyConnection| {
        connection
            .take()
            .iter()
            .filter(|call| call.operation == "Query")
            .count()
    };
    queries(&connection);
    for second in 60..80 {
        driver.due(second * 1_000, 10).await;
    }
    assert_eq!(queries(&connection), 10, "only every second scan");
    let task = driver.create(80_100, driver.task(0)).await;
    let due_at = task.state.trigger_at().unwrap();
    let page = driver.due(81_000, 10).await;
    assert!(page.next_at.is_some_and(|next| next <= due_at));
}

#[tokio::test]
async fn additional_shards_of_the_index_hide_no_task() {
    let (one, _) = two().await;
    let mut ids = BTreeSet::new();
    for _ in 0..10 {
        ids.insert(one.create(0, one.task(0)).await.id);
    }
    // The writes of a process that doubles the shards: the definition with its version, and the counter of changes.
    let client = kit::client().await;
    let blob = |text: &str| AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(text));
    for (pk, sk, change) in [
        ("jobs", "mail", "SET ds = :n ADD n :one"),
        ("meta", "jobs", "ADD n :one"),
    ] {
        let mut call = client
            .update_item()
            .table_name(one.store.table())
            .key("pk", AttributeValue::S(pk.into()))
            .key("sk", blob(sk))
            .update_expression(change)
            .expression_attribute_values(":one", AttributeValue::N("1".into()));
        if pk == "jobs" {
            call = call.expression_attribute_values(":n", AttributeValue::N("4".into()));
        }
        call.send().await.unwrap();
    }
    // Stores that are opened now read the new definition.
    let other = one.with(&kit::open(one.store.options()).await);
    let one = one.with(&kit::open(one.store.options()).await);
    for _ in 0..10 {
        ids.insert(one.create(0, one.task(0)).await.id);
    }
    for driver in [&one, &other] {
        let due = driver.due(100_000, 100).await.tasks;
        assert_eq!(due.iter().map(|due| due.id).collect::<BTreeSet<_>>(), ids);
        assert_eq!(
            driver
                .store
                .ready(&job("mail").name, 100)
                .await
                .unwrap()
                .len(),
            20
        );
    }
    let shards: BTreeSet<String> = {
        let scan = client
            .scan()
            .table_name(one.store.table())
            .send()
            .await
            .unwrap();
        let items = scan.items.unwrap();
        items
            .iter()
            .filter_map(|item| Some(item.get("d")?.as_s().ok()?.clone()))
            .collect()
    };
    assert!(shards.len() > 1, "{shards:?}");
}

/// Read units of each poll of a backlog of enqueued tasks whose messages wait in their queue, second by second.
async fn units_of_polls(tasks: usize, seconds: i64) -> Vec<f64> {
    let options = DynamoOptions {
        definitions_ttl: Duration::from_secs(60),
        ..kit::table(4).await
    };
    let one = TaskDriver::new(kit::open(&options).await).await;
    let consumer = one.with(&kit::open(&options).await);
    for second in 0..10 {
        let requests = (0..tasks / 10).map(|_| one.request(one.task(100)));
        let requests: Vec<Create> = requests.collect();
        for created in one.store.create(at(second * 1_000), requests).await {
            created.unwrap();
        }
    }
    let mut units = Vec::new();
    for second in 10..10 + seconds {
        let before = consumer.cost().read_units;
        let page = consumer.due(second * 1_000, 500).await;
        for due in &page.tasks {
            let task = consumer.store.get(&due.job, &due.id).await.unwrap();
            consumer.trigger(second * 1_000, &task.unwrap()).await;
        }
        units.push(consumer.cost().read_units - before);
    }
    units
}

#[tokio::test]
async fn a_long_backlog_is_polled_for_a_bounded_number_of_read_units() {
    let units = units_of_polls(4_000, 45).await;
    // The first polls read what this process has not read before.
    let (first, later) = units.split_at(4);
    assert!(first.iter().sum::<f64>() <= 2_500.0, "{units:?}");
    let each = later.iter().sum::<f64>() / 41.0;
    // Each task is read again every fifteen seconds at the latest, for half a unit. The rest is the index.
    assert!(each <= 250.0, "{each} read units a second: {units:?}");
}
