//! Long backlogs, idle jobs, and a growing index.

mod kit;

use std::{collections::BTreeSet, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use dueline_domain::{NewTask, StateKind, TaskId};
use dueline_ports::{Create, Rng as _, TaskStore as _};
use dueline_store_dynamodb::DynamoOptions;
use kit::{Play, at, job};

/// Two stores on one table, with definitions kept for as long as in production.
async fn two() -> (Play, Play) {
    let options = DynamoOptions {
        definitions_ttl: Duration::from_millis(200),
        ..kit::table(4).await
    };
    let one = Play::new(kit::open(&options).await).await;
    let other = one.with(&kit::open(&options).await);
    (one, other)
}

#[tokio::test]
async fn a_backlog_longer_than_one_look_is_read_to_its_end() {
    let (one, other) = two().await;
    let count = 2_600;
    let due_at = Some(at(1_000));
    let orders: Vec<Create> = (0..count)
        .map(|_| {
            let task = one.task(0);
            // All at one time, as at midnight.
            one.order(NewTask {
                run_at: due_at,
                ..task
            })
        })
        .collect();
    let all: BTreeSet<TaskId> = orders.iter().map(|order| order.task.id).collect();
    for created in one.store.create(at(0), orders).await {
        created.unwrap();
    }
    let mut seen = BTreeSet::new();
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
            assert!(seen.insert(applied.task.id), "each one is handed on once");
        }
        if seen.len() == count {
            break;
        }
        ms += 1_000;
    }
    assert_eq!(seen, all);
    // So many are not counted at each question, and the answer says how old it is.
    let name = job("mail").name;
    let counted = one.store.stats(&name).await.unwrap();
    assert!(counted.age.is_zero(), "{counted:?}");
    let count = u64::try_from(count).unwrap();
    assert_eq!(counted.by_state.get(&StateKind::Enqueued), Some(&count));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = one.store.stats(&name).await.unwrap();
    assert!(again.age >= Duration::from_millis(5), "{again:?}");
    assert_eq!(again.by_state, counted.by_state);
    // One that comes up meanwhile is seen although all those are still in the index before it.
    let late = one
        .create(
            ms,
            NewTask {
                run_at: Some(at(ms + 500)),
                ..one.task(0)
            },
        )
        .await;
    let mut looks = 0;
    while !other
        .due(ms + 1_000 + looks * 1_000, 400)
        .await
        .tasks
        .iter()
        .any(|due| due.id == late.id)
    {
        looks += 1;
        assert!(looks < 3, "what comes up after a burst waits too long");
    }
    // The newest of all is claimed after minutes; whoever looks for owned tasks finds it behind all those that wait.
    let newest = all.last().unwrap();
    let waiting = one.store.get(&name, newest).await.unwrap().unwrap();
    let running = one.run(400_000, &waiting).await;
    let owned = one.store.owned(at(401_000), None).await.unwrap();
    let ids: Vec<_> = owned.iter().map(|owned| owned.id).collect();
    assert_eq!(ids, [running.id]);
}

#[tokio::test]
async fn a_paused_job_with_a_backlog_still_tells_of_lost_workers() {
    let (one, other) = two().await;
    let mut orders = Vec::new();
    for _ in 0..2_100 {
        orders.push(one.order(NewTask {
            run_at: Some(at(10)),
            ..one.task(0)
        }));
    }
    for created in one.store.create(at(0), orders).await {
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
            share: None,
        };
        let page = other.store.due(query).await.unwrap();
        if page.tasks.iter().any(|due| due.id == running.id) {
            assert_eq!(page.tasks.len(), 1);
            found = true;
            break;
        }
    }
    assert!(found, "the lost run is never seen");
}

#[tokio::test]
async fn an_idle_job_is_looked_at_less_often_and_woken_by_a_submit() {
    let options = DynamoOptions {
        idle_poll: Duration::from_secs(2),
        definitions_ttl: Duration::from_secs(600),
        ..kit::table(2).await
    };
    let (store, wire) = kit::wired_to(&options).await;
    let play = Play::new(store).await;
    for second in 0..60 {
        play.due(second * 1_000, 10).await;
    }
    let queries = |wire: &kit::Wire| {
        wire.take()
            .iter()
            .filter(|call| call.operation == "Query")
            .count()
    };
    queries(&wire);
    for second in 60..80 {
        play.due(second * 1_000, 10).await;
    }
    assert_eq!(queries(&wire), 10, "every second look only");
    let task = play.create(80_100, play.task(0)).await;
    let due_at = task.state.trigger_at().unwrap();
    let page = play.due(81_000, 10).await;
    assert!(page.next_at.is_some_and(|next| next <= due_at));
}

#[tokio::test]
async fn more_shards_of_the_index_hide_no_task() {
    let (one, _) = two().await;
    let mut ids = BTreeSet::new();
    for _ in 0..10 {
        ids.insert(one.create(0, one.task(0)).await.id);
    }
    // As a busy process does it: more shards, another version, and the counter that everybody looks at.
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
    // Processes that begin now know it.
    let other = one.with(&kit::open(one.store.options()).await);
    let one = one.with(&kit::open(one.store.options()).await);
    for _ in 0..10 {
        ids.insert(one.create(0, one.task(0)).await.id);
    }
    for play in [&one, &other] {
        let due = play.due(100_000, 100).await.tasks;
        assert_eq!(due.iter().map(|due| due.id).collect::<BTreeSet<_>>(), ids);
        assert_eq!(
            play.store
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
