//! The records of finished tasks are delivered to the sinks of their jobs, at least once, whatever happens to the sinks.

mod kit;

use std::time::Duration;

use dueline_domain::{Job, Policy, Sink, StateKind, Task};
use dueline_ports::{Clock as _, TaskStore as _};
use kit::{Kit, START, definition, ms, secs};
use tokio::time::sleep;

fn sink(uri: &str) -> Sink {
    Sink::parse(uri).unwrap()
}

async fn put_with_sink(kit: &Kit, job: &str, uri: &str) {
    let policy = Policy {
        retention: Some(Duration::ZERO),
        sink: Some(sink(uri)),
        ..Policy::default()
    };
    kit.put(Job {
        policy,
        ..definition(job)
    })
    .await;
}

/// A task of `job` that has just succeeded.
async fn succeeded(kit: &Kit, job: &str) -> Task {
    let task = kit.submit(job, ms(0)).await;
    kit.due.announce(kit.clock.now());
    let message = kit.receive_and_ack(job, secs(5)).await.unwrap();
    assert_eq!(message.task.id, task.id);
    let run = kit.claim(&message, true).await;
    let task = kit.succeed(&run).await;
    assert!(task.owed.is_some());
    task
}

/// The tasks of the delivered records, in the order of the deliveries.
fn delivered(kit: &Kit) -> Vec<dueline_domain::TaskId> {
    let records = kit.sinks.delivered();
    records.into_iter().map(|(_, record)| record.id).collect()
}

#[tokio::test(start_paused = true)]
async fn f_111_the_record_of_a_finished_task_is_delivered_at_once_and_owed_no_more() {
    let kit = Kit::new().await;
    put_with_sink(&kit, "a", "file:done").await;
    kit.start();
    let task = succeeded(&kit, "a").await;
    kit.due.announce(kit.clock.now());
    sleep(ms(50)).await;
    let (to, record) = kit.sinks.delivered().pop().unwrap();
    assert_eq!((to, record.id), (sink("file:done"), task.id));
    assert_eq!(Some(record.finished_at), task.finished_at);
    let json = String::from_utf8(record.json.to_vec()).unwrap();
    assert!(json.contains(r#""state":"succeeded""#), "{json}");
    assert!(!json.contains("owed") && !json.contains('\n'), "{json}");
    assert_eq!(kit.get(&task).await.owed, None);
    sleep(secs(600)).await;
    assert_eq!(delivered(&kit), [task.id], "one delivery is enough");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_19_while_the_sink_is_down_nothing_is_pruned_and_every_record_arrives_afterwards() {
    let kit = Kit::new().await;
    put_with_sink(&kit, "a", "file:done").await;
    kit.sinks.set_down(Some("disk is full"));
    kit.start();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        tasks.push(succeeded(&kit, "a").await);
    }
    sleep(secs(3_600)).await;
    let pruned = kit.store.prune(kit.clock.now(), 1_000).await.unwrap();
    assert_eq!(pruned.deleted, 0);
    let owed = kit.get(&tasks[0]).await.owed.unwrap();
    assert_eq!(owed.error.as_deref(), Some("disk is full"));
    // A sink that is down costs a few tries per backoff, not one per task.
    let tries: usize = kit.sinks.calls().iter().sum();
    assert!(tries < 250, "{tries} records were tried in an hour");
    kit.sinks.set_down(None);
    sleep(secs(700)).await;
    let mut all = delivered(&kit);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100);
    assert_eq!(delivered(&kit).len(), 100, "a record was delivered twice");
    let pruned = kit.store.prune(kit.clock.now(), 1_000).await.unwrap();
    assert_eq!(pruned.deleted, 100);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_delays_neither_other_sinks_nor_the_tasks_of_its_own_job() {
    let kit = Kit::new().await;
    put_with_sink(&kit, "a", "file:hangs").await;
    put_with_sink(&kit, "b", "file:works").await;
    kit.sinks.set_hanging(Some(sink("file:hangs")));
    kit.start();
    let stuck = succeeded(&kit, "a").await;
    kit.run_until(secs(2)).await;
    let other = succeeded(&kit, "b").await;
    kit.due.announce(kit.clock.now());
    sleep(ms(50)).await;
    assert_eq!(delivered(&kit), [other.id]);
    let task = kit.submit("a", ms(0)).await;
    let begin = kit.since_start();
    kit.due.announce(kit.clock.now());
    kit.wait_for_state(&task, StateKind::Enqueued, ms(50)).await;
    assert!(kit.since_start() - begin <= ms(50));
    assert!(kit.get(&stuck).await.owed.is_some());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_111_a_delivery_that_a_crash_interrupted_is_done_by_the_next_process() {
    let kit = Kit::new().await;
    put_with_sink(&kit, "a", "file:done").await;
    kit.sinks.set_hanging(Some(sink("file:done")));
    kit.start();
    let task = succeeded(&kit, "a").await;
    sleep(secs(5)).await;
    let kit = kit.restarted(Default::default()).await;
    kit.sinks.set_hanging(None);
    assert!(kit.get(&task).await.owed.is_some());
    kit.start();
    sleep(ms(50)).await;
    assert_eq!(delivered(&kit), [task.id]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_lost_its_sink_releases_its_tasks() {
    let kit = Kit::new().await;
    put_with_sink(&kit, "a", "file:done").await;
    kit.sinks.set_down(Some("gone for good"));
    kit.start();
    let task = succeeded(&kit, "a").await;
    sleep(secs(5)).await;
    assert!(kit.get(&task).await.owed.is_some());
    kit.put(definition("a")).await;
    sleep(secs(60)).await;
    assert_eq!(kit.get(&task).await.owed, None);
    assert!(delivered(&kit).is_empty() && START < kit.clock.now());
    kit.stop().await;
}
