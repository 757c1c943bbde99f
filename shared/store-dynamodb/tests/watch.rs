//! Watches of jobs that other processes write.

mod kit;

use std::time::Duration;

use dueline_domain::{ChangeKind, TaskId, TaskNews};
use dueline_ports::{ChangeCursor, ChangePage, ChangeQuery, TaskStore as _};
use dueline_store_dynamodb::DynamoOptions;
use kit::{TaskDriver, at, job};

/// More unfinished tasks than are read each time.
const MANY: usize = 120;

async fn page(reader: &TaskDriver, after: Option<ChangeCursor>, wait: u64) -> ChangePage {
    let query = ChangeQuery {
        job: job("mail").name,
        after,
        now: at(1_000),
        wait: Duration::from_secs(wait),
        limit: 1_000,
    };
    let page = reader.store.changes(query).await.unwrap();
    assert!(!page.gap);
    page
}

/// The changes of this kind, once there are so many.
async fn reported(
    reader: &TaskDriver,
    after: &mut ChangeCursor,
    kind: ChangeKind,
    count: usize,
) -> Vec<TaskNews> {
    let mut reported = Vec::new();
    for _ in 0..10 {
        let page = page(reader, Some(*after), 2).await;
        *after = page.next;
        let news = page.changes.into_iter().map(|(news, _)| news);
        reported.extend(news.filter(|news| news.kind == kind));
        if reported.len() >= count {
            return reported;
        }
    }
    panic!("{count} changes of kind {kind:?} were expected: {reported:#?}");
}

fn ids(news: &[TaskNews]) -> Vec<TaskId> {
    let mut ids: Vec<_> = news.iter().map(|news| news.id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn f_086_what_another_process_writes_is_told_and_costs_no_write() {
    let options = DynamoOptions {
        definitions_ttl: Duration::from_secs(60),
        ..kit::table(4).await
    };
    let writer = TaskDriver::new(kit::open(&options).await).await;
    let reader = writer.with(&kit::open(&options).await);
    let mut after = page(&reader, None, 0).await.next;
    let mut tasks = Vec::new();
    for _ in 0..MANY {
        tasks.push(writer.create(0, writer.task(10)).await);
    }
    let posted = reported(&reader, &mut after, ChangeKind::Posted, MANY).await;
    let mut expected: Vec<_> = tasks.iter().map(|task| task.id).collect();
    expected.sort_unstable();
    assert_eq!(ids(&posted), expected);

    // Of so many tasks only those are read that come or go.
    let quiet = reader.cost();
    let nothing = page(&reader, Some(after), 1).await;
    assert_eq!(nothing.changes, []);
    let read = reader.cost().since(quiet);
    assert!(read.read_units < 40.0, "{read:?}");

    let running = writer.run(10, &tasks[7]).await;
    writer.succeed(20, &running).await;
    let ended = reported(&reader, &mut after, ChangeKind::Ended, 1).await;
    assert_eq!(ids(&ended), [tasks[7].id]);
    assert_eq!(reader.cost().write_units, 0.0, "a watch writes nothing");

    // A reader with a process of its own gets the same.
    let other = writer.with(&kit::open(&options).await);
    let mut from_now = page(&other, None, 0).await.next;
    let running = writer.run(30, &tasks[8]).await;
    writer.succeed(40, &running).await;
    for (process, after) in [(&reader, &mut after), (&other, &mut from_now)] {
        let ended = reported(process, after, ChangeKind::Ended, 1).await;
        assert_eq!(ids(&ended), [tasks[8].id]);
    }
}
