//! The changes that a watch of a job reports.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{ChangeKind, Event, NewTask, Policy, StateKind, TaskId, TaskNews};

use tokio::task::JoinSet;

use super::kit::{StoreKit, at, job, job_name, secs, success};
use crate::{ChangeCursor, ChangePage, ChangeQuery, Store, StoreError};

/// Longest time until a store has found a change.
const LAG_MAX: u64 = 20;

fn query(after: Option<ChangeCursor>, ms: i64) -> ChangeQuery {
    ChangeQuery {
        job: job_name("mail"),
        after,
        now: at(ms),
        wait: secs(0),
        limit: 100,
    }
}

async fn page(kit: &StoreKit, query: ChangeQuery) -> ChangePage {
    let page = kit.store.changes(query).await.expect("a page");
    assert!(!page.gap, "{page:?}");
    page
}

/// Where a reader begins.
async fn begin(kit: &StoreKit) -> ChangeCursor {
    let page = page(kit, query(None, 0)).await;
    assert_eq!(page.changes, []);
    page.next
}

/// Reads on until `count` changes of these kinds were reported.
async fn reported(
    kit: &StoreKit,
    mut after: ChangeCursor,
    kinds: &[ChangeKind],
    count: usize,
) -> (Vec<TaskNews>, ChangeCursor) {
    let mut reported: Vec<TaskNews> = Vec::new();
    for _ in 0..LAG_MAX {
        let waiting = ChangeQuery {
            wait: secs(1),
            limit: 3,
            ..query(Some(after), 1_000)
        };
        let page = page(kit, waiting).await;
        assert!(page.changes.len() <= 3);
        if let Some((_, last)) = page.changes.last() {
            assert_eq!(*last, page.next, "the last position is the next one");
        }
        after = page.next;
        let news = page.changes.into_iter().map(|(news, _)| news);
        reported.extend(news.filter(|news| kinds.contains(&news.kind)));
        if reported.len() >= count {
            return (reported, after);
        }
    }
    panic!("{count} changes were expected: {reported:#?}");
}

fn ids_of(news: &[TaskNews], kind: ChangeKind) -> Vec<TaskId> {
    let mut ids: Vec<_> = news
        .iter()
        .filter(|news| news.kind == kind)
        .map(|news| news.id)
        .collect();
    ids.sort_unstable();
    ids
}

pub async fn f_086_every_post_and_every_end_is_told_once(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let old = kit.create(0, kit.new_task()).await;
    kit.succeeded(1).await;
    let start = begin(&kit).await;
    let mut expected = Vec::new();
    let mut running = Vec::new();
    for n in 0..10 {
        let task = kit.create(10 + n, kit.new_task()).await;
        expected.push(task.id);
        // Half of them have ended when the watch reads for the first time.
        let task = kit.run(20, &task, "w").await;
        match n % 2 {
            0 => drop(kit.finish(30, &task, success("1")).await),
            _ => running.push(task),
        }
    }
    let (posted, next) = reported(&kit, start, &[ChangeKind::Posted], 10).await;
    expected.sort_unstable();
    assert_eq!(ids_of(&posted, ChangeKind::Posted), expected);
    for task in &running {
        kit.finish(40, task, success("1")).await;
    }
    let old = kit.run(50, &old, "w").await;
    kit.finish(60, &old, success("1")).await;
    // From the beginning, as a reader whose connection broke.
    let both = [ChangeKind::Posted, ChangeKind::Ended];
    let (news, end) = reported(&kit, start, &both, 21).await;
    expected.push(old.id);
    expected.sort_unstable();
    assert_eq!(ids_of(&news, ChangeKind::Ended), expected);
    assert_eq!(ids_of(&news, ChangeKind::Posted).len(), 10);
    for ended in news.iter().filter(|news| news.kind == ChangeKind::Ended) {
        let shown = ended.shown.as_ref().expect("a task that is stored");
        assert_eq!(shown.state, StateKind::Succeeded);
    }
    // From where the first reader was, only the rest.
    let (rest, _) = reported(&kit, next, &[ChangeKind::Ended], 1).await;
    assert!(ids_of(&rest, ChangeKind::Posted).is_empty(), "{rest:?}");
    let quiet = page(&kit, query(Some(end), 1_000)).await;
    assert_eq!(quiet.changes, []);
    assert_eq!(quiet.next, end);
}

pub async fn f_086_the_moves_of_a_task_are_told(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let start = begin(&kit).await;
    let task = kit.create(10, kit.new_task()).await;
    let (_, next) = reported(&kit, start, &[ChangeKind::Posted], 1).await;
    let task = kit.run(20, &task, "w").await;
    // A heartbeat is no news.
    let token = super::kit::token(&task);
    let task = kit.apply(30, &task, Event::Heartbeat { token }).await;
    let (moves, next) = reported(&kit, next, &[ChangeKind::Changed], 1).await;
    let last = moves.last().and_then(|news| news.shown.as_ref());
    let last = last.expect("a task that is stored");
    assert!(last.state.is_owned(), "{moves:?}");
    assert_eq!(last.owner, task.worker().cloned());
    kit.finish(40, &task, success("1")).await;
    let (end, _) = reported(&kit, next, &[ChangeKind::Ended], 1).await;
    let shown = end[0].shown.as_ref().expect("a task that is stored");
    assert_eq!(
        (shown.state, shown.attempt),
        (StateKind::Succeeded, Some(0))
    );
}

pub async fn f_086_tasks_of_other_jobs_are_not_told(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let start = begin(&kit).await;
    kit.create(10, kit.new_task_of("post")).await;
    let of_mail = kit.create(20, kit.new_task()).await;
    let (news, _) = reported(&kit, start, &[ChangeKind::Posted], 1).await;
    assert_eq!(ids_of(&news, ChangeKind::Posted), [of_mail.id]);
    let unknown = ChangeQuery {
        job: job_name("nobody"),
        ..query(None, 0)
    };
    let refused = kit.store.changes(unknown).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })));
}

pub async fn f_086_a_position_of_another_count_is_told_of_a_gap(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let start = begin(&kit).await;
    let foreign = ChangeCursor {
        epoch: start.epoch ^ 1,
        ..start
    };
    let page = kit.store.changes(query(Some(foreign), 1)).await;
    let page = page.expect("a page");
    assert!(page.gap && page.changes.is_empty(), "{page:?}");
    // The answer says where to go on.
    let task = kit.create(10, kit.new_task()).await;
    let (news, _) = reported(&kit, page.next, &[ChangeKind::Posted], 1).await;
    assert_eq!(ids_of(&news, ChangeKind::Posted), [task.id]);
}

pub async fn f_086_each_of_several_readers_is_told_everything(store: Arc<dyn Store>) {
    let kit = Arc::new(StoreKit::new(store).await);
    let start = begin(&kit).await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let kit = kit.clone();
        readers.spawn(async move { reported(&kit, start, &[ChangeKind::Posted], 30).await.0 });
    }
    let mut tasks: BTreeMap<TaskId, NewTask> = BTreeMap::new();
    for _ in 0..30 {
        let task = kit.new_task();
        tasks.insert(task.id, task);
    }
    let expected: Vec<TaskId> = tasks.keys().copied().collect();
    kit.create_all(10, tasks.into_values().collect()).await;
    for news in readers.join_all().await {
        assert_eq!(ids_of(&news, ChangeKind::Posted), expected);
    }
}

pub async fn f_086_a_task_that_is_deleted_is_told_by_a_store_of_one_process(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(0)),
        ..Policy::default()
    })
    .await;
    let start = begin(&kit).await;
    let task = kit.succeeded(10).await;
    let (_, next) = reported(&kit, start, &[ChangeKind::Ended], 1).await;
    let pruned = kit.store.prune(at(2_000), 100).await.expect("a result");
    if pruned.deleted == 0 || kit.find(&task.job, &task.id).await.is_some() {
        // Expiry deletes the tasks of this store.
        return;
    }
    let page = page(&kit, query(Some(next), 2_000)).await;
    let news: Vec<_> = page.changes.into_iter().map(|(news, _)| news).collect();
    if !news.is_empty() {
        assert_eq!(ids_of(&news, ChangeKind::Removed), [task.id]);
    }
}
