//! What a poll costs beside many idle schedules, counted by the store's meter.

mod kit;

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, PutRequest, WriteRequest},
};
use dueline_domain::{FiringCounts, RuleSpec, Schedule, ScheduleName, ScheduleSpec, WriteId};
use dueline_ports::{DueSchedulesQuery, PutSchedule, SCHEDULE_SHARDS, ScheduleStore as _};
use dueline_store_dynamodb::schema::{DUE_HINT, DUE_KEY, SK};
use futures_util::{StreamExt as _, stream};
use kit::{TaskDriver, at};

const SCHEDULES: u32 = 100_000;
/// Most items of one request.
const BATCH_LEN: usize = 25;

fn schedule(name: &str) -> Schedule {
    Schedule {
        job: "mail".parse().unwrap(),
        name: ScheduleName::parse(name).unwrap(),
        spec: ScheduleSpec {
            rule: RuleSpec {
                timing: "30 2 * * *".to_owned(),
                ..RuleSpec::default()
            },
            ..ScheduleSpec::default()
        },
        paused: None,
        decided_until: at(0),
        next_at: Some(at(2_000)),
        active: Vec::new(),
        queued: None,
        triggers: Vec::new(),
        backfills: Vec::new(),
        counts: FiringCounts::default(),
        recent: Vec::new(),
        created_by: Arc::default(),
        created_at: at(0),
        changed_at: at(0),
        write: WriteId::from_random(1),
    }
}

type Item = HashMap<String, AttributeValue>;

/// The item of the only schedule of the table.
async fn item(client: &Client, table: &str) -> Item {
    let name = AttributeValue::B(b"due".to_vec().into());
    let found = client
        .scan()
        .table_name(table)
        .filter_expression("sk = :name")
        .expression_attribute_values(":name", name)
        .send()
        .await
        .unwrap();
    found.items.unwrap().remove(0)
}

/// A copy of an item as that of another schedule, which is due in years.
fn idle(item: &Item, number: u32) -> WriteRequest {
    let mut item = item.clone();
    let name = format!("i{number:06}").into_bytes();
    item.insert(SK.into(), AttributeValue::B(name.into()));
    let partition = format!("schedules#{}", number % SCHEDULE_SHARDS);
    assert!(item.contains_key(DUE_KEY));
    item.insert(DUE_KEY.into(), AttributeValue::S(partition));
    let hint = at(1_000_000_000 + i64::from(number)).millis().to_string();
    item.insert(DUE_HINT.into(), AttributeValue::N(hint));
    let put = PutRequest::builder().set_item(Some(item)).build().unwrap();
    WriteRequest::builder().put_request(put).build()
}

#[tokio::test]
async fn g_05_a_poll_costs_the_same_beside_a_hundred_thousand_idle_schedules() {
    let (store, _) = kit::faulty().await;
    let driver = TaskDriver::new(store).await;
    let put = PutSchedule {
        schedule: schedule("due"),
        seen: None,
    };
    assert!(
        driver
            .store
            .put_schedules(vec![put])
            .await
            .remove(0)
            .unwrap()
    );
    let poll = async |ms: i64| {
        let before = driver.cost().read_units;
        let query = DueSchedulesQuery {
            now: at(ms),
            limit: 1_000,
            share: None,
        };
        let page = driver.store.due_schedules(query).await.unwrap();
        (page.schedules.len(), driver.cost().read_units - before)
    };
    let alone = [poll(1_000).await, poll(3_000).await];

    let (client, table) = (kit::client().await, driver.store.table());
    let item = item(&client, table).await;
    let numbers: Vec<u32> = (0..SCHEDULES).collect();
    let writes = numbers.chunks(BATCH_LEN).map(|batch| {
        let requests: Vec<_> = batch.iter().map(|number| idle(&item, *number)).collect();
        let call = client.batch_write_item().request_items(table, requests);
        Box::pin(async move { call.send().await.unwrap() })
    });
    let writes: Vec<_> = writes.collect();
    let mut writing = stream::iter(writes).buffer_unordered(8);
    while let Some(written) = writing.next().await {
        assert!(written.unprocessed_items.is_none_or(|left| left.is_empty()));
    }
    let beside = [poll(1_000).await, poll(3_000).await];
    assert_eq!([beside[0].0, beside[1].0], [0, 1]);
    // The pages of the index end with an entry that is not due: at most twenty of these for each shard, half a unit in all.
    for (beside, alone) in beside.iter().zip(alone) {
        let (beside, alone) = (beside.1, alone.1);
        assert!(
            beside <= alone + 0.5 * f64::from(SCHEDULE_SHARDS),
            "{beside} read units, {alone} alone"
        );
    }
}
