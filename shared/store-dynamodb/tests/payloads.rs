//! Due tasks with large payloads are enqueued without reading them.

mod kit;

use std::time::Duration;

use dueline_domain::{Due, NewTask};
use dueline_ports::TaskStore as _;
use dueline_store_dynamodb::DynamoOptions;
use kit::{TaskDriver, at};

const TASKS: u32 = 60;
const PAYLOAD_BYTES: usize = 50 * 1024;

#[tokio::test]
async fn f_154_a_due_task_of_50_kilobytes_is_enqueued_for_half_a_read_unit() {
    let options = DynamoOptions {
        definitions_ttl: Duration::from_secs(60),
        ..kit::table(4).await
    };
    let frontend = TaskDriver::new(kit::open(&options).await).await;
    let consumer = frontend.with(&kit::open(&options).await);
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let new = NewTask {
            due: Due::At(at(1_000)),
            ..frontend.task(PAYLOAD_BYTES)
        };
        tasks.push(frontend.create(0, new).await);
    }
    let before = consumer.cost().read_units;
    let page = consumer.due(2_000, 1_000).await;
    assert_eq!(page.tasks.len(), tasks.len());
    for task in &tasks {
        consumer.trigger(2_000, task).await;
    }
    let each = (consumer.cost().read_units - before) / f64::from(TASKS);
    // Half a unit is at most 4 KiB of one item, which has some 300 bytes. The scan and the definitions are the rest.
    assert!(each < 0.75, "{each} read units for each task");

    // What was not read is still there, for a claim in the same process and for everybody else.
    let enqueued = frontend.get(&tasks[0]).await.unwrap();
    assert_eq!(enqueued.payload, tasks[0].payload);
    let claimed = consumer.run(2_100, &enqueued).await;
    assert_eq!(claimed.payload, tasks[0].payload);
    let again = frontend.get(&tasks[0]).await.unwrap();
    assert_eq!(
        (again.payload, again.state),
        (claimed.payload, claimed.state)
    );
    // A task that is enqueued a second time still has it.
    let second = frontend.get(&tasks[1]).await.unwrap();
    consumer.trigger(400_000, &second).await;
    let second = consumer.store.get(&second.job, &second.id).await.unwrap();
    assert_eq!(second.unwrap().payload, tasks[1].payload);
}
