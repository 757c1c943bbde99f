//! Durable effects: a finished task of a job with a sink owes its delivery, and is kept until the delivery is done.

use std::sync::Arc;

use dueline_domain::{Effect, Event, Jitter, Owed, Policy, Reason, Settle, Sink, StateKind, Task};

use super::kit::{StoreKit, at, fatal, ids, job, job_name, secs, success};
use crate::{DueTask, Store, StoreError};

fn with_sink() -> Policy {
    Policy {
        retention: Some(secs(2)),
        sink: Sink::parse("file:done.ndjson").ok(),
        ..Policy::default()
    }
}

fn settle(task: &Task, failed: Option<&str>) -> Event {
    Event::Settle(Settle {
        seen: task.write,
        effect: Effect::Deliver,
        failed: failed.map(|error| (error.into(), Jitter::default())),
    })
}

fn owed(trigger_ms: i64, failures: u32, error: Option<&str>) -> Option<Box<Owed>> {
    Some(Box::new(Owed {
        effects: vec![Effect::Deliver],
        trigger_at: at(trigger_ms),
        failures,
        error: error.map(Into::into),
    }))
}

fn due(task: &Task, ms: i64) -> DueTask {
    DueTask {
        job: task.job.clone(),
        id: task.id,
        kind: task.kind(),
        trigger_at: at(ms),
    }
}

pub async fn f_111_a_finished_task_of_a_job_with_a_sink_owes_its_delivery(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(with_sink()).await;
    let task = kit.succeeded(5_000).await;
    assert_eq!(task.owed, owed(5_000, 0, None));
    let page = kit.due(5_000).await;
    assert_eq!((page.tasks, page.owed), (vec![], vec![due(&task, 5_000)]));
    let page = kit.due(4_999).await;
    assert_eq!((page.tasks, page.owed), (vec![], vec![]));
    assert_eq!(page.next_at.map(|at| at <= task.changed_at), Some(true));
    // Neither a worker nor a queue has anything to do with it.
    assert!(kit.ready("mail").await.is_empty());
    let claimable = kit.store.owned(at(5_000), None).await.expect("an answer");
    assert!(claimable.is_empty());

    kit.put(job("plain")).await;
    let plain = kit.create(5_000, kit.new_task_of("plain")).await;
    let plain = kit.run(5_000, &plain, "w").await;
    let plain = kit.finish(5_000, &plain, success("done")).await;
    assert_eq!(plain.owed, None);
}

pub async fn f_111_a_delivery_that_failed_is_due_after_its_backoff(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(with_sink()).await;
    let mut task = kit.succeeded(5_000).await;
    for (failures, now, next) in [(1, 5_000, 6_000), (2, 6_000, 8_000), (3, 300_000, 304_000)] {
        task = kit.apply(now, &task, settle(&task, Some("no route"))).await;
        assert_eq!(task.owed, owed(next, failures, Some("no route")));
        assert_eq!(task.finished_at, Some(at(5_000)));
        assert_eq!(kit.due(next - 1).await.owed, []);
        assert_eq!(kit.due(next).await.owed, [due(&task, next)]);
    }
    let done = kit.apply(304_000, &task, settle(&task, None)).await;
    assert_eq!(
        (done.owed.clone(), done.finished_at),
        (None, Some(at(5_000)))
    );
    let page = kit.due(900_000).await;
    assert_eq!((page.owed, page.next_at), (vec![], None));
    let again = kit.refused(304_000, &done, settle(&done, None)).await;
    assert_eq!(again, Reason::Moved);
}

pub async fn g_19_a_task_that_owes_is_neither_pruned_nor_deleted_with_its_job(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(with_sink()).await;
    let (one, two) = (kit.succeeded(0).await, kit.succeeded(0).await);
    let one = kit.apply(0, &one, settle(&one, Some("down"))).await;
    let year_ms = 366 * 86_400_000;
    assert_eq!(kit.prune(year_ms, 100).await, 0);
    // Without its sink the job still has tasks that owe.
    kit.set_policy(Policy {
        sink: None,
        ..with_sink()
    })
    .await;
    assert_eq!(kit.prune(year_ms, 100).await, 0);
    match kit.store.delete_job(&job_name("mail")).await {
        Err(StoreError::InUse { unfinished, .. }) => assert_eq!(unfinished, 2),
        other => panic!("a job whose tasks owe was deleted: {other:?}"),
    }
    assert_eq!(kit.get(&one).await, one);
    kit.apply(year_ms, &one, settle(&one, None)).await;
    assert_eq!(kit.prune(year_ms, 100).await, 1);
    kit.apply(year_ms, &two, settle(&two, None)).await;
    assert_eq!(kit.prune(year_ms, 100).await, 1);
    kit.store
        .delete_job(&job_name("mail"))
        .await
        .expect("no task is left");
}

pub async fn f_111_a_redrive_clears_what_a_task_owes(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(with_sink()).await;
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(0, &task, "w").await;
    let failed = kit.finish(0, &task, fatal("no")).await;
    let task = kit.apply(1_000, &failed, Event::Redrive).await;
    assert_eq!((task.kind(), task.owed.clone()), (StateKind::New, None));
    let page = kit.due(1_000).await;
    assert_eq!((page.tasks, page.owed), (vec![due(&task, 1_000)], vec![]));
    let late = kit.refused(1_000, &task, settle(&failed, None)).await;
    assert_eq!(late, Reason::NotFinished);
    let task = kit.trigger(1_000, &task).await;
    let task = kit.run(1_000, &task, "w").await;
    let task = kit.finish(2_000, &task, success("done")).await;
    assert_eq!(task.owed, owed(2_000, 0, None));
    let stale = kit.refused(2_000, &task, settle(&failed, None)).await;
    assert_eq!(stale, Reason::Moved);
}

pub async fn tasks_that_owe_have_limits_of_their_own(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(with_sink()).await;
    let mut owing = Vec::new();
    for ms in 0..6 {
        owing.push(kit.succeeded(ms).await);
    }
    let pending = kit.create(10, kit.task_due(20)).await;
    let page = kit.due_owed_by(100, 4, &[]).await;
    let owed: Vec<_> = page.owed.iter().map(|due| due.id).collect();
    assert_eq!(owed, ids(&owing)[..4], "the oldest four");
    let tasks: Vec<_> = page.tasks.iter().map(|due| due.id).collect();
    assert_eq!(tasks, [pending.id], "tasks that owe hide no other");
    assert!(!page.more);
    let page = kit.due_owed_by(100, 4, &[("mail", 1), ("other", 0)]).await;
    assert_eq!(page.owed.len(), 1);
    let page = kit.due_owed_by(100, 4, &[("mail", 0)]).await;
    assert_eq!(
        (page.owed.len(), page.tasks.len(), page.more),
        (0, 1, false)
    );
    // Counts and statistics are those of finished tasks.
    let stats = kit.store.stats(&pending.job).await.expect("stats");
    assert_eq!(stats.by_state.get(&StateKind::Succeeded), Some(&6));
    assert_eq!(stats.oldest_due_at, Some(at(20)));
}
